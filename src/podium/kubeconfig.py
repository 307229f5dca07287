"""Address and credentials of the Kubernetes API server: the one way to a client."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from podium.documents import foreign
from podium.errors import PodiumError
from podium.pod import SERVICE_ACCOUNT, pod_namespace

if TYPE_CHECKING:
    from kubernetes.client import Configuration


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
