"""The figures of the report."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ENOUGH = 10
"""Parameter importance is shown from this number of trials on; with fewer it would be a guess."""

BLUE, GOLD, GRAY = "#2563a8", "#d99a1c", "#9aa3ad"


def of_sweep(sweep: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a sweep as plotly JSON: history, coordinates and, with enough trials, importance."""
    figures = {"history": history(sweep), "coordinates": coordinates(sweep)}
    shares = importance(sweep)
    if shares:
        figures["importance"] = bars(shares)
    return {name: str(figure.to_json()) for name, figure in figures.items()}


def searched(sweep: Mapping[str, Any]) -> list[str]:
    """Return the names of the search parameters."""
    return [parameter["name"] for parameter in sweep["parameters"]]


def history(sweep: Mapping[str, Any]) -> "Figure":
    """Return the objective of each trial in start order, and the best so far."""
    import plotly.graph_objects as go

    metric, maximize = sweep["objective"]["metric"], sweep["objective"]["maximize"]
    rows = [row for row in sorted(sweep["trials"], key=lambda row: row["number"]) if row["value"] is not None]
    best: list[float] = []
    for row in rows:
        best.append((max if maximize else min)([row["value"], *best[-1:]]))
    numbers = [row["number"] for row in rows]
    texts = [_assignment(row) for row in rows]
    figure = go.Figure([
        go.Scatter(x=numbers, y=best, mode="lines", name="best so far", line={"color": GOLD, "shape": "hv"}),
        go.Scatter(x=numbers, y=[row["value"] for row in rows], mode="markers", name="trial", text=texts,
                   marker={"color": BLUE, "size": 9}, hovertemplate="%{y:.4g}<br>%{text}<extra>trial %{x}</extra>"),
    ])  # fmt: skip
    figure.update_xaxes(title="trial, in start order", dtick=1 if len(rows) <= 20 else None)
    figure.update_yaxes(title=metric)
    return _styled(figure)


def coordinates(sweep: Mapping[str, Any]) -> "Figure":
    """Return parallel coordinates: a line for each trial, from its parameters to its objective."""
    import plotly.graph_objects as go

    rows = [row for row in sweep["trials"] if row["value"] is not None]
    parameters = sweep["parameters"]
    axes = [_axis(parameter, [row["parameters"][parameter["name"]] for row in rows]) for parameter in parameters]
    values = [row["value"] for row in rows]
    metric = sweep["objective"]["metric"]
    color = {"color": values, "colorscale": "Viridis", "showscale": False,
             "reversescale": not sweep["objective"]["maximize"]}  # fmt: skip
    figure = go.Figure(go.Parcoords(dimensions=[*axes, {"label": metric, "values": values}], line=color))
    return _styled(figure, height=340, margin={"l": 70, "r": 60, "t": 60, "b": 30})


def _axis(parameter: Mapping[str, Any], values: Sequence[str]) -> dict[str, Any]:
    """Return one axis: on a log scale if the parameter was searched on one, evenly spaced for categories."""
    name, space = parameter["name"], parameter["feasibleSpace"]
    if parameter["parameterType"] == "categorical":
        categories = list(dict.fromkeys([*space["list"], *values]))
        positions = [categories.index(value) for value in values]
        return {"label": name, "values": positions, "tickvals": list(range(len(categories))), "ticktext": categories}
    numbers = [float(value) for value in values]
    if space.get("distribution") == "logUniform" and min(numbers, default=0) > 0:
        ticks = [10**power * step for power in range(-9, 10) for step in (1, 2, 5)]
        low, high = float(space["min"]), float(space["max"])
        shown = [tick for tick in ticks if low <= tick <= high]
        return {"label": name, "values": [math.log10(value) for value in numbers],
                "range": [math.log10(low), math.log10(high)], "tickvals": [math.log10(tick) for tick in shown],
                "ticktext": [f"{tick:g}" for tick in shown]}  # fmt: skip
    ticks = sorted({float(value) for value in space.get("list") or []})
    return {"label": name, "values": numbers} | ({"tickvals": ticks} if ticks else {})


