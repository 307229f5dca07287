"""The phase of an object from its conditions, and the operator's way to write them."""

from typing import Any

import pytest

from podium.manifests.conditions import Conditions, status_of


def conditions(*names: str) -> list[dict[str, Any]]:
    """Write a condition for each name; a leading - makes its status False."""
    return [
        {"type": name.lstrip("-"), "status": "False" if name[0] == "-" else "True", "reason": "R"}
        for name in names
    ]


@pytest.mark.parametrize(
    ("kind", "names", "phase", "finished"),
    [
        ("PyTorchJob", (), "Created", False),
        ("PyTorchJob", ("Created",), "Created", False),
        ("PyTorchJob", ("Created", "Running"), "Running", False),
        ("PyTorchJob", ("Created", "Restarting"), "Restarting", False),
        ("PyTorchJob", ("Created", "Suspended"), "Suspended", False),
        ("PyTorchJob", ("Created", "-Running", "Succeeded"), "Succeeded", True),
        ("PyTorchJob", ("Created", "-Running", "Succeeded", "Failed"), "Failed", True),
        ("Job", (), "Created", False),
        ("Job", ("FailureTarget",), "Running", False),
        ("Job", ("SuccessCriteriaMet", "Complete"), "Succeeded", True),
        ("Job", ("FailureTarget", "Failed"), "Failed", True),
        ("Experiment", ("Created", "-Running", "Succeeded"), "Succeeded", True),
        ("Experiment", ("Created", "Restarting", "-Succeeded"), "Restarting", False),
        ("Trial", ("Created", "Running", "EarlyStopped"), "EarlyStopped", True),
        ("Trial", ("Created", "-Running", "MetricsUnavailable"), "MetricsUnavailable", True),
        ("Trial", ("Created", "-Running", "Killed"), "Killed", True),
    ],
)
def test_the_phase_follows_the_conditions_that_hold(
    kind: str, names: Any, phase: str, finished: bool
) -> None:
    state = status_of({"kind": kind, "status": {"conditions": conditions(*names)}})
    assert (state.phase, state.finished) == (phase, finished)


def test_a_job_with_active_pods_is_running() -> None:
    assert status_of({"kind": "Job", "status": {"active": 1}}).phase == "Running"


def test_running_and_restarting_replace_each_other() -> None:
    status: dict[str, Any] = {}
    for kind in ("Created", "Running", "Restarting", "Running"):
        Conditions(status, "operator").add(kind, f"PyTorchJob{kind}", "…", "t")
    assert [condition["type"] for condition in status["conditions"]] == ["Created", "Running"]


def test_the_end_turns_running_off_and_a_failure_is_final() -> None:
    status: dict[str, Any] = {}
    for kind in ("Running", "Failed", "Succeeded"):
        Conditions(status, "operator").add(kind, kind, "…", "t")
    assert [(condition["type"], condition["status"]) for condition in status["conditions"]] == [
        ("Running", "False"),
        ("Failed", "True"),
    ]


def test_an_unchanged_condition_keeps_its_times() -> None:
    status: dict[str, Any] = {}
    Conditions(status, "operator").add("Running", "A", "first", "t1")
    Conditions(status, "operator").add("Running", "A", "second", "t2")
    assert status["conditions"][0]["message"] == "first"
    Conditions(status, "operator").add("Running", "B", "third", "t3")
    assert (
        status["conditions"][0]["lastTransitionTime"],
        status["conditions"][0]["lastUpdateTime"],
    ) == ("t1", "t3")
