"""Where text leaves for the user's screen: what logs, names and errors hold is shown, never obeyed.

All of `podium.cli` prints through here, so that a control character in somebody else's text cannot set the title of a
window, write the clipboard or hide a line.
"""

import logging
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

# Escape sequences: operating system commands and other strings up to their end, control sequences, two-character ones.
_SEQUENCE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -~]?"
)
# The rest of C0 but tab and line feed, DEL, C1, and the marks that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNPAIRED = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Styled(str):
    """Text that went through harmless() piece by piece and has styles of our own since."""


def harmless(text: str) -> str:
    """Remove what a terminal would obey: escape sequences and control characters other than tab and line feed."""
    if text.isascii() and text.isprintable():
        return text
    if _SURROGATE.search(text):  # a byte of an argument or file name that Python did not take for UTF-8
        text = text.encode(errors="surrogatepass" if _UNPAIRED.search(text) else "surrogateescape").decode(
            errors="replace"
        )
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """Return harmless text for a cell of a table: line feeds and tabs become blanks."""
    return re.sub(r"[\n\t\u2028\u2029]+", " ", harmless(text))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text to stdout, or to stderr."""
    click.echo(text if isinstance(text, Styled) else harmless(text), err=err, nl=nl)


def echo_log(line: str) -> None:
    """Print a line of a log to stdout: as it is for a file or a program, harmless on a terminal."""
    click.echo(harmless(line) if sys.stdout.isatty() else line, color=True)


def echo_error(message: str, hint: str | None = None) -> None:
    """Print an error and what to do about it to stderr."""
    click.secho("error: ", fg="red", nl=False, err=True)
    echo(message, err=True)
    if hint:
        echo(f"hint: {hint}", err=True)


class EchoHandler(logging.Handler):
    """Prints the messages of a library to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        echo(record.getMessage(), err=True)


def styled(text: str, **style: Any) -> Styled:
    """Return harmless text in a style of click."""
    return Styled(click.style(harmless(text), **style))


def console(*, stderr: bool = False, **options: Any) -> "Console":
    """Return a console of rich that shows nothing of others' text but what can be read."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """Every piece of text goes through render(); rich's own control codes are marked as such."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    return HarmlessConsole(stderr=stderr, **options)
