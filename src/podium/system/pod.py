"""Kubernetes as this process meets it: the pod it runs in, if any, and the API server's address and
credentials, the one way to a client."""

import json
import os
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import PodiumError
from podium.files.documents import foreign

if TYPE_CHECKING:
    from kubernetes.client import Configuration


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


def has_kubeconfig() -> bool:
    """Return whether this user has a kubeconfig: KUBECONFIG or ~/.kube/config."""
    return bool(os.environ.get("KUBECONFIG")) or Path("~/.kube/config").expanduser().is_file()


def load_configuration(
    context: str | None = None, environ: Mapping[str, str] | None = None
) -> "tuple[Configuration, str]":
    """Find address, credentials and namespace: KUBECONFIG, else the pod's service account, else
    ~/.kube/config.

    Args:
        context: The kubeconfig's; its current one if None.
        environ: The environment; the process's own if None.

    Raises:
        PodiumError: None of them can be read.
    """
    from kubernetes import client, config

    configuration = client.Configuration()
    # The client reads KUBECONFIG once, when it is imported, so it is passed explicitly.
    files = (os.environ if environ is None else environ).get("KUBECONFIG") or None
    with foreign(
        "no cluster is configured", PodiumError, "set KUBECONFIG; podium run needs no cluster"
    ):
        if (SERVICE_ACCOUNT / "token").exists() and not files and not context:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, pod_namespace() or "default"
        config.load_kube_config(files, context=context, client_configuration=configuration)
        contexts, active = config.list_kube_config_contexts(files)
        chosen = next((entry for entry in contexts if entry["name"] == context), active)
        return configuration, str(chosen["context"].get("namespace") or "default")
