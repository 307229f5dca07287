"""The model card of a version, in Markdown: only what its registry recorded, and no advice."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isclose
from typing import Any

from podium.display.text import brief, figure, one_line, size, when
from podium.errors import PodiumError
from podium.models.document import as_mapping, beside
from podium.models.lineage import Lineage
from podium.models.model import Model
from podium.models.record import Record
from podium.models.shared_items import TestItems
from podium.models.task import decision_threshold
from podium.models.version import Version
from podium.prediction.predictor import PREPROCESSING
from podium.scoring import METRICS
from podium.scoring.intervals import figure_interval

_MOST_CLASSES = 30
"""Limit above which the card has no table of classes."""

_UNKNOWN = (
    "Not recorded, and so not here: what the model is meant for, the licenses of data and weights, "
    "and whom its mistakes harm. Whoever publishes it adds that."
)


def card(version: Version) -> str:
    """Return the model card of a version."""
    model = Model(version.storage, version.name)
    lineage, metadata = Lineage.of(model, version), version.metadata
    sections = {
        "": _summary(version, lineage),
        "Use": _use(version),
        "Figures": _figures(version),
        "Classes": _classes(version),
        "Data": _facts(_data(version, lineage)),
        "Training": _facts(_training(version, lineage)),
        "Settings": _facts(version.hyperparameters),
        "Promotion": _promotion(model, version),
        "Environment": _facts(as_mapping(metadata.get("environment"))),
        "Files": _files(version),
        "What is not known": [_UNKNOWN],
    }
    title = f"# {version.title}"
    parts = [[title if not name else f"## {name}", *lines] for name, lines in sections.items()]
    return "\n\n".join("\n".join([part[0], "", *part[1:]]) for part in parts if part[1:]) + "\n"


def _summary(version: Version, lineage: Lineage) -> list[str]:
    facts = version.facts.dataset
    kind = f"A {facts.kind} model" if facts.kind else "A model"
    target = f" that predicts {facts.target}" if facts.target else ""
    data = f", trained on {facts.name}" if facts.name else ""
    champion = (
        f"Champion since {lineage.champion_since}."
        if lineage.champion_since
        else "Not the champion."
    )
    made = f"Uploaded {when(version.created)} UTC, {size(version.size)}."
    return [f"{_text(kind + target + data)}. {made} {champion}"]


def _use(version: Version) -> list[str]:
    storage = version.storage.url
    ref = f"{version.name} {version.version}"
    return [
        "```",
        f"podium predict ITEMS --model {version.name} --alias {version.version} --storage {storage}",
        f"podium serve {version.name}@{version.version} --storage {storage}",
        f"podium models lineage {ref} --storage {storage}",
        "```",
        *_taken(version),
    ]


def _taken(version: Version) -> list[str]:
    """Return what raw items it takes, by the preprocessing that is stored with it."""
    described = as_mapping(beside(version, PREPROCESSING))
    if not described:
        return []
    columns = described.get("columns") or []
    names = [f"{column.get('name')} ({column.get('kind')})" for column in columns]
    kind = {"image": "pictures", "table": "rows", "text": "sentences"}.get(
        str(described.get("kind")), "items"
    )
    return ["", _text(f"It takes {kind}{': ' + ', '.join(names) if names else ''}.")]


def _figures(version: Version) -> list[str]:
    facts, intervals = version.facts, _intervals(version)
    figures = version.metrics
    chosen = facts.metric.name
    tests = {name: value for name, value in figures.items() if not name.startswith("validation_")}
    rows = [
        [
            f"**{name}**" if name == chosen else name,
            figure(value),
            " to ".join(map(figure, intervals[name])) if name in intervals else "–",
            figure(figures[f"validation_{name}"]) if f"validation_{name}" in figures else "–",
        ]
        for name, value in sorted(tests.items(), key=lambda item: item[0] != chosen)
    ]
    lines = _table(["metric", "test", "95 % interval", "validation"], rows)
    notes = [f"Its metric is {chosen}."] if chosen else []
    if f"validation_{chosen}" in figures:
        notes = [f"It was chosen by {chosen} on the validation part."]
    if facts.constant.value is not None:
        notes.append(f"A constant guess ({facts.constant.guess}): {figure(facts.constant.value)}.")
    notes += [f"It decides for {told}." for told in [decision_threshold(version)] if told]
    return [*lines, *(["", _text(" ".join(notes))] if notes else [])]


def _intervals(version: Version) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each figure of a version, from its stored predictions; nothing
    for a figure that these do not give, or that has too few items."""
    try:
        seen = TestItems.stored([version]).common([version])
    except PodiumError:
        return {}
    intervals = {}
    for name, value in version.metrics.items():
        metric = METRICS.get(name)
        if metric is None or metric.kind != seen.kind:
            continue
        with suppress(PodiumError):
            predicted = seen.of(metric)[0]
            interval = figure_interval(metric, seen.target, predicted, seen.groups)
            if interval and isclose(metric.value(seen.target, predicted), value, rel_tol=1e-6):
                intervals[name] = interval
    return intervals


