"""Measure a model on labelled images through its ``model.onnx``, without torch or the trainer.

A model takes one input, uint8 ``[n, 28, 28]`` (normalization is part of the graph), and returns ``[n, classes]`` as its
first output.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged, Failed, InvalidInput, NotFound, require
from podium.machine import cores
from podium.onnx_files import read_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONTRACT = "a model takes one input, uint8 [n, 28, 28], and returns logits [n, classes]; see docs/architecture.md"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Results of a model on labelled images."""

    accuracy: float
    """Share of images classified correctly."""

    loss: float
    """Mean cross-entropy in nats."""

    per_class: tuple[float | None, ...]
    """Accuracy among the images of each class; None for a class without images."""

    confusion: "NDArray[np.int64]"
    """[classes, classes]: rows are the true class, columns the predicted one."""

    predictions: "NDArray[np.uint8]"
    """[n], in the order of the images."""

    probabilities: "NDArray[np.float32]"
    """[n, classes], rows sum to 1."""

    def to_json(self) -> dict[str, Any]:
        """Return everything except per-image results."""
        return {
            "accuracy": self.accuracy,
            "loss": self.loss,
            "per_class": list(self.per_class),
            "confusion": self.confusion.tolist(),
            "count": len(self.predictions),
        }


class OnnxModel:
    """A loaded ``model.onnx``.

    Args:
        model: The file or its bytes.
        threads: CPU threads; None for all this process may use.

    Raises:
        NotFound: There is no such file.
        Damaged: It is not an ONNX model.
        InvalidInput: Its inputs do not fit, or its weights are in another file.
    """

    def __init__(self, model: bytes | Path, *, threads: int | None = None) -> None:
        require(threads is None or threads >= 1, "threads >= 1", threads=threads)
        self.name = "the model" if isinstance(model, bytes) else str(model)
        if isinstance(model, Path) and not model.is_file():
            raise NotFound(f"there is no model file {model}")
        self._session = _open(model, self.name, threads or cores())
        _check_input(self._session.get_inputs(), self.name)

    def logits(self, images: "NDArray[np.uint8]", *, batch: int = 500) -> "NDArray[np.float32]":
        """Run the model.

        Args:
            images: uint8 [n, 28, 28].
            batch: Images at a time; affects memory and speed, not results.

        Returns:
            float32 [n, classes].

        Raises:
            InvalidInput: The images or the model's output have another shape or type.
            Failed: The model fails on these images, or its logits are not finite.
        """
        import numpy as np

        require(batch >= 1, "batch >= 1", batch=batch)
        require(images.dtype == np.uint8, "images are uint8", dtype=str(images.dtype))
        require(images.ndim == 3 and images.shape[1:] == (28, 28), "images are [n, 28, 28]", shape=images.shape)
        require(len(images) > 0, "at least one image", images=0)
        logits = np.concatenate([self._run(images[at : at + batch]) for at in range(0, len(images), batch)])
        bad = np.flatnonzero(~np.isfinite(logits).all(1))
        if len(bad):
            raise Failed(f"{self.name} returns logits that are not finite for {len(bad)} of {len(images)} images")
        return logits

    def _run(self, images: "NDArray[np.uint8]") -> "NDArray[np.float32]":
        import numpy as np

        try:
            (output, *_) = self._session.run(None, {self._session.get_inputs()[0].name: images})
        except Exception as error:  # onnxruntime raises classes of its own without a common base
            raise Failed(f"{self.name} failed on {len(images)} images: {_first_line(error)}", CONTRACT) from error
        logits = np.asarray(output, np.float32)
        if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
            raise InvalidInput(f"{self.name} returns {list(logits.shape)} for {len(images)} images", CONTRACT)
        return logits


def score(
    model: bytes | Path,
    images: "NDArray[np.uint8]",
    labels: "NDArray[np.uint8]",
    *,
    classes: int | None = None,
    batch: int = 500,
    threads: int | None = None,
) -> Scores:
    """Measure a model on labelled images.

    Args:
        model: ``model.onnx`` or its bytes.
        images: uint8 [n, 28, 28].
        labels: uint8 [n].
        classes: How many classes the dataset has; if given, the model must have as many.
        batch: Images at a time.
        threads: CPU threads; None for all this process may use.

    Raises:
        NotFound, Damaged, InvalidInput, Failed: As OnnxModel and OnnxModel.logits; InvalidInput also if the model has
            other classes than the data.
    """
    import numpy as np

    require(labels.shape == images.shape[:1], "len(labels) == len(images)", images=images.shape, labels=labels.shape)
    opened = OnnxModel(model, threads=threads)
    logits = opened.logits(images, batch=batch)
    count = logits.shape[1]
    needed = classes or int(labels.max()) + 1
    if count < needed or (classes is not None and count != classes):
        hint = "was it trained on another dataset?"
        raise InvalidInput(f"{opened.name} has {count} classes, but the data has {needed}", hint)
    probable = probabilities(logits)
    predictions = logits.argmax(1).astype(np.uint8)
    pairs = np.bincount(labels.astype(np.int64) * count + predictions, minlength=count * count)
    confusion = pairs.reshape(count, count)
    totals = confusion.sum(1).tolist()
    hits = confusion.diagonal().tolist()
    return Scores(
        accuracy=sum(hits) / len(labels),
        loss=cross_entropy(logits, labels),
        per_class=tuple(hit / total if total else None for hit, total in zip(hits, totals, strict=True)),
        confusion=confusion,
        predictions=predictions,
        probabilities=probable,
    )


def probabilities(logits: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return the softmax of each row."""
    import numpy as np

    return np.exp(_log_softmax(logits)).astype(np.float32)


def cross_entropy(logits: "NDArray[np.float32]", labels: "NDArray[np.uint8]") -> float:
    """Return the mean cross-entropy in nats."""
    import numpy as np

    return float(-_log_softmax(logits)[np.arange(len(labels)), labels].mean())


def _log_softmax(logits: "NDArray[np.float32]") -> "NDArray[np.float64]":
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result


def _open(model: bytes | Path, name: str, threads: int) -> Any:
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # read at import; without it usage events are sent to the vendor
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # by default onnxruntime pins threads to cores it may not use
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, not printed as well
    options.add_session_config_entry("session.load_model_format", "ONNX")  # read_model checked only this format
    content = read_model(model, name)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own without a common base
        raise Damaged(
            f"{name} is not an ONNX model that onnxruntime can run: {_first_line(error)}", CONTRACT
        ) from error


def _check_input(inputs: list[Any], name: str) -> None:
    given = ", ".join(f"{item.type} {item.shape}" for item in inputs)
    fits = len(inputs) == 1 and inputs[0].type == "tensor(uint8)" and len(inputs[0].shape) == 3
    sides = inputs[0].shape[1:] if fits else []
    if not fits or any(isinstance(side, int) and side != 28 for side in sides):
        raise InvalidInput(f"{name} takes {given or 'no input'}", CONTRACT)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
