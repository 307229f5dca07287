"""The Kubernetes API for the kinds podium knows: plain dicts in and out, the server's own reason in every error."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.cluster.base import KINDS, Manifest
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError, require

if TYPE_CHECKING:
    from kubernetes.client import Configuration

PATIENCE = 90.0
"""Seconds to wait out a server that restarts or asks to slow down."""

TIMEOUT = (5, 30)
"""Seconds to connect and to wait for an answer."""

BUSY = (429, 502, 503, 504)
"""HTTP answers that mean: the same request may work in a moment."""


@dataclass(frozen=True)
class Resource:
    """Where the API keeps a kind."""

    group: str
    version: str
    plural: str
    mend: str
    """What to do when the server does not know it."""


_KATIB = "install Katib 0.19 in this cluster, or run the experiment on one machine with `podium experiment run`"
_OPERATOR = "install the Kubeflow training operator 1.9 in this cluster"
RESOURCES = {
    "PyTorchJob": Resource("kubeflow.org", "v1", "pytorchjobs", _OPERATOR),
    "Experiment": Resource("kubeflow.org", "v1beta1", "experiments", _KATIB),
    "Trial": Resource("kubeflow.org", "v1beta1", "trials", _KATIB),
    "Job": Resource("batch", "v1", "jobs", "check that the address is that of a Kubernetes API server"),
}


def resource(kind: str) -> Resource:
    """Return where a kind lives.

    Raises:
        InvalidInput: podium does not launch this kind.
    """
    require(kind in RESOURCES, f"kind is one of {', '.join(KINDS)}", kind=kind)
    return RESOURCES[kind]


def reason_of(error: Any) -> tuple[str, bool]:
    """Return the server's message, and whether it is a Kubernetes Status rather than a bare HTTP page.

    Args:
        error: A kubernetes.client.ApiException. The webhook's and the quota's words are in its body only.
    """
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else (error.body or "")
    try:
        return str(json.loads(body)["message"]), True
    except (ValueError, KeyError, TypeError):
        return (body or error.reason or f"HTTP {error.status}").strip(), False


def translate(error: Any, doing: str, kind: str | None = None) -> PodiumError:
    """Turn an ApiException into the error a user reads.

    Args:
        error: The exception.
        doing: What was tried, for example "create PyTorchJob mnist in namespace team".
        kind: The kind concerned, to tell a missing CRD from a missing object.
    """
    message, is_status = reason_of(error)
    text = f"cannot {doing}: {message}"
    if error.status == 404 and kind and not is_status:
        return PodiumError(f"cannot {doing}: this cluster does not know the kind {kind}", resource(kind).mend)
    if error.status == 404:
        return NotFound(text)
    if error.status == 409:
        return Conflict(text)
    if error.status == 403 and "exceeded quota" in message:
        return PodiumError(text, "ask for less (replicas, cpu, memory, gpu), or have the quota raised")
    if error.status in (401, 403) and "admission webhook" not in message:
        return PodiumError(text, "the service account lacks a right: apply deploy/, or see `kubectl auth can-i --list`")
    if error.status in (400, 403, 422):
        return InvalidInput(text)
    return PodiumError(text)


def unreachable(host: str, error: Exception) -> PodiumError:
    """Return the error for an API server that does not answer."""
    why = getattr(error, "reason", None) or error
    return PodiumError(f"the Kubernetes API at {host} does not answer: {why}", "check the cluster and the kubeconfig")


class Api:
    """One namespace of one API server.

    Args:
        configuration: Address and credentials.
        namespace: The namespace of every call.
    """

    def __init__(self, configuration: "Configuration", namespace: str) -> None:
        from kubernetes import client

        configuration.retries = False  # call() waits; urllib3 would multiply it
        self.host = str(configuration.host)
        self.namespace = namespace
        self.client = client.ApiClient(configuration)
        self.custom = client.CustomObjectsApi(self.client)
        self.core = client.CoreV1Api(self.client)
        self.answered = False

    def call(
        self, doing: str, function: Callable[..., Any], *args: Any, kind: str | None = None, **options: Any
    ) -> Any:
        """Call the API; wait out restarts and requests to slow down.

        A server that never answered gets a few seconds only: that is a wrong address, not a restart.

        Raises:
            PodiumError: As by translate, or the server does not answer.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        pause, end = 0.25, time.monotonic() + (PATIENCE if self.answered else 3.0)
        while True:
            try:
                answer = function(*args, **{"_request_timeout": TIMEOUT, **options})
                self.answered = True
                return answer
            except (ApiException, HTTPError) as error:
                failed: Exception = error
            if isinstance(failed, ApiException) and failed.status and failed.status not in BUSY:
                self.answered = True
                raise translate(failed, doing, kind) from failed
            if time.monotonic() + pause > end:
                if isinstance(failed, ApiException):
                    raise translate(failed, doing, kind) from failed
                raise unreachable(self.host, failed) from failed
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _where(self, kind: str) -> tuple[str, str, str, str]:
        place = resource(kind)
        return place.group, place.version, self.namespace, place.plural

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        """Create an object; unknown fields are refused, not dropped."""
        name = manifest.get("metadata", {}).get("name")
        doing = f"create {kind} {name} in namespace {self.namespace}"
        return dict(
            self.call(
                doing,
                self.custom.create_namespaced_custom_object,
                *self._where(kind),
                manifest,
                field_validation="Strict",
                kind=kind,
            )
        )

    def get(self, kind: str, name: str) -> Manifest:
        """Read an object."""
        doing = f"get {kind} {name} in namespace {self.namespace}"
        return dict(self.call(doing, self.custom.get_namespaced_custom_object, *self._where(kind), name, kind=kind))

    def objects(self, kind: str, selector: str = "") -> list[Manifest]:
        """Read all objects that match a label selector, oldest first."""
        doing = f"list {kind} objects in namespace {self.namespace}"
        answer = self.call(
            doing, self.custom.list_namespaced_custom_object, *self._where(kind), label_selector=selector, kind=kind
        )
        place = resource(kind)
        version = f"{place.group}/{place.version}"
        items = [{"apiVersion": version, "kind": kind, **item} for item in answer["items"]]
        return sorted(items, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))

    def delete(self, kind: str, name: str) -> None:
        """Ask for an object's removal; its pods follow. No error if it is not there."""
        doing = f"delete {kind} {name} in namespace {self.namespace}"
        try:
            self.call(
                doing,
                self.custom.delete_namespaced_custom_object,
                *self._where(kind),
                name,
                propagation_policy="Background",
                kind=kind,
            )
        except NotFound:
            return

    def delete_now(self, kind: str, name: str) -> None:
        """Send one request to remove an object: no retry, two seconds at most, no error if it is not there."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        place = (*self._where(kind), name)
        try:
            self.custom.delete_namespaced_custom_object(
                *place, propagation_policy="Background", _request_timeout=(1, 1)
            )
        except ApiException as error:
            if error.status != 404:
                raise translate(error, f"delete {kind} {name}", kind) from error
        except HTTPError as error:
            raise unreachable(self.host, error) from error

    def events(self, kind: str, name: str, version: str, seconds: int) -> Iterator[dict[str, Any]]:
        """Yield watch events of one object for some seconds, after a resourceVersion.

        Raises:
            kubernetes.client.ApiException: As the server says; 410 means the version is too old.
            urllib3.exceptions.HTTPError: The connection was lost.
        """
        from kubernetes.watch import Watch

        for event in Watch().stream(
            self.custom.list_namespaced_custom_object,
            *self._where(kind),
            field_selector=f"metadata.name={name}",
            resource_version=version,
            timeout_seconds=seconds,
            _request_timeout=(5, seconds + 10),
        ):
            yield {"type": event["type"], "object": event["raw_object"]}

    def pods(self, selector: str) -> list[Any]:
        """Return the pods (V1Pod) that match a label selector, oldest first."""
        doing = f"list pods in namespace {self.namespace}"
        answer = self.call(doing, self.core.list_namespaced_pod, self.namespace, label_selector=selector)
        return sorted(answer.items, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.client.rest_client.pool_manager.clear()
