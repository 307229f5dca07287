"""Choose the best candidate on the validation part, then score it alone on the test part."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require
from podium.identity import current_run
from podium.steps.base import say, step
from podium.steps.handover import read_trials
from podium.steps.origin import Origin
from podium.steps.trained import TrainedMetrics

if TYPE_CHECKING:
    from podium.data.schema import DatasetInfo
    from podium.scoring import Scores

PREDICTIONS = "predictions.npy"
"""In the winner's directory: its predicted class of each test image, uint8 [n]."""
LABELS = "labels.npy"
"""Beside it: the true class of each test image, uint8 [n], to compare versions without the dataset."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The result of an evaluation."""

    classes: list[str]
    """Name of each class."""

    confusion: list[list[int]]
    """Of the winner on the test part: rows are the true class, columns the predicted one."""

    metrics: dict[str, float]
    """accuracy and loss on the test part; validation_accuracy and validation_loss."""

    metadata: dict[str, Any]
    """Metadata of the model artifact."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model that may be uploaded."""

    directory: Path
    """Its model directory."""

    origin: Origin
    """The trial or job that trained it."""

    scores: "Scores"
    """On the validation part."""

    def to_json(self) -> dict[str, Any]:
        """Describe it for evaluation.json."""
        trained = TrainedMetrics.read(self.directory)
        validation = {"accuracy": self.scores.accuracy, "loss": self.scores.loss, "count": len(self.scores.predictions)}
        return {**asdict(self.origin), "validation": validation, "epochs": trained.epochs}


@step
def evaluate(
    data: str | Path,
    candidates: Sequence[str | Path],
    winner: str | Path,
    evaluation: str | Path,
    trials: str | Path | None = None,
) -> Evaluated:
    """Score every candidate on the validation part and the best of them on the test part.

    The highest validation accuracy wins, then the lowest validation loss, then the candidate listed first. The test
    part is not read before the choice.

    Args:
        data: The dataset artifact, a directory or URI.
        candidates: Model directories, the best trial's first.
        winner: Directory to copy the winner's model directory to, with PREDICTIONS and LABELS.
        evaluation: JSON file to write all measurements to.
        trials: Table of the sweep's trials, if there was a sweep.

    Raises:
        InvalidInput: A candidate was trained on other data, or does not fit the dataset's classes.
        Damaged: The data or a model cannot be read.
    """
    import numpy as np

    from podium.data.artifact import describe, load
    from podium.scoring import score

    require(len(candidates) >= 1, "len(candidates) >= 1", candidates=len(candidates))
    info = describe(data)
    chosen, ranked = _choose(data, info, [Path(candidate) for candidate in candidates])
    _copy(chosen.directory, Path(winner))
    part = load(data, "test")
    scores = score(Path(winner) / "model.onnx", part.images, part.labels, classes=len(info.classes))
    np.save(Path(winner) / PREDICTIONS, scores.predictions)
    np.save(Path(winner) / LABELS, part.labels)
    say(f"test part, opened for the winner alone: accuracy {scores.accuracy:.4f} loss {scores.loss:.4f}")
    result = {
        "run_id": current_run().id,
        "dataset": _dataset(info),
        "candidates": [candidate.to_json() for candidate in ranked],
        "winner": {**asdict(chosen.origin), "why": _why(ranked)},
        "test": {**scores.to_json(), "classes": per_class(scores.confusion.tolist(), info.classes)},
        "sweep": read_trials(Path(trials)) if trials else None,
    }
    Path(evaluation).write_text(json.dumps(result, indent=1) + "\n")
    metrics = {
        "accuracy": scores.accuracy, "loss": scores.loss, "validation_accuracy": chosen.scores.accuracy,
        "validation_loss": chosen.scores.loss,
    }  # fmt: skip
    metadata = {"origin": chosen.origin.kind, "name": chosen.origin.name, "uri": chosen.origin.uri, **metrics}
    return Evaluated(
        classes=list(info.classes), confusion=scores.confusion.tolist(), metrics=metrics, metadata=metadata
    )


def _choose(data: str | Path, info: "DatasetInfo", directories: list[Path]) -> tuple[Candidate, list[Candidate]]:
    from podium.data.artifact import load
    from podium.scoring import score

    part = load(data, "validation")
    candidates = []
    for directory in directories:
        _check_data(directory, info)
        scores = score(directory / "model.onnx", part.images, part.labels, classes=len(info.classes))
        candidates.append(Candidate(directory=directory, origin=Origin.read(directory), scores=scores))
        say(f"{candidates[-1].origin.title}: validation accuracy {scores.accuracy:.4f} loss {scores.loss:.4f}")
    # sorted is stable: of equal candidates the one listed first stays first.
    ranked = sorted(candidates, key=lambda candidate: (-candidate.scores.accuracy, candidate.scores.loss))
    say(f"winner: {ranked[0].origin.title}, {_why(ranked)}")
    return ranked[0], ranked


def _check_data(directory: Path, info: "DatasetInfo") -> None:
    """Refuse a candidate trained on other data: it may have seen this test part."""
    digest = TrainedMetrics.read(directory).dataset
    if digest != info.digest:
        raise InvalidInput(
            f"{directory} was trained on dataset {digest}, but is evaluated on {info.digest}",
            "train every candidate on the dataset artifact of the evaluation",
        )


def _why(ranked: list[Candidate]) -> str:
    if len(ranked) == 1:
        return "the only candidate"
    first, second = ranked[0].scores, ranked[1].scores
    if first.accuracy > second.accuracy:
        return f"validation accuracy {first.accuracy:.4f} against {second.accuracy:.4f}"
    if first.loss < second.loss:
        return f"equal validation accuracy {first.accuracy:.4f}, loss {first.loss:.4f} against {second.loss:.4f}"
    return f"equal validation accuracy {first.accuracy:.4f} and loss {first.loss:.4f}, so the one listed first"


def _copy(source: Path, target: Path) -> None:
    """Copy a model directory without its checkpoint, which is never uploaded."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("checkpoint*"), dirs_exist_ok=True)


def _dataset(info: "DatasetInfo") -> dict[str, Any]:
    test = info.parts["test"]
    return {
        "name": info.name,
        "digest": info.digest,
        "test_digest": test.images.sha256,
        "classes": list(info.classes),
        "counts": {name: part.count for name, part in info.parts.items()},
        "source": info.source,
    }


def per_class(confusion: list[list[int]], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and number of images of each class; a ratio of 0/0 is None.

    Args:
        confusion: [classes, classes]: rows are the true class, columns the predicted one.
        classes: Their names.
    """
    rows = []
    for at, name in enumerate(classes):
        hits, images, predicted = confusion[at][at], sum(confusion[at]), sum(row[at] for row in confusion)
        rows.append({
            "name": name,
            "precision": hits / predicted if predicted else None,
            "recall": hits / images if images else None,
            "f1": 2 * hits / (images + predicted) if images + predicted else None,
            "images": images,
        })  # fmt: skip
    return rows
