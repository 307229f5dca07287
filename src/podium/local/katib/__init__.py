"""Katib on one machine: Experiments as trial loops over a local cluster's jobs."""
