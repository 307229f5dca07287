"""The model directory under the output URI; metrics.json is written last and means that the
training is finished."""

import json
import os
import platform
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from podium import __version__
from podium.data.validated import Validated
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.files.documents import load_json
from podium.metrics import format_metrics
from podium.storage import Storage
from podium.system.machine import cpu_field
from podium.trainer.config import TrainConfig
from podium.trainer.folds import CrossValidated
from podium.trainer.seen import Seen
from podium.trainer.task import Task

if TYPE_CHECKING:
    from podium.trainer.loop import TrainingLoop

CHECKED_ITEMS = 32
_REMOVE = "remove it, or choose another --output"


@contextmanager
def usable(uri: str) -> Iterator[None]:
    """Turn what goes wrong with --output before the first step into bad input: later it would cost
    an epoch.

    Raises:
        InvalidInput: The output cannot be opened, read or written.
    """
    try:
        yield
    except InvalidInput:
        raise
    except PodiumError as error:
        hint = error.hint or "choose another directory or bucket"
        raise InvalidInput(f"--output {uri} cannot be used: {error.message}", hint) from error


def finished_before(
    storage: Storage, config: TrainConfig, digest: str, shown: Sequence[str]
) -> list[str] | None:
    """Return what `finished` does before the first step; else try to write, as every save will."""
    lines = finished(storage, config, digest, shown)
    if lines is None:
        key = f"podium-check-{uuid.uuid4().hex}"
        storage.put(key, b"")
        storage.delete(key)
    return lines


def say_finished(lines: Sequence[str]) -> None:
    """Repeat the metric lines of a finished training."""
    print("notice: this training is finished, nothing to do", file=sys.stderr)
    print(*lines, sep="\n", flush=True)


def finished(
    storage: Storage, config: TrainConfig, digest: str, shown: Sequence[str]
) -> list[str] | None:
    """Return the metric lines of this very training if it is finished, else None.

    Args:
        digest: Of the dataset.
        shown: Metrics of a line.

    Raises:
        InvalidInput: Another training is finished there, or metrics.json is damaged.
    """
    metrics = _read_json(storage, "metrics.json")
    if metrics is None:
        return None
    if metrics.get("fingerprint") != config.fingerprint(digest):
        config.refuse(_read_json(storage, "hyperparameters.json") or {}, storage.url)
    try:
        return [
            format_metrics(**{name: epoch[name] for name in shown}) for epoch in metrics["epochs"]
        ]
    except (AttributeError, LookupError, TypeError, ValueError):
        names = " and ".join(shown)
        raise InvalidInput(
            f"{storage.join('metrics.json')} holds no list of epochs with {names}", _REMOVE
        ) from None


def _read_json(storage: Storage, key: str) -> dict[str, Any] | None:
    try:
        value = load_json(storage.get(key), storage.join(key))
    except NotFound:
        return None
    except InvalidInput:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput(f"{storage.join(key)} is not a JSON object", _REMOVE)
    return value


def write(
    storage: Storage, training: "TrainingLoop", seen: Seen, crossed: CrossValidated | None = None
) -> None:
    """Write the model directory of a finished training of a network.

    Args:
        crossed: The folds that it is judged by, if it is.

    Raises:
        Failed: onnxruntime and torch disagree; nothing was written.
    """
    import torch
    from safetensors.torch import save

    from podium.trainer import checkpoint, onnx_graph

    config, dataset, progress, world = (
        training.config,
        training.dataset,
        training.progress,
        training.world,
    )
    model, items = training.kept_model(), dataset.validation.inputs[:CHECKED_ITEMS].cpu()
    with torch.no_grad():
        expected = model(items).numpy()
    onnx = onnx_graph.export(model, dataset.task)
    compare(onnx, items.numpy(), expected, dataset.task)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    # One key: safetensors writes several in an order that changes from process to process.
    files = {"model.onnx": onnx, "model.safetensors": save(state, {"format": "pt"})}
    kept = {name: progress.kept[name] for name in (*training.objective.metrics, "epoch")}
    environment = describe_environment(
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        precision=training.precision,
        device=str(world.device),
        processes=world.size,
        backend=config.backend,
    )
    metrics = crossed.metrics if crossed else {**kept, "epochs": progress.history}
    validated = crossed.validated if crossed else _validated(training)
    put(storage, config, dataset.digest, files, metrics, environment, seen, validated)
    storage.delete(checkpoint.KEY)


def put(
    storage: Storage,
    config: TrainConfig,
    digest: str,
    files: Mapping[str, bytes],
    metrics: Mapping[str, Any],
    environment: Mapping[str, Any],
    seen: Seen,
    validated: Validated | None,
) -> None:
    """Write a model directory, metrics.json last.

    Args:
        digest: Of the dataset.
        files: The model's, by name.
        metrics: Of the model, and those of each epoch.
    """
    for name, content in files.items():
        storage.put(name, content)
    storage.put("hyperparameters.json", _json(asdict(config)))
    storage.put("environment.json", _json(environment))
    seen.write(storage)
    if validated:
        validated.write(storage)
    unknown = {"unknown_weights": config.weights} if config.weights and not seen.whole else {}
    identity = {"dataset": digest, "fingerprint": config.fingerprint(digest)}
    storage.put("metrics.json", _json({**metrics, **identity, **unknown}))


def _validated(training: "TrainingLoop") -> Validated | None:
    """Return what the kept weights predict of the validation part; None if that was not kept, or
    its items belong to groups, so that they do not count alone."""
    outputs, dataset = training.progress.validated, training.dataset
    if not len(outputs) or dataset.has_groups:
        return None
    return Validated(
        target=dataset.validation.target.cpu().numpy(),
        predictions=training.objective.probabilities(outputs).numpy(),
    )


def compare(
    onnx: bytes, items: "np.ndarray[Any, Any]", expected: "np.ndarray[Any, Any]", task: Task
) -> None:
    """Check that onnxruntime computes what the library that trained computes.

    Raises:
        Failed: They differ by more than rounding.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at the import
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run([task.output], {task.input: items})
    worst = float(np.abs(outputs - expected).max())
    scale = float(np.abs(expected).max())
    if not worst <= 1e-3 * (scale if task.target_std else max(1.0, scale)):
        raise Failed(
            f"model.onnx and the trained model differ by {worst:.3g} on the same items",
            "please report this --model",
        )


def describe_environment(**more: Any) -> dict[str, Any]:
    """Return versions and hardware that the numbers depend on.

    Args:
        **more: What the training alone knows: its library, threads, precision, number of ranks.
    """
    return {
        "podium": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": cpu_field("model name") or platform.processor() or platform.machine(),
        **more,
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
