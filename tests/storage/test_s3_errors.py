"""What users read when an S3 server fails: a sentence and a hint."""

import datetime
import http.server
import ipaddress
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import s3servers

from podium.errors import PodiumError
from podium.storage import Storage, connect
from podium.storage.check import check


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Storage]:
    """Open a bucket at an endpoint."""
    for name, value in s3servers.KEYS.items():
        monkeypatch.setenv(name, value)

    def open_at(endpoint: str) -> Storage:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        return connect(f"s3://podium-{uuid.uuid4().hex}")

    return open_at


@contextmanager
def answering(status: int, body: bytes, content_type: str = "application/xml") -> Iterator[str]:
    """Run a server that gives the same answer to everything."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "body", [b"", b"<ListBucketResult><Contents><Key>a</Key>", b"{}"], ids=["empty", "cut", "json"]
)
def test_an_answer_that_is_no_xml_becomes_a_sentence(
    at: Callable[[str], Storage], body: bytes, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(32 * 2**20))
    with answering(200, body) as url:
        storage = at(url)
        for use in (lambda: list(storage.list("a/")), lambda: storage.put("a", tmp_path / "large")):
            with pytest.raises(PodiumError, match="gave half an answer or an empty one") as raised:
                use()
            assert "proxy" in str(raised.value.hint)
        for use in (
            lambda: storage.get("a"),
            lambda: storage.read("a", limit=2),
            lambda: storage.put("a", b"1"),
        ):
            with pytest.raises(PodiumError, match="is not an S3 server"):
                use()


@pytest.mark.parametrize(
    ("status", "code", "reason", "hint"),
    [
        (
            403,
            "InvalidAccessKeyId",
            "does not know the access key from AWS_ACCESS_KEY_ID",
            "check AWS_ACCESS_KEY_ID",
        ),
        (
            403,
            "SignatureDoesNotMatch",
            "secret key does not belong to the access key",
            "check the secret key",
        ),
        (403, "AccessDenied", "is not allowed to read key", "s3:ListBucket, GetObject, PutObject"),
        (
            403,
            "RequestTimeTooSkewed",
            "clocks of this machine and the server differ",
            "set the clock",
        ),
        (400, "ExpiredToken", "session token has expired", "get a new AWS_SESSION_TOKEN"),
        (400, "AuthorizationHeaderMalformed", "bucket is in another region", "set AWS_REGION"),
        (507, "XMinioStorageFull", "server's disks are full", "make room"),
        (418, "SomethingNew", "answered SomethingNew: told so", "see the server's log"),
    ],
)
def test_an_error_code_becomes_a_sentence_and_a_hint(
    at: Callable[[str], Storage], status: int, code: str, reason: str, hint: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>told so</Message></Error>".encode()
    with answering(status, body) as url, pytest.raises(PodiumError) as raised:
        at(url).get("key")
    assert reason in raised.value.message
    assert hint in (raised.value.hint or "")


def test_a_port_that_speaks_something_else_is_named(at: Callable[[str], Storage]) -> None:
    with answering(200, b"<html>console</html>", "text/html") as url, pytest.raises(PodiumError):
        list(at(url).list())
    with (
        answering(404, b"<html>no</html>", "text/html") as url,
        pytest.raises(PodiumError, match="is not an S3 server") as raised,
    ):
        at(url).get("key")
    assert "9000" in (raised.value.hint or "")


def test_plain_http_to_a_tls_port_is_named(at: Callable[[str], Storage]) -> None:
    said = b"Client sent an HTTP request to an HTTPS server."
    with (
        answering(400, said, "text/plain") as url,
        pytest.raises(PodiumError, match="expects TLS") as raised,
    ):
        at(url).get("key")
    assert "https://127.0.0.1" in (raised.value.hint or "")


def test_tls_to_a_plain_http_port_is_named(
    at: Callable[[str], Storage], endpoint: Callable[[str], str]
) -> None:
    url = endpoint("moto").replace("http://", "https://")
    with pytest.raises(PodiumError, match="does not speak TLS") as raised:
        at(url).get("key")
    assert "write http://" in (raised.value.hint or "")


def test_a_name_that_nobody_knows_is_named(at: Callable[[str], Storage]) -> None:
    with pytest.raises(PodiumError, match="its name is unknown"):
        at("http://no-such-host.invalid:9000").get("key")


@contextmanager
def away(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Give a storage with an object under "key"; its server is gone and comes back after a while."""
    for name, value in s3servers.KEYS.items():
        monkeypatch.setenv(name, value)
    with s3servers.moto() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        storage = connect(f"s3://podium-{uuid.uuid4().hex}", create=True)
        storage.put("key", b"kept")
    over = threading.Event()

    def come_back() -> None:
        if not over.wait(seconds):
            with s3servers.moto(port=urlsplit(url).port or 0):
                over.wait(60)

    server = threading.Thread(target=come_back)
    server.start()
    try:
        yield storage
    finally:
        over.set()
        server.join()


