"""A version as a model repository of Triton Inference Server: NAME/config.pbtxt and
NAME/1/model.onnx."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import InvalidInput
from podium.models.export_mlflow import GRAPH, graph_of
from podium.models.version import Version

if TYPE_CHECKING:
    from podium.scoring.model import Tensor

_TYPES = {
    "float32": "TYPE_FP32", "float64": "TYPE_FP64", "float16": "TYPE_FP16", "uint8": "TYPE_UINT8", "int8": "TYPE_INT8",
    "uint16": "TYPE_UINT16", "int16": "TYPE_INT16", "uint32": "TYPE_UINT32", "int32": "TYPE_INT32",
    "uint64": "TYPE_UINT64", "int64": "TYPE_INT64", "bool": "TYPE_BOOL", "object": "TYPE_STRING",
    "tensor(bfloat16)": "TYPE_BF16",
}  # fmt: skip
"""Triton's data types by those of a Tensor."""

_MOST_ROWS = 1024
"""Rows of a batch at most, as `podium serve` has it."""


def write(version: Version, directory: Path) -> None:
    """Write the repository.

    Raises:
        InvalidInput: It is not an ONNX graph, or takes or returns what Triton has no type for.
    """
    graph = graph_of(version, "triton")
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.dtype not in _TYPES:
            raise InvalidInput(
                f"{version.title} has {tensor.name} of {tensor.dtype}, but Triton serves tensors of plain types only",
                'leave maps out when it is made: skl2onnx.to_onnx(…, options={"zipmap": False})',
            )
    content = version.read(GRAPH)
    numbered = directory / version.name / "1"
    numbered.mkdir(parents=True)
    (numbered / GRAPH).write_bytes(content)
    (numbered.parent / "config.pbtxt").write_text(
        _config(version.name, graph.inputs, graph.outputs)
    )


def _config(name: str, inputs: Sequence["Tensor"], outputs: Sequence["Tensor"]) -> str:
    batched = all(tensor.shape[:1] == (None,) for tensor in (*inputs, *outputs))
    lines = [f"name: {json.dumps(name)}", 'backend: "onnxruntime"', 'platform: "onnxruntime_onnx"']
    lines.append(f"max_batch_size: {_MOST_ROWS if batched else 0}")
    for side, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            lines += [f"{side} {{", *_tensor(tensor, batched), "}"]
    return "\n".join([*lines, *(["dynamic_batching { }"] if batched else [])]) + "\n"


def _tensor(tensor: "Tensor", batched: bool) -> Iterable[str]:
    """Yield the fields of an input or output; with batches Triton itself has the first axis."""
    sizes = [-1 if size is None else size for size in tensor.shape[1 if batched else 0 :]]
    # json escapes what text format escapes, once everything beyond ASCII is UTF-8 as it is.
    yield f"  name: {json.dumps(tensor.name, ensure_ascii=False)}"
    yield f"  data_type: {_TYPES[tensor.dtype]}"
    yield f"  dims: [ {', '.join(map(str, sizes or [1]))} ]"
    if not sizes:
        yield "  reshape { shape: [ ] }"
