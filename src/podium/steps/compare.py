"""Predictions of several versions for the same test part: as stored with the versions, or by running them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged, InvalidInput
from podium.registry import Contest, Model, PromotionRule, Version
from podium.steps.evaluate import PREDICTIONS, TARGET
from podium.steps.predict import open_version
from podium.steps.predict_command import CommandModel
from podium.steps.target import Runtime

if TYPE_CHECKING:
    import numpy as np

    from podium.data.schema import DatasetInfo, Part
    from podium.scoring import Comparison, Metric
    from podium.scoring.comparison import Changes
    from podium.steps.predict_job import PredictJobs


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Several versions on the same items."""

    target: "np.ndarray"
    """Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``."""

    predicted: "tuple[np.ndarray, ...]"
    """The predictions of each version: probabilities, class indices or floats."""

    classes: tuple[str, ...]
    """Names of the classes; empty for regression."""

    inputs: "Mapping[str, np.ndarray]"
    """The dataset's inputs by name, each ``[n, ...]``; empty for stored predictions."""

    @property
    def kind(self) -> str:
        """classification or regression."""
        return "regression" if self.target.dtype.kind == "f" else "classification"


def predictions(model: Model, versions: Sequence[Version], data: str | None) -> Predictions:
    """Get the predictions of versions for one test part.

    Args:
        model: Whose versions they are.
        versions: The versions.
        data: URI of a dataset to run them on; None to use the predictions stored with them.

    Raises:
        InvalidInput: No predictions are stored, or they are of different items, and no data is given.
    """
    if data is not None:
        return _run(model, versions, data)
    digests = [version.facts.dataset.test_digest for version in versions]
    missing = [
        f"{file} of {version.version}"
        for version in versions
        for file in (PREDICTIONS, TARGET)
        if file not in version.files
    ]
    if missing or None in digests or len(set(digests)) != 1:
        why = f"{', '.join(missing)} is not stored" if missing else "they were evaluated on different test parts"
        raise InvalidInput(f"versions are compared on the same test part, but {why}", "run them again: --data URI")
    target = stored_array(model, versions[0], TARGET)
    arrays = tuple(stored_array(model, version, PREDICTIONS) for version in versions)
    for version, array in zip(versions, arrays, strict=True):
        if len(array) != len(target):
            raise Damaged(f"{PREDICTIONS} of {version.version} has {len(array)} items, but {TARGET} {len(target)}")
    names = versions[0].facts.dataset.classes
    if not names and target.dtype.kind != "f":
        names = tuple(str(label) for label in range(int(target.max()) + 1))
    return Predictions(target=target, predicted=arrays, classes=names, inputs={})


def chosen_metric(text: str, version: Version, kind: str) -> "Metric":
    """Return the metric asked for, else the one that a version was chosen by, else the default.

    A function that only a version's metadata names is not imported: it could be any function of this machine.

    Args:
        text: In the notation of find_metric; empty for none.
        version: The version.
        kind: classification or regression.

    Raises:
        InvalidInput: There is no such metric, or it is of the other kind.
    """
    from podium.scoring import METRICS, choose_metric

    name = version.facts.metric.name
    if not text and name is not None and name not in METRICS:
        direction = "max" if version.facts.metric.maximize else "min"
        raise InvalidInput(
            f"{version.version} was chosen by {name}, which podium imports only if you ask for it",
            f"--metric {direction}:{name}, or metric={direction}:{name} in the rule; or compare by another metric",
        )
    return choose_metric(text, kind, objective=name or "")


def contest(model: Model, version: str, rule: str, data: str | None, evidence: Mapping[str, Any]) -> Contest:
    """Let a version challenge the champion, with stored predictions or on given data.

    Args:
        model: Whose champion it is.
        version: The challenger, a version or an alias.
        rule: In the notation of PromotionRule.parse; without a metric, that of the challenger counts.
        data: URI of a dataset; None to use stored predictions.
        evidence: For the history.
    """
    parsed = PromotionRule.parse(rule)
    challenger = model.version(version)
    champion = model.champion()
    both = (challenger, champion) if champion else (challenger,)
    seen = predictions(model, both, data)
    known = {of.version: array for of, array in zip(both, seen.predicted, strict=True)}

    def predict(of: Version) -> "np.ndarray":
        # Only a champion promoted since then is not known yet.
        return known[of.version] if of.version in known else predictions(model, (challenger, of), data).predicted[1]

    metric = chosen_metric(parsed.metric, challenger, seen.kind)
    return model.challenge(challenger.version, parsed, metric, predict, seen.target, evidence)


