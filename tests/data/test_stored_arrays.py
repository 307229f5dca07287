"""Arrays beside a model, which anybody may have written."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from podium.data.seen import SeenItems
from podium.data.validated import VALIDATED, Validated
from podium.errors import Damaged
from podium.storage import Storage, connect


def bomb(kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return arrays that take a thousand times as much memory."""
    array, packed = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(1 << 25, np.uint64))
    with zipfile.ZipFile(packed, "w", kind) as archive:
        for name in ("hashes", "target", "predictions"):
            archive.writestr(f"{name}.npy", array.getvalue())
    return packed.getvalue()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return connect(str(tmp_path))


@pytest.mark.whole
def test_arrays_that_unpack_to_far_more_are_refused(storage: Storage) -> None:
    content = bomb()
    storage.put(VALIDATED, content)
    tracemalloc.start()
    with pytest.raises(Damaged, match="takes 805,306,752 bytes"):
        SeenItems.from_bytes(content, "seen.npz")
    assert Validated.read(storage) is None
    assert tracemalloc.get_traced_memory()[1] < 1 << 27
    tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"PK", bytes(100), np.arange(9).tobytes()])
def test_what_is_no_archive_is_damaged(storage: Storage, content: bytes) -> None:
    storage.put(VALIDATED, content)
    assert Validated.read(storage) is None
    with pytest.raises(Damaged, match=r"seen\.npz does not tell which items were seen"):
        SeenItems.from_bytes(content, "seen.npz")


def test_compressed_arrays_are_read(storage: Storage) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, target=np.zeros(100_000, int), predictions=np.ones(100_000))
    storage.put(VALIDATED, content.getvalue())
    found = Validated.read(storage)
    assert found is not None
    assert found.predictions.sum() == 100_000
