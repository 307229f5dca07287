"""Look at a dataset: everything measured again from the arrays, a few megabytes at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import blocks, mean_and_std
from podium.data.schema import PARTS, Array, DatasetInfo, InputInfo

if TYPE_CHECKING:
    from podium.data.split import Split

BINS = 16
"""Bars of a histogram, from the smallest number to the largest."""

Read = Callable[[], Iterator[Array]]
"""Yields blocks; called once for each pass over the data."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Statistics of numeric columns, one entry per column."""

    min: list[float]
    max: list[float]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    histograms: list[list[int]]
    """Counts from the smallest to the largest value, or of each category."""

    def moved(self, by: Sequence[float]) -> "Numbers":
        """Return what they are of columns to each of which a number is added."""
        low, high, mean = (
            [value + more for value, more in zip(of, by, strict=True)]
            for of in (self.min, self.max, self.mean)
        )
        return replace(self, min=low, max=high, mean=tuple(mean))


def statistics(info: DatasetInfo, load: "Callable[[str], Split]") -> dict[str, Any]:
    """Read every part of a dataset and measure it.

    Args:
        load: Returns the part of a name, verified.

    Returns:
        ``dataset.json`` without its files, and in ``parts`` for each part ``count``, ``bytes``,
        ``class_counts``, ``inputs`` by name and ``target``. An input has lists ``min``, ``max``,
        ``mean`` and ``std``: a number for each channel of an image (mean and std of uint8 pixels
        scaled to 0..1) or column of a table, else one; ``histograms`` of a table and an array, of a
        category one count for each; ``lengths`` of tokens. ``train+validation`` has the sums of
        both, and of images mean and std, since published ones are those of both.
    """
    parts = {name: _measure(load(name), info) for name in PARTS}
    parts["train+validation"] = _merge(parts["train"], parts["validation"], info)
    facts = {key: value for key, value in info.to_json().items() if key != "parts"}
    return {**facts, "parts": parts}


def _measure(part: "Split", info: DatasetInfo) -> dict[str, Any]:
    measured: dict[str, Any] = {
        "count": len(part),
        "bytes": sum(array.nbytes for array in (*part.inputs.values(), part.target)),
        "class_counts": [],
        "inputs": {
            name: measure_input(partial(blocks, part.inputs[name]), described)
            for name, described in info.inputs.items()
        },
        "target": {},
    }
    if info.kind == "classification":
        counts = (np.bincount(block, minlength=len(info.classes)) for block in blocks(part.target))
        measured["class_counts"] = sum(counts, np.zeros(len(info.classes), np.int64)).tolist()
    else:
        measured["target"] = vars(target_numbers(part))
    return measured


def target_numbers(part: "Split") -> Numbers:
    """Measure the target of a regression."""
    return _measure_numbers(
        lambda: (block.reshape(len(block), -1) for block in blocks(part.target))
    )


def _merge(first: dict[str, Any], second: dict[str, Any], info: DatasetInfo) -> dict[str, Any]:
    """Add up two measured parts; of inputs, only images have what both together have."""
    share = first["count"] / (first["count"] + second["count"])
    inputs = {}
    for name, described in info.inputs.items():
        if described.meaning == "image":
            mine, theirs = (
                {key: np.array(value) for key, value in part["inputs"][name].items()}
                for part in (first, second)
            )
            mean = share * mine["mean"] + (1 - share) * theirs["mean"]
            square = share * (mine["std"] ** 2 + mine["mean"] ** 2) + (1 - share) * (
                theirs["std"] ** 2 + theirs["mean"] ** 2
            )
            inputs[name] = {
                "min": np.minimum(mine["min"], theirs["min"]).tolist(),
                "max": np.maximum(mine["max"], theirs["max"]).tolist(),
                "mean": mean.tolist(),
                "std": np.sqrt(square - mean**2).tolist(),
            }
    counts = [sum(pair) for pair in zip(first["class_counts"], second["class_counts"], strict=True)]
    return {
        "count": first["count"] + second["count"],
        "bytes": first["bytes"] + second["bytes"],
        "class_counts": counts,
        "inputs": inputs,
        "target": {},
    }


def measure_input(read: Read, described: InputInfo) -> dict[str, Any]:
    """Measure an input of a part.

    Returns:
        What `statistics` describes.
    """
    if described.meaning == "image":
        mean, std = mean_and_std(read(), "image")
        low, high = _extremes(read, len(mean))
        return {"min": low.tolist(), "max": high.tolist(), "mean": mean, "std": std}
    numbers = vars(input_numbers(read, described))
    if described.meaning == "tokens":
        low, high = _extremes(read, 1)
        return {"min": low.tolist(), "max": high.tolist(), "lengths": numbers}
    return numbers


def input_numbers(read: Read, described: InputInfo) -> Numbers:
    """Measure the columns of a table, the lengths of tokens, or all values of an array as one
    column."""
    if described.meaning == "table":
        numbers = _measure_numbers(read, [len(column.categories) for column in described.columns])
        return numbers.moved([column.center for column in described.columns])
    if described.meaning == "tokens":
        return _measure_numbers(
            lambda: (np.count_nonzero(block, axis=1)[:, None] for block in read())
        )
    return _measure_numbers(lambda: (block.reshape(-1, 1) for block in read()))


def _measure_numbers(read: Read, categories: Sequence[int] = ()) -> Numbers:
    """Measure columns.

    Args:
        read: Yields blocks [n, columns].
        categories: How many categories each column has, 0 for numbers; empty if all are numbers.
    """
    mean, std = mean_and_std(read(), "table")
    low, high = _extremes(read, len(mean))
    whole = np.all([(block == np.rint(block)).all(0) for block in read()], axis=0)
    bins, ranges = [], []
    for at in range(len(mean)):
        first, last = float(low[at]), float(high[at])
        if categories and categories[at]:
            first, last = 0.0, categories[at] - 1.0
        each = bool(whole[at]) and (
            last - first < BINS or bool(categories and categories[at])
        )  # a bar for each number
        bins.append(int(last - first) + 1 if each else BINS)
        ranges.append((first - 0.5, last + 0.5) if each else (first, last))
    histograms = [np.zeros(count, np.int64) for count in bins]
    for block in read():
        for at, histogram in enumerate(histograms):
            histogram += np.histogram(block[:, at].astype(np.float64), bins[at], ranges[at])[0]
    return Numbers(
        min=low.tolist(),
        max=high.tolist(),
        mean=mean,
        std=std,
        histograms=[histogram.tolist() for histogram in histograms],
    )


def _extremes(read: Read, columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest value of each column or channel, the last axis."""
    rows = (block.reshape(-1, columns) for block in read())
    low, high = zip(*((row.min(0), row.max(0)) for row in rows), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)
