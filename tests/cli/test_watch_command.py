"""`podium watch`: a command is started when data have changed and settled, and no change is lost."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from s3servers import KEYS
from terminals import PODIUM

from podium.cli import app
from podium.errors import Conflict, Failed, InvalidInput, PodiumError
from podium.runner.trigger import CHANGED, Trigger
from podium.storage import connect

COMMAND = ("run",)


@pytest.fixture(params=["directory", "file", "prefix", "object"])
def data(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    endpoint: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[str, Callable[[str], None]]:
    """A URI to watch, and a function that writes text to it."""
    kind = request.param
    base: str = str(tmp_path / "data")
    if kind in ("prefix", "object"):
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint("moto")}.items():
            monkeypatch.setenv(name, value)
        base = f"s3://watch-{kind}-{time.time_ns()}/raw"
        connect(base.removesuffix("/raw"), create=True)
    uri = base if kind in ("directory", "prefix") else f"{base}/a.csv"
    return uri, lambda text: connect(base).put("a.csv", text.encode()) and None


def looks(trigger: Trigger, count: int = 1) -> list[tuple[bool, bool]]:
    """Look so many times: whether the command was due, and whether a change was said."""
    seen = []
    for _ in range(count):
        said: list[str] = []
        due = trigger.look(said.append)
        if due:
            trigger.handled(due)
        seen.append((bool(due), any(CHANGED in line for line in said)))
    return seen


def test_a_change_is_due_once_it_has_settled(
    data: tuple[str, Callable[[str], None]], tmp_path: Path
) -> None:
    uri, write = data
    write("1")
    trigger = Trigger(uri, tmp_path / "state", COMMAND)
    assert looks(trigger, 2) == [(False, False)] * 2
    write("22")
    assert looks(trigger) == [(False, True)]
    write("333")  # still being written
    assert looks(trigger, 3) == [(False, True), (True, False), (False, False)]


def test_data_that_appear_later_are_a_change(
    data: tuple[str, Callable[[str], None]], tmp_path: Path
) -> None:
    uri, write = data
    trigger = Trigger(uri, tmp_path / "state", COMMAND)
    assert looks(trigger, 2) == [(False, False)] * 2
    write("1")
    assert looks(trigger, 2) == [(False, True), (True, False)]


def test_a_restart_loses_no_change_and_repeats_none(tmp_path: Path) -> None:
    storage = connect(tmp_path / "data")
    storage.put("a", b"1")
    looks(Trigger(str(tmp_path / "data"), tmp_path / "state", COMMAND))
    storage.put("a", b"22")
    again = Trigger(str(tmp_path / "data"), tmp_path / "state", COMMAND)
    assert looks(again) == [(False, True)]
    due = again.look(lambda line: None)  # killed while the command ran
    assert due
    after = Trigger(str(tmp_path / "data"), tmp_path / "state", COMMAND)
    assert looks(after, 2) == [(True, False), (False, False)]


def test_now_runs_for_data_that_are_there(tmp_path: Path) -> None:
    connect(tmp_path / "data").put("a", b"1")
    trigger = Trigger(str(tmp_path / "data"), tmp_path / "state", COMMAND, now=True)
    assert [due for due, _ in looks(trigger, 3)] == [False, True, False]


def test_a_failing_command_is_reported_once_for_its_data(tmp_path: Path) -> None:
    connect(tmp_path / "data").put("a", b"1")
    trigger, said, runs = (
        Trigger(str(tmp_path / "data"), tmp_path / "s", COMMAND, now=True),
        [],
        [],
    )

    def run() -> None:
        runs.append(1)
        raise Failed("it failed")

    def say(line: str) -> None:
        said.append(line)
        if "watching continues" in line:
            ended.append(time.monotonic())

    ended: list[float] = []

    def look(report: Callable[[str], None], original: Callable[..., str] = trigger.look) -> str:
        if ended and time.monotonic() - ended[0] > 0.2:
            raise KeyboardInterrupt
        return original(report)

    trigger.look = look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trigger.follow(run, say, every=0.01, once=False)
    assert len(runs) == 1
    assert said[-1] == "warning: it failed; watching continues"


def test_two_watches_of_one_command_are_refused(tmp_path: Path) -> None:
    trigger = Trigger(str(tmp_path), tmp_path / "state", COMMAND)
    with trigger.held():
        with pytest.raises(Conflict, match="being watched"), trigger.held():
            pass
        with Trigger(str(tmp_path), tmp_path / "state", ("data",)).held():
            pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--", "rnu"], "'rnu' is not a command of podium"),
        (["x", "--", "watch", "y"], "'watch' is not a command"),
        (["x", "--every", "soon", "--", "run"], "--every is a time such as"),
        (["s3:/x", "--", "run"], "not a URL: 's3:/x'"),
        (["x", "--notify", "http://h/", "--", "models", "list"], "sends no notification"),
        (["x", "--notify", "ftp://h/", "--", "run"], "begins with http"),
    ],
)
def test_what_cannot_be_watched_is_refused_at_once(
    words: list[str], message: str, tmp_path: Path
) -> None:
    refused: Any = CliRunner().invoke(app, ["watch", *words]).exception
    assert isinstance(refused, InvalidInput)
    assert message in refused.message
    assert not (tmp_path / "podium-home" / "watch").exists()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A watch of a directory that lists it whenever it changes."""
    words = [
        "watch",
        str(tmp_path / "in"),
        "--every",
        "0.2s",
        "--",
        "storage",
        "list",
        str(tmp_path / "in"),
        "--json",
    ]
    process = subprocess.Popen(
        [*PODIUM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    yield process
    process.kill()
    process.communicate()


def test_a_change_starts_the_command_until_a_signal(
    watching: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert watching.stderr is not None
    assert watching.stdout is not None
    assert "nothing there yet" in watching.stderr.readline()
    connect(tmp_path / "in").put("a.csv", b"123")
    lines = [watching.stderr.readline() for _ in range(3)]
    assert [line.split("  ")[1].split(":")[0].strip() for line in lines] == [
        CHANGED,
        "running",
        "done",
    ]
    watching.send_signal(signal.SIGTERM)
    out, err = watching.communicate(timeout=30)
    assert [entry["key"] for entry in json.loads(out)] == ["a.csv"]
    assert (watching.returncode, err.strip()) == (143, "terminated")


def test_a_storage_that_fails_is_asked_again(tmp_path: Path) -> None:
    trigger, said = Trigger(str(tmp_path), tmp_path / "state", COMMAND), []
    answers = iter([PodiumError("no answer"), PodiumError("no answer"), KeyboardInterrupt()])

    def look(_: Callable[[str], None]) -> str:
        raise next(answers)

    trigger.look = look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trigger.follow(lambda: None, said.append, every=0.01, once=False)
    assert said == ["warning: no answer; looking again every 0.01 s"]


def test_a_disk_that_takes_no_state_ends_no_watch(tmp_path: Path) -> None:
    connect(tmp_path / "data").put("a", b"1")
    uri, state = str(tmp_path / "data"), tmp_path / "state"
    trigger = Trigger(uri, state, COMMAND, now=True)
    said, runs, looked = list[str](), list[int](), list[int]()

    def run() -> None:
        runs.append(1)
        shutil.rmtree(state)
        state.write_text("")  # nothing can be written there, as on a full disk

    def say(line: str) -> None:
        said.append(line)
        if "looking again" in line:
            state.unlink()

    def look(report: Callable[[str], None], original: Callable[..., str] = trigger.look) -> str:
        looked.append(1)
        if len(looked) > 6:
            raise KeyboardInterrupt
        return original(report)

    trigger.look = look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trigger.follow(run, say, every=0.01, once=False)
    assert len(runs) == 1
    assert [line.partition(":")[0] for line in said] == [f"watching {uri}", "warning"]
    assert "File exists; looking again every 0.01 s" in said[1]
    assert Trigger(uri, state, COMMAND).look(said.append) == "", "a restart knows of it"


def test_a_command_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    connect(tmp_path / "data").put("a", b"1")
    trigger = Trigger(str(tmp_path / "data"), tmp_path / "state", COMMAND, now=True)
    said, answers = list[str](), iter([OSError(11, "no process"), KeyboardInterrupt()])

    def run() -> None:
        raise next(answers)

    with pytest.raises(KeyboardInterrupt):
        trigger.follow(run, said.append, every=0.01, once=False)
    assert "no process; trying again every 0.01 s" in said[-1]
