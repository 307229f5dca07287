"""Recipes, prediction, comparison, import and retention of models, for steps, shell and
notebook."""
