"""Output of `podium models list`, `show`, `history` and `diff`, readable without color."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from podium.cli.tables import columns, size, table, when

if TYPE_CHECKING:
    import numpy as np
    from rich.text import Text

    from podium.registry import Record, Summary, Version
    from podium.registry.comparison import Difference, Flip

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SHADES = " ░▒▓█"


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


def history(records: "Iterable[Record]") -> list[str]:
    """List the history of a model, the newest last, in two or more lines per event."""
    from rich.markup import escape

    colors = {"promotion": "green", "rollback": "yellow", "deletion": "red", "refusal": "dim", "withdrawal": "red"}
    lines = []
    for record in records:
        event = f"[{colors.get(record.event, 'default')}]{record.event:<9}[/]"
        lines.append(f"{when(record.time)}  {event}  [bold]{record.version}[/]  {record.alias or ''}".rstrip())
        instead = f"instead of {record.replaced}: " if record.replaced else ""
        text = wrap(instead + _why(record), max(20, columns() - 18), break_on_hyphens=False)
        lines += [" " * 18 + escape(rest) for rest in text]
    return lines


def _why(record: "Record") -> str:
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


def facts(pairs: Mapping[str, str | None]) -> list[str]:
    """Format names and values; long values are wrapped and indented."""
    from rich.markup import escape

    label = max(map(len, pairs)) + 2
    lines = []
    for name, value in pairs.items():
        rest = wrap(value or "", max(20, columns() - label - 2), break_on_hyphens=False)
        heads = [name, *[""] * len(rest)]
        lines += [f"  [dim]{head:<{label}}[/]{escape(text)}" for head, text in zip(heads, rest, strict=False)]
    return lines


def version(of: "Version", aliases: Mapping[str, "Record"]) -> list[str]:
    """Describe a version: its origin, metrics and files."""
    metadata, held = of.metadata, {alias: record for alias, record in aliases.items() if record.version == of.version}
    dataset, origin, environment = (_mapping(metadata.get(key)) for key in ("dataset", "origin", "environment"))
    since = [f"[bold green]{alias}[/] since {when(record.time)}" for alias, record in held.items()]
    counts = _mapping(dataset.get("counts"))
    pairs = {
        "created": f"{when(of.created)} UTC" + (f" by run {metadata['run_id']}" if metadata.get("run_id") else ""),
        "from": ", ".join(
            str(origin[key]) for key in ("kind", "name", "experiment", "why") if origin.get(key) is not None
        ),
        "trained at": origin.get("uri"),
        "data": _words({"": dataset.get("name"), "digest": str(dataset.get("digest") or "")[:12] or None, **counts}),
        "metrics": _words(metadata.get("metrics")),
        "settings": _words(metadata.get("hyperparameters")),
        "code": _words({"podium": metadata.get("code_version"), "python": environment.get("python"),
                        "torch": environment.get("torch"), "image": metadata.get("image")}),
    }  # fmt: skip
    files = [("FILE", "SIZE", "SHA256")]
    files += [(file, size(record.size), record.sha256[:16]) for file, record in sorted(of.files.items())]
    width = max(len(file) for file, *_ in files)
    listed = [f"  {file:<{width}}  {length:>8}  {digest}" for file, length, digest in files]
    return [
        f"[bold]{of.name} {of.version}[/]  {', '.join(since)}".rstrip(),
        "",
        *facts({name: value for name, value in pairs.items() if value}),
        "",
        f"[dim]{listed[0]}[/]",
        *listed[1:],
    ]


def confusion(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> "list[Text | str]":
    """Draw a confusion matrix: a row for each true class, a column for each predicted one; zeros are dots.

    Larger shares of a row have stronger colors. The last column is recall, the last row precision, in percent.
    """
    from rich.text import Text

    label = max(len("predicted →"), *map(len, classes))
    room = (columns() - label - 2 - 9) // len(classes)
    need = len(str(max(map(max, matrix)))) + 1
    if room < need:
        return [f"  {len(classes)} classes need a wider terminal than {columns()} columns; --json gives the matrix"]
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


def _cell(count: int, hit: bool, total: int, width: int) -> "Text":
    from rich.text import Text

    text = str(count) if count else "·"
    share = count / total if total else 0.0
    styles = [(0.05, "bold white on red"), (0.02, "red"), (0.005, "yellow"), (0.0, "dim")]
    style = "bold green" if hit else next(style for least, style in styles if share >= least)
    return Text(" " * (width - len(text))) + Text(text, style)


def confused(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Draw bars for the most confused pairs, the worst first."""
    from rich.markup import escape

    if not pairs:
        return ["  [green]none: every picture is right[/]"]
    named = [escape(f"{pair['label']} taken for {pair['taken_for']}") for pair in pairs]
    width, digits = max(map(len, named)), len(str(pairs[0]["images"]))
    shares = [escape(f"{pair['share']:6.1%} of {pair['label']}") for pair in pairs]
    beside = max(map(len, shares))
    most = max(pair["share"] for pair in pairs)
    room = max(0, min(24, columns() - width - digits - beside - 9))
    return [
        f"  {name:<{width}}  {pair['images']:>{digits}}  {share:<{beside}}  [red]{_bar(pair['share'] / most * room)}[/]"
        for name, share, pair in zip(named, shares, pairs, strict=True)
    ]


