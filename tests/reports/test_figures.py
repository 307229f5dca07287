"""Figures are written as plotly's JSON: plotly's own classes, which check every name, accept them."""

import json
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from plotly.graph_objects import Figure

from podium.reports import plots

POINTS = {"true": [0.5, 1.5, 2.0], "predicted": [0.4, 1.9, float("nan")]}
ROWS = [
    {"name": f"t{number}", "number": number, "value": None if number == 4 else number / 20,
     "parameters": {"lr": str(number / 100), "batch": ("32", "64")[number % 2], "kind": ("step", "cycle")[number % 2]},
     "state": "Failed" if number == 4 else "Succeeded", "seconds": 2.0,
     "started": f"2026-01-02T03:04:{number:02}+01:00", "ended": f"2026-01-02T03:04:{number + 2:02}+01:00",
     "epochs": [{"epoch": 1, "accuracy": 0.4}, {"epoch": 2, "accuracy": number / 20}]}
    for number in range(1, 13)
]  # fmt: skip
SWEEP = {
    "objective": {"metric": "accuracy", "maximize": True}, "trials": ROWS,
    "parameters": [
        {"name": "lr", "parameterType": "double",
         "feasibleSpace": {"min": "0.01", "max": "0.2", "distribution": "logUniform"}},
        {"name": "batch", "parameterType": "discrete", "feasibleSpace": {"list": ["32", "64"]}},
        {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["step", "cycle"]}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    drawn = (
        plots.of_trials(SWEEP)
        | plots.of_importance(SWEEP)
        | plots.of_times(SWEEP)
        | plots.learning_curves(ROWS, {"accuracy": True}, ["t1"], "t12", "validation")
    )
    drawn |= {
        "confusion": plots.confusion_matrix([[5, 1], [2, 9]], ["a", "b"]),
        "fit": plots.fit(POINTS),
    }
    drawn["residuals"] = plots.residuals(POINTS)
    texts = plots.as_json(drawn)
    return {name: json.loads(text, parse_constant=pytest.fail) for name, text in texts.items()}


def test_plotly_accepts_every_figure_as_it_is(figures: dict[str, Any]) -> None:
    assert set(figures) == {
        "history",
        "coordinates",
        "importance",
        "curves",
        "confusion",
        "fit",
        "residuals",
        "times",
    }
    for figure in figures.values():
        read = Figure(figure)
        assert [trace.type for trace in read.data] == [trace["type"] for trace in figure["data"]]
        assert read.layout.template.layout.plot_bgcolor == "white"


def test_a_number_that_is_not_finite_becomes_null(figures: dict[str, Any]) -> None:
    assert figures["fit"]["data"][1]["y"] == [0.4, 1.9, None]


def test_the_best_so_far_never_falls(figures: dict[str, Any]) -> None:
    best = figures["history"]["data"][0]["y"]
    assert len(best) == 11
    assert best == sorted(best)


def test_a_report_needs_none_of_plotlys_classes() -> None:
    code = "import sys; from podium.reports import plots; plots.fit({'true': [1.0], 'predicted': [2.0]}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not [name for name in done.stdout.split() if name.startswith("plotly.")]


def test_a_bar_lasts_from_start_to_end_in_utc(figures: dict[str, Any]) -> None:
    good, failed = figures["times"]["data"]
    assert (good["name"], failed["name"]) == ("Succeeded", "Failed")
    assert (good["y"][0], good["base"][0], good["x"][0]) == (1, "2026-01-02 02:04:01.000", 2000)
    assert (failed["y"], failed["base"]) == ([4], ["2026-01-02 02:04:04.000"])
    assert good["marker"]["color"] != failed["marker"]["color"]


def test_a_running_trial_lasts_until_now() -> None:
    running = {**ROWS[0], "state": "Running", "ended": None, "seconds": 7.5}
    (bar,) = plots.of_times({"trials": [running]})["times"]["data"]
    assert bar["x"] == [7500]


def test_trials_of_an_older_podium_have_no_bars() -> None:
    rows = [
        {name: value for name, value in row.items() if name not in ("started", "ended")}
        for row in ROWS
    ]
    assert plots.of_times({**SWEEP, "trials": rows}) == {}


GOOD_ONES = [0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96]


@pytest.mark.parametrize(("maximize", "sign", "said"), [(True, -1, "below"), (False, 1, "above")])
def test_one_bad_value_does_not_flatten_the_rest(maximize: bool, sign: int, said: str) -> None:
    shown = plots.window([*GOOD_ONES, 1000.0 * sign, None, float("nan")], maximize=maximize)
    assert shown is not None
    assert shown.low < 0.9
    assert 0.96 < shown.high < 1
    assert shown.said == f"1 worse value lies {said} what is shown"


@pytest.mark.parametrize("values", [
    [*GOOD_ONES, 0.85],  # not far out
    [*GOOD_ONES, 1000.0],  # far out, but better than the rest
    [*GOOD_ONES[1:], -1000.0],  # too few to tell what is usual
    [0.9] * 8 + [0.1],  # nothing to see in the rest
    [1.7e308] * 9 + [0.1],  # what failed trials report
    [],
])  # fmt: skip
def test_an_axis_shows_everything_without_bad_values(values: list[float]) -> None:
    assert plots.window(values, maximize=True) is None


def test_figures_say_what_lies_off_their_axis() -> None:
    rows = [
        {
            **row,
            "value": 1e6 if row["number"] == 3 else row["number"],
            "epochs": [{"loss": 1e6 if row["number"] == 3 else 1.0 + row["number"]}],
        }
        for row in ROWS
    ]
    sweep = {**SWEEP, "objective": {"metric": "loss", "maximize": False}, "trials": rows}
    curves = plots.learning_curves(rows, {"loss": False}, ["t1"], "t1")["curves"]
    for figure in (plots.history(sweep), curves):
        assert (
            "<br>1 worse value lies above what is shown"
            in figure["layout"]["xaxis"]["title"]["text"]
        )
        assert figure["layout"]["yaxis"]["range"][1] < 20
    lines = plots.coordinates(sweep)
    assert sum(trace["y"].count(None) for trace in lines["data"]) == 11
    assert lines["layout"]["annotations"][0]["text"] == "1 worse value lies above what is shown"


def test_equal_large_values_have_an_axis() -> None:
    rows = [{**row, "value": 1e16, "parameters": {"lr": "1e300"}} for row in ROWS]
    del rows[0]["parameters"]["lr"]
    free = {
        "name": "lr",
        "parameterType": "double",
        "feasibleSpace": {"min": "1e300", "max": "1e300"},
    }
    figure = plots.coordinates({**SWEEP, "trials": rows, "parameters": [free]})
    drawn = [y for trace in figure["data"] for y in trace["y"] if y is not None]
    assert {round(y, 3) for y in drawn} == {0.0, 0.5, 0.556}


def test_a_long_curve_is_thinned_to_its_last_point() -> None:
    points = plots.curve([{"loss": 1 / epoch} for epoch in range(1, 1002)], "loss")
    assert len(points["x"]) <= plots.MOST_POINTS
    assert (points["x"][-1], points["y"][-1]) == (1001, 1 / 1001)
    assert plots.curve([{"epoch": 5, "loss": 0.5}, {"accuracy": 1.0}], "loss") == {
        "x": [5],
        "y": [0.5],
    }


def many(count: int, *, noise: float) -> dict[str, Any]:
    """Return a sweep whose value is that of its parameter ``lr``, and noise."""
    chance = Random(7)
    rows = []
    for number in range(1, count + 1):
        lr = chance.uniform(0.01, 0.2)
        parameters = {
            "lr": str(lr),
            "batch": chance.choice(("32", "64")),
            "kind": chance.choice(("step", "cycle")),
        }
        rows.append(
            {"number": number, "value": lr + noise * chance.random(), "parameters": parameters}
        )
    return {**SWEEP, "trials": rows}


def test_the_interval_of_an_importance_holds_its_value() -> None:
    shares = plots.importance(many(60, noise=0.1))
    assert set(shares) == {"lr", "batch", "kind"}
    assert sum(share.value for share in shares.values()) == pytest.approx(1)
    assert all(0 <= share.low <= share.value <= share.high <= 1 for share in shares.values())
    assert shares["lr"].low > shares["kind"].high  # lr alone makes the value
    assert plots.importance(many(60, noise=0.1)) == shares


def test_more_trials_make_an_importance_surer() -> None:
    few, enough = (plots.importance(many(count, noise=0.3))["lr"] for count in (15, 250))
    assert enough.high - enough.low < few.high - few.low


def test_resamples_of_long_sweeps_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, compute = list[int](), plots._ped_anova
    monkeypatch.setattr(
        plots, "_ped_anova", lambda trials, *way: sizes.append(len(trials)) or compute(trials, *way)
    )
    plots.importance(many(400, noise=0.1))
    assert sizes == [plots.MOST_RESAMPLED] * plots.RESAMPLES + [400]


def test_importance_is_drawn_with_its_interval(figures: dict[str, Any]) -> None:
    shares, figure = plots.importance(SWEEP), figures["importance"]
    (trace,) = figure["data"]
    for name, value, above, below in zip(
        trace["y"],
        trace["x"],
        trace["error_x"]["array"],
        trace["error_x"]["arrayminus"],
        strict=True,
    ):
        drawn = [value, value + above, value - below]
        assert drawn == pytest.approx(
            [shares[name].value, shares[name].high, shares[name].low], abs=1e-6
        )
    said = figure["layout"]["xaxis"]["title"]["text"].replace("<br>", " ")
    assert "The error bars are 90 % intervals over resampled trials." in said
    assert figure["layout"]["meta"]["note"] in said
