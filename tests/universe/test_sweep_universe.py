"""Sweeps of engines that may lead hold under every schedule of engines and faults."""

from collections.abc import Iterator

import pytest
from planted_bugs import SWEEPS
from simulation import Fault, Outcome, installed, shrunk
from sweep_universe import SweepUniverse, modules

SEEDS, BLOCKS = 100, 2


@pytest.fixture(scope="module", autouse=True)
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the rooms of a sweep see the universe's clock and threads."""
    with installed(tmp_path_factory.mktemp("universe"), modules):
        yield


def run(seed: int, only: frozenset[Fault] | None = None) -> Outcome:
    return SweepUniverse(seed, only).run()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_sweep_holds_under_every_schedule(block: int) -> None:
    outcomes = (run(seed) for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS))
    failed = [(outcome.seed, outcome.problem) for outcome in outcomes if outcome.problem]
    assert failed == []


@pytest.mark.parametrize(
    "seed",
    [
        32,  # a trial that had succeeded got a second end when its job could not be removed
        492,  # a late event began a sweep that had ended
        20358,  # a trial that had succeeded got a second end when the first could not be written
    ],
)
def test_a_schedule_of_a_sweep_that_once_failed_holds(seed: int) -> None:
    assert run(seed).problem == ""


FOUND = {
    "a trial whose end cannot be written has failed": 20358,
    "a late event begins a sweep that has ended": 492,
    "an object that a lost request created is another's": 76,
    "a leader leads until others may": 4,
    "a Lease is taken before it has run out": 24,
    "a Lease is taken that somebody else took": 162,
    "a job that an earlier engine created is refused": 1,
    "who does not lead any more writes on": 0,
    "a version that is too old ends a watch": 122,
    "a log that was cut counts as read": 157,
    "a request is sent once": 1,
    "a server that has just started denies for good": 73,
    "trials that began before are forgotten": 0,
}
"""The first seed that finds a planted bug."""


@pytest.mark.parametrize("bug", SWEEPS)
def test_a_planted_bug_of_sweeps_is_found(bug: str) -> None:
    with SWEEPS[bug].planted():
        assert run(FOUND[bug]).problem


def test_a_sweep_replays_exactly_and_is_shrunk() -> None:
    bug = "a leader leads until others may"
    with SWEEPS[bug].planted():
        first, again = run(FOUND[bug]), run(FOUND[bug])
        assert (again.struck, again.steps, again.problem) == (
            first.struck,
            first.steps,
            first.problem,
        )
        fewest = shrunk(lambda only: run(FOUND[bug], only), first)
        assert fewest.problem
        assert len(fewest.struck) <= len(first.struck)
