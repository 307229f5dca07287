"""Verifying, collecting garbage, retiring and removing versions."""

import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from podium.errors import Conflict, NotFound
from podium.registry import Registry, open_registry
from podium.storage import Storage

NOW = timedelta(0)
DAY = timedelta(days=1)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Four versions; b is champion after a."""
    registry = open_registry(tmp_path / "store")
    for version in "abcd":
        registry.upload("mnist", {"model.onnx": version.encode() * 100, "extra.json": b"{}"}, {"run_id": version})
    registry.promote("mnist", "a", {}, expect=None)
    registry.promote("mnist", "b", {}, expect="a")
    return registry


def everything(registry: Registry) -> dict[str, bytes]:
    return {entry.key: registry.storage.get(entry.key) for entry in registry.storage.list()}


def age(registry: Registry, prefix: str, hours: float = 48) -> None:
    """Make files as old as if they had been written then."""
    for entry in registry.storage.list(prefix):
        then = time.time() - hours * 3600
        os.utime(registry.storage.root / entry.key, (then, then))  # type: ignore[attr-defined]


class Killed(BaseException):
    """Stands for the process ending between two steps."""


class Dying:
    """A storage whose process dies before its nth change."""

    def __init__(self, storage: Storage, changes: int) -> None:
        self._storage, self._left = storage, changes

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def _count(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def put(self, *args: object, **options: object) -> object:
        self._count()
        return self._storage.put(*args, **options)  # type: ignore[arg-type]

    def delete(self, key: str, **options: str | None) -> None:
        self._count()
        self._storage.delete(key, **options)


def test_a_sound_registry_verifies_without_findings(registry: Registry) -> None:
    read: list[int] = []
    assert list(registry.verify("mnist", read.append)) == []
    assert sorted(read) == [2, 2, 2, 2, 100, 100, 100, 100]


@pytest.mark.parametrize(
    ("key", "content", "words"),
    [
        ("versions/a/model.onnx", b"a" * 99 + b"b", "sha256"),
        ("versions/a/model.onnx", None, "missing"),
        ("versions/c/metadata.json", b"{}", "checksum"),
        ("versions/a/stranger", b"", "not part of"),
        ("aliases/champion.json", b"{}", "checksum"),
        ("versions/b/metadata.json", None, "points at b"),
    ],
)
def test_each_kind_of_damage_is_found_where_it_is(
    registry: Registry, key: str, content: bytes | None, words: str
) -> None:
    if content is None:
        registry.storage.delete(f"models/mnist/{key}")
    else:
        registry.storage.put(f"models/mnist/{key}", content)
    findings = list(registry.verify("mnist"))
    (finding,) = [one for one in findings if words in one.what]
    assert finding.where == ("models/mnist/aliases/champion.json" if words == "points at b" else f"models/mnist/{key}")


def test_a_lost_move_in_the_history_is_found(registry: Registry) -> None:
    first = registry.history("mnist")[0]
    registry.storage.delete(first.key)
    assert [finding.what for finding in registry.verify("mnist")] == ["moves of champion are missing: [1]"]


def test_an_index_that_lies_is_found(registry: Registry) -> None:
    registry.versions("mnist")
    key = "models/mnist/index.json"
    registry.storage.put(key, registry.storage.get(key).replace(b'"size":102', b'"size":103', 1))
    (finding,) = registry.verify("mnist")
    assert finding.where == key


def test_an_unfinished_upload_is_garbage_after_the_grace_period_only(registry: Registry) -> None:
    registry.storage.put("models/mnist/versions/half/model.onnx", b"x" * 10)
    assert registry.gc("mnist") == []
    age(registry, "models/mnist/versions/half")
    (found,) = registry.gc("mnist")
    assert (found.version, found.why, found.size) == ("half", "unfinished upload", 10)
    assert registry.storage.head("models/mnist/versions/half/model.onnx"), "a dry run deletes nothing"
    registry.gc("mnist", delete=True)
    assert list(registry.storage.list("models/mnist/versions/half")) == []


def test_collecting_never_touches_a_complete_version(registry: Registry) -> None:
    age(registry, "models/")
    before = everything(registry)
    assert registry.gc("mnist", grace=NOW, delete=True) == []
    assert everything(registry) == before


def test_an_upload_that_goes_on_while_it_is_collected_stays(registry: Registry) -> None:
    registry.storage.put("models/mnist/versions/half/model.onnx", b"x")
    age(registry, "models/mnist/versions/half")

    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            registry.storage.put("models/mnist/versions/half/model.onnx", b"x")  # its uploader came back
            return super().put(*args, **options)

    assert Registry(Racing(registry.storage, 99)).gc("mnist", delete=True) == []  # type: ignore[arg-type]
    keys = [entry.key for entry in registry.storage.list("models/mnist/versions/half")]
    assert keys == ["models/mnist/versions/half/model.onnx"]


def test_a_temporary_file_of_a_killed_writer_is_collected(registry: Registry) -> None:
    root = registry.storage.root  # type: ignore[attr-defined]
    left = root / "models/mnist/versions/a/.podium-0123.tmp"
    left.write_bytes(b"half")
    assert registry.gc("mnist") == []
    then = time.time() - 48 * 3600
    os.utime(left, (then, then))
    assert [found.why for found in registry.gc("mnist", delete=True)] == ["interrupted write"]
    assert not left.exists()
    assert list(registry.verify("mnist")) == []


def test_removing_a_version_leaves_a_record_and_nothing_else(registry: Registry) -> None:
    registry.versions("mnist")
    record = registry.remove("mnist", "c", reason="never used")
    assert list(registry.storage.list("models/mnist/versions/c")) == []
    assert [one.version for one in registry.versions("mnist")] == ["a", "b", "d"]
    assert registry.history("mnist")[-1] == record
    assert (record.event, record.evidence["reason"]) == ("deletion", "never used")
    assert list(registry.verify("mnist")) == []


@pytest.mark.parametrize("version", ["a", "b"])
def test_the_champion_and_where_it_would_roll_back_to_cannot_be_removed(registry: Registry, version: str) -> None:
    before = everything(registry)
    with pytest.raises(Conflict, match="needed by an alias"):
        registry.remove("mnist", version)
    assert everything(registry) == before


@pytest.mark.parametrize("changes", range(7))
def test_a_removal_killed_at_any_step_is_finished_by_the_next_collection(registry: Registry, changes: int) -> None:
    registry.versions("mnist")
    with suppress(Killed):
        Registry(Dying(registry.storage, changes)).remove("mnist", "c")  # type: ignore[arg-type]
    begun = changes > 0
    if begun:
        with pytest.raises(NotFound):
            registry.resolve("mnist", "c")
    registry.gc("mnist", grace=NOW, delete=True)
    assert [one.version for one in registry.versions("mnist")] == (["a", "b", "d"] if begun else ["a", "b", "c", "d"])
    assert [event.version for event in registry.history("mnist") if event.event == "deletion"] == (
        ["c"] if begun else []
    )
    assert list(registry.verify("mnist")) == []


def test_a_version_promoted_while_it_is_removed_stays(registry: Registry) -> None:
    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            if self._left == 5:  # just before the tombstone is written
                registry.promote("mnist", "c", {}, expect="b")
            return super().put(*args, **options)

    with pytest.raises(Conflict):
        Registry(Racing(registry.storage, 5)).remove("mnist", "c")  # type: ignore[arg-type]
    assert registry.resolve("mnist").version == "c"
    assert list(registry.verify("mnist")) == []


def test_a_promotion_to_a_version_that_is_just_removed_is_undone(registry: Registry) -> None:
    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            if self._left == 9:
                registry.remove("mnist", "c")
            return super().put(*args, **options)

    with pytest.raises(NotFound, match="being deleted"):
        Registry(Racing(registry.storage, 9)).promote("mnist", "c", {}, expect="b")  # type: ignore[arg-type]
    assert registry.resolve("mnist").version == "b"
    assert list(registry.verify("mnist")) == []
    assert registry.rollback("mnist").version == "a"


def test_retiring_keeps_the_newest_and_everything_an_alias_needs(registry: Registry) -> None:
    registry.alias("mnist", "staging", "c")
    registry.upload("mnist", {"model.onnx": b"e"}, {"run_id": "e"})
    registry.upload("mnist", {"model.onnx": b"f"}, {"run_id": "f"})
    assert registry.retire("mnist", keep=1) == [], "all are young"
    assert [found.version for found in registry.retire("mnist", keep=1, grace=NOW)] == ["d", "e"]
    assert len(registry.versions("mnist")) == 6, "a dry run deletes nothing"
    assert [found.version for found in registry.retire("mnist", keep=2, grace=NOW, delete=True)] == ["d"]
    assert [one.version for one in registry.versions("mnist")] == ["a", "b", "c", "e", "f"]
    assert registry.rollback("mnist").version == "a"


def test_what_left_an_alias_in_the_grace_period_is_not_retired(registry: Registry) -> None:
    for version, before in (("c", "b"), ("d", "c")):
        registry.promote("mnist", version, {}, expect=before)
    registry.upload("mnist", {"model.onnx": b"e"}, {"run_id": "e"})
    assert registry.retire("mnist", keep=1, grace=timedelta(minutes=1)) == []
    assert [found.version for found in registry.retire("mnist", keep=1, grace=NOW)] == ["a", "b"]


def test_collecting_never_reaches_behind_a_link(registry: Registry, tmp_path: Path) -> None:
    root = registry.storage.root  # type: ignore[attr-defined]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").write_bytes(b"theirs")
    half = root / "models/mnist/versions/half"
    half.mkdir()
    (half / "model.onnx").write_bytes(b"m")
    (half / "folder").symlink_to(outside)
    (half / "file").symlink_to(outside / "theirs")
    (root / "models/mnist/versions/whole").symlink_to(outside)
    (root / "models/linked").symlink_to(outside)
    age(registry, "models/mnist/versions/half")
    assert [found.version for found in registry.gc("mnist", grace=NOW, delete=True)] == ["half"]
    assert (outside / "theirs").read_bytes() == b"theirs"
    assert registry.models() == ["mnist"]
    assert [finding.where for finding in registry.verify("mnist") if "symbolic link" in finding.what] == [
        "models/mnist/versions/half/file", "models/mnist/versions/half/folder", "models/mnist/versions/whole",
    ]  # fmt: skip


@pytest.mark.parametrize("file", ["model.onnx", "metadata.json"])
def test_a_collector_asleep_before_a_deletion_deletes_nothing_new(registry: Registry, file: str) -> None:
    registry.storage.put("models/mnist/versions/half/model.onnx", b"model")
    age(registry, "models/mnist/versions/half")

    class Sleepy(Dying):
        def delete(self, key: str, **options: str | None) -> None:
            if key.endswith(file):
                registry.gc("mnist", grace=NOW, delete=True)
                registry.upload("mnist", {"model.onnx": b"model"}, {}, "half")
                registry.promote("mnist", "half", {}, expect="b")
            super().delete(key, **options)

    assert Registry(Sleepy(registry.storage, 99)).gc("mnist", delete=True) == []  # type: ignore[arg-type]
    assert registry.resolve("mnist").version == "half"
    assert list(registry.verify("mnist")) == []
