"""Notebook output: tables as HTML and as DataFrames, and cell output that updates while something
runs."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, Self

from podium.display.text import harmless, one_line
from podium.errors import PodiumError

if TYPE_CHECKING:
    from pandas import DataFrame


def in_notebook() -> bool:
    """Tell whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def say(line: str) -> None:
    """Print a line for people: to stderr, which a notebook would paint red, or to a notebook's
    cell."""
    from podium.display.terminal import (
        echo,  # not at the top: a trainer reads datasets, and has no click
    )

    echo(line, err=not in_notebook())


class Log(str):
    """Lines of a log, which show themselves as they are, not as one quoted string."""

    def __repr__(self) -> str:
        return harmless(str(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(harmless(str(self)))}</pre>"


class LiveCell:
    """Part of a cell's output that is replaced whenever its content changes."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, html: str) -> None:
        if html == self._shown:
            return
        self._shown = html
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it: the object that the cell returns shows itself."""
        if self._handle is not None:
            with suppress(Exception):  # the kernel may be gone
                self.show("")


def shown(text: str) -> str:
    """Return foreign text as HTML: on one line, without escape sequences."""
    return escape(one_line(text))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, bold: int | None = None, title: str = ""
) -> str:
    """Return a table as HTML.

    Args:
        heads: A head that begins with > is of numbers and goes to the right.
        rows: A cell for each head.
        bold: Number of the row to stress, counted from 0.
        title: Above the table.
    """
    sides = ["right" if head.startswith(">") else "left" for head in heads]
    above = "".join(
        f'<th style="text-align:{side}">{shown(head.lstrip(">").lower())}</th>'
        for side, head in zip(sides, heads, strict=True)
    )
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(
            f'<td style="text-align:{side}">{f"<b>{shown(cell)}</b>" if number == bold else shown(cell)}</td>'
            for side, cell in zip(sides, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    caption = f"<p>{shown(title)}</p>" if title else ""
    return f"{caption}<table><thead><tr>{above}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def data_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "DataFrame":
    """Return rows as a DataFrame.

    Raises:
        PodiumError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise PodiumError(
            "a table as a DataFrame needs pandas", "pip install 'podium-ml[notebook]'"
        ) from error
    return pandas.DataFrame(list(rows), columns=list(columns))
