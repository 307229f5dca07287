"""Verifying, collecting garbage, retiring and removing versions."""

import os
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from podium.errors import Conflict, Damaged, NotFound
from podium.models import Model, Record, Registry, open_registry
from podium.models.document import seal, unseal
from podium.storage import Storage

NOW = timedelta(0)
DAY = timedelta(days=1)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Four versions; b is champion after a."""
    model = open_registry(tmp_path / "store").model("mnist")
    for version in "abcd":
        model.upload(
            {"model.onnx": version.encode() * 100, "extra.json": b"{}"}, {"run_id": version}
        )
    model.set_champion("a", {}, expect=None)
    model.set_champion("b", {}, expect="a")
    return model


def everything(model: Model) -> dict[str, bytes]:
    return {entry.key: model.storage.get(entry.key) for entry in model.storage.list()}


def age(model: Model, prefix: str, hours: float = 48) -> None:
    """Make files as old as if they had been written then."""
    for entry in model.storage.list(prefix):
        then = time.time() - hours * 3600
        os.utime(model.storage.root / entry.key, (then, then))  # type: ignore[attr-defined]


def refuse_often(model: Model) -> None:
    """Write as many records as let the older of them move out of the document."""
    new = [Record.new("refusal", "mnist", "c", evidence={"number": n}) for n in range(149)]
    model.ledger.change(lambda state: replace(state, history=(*state.history, *new)))


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


def test_a_sound_registry_verifies_without_findings(model: Model) -> None:
    read: list[int] = []
    assert list(model.verify(read.append)) == []
    assert sorted(read) == [2, 2, 2, 2, 100, 100, 100, 100]


@pytest.mark.parametrize(
    ("key", "content", "words"),
    [
        ("versions/a/model.onnx", b"a" * 99 + b"b", "sha256"),
        ("versions/a/model.onnx", None, "missing"),
        ("versions/c/metadata.json", b"{}", "checksum"),
        ("versions/a/stranger", b"", "not part of"),
        ("versions/c/metadata.json", None, "is missing"),
        ("model.json", b"{}", "checksum"),
        ("model.json", None, "makes it anew"),
        ("versions/b/metadata.json", None, "points at b"),
    ],
)
def test_each_kind_of_damage_is_found_where_it_is(
    model: Model, key: str, content: bytes | None, words: str
) -> None:
    if content is None:
        model.storage.delete(f"models/mnist/{key}")
    else:
        model.storage.put(f"models/mnist/{key}", content)
    findings = list(model.verify())
    (finding,) = [finding for finding in findings if words in finding.what]
    assert finding.where == (
        "models/mnist/model.json" if words == "points at b" else f"models/mnist/{key}"
    )


def test_a_lost_part_of_the_history_is_found(model: Model) -> None:
    refuse_often(model)
    (lost,) = model.storage.list("models/mnist/history/")
    model.storage.delete(lost.key)
    again = Registry(model.storage).model("mnist")
    assert [(finding.where, finding.what) for finding in again.verify()] == [
        (lost.key, "is missing")
    ]
    assert again.retire(keep=1, grace=NOW, delete=True) == []
    assert len(again.records()) == 100
    assert again.rollback().version == "a"


def test_a_document_that_is_gone_is_made_anew(model: Model) -> None:
    refuse_often(model)
    before = model.records()
    for damage in (b"", b"[]", None):
        if damage is None:
            model.storage.delete(model.ledger.key)
            assert model.gc(grace=NOW, delete=True) == [], "nothing is garbage without it"
        else:
            model.storage.put(model.ledger.key, damage)
            with pytest.raises(Damaged, match=r"model\.json is damaged") as raised:
                model.promote("c")
            assert "podium models verify mnist --fix" in (raised.value.hint or "")
        again = Registry(model.storage).model("mnist")
        made, *added = again.repair()
        assert (made.where, len(added)) == (model.ledger.key, 4)
        assert "aliases are gone" in made.what
        assert "the last move in it: champion to b" in made.what
        assert list(again.verify()) == []
        assert [version.version for version in again.versions] == ["a", "b", "c", "d"]
        assert again.records() == before[:51]
        assert again.find_champion() is None
        assert again.repair() == []
    assert again.set_champion("b", {}, expect=None).sequence == 3
    assert again.rollback(to="a").version == "a"


def test_a_document_of_a_newer_podium_is_not_made_anew(model: Model) -> None:
    newer = seal(unseal(model.storage.get(model.ledger.key), "") | {"format": "podium.ledger/2"})
    model.storage.put(model.ledger.key, newer)
    assert model.repair() == model.gc(grace=NOW, delete=True) == []
    (finding,) = model.verify()
    assert "unknown format" in finding.what
    assert model.storage.get(model.ledger.key) == newer


def test_an_older_document_put_back_learns_its_versions_again(model: Model) -> None:
    older = model.storage.get(model.ledger.key)
    model.upload({"model.onnx": b"e"}, {"run_id": "e"})
    model.storage.put(model.ledger.key, older)
    (finding,) = model.verify()
    assert finding.where == "models/mnist/versions/e/metadata.json"
    assert model.gc(grace=NOW, delete=True) == []
    assert [done.what for done in model.repair()] == ["names the version e now"]
    assert list(model.verify()) == []


def test_an_unfinished_upload_is_garbage_after_the_grace_period_only(model: Model) -> None:
    model.storage.put("models/mnist/versions/half/model.onnx", b"x" * 10)
    assert model.gc() == []
    age(model, "models/mnist/versions/half")
    (found,) = model.gc()
    assert (found.version, found.why, found.size) == ("half", "unfinished upload", 10)
    assert model.storage.head("models/mnist/versions/half/model.onnx"), "a dry run deletes nothing"
    model.gc(delete=True)
    assert list(model.storage.list("models/mnist/versions/half")) == []


def test_collecting_never_touches_a_complete_version(model: Model) -> None:
    age(model, "models/")
    before = everything(model)
    assert model.gc(grace=NOW, delete=True) == []
    assert everything(model) == before


def test_an_upload_that_goes_on_while_it_is_collected_stays(model: Model) -> None:
    model.storage.put("models/mnist/versions/half/model.onnx", b"x")
    age(model, "models/mnist/versions/half")

    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            model.storage.put(
                "models/mnist/versions/half/model.onnx", b"x"
            )  # its uploader came back
            return super().put(*args, **options)

    assert Registry(Racing(model.storage, 99)).model("mnist").gc(delete=True) == []  # type: ignore[arg-type]
    keys = [entry.key for entry in model.storage.list("models/mnist/versions/half")]
    assert keys == ["models/mnist/versions/half/model.onnx"]


def test_a_temporary_file_of_a_killed_writer_is_collected(model: Model) -> None:
    root = model.storage.root  # type: ignore[attr-defined]
    left = root / "models/mnist/versions/a/.podium-0123.tmp"
    left.write_bytes(b"half")
    assert model.gc() == []
    then = time.time() - 48 * 3600
    os.utime(left, (then, then))
    assert [found.why for found in model.gc(delete=True)] == ["interrupted write"]
    assert not left.exists()
    assert list(model.verify()) == []


def test_removing_a_version_leaves_a_record_and_nothing_else(model: Model) -> None:
    record = model.delete("c", reason="never used")
    assert list(model.storage.list("models/mnist/versions/c")) == []
    assert [version.version for version in model.versions] == ["a", "b", "d"]
    assert model.records()[-1] == record
    assert (record.event, record.evidence["reason"]) == ("deletion", "never used")
    assert list(model.verify()) == []


@pytest.mark.parametrize("version", ["a", "b"])
def test_the_champion_and_its_predecessor_cannot_be_removed(model: Model, version: str) -> None:
    before = everything(model)
    with pytest.raises(Conflict, match="needed by an alias"):
        model.delete(version)
    assert everything(model) == before


@pytest.mark.parametrize("changes", range(7))
def test_a_killed_removal_is_finished_by_the_next_collection(model: Model, changes: int) -> None:
    with suppress(Killed):
        Registry(Dying(model.storage, changes)).model("mnist").delete("c")  # type: ignore[arg-type]
    begun = changes > 0
    if begun:
        with pytest.raises(NotFound):
            model.version("c")
    model.gc(grace=NOW, delete=True)
    assert [version.version for version in model.versions] == (
        ["a", "b", "d"] if begun else ["a", "b", "c", "d"]
    )
    assert [event.version for event in model.records() if event.event == "deletion"] == (
        ["c"] if begun else []
    )
    assert list(model.verify()) == []


def test_a_version_promoted_while_it_is_removed_stays(model: Model) -> None:
    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            if self._left == 5:  # just before the tombstone is written
                model.set_champion("c", {}, expect="b")
            return super().put(*args, **options)

    with pytest.raises(Conflict):
        Registry(Racing(model.storage, 5)).model("mnist").delete("c")  # type: ignore[arg-type]
    assert model.version().version == "c"
    assert list(model.verify()) == []


def test_a_promotion_to_a_vanishing_version_is_undone(model: Model) -> None:
    class Racing(Dying):
        def put(self, *args: object, **options: object) -> object:
            if self._left == 9:
                model.delete("c")
            return super().put(*args, **options)

    with pytest.raises(NotFound, match="being deleted"):
        Registry(Racing(model.storage, 9)).model("mnist").set_champion("c", {}, expect="b")  # type: ignore[arg-type]
    assert model.version().version == "b"
    assert list(model.verify()) == []
    assert model.rollback().version == "a"


def test_retiring_keeps_the_newest_and_everything_an_alias_needs(model: Model) -> None:
    model.alias("staging", "c")
    model.upload({"model.onnx": b"e"}, {"run_id": "e"})
    model.upload({"model.onnx": b"f"}, {"run_id": "f"})
    assert model.retire(keep=1) == [], "all are young"
    assert [found.version for found in model.retire(keep=1, grace=NOW)] == ["d", "e"]
    assert len(model.versions) == 6, "a dry run deletes nothing"
    assert [found.version for found in model.retire(keep=2, grace=NOW, delete=True)] == ["d"]
    assert [version.version for version in model.versions] == ["a", "b", "c", "e", "f"]
    assert model.rollback().version == "a"


@pytest.mark.parametrize("days", [-2, 2])
def test_the_newest_version_is_the_last_uploaded_whatever_clocks_say(
    model: Model, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    class Clock(datetime):
        """Of a host whose clock is wrong."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return super().now(tz) + timedelta(days=days)

    names = [version.version for version in model.versions]
    with monkeypatch.context() as wrong:
        wrong.setattr("podium.models.upload.datetime", Clock)
        model.upload({"model.onnx": b"e"}, {"run_id": "e"})
    model.upload({"model.onnx": b"f"}, {"run_id": "f"})
    assert [version.version for version in model.versions] == [*names, "e", "f"]
    assert {found.version for found in model.retire(keep=2, grace=NOW)} == {"c", "d"}


