"""Look at a live namespace, one question to the API server each. Nothing is changed."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from podium.cluster.kubernetes.api import Api, Unreachable, api_resource, event_time
from podium.cluster.kubernetes.leadership import ENGINE_LEASE, RENEW_SECONDS, is_led
from podium.cluster.kubernetes.pods import cannot_start, created_at
from podium.cluster.kubernetes.refusals import REFUSED, Trouble
from podium.doctor.snapshot import (
    CONFIG_MAP,
    CONTROLLERS,
    KINDS,
    RIGHTS,
    SERVED,
    TRAINERS,
    UNSERVED,
    Controller,
    NamespaceSnapshot,
    Refusal,
)
from podium.doctor.store import answers, ask_for_bucket, service_of
from podium.errors import Conflict, NotFound, PodiumError
from podium.manifests.conditions import status_of
from podium.manifests.experiment.experiment import job_of
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload

_CREDENTIALS = re.compile(r"^AWS_|^MINIO_|^PODIUM_S3_")
_BUCKET = re.compile(r"\b(?:s3|minio)://")

RECENT = timedelta(hours=1)


def _ask(api: Api, doing: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call the API; None if this may not be asked.

    Raises:
        NotFound: It is not there.
        PodiumError: The server does not answer.
    """
    try:
        return api.call(doing, function, *args, **options)
    except (NotFound, Unreachable):
        raise
    except PodiumError:
        return None


def _look_at_namespace(api: Api) -> tuple[bool | None, dict[str, str] | None]:
    try:
        namespace = _ask(
            api, f"read namespace {api.namespace}", api.core.read_namespace, api.namespace
        )
    except NotFound:
        return False, None
    return (None, None) if namespace is None else (True, dict(namespace.metadata.labels or {}))


def _find_unknown_kinds(api: Api) -> list[str]:
    """Return the kinds that the server has no CustomResourceDefinition for; discovery needs no
    rights."""
    missing = []
    for kind in KINDS:
        where = api_resource(kind)
        doing = f"discover {where.group}/{where.version}"
        try:
            group = _ask(api, doing, api.custom.get_api_resources, where.group, where.version)
        except NotFound:
            missing.append(kind)
            continue
        if group is not None and not any(known.kind == kind for known in group.resources):
            missing.append(kind)
    return missing


def _serves_katib(api: Api) -> bool:
    """Return whether the server serves Katib's own kinds; True where that may not be asked."""
    where = api_resource("Experiment")
    try:
        group = _ask(
            api, "discover Katib", api.custom.get_api_resources, where.group, where.version
        )
    except NotFound:
        return False
    return group is None or any(known.name == "suggestions" for known in group.resources)


def _look_for_engine(api: Api) -> bool | None:
    """Return whether an engine leads in the namespace; None if its Lease may not be read."""
    try:
        return is_led(api, ENGINE_LEASE, 2 * RENEW_SECONDS)
    except Unreachable:
        raise
    except PodiumError:
        return None


def _find_controllers(api: Api) -> list[Any] | None:
    """Return the Deployments of controllers in any namespace; None if Deployments may not be listed
    there."""
    from kubernetes import client

    apps = client.AppsV1Api(api.client)
    deployments = _ask(api, "list deployments", apps.list_deployment_for_all_namespaces)
    if deployments is None:
        return None
    return [
        deployment for deployment in deployments.items if deployment.metadata.name in CONTROLLERS
    ]


