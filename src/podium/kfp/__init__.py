"""Kubeflow Pipelines: compile, upload, submit, schedule."""
