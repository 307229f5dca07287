"""The figures of the report, in plotly's JSON (https://plotly.com/javascript/reference).

They are written as they are drawn, by plotly.js: plotly's Python classes take seconds to load and
to check them. ``podium.api.plots`` makes those of them.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import combinations
from random import Random
from statistics import quantiles
from typing import Any

from podium.display.text import digits

Figure = dict[str, Any]
"""``data``, a list of traces, and ``layout``."""


ENOUGH = 10
"""Parameter importance is shown from this number of trials on; with fewer it would be a guess."""

BLUE, GOLD, GRAY, RED, GREEN, PURPLE = (
    "#2f73bd",
    "#b8801a",
    "#7f8993",
    "#d64545",
    "#2f9153",
    "#9066c0",
)
"""Colors with a contrast of 3 to 1 or more on white and on black, as WCAG requires of graphics."""

STATES = {
    "Succeeded": (BLUE, ""), "EarlyStopped": (GOLD, "/"), "Failed": (RED, "x"), "MetricsUnavailable": (PURPLE, "\\"),
    "Running": (GREEN, "."), "Killed": (GRAY, "-"),
}  # fmt: skip
"""Color of a state, and the pattern that identifies it without color."""

MOST_LINES, MOST_POINTS, MOST_BARS, MOST_TEXTS = 150, 200, 500, 2000
"""Limits of figures of long sweeps, since a report is one file of at most 3 MB: the best trials'
lines and the points of each, the last trials' bars, and the trials up to which each point shows its
parameters."""

FAR, FEWEST = 3.0, 8
"""Values worse than the quartile by so many interquartile ranges are left off an axis, if there are
so many values."""


RESAMPLES, MOST_RESAMPLED, SEED = 30, 300, 1
"""Bootstrap of an importance's interval: number of resamples, maximum number of trials in each, and
seed."""


FRONT_NOTE = (
    "No trial is better in one objective than a trial of the front without being worse in another."
)


@dataclass(frozen=True, kw_only=True)
class _Share:
    """The importance of a parameter, a share of 1, and its 90 % interval over resampled trials."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class _Window:
    """The part of an axis that a figure shows, and how many values lie beyond it."""

    low: float
    high: float
    outside: int
    below: bool
    """Whether those lie below it, else above."""

    @property
    def said(self) -> str:
        lie = "1 worse value lies" if self.outside == 1 else f"{self.outside:,} worse values lie"
        return f"{lie} {'below' if self.below else 'above'} what is shown"


def window(values: Iterable[float | None], *, maximize: bool) -> _Window | None:
    """Return the range of an axis so that a few bad values do not flatten all others; None for the
    whole range."""
    finite = sorted(value for value in values if value is not None and math.isfinite(value))
    if len(finite) < FEWEST:
        return None
    # Of quarters, since quantiles multiplies: a failed trial may report the largest float.
    cuts = quantiles([value / 4 for value in finite], n=4, method="inclusive")
    first, third = 4 * cuts[0], 4 * cuts[2]
    reach = FAR * (third - first)
    kept = [
        value
        for value in finite
        if (value >= first - reach if maximize else value <= third + reach)
    ]
    margin = 0.06 * (kept[-1] - kept[0])
    if (
        len(kept) == len(finite) or not margin
    ):  # without a margin the rest is one value, and nothing gets flat
        return None
    return _Window(
        low=kept[0] - margin,
        high=kept[-1] + margin,
        outside=len(finite) - len(kept),
        below=maximize,
    )


