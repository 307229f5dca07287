"""The Kubernetes API for podium's kinds: plain dicts in and out, the server's own reason in every
error."""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from podium.cluster.base import KINDS
from podium.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    PodiumError,
    Unavailable,
    UnknownKind,
)
from podium.files.documents import load_json
from podium.manifests.conditions import Manifest, timestamp
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB
from podium.manifests.labels import TRAINER_API
from podium.system.pod import load_configuration, pod_namespace

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_TIMEOUT = (5, 30)
"""Seconds to connect and to wait for an answer."""

_ROLES_SECONDS = 10.0
"""Time in which a server that was away has read its roles."""

_LACKS = (
    "the service account lacks a right: apply deploy/ and run the steps as podium-steps (podium submit "
    "--service-account podium-steps), or see `kubectl auth can-i --list`"
)
_UNKNOWN = "the server does not know who asks: renew the token or certificate of the kubeconfig (kubectl auth whoami)"

_CREATION = "podium/creation"
"""Annotation with a random id: identifies our own object, if an answer was lost, among others of
the same name."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Timeouts and intervals of a cluster, in seconds."""

    patience: float = 90.0
    """A request is repeated while the server restarts, asks to slow down or fails by itself."""

    outage: float = 900.0
    """A watch continues for so long while no request is answered: an upgrade of the control plane
    takes minutes."""

    window: int = 5
    """Quiet time after which the pods are checked: an image that cannot be pulled does not change a
    job's status."""

    pause: float = 1.0
    """Interval of checks for a pod that has not started, or is being replaced."""

    image_grace: float = 20.0
    """Time for a registry to recover: the kubelet has tried twice by then."""

    schedule_grace: float = 180.0
    """Time for an autoscaler to add a node; `kubernetes://namespace?grace=600` waits longer."""

    taken_up_grace: float = 30.0
    """Time for an engine to pick up an Experiment: a new leader takes over fifteen seconds after
    the last was killed."""

    refused_grace: float = 15.0
    """While a quota or policy refuses a pod: another pod may be about to end, a new namespace is
    still set up."""


USUAL_WAITS = Waits()


@dataclass(frozen=True)
class _ApiResource:
    """API coordinates of a kind."""

    group: str
    version: str
    plural: str
    hint: str
    """Hint for a server that does not know the kind."""


_KATIB = (
    "let podium run Experiments here: kubectl apply -k deploy/engine; or install Katib 0.19, "
    "or run it on one machine"
)
_OPERATOR = "install the Kubeflow training operator 1.9 in this cluster"
_KSERVE = "install KServe in this cluster, or use --to kubernetes"
_TRAINER = "install Kubeflow Trainer 2.2 or later in this cluster, or run a PyTorchJob"
RESOURCES = {
    **{
        kind: _ApiResource("kubeflow.org", "v1", f"{kind.lower()}s", _OPERATOR)
        for kind in OPERATOR_KINDS
    },
    TRAINJOB: _ApiResource(TRAINER_API, "v1alpha1", "trainjobs", _TRAINER),
    "OptimizationJob": _ApiResource(TRAINER_API, "v1alpha1", "optimizationjobs", _TRAINER),
    "Experiment": _ApiResource("kubeflow.org", "v1beta1", "experiments", _KATIB),
    "Trial": _ApiResource("kubeflow.org", "v1beta1", "trials", _KATIB),
    "Job": _ApiResource(
        "batch", "v1", "jobs", "check that the address is that of a Kubernetes API server"
    ),
    "Deployment": _ApiResource(
        "apps", "v1", "deployments", "check that the address is that of a Kubernetes API server"
    ),
    "InferenceService": _ApiResource("serving.kserve.io", "v1beta1", "inferenceservices", _KSERVE),
    "PodMetrics": _ApiResource("metrics.k8s.io", "v1beta1", "pods", "install metrics-server"),
}


