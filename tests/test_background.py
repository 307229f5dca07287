"""No task in the background dies unnoticed."""

import ast
import asyncio
import threading

import pytest
from test_structure import ROOT, nodes, sources

from podium.system import background
from podium.system.background import STUCK, Background, Tries

OWN = {
    "training/follow.py": "shows a log; the job's state decides",
    "runner/detached.py": "reaps a process",
    "runner/interpreter.py": "hands any exception to who waits",
    "runner/child.py": "waits for one byte",
    "system/supervised.py": "passes stdin on, in a process of its own",
    "cluster/local/processes/client.py": "ends every process in its finally",
    "cluster/kubernetes/leadership.py": "counts what fails, and the Lease runs out",
    "prediction/command.py": "reads until the end whatever stderr does",
    "cli/serve.py": "hands any exception to the command",
    "cli/notify.py": "hands any exception to who waits",
    "cli/live.py": "shows a log; the job's state decides",
    "steps/sweep.py": "shows a log; the trial's state decides",
    "sweeps/controller.py": "hands any exception to the loop",
    "sweeps/trials.py": "hands any exception to the trial",
    "display/terminal.py": "says that something goes on",
    "system/background.py": "is the supervisor",
}
"""Files that start a thread without the supervisor, and why nothing is lost with it."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE", 0.001)


def test_a_thread_that_fails_begins_again() -> None:
    rounds: list[int] = []

    def work() -> None:
        rounds.append(1)
        if len(rounds) < 4:
            raise ValueError("non-ascii")

    thread = Background(work, "a thread", again=True)
    thread.start()
    assert thread.join(30)
    assert (len(rounds), thread.tries.failures) == (4, 3)


def test_a_task_that_always_fails_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    tries, rounds = Tries("following"), 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds != STUCK + 1:
            raise ValueError("non-ascii")
        tries.failures += 1000

    async def watch() -> None:
        task = asyncio.create_task(tries.repeat(work, 0.0))
        while not tries.stuck:
            await asyncio.sleep(0)
        while tries.failures < 1000:
            await asyncio.sleep(0.001)
        assert not tries.stuck, "it got on once"
        task.cancel()

    asyncio.run(watch())
    assert (
        "following failed (1 in a row), and restarts in 0.001 s: ValueError at test_background.py:"
        in caplog.text
    )


def test_a_pause_grows_up_to_a_limit() -> None:
    tries = Tries("following")
    with pytest.raises(ValueError) as raised:
        int("x")
    pauses = [tries.failed(raised.value) for _ in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] <= background.MOST_PAUSE


def test_every_thread_has_somebody_who_notices() -> None:
    starters = {
        str(file.relative_to(ROOT / "src/podium"))
        for _, file in sources()
        if file.is_relative_to(ROOT / "src/podium") and "Thread(" in file.read_text()
        for node in nodes(file)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("threading.Thread", "Thread")
    }
    assert starters == set(OWN)


def test_a_thread_can_be_joined_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    thread = Background(lambda: 1 / 0, "a thread")
    thread.start()
    assert thread.join(30)
