"""Counts values of categories that the training part does not have: what a model says of such rows
may mean little."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from podium.data.preprocessing import Preprocessing, TablePreprocessing
from podium.data.preprocessing.table import MISSING, UNKNOWN
from podium.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 0.05
"""Share of a column's values up to which nothing is said: a new category now and then is no
fault."""

NAMED = 5
"""Known values that a sentence names."""


class UnknownValues:
    """Values that the training part does not have, by column, of the rows that it is shown.

    Args:
        recipe: How rows become inputs; pictures and sentences have no categories.
    """

    def __init__(self, recipe: Preprocessing | None) -> None:
        self.rows = 0
        """Rows so far."""

        self.counts: Counter[str] = Counter()
        """Unknown values so far, by column."""

        self._input, self._known, place = "", dict[str, tuple[int, tuple[str, ...]]](), 0
        for column in recipe.columns if isinstance(recipe, TablePreprocessing) else ():
            if column.categories:
                self._known[column.name] = place, column.categories
            place += len(column.names)
        if isinstance(recipe, TablePreprocessing):
            self._input = recipe.input

    def add(self, inputs: "Mapping[str, NDArray[Any]]") -> None:
        """Count those of further rows, which have become inputs."""
        if not self._known or self._input not in inputs:
            return
        table = inputs[self._input]
        self.rows += len(table)
        for name, (place, categories) in self._known.items():
            self.counts[name] += int((table[:, place] == categories.index(UNKNOWN)).sum())

    @property
    def many(self) -> dict[str, int]:
        """Unknown values of the columns that have more than a few per cent of them."""
        return {name: count for name, count in self.counts.items() if count > MOST * self.rows}

    def sentences(self) -> list[str]:
        """Return a sentence for each of these columns."""
        return [self._sentence(name, count) for name, count in self.many.items()]

    def _sentence(self, name: str, count: int) -> str:
        _, categories = self._known[name]
        known = [value for value in categories if value not in (MISSING, UNKNOWN)]
        named = ", ".join(map(repr, known[:NAMED])) + (" …" if len(known) > NAMED else "")
        total = plural(self.rows, "value")
        return f"column {name}: {count:,} of {total} did not occur in training, which knows {named}"