def api_resource(kind: str) -> _ApiResource:
    """Return where a kind lives.

    Raises:
        InvalidInput: podium does not launch this kind.
    """
    if kind not in RESOURCES:
        raise InvalidInput(
            f"podium does not launch a {kind or 'manifest without kind'}",
            f"one of {', '.join(KINDS)}",
        )
    return RESOURCES[kind]


def _reason_of(error: Any) -> tuple[str, bool]:
    """Return the server's message, and whether it is a Kubernetes Status rather than a bare HTTP
    page.

    Args:
        error: A kubernetes.client.ApiException. The webhook's and the quota's words are in its body
            only.
    """
    body = (
        error.body.decode(errors="replace") if isinstance(error.body, bytes) else (error.body or "")
    )
    try:
        return str(load_json(body, "the answer")["message"]), True
    except (InvalidInput, KeyError, TypeError):
        return (body or error.reason or f"HTTP {error.status}").strip(), False


def event_time(event: Any) -> datetime:
    """Return when an event happened last; controllers fill in one field or the other."""
    when: datetime = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return when


def is_passing(error: Any) -> bool:
    """Tell whether the same request may work in a moment: no answer, 429, or any 5xx.

    A webhook that restarts is a 500 like any other (``failed calling webhook … connection
    refused``). A connection that breaks off in TLS is an ApiException of status 0.

    Args:
        error: A kubernetes.client.ApiException or urllib3.exceptions.HTTPError.
    """
    status = getattr(error, "status", None)
    return not status or status == 429 or status >= 500


def _translate(error: Any, doing: str, kind: str | None) -> PodiumError:
    message, is_status = _reason_of(error)
    text = f"cannot {doing}: {message}"
    if error.status == 404 and kind and not is_status:
        return UnknownKind(
            f"cannot {doing}: this cluster does not know the kind {kind}", api_resource(kind).hint
        )
    if error.status == 404:
        return NotFound(text)
    if error.status == 409:
        return Conflict(text)
    if error.status == 403 and "exceeded quota" in message:
        return PodiumError(
            text, "ask for less (replicas, cpu, memory, gpu), or have the quota raised"
        )
    if error.status == 401:
        return Denied(text, _UNKNOWN)
    if error.status == 403 and "admission webhook" not in message:
        return Denied(text, _LACKS)
    if error.status in (400, 403, 422):
        return InvalidInput(text)
    if is_passing(error):
        hint = "the server said so for as long as it was asked; see its health and its webhooks'"
        return Unavailable(text, webhook_hint(message) or hint)
    return PodiumError(text)


def webhook_hint(message: str) -> str | None:
    """Return how to look at the webhook that the API server could not ask; None if it says no such
    thing."""
    called = re.search(
        r'failed calling webhook "([^"]+)".*?https://([\w-]+)\.([\w-]+)\.svc', message, re.DOTALL
    )
    if not called:
        return None
    webhook, service, namespace = called.groups()
    shown = f"kubectl -n {namespace} get endpoints,pods"
    return f"nobody answers for webhook {webhook}: {shown} shows what is behind {service}"


class Unreachable(Unavailable):
    """The API server does not answer at all."""


@dataclass
class _Silence:
    """Failures of a server, known to every copy of an Api: time.monotonic() of each."""

    since: float | None = None
    """That of the first since the last answer; None if it answers."""

    last: float = float("-inf")


