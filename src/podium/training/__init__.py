"""What steps, shell and notebook share: recipe, prediction, comparison, import and retention of
models."""
