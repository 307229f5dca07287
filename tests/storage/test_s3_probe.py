"""Whether a server's conditions on writes are believed: by a race, not by one writer after another."""

import io
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
import s3servers

from podium.errors import PodiumError
from podium.storage import connect
from podium.storage.check import check
from podium.storage.s3 import conditional
from podium.storage.s3.storage import PART, S3Storage

pytestmark = pytest.mark.whole


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "moto",
            "enforced by the server (If-None-Match, If-Match): of 16 writers at once one won, 6 times",
        ),
        ("moto-without-conditions", "enforced by lock objects: the server ignores conditions"),
        (
            "racy",
            "enforced by lock objects: the server checks conditions before it stores, not as it stores",
        ),
    ],
)
def test_storage_check_says_what_enforces_conditions(
    new_bucket: Callable[[str], str], kind: str, said: str
) -> None:
    storage = connect(new_bucket(kind))
    checks = {result.name: result for result in check(storage)}
    assert checks["conditional writes"].ok
    assert checks["conditional writes"].detail.startswith(said)
    assert isinstance(storage, S3Storage)
    assert list(storage.bucket.objects(".podium/probe-")) == [], "the probe cleans up"


def test_a_server_that_ignores_if_match_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            environ.pop("HTTP_IF_MATCH", None)
            return application(environ, start_response)

        return call

    with s3servers.moto(around=deaf) as url:
        for name, value in {**s3servers.KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        storage = connect("s3://deaf", create=True)
        assert isinstance(storage, S3Storage)
        assert storage.conditions() == "lock objects: the server ignores conditions"


def test_conditions_go_with_what_creates_or_deletes_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[str, str]] = []

    def noting(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            asked = "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ
            if asked and environ["PATH_INFO"].endswith("/key"):
                query = environ["QUERY_STRING"].partition("=")[0]
                sent.append((environ["REQUEST_METHOD"], query))
            return application(environ, start_response)

        return call

    with s3servers.moto(around=noting) as url:
        for name, value in {**s3servers.KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        storage = connect("s3://noting", create=True)
        assert isinstance(storage, S3Storage)
        for size in (1, PART + 1):
            with storage.bucket.pool.condition(True, None):
                storage.bucket.put("key", io.BytesIO(bytes(size)), size, PART, None)
            entry = storage.head("key")
            assert entry
            storage.delete("key", if_match=entry.etag)
    assert sent == [("PUT", ""), ("DELETE", ""), ("POST", "uploadId"), ("DELETE", "")]


def test_writers_race_once_a_day_or_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[str] = []

    def counting(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if "/.podium/probe-" in environ["PATH_INFO"]:
                probes.append(environ["REQUEST_METHOD"])
            return application(environ, start_response)

        return call

    def write(key: str) -> int:
        monkeypatch.setattr(conditional, "_seen", {})  # as another process
        connect("s3://once", create=True).put(key, b"", if_absent=True)
        return len(probes)

    with s3servers.moto(around=counting) as url:
        for name, value in {**s3servers.KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        raced = write("a")
        assert raced == 3 + 3 * (1 + 16 + 16) + 1
        assert write("b") == raced
        monkeypatch.setattr(conditional, "_REMEMBERED", timedelta(0))
        assert write("c") == 2 * raced
        list(check(connect("s3://once")))
        assert len(probes) > 3 * raced


def test_writers_that_fail_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    let_in: set[str] = set()
    guard = threading.Lock()

    def overloaded(application: s3servers.Application) -> s3servers.Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            asked = environ.get("HTTP_IF_NONE_MATCH") or environ.get("HTTP_IF_MATCH") or ""
            is_race = asked and environ.get("CONTENT_LENGTH") == "16"
            with guard:
                if environ["REQUEST_METHOD"] == "DELETE":
                    let_in.clear()
                refused = is_race and asked in let_in
                let_in.update([asked] if is_race else [])
            if refused:
                start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
                return [b""]
            return application(environ, start_response)

        return call

    monkeypatch.setattr(conditional, "_seen", {})
    with s3servers.moto(around=overloaded) as url:
        for name, value in {**s3servers.KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        storage = connect("s3://overloaded", create=True)
        with pytest.raises(PodiumError):
            storage.put("a", b"", if_absent=True)
        assert isinstance(storage, S3Storage)
        assert not list(storage.bucket.objects(".podium/conditions/")), "nothing is remembered"
