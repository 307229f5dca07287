"""Kill a rank of two at a random moment, again and again: `python benchmarks/kills.py --kills 2000 --at-once 6`.

Each training is the job that podium itself launches, with one worker beside the master. From its creation on one of its
processes gets SIGKILL at a moment drawn over the length of an unbroken training: while it starts, connects, trains,
validates or saves. Then the job has to end as Succeeded. Prints how long that took from the kill on (median, 99 of 100,
longest), and fails if one took longer than an unbroken training and the seconds in which a loss is noticed.

    python benchmarks/kills.py --cluster kubernetes://kubeflow --storage s3://mlpipeline/kills --kind trainjob

does so with pods; the node's processes have to be this machine's, as those of kind, minikube's `none` driver or a
kubelet here are.
"""

import argparse
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import describe

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from datasets import synthetic_part, write_pictures

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.errors import PodiumError
from podium.storage import connect as open_storage
from podium.training.identity import RunIdentity, StepContext, new_run_id
from podium.training.settings import TrainSettings
from podium.training.target import LaunchTarget, data_url, launch

NOTICED = 30.0
"""Seconds in which the loss of a rank is noticed."""

FLAGS = {"epochs": 2, "batch-size": 16, "model": "mlp", "threads": 1, "no-cuda": True, "lr": 0.1}


@dataclass(frozen=True)
class Kill:
    """One training whose rank was killed."""

    moment: float
    """Seconds from the job's creation to the kill."""

    rest: float
    """Seconds from the kill to the job's end."""

    ended: str
    """Its last phase, and the message of one that did not succeed."""

    hit: bool
    """Whether there was a process to kill before the job had ended."""


class Trainings:
    """Starts trainings of two ranks on a cluster and kills one rank of each."""

    def __init__(
        self, cluster: Cluster, target: LaunchTarget, storage: str, data: str, kind: str
    ) -> None:
        self.cluster, self.target, self.data, self.kind = cluster, target, data, kind
        self.storage = storage

    def run(self, number: int, longest: float, seed: int | None) -> Kill:
        """Train once; without a seed nobody is killed.

        Args:
            longest: Seconds after the creation within which the kill falls.
        """
        run, chance = RunIdentity(id=new_run_id()), random.Random(seed)
        settings = TrainSettings(hyperparameters=FLAGS, workers=1, job_kind=self.kind)
        planned = settings.plan(
            self.data,
            f"kill-{number}",
            target=self.target,
            step=StepContext.of(run, self.storage),
            admits=self.cluster.admits,
        )
        job = planned.job
        launch(self.cluster, job)
        began = at = time.monotonic()
        hit = False
        try:
            if seed is not None:
                time.sleep(chance.uniform(0, longest))
                hit = kill_one_of(self.cluster, job.kind, job.name, planned.output, chance)
                at = time.monotonic()
            *_, last = self.cluster.watch(job.kind, job.name, timeout=2100)
            end = time.monotonic()
        finally:
            self.cluster.delete(job.kind, job.name)
            storage = open_storage(planned.output)
            for entry in list(storage.list("")):
                storage.delete(entry.key)
        state = last.state
        return Kill(at - began, end - at, state.phase if state.succeeded else state.message, hit)


def kill_one_of(cluster: Cluster, kind: str, name: str, output: str, chance: random.Random) -> bool:
    """Kill one of a job's ranks, the first to be there; return False if the job has ended before."""
    while not cluster.get(kind, name).state.finished:
        pids = [pod.pid for pod in cluster.replicas(kind, name) if pod.pid] or processes(output)
        if pids:
            try:
                os.kill(chance.choice(pids), signal.SIGKILL)
                return True
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    return False


def processes(word: str) -> list[int]:
    """Return the processes of trainers in whose command line a word stands."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "podium.trainer" in words and any(word in one for one in words):
            found.append(int(directory.name))
    return found


def measure(trainings: Trainings, kills: int, at_once: int, seed: int) -> bool:
    """Kill, print and judge; return whether none took too long and all succeeded."""
    with ThreadPoolExecutor(at_once) as pool:
        unbroken = list(pool.map(lambda n: trainings.run(n, 0, None), range(4 * at_once)))
        assert all(one.ended == "Succeeded" for one in unbroken), unbroken
        warm = sorted(one.rest for one in unbroken[at_once:])  # the first ones import torch
        print(f"unbroken: {statistics.median(warm):.1f} s, at most {warm[-1]:.1f} s", flush=True)
        seen: list[Kill] = []
        draws = itertools.count(seed)
        while len(seen) < kills:
            numbers = list(itertools.islice(draws, min(10, kills - len(seen))))
            for one in pool.map(lambda n: trainings.run(n, statistics.median(warm), n), numbers):
                seen += [one] if one.hit else []  # one that came too late is drawn again
                if one.ended != "Succeeded":
                    print(f"a kill after {one.moment:.1f} s: {one.ended}", flush=True)
            show(seen)
    return all(one.ended == "Succeeded" and one.rest <= warm[-1] + NOTICED for one in seen)


def show(seen: list[Kill]) -> None:
    """Print the figures of kills."""
    rests = sorted(one.rest for one in seen)
    late = rests[int(0.99 * (len(rests) - 1))]
    lost = sum(one.ended != "Succeeded" for one in seen)
    print(
        f"{len(seen)} kills: to the job's end {statistics.median(rests):.1f} s (median), "
        f"{late:.1f} s (99 of 100), {rests[-1]:.1f} s (longest); {lost} did not succeed",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--cluster", default="", help="of this machine if missing")
    parser.add_argument("--storage", default="", help="a temporary directory if missing")
    parser.add_argument("--kind", default="pytorchjob", choices=["pytorchjob", "trainjob"])
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    given: Any = parser.parse_args()
    print(describe())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"train": (1, given.items), "validation": (2, 200), "test": (3, 50)}
        drawn = Path(folder) / "drawn"
        write_pictures(drawn, {part: synthetic_part(*size) for part, size in sizes.items()})
        storage = given.storage or f"{folder}/store"
        target = LaunchTarget(cluster=given.cluster or f"local://{folder}/cluster")
        with connect(target.cluster_url()) as cluster:
            data = data_url(
                str(drawn), StepContext.of(RunIdentity(id=new_run_id()), storage), cluster
            )
            try:
                good = measure(
                    Trainings(cluster, target, storage, data, given.kind),
                    given.kills,
                    given.at_once,
                    given.seed,
                )
            except PodiumError as error:
                sys.exit(f"error: {error}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
