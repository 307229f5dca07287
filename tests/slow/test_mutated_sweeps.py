"""Mutated Experiments that are accepted run to an end that makes sense."""

import random
from pathlib import Path

import pytest
from katibcases import bases, mutate, trivial

from podium.errors import InvalidInput
from podium.manifests.conditions import status_of
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

COUNT = 600
SECONDS = 10.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_accepted_mutation_ends_or_can_be_stopped(tmp_path: Path) -> None:
    made = [(name, trivial(base)) for name, base in bases()]
    ran = 0
    for number in range(COUNT):
        draw = random.Random(number)
        name, base = draw.choice(made)
        manifest, done = mutate(base, draw)
        what = f"{number}: {name}, {done}"
        with LocalSweeps(tmp_path / str(number), fork_server=False) as cluster:
            try:
                created = cluster.create(typed(manifest)).name
            except InvalidInput:
                continue
            ran += 1
            ended = cluster.join("Experiment", created, SECONDS)
            if not ended:  # maxTrialCount was lost: it would go on for ever, as in Katib
                cluster.abandon("Experiment", created)
                assert cluster.join("Experiment", created, 60), what
            found = cluster.get("Experiment", created).manifest
            trials = [stored.manifest for stored in cluster.list("Trial")]
            states = [status_of(trial).phase for trial in trials]
            status, most = found["status"], found["spec"].get("maxTrialCount")
            assert status.get("trials", 0) == len(trials), what
            assert status.get("trialsSucceeded", 0) == states.count("Succeeded"), what
            assert most is None or len(trials) <= most + 1, what
            if ended:
                assert status_of(found).finished, what
                assert not cluster.list("Job") or status["trials"], what
                best = status["currentOptimalTrial"].get("bestTrialName")
                assert bool(best) == bool(
                    status.get("trialsSucceeded") or status.get("trialsEarlyStopped")
                ), what
            else:
                assert status["conditions"][-1]["type"] == "Stopped", what
    assert ran > COUNT // 20
