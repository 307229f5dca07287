"""What the first screen of a report says, and what it leaves out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_markup import written

from podium.display.templates import _chance, kept
from podium.reports import (
    Compared,
    Step,
    SweepPage,
    complete,
    plots,
    render,
    render_comparison,
    render_sweep,
)
from podium.reports.leaderboard import Leaderboard
from podium.reports.page import _versions


def report(**test: Any) -> str:
    evaluation, decision = written("plain")
    evaluation["test"] |= test
    return render(evaluation, {**decision, "value_interval": [0.4, 0.6], "units": 12345,
                               "constant": {"guess": "always 'plain'", "value": 0.75}})  # fmt: skip


def test_a_figure_stands_with_its_interval_and_a_baseline() -> None:
    page = report()
    assert "95 % 0.4000 to 0.6000, n = 12,345" in page
    assert "always &#39;plain&#39;: 0.7500" in page


def test_a_perfect_confusion_matrix_is_not_empty() -> None:
    right, wrong = plots.confusion_matrix([[5, 0], [0, 9]], ["a", "b"])["data"]
    assert right["z"] == [[5, None], [None, 9]]
    assert right["zmax"] == 9
    assert wrong["z"] == [[None, 0], [0, None]]


@pytest.mark.parametrize(
    ("value", "said"), [(2.97e-6, "less than 0.01 %"), (0.0783, "7.8 %"), (0.4, "40 %")]
)
def test_a_chance_is_a_percentage(value: float, said: str) -> None:
    assert _chance(value) == said


def sweep(state: str, values: list[float | None]) -> str:
    evaluation, _ = written("plain")
    table = evaluation["sweep"]
    table["trials"] = [
        {**row, "value": value, "model": None, "epochs": []}
        for row, value in zip(table["trials"], values, strict=True)
    ]
    table["best"] = "" if None in values else table["trials"][0]["name"]
    return render_sweep(
        SweepPage(table=table, goal="maximize plain", state=state, message="", cluster="local")
    )


def test_sections_without_content_are_left_out() -> None:
    empty, full = sweep("Failed", [None] * 3), sweep("Succeeded", [0.1, 0.2, 0.3])
    titles = re.compile("<h2>(.*?)</h2>")
    assert titles.findall(empty) == ["Best trial", "Leaderboard", "Who ran when"]
    assert titles.findall(full) == [
        "Best trial", "Leaderboard", "Optimization history", "Parallel coordinates", "Who ran when",
    ]  # fmt: skip


def test_a_failed_sweep_is_marked_as_one() -> None:
    assert '<div class="failed"><b>failed</b>' in sweep("Failed", [None] * 3)


def test_a_report_follows_the_readers_dark_mode() -> None:
    page = report()
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page


def cells(page: str, title: str) -> list[list[str]]:
    """Return the rows of the table of a name."""
    table = page.partition(f'aria-label="{title}"')[2].partition("</table>")[0]
    rows = re.findall(r"<tr.*?>(.*?)</tr>", table, re.DOTALL)
    return [
        [cell.strip() for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def test_trials_without_a_result_have_no_rank() -> None:
    evaluation, _ = written("plain")
    first, second, third = ({**trial, "model": ""} for trial in evaluation["sweep"]["trials"])
    table = evaluation["sweep"] | {"best": "b", "trials": [
        {**first, "name": "a", "state": "Failed", "value": 0.9},  # it printed a value before it failed
        {**second, "name": "b", "state": "Succeeded", "value": 0.8},
        {**third, "name": "c", "state": "EarlyStopped", "value": 0.7},
        {**third, "name": "d", "state": "Running", "value": None},
    ]}  # fmt: skip
    assert Leaderboard.read(table).ranks == [None, 1, 2, None]
    page = render_sweep(
        SweepPage(table=table, goal="", state="Running", message="", cluster="local")
    )
    head, *rows = cells(page, "Leaderboard")
    assert head[:3] == ["rank", "started", "trial"]
    assert [(row[0], row[2]) for row in rows] == [("–", "a"), ("1", "b"), ("2", "c"), ("–", "d")]


def test_the_terminals_leaderboard_has_no_rank() -> None:
    assert "RANK" not in Leaderboard.read(written("plain")[0]["sweep"]).text(width=None)


def test_the_data_are_summarized_by_part_and_class() -> None:
    evaluation, decision = written("plain")
    evaluation["dataset"]["classes"] = ["cat", "dog"]
    for part, counts in zip(evaluation["data"]["parts"], ([3, 1], [1, 1], [0, 2]), strict=True):
        part |= {"items": sum(counts), "class_counts": counts}
    page = render(evaluation, decision)
    assert cells(page, "Parts of the data")[1] == [
        "train",
        "4",
        "dog: 1 (25.00 %)",
        "cat: 3 (75.00 %)",
    ]
    assert cells(page, "Items of each class")[2] == [
        "dog",
        "1",
        "25.00 %",
        "1",
        "50.00 %",
        "2",
        "100.00 %",
    ]
    assert cells(page, "Columns")[1] == ["plain", "plain", "–", "1"]


def test_a_regressions_target_is_summarized() -> None:
    evaluation, decision = written("plain")
    evaluation["dataset"]["classes"], evaluation["test"]["confusion"] = [], []
    for part in evaluation["data"]["parts"]:
        spread = {"mean": 2.5, "median": 2.0, "minimum": -1.0, "maximum": 9.0}
        part |= {"class_counts": [], "target": [spread]}
    page = render(evaluation, decision)
    assert cells(page, "Parts of the data")[0] == [
        "part",
        "items",
        "mean",
        "median",
        "lowest",
        "highest",
    ]
    assert cells(page, "Parts of the data")[3] == [
        "test",
        "2",
        "2.5000",
        "2.0000",
        "-1.0000",
        "9.0000",
    ]
    assert "Items of each class" not in page


def test_steps_and_command_complete_the_report_of_a_run() -> None:
    steps = [
        Step(title="Look", state="cached", seconds=0),
        Step(title="Train", state="succeeded", seconds=120),
    ]
    page = complete(report(), steps, "podium run tune_and_promote limit=600")
    assert [row[:3] for row in cells(page, "Steps")[1:]] == [
        ["Look", "cached", "0.0 s"], ["Train", "succeeded", "2 min 00 s"], ["together", "", "2 min 00 s"],
    ]  # fmt: skip
    assert '<pre tabindex="0">podium run tune_and_promote limit=600</pre>' in page
    assert "Do it again" not in complete(report(), steps, "")


def test_versions_of_training_and_evaluation_stand_side_by_side() -> None:
    trained = {"torch": "2.9", "threads": 4, "podium": "1", "nested": {"a": 1}}
    rows = _versions(trained, {"podium": "2", "numpy": "2.4"})
    assert rows == [
        ("podium", "1", "2"),
        ("torch", "2.9", ""),
        ("numpy", "", "2.4"),
        ("threads", "4", ""),
    ]
    assert _versions({}, {}) == []


def run(name: str, value: float, **parameters: str) -> Compared:
    epochs = [{"epoch": 1, "loss": value + 1}, {"epoch": 2, "loss": value}]
    return Compared(name=name, state="succeeded", began="2026-01-02 03:04", parameters=parameters, epochs=epochs,
                    metrics={"accuracy": 1 - value, "loss": value}, metric="loss", maximize=False,
                    steps={"Train": value}, test="same")  # fmt: skip


def test_a_comparison_shows_what_differs_and_the_best() -> None:
    page = render_comparison(
        [run("a", 0.5, lr="0.1", seed="1"), run("b", 0.25, lr="0.01", seed="1")], "runs"
    )
    assert cells(page, "Parameters that differ") == [["name", "lr"], ["a", "0.1"], ["b", "0.01"]]
    assert cells(page, "Metrics on the test part")[0] == ["name", "loss", "accuracy"]
    assert "Best loss on the test part: b" in page
    assert "not all measured on the same test items" not in page
    assert cells(page, "Durations of the steps")[1] == ["Train", "0.5 s", "0.2 s"]
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', page)[0])
    assert figures.keys() == {"curves", "parameter-1", "steps"}
    assert [trace["y"] for trace in figures["curves"]["data"]] == [[1.5, 0.5], [1.25, 0.25]]
    loss, accuracy = figures["parameter-1"]["data"]
    assert (loss["x"], loss["y"], loss["visible"]) == ([0.1, 0.01], [0.5, 0.25], True)
    assert (accuracy["y"], accuracy["visible"]) == ([0.5, 0.75], False)


def test_runs_without_results_are_compared_by_their_parameters() -> None:
    rows = [
        Compared(name=name, state="failed", began="", parameters={"lr": name})
        for name in ("0.1", "0.2")
    ]
    page = render_comparison(rows, "runs")
    assert "None of them has a result" in page
    assert cells(page, "Parameters that differ")[1] == ["0.1", "0.1"]


def test_templates_are_kept_where_nobody_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path))
    assert kept("a", lambda: b"one") == kept("a", lambda: b"two") == b"one"
    (tmp_path / "pages").chmod(0o777)
    assert kept("a", lambda: b"two") == b"two"
