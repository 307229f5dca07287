"""Which test part a figure is of, in a short text: the set of its items, whatever their order and
their file's name; and how many items one needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

LEAST_ITEMS = 10
"""Fewer test items that a model has not seen are no basis for a figure or a comparison."""

_MOST = 0.5
"""Share of a test part's items from which it is still the earlier one, grown."""

KEPT, DIGITS = 32, 12
"""Least hashes of the items that are kept, and hexadecimal digits of each."""


def sketch(keys: "np.ndarray") -> str:
    """Return the number of different items and their least hashes: a sample that is the same
    wherever the items are.

    Args:
        keys: A hash of each item, uint64 [n].
    """
    import numpy as np

    from podium.data.near import mix

    different = np.unique(mix(keys, 7))
    return f"{len(different)}:" + "".join(
        f"{key:016x}"[:DIGITS] for key in different[:KEPT].tolist()
    )


def mostly(earlier: str, now: str) -> bool:
    """Return whether about most items of a test part were in an earlier one (Broder 1997:
    resemblance by least hashes); of texts that are no sketches, whether they are equal."""
    parts = [_read(text) for text in (earlier, now)]
    if not all(parts):
        return earlier == now
    (before, of_before), (after, of_after) = parts  # type: ignore[misc]
    least = sorted(of_before | of_after)[:KEPT]
    alike = sum(key in of_before and key in of_after for key in least) / len(least)
    return alike / (1 + alike) * (before + after) / after >= _MOST


def _read(text: str) -> tuple[int, set[str]] | None:
    count, colon, keys = text.partition(":")
    if not colon or not count.isdecimal() or not int(count):
        return None
    return int(count), {keys[at : at + DIGITS] for at in range(0, len(keys), DIGITS)}
