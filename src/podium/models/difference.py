"""A second version of a model against a first, on the test items that they share, as people look
at it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from podium.models.comparison import chosen_metric
from podium.models.rule import figures
from podium.models.shared_items import SharedItems, predictions
from podium.models.version import Version
from podium.scoring import Comparison, Metric, compare, score_predictions
from podium.scoring.changes import Changes
from podium.scoring.comparison import by_class


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A second version against a first, on the same items."""

    comparison: Comparison
    """The metric compared; its first value is the second version's."""

    items: int

    metrics: Mapping[str, tuple[float | None, float | None]]
    """Each metric's value of the first and the second version; None where it is not defined."""

    classes: Mapping[str, Mapping[str, Any]]
    """By class, see podium.scoring.comparison.by_class; empty for regression."""

    changes: Changes
    """The items the second does better or worse."""

    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; ``value`` is the second version's, ``champion_value`` the
        first's."""
        return {
            "metric": self.comparison.metric.to_json(),
            "items": self.items,
            "value": self.comparison.first,
            **figures(self.comparison),
            "metrics": {
                name: {"first": first, "second": second}
                for name, (first, second) in self.metrics.items()
            },
            "classes": dict(self.classes),
            "gained": [vars(change) for change in self.changes.gained],
            "lost": [vars(change) for change in self.changes.lost],
            "items_gained": self.changes.items_gained,
            "items_lost": self.changes.items_lost,
            "notes": list(self.notes),
        }


def of_versions(
    versions: Sequence[Version], data: str | None = None, metric: str = ""
) -> tuple[SharedItems, Difference]:
    """Compare the second of two versions with the first, on the items that they share.

    Args:
        data: Dataset to run both on; None for the predictions that are stored.
        metric: What is tested; the second version's own if empty.
    """
    seen = predictions(versions, data)
    return seen, _difference(seen, chosen_metric(metric, versions[1], seen.kind))


def _difference(seen: SharedItems, metric: Metric) -> Difference:
    """Compare the second of two versions with the first.

    Args:
        metric: What is tested; every other metric of the kind is computed too.

    Raises:
        InvalidInput: The metric is not defined for these predictions.
    """
    scores = [
        score_predictions(
            array,
            seen.target,
            classes=len(seen.classes) or None,
            metric=metric,
            decided=None if array is decided else decided,
        )
        for array, decided in zip(seen.predicted, seen.decided, strict=True)
    ]
    before, after = seen.decided
    old, new = seen.of(metric)
    names = dict.fromkeys([metric.name, *scores[0].metrics, *scores[1].metrics])
    regression = seen.kind == "regression"
    return Difference(
        comparison=compare(metric, seen.target, new, old, seen.groups),
        items=len(seen.target),
        metrics={
            name: (scores[0].metrics.get(name), scores[1].metrics.get(name)) for name in names
        },
        classes={} if regression else by_class(seen.target, after, before, seen.classes),
        changes=_placed(
            Changes.of_numbers(seen.target, before, after)
            if regression
            else Changes.of_classes(seen.target, before, after, seen.classes),
            seen,
        ),
        notes=seen.notes,
    )


def _placed(changes: Changes, seen: SharedItems) -> Changes:
    gained, lost = (
        tuple(replace(change, item=int(seen.items[change.item])) for change in side)
        for side in (changes.gained, changes.lost)
    )
    return replace(changes, gained=gained, lost=lost)
