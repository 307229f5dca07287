"""An anytime-valid test on the labeled items that came since a champion was promoted (a paired
betting e-process).

Each night the challenger is bet on, on the items of no earlier bet on this champion that are not of
the test part that it was chosen on. The null hypothesis is of the champion: on no night so far is
that night's challenger better than it by more than the margin. As long as that holds, the capital
is ever 1 / LEVEL or more with a probability of at most LEVEL, whatever the number of nights, the
challengers, and how items change from night to night; nearly so for losses without a bound.
"""

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from podium.display.text import digits, figure
from podium.errors import InvalidInput, require

if TYPE_CHECKING:
    import numpy as np

    from podium.models.decision import Case, Condition
    from podium.models.record import Record
    from podium.scoring import Metric

LEVEL = 0.05

STAKES = (0.9, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.008)
"""Shares of the capital that are bet, an eighth of it by each: no order of the items changes the
mean of eight."""

_MOST_UNITS = 10_000
"""Items, or groups, that are bet on in a night; a record of the history names them. More wait for
the next night."""

SCALE_UNITS, DEVIATIONS = 30, 3
"""The first new units, one of which must differ, are not bet on where a metric has no largest
difference: DEVIATIONS root mean squares of those that differ count as 1, and a larger gain is
cut."""

_RUIN = 1e-9
"""Least share of the capital that an item leaves."""

_METRICS = ("accuracy", "log_loss", "mae", "rmse")
"""Metrics that are a mean over the items, or derived from one: rmse by squared errors."""


@dataclass(frozen=True, kw_only=True)
class Bets:
    """The capital of the bets against a champion after a night, in the evidence of that night's
    record."""

    logs: tuple[float, ...] = ()
    """Log of what each of STAKES has made of 1; empty where nothing was bet."""

    units: int = 0
    """Items, or groups, that were bet on in all nights."""

    margin: float = 0.0
    scale: float | None = None
    """The difference that counts as 1."""

    spent: str = ""
    """Upper 32 bits of the hashes of this night's units, base64."""

    @property
    def capital(self) -> float:
        """Current capital, starting from 1."""
        return sum(math.exp(min(log, 700)) for log in self.logs) / len(STAKES) if self.logs else 1.0


@dataclass(frozen=True, kw_only=True)
class NewItems:
    """Which test items no bet on the champion was on, and the capital so far."""

    units: "np.ndarray"
    """[n], a hash of what counts together with each test item."""

    known: "np.ndarray"
    """Short hashes of the units that are not new."""

    before: Bets

    @classmethod
    def of(
        cls,
        units: "np.ndarray",
        own: "np.ndarray",
        records: "Sequence[Record]",
        challenger: str,
        champion: str,
        metric: str,
    ) -> "NewItems":
        """Find them in the history.

        Args:
            units: As the field.
            own: Those of the test part that the champion was chosen on.
            records: The history, oldest first.
        """
        import numpy as np

        bets = [
            record
            for record in records
            if record.grounds.fresh.spent and champion in (record.grounds.champion, record.replaced)
        ]
        spent = [
            np.frombuffer(base64.b64decode(record.grounds.fresh.spent), "<u4") for record in bets
        ]
        if bets and (bets[-1].event, bets[-1].version) == ("refusal", challenger):
            again = np.setdiff1d(_short(units), np.concatenate([_short(own), *spent[:-1]]))
            if np.isin(spent[-1], again[:_MOST_UNITS]).all():
                del bets[-1], spent[-1]  # a step that is repeated decides the same
        # A promotion spends the capital: after a rollback, the champion's begins anew.
        goes_on = bets and bets[-1].event == "refusal" and bets[-1].grounds.metric.name == metric
        before = bets[-1].grounds.fresh if goes_on else Bets()
        return cls(units=units, known=np.concatenate([_short(own), *spent]), before=before)


def check_metric(margin: float, metric: "Metric") -> None:
    """Refuse a metric that is no mean over the items.

    Raises:
        InvalidInput: It is one.
    """
    if metric.name not in _METRICS:
        words = f"fresh bets on means over items, which {metric.name} is not"
        raise InvalidInput(words, f"add metric= to the rule, with one of {', '.join(_METRICS)}")
    if metric.counts_hits:
        require(margin < 0.1, "fresh < .1", "accuracy is a share, not a percentage", fresh=margin)


