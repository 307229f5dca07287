"""Tables and lists for the terminal, readable without color."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING

from podium.terminal import Styled, console, one_line, styled

if TYPE_CHECKING:
    from rich.text import Text

    from podium.registry import Record, Summary


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Styled:
    """Align columns; a head that begins with > is aligned to the right."""
    cells = [[name.lstrip(">") for name in head], *(list(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if name.startswith(">") else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        )
        return "  ".join(padded).rstrip()

    return Styled("\n".join([styled(line(cells[0]), bold=True), *map(line, cells[1:])]))


def size(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def when(moment: datetime | str) -> str:
    """Format a time to the minute, UTC."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def versions(summaries: Iterable["Summary"], aliases: Mapping[str, "Record"]) -> str:
    """List the versions of a model, the newest last."""
    named: dict[str, list[str]] = {}
    for alias, record in aliases.items():
        named.setdefault(record.version, []).append(alias)
    rows = [
        (
            summary.version,
            "-" if summary.accuracy is None else f"{summary.accuracy:.4f}",
            when(summary.created),
            size(summary.size),
            (summary.dataset or "-")[:8],
            ", ".join(named.get(summary.version, [])),
        )
        for summary in summaries
    ]
    return table(("VERSION", ">ACCURACY", "CREATED (UTC)", ">SIZE", "DATASET", "ALIASES"), rows)


def counted(number: int, what: str) -> str:
    """Format a count with its noun, plural where needed."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def columns() -> int:
    """Return the width of the terminal; 80 if there is none."""
    return shutil.get_terminal_size().columns


def paint(lines: "Iterable[Text | str]") -> Styled:
    """Render lines with rich's markup or styles for this terminal."""
    screen = console(highlight=False, emoji=False)
    with screen.capture() as captured:
        for line in lines:
            screen.print(line, soft_wrap=True)
    return Styled("\n".join(line.rstrip() for line in captured.get().splitlines()))


def history(records: "Iterable[Record]") -> list[str]:
    """List the history of a model, the newest last, in two or more lines per event."""
    from rich.markup import escape

    colors = {"promotion": "green", "rollback": "yellow", "deletion": "red", "refusal": "dim", "withdrawal": "red"}
    lines = []
    for record in records:
        event = f"[{colors.get(record.event, 'default')}]{record.event:<9}[/]"
        lines.append(f"{when(record.time)}  {event}  [bold]{record.version}[/]  {record.alias or ''}".rstrip())
        instead = f"instead of {record.replaced}: " if record.replaced else ""
        text = wrap(instead + why(record), max(20, columns() - 18), break_on_hyphens=False)
        lines += [" " * 18 + escape(rest) for rest in text]
    return lines


def why(record: "Record") -> str:
    """Summarize the evidence of a record."""
    from podium.registry.comparison import p_words

    grounds = record.grounds
    if grounds.accuracy is None:
        return grounds.reason or "-"
    if record.event == "refusal":
        kept = f"kept {grounds.champion}: " if grounds.champion else ""
        return kept + "; ".join(reason for reason in grounds.reasons if reason.startswith("no"))
    text = f"accuracy {grounds.accuracy:.4f}"
    if grounds.champion_accuracy is not None and grounds.p_value is not None:
        text += f" against {grounds.champion_accuracy:.4f}, {p_words(grounds.p_value)}"
    return text
