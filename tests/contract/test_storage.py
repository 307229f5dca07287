"""What every storage does, whatever its URL: run over a directory and over real S3 servers."""

import hashlib
import io
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from podium.errors import Conflict, InvalidInput, NotFound
from podium.storage import Storage, connect
from podium.storage.base import SourceChanged
from podium.storage.files import FileStorage
from podium.storage.s3.storage import S3Storage


def test_what_was_put_is_what_one_gets(storage: Storage) -> None:
    storage.put("a/b.bin", b"\x00\xff" * 1000)
    assert storage.get("a/b.bin") == b"\x00\xff" * 1000


def test_progress_is_reported_of_bytes_as_of_files(storage: Storage) -> None:
    moved: list[int] = []
    storage.put("key", b"x" * 1000, progress=moved.append)
    assert sum(moved) == 1000


def test_an_empty_object_is_an_object(storage: Storage) -> None:
    storage.put("empty", b"")
    assert storage.get("empty") == b""
    assert storage.head("empty").size == 0  # type: ignore[union-attr]


def test_a_file_travels_there_and_back(storage: Storage, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "deep" / "out"
    source.write_bytes(bytes(range(256)) * 4096)
    moved: list[int] = []
    entry = storage.put("file", source, progress=moved.append)
    assert entry.size == sum(moved) == 1 << 20
    moved.clear()
    assert storage.fetch("file", target, progress=moved.append).etag == entry.etag
    assert sum(moved) == 1 << 20
    assert target.read_bytes() == source.read_bytes()


def test_a_file_of_many_parts_travels_there_and_back(storage: Storage, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    block = hashlib.sha256(b"seed").digest() * 32768
    source.write_bytes(b"".join(bytes([i]) + block for i in range(21)))
    entry = storage.put("big", source)
    assert entry.size == source.stat().st_size
    assert storage.fetch("big", target).etag == entry.etag
    assert target.read_bytes() == source.read_bytes()


def test_fetching_replaces_an_older_file_and_leaves_nothing_beside_it(
    storage: Storage, tmp_path: Path
) -> None:
    (tmp_path / "out").write_bytes(b"older and longer")
    storage.put("key", b"new")
    storage.fetch("key", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out"]


def test_an_object_that_stands_for_a_folder_is_not_listed(storage: Storage) -> None:
    storage.put("a/b", b"1")
    if isinstance(
        storage, S3Storage
    ):  # as consoles make it; a directory of the file store is one already
        storage.bucket.client.put_object(
            storage.bucket.name, storage.bucket._full("a/c/"), io.BytesIO(), 0
        )
    assert [entry.key for entry in storage.list("a/")] == ["a/b"]


def test_a_missing_key_is_not_found(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no/such"):
        storage.get("no/such")
    with pytest.raises(NotFound, match="no/such"):
        storage.fetch("no/such", tmp_path / "out")
    assert storage.head("no/such") is None
    assert not (tmp_path / "out").exists()


def test_a_prefix_of_other_keys_is_not_an_object(storage: Storage) -> None:
    storage.put("a/b/c", b"1")
    assert storage.head("a/b") is None
    with pytest.raises(NotFound):
        storage.get("a/b")
    storage.delete("a/b")
    assert storage.get("a/b/c") == b"1"


def test_head_agrees_with_put_and_list(storage: Storage) -> None:
    entry = storage.put("x/y", b"123")
    assert storage.head("x/y").etag == entry.etag  # type: ignore[union-attr]
    (listed,) = storage.list("x/")
    assert (listed.key, listed.size, listed.etag) == ("x/y", 3, entry.etag)
    assert listed.modified.tzinfo is not None


def test_reading_gives_the_etag_that_putting_gave(storage: Storage) -> None:
    entry = storage.put("x", b"1")
    content, seen = storage.read("x")
    assert (content, seen.etag, seen.size) == (b"1", entry.etag, 1)


def test_the_etag_changes_with_the_content(storage: Storage) -> None:
    seen = [storage.put("k", bytes([i % 7, i])).etag for i in range(20)]
    assert len(set(seen)) == 20


def test_listing_goes_by_string_prefix_in_key_order(storage: Storage) -> None:
    keys = ["a", "b-c", "b/c", "b/c-d", "b/c.d/e", "b0", "bé/ü", "c/x"]
    for key in reversed(keys):
        if key != "b/c":
            storage.put(key, key.encode())
    expected = sorted(key for key in keys if key != "b/c")
    assert [entry.key for entry in storage.list()] == expected
    assert [entry.key for entry in storage.list("b")] == [
        key for key in expected if key.startswith("b")
    ]
    assert [entry.key for entry in storage.list("b/c")] == ["b/c-d", "b/c.d/e"]
    assert list(storage.list("zzz")) == []


def test_children_are_the_next_names_only(storage: Storage) -> None:
    for key in ["m/v/1/x", "m/v/1/y/z", "m/v/2/x", "m/v/file", "m/other"]:
        storage.put(key, b"")
    assert list(storage.children("m/v")) == ["1", "2"]
    assert list(storage.children("m")) == ["v"]
    assert list(storage.children("")) == ["m"]
    assert list(storage.children("none")) == []


def test_deleting_is_final_and_can_be_repeated(storage: Storage) -> None:
    storage.put("a/b", b"1")
    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("never/was")
    assert storage.head("a/b") is None
    assert list(storage.list()) == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a//b",
        "a/",
        "../a",
        "a/../b",
        "./a",
        "a\nb",
        "a\\b",
        ".podium-x",
        "k" * 901,
        "\udcff",
    ],
)
def test_a_key_that_one_storage_cannot_hold_is_refused_everywhere(
    storage: Storage, key: str
) -> None:
    for ask in (lambda key: storage.put(key, b""), storage.get, storage.head, storage.delete):
        with pytest.raises(InvalidInput, match="a key is a relative path"):
            ask(key)


@pytest.mark.parametrize(
    "key", ["with space", "a+b", "50%", "q?x=1&y", "#hash", "ünï/кот", "a=b,c;d", "~t(1)'!*"]
)
def test_unusual_characters_survive(storage: Storage, key: str) -> None:
    storage.put(key, b"1")
    assert storage.get(key) == b"1"
    assert [entry.key for entry in storage.list()] == [key]
    storage.delete(key)
    assert storage.head(key) is None


def test_if_absent_writes_once(storage: Storage) -> None:
    storage.put("lock", b"first", if_absent=True)
    with pytest.raises(Conflict, match="lock"):
        storage.put("lock", b"second", if_absent=True)
    assert storage.get("lock") == b"first"


def test_if_absent_holds_for_files_of_many_parts_too(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"x" * (9 << 20))
    storage.put("big", b"first")
    with pytest.raises(Conflict):
        storage.put("big", source, if_absent=True)
    assert storage.get("big") == b"first"


def test_if_match_holds_for_files_of_many_parts_too(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"x" * (9 << 20))
    first = storage.put("big", b"first")
    second = storage.put("big", b"second")
    with pytest.raises(Conflict):
        storage.put("big", source, if_match=first.etag)
    assert storage.get("big") == b"second"
    storage.put("big", source, if_match=second.etag)
    assert storage.get("big") == source.read_bytes()


def test_if_match_writes_only_over_what_was_seen(storage: Storage) -> None:
    first = storage.put("pointer", b"1")
    second = storage.put("pointer", b"2", if_match=first.etag)
    with pytest.raises(Conflict):
        storage.put("pointer", b"3", if_match=first.etag)
    assert storage.get("pointer") == b"2"
    storage.put("pointer", b"4", if_match=second.etag)
    storage.delete("pointer")
    with pytest.raises(Conflict):
        storage.put("pointer", b"5", if_match=second.etag)
    assert storage.head("pointer") is None


def test_one_of_many_threads_wins_if_absent(storage: Storage) -> None:
    def attempt(number: int) -> int | None:
        try:
            storage.put("race", str(number).encode(), if_absent=True)
        except Conflict:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(attempt, range(16)) if number is not None]
    assert len(winners) == 1
    assert storage.get("race") == str(winners[0]).encode()


def test_one_of_many_threads_wins_with_files_in_parts(storage: Storage, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"big-{number}").write_bytes(bytes([number]) * (9 << 20))

    def attempt(number: int) -> int | None:
        try:
            storage.put("race", tmp_path / f"big-{number}", if_absent=True)
        except Conflict:
            return None
        return number

    with ThreadPoolExecutor(3) as pool:
        winners = [number for number in pool.map(attempt, range(3)) if number is not None]
    assert len(winners) == 1
    assert storage.get("race") == bytes(winners) * (9 << 20)


def _count(url: str, environ: dict[str, str], times: int) -> None:
    os.environ.update(environ)
    storage = connect(url)
    for _ in range(times):
        while True:
            content, entry = storage.read("counter")
            try:
                storage.put("counter", str(int(content) + 1).encode(), if_match=entry.etag)
                break
            except Conflict:
                continue


def test_processes_counting_with_if_match_lose_no_step(storage: Storage) -> None:
    storage.put("counter", b"0")
    spawn = multiprocessing.get_context("forkserver")
    processes = [
        spawn.Process(target=_count, args=(storage.url, dict(os.environ), 4)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert storage.get("counter") == b"12"


def test_a_reader_beside_a_writer_sees_whole_objects_only(storage: Storage) -> None:
    contents = [bytes([i]) * 200_000 for i in range(8)]
    storage.put("key", contents[0])

    def write() -> None:
        for _ in range(3):
            for content in contents:
                storage.put("key", content)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        reads = 0
        while not writing.done() or reads < 3:
            assert storage.get("key") in contents
            reads += 1
        writing.result()


def _die_in_the_middle(url: str, environ: dict[str, str], source: Path) -> None:
    os.environ.update(environ)
    seen = [0]

    def moved(count: int) -> None:
        seen[0] += count
        if seen[0] > 8 << 20:  # in the second part
            os.kill(os.getpid(), signal.SIGKILL)

    connect(url).put("deep/key", source, progress=moved)


def _soon() -> datetime:
    """Servers tell times in whole seconds."""
    return datetime.now(UTC) + timedelta(seconds=2)


def _uploads(storage: Storage, key: str) -> list[str]:
    """Return the ids of the unfinished uploads that the server itself knows of; minio-py lists them only so."""
    if not isinstance(storage, S3Storage):
        return []
    name = f"{storage.bucket.prefix}/{key}".lstrip("/")
    listed = storage.bucket.client._list_multipart_uploads(
        bucket_name=storage.bucket.name, prefix=name
    )
    return [upload.upload_id for upload in listed.uploads if upload.upload_id]


def test_sweeping_leaves_the_lock_of_a_writer(storage: Storage) -> None:
    if not isinstance(storage, S3Storage):
        pytest.skip("the kernel holds the locks of files")
    storage.bucket.put(".podium/locks/key/ticket", io.BytesIO(b"1"), 1, 8 << 20, None)
    assert list(storage.sweep("", _soon(), delete=True)) == []


def test_a_killed_writer_leaves_no_object_and_sweep_cleans_up(
    storage: Storage, tmp_path: Path
) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"x" * (9 << 20))
    storage.put("deep/key", b"before")
    process = multiprocessing.get_context("forkserver").Process(
        target=_die_in_the_middle, args=(storage.url, dict(os.environ), source)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert storage.get("deep/key") == b"before"
    assert [entry.key for entry in storage.list()] == ["deep/key"]
    assert list(storage.sweep("elsewhere", _soon(), delete=True)) == []
    (left,) = storage.sweep("deep", _soon(), delete=False)
    assert len(_uploads(storage, "deep/key")) == isinstance(storage, S3Storage)
    assert [entry.key for entry in storage.sweep("deep", _soon(), delete=True)] == [left.key]
    assert _uploads(storage, "deep/key") == []
    assert list(storage.sweep("", _soon(), delete=False)) == []
    assert storage.get("deep/key") == b"before"


def test_a_prefix_is_a_storage_of_its_own(
    storage: Storage, reopen: Callable[[str], Storage]
) -> None:
    storage.put("runs/1/model", b"m")
    inner = reopen(storage.join("runs/1"))
    assert inner.get("model") == b"m"
    inner.put("more", b"x")
    assert [entry.key for entry in inner.list()] == ["model", "more"]
    assert storage.get("runs/1/more") == b"x"


def test_a_limited_read_stops_there_but_knows_the_size(storage: Storage) -> None:
    whole = storage.put("long", b"0123456789")
    assert storage.read("long", limit=4)[0] == b"0123"
    assert storage.read("long", limit=4)[1].size == 10
    assert storage.read("long", limit=4)[1].etag == whole.etag
    assert storage.get("long", limit=99) == b"0123456789"


def test_if_match_deletes_only_what_was_seen(storage: Storage) -> None:
    first = storage.put("key", b"1")
    second = storage.put("key", b"2")
    with pytest.raises(Conflict):
        storage.delete("key", if_match=first.etag)
    assert storage.get("key") == b"2"
    storage.delete("key", if_match=second.etag)
    storage.delete("key", if_match=second.etag)
    assert storage.head("key") is None


def test_reading_many_tells_which_one_is_missing(storage: Storage) -> None:
    storage.put("a", b"1")
    found = dict(storage.get_many(["a", "b"]))
    assert found["a"] == b"1"
    assert isinstance(found["b"], NotFound)


LARGE = hashlib.sha256(b"seed").digest() * (9 << 15)


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
def test_a_copy_has_the_bytes_of_its_source(
    storage: Storage, reopen: Callable[[str], Storage], content: bytes, tmp_path: Path
) -> None:
    source = storage.put("from/a b", content)
    assert storage.copy("to/ü", storage, "from/a b").size == len(content)
    copied = reopen(storage.join("deep/er")).copy(
        "c", reopen(storage.join("from")), "a b", source_etag=source.etag
    )
    assert storage.head("deep/er/c").etag == copied.etag  # type: ignore[union-attr]
    other = connect(tmp_path / "another")
    other.copy("out", storage, "from/a b", source_etag=source.etag)
    storage.copy("back", other, "out", if_absent=True)
    assert [storage.get(key) for key in ("to/ü", "deep/er/c", "back", "from/a b")] == [content] * 4
    assert other.get("out") == content
    assert list(storage.sweep("", _soon(), delete=False)) == []


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_a_copy_leaves_what_it_must_not_replace(storage: Storage, content: bytes) -> None:
    source = storage.put("source", content)
    storage.copy("key", storage, "source", if_absent=True, source_etag=source.etag)
    storage.put("key", b"another")
    with pytest.raises(Conflict, match="key"):
        storage.copy("key", storage, "source", if_absent=True, source_etag=source.etag)
    assert storage.get("key") == b"another"
    storage.copy("key", storage, "source")
    assert storage.get("key") == content


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_a_changed_source_is_not_copied(storage: Storage, content: bytes) -> None:
    first = storage.put("source", content)
    storage.put("source", content[::-1])
    with pytest.raises(SourceChanged, match="source changed"):
        storage.copy("key", storage, "source", source_etag=first.etag)
    with pytest.raises(NotFound, match="no/such"):
        storage.copy("key", storage, "no/such")
    assert storage.head("key") is None


def test_a_copy_does_not_change_with_its_source(storage: Storage) -> None:
    storage.put("source", LARGE)
    storage.copy("key", storage, "source")
    if isinstance(storage, FileStorage):
        with (storage.root / "source").open("r+b") as file:  # as a trainer that writes in place
            file.write(b"changed")
    storage.put("source", b"changed")
    assert storage.get("key") == LARGE
    storage.delete("source")
    assert storage.get("key") == LARGE


def test_one_of_many_threads_wins_copying(storage: Storage) -> None:
    for number in range(3):
        storage.put(f"source-{number}", bytes([number]) + LARGE)

    def attempt(number: int) -> int | None:
        try:
            storage.copy("race", storage, f"source-{number}", if_absent=True)
        except Conflict:
            return None
        return number

    with ThreadPoolExecutor(3) as pool:
        winners = [number for number in pool.map(attempt, range(3)) if number is not None]
    assert len(winners) == 1
    assert storage.get("race") == bytes(winners) + LARGE
