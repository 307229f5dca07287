"""The life of a model, from upload to deletion, on every storage."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from s3servers import sleep_into_the_next_second

from podium.errors import NotFound
from podium.models import Registry, open_registry
from podium.storage import Entry, Storage
from podium.storage.check import check
from podium.storage.s3 import lock as s3lock
from podium.storage.transfer import get

pytestmark = pytest.mark.whole


def test_a_model_lives_and_dies_in_order(storage: Storage, tmp_path: Path) -> None:
    model, now = Registry(storage).model("mnist"), timedelta(0)
    for version in "abc":
        model.upload({"model.onnx": version.encode() * 100}, {"run_id": version})
    assert model.upload({"model.onnx": b"a" * 100}, {"run_id": "a"}).version == "a"
    model.set_champion("a", {}, expect=None)
    model.set_champion("b", {"why": "better"}, expect="a")
    assert model.rollback(reason="not really").version == "a"
    model.version("champion").fetch(tmp_path / "out")
    assert (tmp_path / "out/model.onnx").read_bytes() == b"a" * 100
    assert [version.version for version in model.versions] == ["a", "b", "c"]
    storage.put("models/mnist/versions/half/model.onnx", b"never finished")
    sleep_into_the_next_second()
    assert [removed.version for removed in model.gc(grace=now, delete=True)] == ["half"]
    model.delete("c", "unused")
    assert [event.event for event in model.records()] == [
        "promotion",
        "promotion",
        "rollback",
        "deletion",
    ]
    assert list(model.verify()) == []
    assert list(storage.list("models/mnist/versions/c")) == []


def test_a_backup_put_elsewhere_is_the_same_registry(
    storage: Storage, typed: Callable[..., Any], tmp_path: Path
) -> None:
    model, backup, restored = (
        Registry(storage).model("mnist"),
        tmp_path / "backup",
        f"{storage.url}/restored",
    )
    for version in "abc":
        model.upload({"model.onnx": version.encode() * 100}, {"run_id": version})
    model.set_champion("a", {}, expect=None)
    model.set_champion("b", {"why": "better"}, expect="a")
    assert typed("storage", "get", storage.url, backup)[0] == 0
    assert typed("storage", "put", backup, restored)[0] == 0
    assert typed("models", "verify", "--storage", restored)[0] == 0
    again = open_registry(restored).model("mnist")
    assert (again.version(), again.records()) == (model.version(), model.records())
    again.set_champion("c", {}, expect="b")
    assert (again.rollback().version, model.version().version) == ("b", "b")
    assert list(again.verify()) == []


def test_a_backup_made_while_versions_came_is_mended(
    storage: Storage, typed: Callable[..., Any]
) -> None:
    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"a" * 100}, {"run_id": "a"})
    model.set_champion("a", {}, expect=None)
    older = storage.get("models/mnist/model.json")
    model.upload({"model.onnx": b"b" * 100}, {"run_id": "b"})
    model.set_champion("b", {}, expect="a")
    storage.put("models/mnist/model.json", older)  # was copied before, the files of b after it
    code, out, _ = typed("models", "verify", "mnist", "--storage", storage.url)
    assert (code, "b/metadata.json" in out) == (1, True)
    assert typed("models", "verify", "mnist", "--fix", "--storage", storage.url)[0] == 0
    assert [version.version for version in model.versions] == ["a", "b"]
    assert (model.version().version, list(model.verify())) == ("a", [])


def test_the_check_of_a_sound_storage_passes_and_leaves_nothing(storage: Storage) -> None:
    results = list(check(storage))
    assert [result.detail for result in results if not result.ok] == []
    assert len(results) == 7
    assert list(storage.list()) == []


def _upload_and_die(url: str, environ: dict[str, str], weights: Path) -> None:
    os.environ.update(environ)
    seen = [0]

    def moved(count: int) -> None:
        seen[0] += count
        if seen[0] > 8 << 20:  # in the second part of b.bin
            os.kill(os.getpid(), signal.SIGKILL)

    open_registry(url).model("mnist").upload(
        {"a.json": b"{}" * 100, "b.bin": weights}, {"run_id": "dying"}, progress=moved
    )


def _die_uploading(storage: Storage, weights: Path) -> None:
    arguments = (storage.url, dict(os.environ), weights)
    process = multiprocessing.get_context("forkserver").Process(
        target=_upload_and_die, args=arguments
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_an_upload_killed_half_way_is_nothing_but_garbage(storage: Storage, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"w" * (9 << 20))
    model, now = Registry(storage).model("mnist"), timedelta(0)
    model.upload({"b.bin": b"b"}, {"run_id": "other"})
    model.set_champion("other", {}, expect=None)
    before = {entry.key for entry in storage.list()}
    _die_uploading(storage, weights)
    assert [version.version for version in model.versions] == ["other"]
    with pytest.raises(NotFound):
        model.version("dying")
    assert model.gc() == [], "young: it may still be in the making"
    sleep_into_the_next_second()
    found = model.gc(grace=now)
    assert sum(file.size for file in found) >= 200
    assert model.gc(grace=now) == found, "a dry run deletes nothing"
    assert len(model.gc(grace=now, delete=True)) == len(found)
    assert model.gc(grace=now) == []
    assert {entry.key for entry in storage.list()} <= before
    assert list(model.verify()) == []


def test_an_upload_killed_half_way_can_be_repeated(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        s3lock, "LEASE", 2.0
    )  # where conditions are ignored the lock of the dead must run out
    weights = tmp_path / "weights"
    weights.write_bytes(b"w" * (9 << 20))
    _die_uploading(storage, weights)
    model = Registry(storage).model("mnist")
    again = model.upload({"a.json": b"{}" * 100, "b.bin": weights}, {"run_id": "dying"})
    assert [version.version for version in model.versions] == [again.version]
    assert list(model.verify()) == []


def test_a_backup_of_a_registry_in_use_is_complete(storage: Storage, tmp_path: Path) -> None:
    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"a" * 100}, {"run_id": "a"})
    list_all = storage.list

    def list_and_work(prefix: str = "") -> Iterator[Entry]:
        """Somebody uploads and promotes after each listing."""
        yield from [*list_all(prefix)]
        if not prefix:
            version = model.upload({"model.onnx": uuid4().bytes}, {}).version
            champion = model.aliases().get("champion")
            model.set_champion(version, {}, expect=champion and champion.version)

    storage.list = list_and_work  # type: ignore[method-assign]
    get(storage, tmp_path / "backup")
    copy = open_registry(tmp_path / "backup").model("mnist")
    copy.repair()
    assert list(copy.verify()) == []
    assert len(copy.versions) == 2
