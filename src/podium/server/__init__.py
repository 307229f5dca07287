"""A Kubeflow Pipelines server: upload versions, submit runs, keep schedules. Works with 2.0.5 and with 2.16."""
