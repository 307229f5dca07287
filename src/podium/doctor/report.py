"""The doctor's report on one subject, and how people see it: sections that read well without
color."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from podium.display.text import plural
from podium.manifests.rules import Finding

if TYPE_CHECKING:
    from rich.console import Console


_NOT_EXAMINED = "not examined"
"""Verdict on a subject that no rule was applied to."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Findings about one subject."""

    subject: str
    """A file, a command line, an object or a namespace."""

    kind: str
    """``log``, ``events``, ``command``, ``Experiment``, ``PyTorchJob``, ``Job`` or
    ``namespace``."""

    findings: Sequence[Finding] = ()

    details: dict[str, Any] = field(default_factory=dict)
    """Further facts: metrics that would be stored, the wrapped command line."""

    examined: bool = True
    """Whether any rule was applied: a subject without rules does not pass."""

    @property
    def verdict(self) -> str:
        """``fail`` or ``warn`` if any finding says so, else ``pass``; ``not examined`` if no rule
        was applied."""
        levels = {finding.level for finding in self.findings}
        fine = "pass" if self.examined else _NOT_EXAMINED
        return "fail" if "fail" in levels else "warn" if "warn" in levels else fine

    def as_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "kind": self.kind,
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            **self.details,
        }


STYLES = {
    "pass": "green",
    "note": "cyan",
    "warn": "yellow",
    "fail": "bold red",
    _NOT_EXAMINED: "cyan",
}
HEAD, TAIL = 6, 3
"""Readings shown at the beginning and at the end of a long log."""


def show(report: Report, console: "Console") -> None:
    """Print a report: details, findings, verdict."""
    console.print(report.subject, style="bold", soft_wrap=True, highlight=False, markup=False)
    details = report.details
    if "stored" in details:
        _show_metrics(details, console)
    for title, (shell, flag, script) in details.get("commands", {}).items():
        console.print(f"  {title}: Katib runs `{shell} {flag}` with", highlight=False, markup=False)
        for line in script.splitlines():
            console.print(f"    {line}", soft_wrap=True, highlight=False, markup=False)
    for finding in report.findings:
        _show_finding(finding, console)
    console.print(
        f"  {_verdict(report)}", style=STYLES[report.verdict], highlight=False, markup=False
    )


def _verdict(report: Report) -> str:
    counts = Counter(finding.level for finding in report.findings)
    shown = [
        f"{counts[level]} {level}" for level in ("fail", "warn", "note", "pass") if counts[level]
    ]
    return f"{report.verdict}: {', '.join(shown) or 'no findings'}"


def _show_metrics(details: dict[str, Any], console: "Console") -> None:
    rows = details["readings"]
    about = (
        f"{plural(details['lines'], 'line')}, objective {details['objective']}, {details['type']}"
    )
    console.print(
        f"  {about}; {plural(details['readings_total'], 'reading')}", highlight=False, markup=False
    )
    if rows:
        short = rows if len(rows) <= HEAD + TAIL + 1 else [*rows[:HEAD], None, *rows[-TAIL:]]
        _table(console, ("line", "time", "metric", "value"), short)
    console.print("  Katib would store", highlight=False, markup=False)
    _table(console, ("metric", "min", "max", "latest", "strategy", "value"), details["stored"])


def _table(
    console: "Console", columns: Sequence[str], rows: Sequence[dict[str, Any] | None]
) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")  # rich narrows the widest columns first
    for row in rows:
        cells = [row[column] if row else "…" for column in columns]
        table.add_row(
            *(
                Text("–" if cell is None else repr(cell) if cell == "" else str(cell))
                for cell in cells
            )
        )
    console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _show_finding(finding: Finding, console: "Console") -> None:
    from rich.padding import Padding
    from rich.text import Text

    title = Text.assemble((f"{finding.level:4}", STYLES[finding.level]), f"  {finding.what}")
    console.print(Padding(title, (0, 0, 0, 2), expand=False))
    if finding.level == "pass":
        return
    more = [Text(f"{finding.where} · {finding.rule}", style="dim")]
    if finding.level in ("warn", "fail"):
        more.append(Text(finding.why))
    if finding.hint:
        more.append(Text(f"hint: {finding.hint}"))
    for text in more:
        text.overflow = "fold"
        console.print(Padding(text, (0, 0, 0, 8), expand=False))
