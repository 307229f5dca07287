"""Preprocessed batches, and how preprocessing is stored."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from podium.data.rows import Problem
from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The inputs of a model for those items of a batch that could be read."""

    kept: NDArray[np.int64]
    """[m], positions in the batch, ascending."""

    inputs: Mapping[str, NDArray[Any]]
    """By name, each [m, …]."""

    problems: tuple[Problem, ...] = ()
    """Problems of the items that could not be read, in order."""

    def check(self, hint: str | None = None) -> "Applied":
        """Return it, unless something could not be read.

        Raises:
            InvalidInput: It names the first problem.
        """
        if self.problems:
            more = f" ({len(self.problems)} like this here)" if len(self.problems) > 1 else ""
            raise InvalidInput(f"{self.problems[0]}{more}", hint)
        return self


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Preprocessing that is stored with a dataset and with the models trained on it."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``preprocessing.json`` holds."""
        return cast(dict[str, Any], json.loads(json.dumps(asdict(self))))
