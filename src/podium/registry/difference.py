"""What changes from one model to another, picture by picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import require
from podium.registry.rule import compare

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A picture that only one of two models has right."""

    picture: int
    """Its place in the test part."""

    label: str
    """What it shows."""

    before: str
    """What the first model says."""

    after: str
    """What the second model says."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two models on the same pictures."""

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
        InvalidInput: The three are not of the same pictures.
    """
    import numpy as np

    require(
        truth.shape == before.shape == after.shape and truth.ndim == 1,
        "both models saw the same pictures",
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
    """Return the most frequent confusions: label, taken_for, images and their share of the label's pictures.

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
