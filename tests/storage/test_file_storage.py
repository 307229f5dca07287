"""What only a directory can do wrong."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from podium.errors import Conflict, Damaged, InvalidInput, PodiumError
from podium.storage import connect
from podium.storage.check import check


def test_every_spelling_of_a_directory_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a b%20#?"
    connect(target).put("key", b"1")
    monkeypatch.chdir(tmp_path)
    for url in (
        str(target),
        "a b%20#?",
        connect(target).url,
        f"file://localhost{connect(target).url[7:]}",
    ):
        assert connect(url).get("key") == b"1", url


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "file://host/dir", "s3:/bucket/x://", "gs://bucket", "s3:/bucket", "minio:x"],
)
def test_what_is_no_storage_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        connect(url)


def test_opening_a_storage_imports_nothing_heavy() -> None:
    script = "import sys, podium.storage as s; s.connect('x'); print({'minio', 'urllib3'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


def test_listing_what_does_not_exist_makes_nothing(tmp_path: Path) -> None:
    storage = connect(tmp_path / "none")
    assert list(storage.list()) == []
    storage.delete("a/b")
    assert not (tmp_path / "none").exists()


def test_conditions_hold_where_directories_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses to lock what is open for reading only."""
    flock: Callable[[int, int], None] = fcntl.flock

    def like_nfs(handle: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", like_nfs)
    storage = connect(tmp_path)

    def attempt(number: int) -> bool:
        try:
            storage.put("race", bytes([number]), if_absent=True)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1
    assert [entry.key for entry in storage.list()] == ["race"]


def test_a_file_below_an_object_is_refused_with_a_hint(tmp_path: Path) -> None:
    storage = connect(tmp_path)
    storage.put("a", b"1")
    with pytest.raises(PodiumError, match="cannot write a/b") as raised:
        storage.put("a/b", b"2")
    assert raised.value.hint
    assert storage.get("a") == b"1"


def test_a_missing_source_is_an_error_and_no_loop(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="cannot write key"):
        connect(tmp_path).put("key", tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    script = f"""if True:
        import resource, sys
        from podium.errors import PodiumError
        from podium.storage import connect
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            connect({str(tmp_path)!r}).put("deep/key", b"x" * 5000)
        except PodiumError as error:
            print(error.message)
    """
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert "cannot write deep/key" in said
    assert "File too large" in said
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PodiumError, match="Permission denied"):
        connect(tmp_path).put("key", b"")


def test_deleting_and_writing_the_same_directory_at_once_loses_nothing(tmp_path: Path) -> None:
    storage = connect(tmp_path)

    def churn(number: int) -> None:
        for _ in range(50):
            storage.put(f"deep/er/{number}", b"x")
            assert storage.get(f"deep/er/{number}") == b"x"
            storage.delete(f"deep/er/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", [False, True])
def test_the_last_delete_removes_the_directories_that_put_made(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "a").mkdir()
    storage = connect(tmp_path / "a" / "b")
    for _ in range(2):
        storage.put("deep/key", b"x")
        storage.put("other", b"x")
        storage.delete("deep/key")
        assert storage.get("other") == b"x"
        storage.delete("other")
        assert list(tmp_path.rglob("*")) == ([tmp_path / "a"] if there else [])


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of somebody else's beside the store, with links to it and into it below the store."""
    connect(tmp_path / "store").put("m/real", b"ours")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").write_bytes(b"theirs")
    (outside / ".podium-1.tmp").write_bytes(b"theirs")
    (tmp_path / "store/m/folder").symlink_to(outside)
    (tmp_path / "store/m/file").symlink_to(outside / "theirs")
    return outside


@pytest.mark.usefixtures("outside")
def test_listings_leave_links_out_and_name_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = connect(tmp_path / "store")
    for _ in range(2):
        assert [entry.key for entry in storage.list()] == ["m/real"]
        assert [entry.key for entry in storage.list("m/folder/")] == []
        assert list(storage.children("m")) == []
    assert list(storage.links()) == ["m/file", "m/folder"]
    assert sorted(record.args[0] for record in caplog.records) == ["m/file", "m/folder"]  # type: ignore[index]


def test_sweeping_stops_at_links_and_names_them(
    tmp_path: Path, outside: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=1)
    assert list(connect(tmp_path / "store").sweep("", later, delete=True)) == []
    assert list(connect(tmp_path / "store").sweep("m/folder", later, delete=True)) == []
    assert caplog.messages[-1].startswith("'m/folder' in ")
    assert (outside / ".podium-1.tmp").exists()


@pytest.mark.parametrize("key", ["m/file", "m/folder/theirs", "m/folder/new"])
def test_reading_and_writing_through_a_link_is_refused(
    tmp_path: Path, outside: Path, key: str
) -> None:
    storage = connect(tmp_path / "store")
    for attempt in (
        lambda: storage.get(key),
        lambda: storage.head(key),
        lambda: storage.fetch(key, tmp_path / "fetched"),
        lambda: storage.put(key, b"mine"),
        lambda: storage.put(key, b"mine", if_absent=True),
    ):
        with pytest.raises(Damaged, match="symbolic link"):
            attempt()
    assert sorted(path.name for path in outside.iterdir()) == [".podium-1.tmp", "theirs"]
    assert (outside / "theirs").read_bytes() == b"theirs"


def test_deleting_never_reaches_behind_a_link(tmp_path: Path, outside: Path) -> None:
    storage = connect(tmp_path / "store")
    with pytest.raises(Damaged, match="symbolic link"):
        storage.delete("m/folder/theirs")
    storage.delete("m/file")
    assert (outside / "theirs").read_bytes() == b"theirs"


def test_a_pipe_in_a_store_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Damaged, match="special file"):
        connect(tmp_path).get("pipe")
    assert list(connect(tmp_path).list()) == []


def test_a_store_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    connect(tmp_path / "store").put("a/b", b"1")
    assert [entry.key for entry in connect(tmp_path / "store").list()] == ["a/b"]


def test_an_acknowledged_write_has_reached_file_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync: Callable[[int], None] = os.fsync

    def observed(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)
        name = "file" if path.name.startswith(".podium-") else str(path.relative_to(tmp_path))
        synced.append((name, (tmp_path / "store/a/b/key").exists()))

    monkeypatch.setattr(os, "fsync", observed)
    connect(tmp_path / "store").put("a/b/key", b"1")
    # Each directory after the new name in it; the file's bytes before its name appears, and that name last.
    assert synced == [
        (".", False),
        ("store", False),
        ("store/a", False),
        ("file", False),
        ("store/a/b", True),
    ]


def test_a_difference_of_the_clocks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            written = [file.stat().st_mtime for file in tmp_path.rglob("*-clock")]
            return datetime.fromtimestamp(max(written, default=0.0), tz) + timedelta(seconds=10)

    monkeypatch.setattr("podium.storage.check.datetime", Later)
    found = {result.name: result.detail for result in check(connect(tmp_path))}
    assert found["clock"] == "differs by less than 11 s"