def of_trials(sweep: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures history and coordinates of a sweep, and ``front-N`` for each pair of
    objectives."""
    fronts = [pareto(sweep, *pair) for pair in combinations(objectives(sweep), 2)]
    return {
        **{f"front-{number}": front for number, front in enumerate(fronts, 1)},
        "history": history(sweep),
        "coordinates": coordinates(sweep),
    }


def objectives(sweep: Mapping[str, Any]) -> dict[str, bool]:
    """Return the objectives of a sweep, the first one first: whether more is better, by metric."""
    further = {name: more for name, more in sweep.get("judged", {}).items() if more is not None}
    return {sweep["objective"]["metric"]: sweep["objective"]["maximize"], **further}


def _by_two(sweep: Mapping[str, Any], first: str, second: str) -> list[dict[str, Any]]:
    own = sweep["objective"]["metric"]
    rows = [
        {
            "x": row["judged"].get(second),
            "y": row["value"] if first == own else row["judged"].get(first),
            **row,
        }
        for row in sweep["trials"]
        if row["value"] is not None
    ]
    complete = [row for row in rows if None not in (row["x"], row["y"])]
    return sorted(complete, key=lambda row: (row["x"], row["y"]))


def pareto(sweep: Mapping[str, Any], first: str, second: str) -> Figure:
    """Return each trial by two of its objectives, with the Pareto front.

    Of two objectives the front is a line, with what it dominates on one side; of more it is its
    trials alone, for in the picture of two of them one may lie behind another.
    """
    goals, rows = objectives(sweep), _by_two(sweep, first, second)
    groups: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
        "infeasible": (
            [row for row in rows if row["infeasible"]],
            {"color": GRAY, "size": 8, "symbol": "x"},
        ),
        "trial": (
            [row for row in rows if row["front"] not in (None, 1)],
            {"color": BLUE, "size": 9},
        ),
        "Pareto front": (
            [row for row in rows if row["front"] == 1],
            {"color": GOLD, "size": 11, "symbol": "diamond"},
        ),
    }
    line = {
        "mode": "lines+markers",
        "line": {"color": GOLD, "width": 2, "shape": "vh" if goals[second] else "hv"},
    }
    drawn = [
        {
            "type": "scatter",
            "name": name,
            "mode": "markers",
            "marker": marker,
            "x": [row["x"] for row in shown],
            "y": [row["y"] for row in shown],
            "meta": {"trials": [row["number"] for row in shown]},
            "text": [_said(row) for row in shown] if len(rows) <= MOST_TEXTS else [],
            "hovertemplate": "%{y:,.4~r}, %{x:,.4~r}<br>%{text}<extra>" + name + "</extra>",
            **(line if marker["color"] == GOLD and len(goals) == 2 else {}),
        }
        for name, (shown, marker) in groups.items()
        if shown
    ]
    axes = {
        name: f"{name} ({'more' if goals[name] else 'less'} is better)" for name in (first, second)
    }
    upright = window([row["y"] for row in rows], maximize=goals[first])
    across = window([row["x"] for row in rows], maximize=goals[second])
    xaxis = titled(
        noted(axes[second], upright), **({"range": [across.low, across.high]} if across else {})
    )
    limits = [
        _limit_line(bound, upright=bound["metric"] == second)
        for bound in sweep.get("constraints", ())
        if bound["metric"] in (first, second)
    ]
    return figure_of(
        drawn,
        height=400,
        showlegend=True,
        xaxis=xaxis,
        shapes=limits,
        **windowed(axes[first], upright),
    )


def _limit_line(bound: Mapping[str, Any], *, upright: bool) -> dict[str, Any]:
    """Return the limit of a constraint as a line across a figure: beyond it trials are
    infeasible."""
    own, other = ("x", "y") if upright else ("y", "x")
    return {
        "type": "line",
        f"{own}0": bound["limit"],
        f"{own}1": bound["limit"],
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": "paper",
        "line": {"color": RED, "width": 2, "dash": "dash"},
        "label": {"text": f"{bound['metric']}{bound['sign']}{bound['limit']:g}"},
    }


def _said(row: Mapping[str, Any]) -> str:
    return ", ".join(
        [
            *(f"{name}={value}" for name, value in row["parameters"].items()),
            *row.get("infeasible", ()),
        ]
    )


def of_times(sweep: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figure ``times`` of a sweep; nothing if no trial's start is known.

    It shows when each trial ran, a bar from its start to its end, in start order; trials side by
    side ran together. A trial without ``ended`` lasts as long as its ``seconds``.
    """
    rows = [row for row in sweep["trials"] if row.get("started")]
    if not rows:
        return {}
    rows.sort(key=lambda row: int(row["number"]))
    first, most = rows[-MOST_BARS:][0]["number"], rows[-1]["number"]
    title = "trial, in start order" + (f", the last {MOST_BARS}" if len(rows) > MOST_BARS else "")
    rows = rows[-MOST_BARS:]
    traces = []
    for state in dict.fromkeys([*STATES, *(row["state"] for row in rows)]):
        own = [row for row in rows if row["state"] == state]
        color, pattern = STATES.get(state, (GRAY, ""))
        seconds = [_lasted(row) for row in own]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": state,
                "width": 0.75,
                "y": [row["number"] for row in own],
                "base": [_utc(row["started"]) for row in own],
                "x": [1000 * lasted for lasted in seconds],
                "marker": {
                    "color": color,
                    "line": {"color": color, "width": 1},
                    "pattern": {"shape": pattern, "fgcolor": "#fff", "size": 6},
                },
                "customdata": [
                    [row["name"], f"{lasted:.1f} s"]
                    for row, lasted in zip(own, seconds, strict=True)
                ],
                "hovertemplate": "%{customdata[0]}<br>from %{base|%H:%M:%S}, %{customdata[1]}<extra>"
                + state
                + "</extra>",
            }
        )
    traces = [trace for trace in traces if trace["x"]]
    number = each_one(title, most) | {"range": [most + 0.6, first - 0.6], "showgrid": False}
    times = figure_of(
        traces,
        height=min(900, 150 + 22 * len(rows)),
        barmode="overlay",
        showlegend=True,
        xaxis=titled("time (UTC)", type="date"),
        yaxis=number,
    )
    return {"times": times}


