"""Runs, or versions of a model, side by side on one HTML page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import podium.reports.plots as plots
from podium.display.text import brief
from podium.reports.page import html_page

COLORS = (plots.BLUE, plots.GOLD, plots.RED, plots.GREEN, plots.PURPLE, plots.GRAY)
DASHES, SYMBOLS = ("solid", "dash", "dot", "dashdot"), ("circle", "square", "diamond", "cross")
"""Dashes and symbols that distinguish lines without color, and beyond the last color."""

_PATTERNS = ("", "/", "x", ".", "\\", "-", "+")

_MOST_PARAMETERS = 12
"""Parameters with a figure of their own; the table has all."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run or a version."""

    name: str
    state: str
    """``succeeded``, ``failed`` …; of a version whether it is the champion."""

    began: str
    """Start or upload time, for people."""

    result: str = ""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """Its parameters, and the hyperparameters of its model."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    metric: str = ""
    """The one its model was chosen by."""

    maximize: bool = True
    """Whether more of that is better."""

    epochs: Sequence[Mapping[str, float]] = ()

    steps: Mapping[str, float] = field(default_factory=dict)
    test: str = ""
    """Checksum of the test items; empty if unknown."""


def render_comparison(rows: Sequence[Compared], subject: str) -> str:
    """Render the page that compares runs, or versions of a model.

    Args:
        rows: At least two.
        subject: ``runs``, or ``versions of mnist``.

    Returns:
        HTML of about 2 MB, nearly all of it plotly.js.
    """
    metric, maximize = _metric(rows)
    differing, metrics = (
        _differing(rows),
        list(dict.fromkeys(name for row in rows for name in row.metrics)),
    )
    metrics.sort(key=lambda name: name != metric)
    drawn = [name for name in differing if sum(bool(row.metrics) for row in rows) > 1][
        :_MOST_PARAMETERS
    ]
    figures = {
        **{f"parameter-{at}": _against(rows, name, metrics) for at, name in enumerate(drawn, 1)},
        **_curves(rows, metric, maximize),
    }
    if any(row.steps for row in rows):
        figures["steps"] = _durations(rows)
    values = {row.name: row.metrics[metric] for row in rows if metric in row.metrics}
    return html_page(
        "comparison.html.jinja",
        figures,
        rows=rows,
        what=subject,
        metric=metric,
        metrics=metrics,
        differing=differing,
        parameters=drawn,
        best=(max if maximize else min)(values, key=values.__getitem__) if values else "",
        steps=list(dict.fromkeys(name for row in rows for name in row.steps)),
        other_tests=len({row.test for row in rows if row.metrics}) > 1,
    )


def _metric(rows: Sequence[Compared]) -> tuple[str, bool]:
    chosen = Counter((row.metric, row.maximize) for row in rows if row.metric)
    return (
        chosen.most_common(1)[0][0]
        if chosen
        else (next((name for row in rows for name in row.metrics), ""), True)
    )


def _differing(rows: Sequence[Compared]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row.parameters)
    return [name for name in names if len({row.parameters.get(name) for row in rows}) > 1]


def _against(rows: Sequence[Compared], parameter: str, metrics: Sequence[str]) -> plots.Figure:
    measured = [row for row in rows if row.metrics]
    texts = [row.parameters.get(parameter, "default") for row in measured]
    numbers = [_number(text) for text in texts]
    whole = [number for number in numbers if number is not None]
    axis = (
        plots.titled(parameter)
        if len(whole) == len(texts)
        else plots.titled(parameter, type="category")
    )
    if len(whole) == len(texts) and min(whole) > 0 and max(whole) >= 30 * min(whole):
        axis["type"] = "log"
    x: Sequence[float | str] = (
        whole if len(whole) == len(texts) else [brief(text) for text in texts]
    )
    places = [rows.index(row) for row in measured]  # each has the color of its curve
    marker = {
        "size": 11,
        "color": [COLORS[at % len(COLORS)] for at in places],
        "symbol": [SYMBOLS[at % len(SYMBOLS)] for at in places],
    }
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": x,
            "y": [row.metrics.get(name) for row in measured],
            "text": [row.name for row in measured],
            "visible": at == 0,
            "marker": marker,
            "hovertemplate": "%{text}<br>"
            + parameter.replace("%", "")
            + " %{x}: %{y:,.4~r}<extra></extra>",
        }
        for at, name in enumerate(metrics)
    ]
    return plots.figure_of(
        traces, height=280, xaxis=axis, yaxis=plots.titled(f"test {metrics[0]}"), showlegend=False
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _curves(rows: Sequence[Compared], metric: str, maximize: bool) -> dict[str, plots.Figure]:
    traces: list[dict[str, Any]] = []
    for at, row in enumerate(rows):
        color, dash = COLORS[at % len(COLORS)], DASHES[at // len(COLORS) % len(DASHES)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": row.name,
                **plots.curve(row.epochs, metric),
                "line": {"color": color, "dash": dash, "width": 2},
                "marker": {"symbol": SYMBOLS[at % len(SYMBOLS)]},
                "hovertemplate": "epoch %{x}: %{y:,.4~r}<extra>" + row.name + "</extra>",
            }
        )
    traces = [trace for trace in traces if trace["y"]]
    if not traces:
        return {}
    shown = plots.window([value for trace in traces for value in trace["y"]], maximize=maximize)
    longest = max(len(trace["y"]) for trace in traces)
    figure = plots.figure_of(
        traces,
        height=380,
        showlegend=True,
        xaxis=plots.each_one(plots.noted("epoch", shown), longest),
        **plots.windowed(f"validation {metric}", shown),
    )
    return {"curves": figure}


def _durations(rows: Sequence[Compared]) -> plots.Figure:
    timed = [row for row in rows if row.steps]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": step,
            "y": [row.name for row in timed],
            "x": [row.steps.get(step, 0.0) for row in timed],
            "marker": {
                "color": COLORS[at % len(COLORS)],
                "pattern": {"shape": _PATTERNS[at % len(_PATTERNS)], "fgcolor": "#fff", "size": 6},
            },
            "hovertemplate": step.replace("%", "") + ": %{x:.1f} s<extra>%{y}</extra>",
        }
        for at, step in enumerate(dict.fromkeys(step for row in timed for step in row.steps))
    ]
    names = plots.titled("", type="category", autorange="reversed", automargin=True, showgrid=False)
    return plots.figure_of(
        traces,
        height=min(900, 190 + 34 * len(timed)),
        barmode="stack",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        xaxis=plots.titled("seconds"),
        yaxis=names,
    )
