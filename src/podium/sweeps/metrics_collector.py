"""Metrics of a trial that has ended, collected as Katib's sidecar and database do."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from podium.errors import Failed
from podium.manifests.experiment.experiment import Experiment
from podium.metrics import Reading, fold, read_events, read_json, read_text
from podium.sweeps.base import NoMetricsFile


def collect(
    experiment: Experiment, metrics: Sequence[Path], log: Callable[[], Iterable[str]]
) -> tuple[dict[str, Any], list[Reading]]:
    """Read what a trial reported.

    Args:
        experiment: Says which metrics are collected, and how.
        metrics: Files, or one directory, of the collector; none reads the log.
        log: Gives the lines of the reporting replicas.

    Returns:
        The observation for the trial's status, and the readings behind it.

    Raises:
        NoMetricsFile: There is no file.
        Failed: The collector cannot read what is there; on a cluster the trial fails too.
    """
    names, collector = experiment.objective.metrics, experiment.collector
    if collector.kind != "StdOut" and not metrics:
        labels = dict(experiment.template.primary_pod_labels)
        raise Failed(
            f"no pod of the trial has the labels {labels}", "leave primaryPodLabels out, or give a pod these labels"
        )
    if collector.kind == "TensorFlowEvent":
        readings = read_events(metrics[0], names)
    elif collector.reads_json:
        readings = read_json(_lines(metrics[0]), names)
    else:
        lines = [line for path in metrics for line in _lines(path)] if metrics else log()
        readings = read_text(lines, names, collector.filters or None)
    return observe(readings, names), readings


def observe(readings: Iterable[Reading], names: Sequence[str]) -> dict[str, Any]:
    """Return the ``observation`` of a trial's status; an empty latest is left out, as in Katib's JSON."""
    folded = fold(readings, names)
    return {
        "metrics": [
            {"name": name, **{how: value for how, value in values.items() if value}} for name, values in folded.items()
        ]
    }


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise NoMetricsFile(
            f"the program wrote no metrics file {path.name}",
            "its path must stand in the container's command, args or env: that is where it is made a local one",
        )
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:  # a carriage return ends no line
        return file.read().split("\n")
