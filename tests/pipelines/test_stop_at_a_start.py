"""A stop that comes while a step starts reaches the step."""

import io
import signal
import subprocess
import sys
from pathlib import Path

from podium.runner.reporter import Reporter

WAITING = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_step_that_missed_the_signal_gets_it(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, io.StringIO())

    def start() -> subprocess.Popen[bytes]:
        reporter.stop()
        return subprocess.Popen(WAITING)

    process = reporter.begin(start)
    assert process is not None
    assert process.wait(120) == -signal.SIGTERM


def test_a_step_is_not_started_after_a_stop(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, io.StringIO())
    reporter.stop()
    assert reporter.begin(lambda: subprocess.Popen(WAITING)) is None
