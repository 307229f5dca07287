"""Models of scikit-learn in place of networks: boosted trees, and the linear model of tables and
arrays; no torch.

Each is fitted by one process at once: the other ranks of a distributed training end, and there is
one line of metrics.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from podium.data import artifact
from podium.data.schema import DatasetInfo
from podium.data.split import Split
from podium.data.validated import Validated
from podium.errors import PodiumError
from podium.metrics import format_metrics
from podium.storage import connect
from podium.trainer import folds, linear, networks, output, ranks, task, trees
from podium.trainer.config import TrainConfig, check_library, parse
from podium.trainer.fitted import Array, Fitted
from podium.trainer.seen import Seen
from podium.trainer.task import Task
from podium.trainer.trainjob_status import StatusReporter

CHECKED_ITEMS = 1000
"""Validation items on which model.onnx is compared with scikit-learn's model."""


def run(argv: Sequence[str] | None = None) -> int | None:
    """Fit a model of scikit-learn as the command line asks, and return the exit code; None if it
    asks for a network, whose library is there.

    1: failed for good; 2: bad input.
    """
    try:
        config = parse(argv)
        begins_anew = not (config.weights or config.inherit)
        is_ours = config.model == networks.TREES or (
            config.model == networks.LINEAR and begins_anew and config.data
        )
        if not is_ours:
            check_library(config.model)
            return None
        with task.readable(config) as info:
            check_library(config.model, info.meaning)
            if not networks.is_fitted(config.model, info.meaning):
                return None
            _train(config, info)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _train(config: TrainConfig, info: DatasetInfo) -> None:
    """Fit a model and write the model directory; only print the metrics of a finished training.

    Raises:
        InvalidInput: The dataset or a setting does not fit.
    """
    learned = task.read(config, info)
    if ranks.read(os.environ).rank > 0:
        print(
            f"notice: --model {config.model} is fitted by one process, the first", file=sys.stderr
        )
        return
    storage = connect(config.output) if config.output else None
    shown = config.shown(info.kind)
    if storage:
        with output.usable(config.output):
            lines = output.finished_before(storage, config, info.digest, shown)
        if lines is not None:
            output.say_finished(lines)
            return
    parts = _parts(config.data)
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)  # read when scikit-learn is imported
    crossed = None
    if config.folds:
        crossed = _cross_validate(config, info)
        parts = _parts(crossed.data)
        learned = task.read(replace(config, data=crossed.data), parts[0].info or info)
    fitted = _fit(config, learned, parts, crossed.rounds if crossed else 0)
    record = {"epoch": 1, **_measures(config, learned, fitted.validation, parts[1].target)}
    metrics = crossed.metrics if crossed else {**record, "epochs": [record]}
    status = StatusReporter()
    values: dict[str, Any] = {name: metrics[name] for name in shown}
    print(format_metrics(**values), flush=True)
    status.report(1, 1, values, done=True)
    if storage:
        import sklearn

        items = np.array(parts[1].inputs[learned.input][:CHECKED_ITEMS])
        output.compare(fitted.onnx, items, fitted.validation[:CHECKED_ITEMS], learned)
        validated = None  # items of a group do not count alone
        if not info.has_groups:
            validated = _validated(learned, fitted, parts[1].target)
        facts = {"scikit-learn": sklearn.__version__, **fitted.facts}
        output.put(
            storage,
            config,
            info.digest,
            {"model.onnx": fitted.onnx},
            metrics,
            output.describe_environment(**facts),
            Seen.read(config.data, ""),
            crossed.validated if crossed else validated,
        )
    status.close()


def _parts(uri: str) -> tuple[Split, Split]:
    return artifact.load(uri, "train"), artifact.load(uri, "validation")


def _fit(config: TrainConfig, learned: Task, parts: tuple[Split, Split], rounds: int = 0) -> Fitted:
    """Fit a model, boosted trees for so many rounds; 0: as many as suit the validation part."""
    if config.model == networks.TREES:
        return trees.fit(config, learned, *parts, rounds=rounds)
    return linear.fit(config, learned, *parts)


def _cross_validate(config: TrainConfig, info: DatasetInfo) -> folds.CrossValidated:
    def fit(fold: TrainConfig) -> folds.Fit:
        learned = task.read(fold, artifact.describe(fold.data))
        parts = _parts(fold.data)
        fitted, target = _fit(fold, learned, parts), parts[1].target
        validated = _validated(learned, fitted, target)
        record = _measures(fold, learned, fitted.validation, target)
        rounds = fitted.facts.get("rounds", 1)
        return folds.Fit([record], [validated.predictions], target, rounds)

    say = partial(print, flush=True)
    return folds.cross_validate(config, fit, lambda *_: False, say, has_groups=info.has_groups)


def _validated(learned: Task, fitted: Fitted, target: Array) -> Validated:
    answers = fitted.validation
    if learned.kind == "regression":
        return Validated(target=target, predictions=answers.reshape(target.shape))
    shares = np.exp(answers - answers.max(1, keepdims=True))
    return Validated(target=target, predictions=shares / shares.sum(1, keepdims=True))


def _measures(
    config: TrainConfig, learned: Task, answers: Array, target: Array
) -> dict[str, float]:
    """Return the metrics of a model by its answers [n, outputs]."""
    from podium.scoring import METRICS

    if learned.kind == "regression":
        numbers = answers.reshape(target.shape)
        error = (answers - target.reshape(answers.shape)) / np.array(learned.target_std)
        names = ("rmse", "mae", "r2")
        return {
            **{name: METRICS[name].value(target, numbers) for name in names},
            "loss": float(np.square(error).mean()),
        }
    logs = answers - answers.max(1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    loss = -float(logs[np.arange(len(target)), target].mean())
    decided = answers.argmax(1)
    named = {
        name: METRICS[name].value(target, decided)
        for name in dict.fromkeys((config.metric, "accuracy"))
    }
    return {**named, "loss": loss}
