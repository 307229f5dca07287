"""Export a network as ONNX.

Our networks have a dozen kinds of layers, written by one small function each: torch.onnx.export with dynamo takes 8 s a
model on 2 cores, several times a short trial. A layer that is not known here goes through torch's older exporter.
Every export is compared with torch on real images before it counts (`podium.trainer.output`).
"""

import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from podium.trainer.models import Mirrored, Normalize, Residual

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET = 17  # old enough for every runtime in use, new enough for every node here


class UnknownLayer(Exception):
    """A kind of layer that this module cannot write."""


class Graph:
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
            self.weights[name] = np.array(value, np.int64 if isinstance(value, list) else np.float32)
        return name

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
            case nn.BatchNorm2d():
                return self.normalization(module, value)
            case Normalize():
                return self.normalize(module, value)
            case nn.Conv2d():
                return self.convolution(module, value)
            case nn.Linear():
                weights = [self.weight(tensor) for tensor in (module.weight, module.bias) if tensor is not None]
                return self.add("Gemm", value, *weights, transB=1)
            case nn.MaxPool2d():
                return self.add("MaxPool", value, kernel_shape=_pair(module.kernel_size), strides=_pair(module.stride))
        raise UnknownLayer(type(module).__name__)

    def normalize(self, module: Normalize, value: str) -> str:
        """Append uint8 [n, 28, 28] -> float [n, 1, 28, 28]."""
        value = self.add("Unsqueeze", self.add("Cast", value, to=1), self.weight([1]))
        value = self.add("Mul", value, self.weight(module.scale))
        return self.add("Add", value, self.weight(module.shift))

    def mirrored(self, module: Mirrored, value: str) -> str:
        """Append layers that take images and mirror images as one batch, and the mean of their two outputs."""
        start, end, axis, step = (self.weight([number]) for number in (-1, -(2**31), 3, -1))
        both = self.add("Concat", value, self.add("Slice", value, start, end, axis, step), axis=0)
        last = module.layers[-1]
        assert isinstance(last, nn.Linear)
        outputs = self.add("Reshape", self.layer(module.layers, both), self.weight([2, -1, last.out_features]))
        return self.add("ReduceMean", outputs, axes=[0], keepdims=0)

    def normalization(self, module: nn.BatchNorm2d, value: str) -> str:
        """Append a batch normalization with its running statistics."""
        tensors = (module.weight, module.bias, module.running_mean, module.running_var)
        weights = [self.weight(tensor) for tensor in tensors if tensor is not None]
        return self.add("BatchNormalization", value, *weights, epsilon=module.eps)

    def convolution(self, module: nn.Conv2d, value: str) -> str:
        """Append a convolution."""
        weights = [self.weight(tensor) for tensor in (module.weight, module.bias) if tensor is not None]
        assert not isinstance(module.padding, str)
        return self.add("Conv", value, *weights, kernel_shape=_pair(module.kernel_size), group=module.groups,
                        strides=_pair(module.stride), pads=_pair(module.padding) * 2)  # fmt: skip


def export(model: nn.Sequential, classes: int) -> bytes:
    """Return the network as an ONNX file.

    Args:
        model: Takes uint8 [n, 28, 28]; its evaluation behavior is written.
        classes: Number of logits.

    Returns:
        A model with input ``images`` uint8 [n, 28, 28] and output ``logits`` float32 [n, classes].
    """
    try:
        return write(model, classes).SerializeToString()
    except UnknownLayer:
        return export_with_torch(model)


def export_with_torch(model: nn.Module) -> bytes:
    """Return what torch's exporter makes of a network; for layers that `write` does not know."""
    buffer: Any = io.BytesIO()  # typed as a path, but the older exporter takes files
    images = torch.zeros(2, 28, 28, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dynamo=False is deprecated, but dynamo=True needs onnxscript
        torch.onnx.export(model, (images,), buffer, dynamo=False, opset_version=OPSET, input_names=["images"],
                          output_names=["logits"], dynamic_axes={"images": {0: "n"}, "logits": {0: "n"}})  # fmt: skip
    return buffer.getvalue()


def write(model: nn.Sequential, classes: int) -> "ModelProto":
    """Return the network as ONNX, as `export` does.

    Raises:
        UnknownLayer: It has a layer that is not known here.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = Graph()
    with torch.no_grad():
        last = graph.layer(model, "images")
    graph.nodes.append(helper.make_node("Identity", [last], ["logits"]))
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 28, 28])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", classes])
    constants = [numpy_helper.from_array(value, name) for name, value in graph.weights.items()]
    body = helper.make_graph(graph.nodes, "podium", [images], [logits], constants)
    versions = [helper.make_opsetid("", OPSET)]
    return helper.make_model(body, opset_imports=versions, ir_version=8, producer_name="podium")


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)
