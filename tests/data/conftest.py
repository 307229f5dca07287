"""A small dataset of our own, known by its checksums, in a directory or behind a real HTTP server."""

import gzip
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from small_dataset import CONTENT, Answer, Serve

from podium.data.sources.known import DATASETS, Known


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """The small dataset, known by name while the test runs; it has no mirrors."""
    sums = {name: sha256(data).hexdigest() for name, data in CONTENT.items()}
    small = Known(name="small", classes=tuple("0123456789"), sha256=sums)
    monkeypatch.setitem(DATASETS, small.name, small)
    return small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    for name, data in CONTENT.items():
        (tmp_path / "given" / f"{name}.gz").write_bytes(gzip.compress(data, 1))
    return tmp_path / "given"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start HTTP servers that answer GET with a function."""
    servers = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/data"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def bucket(new_bucket: Callable[[str], str]) -> str:
    """An S3 prefix of a bucket of its own."""
    return f"{new_bucket('moto')}/raw"
