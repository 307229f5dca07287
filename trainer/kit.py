"""A few functions for a trainer of one's own; nobody must use them, and they import no torch.

    from podium.trainer import kit

    train, validation = kit.load("train"), kit.load("validation")
    for epoch in range(5):
        ...
        kit.report(accuracy=0.93, loss=0.21)
    kit.save_onnx("model.onnx")

They read what podium gives to every trainer: ``--data`` and ``--output`` on the command line, else
the environment's PODIUM_DATA and PODIUM_OUTPUT. Of several ranks only the first reports and saves;
`ranks` says which one this is.
"""

import argparse
import atexit
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podium.data import artifact
from podium.data.artifact import DatasetInfo, Split
from podium.data.validated import Validated
from podium.errors import InvalidInput
from podium.files.onnx_files import require_fits
from podium.metrics import metric_line
from podium.storage import Storage, connect
from podium.trainer.ranks import Ranks, is_first, read
from podium.trainer.seen import Seen
from podium.trainer.trainjob_status import StatusReporter

__all__ = ["Ranks", "dataset", "load", "output", "ranks", "report", "save_model", "save_onnx"]


_epochs: list[dict[str, float]] = []
"""Metrics that this process has reported, by epoch; it trains one model."""

_status = StatusReporter()
atexit.register(_status.close)


def dataset() -> DatasetInfo:
    """Describe the dataset: kind, classes, inputs with their statistics, target, digest."""
    return artifact.describe(_given("data"))


def load(part: str) -> Split:
    """Map ``train`` or ``validation`` from disk, every byte verified.

    Returns:
        ``inputs``, arrays [n, …] by name, and ``target``: class indices [n], or floats [n] or [n,
        k]. Read only.

    Raises:
        InvalidInput: Another part: the test part is opened once, after the training.
    """
    if part == "test":
        raise InvalidInput(
            "a trainer reads train and validation", "the test part is for the evaluation alone"
        )
    return artifact.load(_given("data"), part)


def output() -> str:
    """Return the URI of the model directory to write."""
    return _given("output")


def ranks() -> Ranks:
    """Return which process of the training this is, and where they meet.

    It reads what torchrun and the training operator set (RANK …), else what Kubeflow Trainer sets
    (PET_NODE_RANK …)::

        here = kit.ranks()
        if here.size > 1:
            dist.init_process_group("gloo", init_method=here.url, rank=here.rank,
            world_size=here.size)

    Raises:
        InvalidInput: A number is missing or not a number, or several processes of a node need
            torchrun.
    """
    return read(os.environ)


def report(*, epoch: int | None = None, epochs: int | None = None, **metrics: float) -> None:
    """Print the metrics of an epoch as podium and Katib read them, and keep them for metrics.json.

    In a TrainJob they go to its ``status.trainerStatus`` as well, where Kubeflow Trainer has that
    switched on.

    Args:
        epoch: Its number; the next one if None.
        epochs: How many there will be, for the progress that a TrainJob shows.
        **metrics: Finite numbers, measured on the validation part; one of them is the Experiment's
            objective.

    Raises:
        InvalidInput: A number is not finite, or Katib would not read a name.
    """
    number = len(_epochs) + 1 if epoch is None else int(epoch)
    if is_first(os.environ):
        print(metric_line(metrics), flush=True)
        _status.report(number, epochs, metrics)
    _epochs.append({"epoch": number, **{name: float(value) for name, value in metrics.items()}})


def save_onnx(
    model: Any, *, epoch: int | None = None, weights: str = "", validated: Any = None
) -> None:
    """Write model.onnx and metrics.json to the output.

    Args:
        model: An ONNX model, its bytes, or its file. Its inputs are named and typed as the
            dataset's.
        epoch: The epoch whose weights it has; the last one that was reported if None.
        weights: File or URI of the weights that the training began with: the test items these had
            seen do not count.
        validated: Its predictions of the validation part, in the order of that: probabilities [n,
            classes], class indices [n], or numbers. The leaderboard says from them which trials
            cannot be told from the best.

    Raises:
        InvalidInput: The model cannot be read, or is larger than an ONNX file can be (2 GiB).
    """
    if not is_first(os.environ):  # whose file it may be
        return
    content = _read_onnx(Path(model)) if isinstance(model, str | os.PathLike) else model
    if not isinstance(content, bytes):
        content = content.SerializeToString()
    target = connect(output())
    target.put("model.onnx", content)  # before a refusal: the weights took hours
    require_fits(len(content), target.join("model.onnx"))
    _save_metrics(target, epoch, weights, validated)


