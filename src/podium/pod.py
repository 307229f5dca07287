"""The pod this process runs in, if it runs in one."""

import json
from base64 import urlsafe_b64decode
from pathlib import Path

POD_NAME = "KFP_POD_NAME"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mounted by the kubelet: token, CA and namespace."""


def pod_namespace() -> str | None:
    """Return the namespace of the pod this process runs in, or None outside of Kubernetes."""
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else None


STEPS = "podium-steps"
"""Service account of steps; that of a team's steps is ``podium-steps-NAMESPACE`` (deploy/team)."""


def team_namespace() -> str | None:
    """Return the namespace that this pod's team has: NAMESPACE of its service account
    ``podium-steps-NAMESPACE``.

    The steps of all teams may run in one namespace, that of Kubeflow Pipelines; what they launch
    and read is their team's. None outside of Kubernetes and for any other service account.
    """
    file = SERVICE_ACCOUNT / "token"
    if not file.is_file():
        return None
    payload = file.read_text().split(".")[
        1
    ]  # of a JSON Web Token; the API server has checked its signature
    account = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"].rpartition(
        ":"
    )[2]
    return str(account.removeprefix(f"{STEPS}-")) if account.startswith(f"{STEPS}-") else None
