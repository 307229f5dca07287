"""The HTML report of a sweep, as a browser reads it; trials are real processes."""

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import podium
from podium.api.trials import TrialReader
from podium.errors import Failed, PodiumError
from podium.manifests.experiment import Experiment

SCRIPT = """
import sys
value = float(sys.argv[-1].partition("=")[2])
if value > 2:
    sys.exit("too large")
for epoch in (1, 2):
    print(f"accuracy={value / 10 * epoch}")
"""


def test_epochs_printed_again_after_a_restart_count_once() -> None:
    experiment = Experiment.load("random", "fast")
    lines = [f"accuracy=0.{at}" for at in (1, 2, 3)]
    again = [*lines[:2], "resumed: epoch 2 after step 8 of 12", *lines]
    assert len(TrialReader(None, "s").epochs("t", experiment, again)) == 3  # type: ignore[arg-type]


class Shown(HTMLParser):
    """The text of a page without its scripts and styles, and its figures by name."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text, self._hidden = "", False
        html = file.read_text()
        self.feed(html)
        self.text = " ".join(self.text.split())
        (figures,) = re.findall(
            r'<script type="application/json" id="figures">(.*?)</script>', html
        )
        self.figures: dict[str, Any] = json.loads(figures)

    def handle_starttag(self, tag: str, _: Any) -> None:
        self._hidden = tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else f" {data.strip()}"


@pytest.fixture
def script(home: Path) -> Path:
    Path("train.py").write_text(SCRIPT)
    return Path("train.py")


def test_the_report_holds_best_trial_and_learning_curves(script: Path, home: Path) -> None:
    sweep = podium.tune(script, {"x": [1, 2]}, algorithm="grid", trials=2, parallel=1)
    file = sweep.report()
    assert file == home / "cluster/experiments/train/report.html"
    shown = Shown(file)
    assert "maximize accuracy, grid search over x" in shown.text
    assert "succeeded sweep 0.4000 best accuracy 2 trials: 2 succeeded" in shown.text
    assert "python train.py --x=2" in shown.text
    best, other = sorted(
        shown.figures["curves"]["data"], key=lambda line: line["name"] != sweep.best.name
    )
    assert (best["y"], other["y"]) == ([0.2, 0.4], [0.1, 0.2])
    assert shown.figures.keys() == {"history", "coordinates", "curves", "times"}
    (bars,) = shown.figures["times"]["data"]
    assert (bars["name"], bars["y"]) == ("Succeeded", [1, 2])
    assert bars["base"][1] > bars["base"][0], "one after the other, in start order"
    assert all(length > 0 for length in bars["x"])


def test_a_sweep_without_results_says_why_in_its_report(script: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed):
        podium.tune(script, {"x": [3, 4]}, algorithm="grid", trials=2)
    file = tmp_path / "reports/train.html"
    assert podium.open_sweep("train").report(file) == file
    shown = Shown(file)
    assert "No trial has a result." in shown.text
    assert "Experiment has failed" in shown.text
    assert shown.text.count("too large") == 4  # the reason of each trial, and what it printed last
    assert [bars["name"] for bars in shown.figures.pop("times")["data"]] == ["Failed"]
    assert shown.figures == {}


def test_a_running_and_a_stopped_sweep_have_a_report(home: Path) -> None:
    words = ["python", "-c", "import time; time.sleep(60)"]
    sweep = podium.tune(words, {"x": [1, 2]}, trials=2, name="long", wait=False)
    try:
        while sweep.status != "Running":
            time.sleep(0.02)
        assert "running sweep" in Shown(sweep.report()).text
    finally:
        sweep.stop()
    assert "stopped" in Shown(sweep.report()).text


def test_a_report_that_cannot_be_written_is_refused(script: Path, tmp_path: Path) -> None:
    sweep = podium.tune(script, {"x": [1, 2]}, algorithm="grid", trials=1)
    (tmp_path / "file").touch()
    with pytest.raises(PodiumError, match=r"file/report.html cannot be written"):
        sweep.report(tmp_path / "file/report.html")
