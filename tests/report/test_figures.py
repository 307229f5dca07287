"""Figures are written as plotly's JSON: plotly's own classes, which check every name, accept them."""

import json
import subprocess
import sys
from typing import Any

import pytest
from plotly.graph_objects import Figure

from podium.report import plots

POINTS = {"true": [0.5, 1.5, 2.0], "predicted": [0.4, 1.9, float("nan")]}
ROWS = [
    {"name": f"t{number}", "number": number, "value": None if number == 4 else number / 20,
     "parameters": {"lr": str(number / 100), "batch": ("32", "64")[number % 2], "kind": ("step", "cycle")[number % 2]},
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
    texts = plots.of_sweep(SWEEP) | plots.learning_curves(ROWS, {"accuracy": True}, ["t1"], "t12", "validation")
    texts |= {"confusion": plots.confusion_matrix([[5, 1], [2, 9]], ["a", "b"]), "fit": plots.fit(POINTS)}
    texts["residuals"] = plots.residuals(POINTS)
    return {name: json.loads(text, parse_constant=pytest.fail) for name, text in texts.items()}


def test_plotly_accepts_every_figure_as_it_is(figures: dict[str, Any]) -> None:
    assert set(figures) == {"history", "coordinates", "importance", "curves", "confusion", "fit", "residuals"}
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
    code = "import sys; from podium.report import plots; plots.fit({'true': [1.0], 'predicted': [2.0]}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not [name for name in done.stdout.split() if name.startswith("plotly.")]
