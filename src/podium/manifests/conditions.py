"""Conditions of a status: one reader and one writer for every kind."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal, NamedTuple

from podium.manifests.fields import mapping
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB

Manifest = dict[str, Any]
"""An object as in YAML: apiVersion, kind, metadata, spec and, once it runs, status."""

Style = Literal["operator", "katib", "job", "trainer"]
"""Controller whose conditions are imitated: the training operator, Katib, that of Jobs, or
Trainer."""

STYLES: dict[str, Style] = {
    **dict.fromkeys(OPERATOR_KINDS, "operator"),
    **dict.fromkeys(("Experiment", "Trial"), "katib"),
    "Job": "job",
    TRAINJOB: "trainer",
}

_TIMES = {
    "operator": ("lastUpdateTime", "lastTransitionTime"),
    "katib": ("lastUpdateTime", "lastTransitionTime"),
    "job": ("lastProbeTime", "lastTransitionTime"),
    "trainer": ("lastTransitionTime",),
}
_TURN_RUNNING_OFF = {
    "operator": ("Succeeded", "Failed"),
    "katib": ("Succeeded", "Failed", "MetricsUnavailable", "Killed"),  # but not EarlyStopped
}
_ORDER = {
    # The first type of a row whose condition is True names the phase. An early-stopped trial keeps
    # Running=True. Waiting is ours: a queue of Kueue holds the job, or the trial's job, back.
    **dict.fromkeys(
        OPERATOR_KINDS,
        ("Failed", "Succeeded", "Waiting", "Suspended", "Restarting", "Running", "Created"),
    ),
    "Job": ("Failed", "FailureTarget", "Complete", "Waiting", "Suspended"),
    TRAINJOB: ("Failed", "Complete", "Waiting", "Suspended"),
    # Stopped is ours, podium experiment resume removes it; and so is its Waiting, for an engine
    # that can run it.
    "Experiment": (
        "Failed",
        "Succeeded",
        "Stopped",
        "Waiting",
        "Restarting",
        "Running",
        "Created",
    ),
    "Trial": (
        "EarlyStopped",
        "MetricsUnavailable",
        "Killed",
        "Failed",
        "Succeeded",
        "Waiting",
        "Running",
        "Created",
    ),
}
_LAST = {"Succeeded", "Failed", "Stopped", "Killed", "EarlyStopped", "MetricsUnavailable"}


LOST = "SupervisorLost"
"""Suffix of the reason of an object whose process died; its file is not changed."""


class State(NamedTuple):
    """State of an object in one word, with its writer's reason and message."""

    phase: str
    """Created, Waiting (for its queue, or its engine), Running, Restarting, Suspended, Succeeded,
    Failed; of an Experiment also Stopped, of a trial Killed, EarlyStopped or MetricsUnavailable."""

    reason: str
    message: str

    @property
    def finished(self) -> bool:
        """Whether nothing changes any more (but for an Experiment that is restarted or resumed)."""
        return self.phase in _LAST

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def lost(self) -> bool:
        """Whether the process that ran it died first."""
        return self.reason.endswith(LOST)


def status_of(manifest: Manifest) -> State:
    """Read the state of a job, Experiment or Trial from its conditions.

    Only conditions with status "True" count: a finished PyTorchJob keeps a Running condition that
    is "False". One that says Suspended of a job that is not, by its spec, is out of date: a queue
    or a user let it go on, and its controller has not answered yet.
    """
    status = manifest.get("status") or {}
    true = {
        condition["type"]: condition
        for condition in status.get("conditions") or []
        if condition.get("status") == "True"
    }
    for phase in _ORDER[manifest["kind"]]:
        if phase == "Suspended" and phase in true and _goes_on(manifest.get("spec")):
            return State("Created", "", "about to start")
        if phase in true:
            name = {"Complete": "Succeeded", "FailureTarget": "Running"}.get(phase, phase)
            return State(name, true[phase].get("reason") or "", true[phase].get("message") or "")
    if manifest["kind"] == "Job" and status.get("active"):
        return State("Running", "", f"{status['active']} pod(s) active")
    if manifest["kind"] == TRAINJOB and any(
        job.get("active") for job in status.get("jobsStatus") or []
    ):
        return State("Running", "", "its nodes are active")
    return State("Created", "", "")


def _goes_on(spec: Any) -> bool:
    if not isinstance(spec, Mapping):
        return False
    return not spec.get("suspend") and not mapping(spec.get("runPolicy")).get("suspend")


def timestamp(precision: str = "seconds") -> str:
    """Return the present time as Kubernetes writes it."""
    return _written(datetime.now(UTC), precision)


class SteadyTime:
    """The time from now on, which no step of the wall clock changes: differences are durations."""

    def __init__(self) -> None:
        self._wall, self._since = datetime.now(UTC), monotonic()

    def now(self) -> datetime:
        return self._wall + timedelta(seconds=monotonic() - self._since)

    def timestamp(self) -> str:
        return _written(self.now(), "milliseconds")


def _written(moment: datetime, precision: str) -> str:
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


class Conditions:
    """Writes the conditions of a status; entries that were there are replaced, never altered.

    Each type stands once. Job and TrainJob keep its place (apimachinery:
    pkg/api/meta/conditions.go); the others add it at the end. For the training operator a failed
    status never changes again, an unchanged reason keeps its times, and Running and Restarting
    replace each other (kubeflow/trainer release-1.9: pkg/util/status.go).

    Args:
        status: The object's status, altered in place.
        style: Controller whose rules apply.
    """

    def __init__(self, status: dict[str, Any], style: Style) -> None:
        self._status, self._style = status, style

    def add(self, kind: str, reason: str, message: str, now: str = "") -> None:
        """Add a condition that is True.

        Args:
            reason: One CamelCase word.
            now: The time as Kubernetes writes it; the present if empty.
        """
        style, before = self._style, self._status.get("conditions") or []
        # Katib's are finer here than there: a trial on this machine may take less than a second.
        time = now or timestamp("milliseconds" if style == "katib" else "seconds")
        true = {
            condition["type"]: condition
            for condition in before
            if condition.get("status") == "True"
        }
        current = true.get(kind)
        if style == "operator" and ("Failed" in true or (current and current["reason"] == reason)):
            return
        new = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            **dict.fromkeys(_TIMES[style], time),
        }
        if current and style != "katib":
            new["lastTransitionTime"] = current["lastTransitionTime"]
        if kind in _TURN_RUNNING_OFF.get(style, ()):
            off = {"status": "False"}
            if style == "katib":
                self._status["completionTime"] = time
                off |= dict.fromkeys(_TIMES[style], time)
            before = [
                condition | off if condition["type"] == "Running" else condition
                for condition in before
            ]
        if style in ("job", "trainer") and any(condition["type"] == kind for condition in before):
            after = [new if condition["type"] == kind else condition for condition in before]
        else:
            instead = (
                {"Restarting": "Running", "Running": "Restarting"}.get(kind)
                if style == "operator"
                else None
            )
            after = [
                *(condition for condition in before if condition["type"] not in (kind, instead)),
                new,
            ]
        self._status["conditions"] = after

    def remove(self, *kinds: str) -> None:
        before = self._status.get("conditions") or []
        self._status["conditions"] = [
            condition for condition in before if condition["type"] not in kinds
        ]
