"""64-bit hashes of items: equal items have equal hashes, on every machine and with every version of numpy.

Two of a million items share a hash by chance in one case of 37 million, two of a billion in one of 37.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.blocks import Selection
from podium.data.rows import Rows
from podium.data.schema import Array
from podium.data.values import MISSING_VALUES, to_days, to_numbers

Hashes = NDArray[np.uint64]

_MISSING = np.uint64(0x5B1D_6F0C_9E37_79B9)
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)


def mix(values: Hashes, seed: int = 0) -> Hashes:
    """Scramble hashes [n] by a seed: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = values + np.uint64(seed % 2**64) * _STEP + _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def hash_items(items: Selection) -> Hashes:
    """Return a hash of all inputs of each item, [n]: bytes, names and order of the inputs count."""
    total = np.zeros(len(items), np.uint64)
    for name in sorted(items.part.inputs):
        at = 0
        for block in items.blocks(name):
            size, view = block[:1].nbytes, block.data.cast("B")
            digests = b"".join(
                blake2b(view[start : start + size], digest_size=8).digest() for start in range(0, len(view), size)
            )
            total[at : at + len(block)] *= _STEP  # so that inputs cannot be exchanged
            total[at : at + len(block)] += np.frombuffer(digests, "<u8")
            at += len(block)
    return total


def hash_rows(rows: Rows, columns: Sequence[str], missing_values: Sequence[str] = MISSING_VALUES) -> Hashes:
    """Return a hash of some columns of each row, [n]: by name and meaning, whatever their order and their notation.

    1, 1.0 and "1" are equal, and so are a date and its text.
    """
    total = np.zeros(len(rows), np.uint64)
    for name in columns:
        total += mix(_hash_values(rows.columns[name], missing_values), int(hash_texts([name])[0]))
    return total


def hash_texts(texts: Sequence[str]) -> Hashes:
    """Return a hash of each text, [n]."""
    digests = b"".join(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def hash_labels(labels: Array) -> Hashes:
    """Return a hash of each label, [n]: numbers or texts that name groups."""
    names, codes = np.unique(labels, return_inverse=True)
    return hash_texts([str(name) for name in names.tolist()])[codes.reshape(-1)]


def _hash_values(values: pa.Array, missing_values: Sequence[str]) -> Hashes:
    if pa.types.is_temporal(values.type):
        return _hash_numbers(to_days(values)[0])
    numbers, texts = to_numbers(values, missing_values)
    hashed = _hash_numbers(numbers)
    present = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    if present.any():
        days, words = to_days(texts.filter(pa.array(present)), ())
        encoded = words.dictionary_encode()
        known = np.isfinite(days)
        of_words = np.append(hash_texts(encoded.dictionary.to_pylist()), _MISSING)
        indices = pc.fill_null(encoded.indices, len(of_words) - 1).to_numpy(zero_copy_only=False)
        hashed[present] = np.where(known, _hash_numbers(days), of_words[indices])
    return hashed


def _hash_numbers(numbers: NDArray[np.float64]) -> Hashes:
    bits = (numbers + 0.0).view(np.uint64)  # -0.0 is 0.0
    return np.where(np.isnan(numbers), _MISSING, mix(bits))