class Api:
    """One namespace of one API server.

    Args:
        configuration: Address and credentials.
        namespace: The namespace of every call.
    """

    def __init__(self, configuration: "Configuration", namespace: str) -> None:
        from kubernetes import client
        from urllib3.exceptions import HTTPError

        configuration.retries = False  # call() waits; urllib3 would multiply it
        self.host = str(configuration.host)
        self.namespace = namespace
        self.client = client.ApiClient(configuration)
        self.failures = (client.ApiException, HTTPError)  # of its methods
        self.custom = client.CustomObjectsApi(self.client)
        self.core = client.CoreV1Api(self.client)
        self.coordination = client.CoordinationV1Api(self.client)
        self.answered = pod_namespace() is not None  # a pod was given the right address
        self.waits = USUAL_WAITS
        self.patience: float | None = (
            None  # seconds that call() repeats a request; that of waits if None
        )
        self.budget = float("inf")  # seconds that all calls together may spend on repeating
        self.asking = ""  # what the last call tries
        self.silence = _Silence()

    def call(
        self,
        doing: str,
        function: Callable[..., Any],
        *args: Any,
        kind: str | None = None,
        patience: float | Callable[[], float] | None = None,
        **options: Any,
    ) -> Any:
        """Call the API; repeat what may pass (is_passing) for a while.

        A server that never answered gets a few seconds only: that is a wrong address, not a
        restart.

        Args:
            doing: Description of the request, for the error.
            function: Method of a kubernetes client.
            patience: Seconds to repeat, or what tells how many are left; that of this object if
                None.

        Raises:
            PodiumError: As by error; Unavailable if it did not pass.
        """
        pause, started, self.asking = 0.25, time.monotonic(), doing
        while True:
            try:
                answer = function(*args, **{"_request_timeout": _TIMEOUT, **options})
                self.answered, self.silence.since = True, None
                return answer
            except self.failures as error:
                failed: Any = error
            self.note(failed)
            self.answered = self.answered or bool(getattr(failed, "status", None))
            taken = time.monotonic() - started
            passing = is_passing(failed) or self._denies_for_a_moment(failed)
            left = patience() if callable(patience) else self._limit(patience) - taken - pause
            if not passing or left <= 0:
                self.budget -= min(self.budget, taken) if passing else 0.0
                raise self.error(failed, doing, kind) from failed
            time.sleep(min(pause, left) if callable(patience) else pause)
            pause = min(pause * 2, 5.0)

    def _limit(self, patience: float | None) -> float:
        limits = (
            limit for limit in (patience, self.patience, self.waits.patience) if limit is not None
        )
        return min(next(limits) if self.answered else 3.0, self.budget)

    def _denies_for_a_moment(self, error: Any) -> bool:
        # It has just started, and knows no roles yet (observed for 0.3 s).
        since = time.monotonic() - self.silence.last
        return getattr(error, "status", None) == 403 and since < _ROLES_SECONDS

    def note(self, error: Any) -> None:
        """Record the time since which requests get no answer."""
        if not is_passing(error):
            self.silence.since = None
            return
        self.silence.last = time.monotonic()
        self.silence.since = self.silence.since or self.silence.last

    def error(self, error: Any, doing: str, kind: str | None = None) -> PodiumError:
        """Turn an exception of a client into the error a user reads.

        Args:
            error: A kubernetes.client.ApiException or urllib3.exceptions.HTTPError.
            doing: Description of the request, for example "create PyTorchJob mnist in namespace
                team".
            kind: The kind concerned, to tell a missing CRD from a missing object.
        """
        if getattr(error, "status", None):
            return _translate(error, doing, kind)
        why = f"the Kubernetes API at {self.host} does not answer: {getattr(error, 'reason', None) or error}"
        return Unreachable(why, "check the cluster and the kubeconfig")

    def broken_watch(self, error: Any, doing: str, kind: str) -> PodiumError:
        """Return the error of a watch that may be begun again; args as of error.

        Raises:
            PodiumError: It may not: the server refuses.
        """
        # 410: the server no longer has the version; the next snapshot brings a newer one.
        self.note(error)
        lost = self.error(error, doing, kind)
        if not is_passing(error) and getattr(error, "status", None) not in (401, 403, 410):
            raise lost from error
        return lost

    def _where(self, kind: str) -> tuple[str, str, str, str]:
        resource = api_resource(kind)
        return resource.group, resource.version, self.namespace, resource.plural

    def create(self, kind: str, manifest: Manifest, **how: Any) -> Manifest:
        """Create an object; unknown fields are refused, not dropped.

        The answer to a request that did create it may be lost: the repetition then meets the object
        of the first.

        Args:
            how: Options of call.
        """
        metadata = manifest.get("metadata") or {}
        name, creation = metadata.get("name"), uuid.uuid4().hex
        annotations = {**(metadata.get("annotations") or {}), _CREATION: creation}
        stamped = {**manifest, "metadata": {**metadata, "annotations": annotations}}
        doing = f"create {kind} {name} in namespace {self.namespace}"
        create = self.custom.create_namespaced_custom_object
        try:
            where = self._where(kind)
            return dict(
                self.call(
                    doing, create, *where, stamped, field_validation="Strict", kind=kind, **how
                )
            )
        except Conflict:
            present = self.get(kind, str(name))
            if (present["metadata"].get("annotations") or {}).get(_CREATION) != creation:
                raise
            return present

    def apply(self, manifest: Manifest) -> None:
        """Create an object, or update it to its manifest; fields of other writers stay (server-side
        apply)."""
        version, kind, name = manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"]
        path = f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{self.namespace}/{kind.lower()}s/{name}"
        self.call(
            f"apply {kind} {name} in namespace {self.namespace}",
            self.client.call_api,
            path,
            "PATCH",
            body=manifest,
            kind=kind if kind in RESOURCES else None,
            response_type="object",
            auth_settings=["BearerToken"],
            query_params=[
                ("fieldManager", "podium"),
                ("force", "true"),
                ("fieldValidation", "Strict"),
            ],
            header_params={
                "Content-Type": "application/apply-patch+yaml",
                "Accept": "application/json",
            },
        )

    def serves(self, kind: str) -> bool:
        """Return whether the server serves a kind; every account may ask (role
        system:discovery)."""
        return api_resource(kind).plural in self.plurals(kind)

    def plurals(self, kind: str) -> set[str]:
        """Return the plurals of all kinds that the server serves in the group and version of a
        kind."""
        resource = api_resource(kind)
        try:
            answer = self.call(
                f"look for {kind}",
                self.custom.get_api_resources,
                resource.group,
                resource.version,
                kind=kind,
            )
        except (UnknownKind, NotFound):
            return set()
        return {listed.name for listed in answer.resources}

    def get(self, kind: str, name: str) -> Manifest:
        return dict(self._ask("get", self.custom.get_namespaced_custom_object, kind, name))

    def _ask(
        self, doing: str, function: Callable[..., Any], kind: str, name: str, *args: Any, **how: Any
    ) -> Any:
        action = f"{doing} {kind} {name} in namespace {self.namespace}"
        return self.call(action, function, *self._where(kind), name, *args, kind=kind, **how)

    def _list(self, kind: str, **options: Any) -> tuple[list[Manifest], str]:
        doing = f"list {kind} objects in namespace {self.namespace}"
        function = self.custom.list_namespaced_custom_object
        answer = self.call(doing, function, *self._where(kind), kind=kind, **options)
        resource = api_resource(kind)
        version = f"{resource.group}/{resource.version}"
        items = [{"apiVersion": version, "kind": kind, **item} for item in answer["items"]]
        return items, str(answer["metadata"]["resourceVersion"])

    def objects(self, kind: str, selector: str = "") -> list[Manifest]:
        """Read all objects that match a label selector, oldest first."""
        items, _ = self._list(kind, label_selector=selector)
        return sorted(
            items,
            key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]),
        )

    def all_of(self, kind: str) -> tuple[list[Manifest], str]:
        """Read all objects of a kind, and the resourceVersion from which to watch them; nothing is
        repeated."""
        return self._list(kind, patience=0)

    def snapshot(self, kind: str, name: str) -> tuple[Manifest | None, str]:
        """Read an object, None if there is none, and the resourceVersion from which to watch it;
        nothing is repeated.

        An object's own resourceVersion is no start for a watch: a server that was restarted knows
        only versions since, and a quiet object's is older for good.
        """
        items, version = self._list(kind, field_selector=f"metadata.name={name}", patience=0)
        return (items[0] if items else None), version

    def patch(self, kind: str, name: str, change: Manifest, **how: Any) -> Manifest:
        """Merge fields into an object; the options are those of call."""
        patch = self.custom.patch_namespaced_custom_object
        return dict(self._ask("change", patch, kind, name, change, **how))

    def patch_status(self, kind: str, name: str, change: Manifest, **how: Any) -> Manifest:
        """Merge fields into an object's status; None removes a field. The options are those of
        call."""
        patch = self.custom.patch_namespaced_custom_object_status
        return dict(self._ask("write the status of", patch, kind, name, {"status": change}, **how))

    def delete(self, kind: str, name: str, **how: Any) -> None:
        """Ask for an object's removal; its pods follow. No error if it is not there. The options
        are those of call."""
        delete = self.custom.delete_namespaced_custom_object
        with suppress(NotFound):
            self._ask("delete", delete, kind, name, propagation_policy="Background", **how)

    def delete_now(self, kind: str, name: str) -> None:
        """Send one request to remove an object: no retry, two seconds at most, no error if it is
        not there."""
        delete = self.custom.delete_namespaced_custom_object
        try:
            delete(
                *self._where(kind), name, propagation_policy="Background", _request_timeout=(1, 1)
            )
        except self.failures as error:
            if getattr(error, "status", None) != 404:
                raise self.error(error, f"delete {kind} {name}", kind) from error

    def events(self, kind: str, name: str, version: str, seconds: int) -> Iterator[dict[str, Any]]:
        """Yield watch events of one object, or of all of a kind, for some seconds, after a
        resourceVersion.

        Args:
            name: Empty for all.

        Raises:
            kubernetes.client.ApiException: As the server says; 410 means the version is too old.
            urllib3.exceptions.HTTPError: The connection was lost.
        """
        from kubernetes.watch import Watch

        for event in Watch().stream(
            self.custom.list_namespaced_custom_object,
            *self._where(kind),
            **({"field_selector": f"metadata.name={name}"} if name else {}),
            resource_version=version,
            timeout_seconds=seconds,
            _request_timeout=(5, seconds + 10),
        ):
            yield {"type": event["type"], "object": event["raw_object"]}

    def pods(self, selector: str) -> list[Any]:
        """Return the pods (V1Pod) that match a label selector, oldest first."""
        doing = f"list pods in namespace {self.namespace}"
        answer = self.call(
            doing, self.core.list_namespaced_pod, self.namespace, label_selector=selector
        )
        return sorted(
            answer.items, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name)
        )

    def warnings(self, name: str = "", kind: str = "") -> list[Any]:
        """Return the warnings (CoreV1Event) about objects of a name, or of a kind, oldest first."""
        doing = f"list events in namespace {self.namespace}"
        about = f"involvedObject.name={name}" if name else f"involvedObject.kind={kind}"
        selector = f"{about},type=Warning"
        answer = self.call(
            doing, self.core.list_namespaced_event, self.namespace, field_selector=selector
        )
        return sorted(answer.items, key=event_time)

    def tell(self, kind: str, name: str, uid: str, reason: str, message: str) -> None:
        """Write an Event about an object, which `kubectl describe` and `kubectl get events` show
        for an hour."""
        now = timestamp()
        resource = api_resource(kind)
        version = f"{resource.group}/{resource.version}"
        about = {
            "kind": kind,
            "name": name,
            "namespace": self.namespace,
            "uid": uid,
            "apiVersion": version,
        }
        body = {
            "metadata": {"generateName": f"{name}.", "namespace": self.namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Normal",
            "source": {"component": "podium"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.call(
            f"write an event about {kind} {name}",
            self.core.create_namespaced_event,
            self.namespace,
            body,
        )

    def close(self) -> None:
        self.client.close()
        self.client.rest_client.pool_manager.clear()


def api_of(url: str) -> Api:
    """Return the namespace that a URL names, ``kubernetes://namespace``, or else the kubeconfig or
    the pod this runs in.

    Raises:
        PodiumError: There is no cluster configured.
    """
    configuration, namespace = load_configuration()
    return Api(configuration, urlsplit(url).netloc or namespace)
