"""What the status of a trial says to a person."""

from typing import Any

import pytest

from podium.manifests.experiment import Trial, best_trial, leaderboard, news
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import TrialSummary, summarize
from podium.steps.sweep import _other_choice


def trial(*conditions: str) -> dict[str, Any]:
    """A trial whose conditions are of these types, all True but Running after the end."""
    listed = [
        {"type": kind, "status": "True" if kind == conditions[-1] or kind == "Created" else "False"}
        for kind in conditions
    ]
    objective = {"type": "minimize", "objectiveMetricName": "loss"}
    return {
        "kind": "Trial",
        "metadata": {"name": "t"},
        "spec": {"objective": objective, "parameterAssignments": [{"name": "x", "value": "1"}]},
        "status": {"conditions": listed},
    }


@pytest.mark.parametrize(
    ("before", "conditions", "message"),
    [
        ("Pending", ("Created",), []),
        ("Pending", ("Created", "Running"), ["Running"]),
        ("Running", ("Created", "Running"), []),
        ("Running", ("Created", "Running", "Succeeded"), ["Succeeded"]),
        ("Succeeded", ("Created", "Running", "Succeeded"), []),
        ("Pending", ("Created", "Running", "Succeeded"), ["Running", "Succeeded"]),
        ("Pending", ("Created", "Running", "Failed"), ["Running", "Failed"]),
        ("Pending", ("Created", "Failed"), ["Failed"]),
    ],
)
def test_a_trial_first_seen_ended_is_reported_twice(
    before: str, conditions: tuple[str, ...], message: list[str]
) -> None:
    assert news(Trial(manifest=trial(*conditions)), before) == message


def ended(name: str, loss: str, end: str, kind: str = "Succeeded") -> Trial:
    """A trial that ended at a time of the day."""
    one = trial("Created", "Running", kind)
    one["metadata"] = {"name": name}
    one["status"]["observation"] = {
        "metrics": [{"name": "loss", "min": loss, "max": loss, "latest": loss}]
    }
    time = f"2026-01-01T{end}Z"
    if kind == "EarlyStopped":  # as Katib writes it, without a completionTime
        one["status"]["conditions"][-1]["lastTransitionTime"] = time
    else:
        one["status"]["completionTime"] = time
    return Trial(manifest=one)


EQUAL = [
    ended("d", "0.5", "10:00:01"), ended("c", "0.5", "10:00:00"), ended("b", "0.5", "10:00:00", "EarlyStopped"),
    ended("a", "0.7", "09:00:00"), ended("e", "0.5", "10:00:00.001"),
]  # fmt: skip


@pytest.mark.parametrize("order", [EQUAL, EQUAL[::-1]], ids=["as created", "reversed"])
def test_of_equal_trials_the_first_that_ended_is_best(order: list[Trial]) -> None:
    assert [row.name for row in leaderboard(order)] == ["b", "c", "e", "d", "a"]
    status: dict[str, Any] = {}
    summarize(status, map(TrialSummary.of, order))
    assert status["currentOptimalTrial"]["bestTrialName"] == "b"


@pytest.mark.parametrize(
    ("katib", "why"),
    [
        ("b", None),
        ("", None),
        ("d", "both reached the same objective, and it ended first"),
        ("a", "its objective is better"),
    ],
)
def test_a_choice_that_differs_from_katibs_says_why(katib: str, why: str | None) -> None:
    best = best_trial(EQUAL)
    assert best
    experiment = Experiment.parse({"status": {"currentOptimalTrial": {"bestTrialName": katib}}})
    expected = why and f"Katib's currentOptimalTrial is {katib}; podium takes b: {why}"
    assert _other_choice(experiment, EQUAL, best) == expected
