"""``kubernetes://namespace``: jobs and experiments on a real cluster."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from podium.cluster import kubernetes_logs, kubernetes_pods, kubernetes_watch
from podium.cluster.base import Cluster, Manifest
from podium.cluster.deadlines import with_pod_deadlines
from podium.cluster.defaults import with_pod_defaults
from podium.cluster.kubernetes_api import Api, resource
from podium.errors import Failed, InvalidInput, NotFound, PodiumError, require
from podium.manifests.conditions import status_of

if TYPE_CHECKING:
    from kubernetes.client import Configuration

INJECTION = "katib.kubeflow.org/metrics-collector-injection"
"""Label of a namespace in which Katib collects metrics (katib: pkg/webhook/v1beta1/pod)."""

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DELETE_WAIT = 30.0


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
        if (ACCOUNT / "token").exists() and not files and not context:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, (ACCOUNT / "namespace").read_text().strip()
        config.load_kube_config(files, context=context, client_configuration=configuration)
        contexts, active = config.list_kube_config_contexts(files)
    except config.ConfigException as error:
        raise PodiumError(
            f"no cluster is configured: {error}", "set KUBECONFIG; podium run needs no cluster"
        ) from error
    chosen = next((one for one in contexts if one["name"] == context), active)
    return configuration, chosen["context"].get("namespace") or "default"


class KubernetesCluster(Cluster):
    """A namespace of a Kubernetes cluster with the training operator and, for experiments, Katib.

    Args:
        url: ``kubernetes://namespace``; without a namespace the one of the kubeconfig's context, or of the pod this
            runs in. ``?grace=600``: seconds a pod may stay unschedulable before its job is given up.

    Raises:
        InvalidInput: The URL has parts that mean nothing here.
        PodiumError: There is no cluster configured.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True)
        hint = "for example kubernetes://kubeflow or kubernetes://team?grace=600"
        require(parts.path in ("", "/") and set(query) <= {"grace"}, "a URL is kubernetes://namespace", hint, url=url)
        grace = query.get("grace", [str(kubernetes_pods.SCHEDULE_GRACE)])[-1]
        require(grace.replace(".", "", 1).isdigit(), "grace is a number of seconds", hint, grace=grace)
        configuration, namespace = load_configuration()
        self.api = Api(configuration, parts.netloc or namespace)
        self.url = f"kubernetes://{self.api.namespace}"
        self.schedule_grace = float(grace)

    def create(self, manifest: Manifest) -> Manifest:
        kind = str(manifest.get("kind"))
        resource(kind)
        require(kind != "Trial", "a Trial is made by its Experiment", kind=kind)
        metadata = manifest.get("metadata") or {}
        named = metadata.get("namespace") or self.api.namespace
        require(named == self.api.namespace, "the manifest's namespace is the cluster's", namespace=named, url=self.url)
        if kind == "Experiment":
            self._check_injection()
        there = {**manifest, "metadata": {**metadata, "namespace": self.api.namespace}}
        return self.api.create(kind, with_pod_deadlines(with_pod_defaults(there)))

    def _check_injection(self) -> None:
        """Refuse an Experiment where Katib would never see a metric; a namespace that may not be read passes."""
        namespace = self.api.namespace
        try:
            found = self.api.call(f"read namespace {namespace}", self.api.core.read_namespace, namespace)
        except InvalidInput:
            raise
        except PodiumError:
            return
        labels = found.metadata.labels or {}
        if labels.get(INJECTION) != "enabled":
            hint = f"kubectl label namespace {namespace} {INJECTION}=enabled"
            raise InvalidInput(
                f"Katib collects no metrics in namespace {namespace}: it lacks {INJECTION}=enabled", hint
            )

    def get(self, kind: str, name: str) -> Manifest:
        return self.api.get(kind, name)

    def list(self, kind: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        return self.api.objects(kind, ",".join(f"{key}={value}" for key, value in (labels or {}).items()))

    def watch(self, kind: str, name: str, timeout: float | None = None) -> Iterator[Manifest]:
        """As the interface says; a pod that can never start, or is refused, ends it early.

        Raises:
            NotFound: There is none at the start.
            Failed: The timeout passed; or an image cannot be pulled, a Secret is missing, no node fits, a quota or a
                policy refuses its pods.
        """
        watchman = kubernetes_pods.Watchman(self.api, self.schedule_grace)
        return kubernetes_watch.watch(self.api, kind, name, timeout, watchman.look)

    def logs(self, kind: str, name: str, replica: str | None = None, follow: bool = False) -> Iterator[str]:
        self.api.get(kind, name)
        return kubernetes_logs.logs(self.api, kind, name, replica, follow, lambda: self._is_over(kind, name))

    def _is_over(self, kind: str, name: str) -> bool:
        try:
            return status_of(self.api.get(kind, name)).finished
        except NotFound:
            return True

    def failure(self, kind: str, name: str) -> Failed:
        try:
            manifest = self.api.get(kind, name)
        except NotFound:
            manifest = None
        return kubernetes_pods.explain(self.api, kind, name, manifest)

    def delete(self, kind: str, name: str) -> None:
        selector = kubernetes_pods.selector_of(self.api, kind, name) if kind == "Experiment" else None
        self.api.delete(kind, name)
        selector = selector or kubernetes_pods.selector_of(self.api, kind, name)
        end = time.monotonic() + DELETE_WAIT
        while self.api.pods(selector) and time.monotonic() < end:
            time.sleep(0.5)

    def abandon(self, kind: str, name: str) -> None:
        self.api.delete_now(kind, name)

    def close(self) -> None:
        self.api.close()
