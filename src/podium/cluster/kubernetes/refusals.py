"""Pods that could not be created: they are in no status, only in events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podium.cluster.kubernetes.api import Api, Waits, event_time, webhook_hint
from podium.manifests.pod_security import (
    COLLECTOR,
    COLLECTOR_HINT,
    EARLY_STOPPING_CONTAINER,
    EARLY_STOPPING_HINT,
    INIT_CONTAINER,
    INIT_HINT,
    SUGGESTION_CONTAINER,
    SUGGESTION_HINT,
)
from podium.manifests.resource import Resource

REFUSED = ("FailedCreatePod", "FailedCreate", "TrainJobResourcesCreationFailed")
"""Reasons of the events about pods that could not be created: of the training operator, the job
controller, Trainer."""

_ADDED_HINTS = {
    INIT_CONTAINER: INIT_HINT,
    COLLECTOR: COLLECTOR_HINT,
    EARLY_STOPPING_CONTAINER: EARLY_STOPPING_HINT,
    SUGGESTION_CONTAINER: SUGGESTION_HINT,
}
"""Hint for each container that controllers add, by name; the first one that a refusal names
applies."""

_INTERNAL = "Internal error occurred"
"""Prefix of the API server's message for every error 500, including a webhook that does not
answer."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A problem with one pod."""

    pod: str | None = None
    """The pod's name; None if it could not be created."""

    container: str | None = None
    """The container concerned; None if the pod as a whole is."""

    reason: str
    message: str
    """Details, may be empty."""

    hint: str | None
    grace: float = 0.0
    """Seconds it may last before it counts as hopeless."""

    def __str__(self) -> str:
        return (
            (f"pod {self.pod}: " if self.pod else "")
            + self.reason
            + (f" ({self.message})" if self.message else "")
        )


def refusal_of(event: Any, waits: Waits) -> Trouble:
    """Describe a pod that could not be created.

    An event has no field for the status code of the refusal: the text the API server puts before
    every error 500 tells a webhook that is away for a moment from a rule that holds.
    """
    message = str(event.message or "").strip()
    head, refused, _ = message.partition(_JOBSET_AS_JSON)
    message = head + refused
    grace = waits.patience if _INTERNAL in message else waits.refused_grace
    return Trouble(reason=event.reason, message=message, hint=refusal_hint(message), grace=grace)


def refusal_hint(message: str) -> str:
    """Suggest a fix for a pod that could not be created.

    Args:
        message: The API server's words, as in ``pods "a" is forbidden: violates PodSecurity
            "restricted:latest": …``.
    """
    if away := webhook_hint(message):
        return away
    if "violates PodSecurity" not in message:
        return "a quota, a limit range or another policy of the namespace: change the pods' requests, or the policy"
    other = "Pod Security of the namespace: change the pods' requests, or the policy"
    return next(
        (hint for container, hint in _ADDED_HINTS.items() if f'"{container}"' in message), other
    )


_JOBSET_AS_JSON = "spec.replicatedJobs: Invalid value"
"""In the refusal of a JobSet that was changed; all of it follows."""

PATCHES_LOST = (
    "Kueue changed the TrainJob as it admitted it: one made for Trainer 2.1, as 0.15 is, drops runtimePatches and "
    "activeDeadlineSeconds; take a newer Kueue, or launch a PyTorchJob or Job"
)
"""A TrainJob that was admitted so never starts (observed: Kueue 0.15.0 with Trainer 2.3.0)."""


def service_events(api: Api, experiment: Resource) -> list[Any]:
    """Return the warnings about the pod in which Katib asks an Experiment's algorithm, oldest
    first.

    They are about a ReplicaSet, ``<experiment>-<algorithm>-<hash>``. Those from before the
    Experiment are another's.
    """
    made = datetime.fromisoformat(experiment.created)
    return [
        event
        for event in api.warnings(kind="ReplicaSet")
        if event.involved_object.name.startswith(f"{experiment.name}-")
        and event_time(event) >= made
    ]