def test_a_rollback_may_be_to_an_alias(model: Model) -> None:
    model.set_champion("b", {}, expect="a")
    model.alias("trusted", "a")
    assert model.rollback("trusted").version == "a"


def test_a_version_recently_replaced_is_not_retired(model: Model) -> None:
    for version, before in (("c", "b"), ("d", "c")):
        model.set_champion(version, {}, expect=before)
    model.upload({"model.onnx": b"e"}, {"run_id": "e"})
    assert model.retire(keep=1, grace=timedelta(minutes=1)) == []
    assert [found.version for found in model.retire(keep=1, grace=NOW)] == ["a", "b"]


def test_collecting_never_reaches_behind_a_link(model: Model, tmp_path: Path) -> None:
    root = model.storage.root  # type: ignore[attr-defined]
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
    age(model, "models/mnist/versions/half")
    assert [found.version for found in model.gc(grace=NOW, delete=True)] == ["half"]
    assert (outside / "theirs").read_bytes() == b"theirs"
    assert list(Registry(model.storage)) == ["mnist"]
    assert [finding.where for finding in model.verify() if "symbolic link" in finding.what] == [
        "models/mnist/versions/half/file", "models/mnist/versions/half/folder", "models/mnist/versions/whole",
    ]  # fmt: skip


