"""Many processes promote at once; readers look on. The same on every storage."""

import itertools
import multiprocessing
import os
from typing import Any

import numpy as np
import pytest
from challenges import judging

from podium.models import Model, Registry, open_registry
from podium.storage import Storage

pytestmark = pytest.mark.whole

LABELS = np.arange(500) % 10


def predictions(version: str) -> np.ndarray:
    """Runner number n has its last 2n + 400 images right, so that a higher number is better."""
    right = 2 * int(version.removeprefix("runner-")) + 400
    return np.where(np.arange(500) < 500 - right, (LABELS + 1) % 10, LABELS)


def run(url: str, environ: dict[str, str], number: int, barrier: Any) -> None:
    os.environ.update(environ)
    model, name = open_registry(url).model("mnist"), f"runner-{number}"
    barrier.wait(120)
    model.upload({"model.onnx": name.encode() * 1000}, {"run_id": name})
    model.challenge(name, judging(lambda version: predictions(version.version), LABELS))


def look_on(url: str, environ: dict[str, str], stop: Any, seen: Any) -> None:
    os.environ.update(environ)
    model, best = open_registry(url).model("mnist"), 0
    while not stop.is_set():
        if champion := model.find_champion():
            assert champion.read("model.onnx") == champion.version.encode() * 1000
            best = max(best, int(champion.version.removeprefix("runner-")) + 1)
    seen.value = best


def race(storage: Storage, runners: int) -> Model:
    spawn = multiprocessing.get_context("forkserver")
    stop, seen, barrier = spawn.Event(), spawn.Value("i", 0), spawn.Barrier(runners)
    reader = spawn.Process(target=look_on, args=(storage.url, dict(os.environ), stop, seen))
    reader.start()
    processes = [
        spawn.Process(target=run, args=(storage.url, dict(os.environ), number, barrier))
        for number in range(runners)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(280)
    stop.set()
    reader.join(60)
    assert [process.exitcode for process in [*processes, reader]] == [0] * (runners + 1)
    return Registry(storage).model("mnist")


def check(model: Model, runners: int) -> None:
    """One winner at a time, every move of it in the history, nothing lost, the best on top."""
    assert model.version().version == f"runner-{runners - 1}"
    assert len(model.versions) == runners
    events = model.records()
    history = [event for event in events if event.event == "promotion"]
    assert {event.version for event in events} == {f"runner-{number}" for number in range(runners)}
    assert [event.sequence for event in history] == list(range(1, len(history) + 1))
    assert history[0].replaced is None
    for before, after in itertools.pairwise(history):
        assert after.replaced == before.version
        assert after.evidence["only_challenger_right"] > after.evidence["only_champion_right"]
    assert list(model.verify()) == []


def test_processes_racing_to_promote_leave_a_complete_history(storage: Storage) -> None:
    check(race(storage, 3), 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_processes_racing_to_promote_leave_a_complete_history(storage: Storage) -> None:
    # Where the server ignores conditions each move takes a lock object, and moto answers few requests a second.
    runners = 12 if storage.conditions().startswith("lock objects") else 50
    check(race(storage, runners), runners)
