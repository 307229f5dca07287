"""Retention: the weights of a sweep's losers go, the record of every trial stays."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from podium.cluster.base import Cluster
from podium.errors import InvalidInput, require
from podium.local.katib.resuming import has_ended
from podium.manifests.experiment import leaderboard, objective_of
from podium.manifests.experiment.build import primary_containers
from podium.steps.adapt import read_flags
from podium.storage import connect

RECORD = ("metrics.json", "hyperparameters.json", "environment.json")
"""What stays of a trial's output: a few kilobytes that say how it went."""

GOOD = ("Succeeded", "EarlyStopped")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What one trial left that is not its record."""

    trial: str
    """Its name."""

    url: str
    """Its output."""

    keys: tuple[str, ...]
    """Below the output."""

    size: int
    """Bytes of all of them."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Who stays and who goes."""

    kept: tuple[str, ...]
    """The best trials, best first."""

    removed: tuple[Weights, ...]
    """Of those that ended and are not among them; without what had nothing to remove."""


def plan_retention(cluster: Cluster, name: str, best: int) -> Retention:
    """Find the weights of all ended trials but the best; nothing is removed.

    Trials that run, or will run again when a stopped Experiment goes on, are left alone: their checkpoints are needed.

    Args:
        cluster: Holds the Experiment.
        name: Of the Experiment.
        best: How many to keep.

    Raises:
        NotFound: There is no such Experiment.
        InvalidInput: The trials do not each write to a place of their own.
    """
    require(best >= 1, "best >= 1", best=best)
    experiment = cluster.get("Experiment", name)
    trials = cluster.list("Trial", {"katib.kubeflow.org/experiment": name})
    ranked = leaderboard(trials, maximize=objective_of(experiment)[1])
    kept = [row.name for row in ranked if row.state in GOOD and row.value is not None][:best]
    ended = [trial["metadata"]["name"] for trial in trials if has_ended(trial)]
    losers = [row.name for row in ranked if row.name in ended and row.name not in kept]
    outputs = {trial["metadata"]["name"]: output_of(trial) for trial in trials}
    return Retention(kept=tuple(kept), removed=tuple(_weights(losers, outputs)))


def remove(weights: Iterable[Weights]) -> None:
    """Remove what plan_retention found."""
    for one in weights:
        storage = connect(one.url)
        for key in one.keys:
            storage.delete(key)


def output_of(trial: Mapping[str, Any]) -> str:
    """Return where a trial writes: ``--output`` of its program.

    Raises:
        InvalidInput: It names none, a relative one, or one that is not the trial's own.
    """
    name, job = trial["metadata"]["name"], trial["spec"]["runSpec"]
    template = {"primaryContainerName": trial["spec"]["primaryContainerName"], "trialSpec": job}
    collector = trial["spec"].get("metricsCollector")
    found: list[str] = []
    for container, _ in primary_containers({"spec": {"trialTemplate": template, "metricsCollectorSpec": collector}}):
        line = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
        found += [str(value) for flag, value in read_flags(_split(line)).items() if flag == "output"]
    hint = "add a trialParameter with reference ${trialSpec.Name} and --output=PLACE/${trialParameters.…}"
    url = found[0].rstrip("/") if found else None
    if url is None or url.rpartition("/")[2] != name:
        raise InvalidInput(f"`each trial has an --output named after it` must hold, but {name} has {url}", hint)
    if not url.startswith("/") and not urlsplit(url).scheme:
        raise InvalidInput(f"`an --output is a URI or an absolute path` must hold, but {name} has {url}", hint)
    return url


def _weights(losers: Iterable[str], outputs: Mapping[str, str]) -> Iterator[Weights]:
    for name in losers:
        entries = [one for one in connect(outputs[name]).list() if one.key not in RECORD]
        if entries:
            keys = tuple(one.key for one in entries)
            yield Weights(trial=name, url=outputs[name], keys=keys, size=sum(one.size for one in entries))


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
