"""Choose the best candidate on the validation part, then score it alone on the test part."""

import math
import platform
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from podium.data.artifact import describe, load, load_target
from podium.data.held_out import HeldOut, seen_in_training
from podium.data.schema import DatasetInfo
from podium.data.sealed import holds_sealed, save_labels
from podium.data.seen import SEEN, SeenItems, near_words, require_items, unseen
from podium.data.split import Split
from podium.data.validated import Validated
from podium.display.text import are, figure, plural
from podium.errors import require
from podium.files.documents import read_json
from podium.models.document import sha256_of
from podium.models.upload import require_no_reserved
from podium.models.version import PREDICTIONS, TARGET, TEST_ITEMS
from podium.prediction import PREPROCESSING, PROFILE
from podium.prediction.command import ONNX
from podium.prediction.directory import ModelDirectory
from podium.prediction.predictor import write_preprocessing, write_profile
from podium.scoring import Metric, OnnxModel, Scores, choose_metric, score_predictions
from podium.scoring.calibration import calibration
from podium.scoring.constant import constant_guess
from podium.scoring.threshold import THRESHOLD, Threshold, require_tunable, split
from podium.steps.examples import pictures_among, points_of, worst_examples
from podium.storage import connect
from podium.training.base import say
from podium.training.handover import (
    DataSummary,
    EvaluatedDataset,
    Evaluation,
    MetricChoice,
    PartScores,
    Picture,
    ScoredCandidate,
    TrialTable,
    Winner,
    WinnerScores,
    per_class,
)
from podium.training.identity import StepContext, code_version
from podium.training.origin import Origin
from podium.training.trained import TrainedMetrics

_MOSTLY = 0.9
"""Share of a class from which accuracy is not advised."""

_ENVIRONMENT = "environment.json"
"""File of a model directory: versions and hardware of its training."""

if TYPE_CHECKING:
    from podium.training.predict_job import PredictJobs


@dataclass(frozen=True, kw_only=True)
class _Candidate:
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

    def judged(self, part: Split, metric: Metric, *, tune: bool) -> "_Judged":
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
        return _Judged(candidate=self, scores=scores, threshold=threshold)

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
class _Judged:
    """A candidate on the validation part."""

    candidate: _Candidate
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


@dataclass(frozen=True, kw_only=True)
class _EvaluationResult:
    """The result of an evaluation."""

    winner: str
    """URI of its model directory."""

    classes: list[str]
    """Name of each class; empty for regression."""

    confusion: list[list[int]]
    """The winner's, on the test part: rows are the true class, columns the predicted one; empty for
    regression."""

    metrics: dict[str, float]
    """Every metric on the test part by name, and on the validation part with validation_ before the
    name."""

    metadata: dict[str, Any]
    """Metadata of the evaluation: the winner's kind, name, URI and metrics."""

    def log_confusion(self, artifact: Any) -> None:
        """Write the confusion matrix to a ClassificationMetrics artifact; nothing for
        regression."""
        if self.confusion:
            artifact.log_confusion_matrix(self.classes, self.confusion)


