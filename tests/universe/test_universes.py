"""The registry, sweeps wherever they run, runs of pipelines and schedules hold under every order and
fault."""

from collections.abc import Callable
from typing import Any

import pytest
from run import BUGS, failures, fewest, run

pytestmark = pytest.mark.whole
Apart = Callable[..., Any]

BLOCKS = [
    *[("registry", begin, begin + 150) for begin in range(0, 1200, 150)],
    *[("buckets", begin, begin + 75) for begin in range(0, 150, 75)],
    *[("sweeps", begin, begin + 25) for begin in range(0, 75, 25)],
    ("files", 0, 60),
    ("pools", 0, 15),
    *[("runs", begin, begin + 25) for begin in range(0, 100, 25)],
    ("schedules", 0, 400),
]


@pytest.mark.parametrize(("name", "begin", "end"), BLOCKS)
def test_everything_holds_under_every_schedule(
    name: str, begin: int, end: int, apart: Apart
) -> None:
    ran, _, failed = apart(failures, (name, begin, end))
    assert (ran, [(outcome.seed, outcome.problem) for _, outcome in failed]) == (end - begin, [])


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("registry", 55),  # a deletion was killed after its last file
        ("registry", 133),  # a request to delete was on its way while the version was added again
        ("registry", 526),  # files were missing between the naming and a second look
        ("registry", 1058),  # an upload wrote files of a version that was deleted as it ended
        ("registry", 1917),  # a deletion ended between the look at the files and the naming
        ("registry", 2282),  # repair named a version that was deleted after it had looked
        ("registry", 16442),  # a deletion was under way at that look
        ("registry", 3917),  # the metadata.json was that of another upload of the same files
        ("registry", 1001158),  # the second arrival of a write met a later upload's file
        ("registry", 7017203),  # a clock two days ahead took a deletion that went on for an old one
        ("registry", 8017620),  # as well, and its request was on its way for 20 s
        ("buckets", 7017601),  # the same where a lock stands for conditions
        ("buckets", 8003418),  # an upload was named over another's file of the same name
        ("buckets", 20183),  # a server's check and store were one step, and passed the probe
        ("sweeps", 32),  # a succeeded trial got a second end: its job could not be removed
        ("sweeps", 492),  # a late event began a sweep that had ended
        ("sweeps", 20358),  # a succeeded trial got a second end: the first could not be written
        ("sweeps", 1000159),  # a denial after a silence that only the look at pods had met
        ("sweeps", 7010573),  # a denial after a silence that only the reader of a log had met
        ("sweeps", 1001376),  # who led no more went on asking for a job's removal
        ("sweeps", 2001224),  # the end was written before the last job was gone, which stayed
        ("pools", 32),  # an engine that led no more deleted the pool of the next one
        ("pools", 4002111),  # a trial was written as its deleted sweep's files were removed
        ("pools", 8003627),  # the trial of a failed sweep still ran as its engine died
        ("pools", 6002368),  # the answer that a Job exists already was lost, and counted as heard
        ("files", 1059),  # a trial began again as a stop met a sweep that led again
        ("files", 901188),  # who had waited went on with a sweep that was deleted meanwhile
        ("files", 1000891),  # a resume that failed kept the Lease until its process ended
        ("files", 5001091),  # a command saw an end that another process never would
        ("files", 7058),  # a storage that was away failed a sweep that had just begun
        ("files", 10875),  # a deletion that waited took the sweep that another had begun meanwhile
        ("files", 9019747),  # the model's: a step's next try knew of the silence before it
        ("runs", 7008929),  # the model's: a run's command had not taken the first report yet
        ("runs", 7014795),  # the model's: a child whose parent was killed had ended by itself
        ("runs", 8000856),  # the model's: a child was killed as its dead parent was unwound
        ("runs", 701333),  # a step whose log could not be written went on beside its next try
        ("schedules", 5000150),  # of three applied in one second the oldest stayed
        ("schedules", 2510),  # each of two who applied at once deleted the other's schedule
    ],
)
def test_a_schedule_that_once_failed_holds(name: str, seed: int, apart: Apart) -> None:
    assert apart(run, name, seed).problem == ""


