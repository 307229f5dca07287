"""Values and foreign text as people read them: figures, sizes, times, and text without escape
sequences."""

import math
import os
import re
import string
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from podium.errors import InvalidInput

_LONGEST_NOTE = 10_000
"""Characters of a note."""

# Escape sequences: operating system commands and other strings up to their end, control sequences,
# two-character ones.
_SEQUENCE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -~]?"
)
# The rest of C0 but tab and line feed, DEL, C1, and the marks that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNPAIRED = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_BEHIND = (
    "hint: ",
    "full_key: ",
    "object_type=",
    "Set the environment variable HYDRA_FULL_ERROR=1 ",
    "Pass --help",
    "Usage: ",
    "available commands:",
    "available groups:",
    "available values:",
    "optional flags:",
    "required flags:",
    "additional flags are accepted",
    "For detailed information on this command",
)
"""Begin what podium, OmegaConf, Hydra, absl and fire say behind an error."""

_BOX = string.whitespace + "".join(map(chr, range(0x2500, 0x2580)))
_RULE = re.compile(r"\s*│ ─+ │\s*")
"""Divides an error from its help in a box of tyro."""


def harmless(text: str) -> str:
    """Remove escape sequences, and control characters other than tab and line feed."""
    if text.isascii() and text.isprintable():
        return text
    if _SURROGATE.search(text):  # bytes of an argument or file name that are not UTF-8
        text = text.encode(
            errors="surrogatepass" if _UNPAIRED.search(text) else "surrogateescape"
        ).decode(errors="replace")
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def as_note(text: str) -> str:
    """Return the text of a person's note as it is kept and shown.

    Raises:
        InvalidInput: It is too long.
    """
    if len(text) > _LONGEST_NOTE:
        problem = f"a note has at most {_LONGEST_NOTE} characters, but this one has {len(text)}"
        raise InvalidInput(problem, "write it into a file, and note the file's name")
    return harmless(text).strip()


def one_line(text: str) -> str:
    """Return harmless text for a cell of a table: line feeds and tabs become spaces."""
    return re.sub(r"[\n\t\u2028\u2029]+", " ", harmless(text))


def cut(text: str, width: int) -> str:
    """Return harmless text on one line, its end cut off where it needs more columns than the
    width."""
    from rich.cells import cell_len, set_cell_size

    text = one_line(text)
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def digits(value: float, count: int = 4, sign: str = "") -> str:
    """Format with this many significant digits, prices and the like without an exponent.

    Args:
        sign: ``+`` for a sign before what is positive too.
    """
    rounded = float(f"{value:.{count}g}")
    if min(1e4, 10**count) <= abs(rounded) < 1e12:
        return f"{rounded:{sign},}".removesuffix(".0")
    return f"{value:{sign}.{count}g}"


def figure(value: float) -> str:
    """Format a metric's value: four decimals, or four digits if it is large or tiny."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 10 else digits(value)


def apart(value: float, other: float) -> str:
    """Format a value with as many digits as distinguish it from another; say if it is equal."""
    if value == other or math.isnan(value) or math.isnan(other):
        return f"an equal {figure(value)}" if value == other else figure(value)
    told_apart = (
        digits(value, count)
        for count in range(5, 18)
        if digits(value, count) != digits(other, count)
    )
    return figure(value) if figure(value) != figure(other) else next(told_apart, exact(value))


def exact(value: float) -> str:
    """Write a number with all its digits, a whole one without a point."""
    return repr(float(value)).removesuffix(".0")


def is_number(text: str) -> bool:
    """Return whether a text is a number and no name: 007, 1_000 and nan are names."""
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?", text, re.ASCII) is not None


def brief(value: Any) -> str:
    """Shorten a number, also one in a text, to four digits, but a whole one to none; return other
    text unchanged."""
    if not is_number(str(value)):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else digits(number)


def p_words(p_value: float, is_bound: bool = False) -> str:
    """Format a p value, or a bound of it; one too small for a float is not shown as 0."""
    return f"p {'<=' if is_bound else '='} {p_value:.3g}" if p_value else "p < 1e-300"


def listed(names: Sequence[str]) -> str:
    """Name the first five items, and the number of the rest."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def plural(number: int, noun: str, many: str = "") -> str:
    """Format a count with its noun: ``1 trial``, ``1,200 trials``; ``many`` where an s makes no
    plural."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def are(count: int) -> str:
    """Return the verb of a count: 1 of 3 items is left out, 2 are."""
    return "is" if count == 1 else "are"


def when(moment: datetime | str) -> str:
    """Format a time to the minute, UTC."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def iso(moment: datetime | str) -> str:
    """Format a time for a program, UTC."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def duration(seconds: float) -> str:
    if round(seconds, 1) < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def relative(path: str) -> str:
    """Make a path below the working directory relative to it; return URLs and other paths
    unchanged."""
    return path.removeprefix(os.getcwd() + os.sep)


def last_said(lines: Iterable[str]) -> str:
    """Return the last line that says something, on one line, without the box that rich draws around
    it; podium's own hint, what Hydra adds and where help is found follow the error that counts."""
    said, is_help = list[str](), False
    for line in lines:
        is_help = (is_help or bool(_RULE.fullmatch(line))) and line.lstrip().startswith("│")
        if not is_help and (text := line.strip(_BOX)):
            said.append(text)
    errors = [
        line for line in said if not line.startswith(_BEHIND) and not line.endswith(" --help")
    ]
    return one_line((errors or said or [""])[-1])


def quoted(lines: Iterable[str]) -> list[str]:
    """Return lines that a program printed as an error quotes them: of a progress bar, which begins
    its line anew for each state, the last one."""
    return ["  | " + line.rstrip("\r").rpartition("\r")[2] for line in lines]