def save_model(
    directory: str | Path,
    *,
    predict: Sequence[str] = (),
    epoch: int | None = None,
    weights: str = "",
    validated: Any = None,
) -> None:
    """Write the files of a directory and metrics.json to the output.

    Args:
        directory: Holds model.onnx, or what the predict command needs.
        predict: Command that predicts, as in ``["python", "predict.py"]``; podium adds ``--model``,
            ``--inputs`` and ``--output``. Empty if there is a model.onnx or a model.json.
        epoch: The epoch whose weights it has; the last one that was reported if None.
        weights: File or URI of the weights that the training began with, as in save_onnx.
        validated: Its predictions of the validation part, as in save_onnx.

    Raises:
        InvalidInput: It holds no files, or neither model.onnx nor model.json, and no command is
            given.
    """
    if not is_first(os.environ):
        return
    source = Path(directory)
    files = {
        file.relative_to(source).as_posix(): file
        for file in sorted(source.rglob("*"))
        if file.is_file()
    }
    if not files:
        raise InvalidInput(f"there are no files in {source}", "the directory that holds the model")
    if not predict and not files.keys() & {"model.onnx", "model.json"}:
        hint = 'save_model(directory, predict=["python", "predict.py"])'
        raise InvalidInput(f"{source} holds neither model.onnx nor model.json", hint)
    target = connect(output())
    for name, file in files.items():
        target.put(name, file)
    if predict:
        words = shlex.split(predict) if isinstance(predict, str) else list(predict)
        target.put("model.json", json.dumps({"predict": words}).encode())
    _save_metrics(target, epoch, weights, validated)


def _read_onnx(file: Path) -> Any:
    """Return the model of a file, with the weights that torch's exporter puts beside it."""
    from google.protobuf.message import DecodeError
    from onnx import checker, load

    try:
        return load(file)
    except (OSError, DecodeError, checker.ValidationError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", "an ONNX file") from None


def _save_metrics(target: Storage, epoch: int | None, weights: str, validated: Any) -> None:
    """Write what the model has seen, and metrics.json last: then the model directory is whole."""
    chosen = [record for record in _epochs if epoch in (None, record["epoch"])]
    if not chosen and epoch is not None:
        raise InvalidInput(f"epoch {epoch} was not reported", "call report for every epoch")
    record = {**(chosen[-1] if chosen else {}), "epochs": _epochs, "dataset": dataset().digest}
    seen = Seen.read(_given("data"), weights)
    seen.write(target)
    if weights and not seen.whole:
        record["unknown_weights"] = weights
    if validated is not None:
        _save_validated(target, validated)
    target.put("metrics.json", json.dumps(record, indent=1).encode())


def _save_validated(target: Storage, predictions: Any) -> None:
    predictions, truth = np.asarray(predictions), load("validation").target
    if len(predictions) != len(truth):
        problem = f"the validation part has {len(truth)} items, but validated {len(predictions)}"
        raise InvalidInput(problem, "one prediction for each item, in the order of the part")
    if not dataset().has_groups:  # items of a group do not count alone
        Validated(target=truth, predictions=predictions).write(target)


def _given(name: str) -> str:
    """Return what podium gave: an option of the command line, else a variable of the
    environment."""
    variable = f"PODIUM_{name.upper()}"
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", dest="given", default=os.environ.get(variable))
    value = parser.parse_known_args()[0].given
    if not value:
        hint = f"run it in a sweep or a training of podium, or set {variable}"
        raise InvalidInput(f"neither --{name} nor {variable} is given", hint)
    return str(value)
