"""Metrics of a trial that has ended, collected as Katib's sidecar and database do."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from podium.metrics import (
    UNAVAILABLE,
    Reading,
    fold,
    number,
)

MOST_READINGS = 10_000
"""Readings of a metric that are kept, the first ones; all of them count."""


def _with_pushed(readings: Iterable[Reading], pushed: Iterable[Reading]) -> Iterator[Reading]:
    """Yield the readings that a collector found, and those pushed of metrics that it did not
    find: who prints and pushes a metric reports it once."""
    found = set()
    for reading in readings:
        if reading.value != UNAVAILABLE:
            found.add(reading.name)
        yield reading
    yield from (reading for reading in pushed if reading.name not in found)


def observe(
    readings: Iterable[Reading], names: Sequence[str], pushed: Iterable[Reading] = ()
) -> tuple[dict[str, Any], list[Reading]]:
    """Return the ``observation`` of a trial's status, and the first readings of each metric.

    Args:
        readings: Those that the collector found.
        names: The metrics, the objective first.
        pushed: Those that the program pushed; they count for metrics that the collector did not
            find.

    Where the objective was never reported there is nothing: Katib then drops the other metrics too.
    An empty latest is left out, as in Katib's JSON.
    """
    kept: dict[str, list[Reading]] = {}
    folded = fold(_keeping(_with_pushed(readings, pushed), kept), names)
    first = list(chain.from_iterable(kept.values()))
    if folded[names[0]]["latest"] == UNAVAILABLE:
        first = [Reading(names[0], UNAVAILABLE)]
        folded = fold(first, names)
    metrics = [
        {"name": name, **{how: value for how, value in values.items() if value}}
        for name, values in folded.items()
    ]
    return {"metrics": metrics}, first


def shortened(readings: Sequence[Reading]) -> list[Reading]:
    """Return those of a log's readings that observe needs: the first of each metric, the extremes
    and the latest."""
    kept: dict[str, list[Reading]] = {}
    later: dict[str, list[Reading]] = {}
    for reading in readings:
        own = kept.setdefault(reading.name, [])
        (own if len(own) < MOST_READINGS else later.setdefault(reading.name, [])).append(reading)
    for name, rest in later.items():
        values = [
            (value, reading.time, at)
            for at, reading in enumerate(rest)
            if (value := number(reading.value)) is not None
        ]
        ends = {max((reading.time, at) for at, reading in enumerate(rest))[1]}
        ends |= (
            {min(values)[2], min((-value, time, at) for value, time, at in values)[2]}
            if values
            else set()
        )
        kept[name] += [rest[at] for at in sorted(ends)]
    return list(chain.from_iterable(kept.values()))


def _keeping(readings: Iterable[Reading], kept: dict[str, list[Reading]]) -> Iterator[Reading]:
    for reading in readings:
        own = kept.setdefault(reading.name, [])
        if len(own) < MOST_READINGS:
            own.append(reading)
        yield reading
