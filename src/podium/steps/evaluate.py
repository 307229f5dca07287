"""Choose the best candidate on the validation part, then score it alone on the test part."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require
from podium.identity import current_run
from podium.steps.base import say, step
from podium.steps.handover import read_trials
from podium.steps.model_directory import fetch_model, model_files
from podium.steps.origin import Origin
from podium.steps.predict import PREPROCESSING, describe_preprocessing
from podium.steps.trained import TrainedMetrics

if TYPE_CHECKING:
    from podium.data.schema import DatasetInfo, Part
    from podium.scoring import Scores

MODEL = "model.onnx"

PREDICTIONS = "predictions.npy"
"""What evaluate writes for the version: the winner's predicted class of each test image, uint8 [n]."""
LABELS = "labels.npy"
"""Beside it: the true class of each test image, uint8 [n], to compare versions without the dataset."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The result of an evaluation."""

    winner: str
    """URI of its model directory."""

    classes: list[str]
    """Name of each class."""

    confusion: list[list[int]]
    """Of the winner on the test part: rows are the true class, columns the predicted one."""

    metrics: dict[str, float]
    """accuracy and loss on the test part; validation_accuracy and validation_loss."""

    metadata: dict[str, Any]
    """Metadata of the evaluation: the winner's kind, name, URI and metrics."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model that may be uploaded."""

    origin: Origin
    """The trial or job that trained it."""

    trained: TrainedMetrics
    """What its training reported."""

    scores: "Scores"
    """On the validation part."""

    def to_json(self) -> dict[str, Any]:
        """Describe it for evaluation.json."""
        validation = _figures(self.scores)
        return {**asdict(self.origin), "validation": validation, "epochs": self.trained.epochs}


@step
def evaluate(
    data: str | Path,
    candidates: Sequence[str],
    evaluation: str | Path,
    predictions: str | Path,
    trials: str | Path | None = None,
) -> Evaluated:
    """Score every candidate on the validation part and the best of them on the test part.

    The highest validation accuracy wins, then the lowest validation loss, then the candidate listed first. The test
    part is not read before the choice.

    Args:
        data: The dataset artifact, a directory or URI.
        candidates: URIs of model directories, the best trial's first.
        evaluation: JSON file to write all measurements to, with the sha256 of each file of the winner.
        predictions: Directory to write PREDICTIONS, LABELS and PREPROCESSING to; the last only if the dataset says how
            its inputs were made and the winner does not.
        trials: Table of the sweep's trials, if there was a sweep.

    Raises:
        InvalidInput: A candidate was trained on other data, or does not fit the dataset's classes.
        NotFound: There is no such model directory, or no sweep or training of podium made it.
        Damaged: The data or a model cannot be read.
    """
    from podium.data.artifact import describe

    require(len(candidates) >= 1, "len(candidates) >= 1", candidates=len(candidates))
    info = describe(data)
    chosen, ranked = _choose(data, info, candidates)
    scores, files = _test(data, info, chosen.origin, Path(predictions))
    say(f"test part, opened for the winner alone: {_words(scores)}")
    assert scores.confusion is not None
    matrix = scores.confusion.tolist()
    result = {
        "run_id": current_run().id,
        "dataset": _dataset(info),
        "candidates": [candidate.to_json() for candidate in ranked],
        "winner": {**asdict(chosen.origin), "why": _why(ranked), "files": files},
        "test": {**_figures(scores), "confusion": matrix, "classes": per_class(matrix, info.classes)},
        "sweep": read_trials(Path(trials)) if trials else None,
    }
    Path(evaluation).write_text(json.dumps(result, indent=1) + "\n")
    metrics = {
        "accuracy": scores.metrics["accuracy"], "loss": scores.metrics["log_loss"],
        "validation_accuracy": chosen.scores.metrics["accuracy"],
        "validation_loss": chosen.scores.metrics["log_loss"],
    }  # fmt: skip
    metadata = {"origin": chosen.origin.kind, "name": chosen.origin.name, "uri": chosen.origin.uri, **metrics}
    return Evaluated(
        winner=chosen.origin.uri, classes=list(info.classes), confusion=matrix, metrics=metrics,
        metadata=metadata,
    )  # fmt: skip


