"""The report as one HTML file that needs no network: plotly.js is embedded, compressed."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Any
from urllib.parse import quote

import podium.reports.plots as plots
from podium import __version__
from podium.display.templates import environment, kept
from podium.reports.leaderboard import Leaderboard
from podium.system.machine import PACKAGES


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that has no result."""

    name: str
    state: str
    message: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class SweepPage:
    """Content of a sweep's report."""

    table: Mapping[str, Any]
    """The trials, as the sweep step of a pipeline writes them."""

    goal: str
    """``maximize accuracy``."""

    state: str
    """``Succeeded``, ``Stopped``, ``Running`` …"""

    message: str
    cluster: str
    no_best: str = "has a result"
    """Ends the sentence "no trial …" if there is no best one."""

    asked: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the sweep's options, by title."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    command: str = ""
    """The command that trains as the best trial did."""

    trained_with: Mapping[str, Any] = field(default_factory=dict)
    """Versions and hardware that the best trial recorded."""

    failures: Sequence[Failure] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a run, as long as it took."""

    title: str
    state: str
    seconds: float


SHOWN_FAILURES = 10
"""Trials without a result whose last lines are shown."""

_MOST_CLASSES = 60
"""Limit above which there is no confusion matrix and the table of classes is cut: the file would
grow beyond measure."""

_MOST_ROWS = 500
"""Rows of a leaderboard, and columns of a table, that a page lists."""

_SHOWN_MEDIA = ("image/png", "image/jpeg")
"""Pictures that cannot hold scripts."""

_SLOT = "<!-- the steps of the run and its command, which only the runner knows -->"
"""Placeholder in the last step's report, replaced by complete()."""

_CHAMPION_SLOT = (
    "<!-- what shows the champion that it was compared with -->",
    "<!-- until here -->",
)
"""Around the command that complete() replaces by a link, where the runner finds that report."""


