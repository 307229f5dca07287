"""What the status of a trial says to a person."""

from typing import Any

import pytest

from podium.manifests.experiment import news


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
    ("before", "conditions", "told"),
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
def test_a_trial_that_is_first_seen_ended_is_told_of_twice_unless_it_never_began(
    before: str, conditions: tuple[str, ...], told: list[str]
) -> None:
    assert [row.state for row in news(trial(*conditions), before)] == told
