"""State of a namespace; podium.doctor.probes reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import TRAINER_API

if TYPE_CHECKING:
    from podium.cluster.kubernetes.refusals import Trouble

RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("kubeflow.org", "pytorchjobs", ("create", "get", "list", "watch", "delete")),
    (TRAINER_API, "trainjobs", ("create", "get", "list", "watch", "delete")),
    ("kubeflow.org", "experiments", ("create", "get", "list", "watch", "delete")),
    ("kubeflow.org", "trials", ("get", "list", "watch")),
    ("batch", "jobs", ("create", "get", "list", "watch", "delete")),
    ("", "pods", ("get", "list", "watch")),
    ("", "pods/log", ("get",)),
    ("", "events", ("list",)),
    ("", "namespaces", ("get",)),
    ("kueue.x-k8s.io", "workloads", ("list",)),
    ("coordination.k8s.io", "leases", ("create", "get", "update", "delete")),
)
"""(API group, resource, verbs) that a step needs; deploy/base/steps.yaml grants them."""

SERVED, UNSERVED = ("experiments", "trials"), ("leases",)
"""Resources that are needed where the cluster serves Experiments, and those that are needed where
it does not."""

KINDS = ("PyTorchJob", TRAINJOB, "Experiment", "Trial", "Job")
TRAINERS = {"PyTorchJob": "training-operator", TRAINJOB: "kubeflow-trainer-controller-manager"}
"""Controller by kind of distributed job; one of the kinds is enough."""

KATIB = ("katib-controller", "katib-db-manager")
CONTROLLERS = (*KATIB, *TRAINERS.values())
CONFIG_MAP = "podium-storage"


@dataclass(frozen=True, kw_only=True)
class Controller:
    """A Deployment that does the work."""

    name: str
    namespace: str
    ready: int


class Refusal(NamedTuple):
    """Pods of an object that could not be created."""

    kind: str
    name: str
    message: str
    """The newest refusal, in the API server's words."""


class Answer(NamedTuple):
    """A store's answer to the question for its bucket."""

    well: bool | None
    """Whether it has the bucket and accepts the key; None if it could not be asked."""

    what: str

    server: str = ""
    """The server's name and version, as it says."""


@dataclass(frozen=True, kw_only=True)
class NamespaceSnapshot:
    """The input of the rules; None stands for a part that may not be read."""

    namespace: str
    exists: bool | None = True
    labels: Mapping[str, str] | None = None
    unknown_kinds: Sequence[str] = ()

    katib: bool = True
    """Whether the API server serves Katib's own kinds."""

    engine: bool | None = None
    """Whether a podium-engine leads in this namespace."""

    controllers: Sequence[Controller] | None = None
    """Those of CONTROLLERS that were found."""

    who: str = "you"
    """Account whose rights were checked."""

    missing: Sequence[str] | None = ()
    """Rights that are missing, as ``verb resource``."""

    storage: Mapping[str, str] | None = None
    """Data of the ConfigMap podium-storage; empty if there is none."""

    secret_keys: Sequence[str] | None = None
    """Keys of the Secret it names; empty if there is none."""

    endpoint: tuple[bool, str] | None = None
    """Whether the storage's endpoint is served, and the answer in words."""

    bucket: Answer | None = None

    refusals: Sequence[Refusal] | None = ()
    """Objects whose pods could not be created lately."""

    bare: Sequence[str] = ()
    """Objects whose pods use s3:// and are given no credentials."""

    troubles: "Sequence[Trouble]" = ()

    admitted: Mapping[str, str | None] | None = None
    """Result of the server's dry run by manifest: the refusal, or None."""
