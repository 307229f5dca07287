"""How steps and the pods they launch reach the object store of a cluster: by reference only.

The ConfigMap ``podium-storage`` (deploy/base/storage.yaml) names endpoint and Secret. A step reads the Secret through
the API with its service account, so that the compiled pipeline needs no platform settings, which KFP 2.0.5 refuses
(observed). A launched pod gets references; the kubelet fills them in.
"""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from podium.errors import NotFound
from podium.manifests.resource import Resource
from podium.manifests.workload import Draft, set_env
from podium.pod import pod_namespace
from podium.storage.s3.config import ENDPOINTS

CONFIG_MAP = "podium-storage"
ENDPOINT = "AWS_ENDPOINT_URL"
OWN_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "PODIUM_S3_SECRET", "PODIUM_S3_CREDENTIALS_DIR")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the store is and which Secret opens it."""

    endpoint: str
    """``http://host:port``."""

    region: str = "us-east-1"
    """For the signature; most other stores than Amazon's ignore it."""

    secret: str
    """Name of the Secret, in the namespace of the pods."""

    access_key: str = "accesskey"
    """Key in the Secret."""

    secret_key: str = "secretkey"
    """Key in the Secret."""

    def take(self, environ: MutableMapping[str, str]) -> None:
        """Let this process use the store: the storage reads the Secret by its name when it is opened."""
        environ.update({ENDPOINT: self.endpoint, "AWS_REGION": self.region, "PODIUM_S3_SECRET": self.secret})

    def env(self) -> list[dict[str, Any]]:
        """Return the environment of a launched container."""
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return [
            {"name": ENDPOINT, "value": self.endpoint},
            {"name": "AWS_REGION", "value": self.region},
            *(
                {"name": name, "valueFrom": {"secretKeyRef": {"name": self.secret, "key": key}}}
                for name, key in keys.items()
            ),
        ]


def find_access() -> Access | None:
    """Read the ConfigMap of the namespace this pod runs in; None outside of pods or where there is none.

    Raises:
        PodiumError: It cannot be read.
    """
    if pod_namespace() is None:
        return None
    from podium.cluster.kubernetes.cluster import KubernetesCluster

    with KubernetesCluster("kubernetes://") as here:
        api = here.api
        try:
            doing = f"read ConfigMap {CONFIG_MAP}"
            found = api.call(doing, api.core.read_namespaced_config_map, CONFIG_MAP, api.namespace)
        except NotFound:
            return None
    names = ("endpoint", "region", "secret", "access-key", "secret-key")
    return Access(**{name.replace("-", "_"): found.data[name] for name in names if found.data.get(name)})


def take_access(environ: MutableMapping[str, str] | None = None) -> None:
    """Let this process use the cluster's store, unless its environment says where and who already.

    Credentials alone, as `podium compile --platform secret=` gives them, are used with the cluster's own address. An
    address alone does not count: the cluster's Secret is for the cluster's store.

    Raises:
        PodiumError: The ConfigMap cannot be read.
    """
    env = os.environ if environ is None else environ
    own = any(env.get(name) for name in OWN_CREDENTIALS)
    if own and any(env.get(name) for name in ENDPOINTS):
        return
    access = find_access()
    if access and own:
        env.update({ENDPOINT: access.endpoint, "AWS_REGION": access.region})
    elif access:
        access.take(env)


T = TypeVar("T", bound=Resource)


def grant_access(resource: T, access: Access | None) -> T:
    """Return a job or Experiment with the store's environment in every container that has none of its own.

    Args:
        resource: Stays as it is.
        access: The store; None changes nothing.
    """
    if access is None:
        return resource
    entries = access.env()

    def change(draft: Draft) -> None:
        for _, container in draft.containers():
            if not {one["name"] for one in entries} & {one["name"] for one in container.get("env") or []}:
                set_env(container, entries)

    return resource.changed_job(change)