def difference(
    change: "Difference", versions: Sequence[str], most: int, pictures: "np.ndarray | None" = None, drawn: int = 0
) -> list[str]:
    """Draw what changes from one model to another.

    Args:
        change: The comparison.
        versions: Names of the first and the second.
        most: How many kinds of flips to list each way.
        pictures: The pictures of the test part, uint8 [n, rows, columns].
        drawn: How many of them to draw each way.
    """
    from podium.registry.comparison import p_words

    figures = change.figures
    gained, lost, images = figures["only_challenger_right"], figures["only_champion_right"], figures["images"]
    both = round(figures["accuracy"] * images) - gained
    wide = max(len(str(images)), len("wrong")) + 2
    verdict = "more than chance" if figures["p_value"] <= 0.05 else "may well be chance"
    return [
        *facts({"first": versions[0], "second": versions[1]}),
        "",
        *_classes(figures),
        "",
        f"  [dim]{'':<14}{'second':>{wide}}[/]",
        f"  [dim]{'pictures':<14}{'right':>{wide}}{'wrong':>{wide}}[/]",
        f"  {'first right':<14}{both:>{wide}}[red]{lost:>{wide}}[/]",
        f"  {'first wrong':<14}[green]{gained:>{wide}}[/]{images - both - gained - lost:>{wide}}",
        "",
        f"  exact McNemar test, two-sided: {p_words(figures['p_value'])}, {verdict}",
        "",
        *_flips("[green]right in second only[/]", change.gained, most),
        *_pictures(pictures, change.gained[:drawn]),
        "",
        *_flips("[red]right in first only[/]", change.lost, most),
        *_pictures(pictures, change.lost[:drawn]),
    ]


def _classes(figures: Mapping[str, Any]) -> list[str]:
    from rich.markup import escape

    whole = {"images": figures["images"], "accuracy": figures["accuracy"],
             "champion_accuracy": figures["champion_accuracy"],
             "change": figures["accuracy"] - figures["champion_accuracy"]}  # fmt: skip
    width = max(5, *map(len, figures["classes"]))
    top = max((abs(row["change"]) for row in figures["classes"].values()), default=0.0) or 1.0
    lines = [f"  [dim]{'class':<{width}}    first   second    change  pictures[/]"]
    for name, row in [*figures["classes"].items(), ("all", whole)]:
        color = "green" if row["change"] > 0 else "red" if row["change"] < 0 else "dim"
        bar = _bar(abs(row["change"]) / top * 16) if name != "all" else ""
        change = f"[{color}]{row['change']:+8.4f}[/]"
        text = f"{row['champion_accuracy']:8.4f} {row['accuracy']:8.4f}  {change}  {row['images']:8}  [{color}]{bar}[/]"
        lines.append(f"  {escape(name):<{width}} {text}")
    return lines


def _flips(title: str, flips: "Sequence[Flip]", most: int) -> list[str]:
    """List the pictures that flipped, grouped by true and wrong class."""
    from rich.markup import escape

    groups: dict[tuple[str, str], list[int]] = {}
    for flip in flips:
        groups.setdefault((flip.label, _wrong(flip)), []).append(flip.picture)
    lines = [f"  {title}: {len(flips)} pictures"]
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (label, wrong), pictures in ordered[:most]:
        head = f"    {label}, not {wrong}: {len(pictures)}  "
        numbers = " ".join(f"#{picture}" for picture in pictures)
        rest = wrap(numbers, max(20, columns() - len(head)))
        shown = rest if most > len(ordered) else [rest[0] + (" …" if len(rest) > 1 else "")]
        lines += [
            escape(start + text) for start, text in zip([head] + [" " * len(head)] * len(shown), shown, strict=False)
        ]
    if len(ordered) > most:
        lines.append(f"    … and {len(ordered) - most} more kinds (--all, --json)")
    return lines


def _pictures(images: "np.ndarray | None", flips: "Sequence[Flip]") -> list[str]:
    """Draw pictures side by side, two of their rows to a line."""
    from rich.markup import escape

    if images is None or not flips:
        return []
    width = max(images.shape[2], *(len(_caption(flip)) for flip in flips)) + 2
    abreast = max(1, (columns() - 4) // width)
    lines = []
    for start in range(0, len(flips), abreast):
        row = flips[start : start + abreast]
        lines += ["", "    " + "".join(escape(f"{_caption(flip):<{width}}") for flip in row)]
        pairs = [
            (images[flip.picture][::2].astype(int) + images[flip.picture][1::2]) * len(_SHADES) // 511 for flip in row
        ]
        for line in range(len(pairs[0])):
            cells = ("".join(_SHADES[shade] for shade in pair[line]) for pair in pairs)
            lines.append("    " + "".join(f"{cell:<{width}}" for cell in cells))
    return lines


def _caption(flip: "Flip") -> str:
    return f"#{flip.picture} {flip.label}, not {_wrong(flip)}"


def _wrong(flip: "Flip") -> str:
    return flip.before if flip.after == flip.label else flip.after


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _bar(eighths: float) -> str:
    full, rest = divmod(round(eighths * 8), 8)
    return "█" * full + _BLOCKS[rest].strip()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _words(value: Any) -> str | None:
    pairs = ((name, item) for name, item in _mapping(value).items() if item not in (None, "", [], {}))
    return (
        ", ".join(f"{name} {f'{item:.4g}' if isinstance(item, float) else item}".strip() for name, item in pairs)
        or None
    )
