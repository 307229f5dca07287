"""Servers of models: their objects are applied, and their pods waited for."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from podium.cluster.kubernetes.api import Api, event_time
from podium.cluster.kubernetes.pods import (
    CONFIG_MISSING,
    Trouble,
    refusal_hint,
    statuses_of,
)
from podium.errors import Failed, NotFound
from podium.manifests.conditions import Manifest
from podium.manifests.fields import integer, mapping, text
from podium.manifests.labels import INFERENCE_SERVICE, INSTANCE, POD_DIGEST
from podium.manifests.resource import Resource
from podium.manifests.serving import PREDICTOR, is_made_of, pod_digest

_TRIES = 2
"""Restarts of a container that is not ready after which it will not be."""


class Rollout:
    """Rollout of a Deployment or an InferenceService, with its other objects, into a namespace."""

    def __init__(self, api: Api, manifests: Sequence[Manifest]) -> None:
        self._api, self._manifests = api, manifests
        (served,) = (
            one
            for one in map(Resource.parse, manifests)
            if one.kind in ("Deployment", "InferenceService")
        )
        self._kind, self._name, own = served.kind, served.name, served.kind == "Deployment"
        self._deployment = self._name if own else self._name + PREDICTOR
        self._selector = f"{INSTANCE if own else INFERENCE_SERVICE}={self._name}"
        self._digest = pod_digest(served)
        self._since: dict[str, float] = {}
        self._restarts: dict[str, int] = {}
        """Of each pod when it was first seen."""

    def run(self, seconds: float) -> None:
        """Apply the objects, and return when every pod is of the present template and ready.

        Raises:
            UnknownKind: The cluster lacks KServe.
            InvalidInput: The server refuses an object.
            Failed: A pod cannot start, ends again and again, or they are not ready in time.
        """
        for manifest in self._manifests:
            self._api.apply(manifest)
        end = time.monotonic() + seconds
        while not self._is_ready():
            if trouble := self._hopeless():
                lines = trouble.last_lines(self._api)
                raise Failed(
                    "\n".join([f"{self._kind} {self._name} is not ready: {trouble}", *lines]),
                    trouble.hint,
                )
            if time.monotonic() > end:
                states = [
                    one
                    for one in self._read(self._kind, self._name).conditions
                    if not one.status and one.message
                ]
                why = "".join(f"; {state.type}: {state.message}" for state in states)
                hint = f"kubectl -n {self._api.namespace} describe pods -l {self._selector}"
                raise Failed(
                    f"{self._kind} {self._name} is not ready after {seconds:g} s{why}", hint
                )
            time.sleep(1)

    def _read(self, kind: str, name: str) -> Resource:
        try:
            return Resource.parse(self._api.get(kind, name))
        except NotFound:
            return Resource(manifest={})

    @property
    def address(self) -> str:
        """URL of the server within the cluster, once it is ready; that of an InferenceService is
        KServe's word, whose Service may have no address, and so the pods' port."""
        said = mapping(self._read(self._kind, self._name).status.get("address")).get("url")
        return text(said) or f"http://{self._deployment}.{self._api.namespace}.svc"

    def _is_ready(self) -> bool:
        deployment = self._read("Deployment", self._deployment)
        if self._kind != "Deployment":
            served = self._read(self._kind, self._name)
            if not (served.condition("Ready") and is_made_of(deployment, served)):
                return False
        return _rolled_out(deployment)

    def _hopeless(self) -> Trouble | None:
        now, before, self._since = time.monotonic(), self._since, {}
        for trouble in self._troubles():
            key = f"{trouble.pod} {trouble.container}"
            self._since[key] = before.get(key, now)
            if now - self._since[key] >= trouble.grace:
                return trouble
        return None

    def _troubles(self) -> Iterator[Trouble]:
        waits = self._api.waits
        yield from self._refused()
        for pod in self._api.pods(self._selector):
            statuses = statuses_of(pod)
            present = (pod.metadata.annotations or {}).get(POD_DIGEST) == self._digest
            if not present or pod.metadata.deletion_timestamp:
                continue  # of the template before: it stays until the new ones answer
            if statuses and all(status.ready for status in statuses):
                continue
            ended = Trouble.of_end(pod) if self._ends_again(pod, statuses) else None
            if trouble := ended or Trouble.of_start(pod, waits) or self._unmounted(pod):
                yield trouble
        if refused := self._read("Deployment", self._deployment).condition("ReplicaFailure"):
            hint = refusal_hint(refused.message)
            yield Trouble(
                reason=refused.reason, message=refused.message, hint=hint, grace=waits.refused_grace
            )

    def _ends_again(self, pod: Any, statuses: Sequence[Any]) -> bool:
        """Return whether a pod has had its tries; one that was there before this deploy is given
        another one, because what it lacked may be there now."""
        restarts = sum(status.restart_count or 0 for status in statuses)
        before = self._restarts.setdefault(pod.metadata.name, restarts)
        runs = any(status.state and status.state.running for status in statuses)
        return restarts >= max(_TRIES, before + 1) and not (before and runs)

    def _refused(self) -> Iterator[Trouble]:
        """Yield what keeps KServe from making its objects (kserve v0.20.0: observed)."""
        for state in self._read(self._kind, self._name).conditions:
            if state.reason == "ReconcileFailed" and not state.status:
                hint = f"kubectl -n {self._api.namespace} describe {self._kind} {self._name}"
                yield Trouble(
                    reason=state.reason,
                    message=state.message,
                    hint=refusal_hint(state.message) if "forbidden" in state.message else hint,
                    grace=self._api.waits.refused_grace,
                )

    def _unmounted(self, pod: Any) -> Trouble | None:
        """Say which Secret or ConfigMap of a volume is not there; that is in an event alone."""
        events = [
            event
            for event in self._api.warnings(pod.metadata.name)
            if event.reason == "FailedMount"
        ]
        if pod.status.phase != "Pending" or not events:
            return None
        said = max(events, key=event_time).message
        return Trouble(
            pod=pod.metadata.name,
            reason="FailedMount",
            message=said,
            hint=CONFIG_MISSING,
            grace=self._api.waits.image_grace,
        )


def _rolled_out(deployment: Resource) -> bool:
    """Return whether all pods of a Deployment are those of its present template, and answer."""
    want, status = deployment.spec.get("replicas", 1), deployment.status
    pods = ("replicas", "updatedReplicas", "availableReplicas")
    return _is_current(deployment) and all(status.get(field) == want for field in pods)


def _is_current(stored: Resource) -> bool:
    seen = integer(stored.status.get("observedGeneration")) or 0
    return seen >= (integer(stored.metadata.get("generation")) or 0)
