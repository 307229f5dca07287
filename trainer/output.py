"""What a training leaves under its output URI; metrics.json comes last and means: finished."""

import json
import os
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from podium import __version__
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.storage import Storage
from podium.trainer import checkpoint
from podium.trainer.config import TrainConfig

CHECKED_IMAGES = 32


@contextmanager
def usable(uri: str) -> Iterator[None]:
    """Turn what goes wrong with --output before the first step into bad input: later it would cost an epoch.

    Raises:
        InvalidInput: It did.
    """
    try:
        yield
    except InvalidInput:
        raise
    except PodiumError as error:
        raise InvalidInput(f"`--output can be written` must hold, but got output={uri!r}: {error.message}",
                           error.hint or "choose another directory or bucket") from error  # fmt: skip


def try_to_write(storage: Storage) -> None:
    """Write and remove an object of our own, as every save will.

    Raises:
        PodiumError: It is not possible.
    """
    key = f"podium-check-{uuid.uuid4().hex}"
    storage.put(key, b"")
    storage.delete(key)


def finished(storage: Storage, config: TrainConfig, digest: str) -> dict[str, Any] | None:
    """Return metrics.json if this very training has ended before.

    Raises:
        InvalidInput: Another training has ended there.
    """
    try:
        metrics = json.loads(storage.get("metrics.json"))
    except NotFound:
        return None
    if metrics.get("fingerprint") != checkpoint.fingerprint(config, digest):
        checkpoint.refuse(storage, json.loads(storage.get("hyperparameters.json")), config)
    return metrics


def write(storage: Storage, model: nn.Sequential, images: Tensor, config: TrainConfig, metrics: dict[str, Any],
          environment: dict[str, Any]) -> None:  # fmt: skip
    """Write the model directory.

    Args:
        storage: Where.
        model: The trained network in evaluation mode, on the processor, with the weights to keep.
        images: uint8 [n, 28, 28], to compare ONNX with torch on.
        config: What the training was told.
        metrics: Content of metrics.json.
        environment: Content of environment.json.

    Raises:
        Failed: onnxruntime and torch disagree; nothing was written.
    """
    from safetensors.torch import save

    from podium.trainer.onnx_graph import write as write_onnx

    with torch.no_grad():
        expected = model(images[:CHECKED_IMAGES]).numpy()
    onnx = write_onnx(model, expected.shape[1]).SerializeToString()
    compare(onnx, images[:CHECKED_IMAGES].numpy(), expected)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    storage.put("model.onnx", onnx)
    # One key: safetensors writes several in an order that changes from process to process.
    storage.put("model.safetensors", save(weights, {"format": "pt"}))
    storage.put("hyperparameters.json", _json(asdict(config)))
    storage.put("environment.json", _json(environment))
    storage.put("metrics.json", _json(metrics))
    storage.delete(checkpoint.KEY)


def compare(onnx: bytes, images: "np.ndarray[Any, Any]", expected: "np.ndarray[Any, Any]") -> None:
    """Check that onnxruntime computes what torch computes.

    Raises:
        Failed: They differ by more than rounding.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is read at the import; else its events go to its makers
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images})
    worst = float(np.abs(logits - expected).max())
    if not worst <= 1e-3 * max(1.0, float(np.abs(expected).max())):
        raise Failed(f"model.onnx and torch differ by {worst:.3g} on the same images", "please report this network")


def describe_environment(**more: Any) -> dict[str, Any]:
    """Return what the numbers were computed with.

    Args:
        **more: What only the training knows: threads, precision, world size.
    """
    return {"podium": __version__, "python": platform.python_version(), "torch": str(torch.__version__),
            "platform": platform.platform(terse=True), "processor": _processor(), **more}  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