def importance(sweep: Mapping[str, Any]) -> dict[str, float]:
    """Return the importance of each parameter by PED-ANOVA, shares of 1; empty with too few trials."""
    rows = [row for row in sweep["trials"] if row["value"] is not None]
    if len(rows) < ENOUGH or len(sweep["parameters"]) < 2:
        return {}
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if sweep["objective"]["maximize"] else "minimize")
    for row in rows:
        spaces = {parameter["name"]: _distribution(parameter) for parameter in sweep["parameters"]}
        values = {name: _value(spaces[name], row["parameters"][name]) for name in spaces}
        study.add_trial(optuna.trial.create_trial(params=values, distributions=spaces, value=row["value"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _distribution(parameter: Mapping[str, Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    space = parameter["feasibleSpace"]
    if parameter["parameterType"] in ("categorical", "discrete"):
        return CategoricalDistribution(space["list"])
    return FloatDistribution(float(space["min"]), float(space["max"]), log=space.get("distribution") == "logUniform")


def _value(distribution: Any, text: str) -> Any:
    return float(text) if hasattr(distribution, "low") else text


def bars(shares: Mapping[str, float]) -> "Figure":
    """Return the importance of each parameter as bars."""
    import plotly.graph_objects as go

    ordered = sorted(shares.items(), key=lambda item: item[1])
    figure = go.Figure(
        go.Bar(x=[share for _, share in ordered], y=[name for name, _ in ordered], orientation="h",
               marker={"color": BLUE})
    )  # fmt: skip
    figure.update_xaxes(title="importance for the best trials (PED-ANOVA)")
    return _styled(figure, height=260)


def learning_curves(
    rows: Sequence[Mapping[str, Any]], metrics: Sequence[str], stressed: Sequence[str], winner: str, part: str = ""
) -> dict[str, str]:
    """Return the figure ``curves``, a metric by epoch for each row that recorded it; nothing if none did.

    Args:
        rows: Trials and trainings, each with its ``epochs``.
        metrics: The first of them that any row recorded is drawn.
        stressed: Names of rows that stand out.
        winner: Name of the row that stands out most.
        part: Of the dataset, on which the metric was measured, where that is known.
    """
    import plotly.graph_objects as go

    recorded = {name for row in rows for epoch in row["epochs"] for name in epoch}
    metric = next((name for name in metrics if name in recorded), None)
    if metric is None:
        return {}
    figure = go.Figure()
    for row in rows:
        name, epochs = row["name"], [epoch for epoch in row["epochs"] if metric in epoch]
        color = GOLD if name == winner else BLUE if name in stressed else GRAY
        figure.add_scatter(
            x=[epoch.get("epoch", at) for at, epoch in enumerate(epochs, 1)], y=[epoch[metric] for epoch in epochs],
            name=name, mode="lines+markers", line={"color": color, "width": 3 if name in stressed else 1},
            showlegend=name in stressed, hovertemplate="epoch %{x}: %{y:.4g}<extra>" + name + "</extra>",
        )  # fmt: skip
    longest = max(len(row["epochs"]) for row in rows)
    figure.update_xaxes(title="epoch", dtick=1 if longest <= 20 else None)
    figure.update_yaxes(title=f"{part} {metric}".strip())
    return {"curves": _json(figure)}


def confusion_matrix(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Return true class by row and predicted class by column; the diagonal stays pale so that mistakes stand out."""
    import plotly.graph_objects as go

    mistakes = [
        [0 if predicted == true else count for predicted, count in enumerate(row)] for true, row in enumerate(confusion)
    ]
    figure = go.Figure(
        go.Heatmap(z=mistakes, x=list(classes), y=list(classes), text=[list(map(str, row)) for row in confusion],
                   texttemplate="%{text}", colorscale=[[0, "#f7fafc"], [1, "#d64545"]], showscale=False, xgap=1, ygap=1,
                   zmin=0, zmax=max(1, *(max(row) for row in mistakes)),
                   hovertemplate="%{y} taken for %{x}: %{text}<extra></extra>")
    )  # fmt: skip
    figure.update_xaxes(title="predicted", type="category", side="top")
    figure.update_yaxes(title="true", type="category", autorange="reversed")
    return _json(figure, height=460)


def fit(points: Mapping[str, Sequence[float]]) -> str:
    """Return predicted against true numbers; a perfect model's points are on the line."""
    import plotly.graph_objects as go

    ends = [min(min(points["true"]), min(points["predicted"])), max(max(points["true"]), max(points["predicted"]))]
    figure = go.Figure([
        go.Scatter(x=ends, y=ends, mode="lines", line={"color": GOLD, "width": 2}, hoverinfo="skip"),
        go.Scattergl(x=points["true"], y=points["predicted"], mode="markers", marker=_dots(points),
                     hovertemplate="true %{x:.4g}<br>predicted %{y:.4g}<extra></extra>"),
    ])  # fmt: skip
    figure.update_xaxes(title="true")
    figure.update_yaxes(title="predicted")
    figure.update_layout(showlegend=False)
    return _json(figure, height=420)


def residuals(points: Mapping[str, Sequence[float]]) -> str:
    """Return predicted minus true against predicted numbers, and how the residuals are distributed."""
    from plotly.subplots import make_subplots

    rest = [predicted - true for true, predicted in zip(points["true"], points["predicted"], strict=True)]
    figure = make_subplots(cols=2, shared_yaxes=True, column_widths=[0.8, 0.2], horizontal_spacing=0.02)
    figure.add_scattergl(x=points["predicted"], y=rest, mode="markers", marker=_dots(points), row=1, col=1,
                         hovertemplate="predicted %{x:.4g}<br>residual %{y:.4g}<extra></extra>")  # fmt: skip
    figure.add_histogram(y=rest, marker={"color": BLUE}, row=1, col=2,
                         hovertemplate="residual %{y}: %{x} items<extra></extra>")  # fmt: skip
    figure.add_hline(y=0, line={"color": GOLD, "width": 2})
    figure.update_xaxes(title="predicted", row=1, col=1)
    figure.update_xaxes(title="items", row=1, col=2)
    figure.update_yaxes(title="predicted − true", row=1, col=1)
    figure.update_layout(showlegend=False, bargap=0.05)
    return _json(figure, height=360)


def _dots(points: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return smaller, paler markers for more points."""
    many = len(points["true"]) > 300
    return {"color": BLUE, "size": 5 if many else 7, "opacity": 0.4 if many else 0.7}


def _assignment(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row["parameters"].items())


def _json(figure: "Figure", height: int = 320) -> str:
    return str(_styled(figure, height).to_json())


def _styled(figure: "Figure", height: int = 320, margin: Mapping[str, int] | None = None) -> "Figure":
    figure.update_layout(
        template="plotly_white", height=height, margin=dict(margin or {"l": 60, "r": 20, "t": 30, "b": 50}),
        font={"family": "system-ui, sans-serif"}, legend={"orientation": "h", "y": 1.15},
    )  # fmt: skip
    return figure
