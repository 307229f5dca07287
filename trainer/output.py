"""The model directory under the output URI; metrics.json is written last and means that the
training is finished."""

import json
import os
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from podium import __version__
from podium.documents import load_json
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.storage import Storage
from podium.trainer import checkpoint, processor
from podium.trainer.config import TrainConfig
from podium.trainer.loop import Training
from podium.trainer.objective import Objective
from podium.trainer.seen import Seen
from podium.trainer.task import Task

CHECKED_ITEMS = 32
REMOVE = "remove it, or choose another --output"


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


def try_to_write(storage: Storage) -> None:
    """Write and remove an object of our own, as every save will."""
    key = f"podium-check-{uuid.uuid4().hex}"
    storage.put(key, b"")
    storage.delete(key)


def finished(
    storage: Storage, config: TrainConfig, digest: str, objective: Objective
) -> list[str] | None:
    """Return the metric lines of this very training if it is finished, else None.

    Raises:
        InvalidInput: Another training is finished there, or metrics.json is damaged.
    """
    metrics = _read_json(storage, "metrics.json")
    if metrics is None:
        return None
    if metrics.get("fingerprint") != checkpoint.fingerprint(config, digest):
        checkpoint.refuse(storage, _read_json(storage, "hyperparameters.json") or {}, config)
    names = " and ".join(objective.shown)
    with checkpoint.fitting(
        f"{storage.join('metrics.json')} holds no list of epochs with {names}", REMOVE
    ):
        return [objective.line(epoch) for epoch in metrics["epochs"]]


def _read_json(storage: Storage, key: str) -> dict[str, Any] | None:
    """Return a stored JSON object, or None if there is none."""
    try:
        value = load_json(storage.get(key), storage.join(key))
    except NotFound:
        return None
    except InvalidInput:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput(f"{storage.join(key)} is not a JSON object", REMOVE)
    return value


def write(storage: Storage, training: Training, seen: Seen) -> None:
    """Write the model directory of a finished training.

    Raises:
        Failed: onnxruntime and torch disagree; nothing was written.
    """
    from safetensors.torch import save

    from podium.trainer import onnx_graph

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
    kept = {name: progress.kept[name] for name in (*training.objective.metrics, "epoch")}
    fingerprint = checkpoint.fingerprint(config, dataset.digest)
    metrics = {
        **kept,
        "epochs": progress.history,
        "dataset": dataset.digest,
        "fingerprint": fingerprint,
    }
    if config.weights and not seen.whole:
        metrics["unknown_weights"] = config.weights
    environment = describe_environment(
        threads=torch.get_num_threads(),
        precision=training.precision,
        device=str(world.device),
        processes=world.size,
        backend=config.backend,
    )
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    storage.put("model.onnx", onnx)
    # One key: safetensors writes several in an order that changes from process to process.
    storage.put("model.safetensors", save(state, {"format": "pt"}))
    storage.put("hyperparameters.json", _json(asdict(config)))
    storage.put("environment.json", _json(environment))
    seen.write(storage)
    storage.put("metrics.json", _json(metrics))
    storage.delete(checkpoint.KEY)


def compare(
    onnx: bytes, items: "np.ndarray[Any, Any]", expected: "np.ndarray[Any, Any]", task: Task
) -> None:
    """Check that onnxruntime computes what torch computes.

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
            f"model.onnx and torch differ by {worst:.3g} on the same items",
            "please report this network",
        )


def describe_environment(**more: Any) -> dict[str, Any]:
    """Return versions and hardware that the numbers depend on.

    Args:
        **more: Known to the training only: threads, precision, number of ranks.
    """
    return {
        "podium": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(terse=True),
        "processor": processor.cpu_field("model name")
        or platform.processor()
        or platform.machine(),
        **more,
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
