"""Processes are started apart, report how they ended, and leave nobody behind. All of them are real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium.cluster.local.processes.client import Command, Launcher
from podium.cluster.local.processes.launcher import IDLE

# A process with a child, and a grandchild that leaves the session: both write their pid and sleep.
FAMILY = """
import os, subprocess, sys, time
code = "import os, time; open(os.environ['OUT'] + '/' + str(os.getpid()), 'w'); time.sleep(60)"
subprocess.Popen([sys.executable, '-S', '-c', code])
subprocess.Popen([sys.executable, '-S', '-c', code], start_new_session=True)
exec(code)
"""


def alive(pid: int) -> bool:
    """Return whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (
        FileNotFoundError,
        ProcessLookupError,
    ):  # the second if it ends between opening and reading
        if not Path("/proc/self").exists():
            return subprocess.run(["ps", "-p", str(pid)], capture_output=True).returncode == 0
        return False


def until(holds: Callable[[], bool], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def pids(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.iterdir() if path.name.isdigit()]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., object]]:
    launcher = Launcher()

    def start(*argv: str, **env: str) -> object:
        whole = {"PATH": os.environ["PATH"], "OUT": str(tmp_path)} | env
        return launcher.start(Command(argv=argv, env=whole, cwd=tmp_path, log=tmp_path / "log"))

    start.launcher = launcher  # type: ignore[attr-defined]
    yield start
    launcher.close()


def test_a_process_gets_its_own_environment_directory_session_and_log(
    start, tmp_path: Path
) -> None:
    code = "import os; print(os.environ['A'], os.getcwd(), os.getsid(0) == os.getpid(), os.environ.get('HOME'))"
    assert start(sys.executable, "-c", code, A="b c").wait(20) == 0
    assert (tmp_path / "log").read_text() == f"b c {tmp_path} True None\n"


@pytest.mark.parametrize(
    ("code", "exit_code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_the_exit_code_is_what_a_shell_would_say(start, code: str, exit_code: int) -> None:
    assert start("sh", "-c", code).wait(20) == exit_code


@pytest.mark.parametrize(("program", "exit_code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_executed_says_so_in_its_log(
    start, tmp_path: Path, program: str, exit_code: int
) -> None:
    assert start(program).wait(20) == exit_code
    assert f"cannot start {program}" in (tmp_path / "log").read_text()


def test_sigterm_lets_a_process_end_in_its_own_way(start, tmp_path: Path) -> None:
    process = start(
        "sh", "-c", "trap 'echo bye; exit 7' TERM; touch ready; while :; do sleep 0.05; done"
    )
    assert until((tmp_path / "ready").exists)
    process.stop()
    assert process.wait(20) == 7
    assert "bye" in (tmp_path / "log").read_text()


def test_sigterm_right_after_the_start_is_not_lost(start) -> None:
    for _ in range(30):
        process = start("sleep", "60")
        process.stop()
        assert process.wait(5) == 143


def test_a_late_sigterm_does_not_reach_the_next_process(start) -> None:
    for _ in range(5):
        ended = start("true")
        assert ended.wait(20) == 0
        ended.stop()
        ended.kill()
        assert start("sh", "-c", "sleep 0.05; exit 7").wait(20) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_few_idle_supervisors_wait_for_more_processes(start, tmp_path: Path) -> None:
    children = Path(
        f"/proc/{start.launcher._program.pid}/task/{start.launcher._program.pid}/children"
    )
    processes = [start("sh", "-c", "until [ -e go ]; do sleep 0.05; done") for _ in range(IDLE + 3)]
    assert len(children.read_text().split()) == IDLE + 3
    (tmp_path / "go").touch()
    assert [process.wait(20) for process in processes] == [0] * (IDLE + 3)
    assert until(lambda: len(children.read_text().split()) == IDLE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_supervisor_takes_its_processes_along_and_is_replaced(
    start, tmp_path: Path
) -> None:
    process = start("sh", "-c", "sleep 600 & echo $! > child; wait")
    assert until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    supervisor = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(supervisor), signal.SIGKILL)
    assert process.wait(20) == 137
    assert until(lambda: not alive(process.pid))
    assert until(lambda: not alive(int((tmp_path / "child").read_text())))
    assert start("sh", "-c", "exit 7").wait(20) == 7


def test_a_kill_takes_grandchildren_in_other_sessions_too(start, tmp_path: Path) -> None:
    process = start(sys.executable, "-c", FAMILY)
    assert until(lambda: len(pids(tmp_path)) == 3)
    process.kill()
    assert process.wait(20) == 137
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_what_a_process_leaves_behind_ends_with_it(start, tmp_path: Path) -> None:
    process = start(sys.executable, "-c", FAMILY.replace("exec(code)", "time.sleep(1)"))
    assert until(lambda: len(pids(tmp_path)) == 2)
    assert process.wait(20) == 0
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_close_stops_everything(start, tmp_path: Path) -> None:
    start(sys.executable, "-c", FAMILY)
    assert until(lambda: len(pids(tmp_path)) == 3)
    start.launcher.close()
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@pytest.mark.parametrize("victim", ["caller", "launcher"])
def test_nothing_survives_when_the_caller_or_the_launcher_is_killed(
    tmp_path: Path, victim: str
) -> None:
    source = (
        "import os, sys, time; from pathlib import Path; from podium.cluster.local.processes.client import *\n"
        "here = Path(os.environ['OUT']); one = Launcher(); print(one._program.pid, flush=True)\n"
        "argv = (sys.executable, '-c', sys.argv[1])\n"
        "one.start(Command(argv=argv, env=dict(os.environ), cwd=here, log=here / 'log')); time.sleep(60)"
    )
    env = os.environ | {"OUT": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", source, FAMILY], env=env, stdout=subprocess.PIPE
    ) as caller:
        assert caller.stdout
        launcher = int(caller.stdout.readline())
        assert until(lambda: len(pids(tmp_path)) == 3)
        os.kill(caller.pid if victim == "caller" else launcher, signal.SIGKILL)
        family = pids(tmp_path)
        assert until(lambda: not any(alive(pid) for pid in family), 10)
        assert until(lambda: not alive(launcher), 10)
        caller.kill()
