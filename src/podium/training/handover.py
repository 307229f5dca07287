"""What one step writes for the next: ``evaluation.json`` and the table of trials, checked when they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from podium.documents import parse, read_json
from podium.errors import InvalidInput, require
from podium.manifests.experiment import Experiment, Trial, leaderboard
from podium.training.origin import Origin
from podium.training.trained import TrainedMetrics

if TYPE_CHECKING:
    from podium.data.schema import DatasetInfo


@dataclass(frozen=True, kw_only=True)
class _Scored:
    metrics: dict[str, float]
    count: int


@dataclass(frozen=True, kw_only=True)
class _Metric:
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
class _Candidate(_Judged):
    validation: _Scored
    epochs: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class _Winner(_Judged):
    why: str
    files: dict[str, str]
    """sha256 by name."""


@dataclass(frozen=True, kw_only=True)
class _Class:
    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    items: int


@dataclass(frozen=True, kw_only=True)
class _Example:
    item: int
    target: str
    predicted: str
    score: float | None
    image: str | None = None
    row: dict[str, str] | None = None
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Points:
    true: list[float]
    predicted: list[float]


@dataclass(frozen=True, kw_only=True)
class _Tested(_Scored):
    left_out: int
    """Test items that the winner, or the weights it began with, has seen; count is without them."""
    confusion: list[list[int]]
    classes: list[_Class]
    """Empty for regression, as the confusion matrix is."""
    examples: list[_Example]
    points: list[_Points]


@dataclass(frozen=True, kw_only=True)
class _Dataset:
    name: str
    kind: str
    digest: str
    test_digest: str
    classes: list[str]
    target: str
    counts: dict[str, int]
    warnings: list[str]
    """What was said when it was prepared."""


@dataclass(frozen=True, kw_only=True)
class _Objective:
    metric: str
    maximize: bool


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    name: str


@dataclass(frozen=True, kw_only=True)
class _Trial:
    name: str
    state: str
    number: int
    parameters: dict[str, str]
    value: float | None
    seconds: float | None
    message: str
    model: str
    epochs: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    experiment: str
    algorithm: str
    objective: _Objective
    parameters: list[_Parameter]
    best: str
    trials: list[_Trial]
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What evaluate wrote."""

    run_id: str
    dataset: _Dataset
    metric: _Metric
    candidates: list[_Candidate]
    """The best first."""

    winner: _Winner
    test: _Tested
    sweep: _Sweep | None
    document: dict[str, Any] = field(default_factory=dict, repr=False)
    """The JSON it was read from, for those who show all of it."""

    def __post_init__(self) -> None:
        uris = [candidate.uri for candidate in self.candidates]
        require(self.winner.uri in uris, "the winner is one of the candidates", winner=self.winner.uri, candidates=uris)

    @property
    def chosen(self) -> _Candidate:
        """The winner as it was among the candidates, with its scores on the validation part."""
        return next(candidate for candidate in self.candidates if candidate.uri == self.winner.uri)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it.

        Raises:
            InvalidInput: A field is missing or of another type; the message names file and field.
        """
        document = read_json(path)
        return replace(parse(cls, document, str(path)), document=document)


def read_trials(path: Path) -> dict[str, Any]:
    """Read the table of trials that a sweep wrote.

    Raises:
        InvalidInput: A field is missing or of another type; the message names file and field.
    """
    table: dict[str, Any] = read_json(path)
    parse(_Sweep, table, str(path))
    return table


def table_of(
    experiment: Experiment, trials: Sequence[Trial], model_of: Callable[[Trial], str], best: str
) -> dict[str, Any]:
    """Describe all trials, best first, each with the metrics of its epochs.

    Args:
        trials: Its trials, oldest first.
        model_of: Returns the URI of a trial's model directory; empty for none.
        best: Name of the best trial; empty if there is none.
    """
    numbers = {trial.name: number for number, trial in enumerate(trials, 1)}
    rows = [
        {**trial.summary(), "number": numbers[trial.name], "model": url, "epochs": _curve(url) if url else []}
        for trial in leaderboard(trials)
        for url in [model_of(trial)]
    ]
    return {
        "experiment": experiment.name,
        "algorithm": experiment.algorithm.name,
        "objective": {"metric": experiment.objective.metric, "maximize": experiment.objective.maximize},
        "parameters": experiment.spec.get("parameters") or [],
        "best": best,
        "trials": rows,
    }


def _curve(url: str) -> list[dict[str, float]]:
    try:
        return TrainedMetrics.read(url).epochs
    except InvalidInput:
        return []  # its trainer keeps another record: its row still counts


def describe_dataset(info: "DatasetInfo") -> dict[str, Any]:
    """Return what the metadata of a version says of the dataset it was evaluated on."""
    return {
        "name": info.name,
        "kind": info.kind,
        "digest": info.digest,
        "test_digest": info.test_digest,
        "test_part": info.test_part,
        "classes": list(info.classes),
        "target": info.target.name,
        "counts": {name: part.count for name, part in info.parts.items()},
        "warnings": list(info.warnings),
        "source": info.source,
    }


def per_class(confusion: list[list[int]], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and number of items of each class; a ratio of 0/0 is None.

    Args:
        confusion: [classes, classes]: rows are the true class, columns the predicted one; empty for regression.
    """
    rows = []
    for at, name in enumerate(classes if confusion else ()):
        hits, items, predicted = confusion[at][at], sum(confusion[at]), sum(row[at] for row in confusion)
        rows.append({
            "name": name,
            "precision": hits / predicted if predicted else None,
            "recall": hits / items if items else None,
            "f1": 2 * hits / (items + predicted) if items + predicted else None,
            "items": items,
        })  # fmt: skip
    return rows