def render(evaluation: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    """Render the report of a run.

    Args:
        evaluation: Output of the evaluate step.
        decision: Output of the promote step.

    Returns:
        HTML of about 2 MB, nearly all of it plotly.js, and the pictures of the training.
    """
    sweep, test, metric = evaluation["sweep"], evaluation["test"], evaluation["metric"]["name"]
    candidates = [candidate["name"] for candidate in evaluation["candidates"]]
    figures = _of_sweep(sweep) if sweep else {}
    rows = [
        *(sweep["trials"] if sweep else []),
        *(candidate for candidate in evaluation["candidates"] if candidate["kind"] != "trial"),
    ]
    metrics = {metric: evaluation["metric"]["maximize"]}
    if sweep:
        metrics.setdefault(sweep["objective"]["metric"], sweep["objective"]["maximize"])
    figures |= plots.learning_curves(
        rows, metrics, candidates, evaluation["winner"]["name"], "validation"
    )
    if test["confusion"] and len(test["confusion"]) <= _MOST_CLASSES:
        figures["confusion"] = plots.confusion_matrix(
            test["confusion"], evaluation["dataset"]["classes"]
        )
    calibration = test.get("calibration")
    if calibration:
        figures["reliability"] = plots.reliability(calibration["bins"])
    for at, points in enumerate(test["points"], 1):
        figures |= {f"fit-{at}": plots.fit(points), f"residuals-{at}": plots.residuals(points)}
    return html_page(
        "run.html.jinja",
        figures,
        evaluation=evaluation,
        decision=decision,
        sweep=sweep,
        leaderboard=Leaderboard.read(sweep) if sweep else None,
        test=test,
        metric=metric,
        measured=_measured(evaluation),
        winner=evaluation["winner"],
        calibration=calibration,
        data=evaluation["data"],
        slot=_SLOT,
        champion_slot=_CHAMPION_SLOT,
        pictures=_pictures(evaluation),
        versions=_versions(evaluation["trained_with"], evaluation["evaluated_with"]),
    )


def render_sweep(page: SweepPage) -> str:
    """Render the report of a sweep, also of one that was stopped, still runs, or has no result.

    Returns:
        HTML of about 2 MB, nearly all of it plotly.js.
    """
    sweep = page.table
    best = next((row for row in sweep["trials"] if row["name"] == sweep["best"]), None)
    objective = sweep["objective"]
    named = [sweep["best"]] if best else []
    directions = {objective["metric"]: objective["maximize"]}
    figures = {
        **(_of_sweep(sweep) if best else plots.of_times(sweep)),
        **plots.learning_curves(sweep["trials"], directions, named, sweep["best"]),
    }
    return html_page(
        "sweep.html.jinja",
        figures,
        page=page,
        sweep=sweep,
        best=best,
        leaderboard=Leaderboard.read(sweep),
        counts=Counter(row["state"] for row in sweep["trials"]),
        failures=page.failures[:SHOWN_FAILURES],
        versions=_versions(page.trained_with, {}),
    )


def _of_sweep(sweep: Mapping[str, Any]) -> dict[str, plots.Figure]:
    return {**plots.of_trials(sweep), **plots.of_importance(sweep), **plots.of_times(sweep)}


def complete(report: str, steps: Sequence[Step], command: str, champion_report: str = "") -> str:
    """Complete the report of a run with data that only the runner has: times of its steps, its
    command, the champion's report.

    Args:
        report: Report written by the last step, before its own end was known.
        command: Empty where it is not known.
        champion_report: Path relative to this report's directory; empty if it is not on this
            machine.
    """
    begin, end = _CHAMPION_SLOT
    before, _, rest = report.partition(begin)
    if champion_report and end in rest:
        report = (
            f'{before}<a href="{quote(champion_report)}">its report</a>{rest.partition(end)[2]}'
        )
    total = sum(step.seconds for step in steps) or 1.0
    ends = [0.0, *accumulate(step.seconds for step in steps)]
    bars = [
        (100 * start / total, 100 * step.seconds / total)
        for start, step in zip(ends, steps, strict=False)
    ]
    shown = (
        environment("reports")
        .get_template("steps.html.jinja")
        .render(steps=list(zip(steps, bars, strict=True)), total=ends[-1], command=command)
    )
    return report.replace(_SLOT, shown, 1)


def _versions(
    trained: Mapping[str, Any], evaluated: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return name, value in the training and value in the evaluation of everything that both
    recorded, packages first."""
    single = {
        name: value for name, value in trained.items() if isinstance(value, str | int | float)
    }
    names = [name for name in PACKAGES if name in single or name in evaluated]
    names += [name for name in (*single, *evaluated) if name not in names]
    return [
        (name, str(single.get(name, "")), evaluated.get(name, "")) for name in dict.fromkeys(names)
    ]


def html_page(template: str, figures: Mapping[str, plots.Figure], **shown: Any) -> str:
    """Return a page with its figures and all that draws them.

    Args:
        template: File name of the template.
        figures: By name.
        **shown: Variables of the template.
    """
    notes = {
        name: figure["layout"].get("meta", {}).get("note", "") for name, figure in figures.items()
    }
    return (
        environment("reports")
        .get_template(template)
        .render(
            **shown,
            front_note=plots.FRONT_NOTE,
            most_rows=_MOST_ROWS,
            most_classes=_MOST_CLASSES,
            figures=embedded(plots.as_json(figures)),
            drawn=figures.keys(),
            notes=notes,
            plotly=base64.b64encode(plotly()).decode(),
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            podium=__version__,
        )
    )


def _pictures(evaluation: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the pictures that a page may show: never an SVG, whoever wrote the evaluation."""
    return [picture for picture in evaluation["pictures"] if picture["media"] in _SHOWN_MEDIA]


def _measured(evaluation: Mapping[str, Any]) -> list[str]:
    names = [
        name
        for candidate in evaluation["candidates"]
        for name in candidate["validation"]["metrics"]
    ]
    return list(dict.fromkeys([evaluation["metric"]["name"], *names]))


def embedded(figures: Mapping[str, str]) -> str:
    """Return figures as one JSON object that cannot end the script element around it.

    Args:
        figures: Plotly JSON by name.
    """
    text = "{" + ",".join(f"{json.dumps(name)}:{figure}" for name, figure in figures.items()) + "}"
    return text.replace("<", "\\u003c")  # "<" occurs in strings only


@cache
def plotly() -> bytes:
    """Return plotly.js, compressed by gzip."""
    from plotly import __version__ as version

    def compressed() -> bytes:
        code = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
        return gzip.compress(code, 5, mtime=0)

    return kept(f"plotly-{version}.js.gz", compressed)
