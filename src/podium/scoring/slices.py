"""A metric by the values of a column, and where a model is worse by more than chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from podium.display.text import brief
from podium.errors import InvalidInput
from podium.scoring.comparison import Comparison, compare
from podium.scoring.families import Array, Metric, unit_count
from podium.scoring.intervals import figure_interval, numbered

LEAST_OF_SLICE = 20
"""Items, or groups, of which a slice is judged: McNemar's p is below .05 with 6 lost of them."""

_MOST_NUMBERS = 12
"""A column of more different numbers is cut at its quartiles."""

_LEVEL = 0.05
_MISSING = "(missing)"


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The items that share a value of a column."""

    name: str
    items: int
    value: float | None = None
    """The metric's; None where it is not defined here."""

    interval: tuple[float, float] | None = None
    """95 % interval of it."""

    compared: Comparison | None = None
    """With another model; None without one, and where there is no p value."""

    p_value: float | None = None
    """Two-sided, after Holm's correction for all slices that are judged."""

    why: str = ""
    """Why it is not judged, or p not reliable."""

    @property
    def worse(self) -> bool:
        """Whether the first model is worse here by more than chance."""
        return bool(self.compared and self.compared.worse and (self.p_value or 0) <= _LEVEL)

    @property
    def loss(self) -> float:
        """Loss of the first model against the second."""
        if self.compared is None:
            return 0.0
        change = self.compared.difference
        return -change if self.compared.metric.maximize else change

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "slice": self.name,
            "items": self.items,
            "value": self.value,
            "value_interval": list(self.interval) if self.interval else None,
            "champion_value": self.compared.second if self.compared else None,
            "p_value": self.p_value,
            "why": self.why,
        }


def slices(
    metric: Metric,
    names: Array,
    target: Array,
    first: Array,
    second: Array | None = None,
    groups: Array | None = None,
) -> list[Slice]:
    """Measure a model in each slice, and compare it there with a second one.

    Args:
        names: The slice of each item [n], see slice_names.
        groups: Which items count together, as in compare.

    Returns:
        Those that are judged first: the ones that are worse, then by their loss, the largest first.
    """
    different, place = np.unique(names, return_inverse=True)
    found = []
    ends = np.cumsum(np.bincount(place))
    for name, here in zip(
        different, np.split(np.argsort(place, kind="stable"), ends), strict=False
    ):
        one = Slice(name=str(name), items=len(here))
        other = None if second is None else second[here]
        mates = None if groups is None else groups[here]
        level = _LEVEL / len(different)
        found.append(_measured(one, metric, target[here], first[here], other, mates, level))
    judged = sorted((one for one in found if one.compared), key=lambda one: one.p_value or 0.0)
    corrected = _holm([one.p_value or 0.0 for one in judged])
    held = [replace(one, p_value=p_value) for one, p_value in zip(judged, corrected, strict=True)]
    held.sort(key=lambda one: (not one.worse, -one.loss))
    return [*held, *sorted((one for one in found if not one.compared), key=lambda one: -one.items)]


def _measured(
    found: Slice,
    metric: Metric,
    target: Array,
    first: Array,
    second: Array | None,
    groups: Array | None,
    level: float,
) -> Slice:
    groups = numbered(groups, len(target))
    try:
        value = metric.defined_value(target, first)
        interval = figure_interval(metric, target, first, groups)
        found = replace(found, value=value, interval=interval)
        if unit_count(len(target), groups) < LEAST_OF_SLICE:
            return replace(found, why=f"fewer than {LEAST_OF_SLICE} items or groups")
        if second is None:
            return found
        compared = compare(metric, target, first, second, groups, level)
    except InvalidInput as error:  # such as one class alone, of which there is no roc_auc
        return replace(found, why=error.message)
    if compared.p_value is None:
        return replace(found, why=compared.why or "no p value")
    return replace(found, compared=compared, p_value=compared.p_value, why=compared.doubt)


def _holm(p_values: Sequence[float]) -> Iterator[float]:
    """Yield p values, given in ascending order, corrected for their number (Holm 1979)."""
    most = 0.0
    for at, p_value in enumerate(p_values):
        most = max(most, min(1.0, p_value * (len(p_values) - at)))
        yield most


def slice_names(values: Array) -> Array:
    """Return the slice of each item: its text, or its number, or between which quartiles it is.

    Args:
        values: [n], texts with None where a value is missing, or floats with NaN.
    """
    if values.dtype.kind != "f":
        return np.array([_MISSING if text is None else text for text in values], np.str_)
    finite = values[np.isfinite(values)]
    different = np.unique(finite)
    if len(different) <= _MOST_NUMBERS:
        texts = [f"{number:.15g}" if np.isfinite(number) else _MISSING for number in values]
        return np.array(texts, np.str_)
    cuts = np.unique(np.quantile(finite, (0.25, 0.5, 0.75)))
    words = [brief(cut) for cut in cuts]
    if len(set(words)) < len(words):
        words = [f"{cut:.15g}" for cut in cuts]
    between = [f"{low} to {high}" for low, high in pairwise(words)]
    names = np.array([f"up to {words[0]}", *between, f"above {words[-1]}"])
    return np.where(np.isfinite(values), names[np.searchsorted(cuts, values)], _MISSING)
