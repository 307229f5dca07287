"""What to try next: search algorithms over a space of hyperparameters."""
