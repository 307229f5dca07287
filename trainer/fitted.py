"""Base of the models of scikit-learn, and how every model is put into a model.onnx."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.split import Split
from podium.errors import InvalidInput
from podium.trainer.task import Task

Array = NDArray[Any]

OPSET = 17
"""Old enough for every runtime in use, new enough for every node here."""

NO_ITEMS = -20.0
"""Logit of a class that the training part does not have."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted model."""

    onnx: bytes

    validation: Array
    """float64 [n, outputs]: its logits or values of the validation part."""

    facts: Mapping[str, Any]
    """What environment.json says of it."""


def classes_of(train: Split, validation: Split) -> Array:
    """Return the classes that the training part has, in order.

    Raises:
        InvalidInput: It has one alone, or the validation part none of them.
    """
    present = np.unique(train.target)
    if len(present) < 2:
        raise InvalidInput(
            f"a model learns two classes or more, but the training part has {len(present)}",
            "more data, or another split",
        )
    if not np.isin(validation.target, present).any():
        raise InvalidInput(
            "the validation part has no item of a class that the training part has",
            "another split: --option split=stratified",
        )
    return present


def to_onnx(
    learned: Task, nodes: Sequence[Any], constants: Mapping[str, Array], *, opset_ml: int = 0
) -> bytes:
    """Return a model that takes the input as it is stored and gives float32 [n, outputs].

    Args:
        nodes: Lead from the input, by its name, to the output, by its name.
        constants: What they use besides, by name.
        opset_ml: Version of ai.onnx.ml, where they have operators of it.
    """
    from onnx import TensorProto, helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(learned.info.dtype))
    items = helper.make_tensor_value_info(learned.input, kind, ["n", *learned.info.shape])
    shape: list[Any] = ["n", learned.outputs]
    outputs = helper.make_tensor_value_info(learned.output, TensorProto.FLOAT, shape)
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    body = helper.make_graph(nodes, "podium", [items], [outputs], stored)
    opsets = [helper.make_opsetid("", OPSET)]
    if opset_ml:
        opsets.append(helper.make_opsetid("ai.onnx.ml", opset_ml))
    version = 10 if opset_ml else 8
    model = helper.make_model(
        body, opset_imports=opsets, ir_version=version, producer_name="podium"
    )
    return bytes(model.SerializeToString())
