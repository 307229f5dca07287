"""Warnings about likely mistakes in prepared data: a column that gives the answer away, items that
occur in two parts or nearly do."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.artifact import PARTS
from podium.data.blocks import Selection, are_numbers, blocks, midranks
from podium.data.folds import as_numbers
from podium.data.hidden_groups import names_groups
from podium.data.leaks import FEWEST, MOST_VALUES, find_frames, find_leaks
from podium.data.near import NearItems, letter_cases, mix, one_case, picture_grid, project
from podium.data.option_text import written
from podium.data.profile import MISSING, Profile
from podium.data.schema import DATES, Array, Column, Hashes, InputDescription
from podium.data.sources.source import Raw
from podium.data.split import Split
from podium.display.text import are, plural

_EXAMPLES = 3


def find_overlaps(parts: Mapping[str, Selection], hashes: Mapping[str, Hashes]) -> list[str]:
    """Say how many items of a part occur in another part as well, in a sentence for each two parts,
    with examples by their numbers in the source; the target may differ.

    Args:
        parts: By name.
        hashes: Those of Selection.hashes, of each part.
    """
    overlaps = []
    for other, part in combinations(PARTS, 2):
        count = int(np.isin(hashes[part], hashes[other]).sum())
        if count:
            _, mine, theirs = np.intersect1d(hashes[part], hashes[other], return_indices=True)
            first = np.argsort(mine)[:_EXAMPLES]
            items = parts[part].positions(mine[first]) + 1
            twins = parts[other].positions(theirs[first]) + 1
            pairs = ", ".join(f"{item} and {twin}" for item, twin in zip(items, twins, strict=True))
            overlaps.append(
                f"{count:,} of the {part} items {are(count)} among the {other} items too, for "
                f"example items {pairs}"
            )
    return overlaps


_MOST_ROWS = 20_000
"""Rows of the training part that are looked at for a column that is the answer."""

_SURE = 0.999
"""Area under the ROC curve, share of right answers, or share of the variance, of one column
alone."""

_MOST_OUTPUTS = 10
"""Numbers of a target that columns are compared with, the first ones."""

_APART = 10
"""Deviations of the largest of several numbers to predict in those of the smallest."""

_RARE = 1e-6
"""Probability, with which so many rows are of one class by chance, below which it is none."""

_FEWEST_OTHERS, _LEAST_MARKED = 10, 0.01
"""Other numbers of a column, and the share of its rows, from which a number far from them all means
that they are missing."""

_NO_DATES = np.array(
    ["0001-01-01", "1899-12-30", "1900-01-01", "1970-01-01", "2999-12-31", "9999-12-31"], "M8[D]"
).astype(np.float64)
"""Days since 1970 that stand for no date."""

_REPEATED = 5
"""Items of each value, on average, from which values are taken as categories."""

_CHANGED = 6
"""Words of a sentence of which one may be another in a sentence that is nearly equal."""

UNIQUE = 0.9
"""Share of different values from which a column is nearly unique."""

_MOST_COMPARED = 50_000
"""Rows of a part that are compared with those of another."""

_MOST_VALUES = 10_000_000
"""Values of a part that are compared; of wide tables, fewer rows are."""

_MOST_LEFT_OUT = 100
"""Columns that are left out of the comparison of rows, one after the other."""

_MOST_PICTURES = 20_000
"""Pictures of a part that are compared with those of another."""

_SHUFFLES, _SHUFFLED = 4, 20_000
"""How often the columns of the test part are shuffled to see how many rows meet by chance: more
often where it has few rows, so many in all."""

_MOST_RANKED, _LEAST_OF_LEADER = 2000, 10
"""Training rows in which columns are looked for that follow from another, and how many of them have
each value of the other: copies of a row are fewer."""

_MOST_BY_CHANCE = 0.01
"""Probability of a report where rows meet by chance alone."""

_MIXED = 1000
"""Test rows that are mixed with their neighbors to see how many rows meet where data are dense."""

_MOST_MEASURED, _LEAST_OF_BIN = 1000, 4
"""Items of a part whose values are counted in bins, and how many there are for each bin at least."""

_UNLIKE = 0.5
"""Share of the test items that would have to be moved to another bin for a column to be as it is in
validation, from which this is no chance."""

_LEAST_STEPS = 14
"""Spots of a picture, of 64, whose brightness differs from that of their neighbor; plain paper has
fewer, and pages look alike."""


_WIDEST = 1000
"""Numbers of an item of an array that are looked at one by one; more are pixels."""

_FEWEST_DIVIDED = 100
"""Rows from which ranges of a target that do not overlap are no chance."""

_MOST_LATER, _SAME = 7, 0.99
"""Rows by which a column may be ahead of the target, and the share that must be the same."""

_FEWEST_GROUPS = 10
"""Values of a column from which it may name patients, or customers."""

_MOST_WORDS = 3
"""Words that are named of those that tell a class."""

_LEAST_TWICE = 0.01
"""Share of the sentences that also have another class, from which it is said."""

_LEAST_CHANGED = 0.05
"""Share of the test sentences that are training sentences but for a word or few, from which it is
said."""


def suspicions(
    parts: Mapping[str, Selection],
    raw: Raw,
    hashes: Mapping[str, Hashes],
    index: Mapping[str, NDArray[np.int64]],
) -> list[str]:
    """Say what of prepared data may be a mistake, in sentences.

    Args:
        parts: By name.
        raw: The items of the source, fitted.
        hashes: Those of Selection.hashes, of each part.
        index: Which items of the source are in each part that it does not have itself.
    """
    is_text = any(of.meaning == "tokens" for of in raw.descriptions.values())
    said = _of_sentences(parts, raw) if is_text else _of_columns(parts, raw)
    said += _of_outputs(parts, raw)
    if raw.times is not None:
        said += _of_times(raw.times) + _of_later(raw)
    if not raw.published:
        made = _made_of(raw.preprocessing.get("columns", ()))
        said += _near_duplicates(parts, raw.descriptions, made)
        if raw.times is None and (raw.test is not None or raw.given is not None):
            said += _unlike_columns(parts, raw)
    if raw.keys is not None and is_text:
        said += _near_sentences(raw.keys, hashes, index)
        said += _of_two_classes(raw.keys, np.asarray(raw.items.target)) if raw.classes else []
    return said


def _of_columns(parts: Mapping[str, Selection], raw: Raw) -> list[str]:
    """Say which columns and numbers of arrays give the target away."""
    said = list[str]()
    for name, described in raw.descriptions.items():
        if described.meaning == "image" and not raw.published:
            said += find_frames(parts, name)
        if described.meaning not in ("table", "array"):
            continue
        width = parts["train"].array(name)[:1].size
        if width > _WIDEST and not described.columns:
            continue
        most = min(_MOST_ROWS, MOST_VALUES // max(1, width))
        rows, target = (_sample(parts["train"], of, most) for of in (name, "target"))
        columns = described.columns or _columns_of(name, rows)
        made = _made_of(raw.preprocessing.get("columns", ()))
        if described.columns:
            numbers = {
                column.name: rows[:, at] + column.center
                for at, column in enumerate(columns)
                if column.kind == "number"
            }
            if not raw.classes and target.ndim == 1:
                numbers[raw.target_name] = target
            fitted = raw.preprocessing.get("columns", ())
            dates = {column["name"] for column in fitted if column["type"] in DATES}
            said += _of_marks(numbers, dates)
        answers = _find_answers(rows.reshape(len(rows), -1), target, columns)
        for column in answers:
            hint = f": {written('drop', made.get(column, column))}" if described.columns else ""
            values = rows[:, [each.name for each in columns].index(column)] if hint else ()
            if (
                raw.groups is raw.times is raw.given is None
                and len(np.unique(values)) >= _FEWEST_GROUPS
                and column not in made
            ):
                hint += f"; if it tells which rows belong together, as a patient does: {written('group', column)}"
            said.append(
                f"{'column' if described.columns else 'array'} {column} looks like the answer, since it predicts "
                f"{raw.target_name} alone; unless it is known when the model is used, leave it out{hint}"
            )
        if described.columns and raw.groups is raw.times is raw.given is None:
            said += [
                f"rows with the same {column.name} mostly have the same {raw.target_name}: if they belong "
                f"together, keep them in one part: {written('group', column.name)}"
                for at, column in enumerate(columns)
                if column.name not in answers
                and names_groups(rows[:, at], target, is_number=column.kind == "number")
            ]
        if described.columns:
            several = len(parts["train"]) / len(rows)
            left = [at for at, of in enumerate(columns) if of.name not in {*answers, *made}]
            said += [
                f"{sentence}: unless it is known when the model is used, leave it out: "
                f"{written('drop', columns[at].name)}"
                for at in left
                for sentence in _of_outcome(rows[:, at], target, columns[at], raw, several)
            ]
        if not answers:
            said += find_leaks(parts, name, columns, raw.target_name)
    return said


def _of_outputs(parts: Mapping[str, Selection], raw: Raw) -> list[str]:
    """Say that numbers to predict are of different sizes, of which rmse shows the largest alone."""
    target = _sample(parts["train"], "target", _MOST_ROWS)
    if raw.classes or target.ndim == 1 or not are_numbers(target).all():
        return []
    spreads = target.std(axis=0, dtype=np.float64)[np.ptp(target, axis=0) > 0]
    if spreads.max(initial=0) < _APART * spreads.min(initial=np.inf):
        return []
    return [
        f"the numbers of {raw.target_name} deviate by {spreads.min():.3g} to {spreads.max():.3g}: rmse and mae, their "
        "mean, hardly show the smallest; compare models by metric=r2, or write all in a like unit"
    ]


def _of_outcome(
    values: Array, target: Array, column: Column, raw: Raw, several: float
) -> Iterator[str]:
    """Say why a column is probably known only after the outcome.

    Args:
        several: Training rows for each of those looked at.
    """
    if raw.classes:
        sample = f", of the {len(values):,} looked at" if several > 1 else ""
        for side, count, label in _marked(values, column, target, several):
            yield (
                f"{raw.target_name} is {raw.classes[label]!r} in all {count:,} training rows {side} a value "
                f"of {column.name}{sample}"
            )
    elif target.ndim == 1 and _divides(values, target):
        yield (
            f"column {column.name} divides {raw.target_name} into ranges that do not overlap, so it may "
            "be made of it, if they do not both rise with time"
        )


def _made_of(fitted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the column of the file by the columns of the input that are made of it besides."""
    return {
        f"{column['name']}_{of}": column["name"]
        for column in fitted
        for of, is_there in (("seconds", "clock"), ("missing", "indicator"))
        if column.get(is_there)
    }


