"""Base of the models of scikit-learn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.split import Split
from podium.errors import InvalidInput

Array = NDArray[Any]

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
