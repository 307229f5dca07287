"""Small starter projects: `podium init`."""
