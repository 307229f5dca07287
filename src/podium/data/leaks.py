"""Warnings about columns that only together, or only over all rows, give the target away: sums,
means of the target, rows of one series or group."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import Selection, are_numbers, midranks
from podium.data.near import mix, picture_grid, project
from podium.data.option_text import written
from podium.data.schema import Array, Column

MOST_VALUES = 4_000_000
"""Values of a table that is looked at; a larger one is not."""

FEWEST = 20
"""Fewer items tell nothing about a column."""

_ROUNDED = 1e-3
"""Part of a column's range that its values are off by where they were rounded."""

_EXACT = 1e-5
"""Share of the variance that a formula leaves unexplained where its result was rounded."""

_MOST_TERMS = 8
"""Columns of a formula; more fit anything, or are the noise of it."""

_WIDEST = 64
"""Columns that are looked at for windows, the first ones."""

_KNOWN, _NEW = 50_000, 5_000
"""Rows that are compared for windows, evenly spread."""

_LEAST_BLOCK = 4
"""Values that two windows share at least."""

_LEAST_WINDOWS = 0.05
"""Share of the test rows that overlap training rows, from which they are windows of a series."""

_BESIDE, _AROUND = 5, 0.05
"""Places of a file that are beside a row, and the share of the file in which a series may go on."""

_FIRST, _ASKED = 50_000, 500
"""Rows of a file that are looked at for what stands beside them, and test rows of them."""

_LEAST_BESIDE = 0.3
"""Share of the test rows, without those by chance, that are nearest to a row beside them."""

_LEAST_SKILL, _LEAST_GAIN, _DEVIATIONS = 0.4, 0.25, 3.0
"""Agreement of targets with those of the nearest rows, the part of it that is lost without the rows
around, and in how many standard deviations that shows."""

_Floats = NDArray[np.float64]


