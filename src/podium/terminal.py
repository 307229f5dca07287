"""Output to the terminal: escape sequences in logs, names and errors are removed, never obeyed.

All of `podium.cli` prints through this module, so that a control character in foreign text cannot
set the title of a window, write to the clipboard or hide a line.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from podium.heartbeat import doing, paused, printing
from podium.text import harmless

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Styled(str):
    """Text whose pieces went through harmless() before podium styled them."""


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text to stdout, or to stderr."""
    with printing(err=err):
        click.echo(text if isinstance(text, Styled) else harmless(text), err=err, nl=nl)


def echo_json(value: Any) -> None:
    """Print a value as JSON; types that JSON does not have, such as a path, as text."""
    import json

    echo(json.dumps(value, indent=1, default=str))


def output(as_json: bool, value: Any, text: Callable[[], str]) -> None:
    """Print a value as JSON, or its text."""
    if as_json:
        echo_json(value)
    else:
        echo(text())


def echo_error(message: str, hint: str | None = None) -> None:
    """Print an error and its hint to stderr."""
    with printing(err=True):
        click.secho("error: ", fg="red", nl=False, err=True)
    echo(message, err=True)
    if hint:
        echo(f"hint: {hint}", err=True)


class EchoHandler(logging.Handler):
    """Prints log messages of podium's library modules to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        echo(record.getMessage(), err=True)


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
def progress_bar(total: int, what: str) -> "Iterator[Callable[[int], None]]":
    """Show how many bytes are done: a bar on a terminal, a line now and then elsewhere.

    Args:
        total: Bytes.
        what: Activity in the lines, such as `copying`.

    Yields:
        A function to call with the number of bytes done since its last call.
    """
    if not sys.stderr.isatty():
        done = [0]

        def advance(count: int) -> None:
            done[0] += count

        with doing(lambda: f"{what}: {done[0] / 1e6:,.1f} of {total / 1e6:,.1f} MB"):
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