def _of_marks(numbers: Mapping[str, Array], dates: Collection[str]) -> list[str]:
    marks = {name: _missing_mark(values, name in dates) for name, values in numbers.items()}
    return [
        f"column {name} is {_shown(mark[0], name in dates)} in {mark[1]:,} of {len(numbers[name]):,} training rows, "
        f"{'far from all' if mark[2] else 'far more often than any of'} its other "
        f"{'dates' if name in dates else 'numbers'}: if it means missing, leave these cells empty"
        for name, mark in marks.items()
        if mark
    ]


def _of_times(times: Array) -> list[str]:
    """Say which time of many items probably means that none is known."""
    is_date = times.dtype.kind == "M"
    if not is_date and times.dtype.kind not in "iuf":
        return []
    values = as_numbers(times, "time")
    if not (mark := _missing_mark(values, is_date)):
        return []
    at = "oldest" if mark[0] == values.min() else "newest"
    others = "far from all other times" if mark[2] else "far more often than any other time"
    time = _shown(mark[0], is_date)
    if is_date and mark[0] % 1:
        time = str(np.datetime64(round(mark[0] * 86_400), "s"))
    return [
        f"{mark[1]:,} of {len(times):,} items have the time {time}, {others}: "
        f"if it means that none is known, remove them; they count as the {at}"
    ]