def evaluate(
    step: StepContext,
    data: str | Path,
    candidates: Sequence[str],
    evaluation: str | Path,
    predictions: str | Path,
    trials: str | Path | None = None,
    metric: str = "",
    *,
    test: str | Path | None = None,
    jobs: "PredictJobs",
) -> _EvaluationResult:
    """Score every candidate on the validation part and the best of them on the test part.

    The best value of the metric wins, then the lowest log_loss or rmse, then the candidate listed
    first. The test part is not read before the choice.

    Args:
        data: The dataset artifact, a directory or URI.
        candidates: URIs of model directories, the best trial's first; one that stands twice counts
            once.
        evaluation: JSON file to write all measurements to, with the sha256 of each file of the
            winner.
        predictions: Directory to write PREDICTIONS, TARGET, TEST_ITEMS, SEEN, PROFILE and
            PREPROCESSING to, the last two only if the dataset has them and the winner does not,
            and THRESHOLD if one was chosen.
        trials: Table of the sweep's trials, if there was a sweep.
        metric: In the notation of find_metric; empty for the Experiment's objective if that is a
            known metric, else accuracy or rmse. With ``threshold:`` in front, each candidate gets
            the decision threshold that is best for it on the validation part.
        test: URI of the dataset's test part; None where it lies beside the dataset.
        jobs: Where models that are commands predict.

    Raises:
        InvalidInput: A candidate was trained on other data or does not fit the dataset, or the
            metric does not.
        NotFound: There is no such model directory, or no sweep or training of podium made it.
        Damaged: The data or a model cannot be read.
    """
    require(len(candidates) >= 1, "len(candidates) >= 1", candidates=len(candidates))
    info, sweep = describe(data), TrialTable.read(Path(trials)) if trials else None
    for sentence in info.warnings:
        say(f"warning of the data: {sentence}")
    tune, metric = split(metric)
    chosen_by = _metric(metric, info, sweep, tune=tune)
    part = load(data, "validation")
    judged = [
        _Candidate.open(uri, info, jobs).judged(part, chosen_by, tune=tune)
        for uri in dict.fromkeys(candidates)
    ]
    # sorted is stable: of equal candidates the one listed first stays first.
    ranked = sorted(judged, key=lambda candidate: candidate.order(chosen_by))
    winner = ranked[0]
    say(f"winner: {winner.origin.title}, {_why(ranked, chosen_by)}")
    tested = _test(data, test or data, winner, Path(predictions), chosen_by)
    _say_tested(winner, tested, chosen_by)
    measured = Evaluation(
        run_id=step.run.id,
        dataset=EvaluatedDataset.of(info),
        metric=MetricChoice(**chosen_by.to_json()),
        candidates=[
            ScoredCandidate(
                **asdict(candidate.origin),
                validation=PartScores.of(candidate.scores),
                epochs=candidate.trained.epochs,
            )
            for candidate in ranked
        ],
        winner=Winner(
            **asdict(winner.origin),
            why=_why(ranked, chosen_by),
            files=tested.files,
            etags=tested.etags,
        ),
        test=_winner_scores(tested, info, chosen_by, str(winner.threshold or "")),
        sweep=sweep,
        data=_summary(data, info, tested.part),
        trained_with=tested.environment,
        evaluated_with=_versions(),
        pictures=tested.pictures,
    )
    measured.write(Path(evaluation))
    origin = winner.origin
    return _EvaluationResult(
        winner=origin.uri,
        classes=list(info.classes),
        confusion=measured.test.confusion,
        metrics=measured.metrics,
        metadata={
            "origin": origin.kind,
            "name": origin.name,
            "uri": origin.uri,
            **measured.metrics,
        },
    )


def _winner_scores(
    tested: "_Tested", info: DatasetInfo, metric: Metric, threshold: str
) -> WinnerScores:
    scores = tested.scores
    matrix = [] if scores.confusion is None else scores.confusion.tolist()
    return WinnerScores(
        **asdict(PartScores.of(scores)),
        left_out=tested.left_out,
        confusion=matrix,
        classes=per_class(matrix, info.classes),
        examples=worst_examples(info, tested.part, scores, tested.items),
        points=points_of(scores) if info.kind == "regression" else [],
        calibration=_calibration(scores) if info.kind == "classification" else {},
        constant=_constant(scores, metric, info),
        threshold=threshold,
    )


def _constant(scores: Scores, metric: Metric, info: DatasetInfo) -> dict[str, Any]:
    found = constant_guess(metric, scores.target, scores.of(metric), info.classes)
    if found is None:
        return {}
    say(f"a constant guess, {found.guess}: {metric.name} {figure(found.value)}")
    return asdict(found)


def _calibration(scores: Scores) -> dict[str, Any]:
    found = calibration(scores.target, scores.predictions)
    return asdict(found) if found else {}


def _summary(data: str | Path, info: DatasetInfo, test: Split) -> DataSummary:
    targets = {"test": test.target}
    if info.kind == "regression":
        targets |= {name: load_target(data, name) for name in ("train", "validation")}
    return DataSummary.of(info, targets)


def _versions() -> dict[str, str]:
    """Return the versions of the packages that scores depend on: another onnxruntime may round
    otherwise."""
    versions = {"podium": code_version(), "python": platform.python_version()}
    for name in ("numpy", "onnxruntime"):
        with suppress(PackageNotFoundError):  # a build for a GPU has another name
            versions[name] = version(name)
    return versions


def _say_tested(winner: _Judged, tested: "_Tested", metric: Metric) -> None:
    say(f"test part, opened for the winner alone: {tested.scores.words(metric)}")
    if winner.trained.unknown_weights:
        say(
            f"it began with the weights {winner.trained.unknown_weights}, and which items these had seen is not known: "
            "some of the test items may be among them"
        )
    if tested.left_out:
        say(
            f"{plural(tested.left_out, 'test item')} {are(tested.left_out)} left out: "
            "the winner, or the weights it began with, has seen them"
            f"{near_words(tested.near)}"
        )


