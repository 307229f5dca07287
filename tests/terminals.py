"""A real pseudo-terminal to run commands on."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from forks import begin

PODIUM = [sys.executable, "-P", "-c", "from podium.cli import main; main()"]
SIGNS_OF_LIFE = re.compile(r"(?:\r\x1b\[2K[^\r\x1b]*so far)+\r\x1b\[2K")


def on_terminal(
    *words: str, width: int = 80, stdout: int | None = None, program: Sequence[str] = PODIUM
) -> str:
    """Run podium, or another program, on a pseudo-terminal and return what the terminal got."""
    ours, theirs = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other end is closed
                return
            if not piece:
                return
            got.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "30"}
    out = theirs if stdout is None else stdout
    try:
        if program is PODIUM:
            process = begin(words, environment, {0: theirs, 1: out, 2: theirs})
            process.join(120)
            assert process.exitcode is not None, "it goes on"
        else:
            subprocess.run([*program, *words], stdin=theirs, stdout=out, stderr=theirs,
                           env=environment, timeout=120, check=False)  # fmt: skip
    finally:
        os.close(theirs)
        reader.join(30)
        os.close(ours)
    seen = b"".join(got).decode(errors="replace")
    return SIGNS_OF_LIFE.sub("", seen) if program is PODIUM else seen  # where importing takes long