def _choose(data: str | Path, info: "DatasetInfo", uris: Sequence[str]) -> tuple[Candidate, list[Candidate]]:
    from podium.data.artifact import load

    part = load(data, "validation")
    candidates = []
    for uri in uris:
        trained = TrainedMetrics.read(uri)
        _check_data(uri, trained, info)
        origin = Origin.read(uri)
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            scores, _ = _score(origin, (MODEL,), Path(scratch), part, info)
        candidates.append(Candidate(origin=origin, trained=trained, scores=scores))
        say(f"{candidates[-1].origin.title}: validation {_words(scores)}")
    # sorted is stable: of equal candidates the one listed first stays first.
    ranked = sorted(candidates, key=lambda candidate: _rank(candidate.scores))
    say(f"winner: {ranked[0].origin.title}, {_why(ranked)}")
    return ranked[0], ranked


def _test(
    data: str | Path, info: "DatasetInfo", winner: Origin, predictions: Path
) -> tuple["Scores", Mapping[str, str]]:
    """Score the winner on the test part; return also the sha256 of each of its files."""
    import numpy as np

    from podium.data.artifact import load
    from podium.scoring import class_indices

    part = load(data, "test")
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        scores, files = _score(winner, model_files(winner.uri), Path(scratch), part, info)
    predictions.mkdir(parents=True, exist_ok=True)
    np.save(predictions / PREDICTIONS, class_indices(scores.predictions))
    np.save(predictions / LABELS, part.target)
    if info.preprocessing and PREPROCESSING not in files:  # what the model directory says itself comes first
        (predictions / PREPROCESSING).write_text(json.dumps(describe_preprocessing(info), indent=1) + "\n")
    return scores, files


def _score(
    origin: Origin, files: Sequence[str], scratch: Path, part: "Part", info: "DatasetInfo"
) -> tuple["Scores", Mapping[str, str]]:
    """Fetch files of a model and score it; return also the sha256 of each file."""
    from podium.scoring import score

    directory = scratch / origin.name
    digests = fetch_model(origin.uri, files, directory)
    return score(directory / MODEL, part.inputs, part.target, classes=len(info.classes)), digests


def _check_data(uri: str, trained: TrainedMetrics, info: "DatasetInfo") -> None:
    """Refuse a candidate trained on other data: it may have seen this test part."""
    digest = trained.dataset
    if digest != info.digest:
        raise InvalidInput(
            f"{uri} was trained on dataset {digest}, but is evaluated on {info.digest}",
            "train every candidate on the dataset artifact of the evaluation",
        )


def _why(ranked: list[Candidate]) -> str:
    if len(ranked) == 1:
        return "the only candidate"
    first, second = ranked[0].scores.metrics, ranked[1].scores.metrics
    accuracy, loss = first["accuracy"], first["log_loss"]
    if accuracy > second["accuracy"]:
        return f"validation accuracy {accuracy:.4f} against {second['accuracy']:.4f}"
    if loss < second["log_loss"]:
        return f"equal validation accuracy {accuracy:.4f}, loss {loss:.4f} against {second['log_loss']:.4f}"
    return f"equal validation accuracy {accuracy:.4f} and loss {loss:.4f}, so the one listed first"


def _rank(scores: "Scores") -> tuple[float, float]:
    return -scores.metrics["accuracy"], scores.metrics["log_loss"]


def _figures(scores: "Scores") -> dict[str, Any]:
    return {"accuracy": scores.metrics["accuracy"], "loss": scores.metrics["log_loss"],
            "count": len(scores.predictions)}  # fmt: skip


def _words(scores: "Scores") -> str:
    return f"accuracy {scores.metrics['accuracy']:.4f} loss {scores.metrics['log_loss']:.4f}"


def _dataset(info: "DatasetInfo") -> dict[str, Any]:
    return {
        "name": info.name,
        "digest": info.digest,
        "test_digest": info.test_digest,
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
