"""Deploy a model from Python and from the shell."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.rollout import Rollout
from podium.cluster.kubernetes.store_access import SECRET, AccessByReference
from podium.display.terminal import doing
from podium.errors import InvalidInput, PodiumError, suggestion
from podium.files.yaml_loader import dump
from podium.manifests.conditions import Manifest
from podium.manifests.fields import present
from podium.manifests.serving import FORMS, ModelServer, pod_range
from podium.models import CHAMPION, Model, open_registry
from podium.models.document import command
from podium.models.signature import PublicKey, public_key
from podium.models.split import Split
from podium.models.version import Version
from podium.system.arguments import checked, require_types

_log = logging.getLogger("podium")


@checked
@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model's server as objects of a cluster, which are nowhere until they are applied."""

    server: ModelServer = field(repr=False)
    to: str
    version: Version = field(repr=False)
    """Version that is served first."""

    @property
    def manifests(self) -> list[Manifest]:
        """The objects, in the order in which they are applied; no credentials are in them."""
        return FORMS[self.to](self.server)

    @property
    def yaml(self) -> str:
        """The objects as kubectl takes them."""
        return "---\n".join(map(dump, self.manifests))

    def apply(self, timeout: float = 600.0) -> str:
        """Create or update the objects on the cluster of the kubeconfig; return the address once
        the pods answer.

        Args:
            timeout: Seconds to wait for the pods, whose image may have to be pulled.

        Raises:
            UnknownKind: The cluster lacks KServe.
            Failed: A pod cannot start, or they are not ready in time; the objects stay, and so do
                pods that answered.
        """
        name = self.server.name
        with (
            KubernetesCluster(f"kubernetes://{self.server.namespace}") as cluster,
            doing(f"waiting for {name}"),
        ):
            rollout = Rollout(cluster.api, self.manifests)
            rollout.run(timeout)
            address = rollout.address
            cluster.api.patience = 0.0  # the server answers: nothing more is waited for
            least, most = pod_range(self.server.replicas)
            with suppress(PodiumError):
                if least < most and not cluster.api.serves("PodMetrics"):
                    _log.warning("%s is not scaled: this cluster has no metrics-server", name)
        return f"{address}/v2/models/{self.version.name}"


@checked
def deploy(
    model: str | Model,
    version: str = CHAMPION,
    *,
    to: str = "kubernetes",
    storage: str | Path | None = None,
    name: str = "",
    key: str | Path | None = None,
    secret: str = SECRET,
    **settings: Any,
) -> Deployment:
    """Write the objects of a server on a cluster that follows a model's champion, as ``podium
    models deploy`` does.

    Args:
        model: A model of a registry in a bucket, or its name.
        version: An alias to follow, or a version that stays.
        to: ``kubernetes`` or ``kserve``.
        storage: URL of the registry, for a name; PODIUM_STORAGE if None.
        name: Name of the objects; the model's if empty.
        key: PEM of the public key that versions must be signed with; that of PODIUM_PUBLIC_KEY if
            None.
        secret: Secret with the bucket's accesskey and secretkey; empty for a workload identity.
        **settings: ``namespace``, ``replicas``, ``image``, ``cpu``, ``memory``, ``token_secret``,
            ``service_account``, ``watch``, ``canary``, ``shadow``, ``record``.

    Raises:
        InvalidInput: The registry is a directory, or a setting breaks a rule.
        NotFound: There is no such model or version.
        Untrusted: There is a public key, and the version is not signed with it.

    Example:
        >>> import podium
        >>> podium.deploy("mnist", storage="s3://models", replicas=3).apply()  # doctest: +SKIP
        'http://mnist.default.svc/v2/models/mnist'
    """
    if to not in FORMS:
        raise InvalidInput(f"models cannot be deployed to {to!r}", suggestion(to, FORMS))
    own = ("name", "model", "storage", "env", "secret", "public_key")
    allowed = [setting.name for setting in fields(ModelServer) if setting.name not in own]
    for setting in settings:
        if setting not in allowed:
            raise InvalidInput(f"deploy has no setting {setting!r}", suggestion(setting, allowed))
    kinds = {each.name: each.type for each in fields(ModelServer)}
    settings = require_types("podium.deploy", kinds, present(**settings))
    chosen = model if isinstance(model, Model) else open_registry(storage).model(model)
    public = PublicKey.read(Path(key)) if key else public_key()
    server = ModelServer(
        name=name or chosen.name,
        model=chosen.name if version == CHAMPION else f"{chosen.name}@{version}",
        storage=chosen.storage.url,
        env=AccessByReference(secret="").env(),
        secret=secret,
        public_key=public.pem if public else "",
        **settings,
    )
    splits = [
        *([Split.shadow(server.shadow)] if server.shadow else []),
        *([Split.canary(server.canary)] if server.canary else []),
    ]
    stored = chosen.version(version)  # the first look into the registry
    for split in splits:
        if split.name not in ("", chosen.name):
            raise InvalidInput(
                f"{chosen.name} is deployed, but {split.name}@{split.ref} is of another model",
                f"name a version of it: {command(f'models list {chosen.name}', chosen.storage)}",
            )
        chosen.version(split.ref)
    if public:
        public.check(stored)
    return Deployment(server=server, to=to, version=stored)
