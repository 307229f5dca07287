"""A stop that comes while a step starts reaches the step."""

import io
import signal
import subprocess
import sys
from pathlib import Path

from podium.runner.limits import end
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


def test_a_process_that_ignores_the_end_is_killed(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, io.StringIO())
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    supervised = [
        "-P",
        "-m",
        "podium.cluster.local.processes.supervised",
        sys.executable,
        "-c",
        deaf,
    ]
    process = reporter.begin(
        lambda: subprocess.Popen(
            [sys.executable, *supervised], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    )
    assert process is not None
    assert process.stdout is not None
    with process.stdout as printed:
        printed.readline()
        end([process], grace=0.2)
        assert printed.read() == b""
    assert process.wait(60) == 128 + signal.SIGKILL
