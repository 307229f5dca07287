"""The file that one step writes for the next, and the table of trials, which each sweep's report
shows: beside podium.training.handover, whose many classes take time to make."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from podium.files.documents import parse, read_json
from podium.metrics.goals import Constraint, Goal, objective_value


@dataclass(frozen=True, kw_only=True)
class StepFile:
    """A file that one step writes for the next."""

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it.

        Raises:
            InvalidInput: A field is missing or of another type; the message names file and field.
        """
        return parse(cls, read_json(path), str(path))


@dataclass(frozen=True, kw_only=True)
class TableParameter:
    """Parameter of a sweep, as its Experiment writes it."""

    name: str
    parameterType: str = ""
    feasibleSpace: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A trial as the leaderboard shows it."""

    name: str
    state: str
    parameters: dict[str, str]
    metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    """Minimum, maximum and latest value by metric."""
    value: float | None
    seconds: float | None
    message: str
    judged: dict[str, float | None] = field(default_factory=dict)
    """Value by metric of what else it is judged by, that of the Experiment's strategies."""
    infeasible: list[str] = field(default_factory=list)
    """The constraints it breaks, and the metrics it lacks."""
    repeats: str = ""
    """Name of the trial that it runs again with a fresh seed."""
    note: str = ""
    """How its figures came about, where they are not those of one run."""
    front: int | None = None
    """Number of its Pareto front, from 1, where there are several objectives."""
    number: int
    """Position among all trials, the oldest first, from 1."""
    model: str
    """URI of its model directory; empty for none."""
    epochs: list[dict[str, float]]
    started: str | None = None
    """RFC3339; None before the start."""
    ended: str | None = None
    interval: tuple[float, float] | None = None
    """95 % interval of the objective; None where the trial left no predictions that give it."""
    tied: bool = False
    """Whether it cannot be told from the best one by its predictions."""


@dataclass(frozen=True, kw_only=True)
class TrialTable(StepFile):
    """All trials of a sweep."""

    experiment: str
    algorithm: str
    objective: Goal
    parameters: list[TableParameter]
    best: str
    """Name of the best trial; empty if there is none."""
    trials: list[TrialRow]
    note: str | None = None
    """Why the best trial is another than Katib's, if it is."""
    standing: str = ""
    """How sure the order is, in a line; empty if nothing is known."""
    judged: dict[str, bool | None] = field(default_factory=dict)
    """Metrics that trials are judged by beside the objective: whether more is better, None of a
    constraint alone."""
    strategies: dict[str, str] = field(default_factory=dict)
    """``min``, ``max`` or ``latest`` by metric: which of a trial's values counts."""
    constraints: list[Constraint] = field(default_factory=list)
    """Bounds that the best trial keeps."""

    def measured(self, trial: str) -> dict[str, float]:
        """Return what a trial reported, by the Experiment's strategies; nothing of one that is not
        among them."""
        metrics = next((row.metrics for row in self.trials if row.name == trial), {})
        known = {
            name: objective_value(each, self.strategies.get(name, "latest"))
            for name, each in metrics.items()
        }
        return {name: value for name, value in known.items() if value is not None}
