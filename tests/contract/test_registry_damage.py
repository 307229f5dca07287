"""Damaged pointers, records and versions: what one bit costs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from challenges import judging

from podium.errors import Conflict, Damaged, NotFound
from podium.models import Model, Registry
from podium.models.document import seal
from podium.storage import Storage

CHAMPION = "models/mnist/aliases/champion.json"

# A registry knows no storage but the contract, which test_storage.py tries on each: S3 adds a hundred requests a test.
pytestmark = pytest.mark.parametrize(
    "storage",
    [
        "files",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("moto", "moto-without-conditions", "minio")
        ),
    ],
    indirect=True,
)


@pytest.fixture
def model(storage: Storage) -> Model:
    """Versions a, b and c; b is champion after a."""
    model = Registry(storage).model("mnist")
    for version in "abc":
        model.upload({"model.onnx": version.encode() * 9, "x.json": b"{}"}, {"run_id": version})
    model.set_champion("a", {}, expect=None)
    model.set_champion("b", {"reason": "better"}, expect="a")
    return model


def flip(storage: Storage, key: str) -> None:
    """Flip one bit in the middle of an object."""
    content = bytearray(storage.get(key))
    content[len(content) // 2] ^= 1
    storage.put(key, bytes(content))


def lose(storage: Storage, key: str) -> None:
    storage.delete(key)


def last_move(model: Model) -> str:
    return model.records()[-1].key


def works(model: Model) -> None:
    """The registry is read, promoted in and rolled back in as if nothing had happened."""
    assert model.version().version == "b"
    assert model.aliases()["champion"].evidence == {"reason": "better"}
    assert [event.version for event in model.records()] == ["a", "b"]
    assert len(model.versions) == 3
    assert model.set_champion("c", {}, expect="b").sequence == 3
    assert model.rollback().version == "b"
    assert [event.version for event in model.records()] == ["a", "b", "c", "b"]
    assert list(model.verify()) == []


def test_a_damaged_champion_is_read_from_the_history(model: Model) -> None:
    flip(model.storage, CHAMPION)
    works(model)


def test_a_damaged_last_move_is_read_from_the_champion(model: Model) -> None:
    flip(model.storage, last_move(model))
    works(model)


def test_repair_restores_the_champion_from_the_history(model: Model) -> None:
    before = model.storage.get(CHAMPION)
    for damage in (flip, lose):
        damage(model.storage, CHAMPION)
        (finding,) = model.verify()
        assert finding.where == CHAMPION
        (repaired,) = model.repair()
        assert (repaired.where, repaired.restored) == (CHAMPION, True)
        assert "points at b" in repaired.what
        assert model.storage.get(CHAMPION) == before
    assert model.repair() == []
    works(model)


def test_repair_restores_the_history_from_the_champion(model: Model) -> None:
    key = last_move(model)
    before = model.storage.get(key)
    for damage in (flip, lose):
        damage(model.storage, key)
        (repaired,) = model.repair()
        assert (repaired.where, repaired.restored) == (key, True)
        assert model.storage.get(key) == before
    works(model)


def test_with_both_copies_gone_repair_refuses_and_promotion_goes_on(model: Model) -> None:
    key = last_move(model)
    flip(model.storage, CHAMPION)
    flip(model.storage, key)
    assert {(repair.where, repair.restored) for repair in model.repair()} == {
        (CHAMPION, False),
        (key, False),
    }
    for read in (
        lambda: model.version(),
        lambda: model.rollback(),
        lambda: model.delete("c"),
    ):
        with pytest.raises(Damaged, match=r"champion\.json is damaged.*so is models/mnist/history"):
            read()
    assert model.aliases() == {}
    assert model.set_champion("c", {}, expect=None).sequence == 3
    assert model.version().version == "c"
    assert {finding.where: finding.what for finding in model.verify()}.keys() == {
        key,
        "models/mnist/history",
    }
    assert "moves of champion are missing: [2]" in [finding.what for finding in model.verify()]


def test_no_comparison_replaces_a_champion_that_cannot_be_read(model: Model) -> None:
    flip(model.storage, last_move(model))
    flip(model.storage, CHAMPION)
    labels = np.arange(10)
    with pytest.raises(Damaged, match="champion") as raised:
        model.challenge("c", judging(lambda version: labels, labels))
    assert "podium models promote" in (raised.value.hint or "")
    assert [event.version for event in model.records()] == ["a"]


def test_rollback_to_a_version_leaves_an_unreadable_champion(model: Model) -> None:
    flip(model.storage, last_move(model))
    model.storage.put(CHAMPION, b"")
    assert model.rollback(to="a").version == "a"
    assert model.version().version == "a"


def test_a_lost_champion_does_not_start_the_numbers_again(model: Model) -> None:
    model.storage.delete(CHAMPION)
    assert model.set_champion("c", {}, expect=None).sequence == 3
    assert list(model.verify()) == []


def test_moves_of_the_same_number_are_named(model: Model) -> None:
    first, second = model.records()
    document = {**second.document(), "sequence": 1, "id": "0123"}
    twin = second.key.replace(second.id, "0123")
    model.storage.put(twin, seal(document))
    (finding,) = model.verify()
    assert "2 moves of champion have the number 1" in finding.what
    assert first.key in finding.what
    assert twin in finding.what


@pytest.mark.parametrize("damage", [lose, flip])
def test_a_damaged_version_is_not_promoted(
    model: Model, damage: Callable[[Storage, str], None]
) -> None:
    damage(model.storage, "models/mnist/versions/c/x.json")
    with pytest.raises(Damaged, match=r"c/x\.json"):
        model.set_champion("c", {}, expect="b")
    assert model.version().version == "b"
    assert len(model.records()) == 2


def test_metadata_of_another_version_is_recognized(model: Model) -> None:
    stolen = model.storage.get("models/mnist/versions/a/metadata.json")
    model.storage.put("models/mnist/versions/c/metadata.json", stolen)
    with pytest.raises(Damaged, match="belongs to mnist a, not to mnist c"):
        model.set_champion("c", {}, expect="b")
    assert [version.version for version in model.versions] == ["a", "b"]
    assert any("belongs to mnist a" in finding.what for finding in model.verify())


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
    model = Registry(storage).model("mnist")
    for version in "abc":
        model.upload({"model.onnx": version.encode()}, {"run_id": version})
    racing = Interposed(storage, CHAMPION, lambda: model.delete("a"))
    with pytest.raises(NotFound, match="being deleted"):
        Registry(racing).model("mnist").set_champion("a", {}, expect=None)  # type: ignore[arg-type]
    assert model.find_champion() is None
    assert model.aliases() == {}
    assert list(model.verify()) == []
    assert model.set_champion("b", {}, expect=None).replaced is None
    model.set_champion("c", {}, expect="b")
    assert model.rollback().version == "b"
    assert [event.event for event in model.records() if event.alias] == [
        "promotion", "withdrawal", "promotion", "promotion", "rollback",
    ]  # fmt: skip


def test_a_champion_that_is_gone_blocks_nobody(model: Model) -> None:
    for file in ("metadata.json", "model.onnx", "x.json"):
        model.storage.delete(f"models/mnist/versions/b/{file}")
    assert model.find_champion() is None
    with pytest.raises(NotFound, match="was b, which is gone"):
        model.version()
    with pytest.raises(Conflict):
        model.set_champion("c", {}, expect="a")
    assert model.set_champion("c", {}, expect=None).replaced == "b"
    assert model.version().version == "c"


def test_a_retirement_that_cannot_know_the_champion_deletes_nothing(model: Model) -> None:
    flip(model.storage, last_move(model))
    flip(model.storage, CHAMPION)
    assert model.retire(keep=1, grace=timedelta(0), delete=True) == []
    assert len(model.versions) == 3


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
    model: Model, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = model.storage
    stray = "models/mnist/history/20200102T030405.000000Z-refusal-0.json"
    bad = {"models/mnist/versions/c/metadata.json", stray}
    for key in bad:
        storage.put(key, BAD[kind])
    for _ in range(2):
        assert [version.version for version in model.versions] == ["a", "b"]
        assert [event.version for event in model.records()] == ["a", "b"]
    assert sorted(
        record.getMessage().split(" ")[0].removesuffix(":") for record in caplog.records
    ) == sorted(storage.join(key) for key in bad)
    assert {finding.where for finding in model.verify()} == bad
    with pytest.raises(Damaged, match="c/metadata"):
        model.version("c")
    assert model.gc(grace=timedelta(0), delete=True) == []
    assert model.set_champion("a", {}, expect="b").sequence == 3
