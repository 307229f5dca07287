"""Files that one step writes for the next, ``evaluation.json`` and the table of trials; one class
both writes and reads each."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from podium.errors import InvalidInput
from podium.files.documents import parse, read_json
from podium.metrics.goals import Constraint, Goal, objective_value
from podium.training.origin import Origin

if TYPE_CHECKING:
    import numpy as np

    from podium.data.schema import DatasetInfo
    from podium.scoring import Scores


@dataclass(frozen=True, kw_only=True)
class _File:
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
class PartScores:
    """Metrics of a model on a part of the dataset."""

    metrics: dict[str, float]
    count: int

    @classmethod
    def of(cls, scores: "Scores") -> Self:
        """Take what is written of the scores of a model."""
        return cls(metrics=dict(scores.metrics), count=len(scores.target))


@dataclass(frozen=True, kw_only=True)
class MetricChoice:
    """The metric that the candidates are chosen by."""

    name: str
    maximize: bool


@dataclass(frozen=True, kw_only=True)
class _Judged(Origin):
    """An origin that lacks nothing: `field()` takes the default away."""

    hyperparameters: dict[str, Any] = field()
    experiment: str | None = field()
    image: str = field()
    code: str = field()
    install_requirements: bool = field()


@dataclass(frozen=True, kw_only=True)
class ScoredCandidate(_Judged):
    """A candidate with its scores on the validation part and the metrics of its epochs."""

    validation: PartScores
    epochs: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Winner(_Judged):
    """The candidate that was chosen, and why."""

    why: str
    files: dict[str, str]
    """sha256 by name."""
    etags: dict[str, str]
    """Etag of each of these files when it was read."""


@dataclass(frozen=True, kw_only=True)
class _ClassScores:
    """Scores of a class; a ratio of 0/0 is None."""

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    items: int


@dataclass(frozen=True, kw_only=True)
class Example:
    """A test item and what was predicted for it."""

    item: int
    """Its index in the test part."""
    target: str
    predicted: str
    score: float | None
    """Probability of the true class, or absolute error."""
    image: str | None = None
    """A PNG as a data URL."""
    row: dict[str, str] | None = None
    """Values by column."""
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Points:
    """True and predicted numbers of some items, for a plot."""

    true: list[float]
    predicted: list[float]


@dataclass(frozen=True, kw_only=True)
class WinnerScores(PartScores):
    """Scores of the winner on the test part."""

    left_out: int
    """Test items that the winner, or the weights it began with, has seen; count is without them."""
    confusion: list[list[int]]
    classes: list[_ClassScores]
    """Empty for regression, as the confusion matrix is."""
    examples: list[Example]
    points: list[Points]
    calibration: dict[str, Any] = field(default_factory=dict)
    """That of podium.scoring.calibration; empty where there are no probabilities."""
    constant: dict[str, Any] = field(default_factory=dict)
    """guess and value of the best constant guess, by the metric; empty where there is none."""
    threshold: str = ""
    """By which the winner decides, in words; empty for the most probable class."""


@dataclass(frozen=True, kw_only=True)
class EvaluatedDataset:
    """Dataset that a version was evaluated on, as its metadata describe it."""

    name: str
    kind: str
    digest: str
    test_digest: str
    test_part: str = ""
    """Identity of the test items in the source: see podium.data.test_part."""
    classes: list[str]
    target: str
    counts: dict[str, int]
    warnings: list[str]
    source: str = ""

    @classmethod
    def of(cls, info: "DatasetInfo") -> Self:
        """Take what is written of a dataset."""
        return cls(
            name=info.name,
            kind=info.kind,
            digest=info.digest,
            test_digest=info.test_digest,
            test_part=info.test_part,
            classes=list(info.classes),
            target=info.target.name,
            counts={name: part.count for name, part in info.parts.items()},
            warnings=list(info.warnings),
            source=info.source,
        )


@dataclass(frozen=True, kw_only=True)
class _TargetRange:
    """Distribution of a regression's target in a part."""

    mean: float
    median: float
    minimum: float
    maximum: float


@dataclass(frozen=True, kw_only=True)
class _PartSummary:
    """A part of the dataset, as a report shows it."""

    name: str
    """``train``, ``validation`` or ``test``."""

    items: int
    class_counts: list[int] = field(default_factory=list)
    """Items of each class, in the order of the classes; empty for regression."""

    target: list[_TargetRange] = field(default_factory=list)
    """Range of each number of a regression's target; empty for classification."""