def _classes(version: Version) -> list[str]:
    classes = [each for each in (version.metadata.get("report") or {}).get("classes") or () if each]
    heads = ("precision", "recall", "f1", "items")
    complete = [each for each in classes if isinstance(each, Mapping) and set(heads) <= each.keys()]
    if not complete or len(complete) > _MOST_CLASSES:
        return []
    rows = [[str(each["name"]), *(brief(each[head]) for head in heads)] for each in complete]
    return _table(["class", *heads], rows)


def _data(version: Version, lineage: Lineage) -> dict[str, Any]:
    metadata = as_mapping(version.metadata.get("dataset"))
    warnings = metadata.get("warnings")
    return {
        "data": lineage.data,
        "source": metadata.get("source"),
        "digest": version.facts.dataset.digest,
        "test part": version.facts.dataset.test_digest,
        "warnings": "; ".join(map(str, warnings)) if isinstance(warnings, list) else warnings,
    }


def _training(version: Version, lineage: Lineage) -> dict[str, Any]:
    origin, code = version.facts.origin, as_mapping(version.metadata.get("code"))
    return {
        "run": lineage.run,
        "sweep": lineage.sweep,
        lineage.kind: lineage.name,
        "chosen because": as_mapping(version.metadata.get("origin")).get("why"),
        "files from": origin.uri,
        "image": version.facts.image,
        "podium": version.facts.code_version,
        "code": code.get("digest"),
    }


def _promotion(model: Model, version: Version) -> list[str]:
    records = [
        record for record in model.ledger.distinct_records() if record.version == version.version
    ]
    lines = [line for record in records for line in _record(record)]
    return lines or ["Nobody has compared or promoted it yet."]


def _record(record: Record) -> Iterable[str]:
    grounds = record.grounds
    other, _, gone = (record.replaced or grounds.champion or "").partition("~")
    rule = f" by the rule `{record.evidence['rule']}`" if record.evidence.get("rule") else ""
    beside = f", beside {other}{', deleted since' if gone else ''}" if other else ""
    yield f"- {when(record.time)} UTC: {record.event}{rule}{_text(beside)}"
    for reason in grounds.reasons or filter(None, [grounds.reason]):
        yield f"  - {_text(reason)}"


def _files(version: Version) -> list[str]:
    rows = [
        [name, size(record.size), f"`{record.sha256}`"]
        for name, record in sorted(version.files.items())
    ]
    return _table(["file", "size", "sha256"], rows)


def _facts(facts: Mapping[str, Any]) -> list[str]:
    filled = {
        name: value for name, value in facts.items() if name and value not in (None, "", [], {})
    }
    return _table(["fact", "value"], [[name, str(value)] for name, value in filled.items()])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [heads, ["---"] * len(heads), *([_text(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _text(text: str) -> str:
    """Return foreign text so that it stays in its cell and its line."""
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")
