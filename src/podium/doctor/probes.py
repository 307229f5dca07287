"""Look at a live namespace, one question to the API server each. Nothing is changed."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from podium.cluster.kubernetes.api import Api, Unreachable, api_resource, event_time
from podium.cluster.kubernetes.leadership import ENGINE_LEASE, RENEW_SECONDS, is_led
from podium.cluster.kubernetes.pods import Trouble, created_at, refuses_pod
from podium.doctor.store import Answer, answers, ask_for_bucket, service_of
from podium.errors import Conflict, NotFound, PodiumError, UnknownKind
from podium.manifests.conditions import status_of
from podium.manifests.experiment.experiment import job_of
from podium.manifests.kinds import JOB_KINDS, TRAINJOB
from podium.manifests.labels import TRAINER_API
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload

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
_CONTROLLERS = (*KATIB, *TRAINERS.values())
CONFIG_MAP = "podium-storage"


@dataclass(frozen=True, kw_only=True)
class _Controller:
    """A Deployment that does the work."""

    name: str
    namespace: str
    ready: int


class _Refusal(NamedTuple):
    """Pods of an object that could not be created."""

    kind: str
    name: str
    message: str
    """The newest refusal, in the API server's words."""


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

    controllers: Sequence[_Controller] | None = None
    """Those of _CONTROLLERS that were found."""

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

    refusals: Sequence[_Refusal] | None = ()
    """Objects whose pods could not be created lately."""

    bare: Sequence[str] = ()
    """Objects whose pods use s3:// and are given no credentials."""

    troubles: Sequence[Trouble] = ()

    admitted: Mapping[str, str | None] | None = None
    """Result of the server's dry run by manifest: the refusal, or None."""


_CREDENTIALS = re.compile(r"^AWS_|^MINIO_|^PODIUM_S3_")
_BUCKET = re.compile(r"\b(?:s3|minio)://")


def _allowed(ask: Callable[[], Any], absent: Any = None) -> Any:
    """Ask the API; None if this may not be asked.

    Args:
        absent: Returned if it is not there.

    Raises:
        Unreachable: The server does not answer.
    """
    try:
        return ask()
    except NotFound:
        return absent
    except Unreachable:
        raise
    except PodiumError:
        return None


def _ask(
    api: Api,
    doing: str,
    function: Callable[..., Any],
    *args: Any,
    absent: Any = None,
    **options: Any,
) -> Any:
    return _allowed(lambda: api.call(doing, function, *args, **options), absent)


def _look_at_namespace(api: Api) -> tuple[bool | None, dict[str, str] | None]:
    read, name = api.core.read_namespace, api.namespace
    namespace = _ask(api, f"read namespace {name}", read, name, absent=False)
    return (True, dict(namespace.metadata.labels or {})) if namespace else (namespace, None)


def _serves(api: Api, kind: str, field: str, wanted: str) -> bool | None:
    """Return whether a resource in the API group of a kind has a value; None if that may not be
    asked."""
    where = api_resource(kind)
    doing, discover = f"discover {where.group}/{where.version}", api.custom.get_api_resources
    group = _ask(api, doing, discover, where.group, where.version, absent=False)
    return group and any(getattr(resource, field) == wanted for resource in group.resources)


def _find_controllers(api: Api) -> list[_Controller] | None:
    """Return the controllers in any namespace; None if Deployments may not be listed there."""
    from kubernetes import client

    apps = client.AppsV1Api(api.client)
    deployments = _ask(api, "list deployments", apps.list_deployment_for_all_namespaces)
    return deployments and [
        _Controller(
            name=each.metadata.name,
            namespace=each.metadata.namespace,
            ready=(each.status and each.status.ready_replicas) or 0,
        )
        for each in deployments.items
        if each.metadata.name in _CONTROLLERS
    ]


def _find_missing_rights(
    api: Api, account: str | None, secret: str | None, unknown_kinds: Sequence[str]
) -> list[str] | None:
    """Ask the server for each right; None if it may not be asked (for another account).

    Args:
        account: A service account; oneself if None.
        secret: Name of the storage's Secret, if it is known.
        unknown_kinds: Kinds that the server does not know.
    """
    needless = SERVED if "Experiment" in unknown_kinds else UNSERVED
    rights = [
        (group, plural, verb, "")
        for group, plural, verbs in RIGHTS
        for verb in verbs
        if plural not in needless
    ]
    rights.append(("", "configmaps", "get", CONFIG_MAP))
    rights += [("", "secrets", "get", secret)] if secret else []
    missing = []
    for group, plural, verb, name in rights:
        allowed = _may(api, account, group, plural, verb, name)
        if allowed is None:
            return None
        if not allowed:
            missing.append(f"{verb} {plural} {name}".rstrip())
    return missing


