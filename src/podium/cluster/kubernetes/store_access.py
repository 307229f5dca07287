"""Access of steps and the pods they launch to a cluster's object store: by reference only.

The ConfigMap ``podium-storage`` (deploy/base/storage.yaml) names endpoint and Secret. A step reads
the Secret through the API with its service account, so that the compiled pipeline needs no platform
settings, which KFP 2.0.5 refuses (observed). A launched pod gets references; the kubelet fills them
in.
"""

import os
from collections.abc import MutableMapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput, NotFound
from podium.manifests.job_editor import JobEditor, set_env
from podium.manifests.resource import R
from podium.system.pod import pod_namespace, team_namespace
from podium.system.settings import CLUSTER, ENDPOINTS, STORAGE

_CONFIG_MAP = "podium-storage"
SECRET = "mlpipeline-minio-artifact"
"""Secret of the store that Kubeflow Pipelines brings; the keys in it are accesskey and
secretkey."""

_ENDPOINT = "AWS_ENDPOINT_URL"
OWN_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "MINIO_ACCESS_KEY",
    "PODIUM_S3_SECRET",
    "PODIUM_S3_CREDENTIALS_DIR",
)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Endpoint of the store, and the Secret with its keys."""

    endpoint: str
    """``http://host:port``."""

    region: str = "us-east-1"
    """Region in the signature; most stores but Amazon's ignore it."""

    secret: str = ""
    """Name of the Secret, in the namespace of the pods; empty for pods that have a workload
    identity."""

    jobs_secret: str = ""
    """Secret of launched pods, whose key need not open the test part; empty for the steps' own."""

    access_key: str = "accesskey"
    secret_key: str = "secretkey"
    storage: str = ""
    """URL under which models are kept where a pipeline names none; empty for the bucket of the
    run's artifacts."""

    @classmethod
    def find(cls, cluster: str = "") -> "Access | None":
        """Read the ConfigMap of a namespace; None where there is none.

        Args:
            cluster: URL of the cluster; empty for the namespace of this pod's team, else the one it
                runs in, and for nothing outside of pods.

        Raises:
            PodiumError: It cannot be read.
            InvalidInput: It does not say where the store is.
        """
        if not cluster:
            namespace = team_namespace() or pod_namespace()
            if namespace is None:
                return None
            cluster = f"kubernetes://{namespace}"
        from podium.cluster.kubernetes.api import api_of

        with closing(api_of(cluster)) as api:
            try:
                doing = f"read ConfigMap {_CONFIG_MAP}"
                config_map = api.call(
                    doing, api.core.read_namespaced_config_map, _CONFIG_MAP, api.namespace
                )
            except NotFound:
                return None
            data = config_map.data or {}
            if not data.get("endpoint"):
                raise InvalidInput(
                    f"ConfigMap {_CONFIG_MAP} in namespace {api.namespace} has no endpoint",
                    f"kubectl -n {api.namespace} edit configmap {_CONFIG_MAP}",
                )
        names = (
            "endpoint",
            "region",
            "secret",
            "jobs-secret",
            "access-key",
            "secret-key",
            "storage",
        )
        return cls(**{name.replace("-", "_"): data[name] for name in names if data.get(name)})

    def take(self, environ: MutableMapping[str, str], namespace: str | None = None) -> None:
        """Let this process use the store: the storage reads the Secret by its name when it is
        opened.

        Args:
            namespace: The Secret's; None for this pod's own.
        """
        environ.update({_ENDPOINT: self.endpoint, "AWS_REGION": self.region})
        if self.secret:
            environ["PODIUM_S3_SECRET"] = f"{namespace}/{self.secret}" if namespace else self.secret

    def env(self) -> list[dict[str, Any]]:
        """Return the environment of a launched container."""
        secret = self.jobs_secret or self.secret
        return [
            {"name": _ENDPOINT, "value": self.endpoint},
            {"name": "AWS_REGION", "value": self.region},
            *(_keys(secret, self.access_key, self.secret_key) if secret else ()),
        ]


@dataclass(frozen=True, kw_only=True)
class AccessByReference:
    """The store of whatever namespace a manifest is applied to: the kubelet reads the ConfigMap
    there."""

    secret: str = SECRET
    """Name of the Secret; empty for pods that have a workload identity."""

    def env(self) -> list[dict[str, Any]]:
        """Return the environment of a launched container."""
        region = {"name": _CONFIG_MAP, "key": "region", "optional": True}
        return [
            {
                "name": _ENDPOINT,
                "valueFrom": {"configMapKeyRef": {"name": _CONFIG_MAP, "key": "endpoint"}},
            },
            {"name": "AWS_REGION", "valueFrom": {"configMapKeyRef": region}},
            *(_keys(self.secret) if self.secret else ()),
        ]


def _keys(
    secret: str, access_key: str = "accesskey", secret_key: str = "secretkey"
) -> list[dict[str, Any]]:
    keys = {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, key in keys.items()
    ]


def take_access(environ: MutableMapping[str, str] | None = None) -> None:
    """Let this process use the cluster's store, unless its environment says where and who already.

    Under a team's service account that is the team's store and storage, and the cluster is the
    team's namespace. Credentials alone, as `podium compile --platform secret=` gives them, are used
    with the cluster's own address. An address alone does not count: the cluster's Secret is for the
    cluster's store.

    Raises:
        PodiumError: The ConfigMap cannot be read.
    """
    env = os.environ if environ is None else environ
    if team := team_namespace():
        env.setdefault(CLUSTER, f"kubernetes://{team}")
    own = any(env.get(name) for name in OWN_CREDENTIALS)
    if own and any(env.get(name) for name in ENDPOINTS):
        return
    access = Access.find()
    if access and access.storage:
        env.setdefault(STORAGE, access.storage)
    if access and own:
        env.update({_ENDPOINT: access.endpoint, "AWS_REGION": access.region})
    elif access:
        access.take(env, team)


def grant_access(resource: R, access: Access | AccessByReference | None) -> R:
    """Return a job or Experiment with the store's environment in every container without one of its
    own.

    Args:
        access: The store; None changes nothing.
    """
    if access is None:
        return resource
    names = {entry["name"] for entry in access.env()}

    def change(editor: JobEditor) -> None:
        for _, container in editor.containers():
            if names.isdisjoint(entry["name"] for entry in container.get("env") or []):
                set_env(container, access.env())

    return resource.changed_job(change)
