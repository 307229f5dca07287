"""Retention: the weights of a sweep's losers go, the record of every trial stays."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from podium.cluster.base import Cluster
from podium.errors import InvalidInput, require
from podium.manifests.experiment import Trial, leaderboard
from podium.manifests.experiment.trainer import read_flags
from podium.manifests.workload import Container
from podium.storage import connect

RECORD = ("metrics.json", "hyperparameters.json", "environment.json")
"""Files of a trial's output that are always kept: a few kilobytes that record its result."""


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Files of a trial's output that are not in its record."""

    trial: str
    url: str
    keys: tuple[str, ...]
    """Below the output."""

    size: int


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Who stays and who goes."""

    kept: tuple[str, ...]
    removed: tuple[_Weights, ...]
    """Weights of trials that ended and are not among the best; without those that had none."""

    @classmethod
    def plan(cls, cluster: Cluster, name: str, best: int) -> "Retention":
        """Find the weights of all ended trials but the best; nothing is removed.

        Trials that run, or will run again when a stopped Experiment goes on, are left alone: their
        checkpoints are needed.

        Raises:
            NotFound: There is no such Experiment.
            InvalidInput: The trials do not each write to a place of their own.
        """
        require(best >= 1, "best >= 1", best=best)
        ranked = leaderboard(cluster.judged_trials(cluster.experiment(name)))
        kept = [trial.name for trial in ranked if trial.is_good and trial.value is not None][:best]
        losers = [trial.name for trial in ranked if trial.has_ended and trial.name not in kept]
        outputs = {trial.name: output_of(trial) for trial in ranked}
        return cls(kept=tuple(kept), removed=tuple(_weights(losers, outputs)))

    def remove(self) -> None:
        """Remove the weights of those who go."""
        for removed in self.removed:
            storage = connect(removed.url)
            for key in removed.keys:
                storage.delete(key)


def output_of(trial: Trial) -> str:
    """Return where a trial writes: ``--output`` of its program, or PODIUM_OUTPUT.

    Raises:
        InvalidInput: It names none, a relative one, or one that is not the trial's own.
    """
    name = trial.name
    primary = [
        container
        for _, container in trial.workload.containers()
        if container.name == trial.primary_container
    ]
    outputs = [output for container in primary if (output := _output(container))]
    hint = "add a trialParameter with reference ${trialSpec.Name} and --output=PLACE/${trialParameters.…}"
    url = outputs[0].rstrip("/") if outputs else None
    if url is None or url.rpartition("/")[2] != name:
        raise InvalidInput(f"trial {name} has no --output named after it, but {url}", hint)
    if not url.startswith("/") and not urlsplit(url).scheme:
        raise InvalidInput(
            f"the --output of trial {name} is neither a URI nor an absolute path: {url}", hint
        )
    return url


def _output(container: Container) -> str:
    flags = read_flags(_split(" ".join(container.words)))
    variables = {variable.name: variable.value for variable in container.variables}
    return str(flags.get("output") or variables.get("PODIUM_OUTPUT") or "")


def _weights(losers: Iterable[str], outputs: Mapping[str, str]) -> Iterator[_Weights]:
    for name in losers:
        entries = [entry for entry in connect(outputs[name]).list() if entry.key not in RECORD]
        if entries:
            keys = tuple(entry.key for entry in entries)
            yield _Weights(
                trial=name, url=outputs[name], keys=keys, size=sum(entry.size for entry in entries)
            )


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