def test_a_pod_waits_for_an_unreachable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with away(1.5, monkeypatch) as storage:
        storage.put("other", b"new")
        assert storage.get("key") == b"kept"
        assert storage.get("other") == b"new"


def test_a_pods_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    pauses: list[float] = []
    own, sleep = threading.current_thread(), time.sleep

    def pause(seconds: float) -> None:  # there is one time.sleep for all threads
        pauses.append(seconds) if threading.current_thread() is own else sleep(seconds)

    monkeypatch.setattr("urllib3.util.retry.time.sleep", pause)
    with (
        away(60, monkeypatch) as storage,
        pytest.raises(PodiumError, match="nothing listens there"),
    ):
        storage.get("key")
    assert sum(pauses) == 71


def test_a_server_that_does_not_listen_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with away(60, monkeypatch) as storage:
        started = time.monotonic()
        with pytest.raises(PodiumError, match="nothing listens there"):
            storage.get("key")
        assert time.monotonic() - started < 2


@pytest.mark.parametrize("kind", ["moto", "minio"])
def test_a_missing_bucket_is_not_taken_for_a_missing_key(
    at: Callable[[str], Storage], endpoint: Callable[[str], str], kind: str
) -> None:
    storage = at(endpoint(kind))
    for attempt in (
        lambda: storage.get("key"),
        lambda: storage.put("key", b""),
        lambda: list(storage.list()),
    ):
        with pytest.raises(PodiumError, match=r"the bucket podium-.* does not exist") as raised:
            attempt()
        assert type(raised.value) is PodiumError
        assert "--create" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("AWS_ACCESS_KEY_ID", "does not know the access key from AWS_ACCESS_KEY_ID"),
        ("AWS_SECRET_ACCESS_KEY", "secret key"),
    ],
)
def test_a_real_server_distinguishes_wrong_keys(
    at: Callable[[str], Storage],
    endpoint: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    said: str,
) -> None:
    at(endpoint("minio"))
    monkeypatch.setenv(variable, "wrong-wrong")
    with pytest.raises(PodiumError, match=said) as raised:
        connect("s3://bucket").get("key")
    assert "wrong-wrong" not in str(raised.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody trusts yet, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "podium tests")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = serialization.Encoding.PEM
    (folder / "public.pem").write_bytes(signed.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "public.pem", folder / "key.pem"


def test_a_certificate_is_checked_against_the_given_ca(
    at: Callable[[str], Storage], certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3servers.moto(tls=certificate) as url:
        with pytest.raises(
            PodiumError, match=r"certificate of https://127.* is not trusted"
        ) as raised:
            at(url).get("key")
        assert "AWS_CA_BUNDLE" in (raised.value.hint or "")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate[0]))
        storage = connect("s3://private", create=True)
        storage.put("key", b"over TLS")
        assert storage.get("key") == b"over TLS"


