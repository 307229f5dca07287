"""What a notebook's kernel shows; the cells run in a real kernel."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.whole

TRAIN = """
import math
import time
import podium

POWER = 2

class Base:
    def shift(self):
        return math.floor(POWER / 2)

class Shift(Base):
    def __init__(self, x):
        self.x = x

    def value(self):
        return self.x - self.shift()

def shifted(x):
    return Shift(x).value()

def train(x):
    time.sleep(1.2)  # long enough to be seen running
    return shifted(x) ** POWER
"""


def outputs_of(kernel: Any, code: str) -> list[dict[str, Any]]:
    """Run a cell and return the contents of its outputs and updates, in order."""
    found: list[dict[str, Any]] = []

    def add(message: dict[str, Any]) -> None:
        kinds = ("stream", "display_data", "update_display_data", "execute_result", "error")
        if message["msg_type"] in kinds:
            found.append({"kind": message["msg_type"], **message["content"]})

    kernel.execute_interactive(code, timeout=120, output_hook=add)
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_cell_shows_the_trials_while_they_run(kernel: Any, home: Path) -> None:
    assert outputs_of(kernel, TRAIN) == []
    shown = outputs_of(
        kernel, "podium.tune(train, {'x': (0.0, 2.0)}, objective='min:score', trials=3, parallel=1)"
    )
    assert [output for output in shown if output["kind"] == "error"] == []
    assert (
        "".join(
            entry["text"]
            for entry in shown
            if entry["kind"] == "stream" and entry["name"] == "stderr"
        )
        == ""
    )
    updates = [
        output["data"]["text/html"]
        for output in shown
        if output["kind"] in ("display_data", "update_display_data")
    ]
    assert "Running" in "".join(updates)
    assert updates[-1] == ""
    (result,) = [
        output["data"]["text/html"] for output in shown if output["kind"] == "execute_result"
    ]
    assert result.count("<tr>") == 4
    (figure,) = outputs_of(kernel, "podium.open_sweep('train').plot.history()")
    assert "application/vnd.plotly.v1+json" in figure["data"]
    assert "Plotly.newPlot" in figure["data"]["text/html"], "an exported notebook is not blank"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_value_that_cannot_travel_is_named(kernel: Any, home: Path) -> None:
    outputs_of(
        kernel, "import podium\nrows = object()\ndef train(x):\n    return len(str(rows)) * x"
    )
    (error,) = [
        output
        for output in outputs_of(kernel, "podium.tune(train, {'x': (0.0, 2.0)})")
        if output["kind"] == "error"
    ]
    assert error["evalue"].startswith("train uses rows of type object, which only this process has")
