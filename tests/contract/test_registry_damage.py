"""Damaged pointers, records and versions: what one bit costs, on every storage."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from podium.errors import Conflict, Damaged, NotFound
from podium.registry import PromotionRule, Registry, challenge
from podium.registry.document import seal
from podium.storage import Storage

CHAMPION = "models/mnist/aliases/champion.json"


@pytest.fixture
def registry(storage: Storage) -> Registry:
    """Versions a, b and c; b is champion after a."""
    registry = Registry(storage)
    for version in "abc":
        registry.upload("mnist", {"model.onnx": version.encode() * 9, "x.json": b"{}"}, {"run_id": version})
    registry.promote("mnist", "a", {}, expect=None)
    registry.promote("mnist", "b", {"reason": "better"}, expect="a")
    return registry


def flip(storage: Storage, key: str) -> None:
    """Flip one bit in the middle of an object."""
    content = bytearray(storage.get(key))
    content[len(content) // 2] ^= 1
    storage.put(key, bytes(content))


def lose(storage: Storage, key: str) -> None:
    storage.delete(key)


def last_move(registry: Registry) -> str:
    return registry.history("mnist")[-1].key


def works(registry: Registry) -> None:
    """The registry is read, promoted in and rolled back in as if nothing had happened."""
    assert registry.resolve("mnist").version == "b"
    assert registry.aliases("mnist")["champion"].evidence == {"reason": "better"}
    assert [event.version for event in registry.history("mnist")] == ["a", "b"]
    assert len(registry.versions("mnist")) == 3
    assert registry.promote("mnist", "c", {}, expect="b").sequence == 3
    assert registry.rollback("mnist").version == "b"
    assert [event.version for event in registry.history("mnist")] == ["a", "b", "c", "b"]
    assert list(registry.verify("mnist")) == []


def test_a_damaged_champion_is_read_from_the_history(registry: Registry) -> None:
    flip(registry.storage, CHAMPION)
    works(registry)


def test_a_damaged_last_move_is_read_from_the_champion(registry: Registry) -> None:
    flip(registry.storage, last_move(registry))
    works(registry)


def test_repair_restores_the_champion_from_the_history(registry: Registry) -> None:
    before = registry.storage.get(CHAMPION)
    for damage in (flip, lose):
        damage(registry.storage, CHAMPION)
        (finding,) = registry.verify("mnist")
        assert finding.where == CHAMPION
        (repaired,) = registry.repair("mnist")
        assert (repaired.where, repaired.restored) == (CHAMPION, True)
        assert "points at b" in repaired.what
        assert registry.storage.get(CHAMPION) == before
    assert registry.repair("mnist") == []
    works(registry)


def test_repair_restores_the_history_from_the_champion(registry: Registry) -> None:
    key = last_move(registry)
    before = registry.storage.get(key)
    for damage in (flip, lose):
        damage(registry.storage, key)
        (repaired,) = registry.repair("mnist")
        assert (repaired.where, repaired.restored) == (key, True)
        assert registry.storage.get(key) == before
    works(registry)


def test_with_both_copies_gone_repair_refuses_and_promotion_goes_on(registry: Registry) -> None:
    key = last_move(registry)
    flip(registry.storage, CHAMPION)
    flip(registry.storage, key)
    assert {(one.where, one.restored) for one in registry.repair("mnist")} == {(CHAMPION, False), (key, False)}
    for read in (
        lambda: registry.resolve("mnist"),
        lambda: registry.rollback("mnist"),
        lambda: registry.remove("mnist", "c"),
    ):
        with pytest.raises(Damaged, match=r"champion\.json is damaged.*so is models/mnist/history"):
            read()
    assert registry.aliases("mnist") == {}
    assert registry.promote("mnist", "c", {}, expect=None).sequence == 3
    assert registry.resolve("mnist").version == "c"
    assert {finding.where: finding.what for finding in registry.verify("mnist")}.keys() == {key, "models/mnist/history"}
    assert "moves of champion are missing: [2]" in [finding.what for finding in registry.verify("mnist")]


def test_no_comparison_replaces_a_champion_that_cannot_be_read(registry: Registry) -> None:
    flip(registry.storage, last_move(registry))
    flip(registry.storage, CHAMPION)
    labels = np.arange(10)
    with pytest.raises(Damaged, match="champion") as raised:
        challenge(registry, "mnist", "c", PromotionRule(), lambda version: labels, labels)
    assert "podium models promote" in (raised.value.hint or "")
    assert [event.version for event in registry.history("mnist")] == ["a"]


def test_rollback_to_a_version_leaves_an_unreadable_champion(registry: Registry) -> None:
    flip(registry.storage, last_move(registry))
    registry.storage.put(CHAMPION, b"")
    assert registry.rollback("mnist", to="a").version == "a"
    assert registry.resolve("mnist").version == "a"


def test_a_lost_champion_does_not_start_the_numbers_again(registry: Registry) -> None:
    registry.storage.delete(CHAMPION)
    assert registry.promote("mnist", "c", {}, expect=None).sequence == 3
    assert list(registry.verify("mnist")) == []


def test_moves_of_the_same_number_are_named(registry: Registry) -> None:
    first, second = registry.history("mnist")
    document = {**second.document(), "sequence": 1, "id": "0123"}
    twin = second.key.replace(second.id, "0123")
    registry.storage.put(twin, seal(document))
    (finding,) = registry.verify("mnist")
    assert "2 moves of champion bear the number 1" in finding.what
    assert first.key in finding.what
    assert twin in finding.what


@pytest.mark.parametrize("damage", [lose, flip])
def test_a_damaged_version_is_not_promoted(registry: Registry, damage: Callable[[Storage, str], None]) -> None:
    damage(registry.storage, "models/mnist/versions/c/x.json")
    with pytest.raises(Damaged, match=r"c/x\.json"):
        registry.promote("mnist", "c", {}, expect="b")
    assert registry.resolve("mnist").version == "b"
    assert len(registry.history("mnist")) == 2


def test_metadata_of_another_version_is_recognized(registry: Registry) -> None:
    stolen = registry.storage.get("models/mnist/versions/a/metadata.json")
    registry.storage.put("models/mnist/versions/c/metadata.json", stolen)
    with pytest.raises(Damaged, match="belongs to mnist a, not to mnist c"):
        registry.promote("mnist", "c", {}, expect="b")
    assert [one.version for one in registry.versions("mnist")] == ["a", "b"]
    assert any("belongs to mnist a" in finding.what for finding in registry.verify("mnist"))


class Interposed:
    """A storage where something happens once, just before a matching write."""

    def __init__(self, storage: Storage, key: str, happens: Callable[[], object]) -> None:
        self._storage, self._key, self._happens = storage, key, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put(self, key: str, *args: Any, **options: Any) -> object:
        if key == self._key:
            self._key = ""
            self._happens()
        return self._storage.put(key, *args, **options)


def test_the_first_champion_is_withdrawn_if_deleted_meanwhile(storage: Storage) -> None:
    registry = Registry(storage)
    for version in "abc":
        registry.upload("mnist", {"model.onnx": version.encode()}, {"run_id": version})
    racing = Interposed(storage, CHAMPION, lambda: registry.remove("mnist", "a"))
    with pytest.raises(NotFound, match="being deleted"):
        Registry(racing).promote("mnist", "a", {}, expect=None)  # type: ignore[arg-type]
    assert registry.champion("mnist") is None
    assert registry.aliases("mnist") == {}
    assert list(registry.verify("mnist")) == []
    assert registry.promote("mnist", "b", {}, expect=None).replaced is None
    registry.promote("mnist", "c", {}, expect="b")
    assert registry.rollback("mnist").version == "b"
    assert [event.event for event in registry.history("mnist") if event.alias] == [
        "promotion", "withdrawal", "promotion", "promotion", "rollback",
    ]  # fmt: skip


def test_a_champion_that_is_gone_blocks_nobody(registry: Registry) -> None:
    for file in ("metadata.json", "model.onnx", "x.json"):
        registry.storage.delete(f"models/mnist/versions/b/{file}")
    assert registry.champion("mnist") is None
    with pytest.raises(NotFound, match="was b, which is gone"):
        registry.resolve("mnist")
    with pytest.raises(Conflict):
        registry.promote("mnist", "c", {}, expect="a")
    assert registry.promote("mnist", "c", {}, expect=None).replaced == "b"
    assert registry.resolve("mnist").version == "c"


def test_a_retirement_that_cannot_know_the_champion_deletes_nothing(registry: Registry) -> None:
    flip(registry.storage, last_move(registry))
    flip(registry.storage, CHAMPION)
    assert registry.retire("mnist", keep=1, grace=timedelta(0), delete=True) == []
    assert len(registry.versions("mnist")) == 3


BAD: dict[str, bytes] = {
    "large": b'{"a": "' + b"x" * (17 << 20) + b'"}',
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "surrogate": b'{"a": "\\ud800"}',
    "list": b"[]",
    "number": b"1e999",
    "dataset": seal({"format": "podium.model/1", "name": "mnist", "version": "c", "created": "2026-01-02T03:04:05Z",
                     "files": {}, "dataset": 7}),
    "report": seal({"format": "podium.model/1", "name": "mnist", "version": "c", "created": "2026-01-02T03:04:05Z",
                    "files": {}, "report": 5}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_object_costs_one_line_and_nothing_else(
    registry: Registry, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = registry.storage
    stray = "models/mnist/history/20200102T030405.000000Z-refusal-0.json"
    bad = {"models/mnist/versions/c/metadata.json", stray}
    for key in bad:
        storage.put(key, BAD[kind])
    for _ in range(2):
        assert [one.version for one in registry.versions("mnist")] == ["a", "b"]
        assert [event.version for event in registry.history("mnist")] == ["a", "b"]
    assert sorted(record.getMessage().split(" ")[0].removesuffix(":") for record in caplog.records) == sorted(
        storage.join(key) for key in bad
    )
    assert {finding.where for finding in registry.verify("mnist")} == bad
    with pytest.raises(Damaged, match="c/metadata"):
        registry.resolve("mnist", "c")
    assert registry.gc("mnist", grace=timedelta(0), delete=True) == []
    assert registry.promote("mnist", "a", {}, expect="b").sequence == 3
