"""Models written by hand as ONNX: their answers follow from arithmetic."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from podium.scoring import OnnxModel, Scores, score_predictions

DIGIT = {"kind": "image", "input": "images", "recipe": "digit", "size": [28, 28], "channels": 1}
SHAPES = {**DIGIT, "classes": ["wide", "tall"]}
CATEGORIES = ["red", "green", "(missing)", "(unknown)"]
FIELDS = [
    {"name": "x", "kind": "number", "type": "number", "fill": 5.0},
    {"name": "color", "kind": "category", "type": "text", "categories": CATEGORIES},
]
TABLE: dict[str, Any] = {"kind": "table", "columns": FIELDS, "classes": ["low", "high"]}


def score(
    model: bytes | Path,
    inputs: Mapping[str, np.ndarray],
    target: np.ndarray,
    *,
    classes: int | None,
    predictions: Path | None = None,
) -> Scores:
    """Measure a model, as an evaluation does."""
    opened = OnnxModel(model)
    result = opened.predict(inputs, classes=classes, target=predictions)
    return score_predictions(result, target, classes=classes, name=opened.name)


def npy(array: np.ndarray) -> bytes:
    """Return what numpy writes to a file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def save(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, list[Any]]],
    output: str,
    width: int | str,
    *tensors: Any,
) -> bytes:
    taken = [
        helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()
    ]
    given = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", width])]
    graph = helper.make_graph(list(nodes), "model", taken, given, list(tensors))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def shapes_model(batch: int | str = "n") -> bytes:
    """Is the ink of a picture wide (class 0) or tall (class 1)?"""
    y, x = np.mgrid[:28, :28] - 14.0
    tall = ((y**2 - x**2) / 5000).reshape(784, 1)
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["float"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    weights = numpy_helper.from_array(
        np.concatenate([-tall, tall], 1).astype(np.float32), "weights"
    )
    return save(nodes, {"images": (TensorProto.UINT8, [batch, 28, 28])}, "logits", 2, weights)


def rows_model() -> bytes:
    """A model of rows: logits (-x, x + 100 * color)."""
    weights = numpy_helper.from_array(np.array([[-1, 1], [0, 100]], np.float32), "weights")
    node = helper.make_node("MatMul", ["table", "weights"], ["logits"])
    return save([node], {"table": (TensorProto.FLOAT, ["n", 2])}, "logits", 2, weights)
