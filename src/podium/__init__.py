"""podium: tune, train and promote a model with Kubeflow Pipelines and Katib, on a cluster or on one machine."""

__version__ = "0.1.0"
