"""Two models on the same images: McNemar's test, accuracy by class, and the images that changed sides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import require

if TYPE_CHECKING:
    import numpy as np


def compare(truth: "np.ndarray", right: "np.ndarray", before: "np.ndarray") -> dict[str, Any]:
    """Count what changes from one model to another.

    Args:
        truth: Classes, integers ``[n]``.
        right: Where the new model is right, bool ``[n]``.
        before: Where the old model is right, bool ``[n]``.

    Returns:
        champion_accuracy, only_challenger_right, only_champion_right, p_value (exact McNemar, two-sided) and classes:
        the images, accuracy, champion_accuracy and change of each class.
    """
    import numpy as np

    gained, lost = int((right & ~before).sum()), int((before & ~right).sum())
    classes = {}
    for label in np.unique(truth):
        here = truth == label
        new, old = float(right[here].mean()), float(before[here].mean())
        classes[str(label)] = {
            "images": int(here.sum()),
            "accuracy": new,
            "champion_accuracy": old,
            "change": round(new - old, 12),
        }
    return {
        "champion_accuracy": float(before.mean()),
        "only_challenger_right": gained,
        "only_champion_right": lost,
        "p_value": mcnemar(gained, lost),
        "classes": classes,
    }


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p value of McNemar's test.

    Args:
        gained: Images that only the new model has right.
        lost: Images that only the old model has right.
    """
    # Exact, in integers; tests compare it with scipy.stats, which takes a second to import.
    # Each binomial coefficient follows from the one before: math.comb would take minutes for 50,000 flips.
    sides = gained + lost
    term = tail = 1
    for count in range(min(gained, lost)):
        term = term * (sides - count) // (count + 1)
        tail += term
    return min(1.0, 2 * tail / 2**sides)


def p_words(p_value: float) -> str:
    """Format a p value; one too small for a float is not shown as 0."""
    return f"p = {p_value:.3g}" if p_value else "p < 1e-300"


@dataclass(frozen=True, kw_only=True)
class Flip:
    """An image that only one of two models has right."""

    picture: int
    """Its index in the test part."""

    label: str
    """Its class."""

    before: str
    """What the first model predicts."""

    after: str
    """What the second model predicts."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two models on the same images."""

    figures: Mapping[str, Any]
    """As in a Decision: accuracy is the second's, champion_accuracy the first's; counts, p_value, classes."""

    gained: tuple[Flip, ...]
    """Wrong before, right after."""

    lost: tuple[Flip, ...]
    """Right before, wrong after."""


def difference(truth: "np.ndarray", before: "np.ndarray", after: "np.ndarray", classes: Sequence[str]) -> Difference:
    """Compare two models.

    Args:
        truth: The labels, integers ``[n]``.
        before: What the first predicts, integers ``[n]``.
        after: What the second predicts, integers ``[n]``.
        classes: Names of the classes.

    Raises:
        InvalidInput: The three differ in length.
    """
    import numpy as np

    require(
        truth.shape == before.shape == after.shape and truth.ndim == 1,
        "labels and both predictions have the same length",
        labels=truth.shape,
        first=before.shape,
        second=after.shape,
    )
    was, is_ = before == truth, after == truth
    figures = {"images": len(truth), "accuracy": float(is_.mean()), **compare(truth, is_, was)}
    figures["classes"] = {classes[int(label)]: change for label, change in figures["classes"].items()}

    def flips(where: "np.ndarray") -> tuple[Flip, ...]:
        return tuple(
            Flip(
                picture=int(at),
                label=classes[int(truth[at])],
                before=classes[int(before[at])],
                after=classes[int(after[at])],
            )
            for at in np.flatnonzero(where)
        )

    return Difference(figures=figures, gained=flips(is_ & ~was), lost=flips(was & ~is_))


def confused_pairs(confusion: Sequence[Sequence[int]], classes: Sequence[str], most: int = 5) -> list[dict[str, Any]]:
    """Return the most frequent confusions: label, taken_for, images and their share of the label's images.

    Args:
        confusion: [classes, classes]: rows are the true class, columns the predicted one.
        classes: Their names.
        most: How many.
    """
    pairs: list[dict[str, Any]] = [
        {"label": classes[row], "taken_for": classes[column], "images": count, "share": count / sum(counts)}
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(pairs, key=lambda pair: -pair["images"])[:most]