def _controller(deployment: Any) -> Controller:
    ready = deployment.status.ready_replicas if deployment.status else 0
    return Controller(
        name=deployment.metadata.name, namespace=deployment.metadata.namespace, ready=ready or 0
    )


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
    needed = [(group, plural, verbs) for group, plural, verbs in RIGHTS if plural not in needless]
    rights = [(group, plural, verb, "") for group, plural, verbs in needed for verb in verbs]
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

    review = client.AuthorizationV1Api(api.client)
    name, _, sub = plural.partition("/")
    attributes = {"namespace": api.namespace, "verb": verb, "group": group, "resource": name}
    attributes |= {"subresource": sub} if sub else {}
    attributes |= {"name": object_name} if object_name else {}
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    kind = "SelfSubjectAccessReview"
    if account:
        kind = "LocalSubjectAccessReview"
        namespace, _, name = account.rpartition(":")
        namespace = namespace or api.namespace  # the steps of a team run in another than its jobs
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ]
        spec |= {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    body: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    if account:
        body |= {"metadata": {"namespace": api.namespace}}
        answer = _ask(
            api,
            "ask for rights",
            review.create_namespaced_local_subject_access_review,
            api.namespace,
            body,
        )
    else:
        answer = _ask(api, "ask for rights", review.create_self_subject_access_review, body)
    return None if answer is None else bool(answer.status.allowed)


def _read_data(
    api: Api, kind: str, function: Callable[..., Any], name: str
) -> dict[str, str] | None:
    """Return the data of a ConfigMap or Secret: empty if it is not there, None if it may not be
    read."""
    try:
        holder = _ask(api, f"read {kind} {name}", function, name, api.namespace)
    except NotFound:
        return {}
    return None if holder is None else dict(holder.data or {})


def _look_at_endpoint(api: Api, storage: Mapping[str, str] | None) -> tuple[bool, str] | None:
    """Report whether the storage's endpoint is served: by a Service with addresses, or a server
    that answers."""
    address = (storage or {}).get("endpoint") or ""
    if not address:
        return None
    service = service_of(address, api.namespace)
    if service is None:
        return answers(address if "://" in address else f"https://{address}")
    where, read = (
        f"Service {service.name} in namespace {service.namespace}",
        api.core.read_namespaced_endpoints,
    )
    try:
        endpoints = _ask(
            api, f"read endpoints {service.name}", read, service.name, service.namespace
        )
    except NotFound:
        return False, f"there is no {where}"
    if endpoints is None:
        return None
    count = sum(len(subset.addresses or []) for subset in endpoints.subsets or [])
    return count > 0, f"{where} has {count} pods behind it"


def _find_troubles(api: Api) -> list[Trouble]:
    try:
        pods = api.pods("")
    except PodiumError:
        return []
    return [trouble for pod in pods if (trouble := cannot_start(pod))]


def _find_refusals(api: Api) -> list[Refusal] | None:
    """Return the pods that were refused, from the events of the last hour; None if events may not
    be listed."""
    options = {"field_selector": "type=Warning"}
    try:
        answer = _ask(api, "list events", api.core.list_namespaced_event, api.namespace, **options)
    except NotFound:
        return []
    if answer is None:
        return None
    recent = datetime.now(UTC) - RECENT
    events = sorted(
        (event for event in answer.items if event.reason in REFUSED and event_time(event) > recent),
        key=event_time,
    )
    latest = {(event.involved_object.kind, event.involved_object.name): event for event in events}
    try:
        pods = [(pod.metadata.name, pod.metadata.creation_timestamp) for pod in api.pods("")]
    except PodiumError:
        pods = []
    return [
        Refusal(kind, name, str(event.message or "").strip())
        for (kind, name), event in latest.items()  # a pod made since then says that it is over
        if not any(pod.startswith(f"{name}-") and made > event_time(event) for pod, made in pods)
        and not _is_over(api, kind, name, event_time(event))
    ]


def _is_over(api: Api, kind: str, name: str, refused: datetime) -> bool:
    """Tell whether an object that was refused pods is deleted, ended, replaced or has all it wants
    by now."""
    from kubernetes import client

    try:
        if kind in ("Job", *TRAINERS):
            job = Resource.parse({"kind": kind, **api.get(kind, name)})
            return job.state.finished or (created_at(job) or refused) > refused
        if kind == "ReplicaSet":
            read = client.AppsV1Api(api.client).read_namespaced_replica_set
            found = api.call(f"read ReplicaSet {name}", read, name, api.namespace)
            return int(found.status.replicas or 0) >= int(found.spec.replicas or 0)
    except NotFound:
        return True
    except PodiumError:
        return False
    return False


def _find_bare(api: Api, manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    live = []
    for kind in ("Experiment", *TRAINERS, "Job"):
        try:
            live += [manifest for manifest in api.objects(kind) if not status_of(manifest).finished]
        except PodiumError:
            continue  # the rules about kinds and rights speak of it
    own = (manifest for manifest in live if not Resource.parse(manifest).owners)
    return list(
        dict.fromkeys(
            _label(manifest) for manifest in (*manifests, *own) if _is_bare(job_of(manifest))
        )
    )


def _label(manifest: Mapping[str, Any]) -> str:
    resource = Resource.parse(manifest)
    return f"{resource.kind} {resource.name}"


def _is_bare(job: Workload) -> bool:
    """Tell whether a container's command names s3:// and its pod is given neither credentials nor
    an identity."""
    for replica, container in job.containers():
        kinds = {source for volume in replica.pod.volumes for source in volume.sources}
        named = any(_CREDENTIALS.search(name) for name in container.env) or container.env_from
        given = named or kinds & {"secret", "projected", "csi"}
        account = replica.pod.spec.get("serviceAccountName") or "default"
        if _BUCKET.search(" ".join(container.words)) and not given and account == "default":
            return True
    return False


def _dry_run(api: Api, manifest: Mapping[str, Any]) -> tuple[str, str | None]:
    given, label = Resource.parse(manifest), _label(manifest)
    kind, where = given.kind, api_resource(given.kind)
    body = given.with_metadata({**given.metadata, "namespace": api.namespace}).manifest
    try:
        api.call(
            f"create {label}",
            api.custom.create_namespaced_custom_object,
            where.group,
            where.version,
            api.namespace,
            where.plural,
            body,
            dry_run="All",
            field_validation="Strict",
            kind=kind,
        )
    except Conflict:
        pass  # it is there already: the webhooks have taken it
    except PodiumError as error:
        return label, error.message
    return label, None


def see(
    api: Api,
    *,
    account: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
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
    secret_name = (storage or {}).get("secret")
    secret = (
        _read_data(api, "Secret", api.core.read_namespaced_secret, secret_name)
        if secret_name
        else None
    )
    unknown_kinds, controllers = _find_unknown_kinds(api), _find_controllers(api)
    return NamespaceSnapshot(
        namespace=api.namespace,
        exists=exists,
        labels=labels,
        unknown_kinds=unknown_kinds,
        katib=_serves_katib(api),
        engine=_look_for_engine(api),
        controllers=None if controllers is None else list(map(_controller, controllers)),
        who=account or "you",
        missing=_find_missing_rights(api, account, secret_name, unknown_kinds),
        storage=storage,
        secret_keys=None if secret is None else sorted(secret),
        endpoint=_look_at_endpoint(api, storage),
        bucket=ask_for_bucket(api, storage or {}, secret or {}),
        refusals=_find_refusals(api),
        bare=_find_bare(api, manifests),
        troubles=_find_troubles(api),
        admitted=dict(_dry_run(api, manifest) for manifest in manifests),
    )
