"""What the first screen of a report says, and what it leaves out."""

import json
import re
from typing import Any

import pytest
from test_markup import written

from podium.report import SweepPage, plots, render, render_sweep
from podium.report.page import chance


def report(**test: Any) -> str:
    evaluation, decision = written("plain")
    evaluation["test"] |= test
    return render(evaluation, {**decision, "value_interval": [0.4, 0.6], "units": 12345})


def test_a_figure_stands_with_its_interval_and_a_baseline() -> None:
    page = report(confusion=[[9, 0], [1, 2]])
    assert "95 % 0.4000 to 0.6000, n = 12,345" in page
    assert "0.7500 by always saying plain" in page


def test_a_perfect_confusion_matrix_is_not_empty() -> None:
    right, wrong = json.loads(plots.confusion_matrix([[5, 0], [0, 9]], ["a", "b"]))["data"]
    assert right["z"] == [[5, None], [None, 9]]
    assert right["zmax"] == 9
    assert wrong["z"] == [[None, 0], [0, None]]


@pytest.mark.parametrize(("value", "said"), [(2.97e-6, "less than 0.01 %"), (0.0783, "7.8 %"), (0.4, "40 %")])
def test_a_chance_is_a_percentage(value: float, said: str) -> None:
    assert chance(value) == said


def sweep(state: str, values: list[float | None]) -> str:
    evaluation, _ = written("plain")
    table = evaluation["sweep"]
    table["trials"] = [
        {**row, "value": value, "model": None, "epochs": []} for row, value in zip(table["trials"], values, strict=True)
    ]
    table["best"] = "" if None in values else table["trials"][0]["name"]
    return render_sweep(SweepPage(table=table, goal="maximize plain", state=state, message="", cluster="local"))


def test_sections_without_content_are_left_out() -> None:
    empty, full = sweep("Failed", [None] * 3), sweep("Succeeded", [0.1, 0.2, 0.3])
    titles = re.compile("<h2>(.*?)</h2>")
    assert titles.findall(empty) == ["Best trial", "Leaderboard"]
    assert titles.findall(full) == ["Best trial", "Leaderboard", "Optimization history", "Parallel coordinates"]


def test_a_failed_sweep_is_marked_as_one() -> None:
    assert '<div class="failed"><b>failed</b>' in sweep("Failed", [None] * 3)


def test_a_report_follows_the_readers_dark_mode() -> None:
    page = report()
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page
