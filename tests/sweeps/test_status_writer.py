"""An Experiment's status on its way: conditions at once, mere counts a few times a second."""

from types import SimpleNamespace
from typing import Any

import pytest

from podium.sweeps import controller
from podium.sweeps.controller import _StatusWriter


def status(trials: int, *conditions: str) -> dict[str, Any]:
    return {
        "trials": trials,
        "conditions": [{"type": each, "status": "True"} for each in conditions],
    }


def test_conditions_are_written_at_once_and_counts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [100.0], list[dict[str, Any]]()
    monkeypatch.setattr(controller, "time", SimpleNamespace(monotonic=lambda: now[0]))
    writer = _StatusWriter(written.append)
    writer.follow(status(0, "Created"))
    assert writer.pause(status(0, "Created")) is None
    writer.follow(status(1, "Created"))
    assert written == [status(0, "Created")]
    assert writer.pause(status(1, "Created")) == pytest.approx(0.2)
    writer.follow(status(1, "Created", "Running"))
    assert written[1:] == [status(1, "Created", "Running")]
    now[0] += 0.25
    writer.follow(status(2, "Created", "Running"))
    assert written[2:] == [status(2, "Created", "Running")]
    writer.write(status(2, "Created", "Running"))
    assert len(written) == 3, "what has not changed is not written again"
