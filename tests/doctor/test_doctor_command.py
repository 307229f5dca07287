"""Commands that the doctor runs."""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from podium.doctor import Reader
from podium.doctor.command import examine_command
from podium.doctor.report import Report
from podium.errors import InvalidInput
from podium.manifests.rules import Finding


def run(*words: str, seconds: float = 20.0) -> Report:
    """Run a command whose objective is the loss."""
    reader = Reader(objective="loss", kind="minimize")
    return examine_command(words, lambda lines: reader, seconds=seconds, subject="it")


def program(folder: Path, text: str) -> tuple[str, str]:
    """Write a Python program; return the command that runs it."""
    file = folder / "train.py"
    file.write_text(text)
    return shlex.quote(sys.executable), str(file)


def by_rule(report: Report) -> dict[str, Finding]:
    return {finding.rule: finding for finding in report.findings}


def test_a_good_command_passes_and_shows_what_katib_would_see(tmp_path: Path) -> None:
    report = run(*program(tmp_path, "import time; print('loss=0.5', flush=True); time.sleep(1)"))
    assert report.verdict == "pass"
    assert report.details["exit"] == 0
    assert report.details["stored"][0]["value"] == 0.5
    assert report.details["commands"]["it"][:2] == ("sh", "-c")


def test_standard_error_is_collected_too(tmp_path: Path) -> None:
    report = run(
        *program(tmp_path, "import sys, time; print('loss=0.5', file=sys.stderr); time.sleep(1)")
    )
    assert report.details["stored"][0]["value"] == 0.5


def test_a_command_that_fails_fails_with_its_last_line(tmp_path: Path) -> None:
    finding = by_rule(
        run(*program(tmp_path, "print('loss=0.5'); raise SystemExit('out of luck')"))
    )["command-failed"]
    assert finding.level == "fail"
    assert "exit code 1: out of luck" in finding.what


def test_a_program_that_is_not_there_fails() -> None:
    assert "exit code 127" in by_rule(run("no-such-program"))["command-failed"].what
    assert "exit code 127" in by_rule(run("no-such-program", "a b"))["command-failed"].what


def test_a_command_that_ends_at_once_may_beat_the_collector(tmp_path: Path) -> None:
    report = run("echo", "loss=0.5")
    assert by_rule(report)["ends-too-soon"].level == "warn"


def test_a_command_and_its_children_end_at_the_limit(tmp_path: Path) -> None:
    text = f"""if True:
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        print("epoch 1", flush=True)
        time.sleep(60)
    """
    began = time.monotonic()
    report = run(*program(tmp_path, text), seconds=2)
    assert time.monotonic() - began < 15
    found = by_rule(report)
    assert found["stopped-at-the-limit"].level == "note"
    assert found["objective-missing"].level == "warn", "it may still have come"
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_output_held_back_until_the_end_is_reported(tmp_path: Path) -> None:
    text = "import time\nfor epoch in range(3):\n    time.sleep(.7)\n    print(f'loss={epoch}')\n"
    assert by_rule(run(*program(tmp_path, text)))["output-comes-late"].level == "warn"
    command = program(tmp_path, text)
    assert "output-comes-late" not in by_rule(run(command[0], "-u", command[1]))


def test_a_process_left_behind_is_pointed_out_and_ended(tmp_path: Path) -> None:
    text = f"import os, subprocess; open({str(tmp_path / 'pid')!r}, 'w')"
    text += ".write(str(subprocess.Popen(['sleep', '60']).pid)); print('loss=1')"
    assert by_rule(run(*program(tmp_path, text)))["processes-left-behind"].level == "warn"
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_command_the_shell_would_change_fails(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    report = run("python", "-c", f"print('loss=0.5'); touch = '; touch {trap}'")
    assert by_rule(report)["shell-breaks-words"].where == "command[2]"
    assert report.verdict == "fail"
    assert report.details["stored"][0]["value"] == 0.5, "its metrics are shown all the same"
    assert not trap.exists()


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no command to run"):
        run()
    with pytest.raises(InvalidInput, match="seconds > 0"):
        run("true", seconds=0)


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
