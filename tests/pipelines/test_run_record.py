"""What is recorded of a run: how a step failed, and whether a process of it lives."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from podium.errors import Conflict, Failed
from podium.runner.messages import Event
from podium.runner.record import (
    Annotations,
    RunRecord,
    StepRecord,
    _is_locked,
    failure_file,
    locked,
)


def failed_run(home: Path, printed: str) -> RunRecord:
    step = StepRecord(title="Prepare the data", state="failed", exit_code=1)
    run = RunRecord(id="a", pipeline="train", directory=home / "a", words=["source=x"],
                    steps={"prepare-data": step})  # fmt: skip
    (run.directory / "logs").mkdir(parents=True)
    run.log("prepare-data").write_text(printed)
    return run


@pytest.mark.parametrize("printed", ["with: {bad", 'with: {"source": "$(reboot)"}'])
def test_what_a_step_prints_becomes_no_command(home: Path, printed: str) -> None:
    run = failed_run(home, f"error: no room\n{printed}\n")
    with pytest.raises(Failed) as caught:
        run.end(1, stopped=False)
    assert caught.value.message == f'step "Prepare the data" failed\n  error: no room\n  {printed}'
    assert str(caught.value.hint).endswith("continue with: podium run train source=x")


def test_the_error_that_a_step_left_is_told(home: Path) -> None:
    run = failed_run(home, "error: printed\n" * 100_000)
    left = {"error": "x has no column y\nhint: name another", "fix": {"target": "z"}}
    failure_file(run.directory, "prepare-data").write_text(json.dumps(left))
    with pytest.raises(Failed) as caught:
        run.end(1, stopped=False)
    assert "failed\n  x has no column y\n  hint: name another" in caught.value.message
    assert str(caught.value.hint).endswith(": podium run train source=x target=z")


CHAINED = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/socket.py", line 827, in create_connection
    for res in getaddrinfo(host, port):
               ^^^^^^^^^^^^^^^^^^^^^^^
socket.gaierror: [Errno -2] Name or service not known

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/env/lib/python3.11/site-packages/kfp/dsl/executor.py", line 361, in execute
    result = self.func(**func_kwargs)
  File "/tmp/x/ephemeral_component.py", line 12, in load
    df = pd.read_csv("https://far.example/rows.csv")
         ^^^^^^^^^^^
  File "/env/lib/python3.11/site-packages/pandas/io/common.py", line 9, in get_handle
    urlopen()
urllib.error.URLError: <urlopen error Name or service not known>
"""


def test_a_traceback_is_shown_by_the_users_own_lines(home: Path) -> None:
    run = failed_run(home, "rows\n" * 40 + CHAINED)
    with pytest.raises(Failed) as caught:
        run.end(1, stopped=False)
    said = caught.value.message.splitlines()
    assert said[-4:] == [
        '    File "/tmp/x/ephemeral_component.py", line 12, in load',
        '      df = pd.read_csv("https://far.example/rows.csv")',
        "           ^^^^^^^^^^^",
        "  urllib.error.URLError: <urlopen error Name or service not known>",
    ]
    assert "  socket.gaierror: [Errno -2] Name or service not known" in said
    assert not any("/lib/python3" in line or "frozen" in line for line in said)


def test_a_step_that_printed_nothing_names_its_exit_code(home: Path) -> None:
    run = failed_run(home, "")
    run.steps["prepare-data"].exit_code = 7
    with pytest.raises(Failed) as caught:
        run.end(1, stopped=False)
    assert (
        caught.value.message
        == 'step "Prepare the data" failed with exit code 7\n  it printed nothing'
    )


def test_the_error_of_an_attempt_before_is_not_shown(home: Path) -> None:
    plain = 'Traceback (most recent call last):\n  File "/tmp/x/c.py", line 1, in f\n{}\n'
    again = "exit code 1: it is tried again in 0 s\n"
    with pytest.raises(Failed) as caught:
        failed_run(home, plain.format("KeyError: 'old'") + again + CHAINED).end(1, stopped=False)
    assert "old" not in caught.value.message
    assert "socket.gaierror" in caught.value.message
    silent = plain.format("KeyError: 'old'") + "it is tried again\n"
    with pytest.raises(Failed) as caught:
        failed_run(home / "other", silent).end(1, stopped=False)
    assert caught.value.message.splitlines()[1:] == ["  it printed nothing"]


def test_a_failed_run_names_the_last_words_of_its_program(home: Path) -> None:
    run = failed_run(home, "")
    assert run.cause == ""
    run.state = "failed"
    assert run.cause == 'it printed nothing, in "Prepare the data"'
    error = "Trial a failed: E: x\n  | Traceback\n  | E: x\nhint: all it said: a.log"
    failure_file(run.directory, "prepare-data").write_text(json.dumps({"error": error, "fix": {}}))
    assert run.cause == 'E: x, in "Prepare the data"'


def test_looking_at_a_run_keeps_nobody_from_beginning_it(tmp_path: Path) -> None:
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            _is_locked(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(300):
            with locked(tmp_path):
                assert _is_locked(tmp_path)
                with pytest.raises(Conflict), locked(tmp_path):
                    pass
    finally:
        over.set()
        for looker in lookers:
            looker.join()
    assert not _is_locked(tmp_path)


@pytest.mark.parametrize("day", [86400.0, -86400.0])
def test_a_step_of_the_wall_clock_lengthens_no_step(
    monkeypatch: pytest.MonkeyPatch, day: float
) -> None:
    clock, done, running = time.time, StepRecord(title="Train"), StepRecord(title="Train")
    for step in (done, running):
        step.take(Event(kind="start", step="train"))
    told = StepRecord(
        title="Train", state="running", started=running.started
    )  # as another process reads it
    monkeypatch.setattr("podium.runner.record.time.time", lambda: clock() + day)
    done.take(Event(kind="success", step="train"))
    assert 0 <= (done.seconds or 0.0) < 60
    assert 0 <= running.elapsed < 60
    assert told.elapsed >= 0


def test_a_note_counts_in_a_file_of_the_same_inode(home: Path) -> None:
    run = failed_run(home, "")
    run.save()
    path = run.directory / "run.json"
    before = path.stat()
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "note": "too slow", "tags": ["a"]}))
    # As where a disk gives the number of a removed file to the next one, in the same tick.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    run.save()
    assert Annotations.read(run.directory) == Annotations(note="too slow", tags=("a",))
