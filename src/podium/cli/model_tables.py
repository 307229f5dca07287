"""How `podium models` draws what the registry knows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from podium.registry import Record, Summary, Version
    from podium.registry.difference import Difference, Flip


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns; a head that begins with > is of numbers and goes to the right."""
    cells = [[name.lstrip(">") for name in head], *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if name.startswith(">") else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([click.style(line(cells[0]), bold=True), *map(line, cells[1:])])


def size(count: int) -> str:
    """Write a number of bytes for people."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def when(moment: datetime | str) -> str:
    """Write a time to the minute, UTC."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def versions(summaries: Iterable["Summary"], aliases: Mapping[str, "Record"]) -> str:
    """Draw the versions of a model, the newest last."""
    named: dict[str, list[str]] = {}
    for alias, record in aliases.items():
        named.setdefault(record.version, []).append(alias)
    rows = [
        (
            one.version,
            "-" if one.accuracy is None else f"{one.accuracy:.4f}",
            when(one.created),
            size(one.size),
            (one.dataset or "-")[:12],
            ", ".join(named.get(one.version, [])),
        )
        for one in summaries
    ]
    return table(("VERSION", ">ACCURACY", "CREATED (UTC)", ">SIZE", "DATASET", "ALIASES"), rows)


def history(records: Iterable["Record"]) -> str:
    """Draw what happened to a model, the newest last."""
    rows = [
        (when(one.time), one.event, one.alias or "-", one.version, one.replaced or "-", why(one)) for one in records
    ]
    return table(("TIME (UTC)", "EVENT", "ALIAS", "VERSION", "INSTEAD OF", "WHY"), rows)


def why(record: "Record") -> str:
    """Say in half a line on what grounds something happened."""
    evidence = record.evidence
    if "accuracy" not in evidence:
        return str(evidence.get("reason") or "-")
    text = f"accuracy {evidence['accuracy']:.4f}"
    if "champion_accuracy" in evidence:
        text += f" against {evidence['champion_accuracy']:.4f}, p = {evidence['p_value']:.2g}"
    return text


def confusion(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Draw a confusion matrix: a row for each true class, a column for each predicted one; zeros are dots."""
    label = max(5, *(len(name) for name in classes))
    short = [name[:6] for name in classes]
    width = max(len(str(max(map(max, matrix)))), *map(len, short)) + 1
    lines = [" " * label + " " + "".join(name.rjust(width) for name in short) + "  recall"]
    for row, (name, counts) in enumerate(zip(classes, matrix, strict=True)):
        cells = [_cell(count, column == row, width) for column, count in enumerate(counts)]
        recall = f"{counts[row] / sum(counts):8.4f}" if sum(counts) else "       -"
        lines.append(f"{name.ljust(label)} {''.join(cells)}{recall}")
    return "\n".join(["true, down; predicted, across", *lines])


def _cell(count: int, hit: bool, width: int) -> str:
    text = (str(count) if count else "·").rjust(width)
    return click.style(text, fg="green") if hit else click.style(text, fg="red") if count else text


def description(version: "Version", aliases: Sequence[str]) -> str:
    """Draw one version: where it comes from, what it can, what it consists of."""
    metadata = version.metadata
    dataset = metadata.get("dataset") or {}
    lines = [
        click.style(f"{version.name} {version.version}", bold=True) + (f"  ({', '.join(aliases)})" if aliases else "")
    ]
    facts: dict[str, Any] = {
        "created": when(version.created),
        "run": metadata.get("run_id"),
        "origin": _words(metadata.get("origin")),
        "dataset": f"{dataset.get('name')} {str(dataset.get('digest'))[:12]}" if dataset else None,
        "metrics": _words(metadata.get("metrics")),
        "hyperparameters": _words(metadata.get("hyperparameters")),
        "code": metadata.get("code_version"),
        "image": metadata.get("image"),
    }
    lines += [f"{name:<16} {value}" for name, value in facts.items() if value]
    rows = [(file, size(record.size), record.sha256[:12]) for file, record in sorted(version.files.items())]
    return "\n".join([*lines, "", table(("FILE", ">SIZE", "SHA256"), rows)])


def _words(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return None
    return ", ".join(f"{name} {_number(one)}" for name, one in value.items() if one is not None)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def difference(found: "Difference", first: str, second: str, most: int) -> str:
    """Draw what changes from one model to another."""
    figures = found.figures
    gained, lost = figures["only_challenger_right"], figures["only_champion_right"]
    rows = [
        (name, f"{one['champion_accuracy']:.4f}", f"{one['accuracy']:.4f}", f"{one['change']:+.4f}", str(one["images"]))
        for name, one in figures["classes"].items()
    ]
    rows.append(
        (
            "all",
            f"{figures['champion_accuracy']:.4f}",
            f"{figures['accuracy']:.4f}",
            f"{figures['accuracy'] - figures['champion_accuracy']:+.4f}",
            str(figures["images"]),
        )
    )
    return "\n\n".join(
        [
            table(("CLASS", f">{first}", f">{second}", ">CHANGE", ">PICTURES"), rows),
            f"only {second} right: {gained}, only {first} right: {lost}; exact McNemar p = {figures['p_value']:.3g}",
            _flips(f"right in {second} only", found.gained, most),
            _flips(f"right in {first} only", found.lost, most),
        ]
    )


def _flips(title: str, flips: Sequence["Flip"], most: int) -> str:
    lines = [f"  picture {one.picture}: is {one.label}, {one.before} -> {one.after}" for one in flips[:most]]
    if len(flips) > most:
        lines.append(f"  … and {len(flips) - most} more (--all, --json)")
    return "\n".join([f"{title}: {len(flips)}", *lines])
