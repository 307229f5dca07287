"""Progress messages of commands that are silent for long, so that users do not take them for dead.

On a terminal this is a line at the foot of the screen, from two seconds on; it goes when something
is printed. A file gets a line before fifteen seconds pass without one. All printing of
`podium.terminal` passes `printing`, so nothing is written into the middle of that line.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from stat import S_ISREG
from typing import TextIO

from podium.text import cut, duration, harmless

TERMINAL_SECONDS = 2.0
"""Seconds of silence before a terminal gets a progress message."""

FILE_SECONDS = 14.0
"""Seconds after which a file that got no line gets one: fifteen never pass."""

REDRAW_SECONDS = 0.25
"""Seconds between two redraws of the line on a terminal."""

STOPPING = "stopping what was started; Ctrl-C again kills it at once"

Doing = str | Callable[[], str]
"""Activity, such as `verifying mnist`, to which the time is added; or a function that returns the
whole message, or nothing yet."""


class Heartbeat:
    """Watches how long nothing was printed, in a thread that lives as long as something is being
    done.

    Args:
        first: Seconds of silence on a terminal.
        every: Seconds of silence in a file.
    """

    def __init__(self, first: float = TERMINAL_SECONDS, every: float = FILE_SECONDS) -> None:
        self.first, self.every = first, every
        self._lock = threading.RLock()
        self._doing: list[tuple[Doing, float]] = []
        self._pauses = 0
        self._drawn = False
        self._stopping = False
        self._last = time.monotonic()
        self._ended: threading.Event | None = None

    @contextmanager
    def doing(self, what: Doing) -> Iterator[None]:
        """Say this whenever nothing is printed for long; of several the innermost."""
        task = (what, time.monotonic())
        with self._lock:
            self._doing.append(task)
            if self._ended is None:
                self._ended, self._last = threading.Event(), time.monotonic()
                threading.Thread(
                    target=self._watch, args=(self._ended,), name="podium-heartbeat", daemon=True
                ).start()
        try:
            yield
        finally:
            with self._lock:
                self._doing.remove(task)
                if not self._doing and self._ended:
                    self._clear()
                    self._ended.set()
                    self._ended = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Print nothing: another display is on the terminal, or silence is expected."""
        with self._lock:
            self._clear()
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                self._last = time.monotonic()

    def stopping(self) -> None:
        """Report from now on that started jobs are being stopped; safe in a signal handler."""
        self._stopping = True

    @contextmanager
    def printing(self, *, err: bool) -> Iterator[None]:
        """Print within this: to stderr, or to stdout."""
        with self._lock:
            if self._drawn:
                self._clear()
            yield
            if err or not _is_file(sys.stdout):  # who follows stderr sees nothing of a file of data
                self._last = time.monotonic()

    def _watch(self, ended: threading.Event) -> None:
        with suppress(OSError, ValueError):  # stderr is closed: nobody listens
            while not ended.wait(min(REDRAW_SECONDS, self.every / 10, self.first / 4)):
                with self._lock:
                    if self._doing and not self._pauses and not ended.is_set():
                        self._beat(time.monotonic() - self._last)

    def _beat(self, silence: float) -> None:
        what, since = self._doing[-1]
        if silence < (self.first if _is_screen(sys.stderr) else self.every):
            return
        line = what() if callable(what) else f"{what}: {duration(time.monotonic() - since)} so far"
        line = STOPPING if self._stopping else line
        if line and _is_screen(sys.stderr):
            sys.stderr.write(f"\r\x1b[2K{cut(line, shutil.get_terminal_size().columns - 1)}")
            self._drawn = True
        elif line:
            sys.stderr.write(f"{harmless(line)}\n")
            self._last = time.monotonic()
        sys.stderr.flush()

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = False
            with suppress(OSError, ValueError):
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()


def _is_screen(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _is_file(stream: TextIO) -> bool:
    try:
        return S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


_heartbeat = Heartbeat()
doing, paused, stopping, printing = (
    _heartbeat.doing,
    _heartbeat.paused,
    _heartbeat.stopping,
    _heartbeat.printing,
)