def find_leaks(
    parts: Mapping[str, Selection], name: str, columns: Sequence[Column], target: str
) -> list[str]:
    """Say which columns give a target away, in sentences.

    Args:
        name: The input, [n, columns] or [n, …], of which the columns are the numbers.
        target: Name of the target.
    """
    if sum(map(len, parts.values())) * len(columns) > MOST_VALUES or not all(
        map(len, parts.values())
    ):
        return []
    rows = {part: _numbers(of, name, columns) for part, of in parts.items()}
    targets = {part: np.asarray(of.array("target")[_all(of)]) for part, of in parts.items()}
    if not all(are_numbers(array).all() for array in (*rows.values(), *targets.values())):
        return []  # refused in words, where they are written
    numbers = [column for column in columns if column.kind == "number"]
    said = []
    if targets["train"].ndim == 1 and len(rows["train"]) >= FEWEST:
        everything = np.concatenate(list(rows.values()))
        said += [
            f"column {numbers[at].name} is the mean of {target} over rows of all parts, the test part's "
            f"too: what is computed from {target} comes from training rows alone; "
            f"leave it out: {written('drop', numbers[at].name)}"
            for at in _means(everything, np.concatenate(list(targets.values())))
        ]
        if not said and targets["train"].dtype.kind == "f":
            words, terms = _formula(rows["train"], targets["train"].astype(np.float64))
            if terms:
                named = ", ".join(numbers[at].name for at in terms)
                said.append(
                    f"{target} is a {words} of {named}: unless all of them are known when the model is used, "
                    "leave out those that are not"
                )
    training = np.concatenate([rows["train"], rows["validation"]])
    new = rows["test"][:: -(-len(rows["test"]) // _NEW)]
    overlapping = _windows(training[:: -(-len(training) // _KNOWN)], new)
    if overlapping:
        said.append(
            f"{overlapping:,} of {len(new):,} test rows overlap training rows, as windows of one "
            "series do: a model may know them by heart; divide them by time, with a gap as long as a window: "
            f"{written('time', 'COLUMN')}"
        )
    elif beside := _beside(parts, rows, targets):
        said.append(
            f"{beside[0]:,} of {beside[1]:,} test rows are nearest to a training row at most {_BESIDE} places from "
            f"them in the file, which tells their {target} as no row from elsewhere does: rows of one series or one "
            f"patient are in both parts, so a model may know them by heart; divide them by time or by group: "
            f"{written('time', 'COLUMN')} or {written('group', 'COLUMN')}"
        )
    return said


def find_frames(parts: Mapping[str, Selection], name: str) -> list[str]:
    """Say how many test pictures are nearest to training pictures beside them, in sentences.

    Args:
        name: The input, pictures.
    """
    train = parts["train"].part
    first = {
        part: Selection(part=train, index=_all(of)[_all(of) < _FIRST])
        for part, of in parts.items()
        if of.part is train
    }
    if "test" not in first or not all(map(len, first.values())):
        return []
    spots = {
        part: np.concatenate(
            [picture_grid(block).reshape(len(block), -1) for block in of.blocks(name)]
        )
        for part, of in first.items()
    }
    targets = {part: np.asarray(of.array("target")[_all(of)]) for part, of in first.items()}
    if not (beside := _beside(first, spots, targets)):
        return []
    return [
        f"{beside[0]:,} of {beside[1]:,} test pictures are nearest to a training picture whose file is at most "
        f"{_BESIDE} places from theirs by name, which tells what they show as no other does: frames of one video or "
        "pictures of one patient are in both parts, so a model may know them by heart; keep them together: "
        f"{written('group', 'folder')}, or a pattern"
    ]


def _all(part: Selection) -> NDArray[np.int64]:
    return np.arange(len(part)) if part.index is None else part.index


def _numbers(part: Selection, name: str, columns: Sequence[Column]) -> _Floats:
    rows = np.asarray(part.array(name)[_all(part)]).reshape(len(part), -1)
    chosen = [at for at, column in enumerate(columns) if column.kind == "number"]
    centers = np.array([columns[at].center for at in chosen])
    return rows[:, chosen].astype(np.float64) + centers


def _means(rows: _Floats, target: Array) -> list[int]:
    """Return the columns whose values are the mean of the target of the rows that have them, or the
    share of a class."""
    if target.dtype.kind == "f":
        wanted = target.astype(np.float64)[:, None]
    else:
        wanted = (target[:, None] == np.unique(target)).astype(np.float64)
    found = []
    for at, values in enumerate(rows.T):
        rounded = _ROUNDED * float(np.ptp(values))
        alike = np.abs(wanted.mean(0) - values.mean()) <= rounded  # as the means of means are
        if not alike.any():
            continue
        different, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        if not 2 < len(different) < len(values) / 1.2:
            continue
        for of in wanted[:, alike].T:
            means = np.bincount(codes, of) / counts
            if counts[np.abs(means - different) > rounded].sum() <= len(values) / 1000:
                found.append(at)
                break
    return found


def _formula(rows: _Floats, target: _Floats) -> tuple[str, list[int]]:
    """Return ``sum`` or ``product`` and the columns of which a target is one; nothing else."""
    varied = [at for at in range(rows.shape[1]) if np.ptp(rows[:, at]) > 0]
    terms = _weights(rows[:, varied], target)
    if terms:
        return "sum or difference", [varied[at] for at in terms]
    above = [at for at in varied if rows[:, at].min() > 0]
    if above and target.min() > 0:
        terms = _weights(np.log(rows[:, above]), np.log(target))
    return "product or ratio", [above[at] for at in terms]


def _weights(rows: _Floats, target: _Floats) -> list[int]:
    """Return the columns of a weighted sum that is the target; none where there is no such sum."""
    if target.std() == 0 or len(rows) < 3 * (rows.shape[1] + 1):
        return []
    scaled = (rows - rows.mean(0)) / rows.std(0)
    wanted = (target - target.mean()) / target.std()
    weights = np.linalg.lstsq(scaled, wanted, rcond=None)[0]
    left = float(((wanted - scaled @ weights) ** 2).mean())
    terms = np.flatnonzero(np.abs(weights) > 10 * np.sqrt(_EXACT)).tolist()
    return terms if left <= _EXACT and 2 <= len(terms) <= _MOST_TERMS else []


def _windows(training: _Floats, new: _Floats) -> int:
    """Return how many new rows overlap training rows, as windows of a series do; 0 where so many do
    by chance, as shares of one digit: when each column, or each row, is shuffled."""
    count, least = _overlapping(training, new), max(1, _LEAST_WINDOWS * len(new))
    if count < least:
        return 0
    draw = np.random.default_rng(0)
    shuffled = (draw.permuted(new, axis=axis) for axis in (0, 0, 1, 1))
    return count if count - max(_overlapping(training, of) for of in shuffled) >= least else 0


def _overlapping(training: _Floats, new: _Floats) -> int:
    """Return how many new rows hold a block of values that a training row holds at another place."""
    width = min(training.shape[1], _WIDEST)
    size = max(_LEAST_BLOCK, width // 2)
    places = range(width - size + 1)
    telling = [_tells(new[:, at : at + size]) for at in places]
    if not any(map(np.any, telling)):
        return 0
    held, asked = (_blocks(rows[:, :width], size) for rows in (training, new))
    each = [np.unique(blocks) for blocks in held]
    blocks, times = np.unique(np.concatenate(each), return_counts=True)
    found = np.zeros(len(new), bool)
    for place, is_telling, wanted in zip(places, telling, asked, strict=True):
        at = np.searchsorted(blocks, wanted).clip(max=len(blocks) - 1)
        # Windows are off by less than a block; two things in either order, by one or more.
        apart = [each[of] for of in places if of == place or abs(of - place) >= size]
        elsewhere = times[at] > sum(np.isin(wanted, blocks_of) for blocks_of in apart)
        found |= is_telling & (blocks[at] == wanted) & elsewhere
    return int(found.sum())


def _beside(
    parts: Mapping[str, Selection], rows: Mapping[str, _Floats], targets: Mapping[str, Array]
) -> tuple[int, int] | None:
    """Return how many test rows are nearest to a training row beside them in the file, and of how
    many; None where this is chance, or the nearest rows from elsewhere tell the target as well.

    Columns are compared by their ranks, those that the file is sorted by not at all.
    """
    own = [part for part in parts if parts[part].part is parts["train"].part]
    if "test" not in own:
        return None
    is_test = np.concatenate([np.full(len(parts[part]), part == "test") for part in own])
    places = np.concatenate([_all(parts[part]) for part in own])
    order = np.argsort(places)[:_FIRST]
    numbers, target = (
        np.concatenate([side[part] for part in own])[order] for side in (rows, targets)
    )
    target = target.reshape(len(target), -1)[:, 0]  # of several outputs the first
    steps = np.diff(numbers, axis=0)
    mixed = (steps > 0).any(0) & (steps < 0).any(0)
    asked, training = (np.flatnonzero(side[order]) for side in (is_test, ~is_test))
    if mixed.sum() < 2 or min(len(asked), len(training)) < FEWEST:
        return None
    # A column at a time: ranks of all at once take ten times the memory of the numbers.
    ranks = np.column_stack([midranks(column) for column in numbers[:, mixed].T])
    points = project(ranks / len(numbers))
    labels = midranks(target) / len(target) if target.dtype.kind == "f" else target
    asked = asked[:: -(-len(asked) // _ASKED)]
    count = _known_by_place(points, labels, places[order], asked, training)
    return (count, len(asked)) if count else None


def _known_by_place(
    points: _Floats, labels: Array, places: Array, asked: Array, training: Array
) -> int:
    """Count rows asked for whose nearest training row is beside them; 0 where this does not matter.

    Args:
        points: [n, dimensions].
        labels: Classes, or ranks of numbers, [n].
        places: Of the rows in the file, [n].
        asked: Positions of some rows.
        training: Positions of the others.
    """
    others, around = points[training], _AROUND * len(places)
    squares = np.square(others).sum(1)
    found = np.empty((len(asked), 5))
    for at, row in enumerate(asked):
        distances = squares - 2 * others @ points[row]
        apart = np.abs(places[training] - places[row])
        nearest = distances.argmin()
        elsewhere = np.where(apart > around, distances, np.inf).argmin()
        off = np.abs(labels[training] - labels[row])
        off = off if labels.dtype.kind == "f" else np.sign(off)
        by_chance = (apart[off <= off[nearest]] <= _BESIDE).mean()
        found[at] = apart[nearest] <= _BESIDE, by_chance, off[nearest], off[elsewhere], off.mean()
    share, chance, near, far, any_row = found.mean(0)
    lost = found[:, 3] - found[:, 2]
    skill = 1 - near / any_row if any_row else 0.0
    matters = (
        share - chance > _LEAST_BESIDE * (1 - chance)
        and skill >= _LEAST_SKILL
        and far - near >= _LEAST_GAIN * skill * any_row
        and lost.mean() >= _DEVIATIONS * lost.std() / np.sqrt(len(lost))
    )
    return int(found[:, 0].sum()) if matters else 0


def _blocks(rows: _Floats, size: int) -> list[NDArray[np.uint64]]:
    """Return hashes [n] of so many values of each row, from each place on."""
    codes = mix((rows + 0.0).view(np.uint64))
    odd = mix(np.arange(size, dtype=np.uint64), 1) | np.uint64(1)
    return [codes[:, at : at + size] @ odd for at in range(rows.shape[1] - size + 1)]


def _tells(values: _Floats) -> NDArray[np.bool_]:
    """Return whether the values of each row [n, size] are hardly those of another by chance."""
    fractions = (values != np.rint(values)).sum(1) >= _LEAST_BLOCK
    different = (np.diff(np.sort(values, axis=1), axis=1) > 0).sum(1) >= _LEAST_BLOCK - 1
    return np.asarray(fractions & different)
