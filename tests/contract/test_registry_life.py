"""The life of a model, from upload to deletion, on every storage."""

import time
from datetime import timedelta
from pathlib import Path

from podium.registry import Registry
from podium.storage import Storage
from podium.storage.check import check


def test_a_model_lives_and_dies_in_order(storage: Storage, tmp_path: Path) -> None:
    registry, now = Registry(storage), timedelta(0)
    for version in "abc":
        registry.upload("mnist", {"model.onnx": version.encode() * 100}, {"run_id": version})
    assert registry.upload("mnist", {"model.onnx": b"a" * 100}, {"run_id": "a"}).version == "a"
    registry.promote("mnist", "a", {}, expect=None)
    registry.promote("mnist", "b", {"why": "better"}, expect="a")
    assert registry.rollback("mnist", reason="not really").version == "a"
    registry.fetch("mnist", "champion", tmp_path / "out")
    assert (tmp_path / "out/model.onnx").read_bytes() == b"a" * 100
    assert [one.version for one in registry.versions("mnist")] == ["a", "b", "c"]
    storage.put("models/mnist/versions/half/model.onnx", b"never finished")
    time.sleep(1.1)  # servers tell times in whole seconds
    assert [one.version for one in registry.gc("mnist", grace=now, delete=True)] == ["half"]
    registry.remove("mnist", "c", "unused")
    assert [event.event for event in registry.history("mnist")] == ["promotion", "promotion", "rollback", "deletion"]
    assert list(registry.verify("mnist")) == []
    assert list(storage.list("models/mnist/versions/c")) == []


def test_the_check_of_a_sound_storage_passes_and_leaves_nothing(storage: Storage) -> None:
    results = list(check(storage))
    assert [result.detail for result in results if not result.ok] == []
    assert len(results) == 6
    assert list(storage.list()) == []
