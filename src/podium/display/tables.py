"""Tables for the terminal, readable without color."""

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from podium.display.terminal import Styled, console, styled
from podium.display.text import cut, one_line

if TYPE_CHECKING:
    from rich.text import Text

_NARROWEST_REST = 12
"""Columns that a log line needs to be worth showing."""

_MARKS = {
    "Running": ("▸", "cyan"),
    "Waiting": ("…", "yellow"),
    "Succeeded": ("✓", "green"),
    "EarlyStopped": ("◂", "yellow"),
    "Failed": ("✗", "red"),
    "MetricsUnavailable": ("?", "red"),
    "Killed": ("■", "yellow"),
    "Stopped": ("■", "yellow"),
    "Cached": ("✓", "green"),
}
"""Mark and color of a row by phase; a dot for all others."""

_SHORTEST = 8
"""Columns that a cell keeps of a name that is cut."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table."""

    cells: Sequence[str]
    phase: str | None = None
    """Selects the mark before the cells, where a width is given; None for no mark."""

    rest: str = ""
    """A log line, cut to the remaining width."""

    bold: bool = False
    below: Sequence[str] = ()
    """Lines under the row, cut to the width."""


def table(
    heads: Sequence[str],
    rows: Iterable[Row | Sequence[str]],
    *,
    title: str = "",
    width: int | None = None,
    drop: Sequence[str] = (),
    shorten: str = "",
) -> Styled:
    """Align columns. Where the width does not suffice columns are left out, and one is cut at last;
    marks never.

    Rich's own table takes 80 times as long, too long for 10,000 versions of a model.

    Args:
        heads: A head that begins with > is of numbers and goes to the right.
        rows: A cell for each head.
        width: The terminal's (see screen_width); None for what the cells need.
        drop: Heads of columns that may be left out, in this order.
        shorten: Head of the column whose cells lose their middle if that is not enough.
    """
    from rich.cells import cell_len

    lines = [row if isinstance(row, Row) else Row(cells=row) for row in rows]
    texts = [
        [head.lstrip(">") for head in heads],
        *([one_line(cell) for cell in row.cells] for row in lines),
    ]
    columns = {head: [*column] for head, *column in zip(heads, *texts, strict=True)}
    margin = 3 if width and any(row.phase for row in lines) else 0

    def room() -> int:
        return (
            (width or 0)
            - margin
            - sum(max(map(cell_len, column)) + 2 for column in columns.values())
        )

    dropped = []
    for head in drop:
        if width and room() < -2 and columns.pop(head, None):
            dropped.append(head)
    if width and shorten in columns and (missing := -2 - room()) > 0:
        most = max(_SHORTEST, max(map(cell_len, columns[shorten])) - missing)
        columns[shorten] = [_middle(cell, most) for cell in columns[shorten]]
    columns = {head: _align(column, head) for head, column in columns.items()}
    if dropped:
        title = f"{title} (too narrow for {', '.join(head.lstrip('>') for head in heads if head in dropped)})".lstrip()
    rest = room() if room() >= _NARROWEST_REST and any(row.rest for row in lines) else 0
    first, *others = map("  ".join, zip(*columns.values(), strict=True))
    above = [
        *wrap(title, width or len(title) + 1),
        f"{'':{margin}}{first}{'  LAST LINE' if rest else ''}".rstrip(),
    ]
    drawn = [styled(line, bold=True) for line in above]
    for row, text in zip(lines, others, strict=True):
        mark, color = _MARKS.get(row.phase or "", ("·", None))
        before = f"{styled(mark, fg=color)}  " if margin else ""
        after = f"  {styled(cut(row.rest, rest), dim=True)}" if rest and row.rest else ""
        text = text if after else text.rstrip()
        drawn.append(Styled(before + (styled(text, bold=True) if row.bold else text) + after))
        drawn += [
            styled(cut(f"{'':{margin + 2}}{line}", width or len(line) + 5), dim=True)
            for line in row.below
        ]
    return Styled("\n".join(drawn))


def _align(cells: Sequence[str], head: str) -> list[str]:
    from rich.cells import cell_len

    widest = max(map(cell_len, cells))
    spaces = [" " * (widest - cell_len(cell)) for cell in cells]
    right = head.startswith(">")
    return [
        space + cell if right else cell + space for cell, space in zip(cells, spaces, strict=True)
    ]


def _middle(text: str, width: int) -> str:
    """Cut the middle out: names of trials differ in their ends, titles in their beginnings."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    end = text[-(width // 2) :] if cell_len(text) == len(text) else ""
    return f"{set_cell_size(text, width - 1 - len(end)).rstrip()}…{end.lstrip()}"


def fold(text: str, width: int | None, *, indent: str = "", hang: str = "  ") -> str:
    """Break lines at spaces where they are wider than the width; words, such as paths and commands,
    stay whole.

    Args:
        width: None breaks nothing.
        indent: Stands before the first line.
        hang: Stands before the others.
    """
    if width is None:
        return indent + text
    lines = wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def columns() -> int:
    """Return the width of the terminal; 80 without one."""
    return shutil.get_terminal_size().columns


def screen_width() -> int | None:
    """Return the width of the terminal that stdout is; None for a file or a pipe, where nothing is
    left out."""
    return columns() if sys.stdout.isatty() else None


def paint(lines: "Iterable[Text | str]") -> Styled:
    """Render lines with rich's markup or styles for this terminal."""
    screen = console(highlight=False, emoji=False)
    with screen.capture() as captured:
        for line in lines:
            screen.print(line, soft_wrap=True)
    return Styled("\n".join(line.rstrip() for line in captured.get().splitlines()))
