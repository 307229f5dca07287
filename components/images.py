"""Images a compiled pipeline names unless `podium compile` is told others."""

STEPS_IMAGE = "podium-steps:0.1.0"
"""Runs the steps: kfp, kubernetes, minio, pyarrow and onnxruntime, no torch."""

TRAINER_IMAGE = "podium-trainer:0.1.0"
"""Runs the trainer: torch as well."""
