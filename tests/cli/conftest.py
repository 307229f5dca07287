"""Typing commands in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from podium.cli import main


class Done(NamedTuple):
    """What a command that was typed ended with, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Type a command; what the processes it starts print is there too."""

    def run(*words: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["podium", *map(str, words)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capfd.readouterr()
        return Done(code, printed.out, printed.err)

    return run
