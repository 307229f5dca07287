"""A damaged document, damaged metadata and files: what one bit costs."""

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

DOCUMENT = "models/mnist/model.json"

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


@pytest.mark.parametrize("damage", [lose, flip])
def test_a_damaged_document_stops_everything_until_it_is_mended(
    model: Model, damage: Callable[[Storage, str], None]
) -> None:
    damage(model.storage, DOCUMENT)
    labels = np.arange(10)
    for work in (
        lambda: model.version(),
        lambda: model.rollback(),
        lambda: model.set_champion("c", {}, expect=None),
        lambda: model.delete("c"),
        lambda: model.challenge("c", judging(lambda version: labels, labels)),
    ):
        with pytest.raises((Damaged, NotFound)):
            work()
    assert model.retire(keep=1, grace=timedelta(0), delete=True) == []
    assert model.gc(grace=timedelta(0), delete=True) == []
    assert DOCUMENT in {finding.where for finding in model.verify()}
    made, *added = model.repair()
    assert "aliases are gone" in made.what
    assert [done.what for done in added] == [f"names the version {name} now" for name in "abc"]
    assert (list(model.verify()), model.repair()) == ([], [])
    assert model.set_champion("b", {}, expect=None).sequence == 1
    assert model.version().read("x.json") == b"{}"


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


def test_a_version_deleted_while_it_is_promoted_stays_deleted(storage: Storage) -> None:
    model = Registry(storage).model("mnist")
    for version in "abc":
        model.upload({"model.onnx": version.encode()}, {"run_id": version})
    racing = Interposed(storage, DOCUMENT, lambda: model.delete("a"))
    with pytest.raises(NotFound, match="being deleted"):
        Registry(racing).model("mnist").set_champion("a", {}, expect=None)  # type: ignore[arg-type]
    assert model.find_champion() is None
    assert model.aliases() == {}
    assert list(model.verify()) == []
    assert model.set_champion("b", {}, expect=None).replaced is None
    model.set_champion("c", {}, expect="b")
    assert model.rollback().version == "b"
    assert [event.event for event in model.records()] == [
        "deletion", "promotion", "promotion", "rollback",
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
    bad = "models/mnist/versions/c/metadata.json"
    storage.put(bad, BAD[kind])
    storage.put("models/mnist/history/stray.json", BAD[kind])
    for _ in range(2):
        assert [version.version for version in model.versions] == ["a", "b"]
        assert [event.version for event in model.records()] == ["a", "b"]
    (said,) = {record.getMessage().split(" ")[0].removesuffix(":") for record in caplog.records}
    assert said == storage.join(bad)
    assert {finding.where for finding in model.verify()} == {bad}
    with pytest.raises(Damaged, match="c/metadata"):
        model.version("c")
    assert model.gc(grace=timedelta(0), delete=True) == []
    assert model.set_champion("a", {}, expect="b").sequence == 3


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_document_costs_its_own_model_only(
    model: Model, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(model.storage)
    registry.model("other").upload({"model.onnx": b"m"}, {}, "v")
    model.storage.put(DOCUMENT, BAD[kind])
    seen = {
        each.name: (each.versions, each.champion) for each in map(Model.overview, registry.select())
    }
    assert seen == {"mnist": (0, None), "other": (1, None)}
    assert [record.getMessage().split(" ")[0].removesuffix(":") for record in caplog.records] == [
        model.storage.join(DOCUMENT)
    ]
    assert [finding.where for finding in model.verify()] == [DOCUMENT]
    # What has a checksum that fits was written by another program: it is not replaced.
    assert len(model.repair()) == (0 if kind in ("dataset", "report") else 4)