def _may(
    api: Api, account: str | None, group: str, plural: str, verb: str, object_name: str
) -> bool | None:
    from kubernetes import client

    review, name = client.AuthorizationV1Api(api.client), plural.partition("/")[0]
    asked = {
        "namespace": api.namespace,
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": plural.partition("/")[2],
        "name": object_name,
    }
    spec: dict[str, Any] = {
        "resourceAttributes": {key: asked[key] for key in asked if asked[key] or key == "group"}
    }
    body: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "spec": spec}
    if account:
        # The steps of a team run in another namespace than its jobs.
        home, name = account.rpartition(":")[::2]
        groups = f"system:serviceaccounts:{home or api.namespace}"
        spec["user"] = f"system:serviceaccount:{home or api.namespace}:{name}"
        spec["groups"] = ["system:serviceaccounts", groups, "system:authenticated"]
        body |= {"kind": "LocalSubjectAccessReview", "metadata": {"namespace": api.namespace}}
        create, args = review.create_namespaced_local_subject_access_review, [api.namespace, body]
    else:
        body["kind"] = "SelfSubjectAccessReview"
        create, args = review.create_self_subject_access_review, [body]
    answer = _ask(api, "ask for rights", create, *args)
    return None if answer is None else bool(answer.status.allowed)


def _read_data(
    api: Api, kind: str, function: Callable[..., Any], name: str
) -> dict[str, str] | None:
    """Return the data of a ConfigMap or Secret: empty if it is not there, None if it may not be
    read."""
    holder = _ask(api, f"read {kind} {name}", function, name, api.namespace, absent=False)
    return dict(holder.data or {}) if holder else {} if holder is False else None


def _look_at_endpoint(api: Api, storage: Mapping[str, str] | None) -> tuple[bool, str] | None:
    """Report whether the storage's endpoint is served: by a Service with addresses, or a server
    that answers."""
    address = (storage or {}).get("endpoint") or ""
    if not address:
        return None
    service = service_of(address, api.namespace)
    if service is None:
        return answers(address if "://" in address else f"https://{address}")
    read, doing = api.core.read_namespaced_endpoints, f"read endpoints {service.name}"
    endpoints = _ask(api, doing, read, service.name, service.namespace, absent=False)
    where = f"Service {service.name} in namespace {service.namespace}"
    if not endpoints:
        return endpoints if endpoints is None else (False, f"there is no {where}")
    count = sum(len(subset.addresses or []) for subset in endpoints.subsets or [])
    return count > 0, f"{where} has {count} pods behind it"


def _pods(api: Api) -> list[Any]:
    try:
        return list(api.pods(""))
    except PodiumError:
        return []


def _find_refusals(api: Api, pods: Sequence[Any]) -> list[_Refusal] | None:
    """Return the pods that were refused, from the events of the last hour; None if events may not
    be listed."""
    read, name = api.core.list_namespaced_event, api.namespace
    answer = _ask(api, "list events", read, name, absent=False, field_selector="type=Warning")
    if not answer:
        return None if answer is None else []
    recent = datetime.now(UTC) - timedelta(hours=1)
    events = [each for each in answer.items if refuses_pod(each) and event_time(each) > recent]
    latest = {
        (event.involved_object.kind, event.involved_object.name): event
        for event in sorted(events, key=event_time)
    }
    made = [(pod.metadata.name, pod.metadata.creation_timestamp) for pod in pods]
    return [
        _Refusal(kind, name, str(event.message or "").strip())
        for (kind, name), event in latest.items()  # a pod made since then says that it is over
        if not any(pod.startswith(f"{name}-") and since > event_time(event) for pod, since in made)
        and not _is_over(api, kind, name, event_time(event))
    ]


