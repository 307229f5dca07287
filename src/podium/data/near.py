"""Items that nearly equal others: rows with fewer digits, pictures saved again.

An item is a point of at most _DIMENSIONS numbers, in units of its columns' own spread: its columns,
or the brightness of spots of its picture; of more numbers, projections at random. Two items are
near where no number differs by more than a tolerance, and all that an export leaves as it is
(categories but for case, whole numbers) is equal. The tolerance is the largest at which hardly any
two different items of the data are near by chance, so it is far below the usual distance of items.
Points are kept as the hash of their cell of a grid and their place in it, 16 bytes an item; points
near a border of their cell are looked for on its other side too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.blocks import Selection
from podium.data.schema import Array, Hashes, InputDescription

Points = NDArray[np.float64]

_DIMENSIONS = 16
_GRID = 8
"""Spots of a picture in each direction."""

_PLACES = 16
"""Places in a cell in each direction; the tolerance is two of them."""

_MOST_PROBES = 8
"""Borders of its cell, the nearest, that a point is looked for across."""

_TOLERANCES = tuple(2.0**-power for power in range(13, 1, -1))
"""In units of a column's spread, ascending."""

_MOST_BY_CHANCE = 0.002
"""Items near an item by chance that twice the tolerance may add, on average."""

_MOST_BESIDE_COPIES = 0.1
"""The same, where there are copies, as a share of them."""

_MOST_COPIES = 4
"""Copies of an item, on average; of more, items are a cluster rather than copies."""

_MANY = 8
"""Dimensions from which chance alone leaves hardly a gap of a factor of two in distance."""

SAMPLE, QUERIES = 100_000, 4_000
"""Items that the tolerance is found with."""

_BLOCK = 4 << 20
"""Bytes of items at a time."""

_PIXELS = 1 << 18
"""Pixels measured at a time, all pictures together."""

_MOST_PAIRS = 5e7
"""Points of shared cells that may be compared to find how many are near at a tolerance."""

POINTS, FILTER = 4096, 1 << 22
"""Points looked for at a time, and hashes that tell quickly which cells hold nothing."""

_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFTS = np.arange(_DIMENSIONS, dtype=np.uint64) * np.uint64(4)


