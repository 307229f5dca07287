"""Import a model directory made anywhere: check it, score it on a dataset's test part, store it as
a version."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podium.data import preprocessing
from podium.data.artifact import DatasetInfo, describe
from podium.data.held_out import HeldOut, seen_in_training
from podium.data.seen import (
    SEEN,
    SeenItems,
    require_items,
    unseen,
)
from podium.errors import Conflict, InvalidInput, NotFound
from podium.files.documents import load_json
from podium.models import Model, Version
from podium.models.document import CARD, check_name
from podium.models.shared_items import by_name
from podium.models.signature import SIGNATURE
from podium.models.task import Task
from podium.models.upload import require_no_reserved
from podium.models.version import METADATA, PREDICTIONS, TARGET, TEST_ITEMS
from podium.prediction.command import FILE as COMMAND, ONNX, CommandModel, PredictCommand
from podium.prediction.directory import ModelDirectory, refuse_file
from podium.prediction.predictor import (
    PREPROCESSING,
    PROFILE,
    write_preprocessing,
    write_profile,
)
from podium.scoring import OnnxModel, Scores, choose_metric, score_predictions
from podium.scoring.constant import constant_guess
from podium.scoring.threshold import THRESHOLD, Threshold
from podium.training.handover import EvaluatedDataset, per_class
from podium.training.origin import Origin
from podium.training.trained import TrainedMetrics

WRITTEN = (CARD, METADATA, PREDICTIONS, SIGNATURE, TARGET, TEST_ITEMS)
"""Left out: what podium itself writes to a version, as in a directory that `podium models export`
made."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model directory made anywhere, and what is known of it."""

    uri: str
    """Where it is: a directory or the URL of a storage."""

    data: str = ""
    """URI of a prepared dataset to score it on; empty for none."""

    metric: str = ""
    """In the notation of find_metric; empty for accuracy or rmse."""

    image: str = ""
    """Container image in which its predict command runs on a cluster."""

    def __post_init__(self) -> None:
        if self.metric and not self.data:
            raise InvalidInput(
                f"{self.metric} is measured on a test part, but no dataset is given",
                "add --data URI",
            )
        refuse_file(self.uri)
        if "://" not in self.uri and not os.path.isdir(self.uri):
            raise InvalidInput(
                f"there is no directory {self.uri}", "name a model directory, or the URI of one"
            )

    def upload(self, model: Model, version: str = "") -> Version:
        """Store the directory as a version; nothing is stored if any of it is refused.

        With a dataset the version can be compared with others: it gets the metrics, the
        predictions and the target of the test part, and its preprocessing if the directory has
        none. What metrics.json says is stored as ``reported``. A predict command in it runs on
        this machine, in a temporary copy, if there is data.

        Args:
            version: Its id; a name that follows from the content if empty.

        Raises:
            NotFound: The directory has no model, or the dataset is not there.
            InvalidInput: The directory holds links, a file of it is not what its name says, or the
                model does not fit.
            Damaged: model.onnx is not an ONNX model, or the dataset is damaged.
            Failed: The model fails on the inputs.
            Conflict: The version exists with other content, or was judged otherwise.
        """
        if version:
            check_name("version", version)
        original = ModelDirectory(self.uri)
        original.require_no_links()
        original.require_model()
        if METADATA in original.files:
            names = [name for name in original.files if name not in WRITTEN]
        else:
            names = require_no_reserved(original)
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            directory, judged = ModelDirectory(Path(scratch, "model")), Path(scratch, "judged")
            original.fetch(directory.path, names)
            judged.mkdir()
            opened = _open(directory, self.uri)
            metadata = _describe(directory, self, original.url)
            if self.data:
                Task.of(describe(self.data)).require_same_model(model)
                metadata |= _judge(opened, directory, self, judged)
            files: dict[str, Path | bytes] = {name: directory.path / name for name in names}
            files |= {file.name: file for file in judged.iterdir()}
            stored = model.upload(files, metadata, version or None)
        for key in ("metric", "dataset"):
            if stored.metadata.get(key) != metadata.get(key):
                raise Conflict(
                    f"version {stored.version} of {model.name} has these files, but another {key}",
                    "a version never changes; upload it under another name: --version ID",
                )
        return stored


