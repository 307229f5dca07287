"""Prepare a dataset: read a source, divide it, write one artifact."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from podium.data import artifact, artifact_files, preprocessing
from podium.data.artifact import DatasetInfo, Split
from podium.data.artifact_files import Extras, count_classes
from podium.data.blocks import Selection
from podium.data.contract_check import differences
from podium.data.hashes import hash_labels
from podium.data.held_out import HeldOut
from podium.data.near import NearItems
from podium.data.option_text import options_as, written
from podium.data.profile import Profile
from podium.data.schema import Hashes
from podium.data.seen import SeenItems
from podium.data.sources.fetching import is_small
from podium.data.sources.known import DATASETS
from podium.data.sources.source import Raw
from podium.data.splits import Division, divide
from podium.data.suspects import find_overlaps, suspicions
from podium.data.values import absent_names, broken_text, twin_names
from podium.display.text import listed, plural
from podium.errors import InvalidInput
from podium.files.documents import parse
from podium.models.document import beside, name_for
from podium.models.registry import open_registry
from podium.models.shared_items import check_comparable
from podium.models.version import Version
from podium.prediction import PREPROCESSING, PROFILE
from podium.scoring import METRICS
from podium.scoring.comparison import small_test_part
from podium.scoring.metrics import require_kind
from podium.scoring.threshold import require_tunable, split
from podium.storage import local_path
from podium.system.settings import Settings
from podium.training.dataset import DataSettings

log = logging.getLogger("podium.data")
summary = logging.getLogger("podium.data.summary")

SMALL = 4 << 20
"""Bytes of data that are read as a whole before a run begins."""


def check_data(
    settings: DataSettings,
    *,
    metric: str,
    model_name: str,
    storage: str,
    columns: Sequence[str] = (),
) -> DatasetInfo | None:
    """Refuse before a run what `prepare_data` would refuse, as far as that takes seconds at most.

    Args:
        storage: URL of the registry's storage; one that is elsewhere is not asked.
        columns: Which the test items must have.

    Returns:
        What the data hold; None if they are remote, large, or the known ones.

    Raises:
        PodiumError: As prepare_data. Of a large table only its columns are looked at.
    """
    paths = [local_path(location) for location in settings.locations]
    if settings.dataset in DATASETS or None in paths:
        return None
    if settings.is_prepared:
        info = artifact.describe(settings.dataset)
        _check_metric(metric, info.kind, info.classes)
        for column in columns:
            HeldOut.open(settings.dataset).column(column)
        return info
    with (
        tempfile.TemporaryDirectory(prefix="podium-") as scratch,
        options_as(settings.data_options),
        _heard(),
    ):
        if columns and settings.kind != "images":
            file = settings.reader.open(settings.location, settings.options, Path(scratch))
            for column in columns:
                file.require(column, role="a slice of the rule")
        if not all(is_small(path, SMALL) for path in paths if path):
            settings.reader.check(settings.options)
            settings.reader.open(settings.location, settings.options, Path(scratch))
            return None
        info = prepare(settings, f"{scratch}/data", f"{scratch}/test", None, metric)
        if local_path(storage):
            check_model(
                model_name or name_for(info.name), storage, f"{scratch}/test", info, settings
            )
        return info


def check_model(
    name: str, storage: str, test: str, info: DatasetInfo, settings: DataSettings
) -> None:
    """Refuse a test part that is for another task than the model of this name, or hardly allows a
    comparison.

    Where no contract says what columns hold, they are compared with those that the champion was
    trained on.
    """
    model = open_registry(storage).model(name)
    champion = model.find_champion()
    if champion and info.meaning == "table" and not settings.data_options.get("contract"):
        _compare_columns(champion, info)
    check_comparable(model, test)


def _compare_columns(champion: Version, info: DatasetInfo) -> None:
    own, bins = beside(champion, PREPROCESSING), beside(champion, PROFILE)
    before = preprocessing.read(
        own if "kind" in own else {}, f"{PREPROCESSING} of {champion.title}"
    )
    now = preprocessing.read(info.preprocessing, info.name)
    profile = parse(Profile, bins, PROFILE) if bins else None
    table = preprocessing.TablePreprocessing
    for said in (
        differences(before, profile, now)
        if isinstance(before, table) and isinstance(now, table)
        else ()
    ):
        log.warning("other data than those of %s: %s", champion.title, said)


def prepare(
    settings: DataSettings,
    target: str | Path,
    test: str | Path | None = None,
    cache: Path | None = None,
    metric: str = "",
) -> DatasetInfo:
    """Write a dataset artifact, as `prepare_data` does, and nothing else."""
    if settings.is_prepared:
        info = artifact.describe(settings.dataset)
        _check_metric(metric, info.kind, info.classes)
        return artifact_files.copy(settings.dataset, target, test)
    source, options, limit = settings.reader, settings.options, settings.limit or None
    source.check(options)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch, _heard() as warnings:
        folder = cache or Settings.from_environment().cache if source.cached else Path(scratch)
        raw = source.read(settings.location, options, folder)
        _check_metric(metric, raw.kind, raw.classes)
        division = divide(raw, options, limit=limit)
        raw = raw if raw.fit is None else raw.fit(division.index["train"])
        own: dict[str, Split | None] = {"validation": raw.validation, "test": raw.test}
        parts = {
            **{part: Selection(part=whole) for part, whole in own.items() if whole is not None},
            **{
                part: Selection(part=raw.items, index=index)
                for part, index in division.index.items()
            },
        }
        hashes = {part: items.hashes() for part, items in parts.items()}
        accepted = options.allow_duplicates or raw.published
        time = (options.time or "time") if raw.times is not None else ""
        _check_overlaps(parts, hashes, accepted=accepted, by_hash=division.by_hash, time=time)
        _report(parts, raw, division, hashes)
        return artifact_files.write(
            target,
            parts,
            name=raw.name,
            kind=raw.kind,
            classes=raw.classes,
            inputs=raw.descriptions,
            target_name=raw.target_name,
            preprocessing=raw.preprocessing,
            source=raw.source,
            split=division.how,
            seed=options.split_seed,
            limit=limit,
            test=test,
            warnings=warnings,
            extras=_extras(raw, division, parts, hashes, options.gap, accepted=accepted),
        )


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect what the data room warns of: whoever takes the dataset from a cache is told again."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        yield warnings
    finally:
        log.removeHandler(handler)


def _check_metric(text: str, kind: str, classes: Sequence[str]) -> None:
    tune, text = split(text)
    if metric := METRICS.get(text.rpartition(":")[2]):
        require_kind(metric, kind)
        if tune:
            require_tunable(metric, classes)


def _check_overlaps(
    parts: Mapping[str, Selection],
    hashes: Mapping[str, Hashes],
    *,
    accepted: bool,
    by_hash: bool,
    time: str = "",
) -> None:
    """Refuse items in two parts, or report them: where parts follow from hashes, these became equal
    as inputs only.

    Args:
        time: Column that divides them; empty for none.
    """
    overlaps = find_overlaps(parts, hashes)
    if overlaps and not (accepted or by_hash):
        accept = written("allow_duplicates", True)
        if time:
            raise InvalidInput(
                f"but for {time} and the target, {'; '.join(overlaps)}",
                f"if such items come again as time goes on, accept them: {accept}; if they are copies, "
                "remove them, or keep them together by a group",
            )
        raise InvalidInput(
            "; ".join(overlaps),
            f"remove the duplicates, keep them together by a group, or accept them: {accept}",
        )
    for overlap in overlaps:
        log.warning("%s", overlap if accepted else f"as inputs, {overlap}")


def _extras(
    raw: Raw,
    division: Division,
    parts: Mapping[str, Selection],
    hashes: Mapping[str, Hashes],
    gap: float,
    *,
    accepted: bool,
) -> Extras:
    """Return what tells later which items a model has seen, and the test items as they came."""
    learned = ("train", "validation")
    seen = np.union1d(hashes["train"], hashes["validation"])
    keys = {
        part: hashes[part]
        if raw.keys is None or part not in division.index
        else raw.keys[division.index[part]]
        for part in parts
    }
    groups = (
        {part: raw.groups[at] for part, at in division.index.items()}
        if raw.groups is not None
        else {}
    )
    hashed = {part: hash_labels(labels) for part, labels in {**groups, **raw.part_groups}.items()}
    if (
        not hashed
        and not accepted
        and any(of.meaning == "tokens" for of in raw.descriptions.values())
    ):
        hashed = keys  # sentences of the same words are one
    if accepted:
        seen = np.setdiff1d(seen, hashes["test"])
    if hashed:
        seen = np.union1d(
            seen, np.concatenate([of for part, of in hashed.items() if part in learned])
        )
    if raw.clusters is not None:  # which the training part has too
        names = np.char.add(
            "cluster ", raw.clusters[division.index["test"]]
        )  # none is a group seen
        hashed = {**hashed, "test": hash_labels(names)}
    near = None if accepted else NearItems.of([parts[part] for part in learned], raw.descriptions)
    return Extras(
        seen=SeenItems(hashes=seen, near=() if near is None else (near,)),
        groups=hashed,
        keys=keys,
        times={part: raw.times[at] for part, at in division.index.items()}
        if raw.times is not None
        else {},
        gap=gap,
        originals=raw.originals(division.index.get("test")) if raw.originals else None,
    )


def _report(
    parts: Mapping[str, Selection],
    raw: Raw,
    division: Division,
    hashes: Mapping[str, Hashes],
) -> None:
    """Say what of the division may be a mistake, and where it lies in time."""
    counts = {name: count_classes(name, part, len(raw.classes)) for name, part in parts.items()}
    _report_classes(counts, raw.classes)
    said = [twin_names(f"classes of {raw.target_name}", raw.classes)]
    said += [
        f"the class {name!r} of {raw.target_name} may mean that none is known: if so, remove its items"
        for name in absent_names(raw.classes)
    ]
    said.append(broken_text(f"a class of {raw.target_name}", raw.classes))
    said += suspicions(parts, raw, hashes, division.index)
    groups = raw.part_groups.get("test")
    together = raw.groups if raw.clusters is None else raw.clusters
    if together is not None and "test" in division.index:
        groups = together[division.index["test"]]
    said.append(small_test_part(len(parts["test"]), counts["test"], raw.kind, groups))
    if groups is None:
        keys = hashes["test"]
        if raw.keys is not None and "test" in division.index:
            keys = raw.keys[division.index["test"]]
        said.append(_repeats(keys))
    for sentence in filter(None, said):
        log.warning("%s", sentence)
    if raw.times is not None:
        spans = {part: raw.times[at] for part, at in division.index.items()}
        summary.info(
            "divided %s: train until %s, validation from %s until %s, test from %s until %s",
            division.how,
            _time(spans["train"].max()),
            _time(spans["validation"].min()),
            _time(spans["validation"].max()),
            _time(spans["test"].min()),
            _time(spans["test"].max()),
        )


def _repeats(keys: Hashes) -> str:
    """Say that most items of the test part, whose keys these are, repeat others."""
    different = len(np.unique(keys))
    if 2 * different > len(keys):
        return ""
    return (
        f"the test part has only {plural(different, 'different item')}, of {len(keys):,}: equal ones count "
        "together, so its figures vary as on so few"
    )


def _time(moment: Any) -> str:
    return str(moment).removesuffix("T00:00:00.000000")


def _report_classes(counts: Mapping[str, tuple[int, ...]], classes: tuple[str, ...]) -> None:
    for part, of_part in counts.items():
        missing = [name for name, count in zip(classes, of_part, strict=False) if not count]
        if missing:
            log.warning("the %s part has no item of %s", part, listed(missing))
