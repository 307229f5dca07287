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


DEAF = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
)


def supervised_and_deaf() -> subprocess.Popen[bytes]:
    """Start a supervised step that ignores SIGTERM; return once it does."""
    words = ["-P", "-m", "podium.system.supervised", sys.executable, "-c", DEAF]
    process = subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_process_that_ignores_the_end_is_killed(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, io.StringIO())
    process = reporter.begin(supervised_and_deaf)
    assert process is not None
    with process:
        reporter.end(grace=0.2)
        assert process.wait(60) == 128 + signal.SIGKILL


def test_a_step_that_starts_as_the_time_ends_is_killed(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, io.StringIO())

    def start() -> subprocess.Popen[bytes]:
        process = supervised_and_deaf()
        reporter.end(grace=0.2)
        return process

    process = reporter.begin(start)
    assert process is not None
    with process:
        assert process.wait(60) == 128 + signal.SIGKILL
