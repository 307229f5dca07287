"""Export a network as ONNX.

Our networks have a dozen kinds of layers, written here in 0.15 s of CPU, the import of onnx
included: torch.onnx.export takes 6.5 s, several times a short trial, and needs onnxscript. A layer
that is not known here goes through its older exporter (dynamo=False), which takes 0.3 to 0.5 s and
is deprecated. Every export is compared with torch on real items before it counts
(`podium.trainer.output`).
"""

import contextlib
import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from podium.errors import Failed
from podium.trainer.fitted import OPSET, to_onnx
from podium.trainer.models import Columns, Mirrored, Normalize, Residual, Standardize, Unscale
from podium.trainer.task import Task

if TYPE_CHECKING:
    from onnx import NodeProto

FLOAT = 1  # onnx.TensorProto.FLOAT, without the import


class _UnknownLayer(Exception):
    """A kind of layer that this module cannot write."""


class _Graph:
    """Nodes and weights under construction."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        from onnx import helper

        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def weight(self, value: Tensor | float | list[int]) -> str:
        """Store a constant and return its name."""
        name = f"weight_{len(self.weights)}"
        if isinstance(value, Tensor):
            self.weights[name] = value.detach().cpu().contiguous().numpy()
        else:
            self.weights[name] = np.array(
                value, np.int64 if isinstance(value, list) else np.float32
            )
        return name

    def weights_of(self, *tensors: Tensor | None) -> list[str]:
        """Store those tensors of a layer that it has."""
        return [self.weight(tensor) for tensor in tensors if tensor is not None]

    def layer(self, module: nn.Module, value: str) -> str:
        """Append a layer, or all layers of a Sequential.

        Raises:
            UnknownLayer: There is no function for it here.
        """
        match module:
            case nn.Sequential():
                for child in module:
                    value = self.layer(child, value)
                return value
            case nn.Dropout() | nn.Dropout2d() | nn.Identity():
                return value  # training only
            case nn.ReLU():
                return self.add("Relu", value)
            case nn.Flatten():
                return self.add("Flatten", value, axis=1)
            case Residual():
                return self.add("Add", value, self.layer(module.layers, value))
            case Mirrored():
                return self.mirrored(module, value)
            case Columns():
                return self.columns(module, value)
            case Standardize():
                value = self.add("Flatten", self.add("Cast", value, to=FLOAT), axis=1)
                return self.affine(value, module.scale, module.shift)
            case Unscale():
                return self.affine(value, module.std, module.mean)
            case Normalize():
                return self.normalize(module, value)
            case nn.BatchNorm2d():
                weights = self.weights_of(
                    module.weight, module.bias, module.running_mean, module.running_var
                )
                return self.add("BatchNormalization", value, *weights, epsilon=module.eps)
            case nn.Conv2d():
                assert not isinstance(module.padding, str)
                return self.add(
                    "Conv",
                    value,
                    *self.weights_of(module.weight, module.bias),
                    group=module.groups,
                    kernel_shape=_pair(module.kernel_size),
                    strides=_pair(module.stride),
                    pads=_pair(module.padding) * 2,
                )
            case nn.Linear():
                return self.add(
                    "Gemm", value, *self.weights_of(module.weight, module.bias), transB=1
                )
            case nn.MaxPool2d():
                return self.add(
                    "MaxPool",
                    value,
                    kernel_shape=_pair(module.kernel_size),
                    strides=_pair(module.stride),
                )
        raise _UnknownLayer(type(module).__name__)

    def affine(self, value: str, scale: Tensor | float, shift: Tensor | float) -> str:
        """Append a product and a sum."""
        return self.add("Add", self.add("Mul", value, self.weight(scale)), self.weight(shift))

    def normalize(self, module: Normalize, value: str) -> str:
        """Append pixels [n, h, w] or [n, h, w, c] -> float [n, c, h, w]."""
        value = self.add("Cast", value, to=FLOAT)
        if module.has_channels:
            value = self.add("Transpose", value, perm=[0, 3, 1, 2])
        else:
            value = self.add("Unsqueeze", value, self.weight([1]))
        return self.affine(value, module.scale, module.shift)

    def columns(self, module: Columns, value: str) -> str:
        """Append a table [n, columns] -> float [n, features]."""
        value, parts = self.add("Cast", value, to=FLOAT), []
        if len(module.numbers):
            numbers = self.add("Gather", value, self.weight(module.numbers), axis=1)
            numbers = self.add("Sub", numbers, self.weight(module.mean))
            parts.append(self.add("Mul", numbers, self.weight(module.scale)))
        if len(module.codes):
            categories = self.add("Gather", value, self.weight(module.categories), axis=1)
            equal = self.add("Equal", categories, self.weight(module.codes))
            parts.append(self.add("Cast", equal, to=FLOAT))
        return self.add("Concat", *parts, axis=1)

    def mirrored(self, module: Mirrored, value: str) -> str:
        """Append layers that take images and mirror images as one batch, and the mean of their two
        outputs."""
        last = module.layers[-1]
        if not isinstance(last, nn.Linear):
            raise _UnknownLayer(type(last).__name__)
        start, end, axis, step = (self.weight([number]) for number in (-1, -(2**31), 3, -1))
        both = self.add("Concat", value, self.add("Slice", value, start, end, axis, step), axis=0)
        outputs = self.add(
            "Reshape", self.layer(module.layers, both), self.weight([2, -1, last.out_features])
        )
        return self.add("ReduceMean", outputs, axes=[0], keepdims=0)


def export(model: nn.Sequential, task: Task) -> bytes:
    """Return the network as an ONNX file.

    Args:
        model: Takes items of the dataset's input; its evaluation behavior is written.
        task: Names input and output.

    Returns:
        A model with the dataset's input as it is stored, and an output ``logits`` or ``values``
        float32 [n, outputs].

    Raises:
        Failed: torch cannot write a layer that is not known here.
    """
    try:
        return _write(model, task)
    except _UnknownLayer:
        return _export_with_torch(model, task)


def _export_with_torch(model: nn.Module, task: Task) -> bytes:
    """Return what torch's exporter makes of a network; for layers that `_write` does not know."""
    buffer: Any = io.BytesIO()  # typed as a path, but the older exporter takes files
    items = torch.from_numpy(np.zeros((2, *task.info.shape), task.info.dtype))
    axes = {task.input: {0: "n"}, task.output: {0: "n"}}
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):  # it prints the graph when it fails
        warnings.simplefilter(
            "ignore"
        )  # dynamo=False is deprecated, but dynamo=True needs onnxscript
        try:
            torch.onnx.export(
                model,
                (items,),
                buffer,
                dynamo=False,
                opset_version=OPSET,
                input_names=[task.input],
                output_names=[task.output],
                dynamic_axes=axes,
            )
        except (RuntimeError, ValueError) as error:  # OnnxExporterError is a RuntimeError
            raise Failed(
                f"torch cannot write this network as ONNX: {str(error).splitlines()[0][:200]}",
                "choose another --model",
            ) from error
    return buffer.getvalue()


def _write(model: nn.Sequential, task: Task) -> bytes:
    """Return the network as ONNX, as `export` does.

    Raises:
        UnknownLayer: It has a layer that is not known here.
    """
    from onnx import helper

    graph = _Graph()
    with torch.no_grad():
        last = graph.layer(model, task.input)
    graph.nodes.append(helper.make_node("Identity", [last], [task.output]))
    return to_onnx(task, graph.nodes, graph.weights)


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)