def _is_over(api: Api, kind: str, name: str, refused: datetime) -> bool:
    """Tell whether an object that was refused pods is deleted, ended, replaced or has all it wants
    by now."""
    from kubernetes import client

    try:
        if kind in JOB_KINDS:
            job = Resource.parse({"kind": kind, **api.get(kind, name)})
            return job.state.finished or (created_at(job) or refused) > refused
        if kind == "ReplicaSet":
            read = client.AppsV1Api(api.client).read_namespaced_replica_set
            found = api.call(f"read ReplicaSet {name}", read, name, api.namespace)
            return int(found.status.replicas or 0) >= int(found.spec.replicas or 0)
    except PodiumError as error:
        return isinstance(error, NotFound | UnknownKind)
    return False


def _find_bare(api: Api, manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the objects, given and live, whose pods use s3:// and are given no credentials."""
    found = list(manifests)
    for kind in ("Experiment", *JOB_KINDS):
        with suppress(PodiumError):  # the rules about kinds and rights speak of it
            live = (each for each in api.objects(kind) if not status_of(each).finished)
            found += [each for each in live if not Resource.parse(each).owners]
    return list(dict.fromkeys(_label(each) for each in found if _is_bare(job_of(each))))


def _label(manifest: Mapping[str, Any]) -> str:
    resource = Resource.parse(manifest)
    return f"{resource.kind} {resource.name}"


def _is_bare(job: Workload) -> bool:
    """Tell whether a container's command names s3:// and its pod is given neither credentials nor
    an identity."""
    for replica, container in job.containers():
        kinds = {source for volume in replica.pod.volumes for source in volume.sources}
        named = any(_CREDENTIALS.search(name) for name in container.env) or container.env_from
        credentials = named or kinds & {"secret", "projected", "csi"}
        account = replica.pod.spec.get("serviceAccountName") or "default"
        if _BUCKET.search(" ".join(container.words)) and not credentials and account == "default":
            return True
    return False


def _dry_run(api: Api, manifest: Mapping[str, Any]) -> tuple[str, str | None]:
    """Offer a manifest to the server without keeping it; return its name and the refusal."""
    resource, label = Resource.parse(manifest), _label(manifest)
    where, create = api_resource(resource.kind), api.custom.create_namespaced_custom_object
    body = resource.with_metadata({**resource.metadata, "namespace": api.namespace}).manifest
    address = (where.group, where.version, api.namespace, where.plural)
    try:
        api.call(
            f"create {label}",
            create,
            *address,
            body,
            dry_run="All",
            field_validation="Strict",
            kind=resource.kind,
        )
    except Conflict:
        pass  # it is there already: the webhooks have taken it
    except PodiumError as error:
        return label, error.message
    return label, None


def see(
    api: Api, *, account: str | None, manifests: Sequence[Mapping[str, Any]]
) -> NamespaceSnapshot:
    """Look at a namespace.

    Args:
        api: The API server, and the namespace.
        account: Service account whose rights are checked; the user's own if None.
        manifests: Manifests for a dry run: the webhooks answer, nothing is created.

    Raises:
        PodiumError: The server does not answer.
    """
    exists, labels = _look_at_namespace(api)
    storage = _read_data(api, "ConfigMap", api.core.read_namespaced_config_map, CONFIG_MAP)
    name = (storage or {}).get("secret")
    secret = _read_data(api, "Secret", api.core.read_namespaced_secret, name) if name else None
    # Kinds without a CustomResourceDefinition; discovery needs no rights.
    unknown_kinds = [kind for kind in KINDS if _serves(api, kind, "kind", kind) is False]
    pods = _pods(api)
    return NamespaceSnapshot(
        namespace=api.namespace,
        exists=exists,
        labels=labels,
        unknown_kinds=unknown_kinds,
        katib=_serves(api, "Experiment", "name", "suggestions") is not False,
        engine=_allowed(lambda: is_led(api, ENGINE_LEASE, 2 * RENEW_SECONDS)),
        controllers=_find_controllers(api),
        who=account or "you",
        missing=_find_missing_rights(api, account, name, unknown_kinds),
        storage=storage,
        secret_keys=None if secret is None else sorted(secret),
        endpoint=_look_at_endpoint(api, storage),
        bucket=ask_for_bucket(api, storage or {}, secret or {}),
        refusals=_find_refusals(api, pods),
        bare=_find_bare(api, manifests),
        troubles=list(filter(None, map(Trouble.of_start, pods))),
        admitted=dict(_dry_run(api, manifest) for manifest in manifests),
    )
