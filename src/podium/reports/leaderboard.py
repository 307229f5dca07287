"""The leaderboard of a sweep: one table in the shell, in a notebook and in a report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from itertools import count
from typing import Any

from podium.display import notebook
from podium.display.tables import Row, fold, table
from podium.display.terminal import Styled
from podium.display.text import figure, is_number

_INTERVAL = ">95 %"
"""Head of the column with the intervals of the objective."""

_WHOLE = ("TRIAL", "STATE", ">SECONDS")
"""Heads of columns whose cells are never shortened."""

_GOOD = ("Succeeded", "EarlyStopped")
"""States of a trial with a result."""


@dataclass(frozen=True, kw_only=True)
class LeaderboardRow:
    """A trial."""

    name: str
    state: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, Any]
    """Value by metric, of one that ended by the Experiment's strategies."""

    seconds: float | None
    front: int | None = None
    """Number of its Pareto front, for several objectives."""

    infeasible: bool = False
    """Whether it breaks a constraint, or lacks one of the metrics for the objectives."""

    interval: tuple[float, float] | None = None
    """95 % interval of the objective, if known."""

    tied: bool = False
    repeats: str = ""
    """Name of the trial that it runs again with a fresh seed."""

    number: int | None = None
    """Position in the order of starts, from 1; shown if known."""

    @classmethod
    def read(cls, trial: Mapping[str, Any], metrics: Mapping[str, Any]) -> "LeaderboardRow":
        """Read the plain values of a trial, whose metrics are shown as given."""
        return cls(
            name=trial["name"],
            state=trial["state"],
            parameters=trial["parameters"],
            metrics=metrics,
            seconds=trial["seconds"],
            number=trial.get("number"),
            front=trial.get("front"),
            infeasible=bool(trial.get("infeasible")),
            repeats=trial.get("repeats") or "",
            interval=trial.get("interval"),
            tied=bool(trial.get("tied")),
        )


def _state(row: LeaderboardRow) -> str:
    if row.infeasible:
        return "Infeasible"
    return "Repeat" if row.repeats and row.state in _GOOD else row.state


def _parameter(name: str, row: LeaderboardRow) -> str:
    return row.parameters.get(name, "-")


def _metric(name: str, row: LeaderboardRow) -> str:
    return "" if row.metrics.get(name) is None else str(row.metrics[name])


def _interval(row: LeaderboardRow) -> str:
    return "" if row.interval is None else " to ".join(map(figure, row.interval)) + " ~" * row.tied


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Trials as a table."""

    rows: Sequence[LeaderboardRow]
    parameters: Sequence[str]
    metrics: Sequence[str]
    """The objective first."""

    best: str = ""
    """Name of the trial that is stressed."""

    remark: str = ""
    """Line below the table."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Leaderboard":
        """Read the table of trials that the sweep step of a pipeline writes."""
        metric, judged = document["objective"]["metric"], document.get("judged", {})
        error = f"{metric}_se"  # of the mean over folds
        errors = [row.get("metrics", {}).get(error, {}).get("latest") for row in document["trials"]]
        shown = {error} if any(errors) else set()
        rows = [
            LeaderboardRow.read(
                row,
                {metric: row["value"], **dict.fromkeys(shown, value), **row.get("judged", {})},
            )
            for row, value in zip(document["trials"], errors, strict=True)
        ]
        names = [parameter["name"] for parameter in document["parameters"]]
        return cls(
            rows=rows,
            parameters=names,
            metrics=[metric, *shown, *judged],
            best=document.get("best") or "",
            remark=document.get("standing") or "",
        )

    @property
    def ranks(self) -> list[int | None]:
        """Rank of each row, the best 1; none for a trial without a result, or an infeasible one,
        wherever its row is.

        With several objectives it is the number of its front, on which none is better than another.
        """
        objective, at = self.metrics[0], count(1)
        if self.several:
            return [row.front for row in self.rows]
        return [
            next(at)
            if row.state in _GOOD
            and row.metrics.get(objective) is not None
            and not (row.infeasible or row.repeats)
            else None
            for row in self.rows
        ]

    @cached_property
    def several(self) -> bool:
        """Whether the trials have several objectives, and a result."""
        return any(row.front for row in self.rows)

    @cached_property
    def _columns(self) -> list[tuple[str, Callable[[LeaderboardRow], str]]]:
        """Head of each column, and what it shows of a trial."""
        parameters = [(f">{name}", partial(_parameter, name)) for name in self.parameters]
        metrics = [(f">{name}", partial(_metric, name)) for name in self.metrics]
        return [
            *[(">STARTED", lambda row: str(row.number or ""))]
            * any(row.number for row in self.rows),
            *[(">FRONT", lambda row: str(row.front or ""))] * self.several,
            ("TRIAL", lambda row: row.name),
            ("STATE", _state),
            *parameters,
            *metrics[:1],
            *[(_INTERVAL, _interval)] * any(row.interval for row in self.rows),
            *metrics[1:],
            (">SECONDS", lambda row: "" if row.seconds is None else f"{row.seconds:.1f}"),
        ]

    @cached_property
    def heads(self) -> list[str]:
        """Heads of the columns; one that begins with > is right-aligned, for numbers."""
        return [head for head, _ in self._columns]

    @property
    def labels(self) -> list[str]:
        """Heads as a page writes them: in lower case, but for the names of parameters."""
        names = [head.lstrip(">") for head in self.heads]
        return [name if name in self.parameters else name.lower() for name in names]

    def cells(self, row: LeaderboardRow, *, longest: int = 20) -> list[str]:
        """Return a trial's cells, one for each head; values that are not numbers are cut to so many
        characters."""
        return [
            cell(row) if head in _WHOLE else short(cell(row), longest)
            for head, cell in self._columns
        ]

    def text(
        self, *, width: int | None, title: str = "", reasons: Mapping[str, Sequence[str]] = {}
    ) -> Styled:
        """Draw it; on a narrow terminal without the last parameters, lesser metrics and the state.

        Args:
            width: The terminal's; None for what the cells need.
            title: Above the table.
            reasons: Lines under a trial, by its name.
        """
        rows = [
            Row(
                phase=row.state,
                cells=self.cells(row),
                bold=row.name == self.best,
                below=reasons.get(row.name, ()),
            )
            for row in self.rows
        ]
        lesser = [f">{name}" for name in (*self.parameters, _INTERVAL, *self.metrics[1:])]
        drop = [">STARTED", *reversed(lesser), "STATE"]  # the mark shows the state
        drawn = table(self.heads, rows, title=title, width=width, drop=drop, shorten="TRIAL")
        return Styled(f"{drawn}\n{fold(self.remark, width)}") if self.remark else drawn

    def html(self, *, title: str, most: int) -> str:
        """Return it as HTML, the first rows only where it is long."""
        names = [row.name for row in self.rows[:most]]
        bold = names.index(self.best) if self.best in names else None
        rows = map(self.cells, self.rows[:most])
        drawn = notebook.table(self.heads, rows, bold=bold, title=title)
        return f"{drawn}<p>{escape(self.remark)}</p>" if self.remark else drawn


def short(value: str, longest: int = 20) -> str:
    """Shorten a parameter's or a metric's value for a cell."""
    if len(value) > 8 and is_number(value):
        return f"{float(value):.5g}"
    return value if len(value) <= longest else f"{value[: longest - 1]}…"