def test_a_server_with_a_wrong_clock_fails_the_check(at: Callable[[str], Storage]) -> None:
    def late(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
                then = format_datetime(
                    datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1), usegmt=True
                )
                return start_response(
                    status,
                    [
                        (name, then if name.lower() == "last-modified" else value)
                        for name, value in headers
                    ],
                    *rest,
                )

            return application(environ, start)

        return call

    with s3servers.moto(around=late) as url:
        storage = at(url)
        connect(storage.url, create=True)
        (failed,) = [entry for entry in check(storage) if not entry.ok]
    assert failed.name == "clock"
    assert "differ by 360" in failed.detail
    assert "NTP" in (failed.hint or "")


def test_a_busy_server_is_asked_again(at: Callable[[str], Storage]) -> None:
    def busy(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if waiting and environ["REQUEST_METHOD"] == "GET":
                start_response(f"{waiting.pop()} Busy", [("Content-Length", "0")])
                return [b""]
            return application(environ, start_response)

        return call

    waiting: list[int] = []
    with s3servers.moto(around=busy) as url:
        storage = at(url)
        connect(storage.url, create=True)
        storage.put("key", b"kept")
        for status in (500, 502, 503, 504):
            waiting.append(status)
            assert (storage.get("key"), waiting) == (b"kept", [])


def breaking(
    times: int, broken: list[str]
) -> Callable[[s3servers.Application], s3servers.Application]:
    """Break off the first large answers in the middle; their ranges are appended to broken."""

    def around(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            body = b"".join(application(environ, start_response))
            if environ["REQUEST_METHOD"] == "GET" and len(body) > 1 << 20 and len(broken) < times:
                broken.append(environ.get("HTTP_RANGE", ""))
                return [body[: len(body) // 2]]
            return [body]

        return call

    return around


def test_a_download_whose_connection_breaks_goes_on_where_it_was(
    at: Callable[[str], Storage], tmp_path: Path
) -> None:
    broken: list[str] = []
    content = bytes(range(256)) * 4096 * 20
    (tmp_path / "source").write_bytes(content)
    with s3servers.moto(around=breaking(3, broken)) as url:
        storage = at(url)
        connect(storage.url, create=True)
        storage.put("big", tmp_path / "source")
        moved: list[int] = []
        storage.fetch("big", tmp_path / "target", progress=moved.append)
    assert len(broken) == 3
    assert (tmp_path / "target").read_bytes() == content
    assert sum(moved) == len(content)


def test_a_server_without_ranges_sends_no_byte_twice(
    at: Callable[[str], Storage], tmp_path: Path
) -> None:
    broken: list[str] = []
    content = bytes(range(256)) * 4096 * 20

    def around(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            environ.pop("HTTP_RANGE", None)
            return breaking(1, broken)(application)(environ, start_response)

        return call

    with s3servers.moto(around=around) as url:
        storage = at(url)
        connect(storage.url, create=True)
        storage.put("big", content)
        storage.fetch("big", tmp_path / "target")
    assert (len(broken), (tmp_path / "target").read_bytes() == content) == (1, True)


def test_a_connection_that_always_breaks_is_given_up(at: Callable[[str], Storage]) -> None:
    broken: list[str] = []
    with s3servers.moto(around=breaking(99, broken)) as url:
        storage = at(url)
        connect(storage.url, create=True)
        storage.put("big", b"big" * (1 << 19))
        with pytest.raises(PodiumError, match="cannot reach"):
            storage.get("big")
    assert len(broken) == 3


def test_an_object_replaced_during_a_download_is_fetched_again(
    at: Callable[[str], Storage], tmp_path: Path
) -> None:
    broken: list[str] = []
    replaced: list[bool] = []
    with s3servers.moto(around=breaking(1, broken)) as url:
        storage = at(url)
        connect(storage.url, create=True)
        storage.put("big", b"old" * (2 << 20))

        def replace(count: int) -> None:
            if not replaced:
                replaced.append(True)
                connect(storage.url).put("big", b"new" * (2 << 20))

        storage.fetch("big", tmp_path / "target", progress=replace)
    assert (len(broken), replaced) == (1, [True])
    assert (tmp_path / "target").read_bytes() == b"new" * (2 << 20)
