"""Small projects to begin with: `podium init`."""