FOUND = {
    "registry": {
        "the document is written without a condition": 45,
        "a lost answer is not recognized": 2298,
        "a challenger beats a champion that it was not compared with": 569,
        "the etag is that of a later read": 14,
        "a document that was read is never read again": 18,
        "clocks that differ turn the history around": 218,
        "an alias may point at a version that is being deleted": 90,
        "a version is named before its files are there": 5,
        "what a collector took during an upload stays away": 1917,
        "an upload begins beside a deletion that goes on": 1797,
        "an upload over leftovers does not stop their collector": 1220,
        "a collector that slept deletes what was uploaded again": 12641,
        "a version that is needed is deleted": 7,
        "garbage is collected without a word in the document": 3,
        "an upload is named beside a deletion that is under way": 2102,
        "a killed deletion leaves its token for ever": 481,
        "half a version that nobody names stays for ever": 312,
        "a version is added again though a part of it is missing": 312,
        "a version becomes champion unverified": 29,
        "a segment of the history is named and never written": 87,
        "a deletion leaves no record": 3,
    },
    "buckets": {
        "a store that checks, then stores, counts as one where one wins": 14,
        "a store that ignores conditions counts as one that keeps them": 0,
        "two hold a lock": 173,
        "a killed writer holds its lock for ever": 23,
        "a condition is not looked at again under the lock": 81,
    },
    "sweeps": {
        "a late event begins a sweep that has ended": 180,
        "an object that a lost request created is another's": 76,
        "a leader leads until others may": 24,
        "a Lease is taken before it has run out": 24,
        "a Lease is taken that somebody else took": 162,
        "a job that an earlier engine created is refused": 5,
        "who does not lead any more writes on": 20,
        "a version that is too old ends a watch": 1164,
        "a log that was cut counts as read": 66,
        "a request is sent once": 1,
        "a server that has just started denies for good": 88,
        "trials that began before are forgotten": 0,
    },
    "pools": {
        "a storage that is away for a moment refuses a trial": 51,
        "a storage that is away for a moment fails a sweep": 0,
        "a sweep has ended before its pool is gone": 3,
        "the trial of a pod that is gone waits for ever": 27,
    },
    "files": {
        "who leads again does not look what another process did": 31,
        "a sweep begins that another process has run meanwhile": 19,
        "a resumed sweep is not as another process left it": 15,
        "a storage that is away for a moment fails a sweep with a copy": 71,
        "a job that an earlier process created is refused": 25,
        "the process that runs a sweep counts as alive after it was killed": 5,
    },
    "runs": {
        "a run that another process has stopped counts as killed": 32,
        "a step of the wall clock lengthens a step": 88,
        "a child that is killed as it starts breaks a pipe": 67,
        "half a report ends a command in a traceback": 1,
        "who lost a run writes its record": 33,
        "a result of other inputs serves": 4,
        "outputs of a try that failed count": 3,
        "no exit handler runs after a failure": 7,
        "a step that goes on outlives a run whose command was killed": 935,
    },
    "schedules": {
        "two who apply at once leave two schedules": 12,
        "two who apply at once delete each other's schedule": 2510,
        "a schedule that is gone already ends a command": 10,
    },
}
"""The first seed that finds a planted bug."""


@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name in BUGS for bug in BUGS[name]])
def test_a_planted_bug_is_found(name: str, bug: str, apart: Apart) -> None:
    assert apart(run, name, FOUND[name][bug], bug).problem


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("registry", "a collector that slept deletes what was uploaded again"),
        ("sweeps", "a leader leads until others may"),
    ],
)
def test_a_seed_replays_exactly_and_is_shrunk(name: str, bug: str, apart: Apart) -> None:
    seed = FOUND[name][bug]
    first, again = apart(run, name, seed, bug), apart(run, name, seed, bug)
    assert first.problem
    assert (again.struck, again.steps, again.problem) == (first.struck, first.steps, first.problem)
    shortest = apart(fewest, name, seed, bug)
    assert shortest.problem
    assert len(shortest.struck) < len(first.struck) or len(first.struck) == 1
