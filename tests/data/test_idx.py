import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from podium.data.sources.mnist import _decompress, _read_idx
from podium.errors import Damaged

IMAGES = struct.pack(">IIII", 0x803, 2, 3, 4) + bytes(range(24))


def test_images_and_labels_come_back_in_their_shape() -> None:
    assert _read_idx(IMAGES, "images").tolist() == np.arange(24).reshape(2, 3, 4).tolist()
    assert _read_idx(struct.pack(">II", 0x801, 3) + b"\1\2\3", "labels").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no bytes at all"),
        (b"<html>404</html>", "bad idx header: must begin with 0x00000803, but has 0x3c68746d"),
        (struct.pack(">II", 0x801, 3) + b"\1\2\3", "but has 0x00000801"),
        (b"\0\0\x0d\3" + IMAGES[4:], "but has 0x00000d03"),
        (IMAGES[:10], "truncated inside its idx header: 10 of 16 bytes"),
        (IMAGES[:-1], "truncated: 2x3x4 needs 40 bytes, but has 39"),
        (IMAGES + b"!", "too long: 2x3x4 needs 40 bytes, but has 41"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Damaged) as caught:
        _read_idx(data, "images")
    assert reason in str(caught.value)


def test_gzipped_and_plain_files_are_both_read() -> None:
    assert _decompress(gzip.compress(IMAGES), "images") == _decompress(IMAGES, "images") == IMAGES


def test_a_gzip_bomb_is_refused_without_being_unpacked() -> None:
    packed = gzip.compress(bytes(1 << 20)) * 2000  # 2 GB, of which each member is a stream
    tracemalloc.start()
    with pytest.raises(Damaged, match="images is larger than 67,108,864 bytes"):
        _decompress(packed, "images")
    assert tracemalloc.get_traced_memory()[1] < 1 << 28
    tracemalloc.stop()


def test_a_gzip_file_cut_short_or_corrupt_is_named() -> None:
    packed = bytearray(gzip.compress(IMAGES))
    with pytest.raises(Damaged, match=r"images\.gz is truncated"):
        _decompress(bytes(packed[:-12]), "images.gz")
    packed[15] ^= 0xFF
    with pytest.raises(Damaged, match=r"images\.gz is (corrupt|truncated)"):
        _decompress(bytes(packed), "images.gz")
