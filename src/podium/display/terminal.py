"""Output to the terminal: escape sequences in logs, names and errors are removed, never obeyed.

All of `podium.cli` prints through this module, so that a control character in foreign text cannot
set the title of a window, write to the clipboard or hide a line.

Commands that are silent for long say so: on a terminal by a line at its foot from two seconds on,
which goes when something is printed; in a file by a line before fifteen seconds pass without one.
All printing passes `printing`, so nothing is written into the middle of that line.
"""

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from podium.display.text import cut, duration, harmless
from podium.errors import Damaged, InvalidInput, NotFound, of_this_machine

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


S = TypeVar("S")
T = TypeVar("T")
_log = logging.getLogger("podium")


class Styled(str):
    """Text whose pieces went through harmless() before podium styled them."""


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text to stdout, or to stderr."""
    with printing(err=err):
        click.echo(text if isinstance(text, Styled) else harmless(text), err=err, nl=nl)


def echo_json(value: Any) -> None:
    """Print a value as JSON; types that JSON does not have, such as a path, as text, and numbers
    that it does not have, such as NaN, as null."""
    import json

    finite = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
    echo(json.dumps(finite, indent=1))


def output(as_json: bool, value: Any, text: Callable[[], str] | None = None) -> None:
    """Print a value as JSON, or its text if there is one."""
    if as_json:
        echo_json(value)
    elif text and (shown := text()):
        echo(shown)


@lru_cache(1000)
def warn_once(message: str) -> None:
    """Log a warning once per process."""
    # Keys may hold anything, even escape sequences for the terminal.
    _log.warning(
        "%s", "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
    )


def readable(
    items: Iterable[S], read: Callable[[S], T], title: Callable[[S], str], *, strict: bool = False
) -> Iterator[T]:
    """Yield what is read of each item, without those removed meanwhile; one that is damaged or
    cannot be opened costs a warning, or is raised if ``strict``."""
    for item in items:
        try:
            value = read(item)
        except (FileNotFoundError, NotADirectoryError, NotFound):
            continue
        except (Damaged, InvalidInput, OSError) as error:
            if strict:
                raise
            why = of_this_machine(error) or error
            warn_once(f"{title(item)} is left out: {getattr(why, 'message', why)}")
            continue
        yield value


def echo_error(message: str, hint: str | None = None) -> None:
    """Print an error and its hint to stderr."""
    with printing(err=True):
        click.secho("error: ", fg="red", nl=False, err=True)
    echo(message, err=True)
    if hint:
        echo(f"hint: {hint}", err=True)


def styled(text: str, **style: Any) -> Styled:
    """Return harmless text in a click style."""
    return Styled(click.style(harmless(text), **style))


def console(*, stderr: bool = False, **options: Any) -> "Console":
    """Return a rich console that prints harmless text only."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """All text goes through render(); rich marks its own control codes."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    return HarmlessConsole(stderr=stderr, **options)


@contextmanager
def live(view: "RenderableType") -> "Iterator[Console | None]":
    """Keep a view at the foot of the terminal, redrawn several times a second.

    Yields:
        A console that prints above it; None where stderr is not a terminal, and nothing is drawn.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live

    # What goes to a file or a pipe must not be caught for the terminal.
    redirect = sys.stdout.isatty()
    with (
        paused(),
        Live(
            view, console=console(stderr=True), refresh_per_second=8, redirect_stdout=redirect
        ) as shown,
    ):
        yield shown.console


@contextmanager
def progress_bar(total: int, activity: str) -> "Iterator[Callable[[int], None]]":
    """Show how many bytes are done: a bar on a terminal, a line now and then elsewhere.

    Args:
        total: Bytes.
        activity: Activity in the lines, such as `copying`.

    Yields:
        A function to call with the number of bytes done since its last call.
    """
    if not sys.stderr.isatty():
        done = [0]

        def advance(count: int) -> None:
            done[0] += count

        with doing(lambda: f"{activity}: {done[0] / 1e6:,.1f} of {total / 1e6:,.1f} MB"):
            yield advance
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with paused(), Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


_TERMINAL_SECONDS = 2.0
"""Seconds of silence before a terminal gets a progress message."""

_FILE_SECONDS = 14.0
"""Seconds after which a file that got no line gets one: fifteen never pass."""

_REDRAW_SECONDS = 0.25
"""Seconds between two redraws of the line on a terminal."""

_STOPPING = "stopping what was started; Ctrl-C again kills it at once"

_Doing = str | Callable[[], str]
"""Activity, such as `verifying mnist`, to which the time is added; or a function that returns the
whole message, or nothing yet."""


class _Heartbeat:
    """Watches how long nothing was printed, in a thread that lives as long as something is being
    done.

    Args:
        first: Seconds of silence on a terminal.
        every: Seconds of silence in a file.
    """

    def __init__(self, first: float = _TERMINAL_SECONDS, every: float = _FILE_SECONDS) -> None:
        self.first, self.every = first, every
        self._lock = threading.RLock()
        self._doing: list[tuple[_Doing, float]] = []
        self._pauses = 0
        self._drawn = False
        self._stopping = False
        self._last = time.monotonic()
        self._ended: threading.Event | None = None

    @contextmanager
    def doing(self, activity: _Doing) -> Iterator[None]:
        """Say this whenever nothing is printed for long; of several the innermost."""
        task = (activity, time.monotonic())
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
            while not ended.wait(min(_REDRAW_SECONDS, self.every / 10, self.first / 4)):
                with self._lock:
                    if self._doing and not self._pauses and not ended.is_set():
                        self._beat(time.monotonic() - self._last)

    def _beat(self, silence: float) -> None:
        activity, since = self._doing[-1]
        if silence < (self.first if _is_screen(sys.stderr) else self.every):
            return
        line = (
            activity()
            if callable(activity)
            else f"{activity}: {duration(time.monotonic() - since)} so far"
        )
        line = _STOPPING if self._stopping else line
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


_heartbeat = _Heartbeat()
doing, paused, stopping, printing = (
    _heartbeat.doing,
    _heartbeat.paused,
    _heartbeat.stopping,
    _heartbeat.printing,
)