def _of_later(raw: Raw) -> list[str]:
    """Say which column of a series is its target some rows later."""
    target, said = np.asarray(raw.items.target), list[str]()
    if raw.groups is not None or target.dtype.kind != "f" or target.ndim != 1:
        return said
    assert raw.times is not None
    order = np.argsort(as_numbers(raw.times, "time"), kind="stable")[-_MOST_RANKED:]
    for name, described in raw.descriptions.items():
        if len(order) < FEWEST or not described.columns:
            continue
        rows, later = np.asarray(raw.items.inputs[name][order]), target[order]
        for at, column in enumerate(described.columns):
            values = rows[:, at] + column.center
            for step in range(1, _MOST_LATER + 1):
                ahead, now = (
                    np.isclose(values[:-step], of) for of in (later[step:], later[:-step])
                )
                if column.kind == "number" and ahead.mean() >= _SAME and now.mean() < _SAME / 2:
                    said.append(
                        f"column {column.name} is the {raw.target_name} {plural(step, 'row')} later, which is not "
                        f"known yet when the model is used: leave it out: {written('drop', column.name)}"
                    )
                    break
    return said


def _shown(number: float, is_date: bool) -> str:
    return str(np.datetime64(round(number), "D")) if is_date else f"{number:g}"


def _of_sentences(parts: Mapping[str, Selection], raw: Raw) -> list[str]:
    """Say which words give a class away, and how many test sentences are hardly new."""
    name = next(name for name, of in raw.descriptions.items() if of.meaning == "tokens")
    training, new = (_sample(parts[part], name, _MOST_ROWS) for part in ("train", "test"))
    target, said = _sample(parts["train"], "target", _MOST_ROWS), list[str]()
    if raw.classes and (vocabulary := raw.preprocessing.get("vocabulary")):
        telling = _telling_words(training, target, vocabulary, raw.classes)
        said += [
            f"all sentences of class {label!r} have the word {word!r} and no others do: unless it is there "
            "when the model is used, take it out of the sentences"
            for word, label in telling[:_MOST_WORDS]
        ]
    changed = _changed_sentences(training, new)
    if changed >= max(1, _LEAST_CHANGED * len(new)):
        said.append(
            f"{changed:,} of {len(new):,} test sentences are training sentences but for a word or few: a "
            f"model may know them by heart; keep them together: {written('group', 'COLUMN')}"
        )
    return said


