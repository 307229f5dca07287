"""Sources are tried with a small dataset of our own: known by its checksums, served by a real HTTP server."""

import ast
import contextlib
import importlib.util
import logging
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from small_dataset import CONTENT, Serve, packed, send

from podium.data.option_text import options_as
from podium.data.sources import mnist
from podium.data.sources.known import DATASETS, FILES, Known, known_dataset
from podium.errors import Damaged, Failed, InvalidInput, NotFound


def test_a_given_directory_is_used_in_every_layout(
    known: Known, folder: Path, tmp_path: Path
) -> None:
    assert mnist._fetch(known, cache=tmp_path / "cache", source=str(folder)).files == CONTENT
    raw = tmp_path / "root" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, data in CONTENT.items():
        (raw / name).write_bytes(data)
    found = mnist._fetch(known, cache=tmp_path / "cache", source=f"file://{tmp_path}/root")
    assert found.files == CONTENT
    assert found.array(FILES[0]).shape == (200, 28, 28)


def test_a_given_source_is_the_only_one_asked(known: Known, folder: Path, tmp_path: Path) -> None:
    mnist._fill(
        tmp_path / "cache" / "datasets" / "small", mnist._Fetched(files=CONTENT, source="before")
    )
    (folder / f"{FILES[2]}.gz").unlink()
    with pytest.raises(NotFound) as caught:
        mnist._fetch(known, cache=tmp_path / "cache", source=str(folder))
    assert f"there is no {FILES[2]}" in str(caught.value)
    assert "--source DIRECTORY" in str(caught.value)
    with options_as({}), pytest.raises(NotFound) as caught:
        mnist._fetch(known, cache=tmp_path / "cache", source=str(folder))
    assert ": source=DIRECTORY" in str(caught.value), "a run has parameters, not flags"


def test_a_wrong_checksum_is_refused(known: Known, folder: Path, tmp_path: Path) -> None:
    wrong = bytearray(CONTENT[FILES[1]])
    wrong[-1] ^= 1
    (folder / FILES[1]).write_bytes(wrong)
    with pytest.raises(Damaged, match=f"{FILES[1]} has the wrong checksum"):
        mnist._fetch(known, cache=tmp_path / "cache", source=str(folder))


def test_a_mirror_fills_the_cache_and_is_not_asked_again(
    known: Known, serve: Serve, tmp_path: Path
) -> None:
    asked: list[str] = []
    url = serve(lambda request: (asked.append(request.path), send(request, packed(request)))[1])  # type: ignore[func-returns-value]
    known = replace(known, mirrors=(url,))
    assert mnist._fetch(known, cache=tmp_path).source == url
    assert mnist._fetch(known, cache=tmp_path) == mnist._Fetched(files=CONTENT, source="the cache")
    assert asked == [f"/data/{name}.gz" for name in FILES]
    assert sorted(path.name for path in (tmp_path / "datasets" / "small").iterdir()) == sorted(
        FILES
    )


def test_a_damaged_cache_is_fetched_again_and_said(
    known: Known, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = serve(lambda request: send(request, packed(request)))
    known = replace(known, mirrors=(url,))
    mnist._fetch(known, cache=tmp_path)
    cached = tmp_path / "datasets" / "small" / FILES[0]
    cached.write_bytes(cached.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING):
        assert mnist._fetch(known, cache=tmp_path).source == url
    assert "is truncated" in caplog.text
    assert mnist._fetch(known, cache=tmp_path).source == "the cache"


def test_the_next_mirror_is_asked_when_one_truncates(
    known: Known, serve: Serve, tmp_path: Path
) -> None:
    bad = serve(lambda request: send(request, packed(request)[:1000], announced=99999))
    good = serve(lambda request: send(request, packed(request)))
    known = replace(known, mirrors=(bad, good))
    assert mnist._fetch(known, cache=tmp_path).source == good


def test_when_nothing_works_every_source_is_named_with_its_reason(
    known: Known, serve: Serve, tmp_path: Path
) -> None:
    mirrors = {
        "1000 of 99999 bytes arrived": serve(
            lambda request: send(request, packed(request)[:1000], announced=99999)
        ),
        "bad idx header": serve(
            lambda request: send(request, b"<html>Welcome to this hotel's WiFi</html>")
        ),
        "answers 403 Forbidden": serve(lambda request: request.send_error(403)),
        "cannot be reached": "http://127.0.0.1:9/data",
    }
    known = replace(known, mirrors=tuple(mirrors.values()))
    with pytest.raises(Failed) as caught:
        mnist._fetch(known, cache=tmp_path / "cache")
    lines = str(caught.value).splitlines()
    assert "the cache: there is no train-images-idx3-ubyte" in lines[1]
    for line, (reason, url) in zip(lines[2:], mirrors.items(), strict=False):
        assert url in line
        assert reason in line
    assert lines[-1].startswith("hint: download train-images-idx3-ubyte")
    assert list(tmp_path.iterdir()) == []


def test_a_silent_mirror_costs_seconds(
    known: Known, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def keep_silent(_: BaseHTTPRequestHandler) -> None:
        over.wait(30)

    url = serve(keep_silent)
    monkeypatch.setattr(mnist, "CONNECT_SECONDS", 0.2)
    with pytest.raises(
        Failed, match=r"cannot be reached: (timed out|The read operation timed out)"
    ):
        mnist._named(url)(FILES[0], Path())
    over.set()


def test_a_read_only_cache_is_reported_and_does_no_harm(
    known: Known, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = serve(lambda request: send(request, packed(request)))
    known = replace(known, mirrors=(url,))
    (tmp_path / "cache").write_text("a file where the directory should be")
    assert mnist._fetch(known, cache=tmp_path / "cache").files == CONTENT
    assert "could not be kept in the cache" in caplog.text


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_mirrors_are_those_of_torchvision(dataset: str) -> None:
    """Read from torchvision's text: importing it takes seconds."""
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).with_name("datasets").joinpath("mnist.py").read_text())
    name = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[dataset]
    (body,) = [
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name
    ]
    (mirrors,) = [
        ast.literal_eval(line.value) for line in body if ast.unparse(line).startswith("mirrors = ")
    ]  # type: ignore[attr-defined]
    assert known_dataset(dataset).mirrors == tuple(mirrors)


def test_an_unknown_dataset_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        InvalidInput, match=r"one of mnist, fashion-mnist.*\n.*did you mean fashion-mnist"
    ):
        known_dataset("fashon-mnist")


@pytest.mark.parametrize("announced", [None, 10**12])
def test_a_download_beyond_the_limit_is_cut_off(
    announced: int | None,
    known: Known,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if announced:
            request.send_header("Content-Length", str(announced))
        request.end_headers()
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(bytes(100_000))

    monkeypatch.setattr(mnist, "LARGEST", 1_000_000)
    with pytest.raises(Damaged, match="is larger than 1,000,000 bytes"):
        mnist._fetch(known, cache=tmp_path / "cache", source=serve(endless))
