"""The pod this process runs in, if it runs in one."""

from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mounted by the kubelet: token, CA and namespace."""


def pod_namespace() -> str | None:
    """Return the namespace of the pod this process runs in, or None outside of Kubernetes."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else None
