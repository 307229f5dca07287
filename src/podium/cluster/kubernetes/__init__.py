"""The cluster of a ``kubernetes://namespace`` URL: a Kubernetes API server and Kubeflow's
operators."""
