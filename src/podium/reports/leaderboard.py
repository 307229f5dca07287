"""The leaderboard of a sweep: one table in the shell, in a notebook and in a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from podium import notebook
from podium.tables import Row, table
from podium.terminal import Styled

GOOD = ("Succeeded", "EarlyStopped")
"""States of a trial with a result."""


@dataclass(frozen=True, kw_only=True)
class TrialRow:
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

    number: int | None = None
    """Position in the order of starts, from 1; shown if known."""


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Trials as a table."""

    rows: Sequence[TrialRow]
    parameters: Sequence[str]
    metrics: Sequence[str]
    """The objective first."""

    best: str = ""
    """Name of the trial that is stressed."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Leaderboard":
        """Read the table of trials that the sweep step of a pipeline writes."""
        metric, judged = document["objective"]["metric"], document.get("judged", {})
        rows = [
            TrialRow(
                name=row["name"],
                state=row["state"],
                parameters=row["parameters"],
                metrics={metric: row["value"], **row.get("judged", {})},
                seconds=row["seconds"],
                number=row.get("number"),
                front=row.get("front"),
                infeasible=bool(row.get("infeasible")),
            )
            for row in document["trials"]
        ]
        names = [parameter["name"] for parameter in document["parameters"]]
        return cls(
            rows=rows, parameters=names, metrics=[metric, *judged], best=document.get("best") or ""
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
            if row.state in GOOD and row.metrics.get(objective) is not None and not row.infeasible
            else None
            for row in self.rows
        ]

    @property
    def several(self) -> bool:
        """Whether the trials have several objectives, and a result."""
        return any(row.front for row in self.rows)

    @property
    def heads(self) -> list[str]:
        """Heads of the columns; one that begins with > is right-aligned, for numbers."""
        started = [">STARTED"] * any(row.number for row in self.rows)
        front = [">FRONT"] * self.several
        values = (f">{name}" for name in (*self.parameters, *self.metrics))
        return [*started, *front, "TRIAL", "STATE", *values, ">SECONDS"]

    def cells(self, row: TrialRow, *, longest: int = 20) -> list[str]:
        """Return a trial's cells, one for each head; values that are not numbers are cut to so many
        characters."""
        started = [str(row.number or "")] * any(row.number for row in self.rows)
        values = [row.parameters.get(name, "-") for name in self.parameters]
        values += [
            "" if row.metrics.get(name) is None else str(row.metrics[name]) for name in self.metrics
        ]
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        front = [str(row.front or "")] * self.several
        state = "Infeasible" if row.infeasible else row.state
        return [
            *started,
            *front,
            row.name,
            state,
            *(short(value, longest) for value in values),
            seconds,
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
        lesser = [f">{name}" for name in (*self.parameters, *self.metrics[1:])]
        drop = [">STARTED", *reversed(lesser), "STATE"]  # the mark shows the state
        return table(self.heads, rows, title=title, width=width, drop=drop, shorten="TRIAL")

    def html(self, *, title: str, most: int) -> str:
        """Return it as HTML, the first rows only where it is long."""
        names = [row.name for row in self.rows[:most]]
        bold = names.index(self.best) if self.best in names else None
        return notebook.table(self.heads, map(self.cells, self.rows[:most]), bold=bold, title=title)


def short(value: str, longest: int = 20) -> str:
    """Shorten a parameter's or a metric's value for a cell."""
    try:
        return value if len(value) <= 8 else f"{float(value):.5g}"
    except ValueError:
        return value if len(value) <= longest else f"{value[: longest - 1]}…"
