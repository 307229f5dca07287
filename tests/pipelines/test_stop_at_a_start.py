"""A stop that comes while a step starts reaches the step."""

import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from podium.runner.child import Reporter, Stopped, _keep_exit_codes

MISSED = """
import logging, os, signal, subprocess, sys, time
from pathlib import Path
from podium.runner.child import Reporter

reporter = Reporter(Path(sys.argv[1]), sys.stderr)
signal.signal(signal.SIGTERM, reporter.stop)
reporter.filter(logging.makeLogRecord({"msg": "Executing task 'wait'"}))
os.kill(os.getpid(), signal.SIGTERM)
step = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
sys.exit(step.wait() != -signal.SIGTERM)
"""


def test_a_step_that_missed_the_signal_gets_another(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", MISSED, tmp_path], start_new_session=True)
    try:
        assert child.wait(120) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def test_a_step_is_not_started_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfp.local import subprocess_task_handler as handler

    monkeypatch.setattr(handler, "run_local_subprocess", handler.run_local_subprocess)
    monkeypatch.setenv("PODIUM_STEP_FAILURE", "")  # restored in the end
    reporter = Reporter(tmp_path / "logs", io.StringIO())
    _keep_exit_codes(reporter)
    reporter.step, reporter.stopping = "wait", True
    words = [sys.executable, "-c", f"open({str(tmp_path / 'begun')!r}, 'w')"]
    with pytest.raises(Stopped):
        handler.run_local_subprocess([*words, "--executor_input", "{}"])
    assert not (tmp_path / "begun").exists()
