"""The registry holds under every schedule of processes and faults."""

from collections.abc import Iterator

import pytest
from planted_bugs import REGISTRY
from registry_universe import RegistryUniverse, modules
from simulation import Fault, Outcome, installed, shrunk

SEEDS, BLOCKS = 1200, 4


@pytest.fixture(scope="module", autouse=True)
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the rooms models and storage see the universe's clock and threads."""
    with installed(tmp_path_factory.mktemp("universe"), modules):
        yield


def run(seed: int, only: frozenset[Fault] | None = None) -> Outcome:
    return RegistryUniverse(seed, only).run()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_registry_holds_under_every_schedule(block: int) -> None:
    outcomes = (run(seed) for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS))
    failed = [(outcome.seed, outcome.problem) for outcome in outcomes if outcome.problem]
    assert failed == []


@pytest.mark.parametrize(
    "seed",
    [
        55,  # a deletion was killed after its last file
        133,  # a request to delete was on its way while the version was uploaded again
        526,  # files were missing between the naming of a version and a second look
        1058,  # an upload wrote files of a version that was deleted as it ended
        1917,  # a deletion ended between the look at the files and the naming
        2282,  # repair named a version that was deleted after it had looked
        16442,  # a deletion was under way at that look
        3917,  # the metadata.json was that of another upload of the same files
    ],
)
def test_a_schedule_that_once_failed_holds(seed: int) -> None:
    assert run(seed).problem == ""


FOUND = {
    "the document is written without a condition": 45,
    "a lost answer is not recognized": 2298,
    "a challenger beats a champion that it was not compared with": 569,
    "the etag is that of a later read": 14,
    "a document that was read is never read again": 18,
    "clocks that differ turn the history around": 218,
    "an alias may point at a version that is being deleted": 90,
    "a version is named before its files are there": 5,
    "what a collector took during an upload stays away": 1291,
    "an upload begins beside a deletion that goes on": 446,
    "an upload over leftovers does not stop their collector": 64,
    "a collector that slept deletes what was uploaded again": 64,
    "a version that is needed is deleted": 7,
    "garbage is collected without a word in the document": 3,
    "an upload is named beside a deletion that is under way": 4764,
    "a killed deletion leaves its token for ever": 236,
    "half a version that nobody names stays for ever": 312,
    "a version is added again though a part of it is missing": 312,
    "a version becomes champion unverified": 29,
    "a segment of the history is named and never written": 87,
    "a deletion leaves no record": 3,
}
"""The first seed that finds a planted bug."""


@pytest.mark.parametrize("bug", REGISTRY)
def test_a_planted_bug_is_found(bug: str) -> None:
    with REGISTRY[bug].planted():
        assert run(FOUND[bug]).problem


def test_a_seed_replays_exactly_and_is_shrunk() -> None:
    bug = "a collector that slept deletes what was uploaded again"
    with REGISTRY[bug].planted():
        first, again = run(FOUND[bug]), run(FOUND[bug])
        assert (again.struck, again.steps, again.problem) == (
            first.struck,
            first.steps,
            first.problem,
        )
        fewest = shrunk(lambda only: run(FOUND[bug], only), first)
        assert fewest.problem
        assert len(fewest.struck) < len(first.struck)