@pytest.mark.parametrize("file", ["model.onnx", "metadata.json"])
def test_a_collector_asleep_before_a_deletion_deletes_nothing_new(model: Model, file: str) -> None:
    model.upload({"model.onnx": b"model"}, {}, "half")
    with suppress(Killed):  # its metadata.json is the first to go
        dying = Registry(Dying(model.storage, 1 + (file == "model.onnx"))).model("mnist")  # type: ignore[arg-type]
        dying.delete("half")
    age(model, "models/mnist/versions/half")

    class Sleepy(Dying):
        def delete(self, key: str, **options: str | None) -> None:
            if key.endswith(file):
                model.gc(grace=NOW, delete=True)
                model.upload({"model.onnx": b"model"}, {}, "half")
                model.set_champion("half", {}, expect="b")
            super().delete(key, **options)

    assert Registry(Sleepy(model.storage, 99)).model("mnist").gc(delete=True) == []  # type: ignore[arg-type]
    assert model.version().version == "half"
    assert list(model.verify()) == []


def test_history_that_an_older_document_lacks_is_not_garbage(model: Model) -> None:
    older = model.storage.get(model.ledger.key)
    refuse_often(model)
    before = model.records()
    age(model, "models/mnist/history")
    model.storage.put(model.ledger.key, older)
    again = Registry(model.storage).model("mnist")
    (segment,) = model.storage.list("models/mnist/history/")
    assert [finding.where for finding in again.verify()] == [segment.key]
    assert again.gc(delete=True) == []
    (done,) = again.repair()
    assert segment.key in done.what
    assert again.records() == before[:51]
    assert (again.repair(), list(again.verify())) == ([], [])


