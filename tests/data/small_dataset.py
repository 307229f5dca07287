"""A dataset of 250 images in the files of MNIST, for tests of everything that reads such files."""

import gzip
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np

from podium.data.sources.known import FILES

Answer = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[Answer], str]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{array.ndim + 1}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def make_files() -> dict[str, bytes]:
    rng = np.random.default_rng(5)
    arrays = []
    for count in (200, 50):
        arrays += [
            rng.integers(0, 256, (count, 28, 28), np.uint8),
            (np.arange(count) % 10).astype(np.uint8),
        ]
    return {name: idx(array) for name, array in zip(FILES, arrays, strict=True)}


CONTENT = make_files()


def send(request: BaseHTTPRequestHandler, body: bytes, *, announced: int | None = None) -> None:
    """Answer with a body, or with the beginning of a longer one."""
    request.send_response(200)
    request.send_header("Content-Length", str(announced or len(body)))
    request.end_headers()
    request.wfile.write(body)


def packed(request: BaseHTTPRequestHandler) -> bytes:
    """Return the gzipped file a request asks for."""
    return gzip.compress(CONTENT[Path(request.path).name.removesuffix(".gz")], 1)
