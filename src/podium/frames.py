"""pandas, which the API needs for tables only: the extra ``notebook``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.errors import PodiumError

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "DataFrame":
    """Return rows as a DataFrame.

    Raises:
        PodiumError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise PodiumError(
            "a table as a DataFrame needs pandas", "pip install 'podium-ml[notebook]'"
        ) from error
    return pandas.DataFrame(list(rows), columns=list(columns))


def number(text: str) -> float | int | str | None:
    """Convert Kubernetes' text to a number; other text stays, and empty text is None."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
