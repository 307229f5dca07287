"""``--folds``: a training is judged by cross-validation, then fitted to all of its items.

Each fold trains from the start, and the mean over the folds is what the training reports. The
model is fitted to train and validation together, for as many epochs or rounds as were best in the
folds: nothing is left to stop it by.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from podium.data.folds import each_fold
from podium.data.validated import Validated
from podium.display.text import figure
from podium.metrics import over_folds
from podium.trainer.config import TrainConfig

Record = Mapping[str, float]


class Fit(NamedTuple):
    """A training on one fold."""

    records: Sequence[Record]
    """Metrics of each epoch on the fold's validation part."""

    predictions: Sequence[NDArray[Any]]
    """Of that part after each epoch, as Validated has them."""

    target: NDArray[Any]

    rounds: int = 1
    """Rounds of boosted trees that were kept."""


@dataclass(frozen=True, kw_only=True)
class CrossValidated:
    """The result of all folds."""

    history: list[dict[str, float]]
    """Means of each epoch."""

    epoch: int
    """The epoch that is kept, from 1."""

    rounds: int

    folds: list[dict[str, float]]
    """Metrics of that epoch in each fold."""

    validated: Validated
    """Predictions of all items after it, each by the fold that did not train on it."""

    data: str
    """URI of train and validation together."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Content of metrics.json."""
        return {**self.history[self.epoch - 1], "epochs": self.history, "folds": self.folds}


def cross_validate(
    config: TrainConfig,
    fit: Callable[[TrainConfig], Fit],
    is_better: Callable[[Record, Record], bool],
    say: Callable[[str], None],
    *,
    has_groups: bool,
) -> CrossValidated:
    """Train on each fold.

    Args:
        fit: Trains by a configuration whose data are a fold.
        is_better: Compares the mean metrics of two epochs.
        say: Prints a line.
        has_groups: Whether the items belong to groups.

    Raises:
        InvalidInput: The dataset cannot be divided so.
    """
    *parts, everything = each_fold(config.data, config.folds, config.seed)
    fits = []
    for number, part in enumerate(parts, 1):
        fits.append(fit(replace(config, data=part)))
        best = fits[-1].records[-1]
        words = ", ".join(f"{name} {figure(value)}" for name, value in best.items())
        say(f"fold {number} of {config.folds}: {words}")
    means = over_folds([each.records for each in fits])
    history = [{"epoch": at, **record} for at, record in enumerate(means, 1)]
    kept = history[-1]
    if config.keep == "best" or config.patience:
        kept = history[0]
        for record in history[1:]:
            kept = record if is_better(record, kept) else kept
    epoch = int(kept["epoch"])
    pairs = [(each.target, each.predictions[epoch - 1]) for each in fits]
    return CrossValidated(
        history=history,
        epoch=epoch,
        rounds=max(1, round(statistics.fmean(each.rounds for each in fits))),
        folds=[dict(each.records[epoch - 1]) for each in fits],
        validated=Validated.joined(pairs, has_groups),
        data=everything,
    )