def _columns_of(name: str, items: Array) -> tuple[Column, ...]:
    """Return the numbers of each item of an array [n, …] as columns: x, or x[0], x[1] and so on."""
    count = items[:1].size
    names = [name] if items.ndim == 1 else [f"{name}[{at}]" for at in range(count)]
    return tuple(Column(name=each, kind="number") for each in names)


def _find_answers(rows: Array, target: Array, columns: Sequence[Column]) -> list[str]:
    """Return the names of columns that alone predict the target.

    Args:
        rows: Some of the training part, [n, columns].
        target: Class indices or floats, [n] or [n, k].
    """
    if len(rows) < FEWEST:
        return []
    some = rows.astype(np.float64)
    if not (are_numbers(some).all() and are_numbers(target).all()):
        return []  # refused in words, where they are written
    outputs = target.reshape(len(target), -1).T[:_MOST_OUTPUTS]
    return [
        column.name
        for column, values in zip(columns, some.T, strict=True)
        if any(_is_answer(column, values, labels) for labels in outputs)
    ]


def _is_answer(column: Column, values: NDArray[np.float64], labels: Array) -> bool:
    different = len(np.unique(values))
    is_repeated = 1 < different <= len(values) / _REPEATED
    if labels.dtype.kind == "f":
        return (is_repeated and _between(values, labels) >= _SURE) or (
            column.kind == "number" and different > 2 and _explained(values, labels) >= _SURE
        )
    if column.missing and _majority(_absent(values, column), labels) >= _SURE:
        return True
    if is_repeated and _majority(values, labels) >= _SURE:
        return True
    if column.kind != "number":
        return False
    tell = _area if len(np.unique(labels)) == 2 else _runs
    return tell(values, labels) >= _SURE


def _missing_mark(values: NDArray[np.float64], is_date: bool) -> tuple[float, int, bool] | None:
    """Return a number that probably means missing, how often, and whether it is far from all
    others: -999 or 9999; of dates as days, also 1970-01-01, or one that is far and more frequent
    than any."""
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= _FEWEST_OTHERS:
        return None
    for at, rest in ((0, slice(1, None)), (-1, slice(-1))):
        mark, count, others = different[at], counts[at], different[rest]
        far, span = np.abs(others - mark).min(), np.ptp(others)
        is_mark = set(f"{abs(mark):g}") == {"9"} or mark < 0 <= others[0] or far > 100 * span
        is_mark = bool(mark) and is_mark and far > span
        if is_date and count > 2 * counts[rest].max():
            is_mark = is_mark or far > span or mark in _NO_DATES
        if is_mark and count >= max(3, _LEAST_MARKED * len(values)):
            return float(mark), int(count), bool(far > span)
    return None