@dataclass(frozen=True, kw_only=True)
class _ColumnSummary:
    name: str
    kind: str
    """``number`` or ``category``."""

    categories: int
    """How many the training part has."""

    missing: int
    """How many values the training part did not have: columns are fitted to that part."""


@dataclass(frozen=True, kw_only=True)
class DataSummary:
    """Data shown in a report beyond the name of the dataset: not part of a version's metadata,
    which stay small."""

    split: str
    parts: list[_PartSummary]
    columns: list[_ColumnSummary]

    @classmethod
    def of(cls, info: "DatasetInfo", targets: Mapping[str, "np.ndarray"]) -> Self:
        """Summarize a dataset: classes were counted when it was prepared, a regression's numbers
        are looked at here.

        Args:
            targets: Target of each part, of a regression.
        """
        from podium.data.profile import MISSING, UNKNOWN
        from podium.data.schema import PARTS

        return cls(
            split=info.split,
            parts=[
                _PartSummary(
                    name=name,
                    items=info.parts[name].count,
                    class_counts=list(info.parts[name].class_counts),
                    target=_ranges(targets[name]) if info.kind == "regression" else [],
                )
                for name in PARTS
            ],
            columns=[
                _ColumnSummary(
                    name=column.name,
                    kind=column.kind,
                    categories=len({*column.categories} - {MISSING, UNKNOWN}),
                    missing=column.missing,
                )
                for described in info.inputs.values()
                for column in described.columns
            ],
        )


def _ranges(target: "np.ndarray") -> list[_TargetRange]:
    import numpy as np

    columns = np.asarray(target, dtype=np.float64).reshape(len(target), -1).T if len(target) else ()
    return [
        _TargetRange(
            mean=float(column.mean()),
            median=float(np.median(column)),
            minimum=float(column.min()),
            maximum=float(column.max()),
        )
        for column in columns
    ]


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
class TrialTable(_File):
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
        values = {
            name: objective_value(each, self.strategies.get(name, "latest"))
            for name, each in metrics.items()
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as it goes into the report."""

    name: str
    media: str
    """image/png or image/jpeg; an SVG may hold scripts, and is never shown."""

    base64: str


@dataclass(frozen=True, kw_only=True)
class Evaluation(_File):
    """Everything that evaluate measured."""

    run_id: str
    dataset: EvaluatedDataset
    metric: MetricChoice
    candidates: list[ScoredCandidate]
    """The best first."""

    winner: Winner
    test: WinnerScores
    sweep: TrialTable | None
    data: DataSummary
    trained_with: dict[str, Any]
    """The winner's environment.json: versions and hardware of its training; empty if its trainer
    wrote none."""

    evaluated_with: dict[str, str]
    """Version by package, of those that its figures depend on."""

    pictures: list[Picture]
    """Pictures of its training, as the winner's trainer wrote them."""

    def __post_init__(self) -> None:
        uris = [candidate.uri for candidate in self.candidates]
        if self.winner.uri not in uris:
            raise InvalidInput(
                f"the winner {self.winner.uri} is not one of the candidates {', '.join(uris)}"
            )

    @property
    def chosen(self) -> ScoredCandidate:
        """The winner as it was among the candidates, with its scores on the validation part."""
        return next(candidate for candidate in self.candidates if candidate.uri == self.winner.uri)

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the winner on the test part by name, and on the validation part with
        validation_ before the name."""
        validation = self.chosen.validation.metrics
        named = {f"validation_{name}": value for name, value in validation.items()}
        return {**self.test.metrics, **named}


def per_class(confusion: list[list[int]], classes: Sequence[str]) -> list[_ClassScores]:
    """Return precision, recall, F1 and number of items of each class.

    Args:
        confusion: [classes, classes]: rows are the true class, columns the predicted one; empty for
            regression.
    """
    rows = []
    for at, name in enumerate(classes if confusion else ()):
        hits, items, predicted = (
            confusion[at][at],
            sum(confusion[at]),
            sum(row[at] for row in confusion),
        )
        rows.append(
            _ClassScores(
                name=name,
                precision=hits / predicted if predicted else None,
                recall=hits / items if items else None,
                f1=2 * hits / (items + predicted) if items + predicted else None,
                items=items,
            )
        )
    return rows