def test_files_collected_before_they_are_named_are_written_again(model: Model) -> None:
    collected: list[object] = []

    class Late(Dying):
        """A collector without a grace period is done before metadata.json is there."""

        def put(self, key: str, *args: object, **options: object) -> object:
            if key.endswith("metadata.json"):
                collected.extend(model.gc(grace=NOW, delete=True))
            return super().put(key, *args, **options)

    late = Registry(Late(model.storage, 99)).model("mnist")  # type: ignore[arg-type]
    late.upload({"model.onnx": b"late"}, {"run_id": "late"})
    assert len(collected) == 1
    assert model.version("late").read("model.onnx") == b"late"
    assert list(model.verify()) == []


def test_a_version_deleted_while_it_is_verified_is_no_finding(model: Model) -> None:
    class Slow(Dying):
        def get_many(self, keys: list[str], **options: int) -> object:
            model.delete("c")
            return self._storage.get_many(keys, **options)

        def fetch(self, key: str, target: Path, **options: object) -> object:
            with suppress(NotFound):
                model.delete("d")
            return self._storage.fetch(key, target, **options)  # type: ignore[arg-type]

    assert list(Registry(Slow(model.storage, 99)).model("mnist").verify()) == []  # type: ignore[arg-type]


def test_a_document_that_is_a_link_is_a_finding(model: Model, tmp_path: Path) -> None:
    document = model.storage.root / model.ledger.key  # type: ignore[attr-defined]
    document.rename(tmp_path / "model.json")
    document.symlink_to(tmp_path / "model.json")
    again = Registry(model.storage).model("mnist")
    assert again.repair() == again.gc(delete=True) == []
    assert {finding.where for finding in again.verify()} == {model.ledger.key}


def test_two_that_retire_at_once_do_not_disturb_each_other(model: Model) -> None:
    class Slow(Dying):
        def get_many(self, keys: list[str], **options: int) -> object:
            read = [*self._storage.get_many(keys, **options)]
            model.retire(keep=1, grace=NOW, delete=True)
            return read

    other = Registry(Slow(model.storage, 99)).model("mnist")  # type: ignore[arg-type]
    assert other.retire(keep=1, grace=NOW, delete=True) == []
    assert [version.version for version in model.versions] == ["a", "b", "d"]


def test_a_version_that_cannot_be_added_is_not_promised(model: Model) -> None:
    model.storage.put("models/mnist/versions/e/metadata.json", b"{")
    assert model.repair() == []
    (finding,) = model.verify()
    assert "adds it" not in finding.what