def told_class(values: Sequence[str], labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return which class a fact of items [n] alone predicts, ``its class`` for any, with the values
    that do; nothing if there is none."""
    different, sizes = sorted(set(values)), Counter(labels)
    if len(labels) >= FEWEST and 1 < len(different) <= len(labels) / _REPEATED:
        codes = np.unique(values, return_inverse=True)[1].astype(np.float64)
        if _majority(codes, np.array(labels)) >= _SURE:
            return "its class", different
    pairs = Counter(zip(values, labels, strict=True))
    classes = Counter(value for value, _ in pairs)
    for (value, label), count in pairs.items():
        alone = classes[value] == 1 and count == sizes[label]
        if alone and FEWEST <= count <= len(labels) - FEWEST:
            return f"class {label!r}", [value]
    return "", []


def tells_class(numbers: Sequence[float], labels: Sequence[str]) -> bool:
    """Return whether a number of items [n] alone predicts their class."""
    codes = np.unique(labels, return_inverse=True)[1]
    column = Column(name="", kind="number")
    return len(labels) >= FEWEST and _is_answer(column, np.array(numbers), codes)


def _absent(values: NDArray[np.float64], column: Column) -> NDArray[np.float64]:
    """Return 1 where a value is missing: the category of it, or the median, which is rare otherwise."""
    if column.kind == "category":
        return np.asarray(values == column.categories.index(MISSING), np.float64)
    different, counts = np.unique(values, return_counts=True)
    return np.asarray(values == different[counts.argmax()], np.float64)


def _marked(
    values: NDArray[np.float64], column: Column, labels: Array, several: float
) -> Iterator[tuple[str, int, int]]:
    """Yield ``with`` or ``without`` where one class alone has rows with a value, or without one,
    how many these are, and the class.

    Args:
        several: Training rows for each of those looked at.
    """
    if not column.missing:
        return
    absent = _absent(values, column) > 0
    spare = float(absent.sum()) - column.missing / several
    if spare > 1 + 0.1 * column.missing / several:
        return  # most of them are the median, and were there
    for side, chosen in (("with", ~absent), ("without", absent)):
        classes, counts = np.unique(labels[chosen], return_counts=True)
        count, others = counts.max(initial=0), counts.sum() - counts.max(initial=0)
        if count >= FEWEST and others <= (spare >= 1 and side == "without"):
            label = classes[counts.argmax()]
            if float((labels == label).mean()) ** count < _RARE:
                yield side, int(count), int(label)


def _explained(values: NDArray[np.float64], labels: Array) -> float:
    """Return the share of the variance that a column explains, as it is or by its ranks: a
    logarithm, another unit, a reciprocal."""
    if values.std() == 0 or labels.std() == 0:
        return 0.0
    ranks = [np.unique(side, return_inverse=True)[1] for side in (values, labels)]
    return float(max(np.corrcoef(*pair)[0, 1] ** 2 for pair in ((values, labels), ranks)))


def _between(values: NDArray[np.float64], labels: Array) -> float:
    """Return the share of the variance that lies between the means of labels of equal values."""
    if labels.std() == 0:
        return 0.0
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.bincount(codes, labels) / counts
    return float(1 - np.square(labels - means[codes]).mean() / labels.var())


def _majority(values: NDArray[np.float64], labels: Array) -> float:
    """Return the share of items with the most frequent class of their value; 0 where one class is
    nearly all."""
    _, codes = np.unique(values, return_inverse=True)
    classes = np.unique(labels, return_inverse=True)[1]
    counts = np.zeros((codes.max() + 1, classes.max() + 1), np.int64)
    np.add.at(counts, (codes, classes), 1)
    if counts.sum(0).max() > 0.99 * len(labels):
        return 0.0
    return float(counts.max(1).sum() / len(labels))


def _runs(values: NDArray[np.float64], labels: Array) -> float:
    """Return the share of items, in the order of a column, with the class of the one before, but
    where each class begins; 0 where one class is nearly all, or most items have one of their
    own."""
    sizes = np.unique(labels, return_counts=True)[1]
    if len(sizes) < 2 or sizes.max() > 0.99 * len(labels) or 5 * len(sizes) > len(labels):
        return 0.0
    mixed = np.random.default_rng(0).permutation(len(values))  # equal values have no order
    ordered = labels[mixed][np.argsort(values[mixed], kind="stable")]
    changes = int((ordered[1:] != ordered[:-1]).sum()) - (len(sizes) - 1)
    return 1 - changes / len(labels)


def _divides(values: Array, target: Array) -> bool:
    """Return whether a column [n] has few values, and those of the target with each of them lie
    apart from all others."""
    is_repeated = 1 < len(np.unique(values)) <= len(values) / _REPEATED
    return is_repeated and len(values) >= _FEWEST_DIVIDED and _runs(target, values) >= _SURE


def _area(values: NDArray[np.float64], labels: Array) -> float:
    """Return the area under the ROC curve of a column, whichever way it points; equal values count
    half."""
    positive = labels == labels.max()
    ranks = midranks(values)
    ups, downs = int(positive.sum()), int((~positive).sum())
    if min(ups, downs) < 5:
        return 0.0
    area = (ranks[positive].sum() - ups * (ups + 1) / 2) / (ups * downs)
    return float(max(area, 1 - area))


def _near_duplicates(
    parts: Mapping[str, Selection],
    descriptions: Mapping[str, InputDescription],
    made: Mapping[str, str] | None = None,
) -> list[str]:
    """Say which test items are nearly training items, in sentences; equal ones are found elsewhere.

    Rows are compared with numbers rounded to a hundredth of their deviation, whole and without
    columns that are nearly unique; what rows share by chance does not count. Pictures are compared
    as podium.data.near does, mirrored and turned ones too. Of larger parts, _MOST_COMPARED rows and
    _MOST_PICTURES pictures are.

    Args:
        made: As _made_of returns it.
    """
    said = []
    train, test = parts["train"], parts["test"]
    for name, described in descriptions.items():
        if described.meaning == "table":
            sides = [
                _sample(part, name, min(_MOST_COMPARED, _MOST_VALUES // len(described.columns) + 1))
                for part in (train, test)
            ]
            train_rows, new = (one_case(side, letter_cases(described)) for side in sides)
            said += _near_rows(train_rows, new, described.columns, made or {})
        elif described.meaning == "image":
            count = _near_pictures(train, test, name, described)
            if count:
                together = f"{written('group', 'folder')}, or a pattern"
                said.append(
                    f"{plural(count, 'test picture')} {are(count)} like training pictures, as they are, "
                    "mirrored or turned: a model may know them by heart; keep them together: "
                    f"{together}"
                )
    return said


def _unlike_columns(parts: Mapping[str, Selection], raw: Raw) -> list[str]:
    """Say which columns of a given test part, and whether its target, are unlike those of
    validation (numbers: or of training, where that has few items), in a sentence: of another
    notation, unit or spelling, or without values."""
    if not all(map(len, parts.values())):
        return []  # refused in words, where they are written
    descriptions = dict(raw.descriptions)
    if raw.items.target.ndim == 1:
        kind = "category" if raw.classes else "number"
        column = Column(name=raw.target_name, kind=kind, categories=raw.classes)
        descriptions["target"] = InputDescription(meaning="table", columns=(column,))
    sides = [
        {name: _measurable(parts[part], name) for name in descriptions}
        for part in ("train", "validation", "test")
    ]
    profile = Profile.of(
        (name, described.meaning, described.columns, [sides[0][name]])
        for name, described in descriptions.items()
    )
    training, validation, counts = (profile.count(side, np.zeros(1)) for side in sides)
    said = []
    for key, bins in profile.bins().items():
        few = validation[key].sum() < _LEAST_OF_BIN * len(bins.labels)
        wanted = training if few and bins.ordered else validation
        sizes = [int(of[key].sum()) for of in (counts, wanted)]
        if min(sizes) < _LEAST_OF_BIN * len(bins.labels):
            continue
        shares = [of[key] / size for of, size in zip((counts, wanted), sizes, strict=True)]
        more = shares[0] - shares[1]
        if np.abs(more).sum() / 2 >= _UNLIKE:
            at = int(more.argmax())
            test, learned = (f"{share[at]:.0%}" for share in shares)
            said.append(f"{bins.name} is {bins.labels[at]} in {test}, not {learned}, of its items")
    if not said:
        return []
    others = f"; and {len(said) - _EXAMPLES} more" if len(said) > _EXAMPLES else ""
    return [
        f"the test part is unlike the others, as {'; '.join(said[:_EXAMPLES])}{others}: are both written "
        "alike, in the same units?"
    ]


def _measurable(part: Selection, name: str) -> Array:
    """Return what is measured of an input, or of the target, which is a table of one column."""
    values = _sample(part, name, _MOST_MEASURED)
    return values[:, np.newaxis] if name == "target" else values


def _near_sentences(
    raw_keys: Hashes, exact: Mapping[str, Hashes], index: Mapping[str, NDArray[np.int64]]
) -> list[str]:
    """Say how many sentences differ from others in punctuation, case or spaces only, in sentences.

    Args:
        raw_keys: Of each sentence, by its bare words.
        exact: Hashes of the inputs of each part.
        index: Which sentences are in each part.
    """
    learned = [part for part in index if part != "test"]
    keys, hashes = (
        np.concatenate([of[part] for part in learned])
        for of in ({part: raw_keys[at] for part, at in index.items()}, exact)
    )
    shared = np.isin(raw_keys[index["test"]], keys) & ~np.isin(exact["test"], hashes)
    if count := int(shared.sum()):
        sentences = f"{plural(count, 'test sentence')} {are(count)} among the training sentences"
        return [f"{sentences} but for punctuation, and not counted in the test"]
    alike = 0
    for part, at in index.items():
        different = np.unique(np.stack([raw_keys[at], exact[part]], axis=1), axis=0)[:, 0]
        alike += len(different) - len(np.unique(different))
    sentences = f"{plural(alike, 'sentence')} {are(alike)} among the others"
    return [f"{sentences} but for punctuation: such share a part, and count once"] if alike else []


def _of_two_classes(keys: Hashes, target: Array) -> list[str]:
    """Say how many sentences have the words of another with another class, in a sentence; a few are
    usual.

    Args:
        keys: Of each sentence, by its bare words.
    """
    lowest, highest = (np.full(len(keys), at) for at in (np.iinfo(np.int64).max, -1))
    of = np.unique(keys, return_inverse=True)[1]
    np.minimum.at(lowest, of, target)
    np.maximum.at(highest, of, target)
    both = np.flatnonzero(lowest[of] < highest[of])
    if len(both) < max(2, _LEAST_TWICE * len(keys)):
        return []
    twin = np.flatnonzero((of == of[both[0]]) & (target != target[both[0]]))[0]
    return [
        f"{len(both):,} of {len(keys):,} sentences are there with more than one class, for example items "
        f"{both[0] + 1} and {twin + 1}: which one is right? no model can tell"
    ]


def _telling_words(
    tokens: Array, target: Array, vocabulary: Sequence[str], classes: Sequence[str]
) -> list[tuple[str, str]]:
    """Return words that exactly the sentences of a class have, each with that class.

    Args:
        tokens: Indices of words, [n, length]; 0 is padding.
        target: Class indices, [n].
    """
    counts = np.zeros((len(vocabulary), len(classes)), np.int64)
    for row, label in zip(tokens, target.tolist(), strict=True):
        counts[np.unique(row), label] += 1
    sizes = np.bincount(target, minlength=len(classes))
    enough = (sizes >= FEWEST) & (len(target) - sizes >= FEWEST)
    alone = (counts == sizes) & (counts.sum(1, keepdims=True) == sizes) & enough
    alone[:2] = False  # padding, and words that the vocabulary lacks
    return [(vocabulary[word], classes[label]) for word, label in np.argwhere(alone).tolist()]


def _halves(tokens: Array) -> Iterator[tuple[list[int], list[tuple[str, bytes]]]]:
    """Yield the words of each sentence, and its first and its last half."""
    for row in tokens:
        words = row[row > 0]
        half = len(words) // 2
        parts = [("first", words[:half].tobytes()), ("last", words[len(words) - half :].tobytes())]
        yield words.tolist(), parts


def _changed_sentences(training: Array, new: Array) -> int:
    """Count new sentences [m, length] that a training one [n, length] equals but for a word or few.

    Those that are found share a half; one in _CHANGED words differs at most.
    """
    held: dict[tuple[str, bytes], list[int]] = {}
    for words, parts in _halves(training):
        for part in parts:
            held.setdefault(part, words)
    count = 0
    for words, parts in _halves(new):
        most = len(words) // _CHANGED
        different = (
            sum((Counter(words) - Counter(held[part])).values()) for part in parts if part in held
        )
        count += any(0 < other <= most for other in different)
    return count


def _sample(part: Selection, name: str, most: int) -> Array:
    """Return an input, or ``target``, of some items, evenly spread over a part."""
    return np.asarray(part.array(name)[_spread(part, most)])


def _spread(part: Selection, most: int) -> NDArray[np.int64]:
    return np.asarray(part.positions(np.arange(0, len(part), -(-len(part) // most))))


def _near_rows(
    train: Array, test: Array, columns: Sequence[Column], made: Mapping[str, str]
) -> list[str]:
    """Say how many test rows are training rows but for rounding, for one column, or for those that
    are nearly unique.

    Args:
        train: Rows [n, columns].
        test: Rows [m, columns].
    """
    hashed = [
        _hash_column(train[:, at], test[:, at], column, at) for at, column in enumerate(columns)
    ]
    train_hashes, new = (np.stack(side) for side in zip(*hashed, strict=True))
    unique = [
        at for at in range(len(columns)) if len(np.unique(train[:, at])) >= UNIQUE * len(train)
    ]
    few = 1 < len(unique) <= max(2, len(columns) // 5)
    candidates: list[list[int]] = [
        [],
        *([at] for at in unique[:_MOST_LEFT_OUT]),
        *([unique] if few else []),
    ]
    counts = [
        _shared(train_hashes.sum(0) - train_hashes[left].sum(0), new.sum(0) - new[left].sum(0))
        for left in candidates
    ]
    counts[0] *= 2  # each column that is left out hides what rounding tears apart in it
    if not any(counts):
        return []
    copies = _leaders(train, columns)
    for at in sorted(np.flatnonzero(counts), key=lambda at: -counts[at]):
        left = candidates[at]
        count = counts[at] if left else counts[at] // 2
        leaders = copies if left else _leaders(train, columns, copies)
        known, asked, led = (np.delete(of, left, 0) for of in (train_hashes, new, leaders))
        rest = np.delete(test, left, 1)
        if _is_no_chance(count, known, asked, led) and _is_not_dense(known, asked, led, rest):
            names = ", ".join(columns[column].name for column in left)
            dropped = written("drop", made.get(names, names))
            hint = f", or leave it out: {dropped}" if len(left) == 1 else ""
            together = written("group", "COLUMN")
            rows = f"{count:,} of the {len(test):,} test rows {are(count)}"
            known_by_heart = "a model may know them by heart; keep them together"
            known_rows = f"among the training rows but for {names or 'rounding or case'}"
            return [f"{rows} {known_rows}: {known_by_heart}: {together}{hint}"]
    return []


def _leaders(
    train: Array, columns: Sequence[Column], copies: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return for each column the position of the one that it is shuffled with: of numbers the first
    that ranks the rows as it does, as centimeters and inches do.

    Args:
        train: Rows [n, columns].
        copies: What it returned; given that, a column of few values, such as the name of a shop,
            also leads those that it determines, such as where the shop is.
    """
    rows = train[:: -(-len(train) // _MOST_RANKED)].astype(np.float64)
    sizes = [len(np.unique(values)) for values in rows.T]
    if copies is None:
        leaders = np.arange(len(columns))
        numbers = [at for at, of in enumerate(columns) if of.kind == "number" and sizes[at] > 1]
        if len(numbers := numbers[:_WIDEST]) > 1:
            ranks = np.column_stack([midranks(rows[:, at]) for at in numbers])
            alike = np.abs(np.corrcoef(ranks, rowvar=False)) >= _SURE
            leaders[numbers] = np.array(numbers)[alike.argmax(axis=0)]
        return leaders
    leaders, alone = copies.copy(), np.arange(len(columns))
    for at in sorted(alone.tolist(), key=lambda at: -sizes[at])[:_MOST_LEFT_OUT]:
        if 1 < sizes[at] <= len(rows) / _LEAST_OF_LEADER:
            _, first, codes = np.unique(rows[:, at], return_index=True, return_inverse=True)
            told = (rows == rows[first][codes]).all(axis=0) & (leaders == alone)
            leaders[np.isin(leaders, alone[told])] = leaders[at]
    return leaders


def _is_no_chance(count: int, training: Hashes, new: Hashes, leaders: NDArray[np.int64]) -> bool:
    """Return whether more rows are shared than when the columns [columns, m] of the new ones are
    shuffled, those with the same leader together."""
    from scipy.special import bdtrc

    draw, rows = np.random.default_rng(0), training.sum(0)
    shuffles = max(_SHUFFLES, min(_SHUFFLED // new.shape[1], 1 + round(1 / _MOST_BY_CHANCE)))
    meetings, together = 0, [new[leaders == leader].sum(0) for leader in np.unique(leaders)]
    for _ in range(shuffles):
        shuffled = np.zeros(new.shape[1], np.uint64)
        for columns in together:
            shuffled += draw.permutation(columns)
        meetings += _shared(rows, shuffled)
    # of all meetings, each as likely in any shuffle as in the data
    by_chance = bdtrc(count - 1, count + meetings, 1 / (shuffles + 1))
    return count > meetings / shuffles and bool(by_chance <= _MOST_BY_CHANCE)


def _is_not_dense(training: Hashes, new: Hashes, leaders: NDArray[np.int64], test: Array) -> bool:
    """Return whether twice as many rows are shared as of such that mix a row with the one nearest
    to it: where columns go together, or rows lie in clusters, any row is near another."""
    some = np.arange(0, len(test), -(-len(test) // _MIXED))
    points = project(np.column_stack([midranks(values) for values in test[some].T]))
    squares = np.square(points).sum(1)
    distances = squares[:, np.newaxis] + squares - 2 * points @ points.T
    own = new[:, some]
    rows, known, draw = own.sum(0), training.sum(0), np.random.default_rng(0)
    distances[rows[:, np.newaxis] == rows] = np.inf
    other = own[:, distances.argmin(1)]
    together, meetings, mixed = np.unique(leaders, return_inverse=True)[1], 0, 0
    for _ in range(_SHUFFLES):
        sides = draw.random((together.max() + 1, len(some))) < 0.5
        mixture = np.where(sides[together], own, other).sum(0)
        mixture = mixture[(mixture != rows) & (mixture != other.sum(0))]
        meetings, mixed = meetings + _shared(known, mixture), mixed + len(mixture)
    return _shared(known, rows) * mixed >= 2 * meetings * len(rows)


def _hash_column(train: Array, test: Array, column: Column, at: int) -> tuple[Hashes, Hashes]:
    """Return hashes [n] and [m] of a column's values, of numbers rounded to a hundredth of their
    deviation; the hash of a row is their sum."""
    sides = [side.astype(np.float64) for side in (train, test)]
    scale = float(sides[0].std()) / 100 if column.kind == "number" else 0.0
    if scale:
        sides = [np.round(side / scale) for side in sides]
    train_hashes, new = (mix((side + 0.0).view(np.uint64), at) for side in sides)
    return train_hashes, new


def _shared(training: Hashes, new: Hashes) -> int:
    return int(np.isin(new, training).sum())


def _near_pictures(
    train: Selection, test: Selection, name: str, described: InputDescription
) -> int:
    """Count test pictures that nearly equal a training picture as they are, mirrored or turned."""
    array = train.array(name)
    part = Split(inputs={name: array}, target=train.array("target"))
    items = NearItems.of(
        [Selection(part=part, index=_spread(train, _MOST_PICTURES))], {name: described}
    )
    if items is None:
        return 0
    count = 0
    for block in blocks(test.array(name), _spread(test, _MOST_PICTURES)):
        found = np.zeros(len(block), bool)
        for pictures in (block, np.swapaxes(block, 1, 2)):
            for turns in range(4):
                found |= items.holds({name: np.rot90(pictures, turns, axes=(1, 2))})
        steps = np.abs(np.diff(picture_grid(block), axis=2)) > 1
        count += int((found & (steps.sum((1, 2)) >= _LEAST_STEPS)).sum())
    return count
