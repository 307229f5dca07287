"""Form for trying a model: a drawing, a picture, the columns of a row, a sentence."""

from dataclasses import dataclass
from typing import Self

from podium.data.preprocessing import ImagePreprocessing, TablePreprocessing
from podium.data.preprocessing.table import TableColumn
from podium.data.profile import MISSING, UNKNOWN
from podium.prediction import Predictor


@dataclass(frozen=True, kw_only=True)
class Form:
    """Form for the items of a model."""

    kind: str
    """``image``, ``table`` or ``text``."""

    draws: bool = False
    """Whether a picture may be drawn with the mouse: of a digit."""

    columns: tuple[TableColumn, ...] = ()
    """Columns of a row."""

    @classmethod
    def of(cls, predictor: Predictor) -> Self | None:
        """Return the form of a model; None where it does not say how raw items become its inputs.

        Raises:
            PodiumError: What it says cannot be read.
        """
        recipe = predictor.preprocessing
        if recipe is None:
            return None
        if isinstance(recipe, ImagePreprocessing):
            return cls(kind="image", draws=recipe.recipe == "digit")
        if isinstance(recipe, TablePreprocessing):
            return cls(kind="table", columns=recipe.columns)
        return cls(kind="text")

    @staticmethod
    def choices(column: TableColumn) -> list[str]:
        """Return the values that a category had in training."""
        return [value for value in column.categories if value not in (MISSING, UNKNOWN)]
