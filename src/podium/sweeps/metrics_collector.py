"""Metrics of a trial that has ended, collected as Katib's sidecar and database do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from podium.cluster.local.logs import GrowingFile
from podium.errors import Failed
from podium.manifests.experiment.experiment import Experiment
from podium.metrics import (
    UNAVAILABLE,
    Reading,
    fold,
    json_readings,
    number,
    read_events,
    text_readings,
)
from podium.sweeps.base import NoMetricsFile

MOST_READINGS = 10_000
"""Readings of a metric that are kept, the first ones; all of them count."""


def collect(
    experiment: Experiment,
    metrics: Sequence[Path],
    log: Callable[[], Iterable[str]],
    pushed: Iterable[Reading] = (),
) -> tuple[dict[str, Any], list[Reading]]:
    """Read the metrics of a trial.

    Args:
        experiment: Experiment with the collector and the names of its metrics.
        metrics: Files, or one directory, of the collector; none reads the log.
        log: Returns the lines of the reporting replicas.
        pushed: Readings that the program pushed.

    Returns:
        The observation for the trial's status, and the readings behind it.

    Raises:
        NoMetricsFile: There is no file.
        Failed: The collector cannot read what is there; on a cluster the trial fails too.
    """
    names = experiment.objective.metrics
    return observe(_collected(experiment, metrics, log), names, pushed)


def _with_pushed(readings: Iterable[Reading], pushed: Iterable[Reading]) -> Iterator[Reading]:
    """Yield the readings that a collector found, and those pushed of metrics that it did not
    find: who prints and pushes a metric reports it once."""
    found = set()
    for reading in readings:
        if reading.value != UNAVAILABLE:
            found.add(reading.name)
        yield reading
    yield from (reading for reading in pushed if reading.name not in found)


def _collected(
    experiment: Experiment, metrics: Sequence[Path], log: Callable[[], Iterable[str]]
) -> Iterable[Reading]:
    names, collector = experiment.objective.metrics, experiment.collector
    if collector.kind == "Push":
        return ()
    if collector.kind != "StdOut" and not metrics:
        labels = dict(experiment.template.primary_pod_labels)
        raise Failed(
            f"no pod of the trial has the labels {labels}",
            "leave primaryPodLabels out, or give a pod these labels",
        )
    if collector.kind == "TensorFlowEvent":
        return read_events(metrics[0], names)
    if collector.reads_json:
        return json_readings(_lines(metrics[0]), names)
    lines = (line for path in metrics for line in _lines(path, names)) if metrics else log()
    return text_readings(lines, names, collector.filters or None)


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


def _lines(path: Path, holding: Sequence[str] = ()) -> Iterator[str]:
    if not path.is_file():
        raise NoMetricsFile(
            f"the program wrote no metrics file {path.name}",
            "its path must stand in the container's command, args or env: that is where it is made a local one",
        )
    file = GrowingFile(path, holding=holding)
    yield from file.lines()  # a carriage return ends none
    yield file.last()
