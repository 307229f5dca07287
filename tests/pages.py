"""Commands that listen, in processes of their own, and a run for their pages to show."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podium.runner.record import RunRecord, StepRecord


@contextmanager
def running(*words: str, command: str = "ui", said: str = r"look at (http://\S+)") -> Iterator[str]:
    """Run a command that listens; give the address that it prints."""
    program = [sys.executable, "-c", "from podium.cli import main; main()"]
    process = subprocess.Popen(
        [*program, command, "--port", "0", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stderr
    found, lines = None, ""
    for line in process.stderr:
        lines += line
        if found := re.search(said, line):
            break
    assert found, lines
    try:
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, 143)
        last_words = process.stderr.read()
        assert "Traceback" not in last_words
        assert "Cancel " not in last_words
        process.stderr.close()


def write_run(home: Path, state: str) -> str:
    """Write the record of a run that ended in a state, with the log of its second step; return its id."""
    folder = home / "runs" / f"20261127-010000-{state[:4]}"
    (folder / "logs").mkdir(parents=True)
    steps = {
        "prepare-data": StepRecord(title="Prepare the data", state="cached"),
        "train": StepRecord(title="Train the model", state=state),
        "promote": StepRecord(title="Promote it", state="pending"),
    }
    (folder / "logs" / "train.log").write_text("loss=2\nloss=1\n" + 99 * "a line\n")
    (folder / "logs" / "kfp.log").write_text(
        "train: starts\ntrain: Got executor_input:\ntrain: {}\n"
    )
    RunRecord(
        id=folder.name,
        pipeline="tune_and_promote",
        directory=folder,
        parameters={"dataset": "mnist"},
        steps=steps,
        state=state,
        note="a note",
        tags=["baseline"],
    ).save()
    return folder.name