def _metric(text: str, info: DatasetInfo, sweep: TrialTable | None, *, tune: bool) -> Metric:
    objective = sweep.objective if sweep else None
    name, maximize = (objective.metric, objective.maximize) if objective else ("", None)
    metric = choose_metric(text, info.kind, name, maximize)
    if tune:
        require_tunable(metric, info.classes)
    say(f"metric: {metric.name}, {'more' if metric.maximize else 'less'} is better")
    if metric.name == "accuracy" and (advice := _rare_class(info)):
        say(advice)
    return metric


def _rare_class(info: DatasetInfo) -> str:
    """Return a line for who judges by accuracy where nearly all items are of one class."""
    counts = info.parts["train"].class_counts
    share = max(counts, default=0) / max(1, sum(counts))
    if share < _MOSTLY:
        return ""
    usual = info.classes[counts.index(max(counts))]
    better = "threshold:f1_macro" if len(counts) == 2 else "f1_macro"
    return (
        f"{share:.0%} of the items are {usual!r}, and so accuracy hardly tells a model from a constant guess: "
        f"metric={better} judges by all classes alike"
    )


@dataclass(frozen=True, kw_only=True)
class _Tested:
    scores: Scores
    """On the items that it has not seen."""

    files: dict[str, str]
    etags: dict[str, str]
    environment: dict[str, Any]
    """Versions and hardware that its training recorded; empty if it recorded nothing."""

    pictures: list[Picture]
    part: Split
    items: np.ndarray
    """Positions in it of the items that were scored."""

    near: int
    """How many of those left out nearly equal what it has seen."""

    @property
    def left_out(self) -> int:
        return len(self.part.target) - len(self.items)


def _test(
    data: str | Path,
    test: str | Path,
    winner: _Judged,
    predictions: Path,
    metric: Metric,
) -> _Tested:
    candidate, info, held_out = winner.candidate, winner.candidate.info, HeldOut.open(test)
    part = held_out.part
    shutil.rmtree(predictions, ignore_errors=True)  # an earlier attempt may have left files
    predictions.mkdir(parents=True)
    seen = seen_in_training(data, candidate.directory.seen)
    fresh, near = unseen(held_out.as_prepared(), held_out.groups, seen)
    require_items(fresh)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        directory = Path(scratch, candidate.origin.name)
        entries = candidate.directory.fetch(directory)
        files = {name: sha256_of(directory / name)[0] for name in entries}
        content = read_json(directory / _ENVIRONMENT) if _ENVIRONMENT in files else {}
        pictures = pictures_among(directory, files)
        predicted = candidate.predict(
            part, "test", copy=directory, target=predictions / PREDICTIONS
        )
    selected = slice(None) if fresh.all() else np.flatnonzero(fresh)
    scores = candidate.score(predicted[selected], part.target[selected], metric, winner.threshold)
    # Not before: a predict command would find it.
    save_labels(predictions / TARGET, part.target, sealed=holds_sealed(test))
    held_out.save_items(predictions / TEST_ITEMS)
    if seen is not None:
        (predictions / SEEN).write_bytes(
            seen.plus(SeenItems(hashes=held_out.hashes()[~fresh])).to_bytes()
        )
    if PREPROCESSING not in files:  # what the model directory says itself comes first
        write_preprocessing(info, predictions)
    if PROFILE not in files:
        said = winner.threshold.decide(predicted, info.classes) if winner.threshold else predicted
        write_profile(info, said, predictions)
    if winner.threshold:
        winner.threshold.write(predictions)
    etags = {name: entry.etag for name, entry in entries.items()}
    environment = (
        content if isinstance(content, dict) else {}
    )  # a trainer of one's own may write what it likes
    return _Tested(
        scores=scores,
        files=files,
        etags=etags,
        environment=environment,
        pictures=pictures,
        part=part,
        near=near,
        items=np.flatnonzero(fresh),
    )


def _why(ranked: list[_Judged], metric: Metric) -> str:
    if len(ranked) == 1:
        return "the only candidate"
    first, second = ranked[0].scores, ranked[1].scores
    values = figure(first.value(metric)), figure(second.value(metric))
    if metric.better(first.value(metric), second.value(metric)) or values[1] == "nan" != values[0]:
        return f"validation {metric.name} {values[0]} against {values[1]}"
    equal = f"equal validation {metric.name} {values[0]}"
    for name, value in first.tie_breakers():
        if name != metric.name and value < (other := second.metrics.get(name, 0)):
            return f"{equal}, {name} {figure(value)} against {figure(other)}"
    return f"{equal}, so the one listed first"
