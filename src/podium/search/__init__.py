"""Search algorithms over a space of hyperparameters."""
