"""Address and credentials of the API server."""

import os
from typing import TYPE_CHECKING

from podium.errors import PodiumError
from podium.pod import SERVICE_ACCOUNT, pod_namespace

if TYPE_CHECKING:
    from kubernetes.client import Configuration


def load_configuration(context: str | None = None) -> "tuple[Configuration, str]":
    """Find address, credentials and namespace: KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Args:
        context: Of the kubeconfig; its current one if None.

    Raises:
        PodiumError: None of them can be read.
    """
    from kubernetes import client, config

    configuration = client.Configuration()
    # The client reads KUBECONFIG once, when it is imported: say it again.
    files = os.environ.get("KUBECONFIG") or None
    try:
        if (SERVICE_ACCOUNT / "token").exists() and not files and not context:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, pod_namespace() or "default"
        config.load_kube_config(files, context=context, client_configuration=configuration)
        contexts, active = config.list_kube_config_contexts(files)
    except config.ConfigException as error:
        raise PodiumError(
            f"no cluster is configured: {error}", "set KUBECONFIG; podium run needs no cluster"
        ) from error
    chosen = next((one for one in contexts if one["name"] == context), active)
    return configuration, chosen["context"].get("namespace") or "default"
