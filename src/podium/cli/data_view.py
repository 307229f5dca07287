"""A dataset in the terminal: parts, inputs, target, and the distribution of each in a line of block
characters."""

from collections.abc import Sequence
from typing import Any

from podium.tables import table

BLOCKS = " ▁▂▃▄▅▆▇█"
FACTS = ("min", "max", "mean", "std")
MOST_CLASSES = 40
BAR = 24
MOST_COLUMNS = 100
MOST_CATEGORIES = 4
"""Named in a row of a table."""


def summary(dataset: dict[str, Any], part: str) -> str:
    """Draw what `podium.data.look.statistics` measured.

    Args:
        part: Whose columns and distributions are shown.
    """
    sections = [_head(dataset), _parts(dataset)]
    measured = dataset["parts"][part]
    for name, described in dataset["inputs"].items():
        shape = "×".join(map(str, described["shape"])) or "number"
        head = f"input {name}: {described['meaning']}, {described['dtype']} {shape}"
        sections.append(_input(head, described, measured["inputs"][name]))
    sections.append(
        _classes(dataset, part) if dataset["classes"] else _numbers(dataset, measured["target"])
    )
    return "\n\n".join(section for section in sections if section)


def _spark(counts: Sequence[int]) -> str:
    """Draw a histogram as a line of block characters; what is not zero is never blank."""
    most = max(counts, default=0) or 1
    return "".join(BLOCKS[-(-count * 8 // most)] for count in counts)


def _head(dataset: dict[str, Any]) -> str:
    return (
        f"{dataset['name']} · {dataset['kind']} · digest {dataset['digest'][:12]} · from {dataset['source']}"
        f" · split {dataset['split']} · seed {dataset['seed']} · limit {dataset['limit'] or 'none'}"
    )


def _parts(dataset: dict[str, Any]) -> str:
    rows = [
        [name, str(part["count"]), f"{part['bytes'] / 2**20:.1f}"]
        for name, part in dataset["parts"].items()
    ]
    heads = ["part", ">items", ">MiB"]
    for name, described in dataset["inputs"].items():
        if described["meaning"] == "image":
            heads += [f">{name} min", ">max", ">mean", ">std"]
            for row, part in zip(rows, dataset["parts"].values(), strict=True):
                image = part["inputs"][name]
                row += [
                    _figure(min(image["min"])),
                    _figure(max(image["max"])),
                    _means(image["mean"]),
                ]
                row.append(_means(image["std"]))
    return table(heads, rows)


def _input(head: str, described: dict[str, Any], measured: dict[str, Any]) -> str:
    if described["meaning"] == "image":
        return head
    if described["meaning"] == "tokens":
        return f"{head}\n" + _lines(["words of an item"], measured["lengths"])
    if described["meaning"] == "array":
        return f"{head}\n" + _lines(["all values"], measured)
    rows = []
    for at, column in enumerate(described["columns"][:MOST_COLUMNS]):
        counts = measured["histograms"][at]
        digits = 12 if column["center"] else 4
        facts = [_figure(measured[name][at], digits) for name in FACTS[:3]]
        facts.append(_figure(measured["std"][at]))
        shown = _spark(counts)
        if column["kind"] == "category":
            facts = ["", "", "", ""]
            shown = _shares(column["categories"], counts)
        rows.append([column["name"], column["kind"], str(column["missing"]), *facts, shown])
    more = len(described["columns"]) - MOST_COLUMNS
    heads = ["column", "type", ">missing", ">min", ">max", ">mean", ">std", "distribution"]
    return table(heads, rows, title=head) + (f"\n… and {more} more columns" if more > 0 else "")


def _shares(categories: Sequence[str], counts: Sequence[int]) -> str:
    total = sum(counts) or 1
    ranked = sorted(zip(counts, categories, strict=True), key=lambda pair: -pair[0])
    named = [f"{name} {count / total:.0%}" for count, name in ranked[:MOST_CATEGORIES] if count]
    more = len(categories) - len(named)
    return ", ".join(named) + (f" … {more} more" if more > 0 else "")


def _numbers(dataset: dict[str, Any], target: dict[str, Any]) -> str:
    count = len(target["mean"])
    names = [dataset["target"]["name"] + (f" {at}" if count > 1 else "") for at in range(count)]
    return f"target {dataset['target']['name']}: {dataset['target']['dtype']}\n" + _lines(
        names, target
    )


def _lines(names: Sequence[str], measured: dict[str, Any]) -> str:
    rows = [
        [name, *(_figure(measured[fact][at]) for fact in FACTS), _spark(measured["histograms"][at])]
        for at, name in enumerate(names)
    ]
    return table(["", ">min", ">max", ">mean", ">std", "distribution"], rows)


def _classes(dataset: dict[str, Any], part: str) -> str:
    parts = {
        name: measured["class_counts"]
        for name, measured in dataset["parts"].items()
        if "+" not in name
    }
    most = max(parts[part]) or 1
    bars = ["█" * max(count > 0, round(BAR * count / most)) for count in parts[part]]
    rows = [
        [name, *(str(counts[at]) for counts in parts.values()), bars[at]]
        for at, name in enumerate(dataset["classes"][:MOST_CLASSES])
    ]
    more = len(dataset["classes"]) - MOST_CLASSES
    text = table(
        [f"class of {dataset['target']['name']}", *(f">{name}" for name in parts), f"of {part}"],
        rows,
    )
    return text + (f"\n… and {more} more classes" if more > 0 else "")


def _means(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _figure(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
