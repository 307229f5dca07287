"""S3 servers that run here: moto's, alone, without conditions on writes and with racy ones, and MinIO where its program is."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from podium.storage import connect
from podium.storage.s3 import conditional
from podium.storage.s3.storage import S3Storage

KEYS = {"AWS_ACCESS_KEY_ID": "podium-user", "AWS_SECRET_ACCESS_KEY": "podium-secret"}
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Callable[[str], str]]:
    """Give the URL of a server of a kind; started at its first use, stopped at the end."""
    running: dict[str, str] = {}
    start: dict[str, Callable[[], AbstractContextManager[str]]] = {
        "moto": moto,
        "moto-without-conditions": lambda: moto(around=ignoring_conditions),
        "racy": lambda: moto(around=checking_before_storing, threads=True),
        "minio": minio,
    }
    with ExitStack() as stack:

        def get(kind: str) -> str:
            if kind == "minio" and not minio_program():
                pytest.skip("no MinIO server here: `make minio` builds one where Go is present")
            if kind not in running:
                running[kind] = stack.enter_context(start[kind]())
            return running[kind]

        yield get


@pytest.fixture
def new_bucket(
    endpoint: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Make an empty bucket on a server of a kind, which the environment names from then on, and give its URL."""

    def make(kind: str) -> str:
        url = endpoint(kind)
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        storage = connect(f"s3://podium-{uuid.uuid4().hex}", create=True)
        assert isinstance(storage, S3Storage)
        _note_conditions(storage, url)
        return storage.url

    return make


def _note_conditions(storage: S3Storage, url: str) -> None:
    """Take what another bucket has shown of its server for this one too, or a hundred requests would try it again.

    In this process that holds for each prefix in the bucket; others read the note in it.
    """
    known = {
        in_parts: seen
        for (server, _, in_parts), seen in list(conditional._seen.items())
        if server == url
    }
    for in_parts, seen in known.items():
        conditional._seen[url, storage.bucket.name, in_parts] = seen
    if False in known:
        writes = storage._conditional
        writes.put_plain(writes._note(False), json.dumps(asdict(known[False])).encode())


@contextmanager
def moto(
    *,
    around: Callable[[Application], Application] | None = None,
    tls: tuple[Path, Path] | None = None,
    port: int = 0,
    threads: bool = False,
) -> Iterator[str]:
    """Run moto's S3 server; yields its URL.

    It checks a condition and writes in two steps: with threads two writers could both pass. One request at a time
    makes it as atomic as a real server.

    Args:
        around: Changes how the server behaves.
        tls: Certificate and key.
        port: 0 takes any.
        threads: Serve several requests at a time.
    """
    from moto.server import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    application: Application = create_backend_app("s3")
    if around:
        application = around(application)
    context = (str(tls[0]), str(tls[1])) if tls else None
    server = make_server(
        "127.0.0.1",
        port,
        application,
        threaded=threads,
        request_handler=Silent,
        ssl_context=context,
    )
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def ignoring_conditions(application: Application) -> Application:
    """Hide conditions on writes from a server, as older ones ignore them."""

    def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("PUT", "POST"):
            environ.pop("HTTP_IF_MATCH", None)
            environ.pop("HTTP_IF_NONE_MATCH", None)
        return application(environ, start_response)

    return call


def checking_before_storing(application: Application) -> Application:
    """Check conditions on writes, pause, then store: SeaweedFS before 4.18 lets concurrent writers all win this way."""
    one_at_a_time = threading.Lock()

    def ask(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with one_at_a_time:
            return list(application(environ, start_response))

    def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        writes = environ["REQUEST_METHOD"] in ("PUT", "POST")
        match, none_match = (environ.pop(name, None) if writes else None for name in _CONDITIONS)
        if match or none_match:
            head = {**environ, "REQUEST_METHOD": "HEAD", "QUERY_STRING": "", "CONTENT_LENGTH": "0"}
            seen: dict[str, str] = {}
            ask(
                head,
                lambda status, headers, exc_info=None: seen.update(
                    headers if status.startswith("200") else []
                ),
            )
            if (none_match and seen) or (match and seen.get("ETag") != match):
                body = b"<Error><Code>PreconditionFailed</Code></Error>"
                start_response("412 Precondition Failed", [("Content-Type", "application/xml")])
                return [body]
            time.sleep(0.02)
        return ask(environ, start_response)

    return call


_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def sleep_into_the_next_second() -> None:
    """Let what is written from now on be younger: servers tell times in whole seconds."""
    time.sleep(1.05 - time.time() % 1)


def minio_program() -> str | None:
    """Return MinIO's server program: PODIUM_TEST_MINIO, `minio` on the PATH, or what `make minio` built."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium/bin/minio"
    return (
        os.environ.get("PODIUM_TEST_MINIO")
        or shutil.which("minio")
        or (str(cache) if cache.exists() else None)
    )


@contextmanager
def minio() -> Iterator[str]:
    """Run a MinIO server on a free port; yields its URL.

    It syncs each write, so its data are in memory where there is room: the largest test, a slow one, stores 2 GiB.
    """
    memory = Path("/dev/shm")
    roomy = (
        memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 6 << 30
    )
    place = tempfile.TemporaryDirectory(prefix="minio-", dir=memory if roomy else None)
    with place as directory, minio_in(Path(directory)) as url:
        yield url


@contextmanager
def minio_in(directory: Path, port: int = 0) -> Iterator[str]:
    """Run a MinIO server that keeps its data in a directory; port 0 takes any."""
    program = minio_program()
    assert program
    port, console = port or _free_port(), _free_port()
    environ = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MINIO_", "AWS_"))
        },
        "MINIO_ROOT_USER": KEYS["AWS_ACCESS_KEY_ID"],
        "MINIO_ROOT_PASSWORD": KEYS["AWS_SECRET_ACCESS_KEY"],
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    command = [program, "server", str(directory / "data"), "--address", f"127.0.0.1:{port}"]
    command += ["--console-address", f"127.0.0.1:{console}", "--quiet"]
    with (directory / "minio.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, directory / "minio.log")
        yield url
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    late = time.monotonic() + 120
    while time.monotonic() < late:
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url}/minio/health/ready", timeout=2).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"no answer from {url}: {log.read_text()}")


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