def mix(values: Hashes, seed: int = 0) -> Hashes:
    """Scramble hashes [n] by a seed: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(seed % 2**64) * _STEP + _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


@dataclass(frozen=True, kw_only=True)
class _Space:
    """Projection of the inputs of items to points."""

    inputs: Mapping[str, Mapping[str, Any]]
    """Settings of each input: ``image``, whether it is pictures; ``spread``, of each number or of
    all spots, where 0 leaves values unscaled; ``letters``, as letter_cases returns them."""

    @classmethod
    def of(
        cls, items: Mapping[str, Array], descriptions: Mapping[str, InputDescription]
    ) -> "_Space":
        """Measure the spread of each column of some training items."""
        measured = {}
        for name, described in descriptions.items():
            if described.meaning == "image":
                spread = [float(np.sqrt(picture_grid(items[name]).var(axis=0).mean()))]
            else:
                flat = items[name].reshape(len(items[name]), -1).astype(np.float64)
                spread = _spreads(flat)
                for at, column in enumerate(described.columns):
                    spread[at] *= column.kind == "number"
            measured[name] = {"image": described.meaning == "image", "spread": spread}
            if letters := letter_cases(described):
                measured[name]["letters"] = letters
        return cls(inputs=measured)

    def points(self, items: Mapping[str, Array]) -> tuple[Points, Hashes]:
        """Return the points of items [n, dimensions], and a hash of what is not in them [n]."""
        numbers, rest = [], np.zeros(len(next(iter(items.values()))), np.uint64)
        for name in sorted(self.inputs):
            spread = np.array(self.inputs[name]["spread"])
            if self.inputs[name]["image"]:
                numbers.append(
                    picture_grid(items[name]).reshape(len(rest), -1) / (spread[0] or 1.0)
                )
                continue
            flat = items[name].reshape(len(rest), -1).astype(np.float64) + 0.0  # -0.0 is 0.0
            flat = one_case(flat, self.inputs[name].get("letters", {}))
            numbers.append(flat[:, spread > 0] / spread[spread > 0])
            exact = np.ascontiguousarray(flat[:, spread == 0]).view(np.uint64)
            rest = mix(rest + mix(exact) @ _odd(exact.shape[1], 1))
        return project(np.concatenate(numbers, axis=1)), rest


def letter_cases(described: InputDescription) -> dict[str, list[int]]:
    """Return for each column, by its place, of which category each category is another case: Bonn
    and BONN; nothing for a column without such."""
    found = {}
    for at, column in enumerate(described.columns):
        names = [name.lower() for name in column.categories]
        if len(set(names)) < len(names):
            found[str(at)] = [names.index(name) for name in names]
    return found


def one_case(rows: Array, cases: Mapping[str, Sequence[int]]) -> Array:
    """Return rows [n, columns] with categories that differ in case as one.

    Args:
        cases: As letter_cases returns them.
    """
    rows = rows.copy() if cases else rows
    for at, codes in cases.items():
        values = rows[:, int(at)].astype(np.int64).clip(0, len(codes) - 1)
        rows[:, int(at)] = np.asarray(codes, np.float64)[values]
    return rows


@np.errstate(invalid="ignore")  # what is infinite is refused in words, where it is written
def project(numbers: Points, most: int = _DIMENSIONS) -> Points:
    """Return numbers [n, d] as they are, or so many projections of more."""
    count = numbers.shape[1]
    if count <= most:
        return numbers
    signs = (_odd(count * most, 2) >> np.uint64(40) & np.uint64(1)).astype(np.float64) * 2 - 1
    return np.asarray(numbers @ (signs.reshape(count, most) / np.sqrt(count)))


def picture_grid(pictures: Array) -> Points:
    """Return the mean brightness of equal spots, [n, _GRID, _GRID], of pictures that are gray or in
    color."""
    down, across = (_areas(side) for side in pictures.shape[1:3])
    step, grids = max(1, _PIXELS // max(1, pictures[:1].size)), []
    for start in range(0, len(pictures), step):
        some = pictures[start : start + step].astype(np.float64)
        gray = some if some.ndim == 3 else some @ np.array([0.299, 0.587, 0.114])
        grids.append(down @ (gray @ across.T))
    return np.concatenate(grids) if grids else np.empty((0, _GRID, _GRID))


def _areas(side: int) -> Points:
    """Return the share of each of _GRID spots that lies in each pixel of a side, [_GRID, side]."""
    edges = np.linspace(0, side, _GRID + 1)
    pixels = np.arange(side)
    shared = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(shared.clip(0) / (side / _GRID))


def _spreads(columns: Points) -> list[float]:
    """Return the spread of each column of [n, columns]; 0 where all values are whole numbers."""
    low, high = np.quantile(columns, (0.1, 0.9), axis=0)
    spread = np.where(high > low, (high - low) / 2.563, columns.std(axis=0))
    return np.where((np.rint(columns) == columns).all(axis=0), 0.0, spread).tolist()


def _odd(count: int, seed: int) -> Hashes:
    return mix(np.arange(count, dtype=np.uint64), seed) | np.uint64(1)


@dataclass(frozen=True, kw_only=True)
class NearItems:
    """Items, found by others that nearly equal them."""

    space: _Space

    tolerance: float
    """In units of a column's spread."""

    cells: Hashes
    """[n], ascending."""

    places: Hashes
    """[n], of each item in its cell: 4 bits for each dimension."""

    @classmethod
    @np.errstate(invalid="ignore")  # data with NaN are refused in words, where they are written
    def of(
        cls, selections: Sequence[Selection], descriptions: Mapping[str, InputDescription]
    ) -> "NearItems | None":
        """Take in the items of some parts, the first the one that is measured; None if nothing can
        be nearly equal."""
        first, count = selections[0], sum(map(len, selections))
        if any(described.meaning == "tokens" for described in descriptions.values()):
            return None
        step = _rows_of(first.part.inputs)
        sample = _sample(first, descriptions, step)
        space = _Space.of(sample, descriptions)
        is_rounded = any(any(each["spread"]) for each in space.inputs.values())
        tolerance = _find_tolerance(*space.points(sample), count) if is_rounded else 0.0
        if not tolerance:
            return None
        located = [
            _locate(*space.points(_items(part, slice(start, start + step))), tolerance)[:2]
            for part in selections
            for start in range(0, len(part), step)
        ]
        cells, places = (np.concatenate(side) for side in zip(*located, strict=True))
        order = np.lexsort((places, cells))
        cells, places = cells[order], places[order]
        new = np.ones(len(cells), bool)
        new[1:] = (cells[1:] != cells[:-1]) | (places[1:] != places[:-1])
        return cls(space=space, tolerance=tolerance, cells=cells[new], places=places[new])

    @np.errstate(invalid="ignore")  # an item with NaN is near none
    def holds(self, items: Mapping[str, Array]) -> NDArray[np.bool_]:
        """Return which items [m] nearly equal one of these, or equal it; none of items of another
        shape."""
        count = len(next(iter(items.values())))
        found = np.zeros(count, bool)
        if not self._fits(items):
            return found
        for start in range(0, count, step := _rows_of(items)):
            block = {name: array[start : start + step] for name, array in items.items()}
            points, rest = self.space.points(block)
            for asked, _ in _pairs(points, rest, self.tolerance, self.cells, self.places):
                found[start + asked] = True
        return found

    def _fits(self, items: Mapping[str, Array]) -> bool:
        return set(items) >= set(self.space.inputs) and all(
            of["image"] or items[name][0].size == len(of["spread"])
            for name, of in self.space.inputs.items()
        )

    def same(self, other: "NearItems") -> bool:
        """Return whether both hold the same items."""
        return (
            self.space == other.space
            and self.tolerance == other.tolerance
            and all(
                np.array_equal(own, its)
                for own, its in ((self.cells, other.cells), (self.places, other.places))
            )
        )

    def to_arrays(self) -> dict[str, Array]:
        """Return what from_arrays reads."""
        facts = json.dumps({"inputs": self.space.inputs, "tolerance": self.tolerance})
        return {
            "facts": np.frombuffer(facts.encode(), np.uint8),
            "cells": self.cells,
            "places": self.places,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "NearItems":
        """Read what to_arrays returned."""
        facts = json.loads(arrays["facts"].tobytes())
        return cls(
            space=_Space(inputs=facts["inputs"]),
            tolerance=float(facts["tolerance"]),
            cells=arrays["cells"],
            places=arrays["places"],
        )


def _items(items: Selection, chosen: Any) -> dict[str, Array]:
    index = items.positions(chosen)
    return {name: array[index] for name, array in items.part.inputs.items()}


def _sample(
    items: Selection, descriptions: Mapping[str, InputDescription], step: int
) -> dict[str, Array]:
    """Return at most SAMPLE items, evenly spread; of pictures their spots, which are a picture of
    the same spots."""
    pictures = any(described.meaning == "image" for described in descriptions.values())
    chosen = np.arange(
        0, len(items), -(-len(items) // (SAMPLE if pictures else min(SAMPLE, step * 16)))
    )
    blocks: list[dict[str, Array]] = []
    for start in range(0, len(chosen), step):
        some = _items(items, chosen[start : start + step])
        blocks.append(
            {
                name: picture_grid(some[name]) if described.meaning == "image" else some[name]
                for name, described in descriptions.items()
            }
        )
    return {name: np.concatenate([block[name] for block in blocks]) for name in descriptions}


def _rows_of(items: Mapping[str, Array]) -> int:
    return max(1, _BLOCK // max(1, sum(array[:1].nbytes for array in items.values())))


def _find_tolerance(points: Points, rest: Hashes, count: int) -> float:
    """Return the largest tolerance at which hardly any two different items are near by chance; 0 if
    there is none.

    By chance, the items near an item at least double with the distance. Where twice the tolerance
    adds hardly any, those within it are copies: within a quarter of it where dimensions are few.

    Args:
        points: [n, dimensions], of a sample.
        rest: [n], hash of what is not in them.
        count: Items that the sample stands for.
    """
    hashed = mix(rest + mix(points.view(np.uint64)) @ _odd(points.shape[1], 3))
    chosen = np.unique(hashed, return_index=True)[1]
    points, rest = points[chosen], rest[chosen]
    scale = max(1.0, count / max(1, len(points)))
    found: dict[float, float] = {}

    def neighbors(tolerance: float) -> float:
        if tolerance not in found:
            found[tolerance] = scale * _neighbors(points, rest, tolerance)
        return found[tolerance]

    best, gap = 0.0, 1 if points.shape[1] >= _MANY else 4
    for tolerance in _TOLERANCES:
        copies = neighbors(tolerance / gap)
        if neighbors(tolerance) > _MOST_COPIES:
            break
        most = max(_MOST_BY_CHANCE, copies * _MOST_BESIDE_COPIES)
        if neighbors(tolerance * 2) - copies <= most:
            best = tolerance
    return best


def _neighbors(points: Points, rest: Hashes, tolerance: float) -> float:
    """Return how many others some points are near, on average; infinity where cells are crowded."""
    cells, places = _locate(points, rest, tolerance)[:2]
    order = np.argsort(cells, kind="stable")
    asked = np.arange(0, len(points), -(-len(points) // QUERIES))
    sizes = np.unique(cells, return_counts=True)[1].astype(np.float64)
    probes = (1 + 4 / _PLACES) ** points.shape[1]
    if len(asked) * probes * (sizes @ sizes) / len(points) > _MOST_PAIRS:
        return np.inf
    pairs = _pairs(points[asked], rest[asked], tolerance, cells[order], places[order])
    return sum(int((order[at] != asked[which]).sum()) for which, at in pairs) / len(asked)


def _locate(points: Points, rest: Hashes, tolerance: float) -> tuple[Hashes, Hashes, Points]:
    """Return the hash of each point's cell, its place in it, and where it is in units of cells."""
    where = points / (tolerance * _PLACES / 2)
    whole = np.floor(where)
    cells = rest + whole.astype(np.int64).view(np.uint64) @ _odd(points.shape[1], 4)
    spots = ((where - whole) * _PLACES).astype(np.uint64).clip(max=np.uint64(_PLACES - 1))
    places = (spots << _SHIFTS[: points.shape[1]]).sum(axis=1, dtype=np.uint64)
    return cells, places, where - whole


def _pairs(
    points: Points, rest: Hashes, tolerance: float, cells: Hashes, places: Hashes
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield positions of points and of the ones among others that they are near, these sorted by
    cell."""
    occupied = np.zeros(FILTER, bool)
    occupied[cells % np.uint64(FILTER)] = True
    for start in range(0, len(points), POINTS):
        some = slice(start, start + POINTS)
        own, spots, inside = _locate(points[some], rest[some], tolerance)
        which, probed = _probes(own, inside)
        held = occupied[probed % np.uint64(FILTER)]
        which, probed = which[held], probed[held]
        first, last = (np.searchsorted(cells, probed, side) for side in ("left", "right"))
        counts = last - first
        borders = np.flatnonzero(np.diff(np.cumsum(counts) // POINTS)) + 1
        for part in np.split(np.arange(len(which)), borders):
            many = counts[part]
            at = np.repeat(first[part] - np.cumsum(many) + many, many) + np.arange(many.sum())
            asked = np.repeat(which[part], many)
            close = _close(spots[asked], places[at], points.shape[1])
            yield start + asked[close], at[close]


def _probes(own: Hashes, inside: Points) -> tuple[NDArray[np.int64], Hashes]:
    """Return positions of points, and hashes of the cells to look for them in: their own and those
    across borders."""
    share, steps = 2 / _PLACES, _odd(inside.shape[1], 4)
    across = np.where(
        inside < share, np.uint64(0) - steps, np.where(inside > 1 - share, steps, np.uint64(0))
    )
    distance = np.where(across == 0, 1.0, np.minimum(inside, 1 - inside))
    nearest = np.argsort(distance, axis=1)[:, :_MOST_PROBES]
    across = np.take_along_axis(across, nearest, axis=1)
    which, probed = np.arange(len(own)), own
    for border in across.T:
        more = border[which]
        crossing = more != 0
        probed = np.concatenate([probed, probed[crossing] + more[crossing]])
        which = np.concatenate([which, which[crossing]])
    return which, probed


def _close(one: Hashes, other: Hashes, dimensions: int) -> NDArray[np.bool_]:
    """Return the pairs of places within the tolerance in every dimension, also across a border."""
    apart = (
        (one[:, None] >> _SHIFTS[:dimensions]) - (other[:, None] >> _SHIFTS[:dimensions])
    ) & np.uint64(_PLACES - 1)
    return np.asarray(((apart <= 2) | (apart >= _PLACES - 2)).all(axis=1))
