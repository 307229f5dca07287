"""Signs of life of commands that are silent: in files, and on a real pseudo-terminal."""

import re
import sys
import time
from pathlib import Path

import pytest
from terminals import on_terminal

from podium.display.terminal import _Heartbeat

PYTHON = [sys.executable, "-P", "-c"]
WORK = """if True:
    import sys, time
    from podium.display import terminal
    from podium.display.terminal import echo
    terminal._heartbeat.first = 0.1
    with terminal.doing("verifying a\x1b]0;title\x07 dataset" + " of many parts" * 20):
        time.sleep(0.5)
        echo("data")
        time.sleep(0.01)
        echo("talk", err=True)
"""


def test_a_file_gets_a_line_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    beat = _Heartbeat(first=9.0, every=0.2)
    with beat.doing("verifying"):
        time.sleep(1.0)
    said = capsys.readouterr().err.splitlines()
    assert {re.sub(r"[\d.]+", "N", line) for line in said} == {"verifying: N s so far"}
    assert len(said) >= 2


def test_printing_puts_off_the_next_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    beat = _Heartbeat(first=9.0, every=0.4)
    with beat.doing("verifying"):
        for _ in range(8):
            time.sleep(0.05)
            with beat.printing(err=True):
                print("line", file=sys.stderr)
    assert capsys.readouterr().err == "line\n" * 8


def test_the_innermost_work_is_named_unless_paused(capsys: pytest.CaptureFixture[str]) -> None:
    beat = _Heartbeat(first=9.0, every=0.1)
    with beat.doing("podium data"), beat.doing(lambda: "12 of 300 MB"):
        time.sleep(0.3)
        with beat.paused():
            before = capsys.readouterr().err
            time.sleep(0.3)
            assert capsys.readouterr().err == ""
    assert set(before.splitlines()) == {"12 of 300 MB"}


def test_a_terminals_line_fits_and_makes_way() -> None:
    seen = on_terminal(WORK, program=PYTHON, width=40)
    drawn = re.findall(r"\r\x1b\[2K([^\r\x1b]*)", seen)
    assert drawn[0].startswith("verifying a dataset of many parts")
    assert all(len(line) < 40 for line in drawn)
    assert seen.endswith("\r\x1b[2Kdata\r\ntalk\r\n")


def test_data_in_a_file_do_not_hide_silence(tmp_path: Path) -> None:
    with (tmp_path / "data").open("wb") as stdout:
        seen = on_terminal(WORK.replace("0.01", "0.5"), program=PYTHON, stdout=stdout.fileno())
    assert (tmp_path / "data").read_text() == "data\n"
    assert seen.count("verifying") > 2
    assert seen.endswith("\r\x1b[2Ktalk\r\n")
