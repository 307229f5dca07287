"""Servers of models: their objects are applied, and their pods waited for."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from podium.cluster.kubernetes.api import Api, event_time
from podium.cluster.kubernetes.pods import CONFIG_MISSING, bad_end, cannot_start, last_lines, statuses_of
from podium.cluster.kubernetes.refusals import Trouble, refusal_hint
from podium.errors import Failed, NotFound
from podium.manifests.conditions import Manifest
from podium.manifests.labels import INFERENCE_SERVICE, INSTANCE
from podium.manifests.resource import Resource
from podium.manifests.serving import PREDICTOR, is_current, rolled_out

TRIES = 2
"""Restarts of a container that is not ready after which it will not be."""


class Rollout:
    """The pods of a Deployment, or of an InferenceService, on their way to be ready.

    Args:
        api: Their namespace.
        kind: ``Deployment`` or ``InferenceService``.
    """

    def __init__(self, api: Api, kind: str, name: str) -> None:
        self._api, self._kind, self._name = api, kind, name
        own = kind == "Deployment"
        self._deployment = name if own else name + PREDICTOR
        self._selector = f"{INSTANCE if own else INFERENCE_SERVICE}={name}"
        self._since: dict[str, float] = {}

    @classmethod
    def start(cls, api: Api, manifests: Sequence[Manifest]) -> "Rollout":
        """Apply objects, among them one that has pods.

        Raises:
            UnknownKind: The cluster lacks KServe.
            InvalidInput: The server refuses one of them.
        """
        for manifest in manifests:
            api.apply(manifest)
        (served,) = (one for one in map(Resource.parse, manifests) if one.kind in ("Deployment", "InferenceService"))
        return cls(api, served.kind, served.name)

    def wait(self, seconds: float) -> None:
        """Return when every pod is of the present template and ready.

        Raises:
            Failed: One cannot start, ends again and again, or they are not ready in time.
        """
        end = time.monotonic() + seconds
        while not self._is_ready():
            trouble = self._trouble()
            if trouble or time.monotonic() > end:
                raise self._failure(trouble, seconds)
            time.sleep(1)

    def _read(self, kind: str, name: str) -> Resource:
        try:
            return Resource.parse(self._api.get(kind, name))
        except NotFound:
            return Resource(manifest={})

    def _is_ready(self) -> bool:
        served = self._read(self._kind, self._name)
        if self._kind != "Deployment" and not (is_current(served) and served.condition("Ready")):
            return False
        return rolled_out(self._read("Deployment", self._deployment))

    def _trouble(self) -> Trouble | None:
        """Return what has been hopeless for longer than its grace."""
        now, seen = time.monotonic(), {}
        for trouble in self._troubles():
            key = f"{trouble.pod} {trouble.container}"
            seen[key] = self._since.get(key, now)
            if now - seen[key] >= trouble.grace:
                return trouble
        self._since = seen
        return None

    def _troubles(self) -> Iterator[Trouble]:
        waits = self._api.waits
        for pod in self._waiting():
            ended = bad_end(pod)
            if ended and max((status.restart_count or 0 for status in statuses_of(pod)), default=0) >= TRIES:
                yield ended
            elif trouble := cannot_start(pod, waits) or self._unmounted(pod):
                yield trouble
        if refused := self._read("Deployment", self._deployment).condition("ReplicaFailure"):
            hint = refusal_hint(refused.message)
            yield Trouble(reason=refused.reason, message=refused.message, hint=hint, grace=waits.refused_grace)

    def _waiting(self) -> list[Any]:
        """Return the pods that do not answer; those that leave are not waited for."""
        pods = [pod for pod in self._api.pods(self._selector) if pod.metadata.deletion_timestamp is None]
        return [pod for pod in pods if not (statuses_of(pod) and all(status.ready for status in statuses_of(pod)))]

    def _unmounted(self, pod: Any) -> Trouble | None:
        """Say which Secret or ConfigMap of a volume is not there; that is in an event alone."""
        events = [event for event in self._api.warnings(pod.metadata.name) if event.reason == "FailedMount"]
        if pod.status.phase != "Pending" or not events:
            return None
        last = max(events, key=event_time)
        return Trouble(pod=pod.metadata.name, reason=last.reason, message=last.message, hint=CONFIG_MISSING,
                       grace=self._api.waits.image_grace)  # fmt: skip

    def _failure(self, trouble: Trouble | None, seconds: float) -> Failed:
        if trouble:
            lines = last_lines(self._api, trouble)
            return Failed("\n".join([f"{self._kind} {self._name} is not ready: {trouble}", *lines]), trouble.hint)
        states = self._read(self._kind, self._name).conditions
        why = "; ".join(f"{state.type}: {state.message}" for state in states if not state.status and state.message)
        text = f"{self._kind} {self._name} is not ready after {seconds:g} s{f': {why}' if why else ''}"
        return Failed(text, f"kubectl -n {self._api.namespace} describe pods -l {self._selector}")
