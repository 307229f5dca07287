"""Collectors that sleep, die or race with uploads, on every storage."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from s3servers import sleep_into_the_next_second

from podium.errors import Conflict
from podium.models import Model, Registry
from podium.storage import Entry, Storage

pytestmark = pytest.mark.whole

NOW = timedelta(0)
VERSION = "models/mnist/versions/v"


class Sleepy:
    """A storage whose user falls asleep after a listing, or before a deletion, of the version; others work meanwhile."""

    def __init__(
        self, storage: Storage, at: str, meanwhile: Callable[[], object], listing: int = 1
    ) -> None:
        self._storage, self._at, self._meanwhile, self._left = storage, at, meanwhile, listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _sleep(self, at: str, key: str) -> None:
        if at == self._at and key.startswith(VERSION):
            self._left -= 1
            if self._left == 0:
                self._meanwhile()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        entries = list(self._storage.list(prefix))
        self._sleep("list", prefix)
        return iter(entries)

    def delete(self, key: str, **options: Any) -> None:
        self._sleep("delete", key)
        self._storage.delete(key, **options)


def tick(storage: Storage) -> None:
    if not storage.url.startswith("file:"):
        sleep_into_the_next_second()


def leave_half(storage: Storage) -> None:
    """Leave what a killed upload leaves."""
    storage.put(f"{VERSION}/model.onnx", b"model")
    storage.put(f"{VERSION}/x.json", b"{}")


def upload(model: Model) -> None:
    model.upload({"model.onnx": b"model", "x.json": b"{}"}, {}, "v")
    model.set_champion("v", {}, expect=None)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sleeps does so for longer than a request to delete may be on its way."""
    monkeypatch.setattr("podium.models.upload._SETTLED", timedelta(0))


def intact(model: Model) -> None:
    assert model.version().version == "v"
    assert list(model.verify()) == []


# gc lists a version to judge it, again under its tombstone to see that nobody writes, and last what it deletes.
@pytest.mark.parametrize("listing", [2, 3])
def test_a_version_uploaded_again_survives_a_sleeping_collector(
    storage: Storage, listing: int
) -> None:
    model = Registry(storage).model("mnist")
    leave_half(storage)
    tick(storage)

    def others_finish_and_upload() -> None:
        tick(storage)
        assert [removed.version for removed in model.gc(grace=NOW, delete=True)] == ["v"]
        upload(model)

    sleepy = Sleepy(storage, "list", others_finish_and_upload, listing)
    assert Registry(sleepy).model("mnist").gc(grace=NOW, delete=True) == []  # type: ignore[arg-type]
    intact(model)


def test_an_upload_during_a_deletion_is_refused(storage: Storage) -> None:
    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"old"}, {}, "v")

    def refused() -> None:
        with pytest.raises(Conflict, match="being deleted") as caught:
            upload(model)
        assert caught.value.hint == "try again in ten minutes"

    Registry(Sleepy(storage, "list", refused)).model("mnist").delete("v")  # type: ignore[arg-type]
    upload(model)
    intact(model)


@pytest.mark.parametrize(("who", "days"), [("upload", 2), ("upload", -2), ("upkeep", -2)])
def test_a_wrong_clock_hides_no_deletion_that_goes_on(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, who: str, days: int
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, zone: tzinfo | None = None) -> datetime:
            return datetime.now(zone) + timedelta(days=days)

    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"model"}, {}, "v")
    monkeypatch.setattr(f"podium.models.{who}.datetime", Wrong)

    def refused() -> None:
        with pytest.raises(Conflict, match="being deleted"):
            model.upload({"model.onnx": b"model"}, {}, "v")

    Registry(Sleepy(storage, "delete", refused)).model("mnist").delete("v")  # type: ignore[arg-type]


@pytest.mark.usefixtures("later")
def test_an_upload_takes_a_deletion_over(storage: Storage) -> None:
    model = Registry(storage).model("mnist")
    leave_half(storage)
    storage.put(f"{VERSION}/of-the-old-one", b"")
    tick(storage)
    sleepy = Sleepy(storage, "list", lambda: upload(model), 3)
    assert Registry(sleepy).model("mnist").gc(grace=NOW, delete=True) == []  # type: ignore[arg-type]
    intact(model)


@pytest.mark.usefixtures("later")
def test_a_version_removed_halfway_can_be_uploaded_again(storage: Storage) -> None:
    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"old", "old": b""}, {}, "v")

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Registry(Sleepy(storage, "delete", die)).model("mnist").delete("v")  # type: ignore[arg-type]
    upload(model)
    intact(model)
    assert [event.event for event in model.records()] == ["deletion", "promotion"]


@pytest.mark.usefixtures("later")
def test_a_removal_that_sleeps_does_not_delete_a_new_upload(storage: Storage) -> None:
    model = Registry(storage).model("mnist")
    model.upload({"model.onnx": b"old"}, {}, "v")
    Registry(Sleepy(storage, "list", lambda: upload(model))).model("mnist").delete("v")  # type: ignore[arg-type]
    intact(model)


def test_two_uploads_of_different_content_make_one_whole_version(storage: Storage) -> None:
    model = Registry(storage).model("mnist")

    class Late(Sleepy):
        def put(self, key: str, *args: Any, **options: Any) -> Entry:
            self._sleep("put", key)
            return self._storage.put(key, *args, **options)

    def other() -> None:
        model.upload({"other": b"other"}, {"run_id": "v"})

    late = Late(storage, "put", other, 2)  # just before its metadata.json
    with pytest.raises(Conflict, match="other content"):
        Registry(late).model("mnist").upload({"model.onnx": b"model"}, {"run_id": "v"})  # type: ignore[arg-type]
    assert set(model.version("v").files) == {"other"}
