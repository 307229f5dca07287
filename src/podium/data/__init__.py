"""Datasets: where they come from, how their files are read, and the one artifact every trainer
reads."""
