"""Run seeds of the universes on all cores, and replay one: ``make universe SEEDS=0:100000``."""

import argparse
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bucket_universe import BucketUniverse
from files_universe import FilesUniverse, modules as files_modules
from planted_bugs import BUCKETS, FILES, POOLS, REGISTRY, RUNS, SCHEDULES, SWEEPS
from pool_universe import PoolUniverse, modules as pool_modules
from registry_universe import RegistryUniverse, modules as registry_modules
from runs_universe import RunsUniverse, modules as runs_modules
from schedules_universe import SchedulesUniverse, modules as schedules_modules
from simulation import Fault, Outcome, installed, shrunk
from sweep_universe import SweepUniverse, modules as sweep_modules

UNIVERSES: dict[str, tuple[Callable[..., Any], Callable[[str], bool]]] = {
    "registry": (RegistryUniverse, registry_modules),
    "buckets": (BucketUniverse, registry_modules),
    "sweeps": (SweepUniverse, sweep_modules),
    "pools": (PoolUniverse, pool_modules),
    "files": (FilesUniverse, files_modules),
    "runs": (RunsUniverse, runs_modules),
    "schedules": (SchedulesUniverse, schedules_modules),
}
BUGS = {
    "registry": REGISTRY,
    "buckets": BUCKETS,
    "sweeps": SWEEPS,
    "pools": POOLS,
    "files": FILES,
    "runs": RUNS,
    "schedules": SCHEDULES,
}
_CHUNK = 100


@contextmanager
def universe(name: str) -> Iterator[None]:
    """Let podium see a universe; what is written for a moment is gone after it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        usual, tempfile.tempdir = tempfile.tempdir, directory
        try:
            with installed(Path(directory), UNIVERSES[name][1]):
                yield
        finally:
            tempfile.tempdir = usual


def run(name: str, seed: int, bug: str = "", only: frozenset[Fault] | None = None) -> Outcome:
    """Run a seed, beside a planted bug where one is named."""
    with universe(name), BUGS[name][bug].planted() if bug else nullcontext():
        outcome: Outcome = UNIVERSES[name][0](seed, only).run()
    return outcome


def fewest(name: str, seed: int, bug: str = "") -> Outcome:
    """Run a seed; return it with the fewest faults that make it fail."""
    outcome = run(name, seed, bug)
    if not outcome.problem:
        return outcome
    return shrunk(lambda only: run(name, seed, bug, only), outcome)


def failures(task: tuple[str, int, int]) -> tuple[int, float, list[tuple[str, Outcome]]]:
    """Run some seeds; return their number, the seconds of CPU and those that failed."""
    name, begin, end = task
    logging.disable(logging.ERROR)
    began = time.process_time()
    found = [fewest(name, seed) for seed in range(begin, end)]
    bad = [(name, outcome) for outcome in found if outcome.problem]
    return end - begin, time.process_time() - began, bad


def replay(name: str, seed: int) -> None:
    """Print every operation of a seed with its fewest faults."""
    logging.disable(logging.ERROR)
    outcome = fewest(name, seed)
    with universe(name):
        again = UNIVERSES[name][0](seed, frozenset(outcome.struck))
        again.universe.trace = []
        outcome = again.run()
    print(*again.universe.trace, sep="\n")
    print(f"seed {seed}: {outcome.problem or 'holds'}")


def main() -> int:
    """Run what the command line asks for; return 1 if an invariant did not hold."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of a schedule
        os.execve(
            sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="BEGIN:END, or one seed, which is printed step by step")
    parser.add_argument("--universe", choices=UNIVERSES, action="append")
    given = parser.parse_args()
    names = given.universe or list(UNIVERSES)
    if ":" not in given.seeds:
        for name in names:
            replay(name, int(given.seeds))
        return 0
    begin, end = map(int, given.seeds.split(":"))
    tasks = [
        (name, at, min(at + _CHUNK, end)) for at in range(begin, end, _CHUNK) for name in names
    ]
    seeds, cpu, bad, began = 0, 0.0, 0, time.monotonic()
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for ran, took, failed in pool.imap_unordered(failures, tasks):
            seeds, cpu, bad = seeds + ran, cpu + took, bad + len(failed)
            for name, outcome in failed:
                faults = "; ".join(f"{f.kind} of {f.process} at {f.place}" for f in outcome.struck)
                print(
                    f"{name}, seed {outcome.seed}: {outcome.problem}\n  faults: {faults or 'none'}"
                )
    hours = (time.monotonic() - began) / 3600
    print(
        f"{seeds} seeds, {bad} failed; {1000 * cpu / seeds:.1f} ms of CPU each, {seeds / hours:,.0f} an hour"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