def _open(directory: ModelDirectory, uri: str) -> OnnxModel | CommandModel:
    beside = directory.path / PREPROCESSING
    if beside.is_file():
        preprocessing.read(
            load_json(beside.read_bytes(), f"{uri}/{PREPROCESSING}"), f"{uri}/{PREPROCESSING}"
        )
    if (directory.path / ONNX).is_file():
        return OnnxModel((directory.path / ONNX).read_bytes(), name=f"{uri}/{ONNX}")
    PredictCommand.parse((directory.path / COMMAND).read_bytes(), f"{uri}/{COMMAND}")
    return CommandModel(name=uri, fetch=directory.fetch)


def _describe(directory: ModelDirectory, source: ModelSource, url: str) -> dict[str, Any]:
    trained = TrainedMetrics.read(directory)
    metadata: dict[str, Any] = {
        "origin": {"kind": "upload", "source": url},
        "reported": dict(trained.metrics),
        "image": source.image or None,
    }
    if trained.dataset:
        metadata["dataset"] = {"digest": trained.dataset}
    try:
        origin = Origin.read(directory)
    except NotFound:
        return metadata
    return {
        **metadata,
        "hyperparameters": origin.hyperparameters,
        "image": source.image or origin.image or None,
    }


def _judge(
    opened: OnnxModel | CommandModel, directory: ModelDirectory, source: ModelSource, judged: Path
) -> Mapping[str, Any]:
    """Score a model on the test part, and write what is stored of that to a directory; return the
    metadata."""
    info, trained = describe(source.data), TrainedMetrics.read(directory)
    metric = choose_metric(source.metric, info.kind)
    trained.check_data(source.uri, info)
    held_out, classes = HeldOut.open(source.data), len(info.classes) or None
    own = directory.load(PREPROCESSING) or {}
    taken = held_out.inputs_for(own, source.uri)
    seen = directory.seen
    if trained.dataset:
        seen = seen_in_training(source.data, seen)
    fresh, _ = unseen(taken, held_out.groups, seen)
    require_items(fresh)
    target = held_out.part.target[taken.kept]
    predicted = _predict(opened, taken.inputs, own.get("classes"), info, source.uri)
    threshold = Threshold.read(directory.load(THRESHOLD), f"{source.uri}/{THRESHOLD}")
    said = threshold.decide(predicted, info.classes) if threshold else predicted
    scores: Scores = score_predictions(
        predicted[fresh],
        target[fresh],
        classes=classes,
        metric=metric,
        name=source.uri,
        decided=said[fresh],
    )
    constant = constant_guess(metric, scores.target, scores.of(metric), info.classes)
    if len(taken.kept) == len(held_out):
        np.save(judged / PREDICTIONS, predicted)
        np.save(judged / TARGET, target)
        held_out.save_items(judged / TEST_ITEMS)
    if seen is not None:
        (judged / SEEN).write_bytes(
            seen.plus(SeenItems(hashes=held_out.hashes()[taken.kept[~fresh]])).to_bytes()
        )
    if not (directory.path / PREPROCESSING).is_file():
        write_preprocessing(info, judged)
    if not (directory.path / PROFILE).is_file() and {
        key: own.get(key) for key in info.preprocessing
    } in (
        info.preprocessing,
        dict.fromkeys(info.preprocessing),
    ):
        names = tuple(map(str, own.get("classes") or info.classes))
        write_profile(info, by_name(said, info.classes, names) if names else said, judged, names)
    matrix = [] if scores.confusion is None else scores.confusion.tolist()
    return {
        "metric": metric.to_json(),
        "metrics": dict(scores.metrics),
        "constant": asdict(constant) if constant else None,
        "report": {
            "confusion": matrix,
            "classes": [asdict(row) for row in per_class(matrix, info.classes)],
        },
        "predictions": PREDICTIONS,
        "dataset": asdict(EvaluatedDataset.of(info)),
    }


def _predict(
    opened: OnnxModel | CommandModel,
    inputs: Mapping[str, np.ndarray],
    own: Any,
    info: DatasetInfo,
    name: str,
) -> np.ndarray:
    names = tuple(map(str, own)) if isinstance(own, list) and own else info.classes
    if set(names) != set(info.classes):
        raise InvalidInput(
            f"{name} knows {', '.join(names)}, but the classes of {info.name} are "
            f"{', '.join(info.classes)}",
            "name a dataset with its classes: --data URI",
        )
    predicted = opened.predict(inputs, classes=len(names) or None)
    return by_name(predicted, names, info.classes) if names else predicted