def _lasted(row: Mapping[str, Any]) -> float:
    if not row.get("ended"):
        return float(row["seconds"] or 0.0)
    return (
        datetime.fromisoformat(row["ended"]) - datetime.fromisoformat(row["started"])
    ).total_seconds()


def _utc(moment: str) -> str:
    """Format a time for plotly.js, which takes every time as UTC."""
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def of_importance(sweep: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figure importance of a sweep, with enough trials; it loads scikit-learn."""
    shares = importance(sweep)
    return {"importance": bars(shares)} if shares else {}


def history(sweep: Mapping[str, Any]) -> Figure:
    """Return the objective of each trial in start order, and the best so far."""
    metric, maximize = sweep["objective"]["metric"], sweep["objective"]["maximize"]
    rows = [
        row
        for row in sorted(sweep["trials"], key=lambda row: row["number"])
        if row["value"] is not None
    ]
    best: list[float | None] = []
    for row in rows:
        candidates = [
            value
            for value in (
                *best[-1:],
                None if row.get("infeasible") or row.get("repeats") else row["value"],
            )
            if value is not None
        ]
        best.append((max if maximize else min)(candidates, default=None))
    numbers = [row["number"] for row in rows]
    texts = [
        ", ".join(f"{name}={value}" for name, value in row["parameters"].items()) for row in rows
    ]
    texts = texts if len(rows) <= MOST_TEXTS else []
    lines = {
        "type": "scatter",
        "x": numbers,
        "y": best,
        "mode": "lines",
        "name": "best so far",
        "line": {"color": GOLD, "shape": "hv"},
    }
    markers = {
        "type": "scatter",
        "meta": {"trials": numbers},
        "x": numbers,
        "y": [row["value"] for row in rows],
        "mode": "markers",
        "name": "trial",
        "text": texts,
        "marker": {"color": BLUE, "size": 9},
        "hovertemplate": "%{y:,.4~r}<br>%{text}<extra>trial %{x}</extra>",
    }
    shown = window([row["value"] for row in rows], maximize=maximize)
    return figure_of(
        [lines, markers],
        xaxis=each_one(noted("trial, in start order", shown), len(rows)),
        **windowed(metric, shown),
    )


def coordinates(sweep: Mapping[str, Any]) -> Figure:
    """Return parallel coordinates: a line for each trial that is not far out, from its parameters
    to its objective."""
    maximize = sweep["objective"]["maximize"]
    rows = [row for row in sweep["trials"] if row["value"] is not None]
    shown = window([row["value"] for row in rows], maximize=maximize)
    rows = [row for row in rows if shown is None or shown.low <= row["value"] <= shown.high]
    rows, left_out = rows[:MOST_TEXTS], len(rows[MOST_TEXTS:])
    said = [
        *([shown.said] if shown else []),
        *([f"the best {MOST_TEXTS:,} trials are shown"] if left_out else []),
    ]
    axes = [
        _axis_of_some(parameter, [row["parameters"].get(parameter["name"]) for row in rows])
        for parameter in sweep["parameters"]
    ]
    values = [row["value"] for row in rows]
    axes.append({"label": sweep["objective"]["metric"], "values": values})
    notes = [_note(0.5, 0, "; ".join(said), xref="paper", yref="paper", yshift=-24)] if said else []
    places = list[Sequence[float]]()
    for at, axis in enumerate(axes):
        low, high = axis.get("range") or _bounds([*axis["values"], *axis.get("tickvals", ())])
        ticks = axis.get("tickvals") or [low + (high - low) * part / 4 for part in range(5)]
        texts = axis.get("ticktext") or [digits(tick, 3) for tick in ticks]
        places.append([(value - low) / (high - low) for value in axis["values"]])
        notes += [
            _note(at, (tick - low) / (high - low), text, xanchor="right", xshift=-4)
            for tick, text in zip(ticks, texts, strict=True)
        ]
    good = [place if maximize else 1 - place for place in places[-1]]
    lines = [
        _lines(color, [at for at, place in enumerate(good) if least <= place < most], places, rows)
        for color, least, most in ((GRAY, 0, 0.5), (BLUE, 0.5, 0.85), (GOLD, 0.85, 2))
    ]
    heads = {"tickvals": list(range(len(axes))), "ticktext": [axis["label"] for axis in axes]}
    return figure_of(
        lines,
        height=360,
        margin={"l": 70, "r": 30, "t": 60, "b": 30},
        showlegend=False,
        annotations=notes,
        xaxis={**heads, "side": "top", "gridwidth": 2, "range": [-0.3, len(axes) - 0.7]},
        yaxis={"visible": False, "range": [-0.06, 1.04]},
        **({"meta": {"note": notes[0]["text"]}} if said else {}),
    )


def _lines(
    color: str, shown: Sequence[int], places: Sequence[Sequence[float]], rows: Sequence[Any]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"color": color, "width": 1.5},
        "meta": {"trials": [rows[at]["number"] for at in shown]},
        "x": [x for _ in shown for x in (*range(len(places)), None)],
        "y": [y for at in shown for y in (*(axis[at] for axis in places), None)],
        "text": [
            text for at in shown[:MOST_LINES] for text in [_said(rows[at])] * (len(places) + 1)
        ],
        "hoverinfo": "text",
    }


def _note(x: float, y: float, text: str, **more: Any) -> dict[str, Any]:
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": 11}, **more}


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    more = max(0.5, 1e-3 * abs(low))  # of a large number, a half is lost
    return (low, high) if low < high else (low - more, high + more)


def _axis_of_some(parameter: Mapping[str, Any], values: Sequence[str | None]) -> dict[str, Any]:
    axis = _axis(parameter, [value for value in values if value is not None])
    drawn, counts = iter(axis["values"]), [value is not None for value in values]
    if all(counts):
        return axis
    low, high = axis.get("range") or _bounds(axis["values"])
    ticks = axis.get("tickvals") or [low + (high - low) * part / 4 for part in range(5)]
    below = low - (high - low) / 8
    return {
        "label": axis["label"],
        "values": [next(drawn) if has_value else below for has_value in counts],
        "range": [below, max(high, *ticks)],
        "tickvals": [below, *ticks],
        "ticktext": ["-", *axis.get("ticktext", (digits(tick, 3) for tick in ticks))],
    }


def _axis(parameter: Mapping[str, Any], values: Sequence[str]) -> dict[str, Any]:
    name, space = parameter["name"], parameter["feasibleSpace"]
    if parameter["parameterType"] == "categorical":
        categories = list(dict.fromkeys([*space["list"], *values]))
        positions = [categories.index(value) for value in values]
        return {
            "label": name,
            "values": positions,
            "tickvals": list(range(len(categories))),
            "ticktext": categories,
        }
    numbers = [float(value) for value in values]
    if space.get("distribution") == "logUniform" and min(numbers, default=0) > 0:
        ticks = [10**power * step for power in range(-9, 10) for step in (1, 2, 5)]
        low, high = float(space["min"]), float(space["max"])
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) > 8:
            shown = [tick for tick in shown if f"{tick:e}".startswith("1.0")]
        return {
            "label": name,
            "values": [math.log10(value) for value in numbers],
            "range": [math.log10(low), math.log10(high)],
            "tickvals": [math.log10(tick) for tick in shown],
            "ticktext": [f"{tick:g}" for tick in shown],
        }
    ticks = sorted({float(value) for value in space.get("list") or []})
    return {"label": name, "values": numbers} | ({"tickvals": ticks} if ticks else {})


def importance(sweep: Mapping[str, Any]) -> dict[str, _Share]:
    """Return the importance of each parameter that counts in all trials, by PED-ANOVA, the largest
    first.

    It is empty with too few trials, or fewer than two such parameters.

    Its interval goes from the 5th to the 95th percentile of what resamples of the trials say
    (bootstrap), and holds the value itself: a resample repeats trials, which makes PED-ANOVA surer
    than it should be. Of more trials than MOST_RESAMPLED, which would take long, that many are
    drawn, so that the interval is rather too wide.
    """
    rows = [row for row in sweep["trials"] if row["value"] is not None]
    parameters = [
        each
        for each in sweep["parameters"]
        if all(each["name"] in row["parameters"] for row in rows)
    ]
    if len(rows) < ENOUGH or len(parameters) < 2:
        return {}
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces = {parameter["name"]: _distribution(parameter) for parameter in parameters}
    trials = []
    for row in rows:
        values = {name: _value(spaces[name], row["parameters"][name]) for name in spaces}
        trials.append(
            optuna.trial.create_trial(params=values, distributions=spaces, value=row["value"])
        )
    maximize = sweep["objective"]["maximize"]
    chance, count = Random(SEED), min(len(trials), MOST_RESAMPLED)
    resampled = [_ped_anova(chance.choices(trials, k=count), maximize) for _ in range(RESAMPLES)]
    shares = {}
    for name, value in _ped_anova(trials, maximize).items():
        low, *_, high = quantiles([again[name] for again in resampled], n=20, method="inclusive")
        shares[name] = _Share(value=value, low=min(low, value), high=max(high, value))
    return shares


def _ped_anova(trials: Sequence[Any], maximize: bool) -> dict[str, float]:
    import warnings

    import optuna

    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    study.add_trials(trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _distribution(parameter: Mapping[str, Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    space = parameter["feasibleSpace"]
    if parameter["parameterType"] in ("categorical", "discrete"):
        return CategoricalDistribution(space["list"])
    return FloatDistribution(
        float(space["min"]), float(space["max"]), log=space.get("distribution") == "logUniform"
    )


def _value(distribution: Any, text: str) -> Any:
    return float(text) if hasattr(distribution, "low") else text


def bars(shares: Mapping[str, _Share]) -> Figure:
    """Return the importance of each parameter as bars, with their intervals as error bars."""
    ordered = sorted(shares.items(), key=lambda item: item[1].value)
    drawn = [share for _, share in ordered]
    errors = {
        "type": "data",
        "symmetric": False,
        "array": [share.high - share.value for share in drawn],
        "arrayminus": [share.value - share.low for share in drawn],
        "color": GOLD,
        "thickness": 2,
    }
    trace = {
        "type": "bar",
        "x": [share.value for share in drawn],
        "y": [name for name, _ in ordered],
        "orientation": "h",
        "marker": {"color": BLUE},
        "error_x": errors,
        "customdata": [[share.low, share.high] for share in drawn],
        "hovertemplate": "%{y}: %{x:.2f}, 90 % %{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>",
    }
    said = ("The error bars are 90 % intervals", "over resampled trials.")  # two lines, for a phone
    title = "<br>".join(["importance for the best trials (PED-ANOVA)", *said])
    return figure_of(
        [trace],
        height=300,
        margin={"l": 60, "r": 20, "t": 30, "b": 90},
        xaxis=titled(title),
        yaxis={"automargin": True},
        meta={"note": " ".join(said)},
    )


def learning_curves(
    rows: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, bool],
    stressed: Sequence[str],
    winner: str,
    part: str = "",
) -> dict[str, Figure]:
    """Return the figure ``curves``, a metric by epoch for each row that recorded it; nothing if
    none did.

    Args:
        rows: Trials and trainings, each with its ``epochs``.
        metrics: The first of them that any row recorded is drawn; whether more is better.
        stressed: Names of rows that stand out.
        winner: Name of the row that stands out most.
        part: The dataset's, on which the metric was measured, where that is known.
    """
    logged = {name for row in rows for epoch in row["epochs"] for name in epoch}
    metric = next((name for name in metrics if name in logged), None)
    if metric is None:
        return {}
    traces = []
    rows = [*rows[:MOST_LINES], *(row for row in rows[MOST_LINES:] if row["name"] in stressed)]
    for row in rows:
        name = row["name"]
        color = GOLD if name == winner else BLUE if name in stressed else GRAY
        traces.append(
            {
                "type": "scatter",
                **({"meta": {"trials": [row["number"]]}} if row.get("number") else {}),
                **curve(row["epochs"], metric),
                "name": name,
                "mode": "lines+markers",
                "line": {"color": color, "width": 3 if name in stressed else 1},
                "showlegend": name in stressed,
                "hovertemplate": "epoch %{x}: %{y:,.4~r}<extra>" + name + "</extra>",
            }
        )
    longest = max(len(row["epochs"]) for row in rows)
    shown = window([value for trace in traces for value in trace["y"]], maximize=metrics[metric])
    figure = figure_of(
        traces,
        xaxis=each_one(noted("epoch", shown), longest),
        **windowed(f"{part} {metric}".strip(), shown),
    )
    return {"curves": figure}


def curve(epochs: Sequence[Mapping[str, float]], metric: str) -> dict[str, list[float]]:
    """Return ``x`` and ``y`` of a learning curve; of a long one points at even distances, the last
    one among them."""
    measured = [epoch for epoch in epochs if metric in epoch]
    points = [(epoch.get("epoch", at), epoch[metric]) for at, epoch in enumerate(measured, 1)]
    points = points[::-1][:: math.ceil(len(points) / MOST_POINTS) or 1][::-1]
    return {"x": [x for x, _ in points], "y": [y for _, y in points]}


def confusion_matrix(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> Figure:
    """Return true class by row and predicted class by column, right ones in blue and wrong ones in
    red.

    Each has a scale of its own, so that few mistakes stand out beside many right answers; both are
    translucent, so that the numbers can be read on white and on black.
    """

    def cells(keep: Callable[[int, int], bool], color: str, said: str) -> dict[str, Any]:
        counts = [
            [count if keep(true, predicted) else None for predicted, count in enumerate(row)]
            for true, row in enumerate(confusion)
        ]
        most = max((count for row in counts for count in row if count), default=1)
        return {
            "type": "heatmap",
            "z": counts,
            "x": list(classes),
            "y": list(classes),
            "texttemplate": "%{z}",
            "colorscale": [[0, f"{color}00"], [1e-9, f"{color}33"], [1, f"{color}a0"]],
            "showscale": False,
            "xgap": 1,
            "ygap": 1,
            "zmin": 0,
            "zmax": most,
            "hoverongaps": False,
            "hovertemplate": f"{said}: %{{z}}<extra></extra>",
        }

    traces = [
        cells(lambda true, predicted: true == predicted, BLUE, "%{y} recognized"),
        cells(lambda true, predicted: true != predicted, RED, "%{y} taken for %{x}"),
    ]
    predicted = titled("predicted", type="category", side="top", showgrid=False)
    true = titled("true", type="category", autorange="reversed", showgrid=False)
    return figure_of(traces, height=460, xaxis=predicted, yaxis=true)


def reliability(bins: Sequence[Mapping[str, Any]]) -> Figure:
    """Return accuracy against confidence of each bin; true probabilities are on the line."""
    low = min(0.5, *(row["confidence"] for row in bins))
    errors = {
        "type": "data",
        "symmetric": False,
        "array": [row["high"] - row["accuracy"] for row in bins],
        "arrayminus": [row["accuracy"] - row["low"] for row in bins],
    }
    measured = {
        "type": "scatter",
        "x": [row["confidence"] for row in bins],
        "y": [row["accuracy"] for row in bins],
        "mode": "markers",
        "marker": {"color": BLUE, "size": 9},
        "error_y": errors,
        "customdata": [row["items"] for row in bins],
        "hovertemplate": "said %{x:.3f}<br>right %{y:.3f} of %{customdata} items<extra></extra>",
    }
    axes = {"xaxis": titled("probability of the predicted class"), "yaxis": titled("right")}
    return figure_of([_diagonal(low, 1), measured], height=360, showlegend=False, **axes)


def fit(points: Mapping[str, Sequence[float]]) -> Figure:
    """Return predicted against true numbers; a perfect model's points are on the line."""
    low = min(min(points["true"]), min(points["predicted"]))
    high = max(max(points["true"]), max(points["predicted"]))
    items = {
        "type": "scattergl",
        "x": points["true"],
        "y": points["predicted"],
        "mode": "markers",
        "marker": _dots(points),
        "hovertemplate": "true %{x:,.4~r}<br>predicted %{y:,.4~r}<extra></extra>",
    }
    axes = {"xaxis": titled("true"), "yaxis": titled("predicted")}
    return figure_of([_diagonal(low, high), items], height=420, showlegend=False, **axes)


def _diagonal(low: float, high: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [low, high],
        "y": [low, high],
        "mode": "lines",
        "line": {"color": GOLD, "width": 2},
        "hoverinfo": "skip",
    }


def residuals(points: Mapping[str, Sequence[float]]) -> Figure:
    """Return predicted minus true against predicted numbers, and beside it how the residuals are
    distributed."""
    rest = [
        predicted - true
        for true, predicted in zip(points["true"], points["predicted"], strict=True)
    ]
    items = {
        "type": "scattergl",
        "x": points["predicted"],
        "y": rest,
        "mode": "markers",
        "marker": _dots(points),
        "xaxis": "x",
        "yaxis": "y",
        "hovertemplate": "predicted %{x:,.4~r}<br>residual %{y:,.4~r}<extra></extra>",
    }
    counts = {
        "type": "histogram",
        "y": rest,
        "marker": {"color": BLUE},
        "xaxis": "x2",
        "yaxis": "y2",
        "hovertemplate": "residual %{y}: %{x} items<extra></extra>",
    }
    zero = [
        {
            "type": "line",
            "x0": 0,
            "x1": 1,
            "xref": f"{x} domain",
            "y0": 0,
            "y1": 0,
            "yref": y,
            "line": {"color": GOLD, "width": 2},
        }
        for x, y in (("x", "y"), ("x2", "y2"))
    ]
    return figure_of(
        [items, counts],
        height=360,
        showlegend=False,
        bargap=0.05,
        shapes=zero,
        xaxis=titled("predicted", anchor="y", domain=[0, 0.784]),
        xaxis2=titled("items", anchor="y2", domain=[0.804, 1]),
        yaxis=titled("predicted − true", anchor="x", domain=[0, 1]),
        yaxis2={"anchor": "x2", "domain": [0, 1], "matches": "y", "showticklabels": False},
    )


def _dots(points: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    many = len(points["true"]) > 300
    return {"color": BLUE, "size": 5 if many else 7, "opacity": 0.4 if many else 0.7}


def titled(title: str, **axis: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **axis}


def windowed(title: str, shown: _Window | None) -> dict[str, Any]:
    """Return the layout of an upright axis that shows a part of its range, with room below for the
    note about the rest."""
    if shown is None:
        return {"yaxis": titled(title)}
    margin = {"l": 60, "r": 20, "t": 30, "b": 68}
    return {
        "yaxis": titled(title, range=[shown.low, shown.high]),
        "margin": margin,
        "meta": {"note": shown.said},
    }


def noted(title: str, shown: _Window | None) -> str:
    """Return the title of an axis with the note about values outside on a line below: it stays with
    the figure wherever that goes."""
    return f"{title}<br>{shown.said}" if shown else title


def each_one(title: str, count: int) -> dict[str, Any]:
    return titled(title, dtick=1) if count <= 20 else titled(title)


def figure_of(traces: Sequence[Mapping[str, Any]], **layout: Any) -> Figure:
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return {
        "data": list(traces),
        "layout": {
            "template": _template(),
            "height": 320,
            "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
            "font": {"family": "system-ui, sans-serif"},
            "legend": legend,
            **layout,
        },
    }


@cache
def _template() -> dict[str, Any]:
    """Return plotly's template ``plotly_white``, which plotly.js does not have under its name."""
    file = resources.files("plotly") / "package_data" / "templates" / "plotly_white.json"
    template: dict[str, Any] = json.loads(file.read_bytes())
    return template


def as_json(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return figures as JSON, by name: numbers that are not finite are null, as in plotly's own,
    others have eight digits."""
    texts = {}
    for name, figure in figures.items():
        short = json.loads(
            json.dumps(figure),
            parse_constant=lambda _: None,
            parse_float=lambda number: float(f"{float(number):.8g}"),
        )
        texts[name] = json.dumps(short, separators=(",", ":"))
    return texts
