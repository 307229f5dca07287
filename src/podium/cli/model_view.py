"""Output of `podium models show`, `history` and `diff`, readable without color."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.text import Text

from podium.display.tables import columns, screen_width, table
from podium.display.text import digits, figure, p_words, size, when
from podium.models import Record, Version

if TYPE_CHECKING:
    import numpy as np

    from podium.models.difference import Difference
    from podium.scoring.changes import Change

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SHADES = " ░▒▓█"
_WIDEST_PICTURE = 56
"""Columns."""


def history(records: Iterable[Record]) -> list[str]:
    """List the history of a model, the newest last, in two or more lines per event."""
    colors = {
        "promotion": "green",
        "rollback": "yellow",
        "deletion": "red",
        "refusal": "dim",
    }
    lines = []
    for record in records:
        event = f"[{colors.get(record.event, 'default')}]{record.event:<9}[/]"
        lines.append(
            f"{when(record.time)}  {event}  [bold]{record.version}[/]  {record.alias or ''}".rstrip()
        )
        instead = f"instead of {record.replaced}: " if record.replaced else ""
        text = wrap(instead + _why(record), max(20, columns() - 18), break_on_hyphens=False)
        lines += [" " * 18 + escape(rest) for rest in text]
    return lines


def _why(record: Record) -> str:
    grounds = record.grounds
    if grounds.value is None and not grounds.reasons:
        return grounds.reason or "-"
    if record.event == "refusal":
        kept = f"kept {grounds.champion}: " if grounds.champion else ""
        return kept + "; ".join(reason for reason in grounds.reasons if reason.startswith("no"))
    value = "-" if grounds.value is None else figure(grounds.value)
    text = f"{grounds.metric.name or 'value'} {value}"
    if grounds.champion_value is not None:
        text += f" against {figure(grounds.champion_value)}"
    if grounds.shrunk is not None and grounds.champion_shrunk is not None:
        text += f", shrunk {figure(grounds.shrunk)} against {figure(grounds.champion_shrunk)}"
    text += f", {grounds.constant}" if str(grounds.constant) else ""
    doubt = " (not reliable)" if grounds.doubt else ""
    return text + (f", {p_words(grounds.p_value)}{doubt}" if grounds.p_value is not None else "")


def _facts(pairs: Mapping[str, str | None]) -> list[str]:
    label = max(map(len, pairs)) + 2
    lines = []
    for name, value in pairs.items():
        rest = wrap(value or "", max(20, columns() - label - 2), break_on_hyphens=False)
        heads = [name, *[""] * len(rest)]
        lines += [
            f"  [dim]{head:<{label}}[/]{escape(text)}"
            for head, text in zip(heads, rest, strict=False)
        ]
    return lines


def version(
    of: Version, aliases: Mapping[str, Record], later: Record | None = None
) -> list[Text | str]:
    """Describe a version: its origin, metrics and files, and how it did later on another test
    part."""
    from podium.models.described import described

    held = {alias: record for alias, record in aliases.items() if record.version == of.version}
    since = [f"[bold green]{alias}[/] since {when(record.time)}" for alias, record in held.items()]
    files = [
        (file, size(record.size), record.sha256[:16]) for file, record in sorted(of.files.items())
    ]
    listed = table(
        ("FILE", ">SIZE", "SHA256"), files, width=screen_width(), drop=("SHA256",), shorten="FILE"
    )
    return [
        f"[bold]{of.name} {of.version}[/]  {', '.join(since)}".rstrip(),
        "",
        *_facts(described(of, later)),
        "",
        *(Text.from_ansi(line) for line in listed.splitlines()),
    ]


def mistakes(
    matrix: Sequence[Sequence[int]], classes: Sequence[str], pairs: Sequence[Mapping[str, Any]]
) -> list[Text | str]:
    """Draw a confusion matrix, and the classes that are confused most."""
    confused = _confused(pairs)
    return ["", *_confusion(matrix, classes), "", "[bold]most confused[/]", *confused]


def _confusion(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> list[Text | str]:
    """Draw a confusion matrix: a row for each true class, a column for each predicted one; zeros
    are dots.

    Larger shares of a row have stronger colors. The last column is recall, the last row precision,
    in percent.
    """
    label = max(len("predicted →"), *map(len, classes))
    room = (columns() - label - 2 - 9) // len(classes)
    need = len(str(max(map(max, matrix)))) + 1
    if room < need:
        return [
            f"  {len(classes)} classes need a wider terminal than {columns()} columns; --json gives the matrix"
        ]
    width = min(room, max(need, 6, *(len(name) + 1 for name in classes)))
    head = "".join(name[: width - 1].rjust(width) for name in classes)
    lines: list[Text | str] = [Text(f"  {'predicted →':<{label}}{head}   recall", "dim")]
    for row, (name, counts) in enumerate(zip(classes, matrix, strict=True)):
        total = sum(counts)
        cells = [Text(f"  {name:<{label}}")]
        cells += [_cell(count, column == row, total, width) for column, count in enumerate(counts)]
        cells.append(Text(f"{_percent(counts[row], total):>9}"))
        lines.append(Text.assemble(*cells))
    hits = [_percent(matrix[at][at], sum(row[at] for row in matrix)) for at in range(len(classes))]
    if width >= 5:
        short = [hit.removesuffix("%").replace("100.0", "100").rjust(width) for hit in hits]
        lines.append(Text(f"  {'precision %':<{label}}{''.join(short)}", "dim"))
    return lines


def _cell(count: int, hit: bool, total: int, width: int) -> Text:
    text = str(count) if count else "·"
    share = count / total if total else 0.0
    styles = [(0.05, "bold white on red"), (0.02, "red"), (0.005, "yellow"), (0.0, "dim")]
    style = "bold green" if hit else next(style for least, style in styles if share >= least)
    return Text(" " * (width - len(text))) + Text(text, style)


def _confused(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    if not pairs:
        return ["  [green]none: every item is right[/]"]
    named = [escape(f"{pair['label']} taken for {pair['taken_for']}") for pair in pairs]
    width, digits = max(map(len, named)), len(str(pairs[0]["items"]))
    shares = [escape(f"{pair['share']:6.1%} of {pair['label']}") for pair in pairs]
    beside = max(map(len, shares))
    most = max(pair["share"] for pair in pairs)
    room = max(0, min(24, columns() - width - digits - beside - 9))
    return [
        f"  {name:<{width}}  {pair['items']:>{digits}}  {share:<{beside}}  [red]{_bar(pair['share'] / most * room)}[/]"
        for name, share, pair in zip(named, shares, pairs, strict=True)
    ]


def difference(
    change: "Difference",
    versions: Sequence[str],
    most: int,
    pictures: "np.ndarray | None" = None,
    drawn: int = 0,
) -> list[str]:
    """Draw what changes from one model to another.

    Args:
        versions: Names of the first and the second.
        most: How many kinds of flips, or items, to list each way.
        pictures: The pictures of the test part, uint8 [n, rows, columns] or [n, rows, columns, 3].
        drawn: How many of them to draw each way.
    """
    listed = _flips if change.classes else _moved
    titles = ("right in second only", "right in first only")
    if not change.classes:
        titles = ("smaller errors in second", "larger errors in second")
    return [
        *_facts({"first": versions[0], "second": versions[1]}),
        "",
        *_metrics(change),
        "",
        *(_classes(change) if change.classes else []),
        *(_sides(change) if change.comparison.gained is not None else []),
        f"  {_verdict(change)}",
        *(f"  {escape(note)}" for note in change.notes),
        "",
        *listed(f"[green]{titles[0]}[/]", change.changes.gained, most),
        *_pictures(pictures, change.changes.gained[:drawn]),
        "",
        *listed(f"[red]{titles[1]}[/]", change.changes.lost, most),
        *_pictures(pictures, change.changes.lost[:drawn]),
    ]


def _metrics(change: "Difference") -> list[str]:
    width = max(map(len, change.metrics))
    lines = [f"  [dim]{'metric':<{width}}  {'first':>8} {'second':>8} {'change':>9}[/]"]
    for name, values in change.metrics.items():
        first, second = ("-" if value is None else figure(value) for value in values)
        moved = (
            f"{digits(values[1] - values[0], sign='+'):>9}"
            if values[0] is not None and values[1] is not None
            else f"{'-':>9}"
        )
        mark = "  compared" if name == change.comparison.metric.name else ""
        lines.append(f"  {name:<{width}}  {first:>8} {second:>8} {moved}[dim]{mark}[/]")
    return lines


def _sides(change: "Difference") -> list[str]:
    compared, items = change.comparison, change.items
    gained, lost = compared.gained or 0, compared.lost or 0
    both = round(compared.first * items) - gained
    wide = max(len(str(items)), len("wrong")) + 2
    return [
        f"  [dim]{'':<14}{'second':>{wide}}[/]",
        f"  [dim]{'items':<14}{'right':>{wide}}{'wrong':>{wide}}[/]",
        f"  {'first right':<14}{both:>{wide}}[red]{lost:>{wide}}[/]",
        f"  {'first wrong':<14}[green]{gained:>{wide}}[/]{items - both - gained - lost:>{wide}}",
        "",
    ]


def _verdict(change: "Difference") -> str:
    compared = change.comparison
    if compared.p_value is None:
        return compared.why or "too few items for a test"
    words = f"{p_words(compared.p_value, compared.p_is_bound)}, " + (
        "more than chance" if compared.p_value <= 0.05 else "may well be chance"
    )
    if compared.doubt:
        words = f"{p_words(compared.p_value, compared.p_is_bound)}; neither is reliable: {compared.doubt}"
    if compared.test == "McNemar":
        return f"exact McNemar test, two-sided: {words}"
    words = f"paired permutation test: {words}"
    if compared.interval is None:
        return words
    low, high = compared.interval
    return (
        f"95 % interval of the change {digits(low, sign='+')} to {digits(high, sign='+')}; {words}"
    )


def _classes(change: "Difference") -> list[str]:
    width = max(5, *map(len, change.classes))
    top = max((abs(row["change"]) for row in change.classes.values()), default=0.0) or 1.0
    lines = [f"  [dim]{'class':<{width}}    first   second    change     items[/]"]
    for name, row in change.classes.items():
        color = "green" if row["change"] > 0 else "red" if row["change"] < 0 else "dim"
        bar = _bar(abs(row["change"]) / top * 16)
        moved = f"[{color}]{row['change']:+8.4f}[/]"
        text = f"{row['champion_accuracy']:8.4f} {row['accuracy']:8.4f}  {moved}  {row['items']:8}  [{color}]{bar}[/]"
        lines.append(f"  {escape(name):<{width}} {text}")
    return [*lines, ""]


def _moved(title: str, changes: "Sequence[Change]", most: int) -> list[str]:
    if not changes:
        return [f"  {title}: none"]
    rows = [
        ("item", "true", "first", "second"),
        *((f"#{each.item}", each.target, each.before, each.after) for each in changes[:most]),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "    " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [f"  {title}", f"[dim]{lines[0]}[/]", *map(escape, lines[1:])]


def _flips(title: str, flips: "Sequence[Change]", most: int) -> list[str]:
    groups: dict[tuple[str, str], list[int]] = {}
    for flip in flips:
        groups.setdefault((flip.target, _wrong(flip)), []).append(flip.item)
    lines = [f"  {title}: {len(flips)} items"]
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (label, wrong), pictures in ordered[:most]:
        head = f"    {label}, not {wrong}: {len(pictures)}  "
        numbers = " ".join(f"#{picture}" for picture in pictures)
        rest = wrap(numbers, max(20, columns() - len(head)))
        shown = rest if most > len(ordered) else [rest[0] + (" …" if len(rest) > 1 else "")]
        lines += [
            escape(start + text)
            for start, text in zip([head] + [" " * len(head)] * len(shown), shown, strict=False)
        ]
    if len(ordered) > most:
        lines.append(f"    … and {len(ordered) - most} more kinds (--all, --json)")
    return lines


def _pictures(images: "np.ndarray | None", flips: "Sequence[Change]") -> list[str]:
    """Draw pictures side by side, two of their rows to a line; large ones are thinned out."""
    if images is None or not flips:
        return []
    step = -(-images.shape[2] // _WIDEST_PICTURE)
    drawn = [images[flip.item][::step, ::step] for flip in flips]
    gray = [picture.mean(2) if picture.ndim == 3 else picture for picture in drawn]
    width = max(gray[0].shape[1], *(len(_caption(flip)) for flip in flips)) + 2
    abreast = max(1, (columns() - 4) // width)
    lines = []
    for start in range(0, len(flips), abreast):
        lines += [
            "",
            "    "
            + "".join(
                escape(f"{_caption(flip):<{width}}") for flip in flips[start : start + abreast]
            ),
        ]
        row = [
            picture[: len(picture) // 2 * 2].astype(int)
            for picture in gray[start : start + abreast]
        ]
        pairs = [(picture[::2] + picture[1::2]) * len(_SHADES) // 511 for picture in row]
        for line in range(len(pairs[0])):
            cells = ("".join(_SHADES[shade] for shade in pair[line]) for pair in pairs)
            lines.append("    " + "".join(f"{cell:<{width}}" for cell in cells))
    return lines


def _caption(flip: "Change") -> str:
    if flip.target not in (flip.before, flip.after):
        return f"#{flip.item} {flip.target}: {flip.before}, {flip.after}"
    return f"#{flip.item} {flip.target}, not {_wrong(flip)}"


def _wrong(flip: "Change") -> str:
    return flip.before if flip.after == flip.target else flip.after


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _bar(eighths: float) -> str:
    full, rest = divmod(round(eighths * 8), 8)
    return "█" * full + _BLOCKS[rest].strip()