def stored_array(model: Model, version: Version, file: str) -> "np.ndarray":
    """Read an array that is stored with a version; never a pickle, which could run any code.

    Raises:
        Damaged: It is not an array of numbers, [n] or [n, k].
    """
    import numpy as np

    try:
        array: np.ndarray = np.load(io.BytesIO(model.read(version, file)), allow_pickle=False)
    except (ValueError, EOFError, AttributeError) as error:
        raise Damaged(f"{file} of {version.name} {version.version} is not an array: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or not array.size:
        raise Damaged(f"{file} of {version.name} {version.version} is not an array of numbers [n] or [n, k]")
    return array


def run_version(
    model: Model, version: Version, info: "DatasetInfo", part: "Part", jobs: "PredictJobs | None" = None
) -> "np.ndarray":
    """Run a version on the test part of a dataset.

    Args:
        model: Whose version it is.
        version: The version: a model.onnx, or a predict command.
        info: Of the dataset.
        part: Its test part.
        jobs: Where a predict command runs; None runs it on this machine.

    Raises:
        InvalidInput: It does not fit the dataset.
        Failed: Its predict command failed.
    """
    classes, opened = len(info.classes) or None, open_version(model, version)
    if jobs and isinstance(opened, CommandModel):
        uri = model.storage.join(version.prefix)
        return jobs.predict(uri, _runtime(version), part.inputs, part="test", classes=classes, name=opened.name)
    return opened.predict(part.inputs, classes=classes)


def _runtime(version: Version) -> Runtime:
    code = version.metadata.get("code")
    brought = code if isinstance(code, Mapping) else {}
    return Runtime(image=str(version.metadata.get("image") or ""), code=str(brought.get("uri") or ""),
                   install_requirements=brought.get("install_requirements") is True)  # fmt: skip


def _run(model: Model, versions: Sequence[Version], data: str) -> Predictions:
    from podium.data.artifact import describe, load

    info, part = describe(data), load(data, "test")
    predicted = tuple(run_version(model, version, info, part) for version in versions)
    return Predictions(target=part.target, predicted=predicted, classes=info.classes, inputs=part.inputs)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A second version against a first, on the same items."""

    comparison: "Comparison"
    """Of the metric; its first value is the second version's."""

    items: int
    """How many there are."""

    metrics: Mapping[str, tuple[float | None, float | None]]
    """Of every metric, the first and the second version's value; None where it is not defined."""

    classes: Mapping[str, Mapping[str, Any]]
    """By class, see podium.scoring.comparison.by_class; empty for regression."""

    changes: "Changes"
    """The items the second does better or worse."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; ``value`` is the second version's, ``champion_value`` the first's."""
        from podium.registry.rule import figures

        return {
            "metric": self.comparison.metric.to_json(), "items": self.items, "value": self.comparison.first,
            **figures(self.comparison),
            "metrics": {name: {"first": first, "second": second} for name, (first, second) in self.metrics.items()},
            "classes": dict(self.classes),
            "gained": [vars(change) for change in self.changes.gained],
            "lost": [vars(change) for change in self.changes.lost],
        }  # fmt: skip


def difference(seen: Predictions, metric: "Metric") -> Difference:
    """Compare the second of two versions with the first.

    Args:
        seen: Predictions of the two.
        metric: What is tested; every other metric of the kind is computed too.

    Raises:
        InvalidInput: The metric is not defined for these predictions.
    """
    from podium.scoring import compare, score_predictions
    from podium.scoring.comparison import by_class, flips, moved_errors

    before, after = seen.predicted
    scores = [
        score_predictions(array, seen.target, classes=len(seen.classes) or None, metric=metric)
        for array in (before, after)
    ]
    names = dict.fromkeys([metric.name, *scores[0].metrics, *scores[1].metrics])
    regression = seen.kind == "regression"
    return Difference(
        comparison=compare(metric, seen.target, after, before),
        items=len(seen.target),
        metrics={name: (scores[0].metrics.get(name), scores[1].metrics.get(name)) for name in names},
        classes={} if regression else by_class(seen.target, after, before, seen.classes),
        changes=moved_errors(seen.target, before, after) if regression
        else flips(seen.target, before, after, seen.classes),
    )  # fmt: skip
