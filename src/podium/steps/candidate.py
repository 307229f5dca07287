"""A model that may be uploaded: opened once, judged on the validation part."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from podium.data.schema import DatasetInfo
from podium.data.split import Split
from podium.data.validated import Validated
from podium.models.upload import require_no_reserved
from podium.prediction.command import ONNX
from podium.prediction.directory import ModelDirectory
from podium.scoring import Metric, OnnxModel, Scores, score_predictions
from podium.scoring.threshold import THRESHOLD, Threshold
from podium.storage import connect
from podium.training.base import say
from podium.training.origin import Origin
from podium.training.trained import TrainedMetrics

if TYPE_CHECKING:
    from podium.training.predict_job import PredictJobs


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model that may be uploaded."""

    directory: ModelDirectory
    origin: Origin
    trained: TrainedMetrics
    info: DatasetInfo
    """Of the dataset that it is judged on."""

    jobs: "PredictJobs"
    """Where it predicts if it is a command."""

    @classmethod
    def open(cls, uri: str, info: DatasetInfo, jobs: "PredictJobs") -> Self:
        """Open a model directory.

        Raises:
            NotFound: No sweep or training of podium made it.
            InvalidInput: It was trained on other data, or a file of it would be written over.
        """
        directory = ModelDirectory(uri)
        require_no_reserved(directory)
        trained = TrainedMetrics.read(directory)
        trained.check_data(uri, info)
        origin = Origin.read(directory)
        return cls(directory=directory, origin=origin, trained=trained, info=info, jobs=jobs)

    def judged(self, part: Split, metric: Metric, *, tune: bool) -> "Judged":
        """Score it on the validation part, or by what its folds left.

        Args:
            tune: Whether it gets the decision threshold that is best for it there.
        """
        folds = len(self.trained.folds)
        left, lost = Validated.read(connect(self.directory.uri)) if folds else None, "predictions"
        needs_more = bool(self.info.classes) and (tune or not metric.decides)
        if left and needs_more and left.predictions.ndim == 1:  # of many items classes alone remain
            left, lost = None, "probabilities"
        if left:
            predicted, target, by = left.predictions, left.target, f"{folds} folds"
        else:
            predicted, target, by = self.predict(part, "validation"), part.target, "validation"
        threshold = self._threshold(metric if tune else None, target, predicted)
        scores = self.score(predicted, target, metric, threshold)
        say(f"{self.origin.title}: {by} {scores.words(metric)}")
        if folds and not left:
            say(
                f"warning: {self.origin.title} has learned from the validation part, and left no "
                f"{lost} of its folds: it looks better there than it is"
            )
        if threshold:
            say(f"{self.origin.title} decides for {threshold}")
            if threshold.warning:
                say(f"warning: {threshold.warning}")
        return Judged(candidate=self, scores=scores, threshold=threshold)

    def predict(
        self, part: Split, name: str, *, copy: Path | None = None, target: Path | None = None
    ) -> np.ndarray:
        """Return its predictions of a part: its model.onnx runs here, its predict command in a job.

        Args:
            name: The part's.
            copy: Where its files were fetched to, if they were.
            target: File to write the predictions to.
        """
        classes = len(self.info.classes) or None
        if ONNX in self.directory.files:
            with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
                if copy is None:
                    copy = Path(scratch, self.origin.name)
                    self.directory.fetch(copy, [ONNX])
                return OnnxModel(copy / ONNX).predict(part.inputs, classes=classes, target=target)
        origin = self.origin
        predicted = self.jobs.predict(
            self.directory,
            origin,
            part.inputs,
            part=name,
            classes=classes,
            name=origin.title,
        )
        if target:
            np.save(target, predicted)
        return predicted

    def score(
        self,
        predicted: np.ndarray,
        target: np.ndarray,
        metric: Metric,
        threshold: Threshold | None,
    ) -> Scores:
        """Score its predictions, or what it decides by a threshold."""
        decided = threshold.decide(predicted, self.info.classes) if threshold else None
        return score_predictions(
            predicted,
            target,
            classes=len(self.info.classes) or None,
            metric=metric,
            name=self.origin.title,
            decided=decided,
        )

    def _threshold(
        self, metric: Metric | None, target: np.ndarray, predicted: np.ndarray
    ) -> Threshold | None:
        if metric:
            return Threshold.choose(metric, target, predicted, self.info.classes)
        return Threshold.read(self.directory.load(THRESHOLD), f"{self.directory.uri}/{THRESHOLD}")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate on the validation part."""

    candidate: Candidate
    scores: Scores
    threshold: Threshold | None
    """By which it decides; None for the most probable class."""

    @property
    def origin(self) -> Origin:
        return self.candidate.origin

    @property
    def trained(self) -> TrainedMetrics:
        return self.candidate.trained

    def order(self, metric: Metric) -> tuple[float, float]:
        """Return what it is sorted by, the best first."""
        value = self.scores.value(metric)
        first = math.inf if math.isnan(value) else -value if metric.maximize else value
        return first, next(self.scores.tie_breakers(), ("", math.inf))[1]