def judge(margin: float, case: "Case") -> "Iterator[Condition]":
    """Bet on the challenger on the new items, and ask whether the capital suffices."""
    new = case.earlier.fresh
    if new is None:
        yield False, "it is not known which items are new: the champion has no test-items.npy"
        return
    before = new.before if new.before.margin == margin else Bets(margin=margin)
    gains, hashes = _gains(case, new)
    bets, clipped, lead = _bet(before, gains, hashes, margin, exact=case.metric.counts_hits)
    case.figures["fresh"] = {**asdict(bets), "capital": bets.capital, "new": len(gains)}
    if not len(gains):
        yield False, f"no test item, or group of items, is new since the last bet: {_capital(bets)}"
        return
    cut = f", {clipped:,} of them cut to {figure(bets.scale or 0)}" if clipped else ""
    squares = " of squared errors" if case.metric.name == "rmse" else ""
    words = (
        f"{_capital(bets)}; mean lead{squares} on {len(gains):,} new {digits(lead, sign='+')}{cut}"
    )
    yield bets.capital >= 1 / LEVEL, words
    yield (
        lead > margin,
        f"itself ahead on tonight's new items by more than {margin:g}: {digits(lead, sign='+')}",
    )


def _capital(bets: Bets) -> str:
    return f"capital {bets.capital:.3g} of {1 / LEVEL:g} that are needed, after bets on {bets.units:,} new items"


def _gains(case: "Case", new: NewItems) -> "tuple[np.ndarray, np.ndarray]":
    """Return by how much the challenger is better on each new unit, and their hashes, ascending."""
    import numpy as np

    items = case.metric.items  # type: ignore[attr-defined]  # check_metric has seen to it
    better = (items(case.target, case.challenger) - items(case.target, case.champion)).mean(1)
    fresh = ~np.isin(_short(new.units), new.known)
    hashes, numbers = np.unique(_short(new.units)[fresh], return_inverse=True)
    sums = np.bincount(numbers, better[fresh] if case.metric.maximize else -better[fresh])
    gains = sums / np.maximum(1, np.bincount(numbers))
    return gains[:_MOST_UNITS], hashes[:_MOST_UNITS]


def _bet(
    before: Bets, gains: "np.ndarray", hashes: "np.ndarray", margin: float, *, exact: bool
) -> tuple[Bets, int, float]:
    """Return the bets after a night, how many gains were cut, and their mean.

    Args:
        gains: Of each unit, in the order of hashes.
        hashes: Short ones.
        exact: Whether no gain is beyond -1 and 1.
    """
    import numpy as np

    scale, on = (1 + margin if exact else before.scale), gains - margin
    if scale is None:
        differing = np.flatnonzero(gains)
        start = max(SCALE_UNITS, differing[0] + 1) if len(differing) else len(on)
        if start >= len(on):
            on, hashes = on[:0], hashes[:0]  # they wait for the next night
        else:
            scale = DEVIATIONS * float(np.sqrt(np.mean(on[differing[differing < start]] ** 2)))
            on = on[start:]
    shares = on / (scale or 1)
    clipped = int((shares > 1).sum())
    # A loss counts in full, until nothing is left of a stake: cut, rare large ones would cost no
    # more than small ones.
    left = 1 + np.outer(STAKES, np.minimum(shares, 1))
    won = np.log(np.maximum(left, _RUIN)).sum(1)
    logs = np.array(before.logs or (0.0,) * len(STAKES)) + won
    after = Bets(
        logs=tuple(map(float, logs)),
        units=before.units + len(on),
        margin=margin,
        scale=scale,
        spent=base64.b64encode(hashes.astype("<u4").tobytes()).decode(),
    )
    return after, clipped, float(gains.mean()) if len(gains) else 0.0


def _short(hashes: "np.ndarray") -> Any:
    """Return 32 bits of each hash: among a million others, one new item in 4,000 is mistaken for an
    old one."""
    return (hashes >> 32).astype("uint32")
