"""What looks like a mistake in data that were prepared: a column that is the answer, items that are nearly the same."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import Selection
from podium.data.hashes import Hashes, mix
from podium.data.schema import Array, Column, InputDescription

MOST_ROWS = 20_000
"""Of the training part that are looked at for a column that is the answer."""

SURE = 0.999
"""Area under the ROC curve, share of right answers, or share of the variance, of one column alone."""

UNIQUE = 0.9
"""Share of different values from which a column is nearly unique."""

MOST_COMPARED = 50_000
"""Items of a part that are compared with those of another."""

BITS = 2
"""Of the 64 bits by which two perceptual hashes of one picture may differ, as after saving it again."""

LEAST_SIDE = 32
"""Pixels; smaller pictures have too little to tell them apart by."""


def find_answers(rows: Array, target: Array, columns: Sequence[Column]) -> list[str]:
    """Return the names of columns that alone predict the target.

    Args:
        rows: Some of the training part, [n, columns].
        target: Class indices or floats, [n] or [n, k].
        columns: What each column is.
    """
    if target.ndim > 1 or len(rows) < 20:
        return []
    some, labels = rows.astype(np.float64), target
    found = []
    for at, column in enumerate(columns):
        values = some[:, at]
        different = len(np.unique(values))
        if labels.dtype.kind == "f":
            sure = column.kind == "number" and different > 2 and _explained(values, labels) >= SURE
        elif different * 5 <= len(values):
            sure = different > 1 and _majority(values, labels) >= SURE
        else:
            sure = column.kind == "number" and len(np.unique(labels)) == 2 and _area(values, labels) >= SURE
        if sure:
            found.append(column.name)
    return found


def _explained(values: NDArray[np.float64], labels: Array) -> float:
    if values.std() == 0 or labels.std() == 0:
        return 0.0
    return float(np.corrcoef(values, labels)[0, 1] ** 2)


def _majority(values: NDArray[np.float64], labels: Array) -> float:
    """Return the share of items with the most frequent class of their value; 0 where one class is nearly all."""
    _, codes = np.unique(values, return_inverse=True)
    classes = np.unique(labels, return_inverse=True)[1]
    counts = np.zeros((codes.max() + 1, classes.max() + 1), np.int64)
    np.add.at(counts, (codes, classes), 1)
    if counts.sum(0).max() > 0.99 * len(labels):
        return 0.0
    return float(counts.max(1).sum() / len(labels))


def _area(values: NDArray[np.float64], labels: Array) -> float:
    """Return the area under the ROC curve of a column, whichever way it points; equal values count half."""
    positive = labels == labels.max()
    _, codes, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[codes]
    ups, downs = int(positive.sum()), int((~positive).sum())
    if min(ups, downs) < 5:
        return 0.0
    area = (ranks[positive].sum() - ups * (ups + 1) / 2) / (ups * downs)
    return float(max(area, 1 - area))


def near_duplicates(parts: Mapping[str, Selection], descriptions: Mapping[str, InputDescription]) -> list[str]:
    """Say which test items are nearly training items, in sentences; equal ones are found elsewhere.

    Rows are compared with numbers rounded to a hundredth of their deviation, and without columns that are nearly
    unique; pictures by a perceptual hash, mirrored ones too. Of larger parts, MOST_COMPARED items are.
    """
    said = []
    for name, described in descriptions.items():
        train, test = parts["train"], parts["test"]
        if described.meaning == "table":
            sides = [sample(part, name, MOST_COMPARED).astype(np.float64) for part in (train, test)]
            said += _near_rows(sides[0], sides[1], described.columns)
        elif described.meaning == "image" and min(train.array(name).shape[1:3]) >= LEAST_SIDE:
            count = _near_pictures(_picture_hashes(train, name), _picture_hashes(test, name))
            if count:
                said.append(f"{count:,} test pictures look like training pictures, mirrored ones included: a model may "
                            "know them by heart; keep them together: group=folder or group=REGEX")  # fmt: skip
    return said


def sample(part: Selection, name: str, most: int) -> Array:
    """Return an input, or ``target``, of some items, evenly spread over a part."""
    chosen = np.arange(0, len(part), -(-len(part) // most))
    return np.asarray(part.array(name)[chosen if part.index is None else part.index[chosen]])


def _near_rows(train: NDArray[np.float64], test: NDArray[np.float64], columns: Sequence[Column]) -> list[str]:
    whole = np.concatenate([train, test])
    unique = np.array([len(np.unique(whole[:, at])) >= UNIQUE * len(whole) for at in range(whole.shape[1])])
    numbers = np.array([column.kind == "number" for column in columns])
    said = []
    scale = np.where(numbers, np.maximum(whole.std(0), 1e-300) / 100, 1)
    if numbers.sum() >= 3 and (count := _shared(np.round(whole / scale), len(train))):
        said.append(f"{count:,} of the {len(test):,} test rows are training rows but for rounding")
    kept = whole[:, ~unique]
    if 0 < unique.sum() <= max(1, len(columns) // 5) and kept.shape[1] >= 3 and (count := _shared(kept, len(train))):
        names = ", ".join(column.name for column, odd in zip(columns, unique, strict=True) if odd)
        said.append(f"{count:,} of the {len(test):,} test rows are training rows but for {names}")
    return [f"{words}: a model may know them by heart; keep them together by a group, or leave the column out "
            "(drop=[NAME])" for words in said]  # fmt: skip


def _shared(rows: NDArray[np.float64], train: int) -> int:
    """Return how many of the rows behind the training ones are among these."""
    total: Hashes = np.zeros(len(rows), np.uint64)
    for at in range(rows.shape[1]):
        total = mix(total + mix((rows[:, at] + 0.0).view(np.uint64), at))
    return int(np.isin(total[train:], total[:train]).sum())


def _picture_hashes(part: Selection, name: str) -> Hashes:
    """Return two 64-bit hashes of each picture, [n, 2]: whether a spot is brighter than the one to its right, on a grid
    of 8 by 9; and the same of the mirrored picture (dHash)."""
    hashes = []
    for block in np.array_split(sample(part, name, MOST_COMPARED), -(-len(part) // 256)):
        gray = block.mean(3) if block.ndim == 4 else block.astype(np.float64)
        rows = np.array_split(np.arange(gray.shape[1]), 8)
        columns = np.array_split(np.arange(gray.shape[2]), 9)
        grid = np.stack(
            [np.stack([gray[:, row][:, :, column].mean((1, 2)) for column in columns], 1) for row in rows], 1
        )
        both = [np.packbits((side[:, :, :-1] > side[:, :, 1:]).reshape(len(grid), 64), axis=1).view(np.uint64)[:, 0]
                for side in (grid, grid[:, :, ::-1])]  # fmt: skip
        hashes.append(np.stack(both, axis=1))
    return np.concatenate(hashes)


def _near_pictures(train: Hashes, test: Hashes) -> int:
    known, count = np.unique(train[:, 0]), 0
    for sides in test:
        apart = np.bitwise_count(known[:, None] ^ sides)
        count += bool((apart <= BITS).any())
    return count
