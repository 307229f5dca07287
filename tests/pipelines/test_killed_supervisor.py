"""A step or predict command gets its supervisor's signals, and nothing is left if that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podium.prediction import command
from podium.runner import step_runner
from podium.runner.reporter import Reporter, StepLog
from podium.system import supervised


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_supervisor_leaves_no_process_of_its_shell(number: int) -> None:
    script = "sleep 600 & echo $!; wait"
    process = supervised.outlived(
        subprocess.Popen(
            [sys.executable, "-I", "-S", supervised.__file__, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    )
    assert process.stdout
    with process:
        below = int(process.stdout.readline())
        os.kill(process.pid, number)
        assert process.stdout.read() == b""  # it ends once nobody holds it
        assert process.wait(60) == -number
        end = time.monotonic() + 60
        while Path(f"/proc/{below}").exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(f"/proc/{below}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_keeper_leaves_nothing_of_a_predict_command(tmp_path: Path) -> None:
    note, words = tmp_path / "pid", ["sh", "-c", "sleep 600 & echo $! > pid; wait"]
    process = command.supervised(words, tmp_path, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (note.exists() and note.read_text().strip()) and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    assert command.end(process) == -signal.SIGKILL
    below = Path(f"/proc/{note.read_text().strip()}")
    while below.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not below.exists()


def test_a_signal_that_interrupts_no_wait_is_noticed() -> None:
    # Another thread gets it, so that the wait for the command goes on, as it does for a signal that
    # comes just before it.
    command = (
        "import signal, time; signal.pthread_sigmask(signal.SIG_UNBLOCK, [15]);"
        " print('ready', flush=True); time.sleep(30)"
    )
    script = (
        "import signal, sys, threading, time; from podium.system import supervised\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [15])\n"
        f"sys.exit(supervised._main([sys.executable, '-c', {command!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_a_command_ends_where_ends_of_children_are_ignored() -> None:
    script = (
        "import signal, sys; from podium.system import supervised\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "sys.exit(supervised._main(['sh', '-c', 'exit 3']))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        try:
            assert process.wait(30) == 3
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_supervisor_is_its_commands(number: int) -> None:
    script = (
        f"trap 'echo told; exit 7' {number}; echo ready; for n in $(seq 300); do sleep 0.1; done"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", supervised.__file__, "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == b"told\n"
        assert process.wait(60) == 7


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_step_whose_log_cannot_be_written_is_ended(tmp_path: Path) -> None:
    (tmp_path / "use.log").symlink_to("/dev/full")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervised.__file__, "sh", "-c", "echo 1; sleep 600"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with open(os.devnull, "w") as events, pytest.raises(OSError, match="No space left"):
        step_runner._follow(process, StepLog(Reporter(tmp_path, events), "use"))
    assert process.poll() is not None
