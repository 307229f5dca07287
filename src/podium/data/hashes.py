"""64-bit hashes of items: equal items have equal hashes, on every machine and with every version of
numpy.

A key is a coarse hash that an item mostly keeps in another export, with fewer digits or saved
again; its part follows from it. Items of one key share a part. Where too many items would, keys are
the exact hashes.

Two of a million items share a hash by chance in one case of 37 million, two of a billion in one of
37.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.blocks import Selection, hash_bytes
from podium.data.near import mix, picture_grid, project
from podium.data.rows import Rows
from podium.data.schema import Array, Hashes
from podium.data.values import normal

_FEW = 3
"""Columns of numbers with a fraction that a key is made of: each one more is one more that another
export may move."""

_ENOUGH = 250
"""Keys, if all were as frequent, are enough to divide any number of items by."""

_LEVELS = 8.0
"""Steps of brightness, of 256, in a key."""

_MISSING = np.uint64(0x5B1D_6F0C_9E37_79B9)


def key_items(items: Selection) -> Hashes:
    """Return a key of each item, [n]: of numbers with a fraction, projections that are rounded."""
    exact = items.hashes()
    if not any(items.array(name).dtype.kind == "f" for name in items.part.inputs):
        return exact
    total = np.zeros(len(items), np.uint64)
    for name in sorted(items.part.inputs):
        hashed = []
        for block in items.blocks(name):
            flat = block.reshape(len(block), -1).astype(np.float64)
            numbers = _rounded(project(flat, _FEW)) if block.dtype.kind == "f" else flat
            hashed.append(_mix_columns(numbers))
        total = mix(total + np.concatenate(hashed))
    return _coarser(exact, total)


def key_pictures(items: Selection, exact: Hashes) -> Hashes:
    """Return a key of each picture, [n]: of the brightness of large spots."""
    (name,) = items.part.inputs
    grids = [picture_grid(block).reshape(len(block), -1) for block in items.blocks(name)]
    return _coarser(
        exact,
        np.concatenate([_mix_columns(np.floor(project(grid, _FEW) / _LEVELS)) for grid in grids]),
    )


def _coarser(exact: Hashes, coarse: Hashes) -> Hashes:
    """Return coarse hashes [n], but the exact ones where too few of them differ.

    How many pairs of different items share a key does not change as data grow, as the number of
    different keys does: items would leave their parts.
    """
    different = np.unique(exact, return_index=True)[1]
    sizes = np.unique(coarse[different], return_counts=True)[1].astype(float)
    alike, pairs = (sizes * (sizes - 1)).sum(), len(different) * (len(different) - 1)
    return coarse if _ENOUGH * alike <= pairs else exact


def _mix_columns(numbers: NDArray[np.float64]) -> Hashes:
    total = np.zeros(len(numbers), np.uint64)
    for at, column in enumerate(numbers.T):
        total += mix((column + 0.0).view(np.uint64), at)
    return total


def _rounded(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round fractional numbers to a sixteenth of their magnitude or finer: no scale is needed,
    which would change as data grow."""
    share, power = np.frexp(numbers)
    return np.where(np.rint(numbers) == numbers, numbers, np.ldexp(np.rint(share * 16) / 16, power))


def key_rows(
    batches: Iterable[Rows], types: Mapping[str, str], missing_values: Sequence[str]
) -> Hashes:
    """Return a key of each row, [n]: by the names of its columns and the normal form of their
    values, see podium.data.values. Of the numbers with a fraction a few columns count, rounded.

    Args:
        types: Of the columns that count, as Guess names them.
    """
    fractions = [name for name, of in types.items() if of == "number"]
    chosen = np.argsort(hash_texts(fractions))[:_FEW]  # whatever their order
    few = {*types} - {*fractions} | {fractions[at] for at in chosen}
    hashed = np.concatenate([_hash_rows(rows, types, few, missing_values) for rows in batches])
    return _coarser(hashed[:, 0], hashed[:, 1])


def _hash_rows(
    rows: Rows, types: Mapping[str, str], few: Collection[str], missing_values: Sequence[str]
) -> Hashes:
    """Return two hashes of each row, [n, 2]: of all columns, and of the few, rounded."""
    total = np.zeros((len(rows), 2), np.uint64)
    for name, of in types.items():
        numbers, texts = normal(rows.columns[name], missing_values, boolean=of == "boolean")
        salt = int(hash_texts([name])[0])
        hashed = _hash_normal(numbers, texts)
        total[:, 0] += mix(hashed, salt)
        if name in few:
            rounded = _rounded(numbers)
            same = np.array_equal(rounded, numbers, equal_nan=True)
            total[:, 1] += mix(hashed if same else _hash_normal(rounded, texts), salt)
    return total


def hash_texts(texts: Sequence[str]) -> Hashes:
    """Return a hash of each text, [n]."""
    return hash_bytes(text.encode("utf-8", "surrogatepass") for text in texts)


def hash_labels(labels: Array) -> Hashes:
    """Return a hash of each label, [n]: numbers or texts that name groups; 1, 1.0 and "1" are
    one."""
    names, codes = np.unique(labels, return_inverse=True)
    return _hash_normal(*normal(pa.array(names), ()))[codes.reshape(-1)]


def _hash_normal(numbers: NDArray[np.float64], texts: pa.Array) -> Hashes:
    bits = (numbers + 0.0).view(np.uint64)  # -0.0 is 0.0
    hashed = np.where(np.isnan(numbers), _MISSING, mix(bits))
    present = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    if present.any():
        encoded = texts.filter(pa.array(present)).dictionary_encode()
        hashed[present] = hash_texts(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
    return hashed
