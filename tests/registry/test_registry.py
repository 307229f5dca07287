"""Versions, the champion and its history, on a directory. What differs between storages is in tests/contract."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from podium.errors import Conflict, Damaged, InvalidInput, NotFound
from podium.registry import PromotionRule, Registry, challenge, open_registry
from podium.registry import record as records
from podium.storage import Storage

FILES: dict[str, Path | bytes] = {"model.onnx": b"graph", "report/per_class.json": b"{}"}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return open_registry(tmp_path / "store")


def add(registry: Registry, version: str, content: bytes = b"graph") -> str:
    return registry.upload("mnist", {"model.onnx": content + version.encode()}, {"run_id": version}).version


def test_a_version_comes_back_as_it_was_uploaded(registry: Registry, tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"graph")
    made = registry.upload("mnist", {**FILES, "model.onnx": source}, {"run_id": "r1", "metrics": {"accuracy": 0.99}})
    assert made.version == "r1"
    seen = registry.resolve("mnist", "r1")
    assert seen == made
    assert seen.metadata == {"run_id": "r1", "metrics": {"accuracy": 0.99}}
    registry.fetch("mnist", "r1", tmp_path / "out")
    assert (tmp_path / "out/model.onnx").read_bytes() == b"graph"
    assert json.loads((tmp_path / "out/metadata.json").read_text())["version"] == "r1"
    assert registry.read(seen, "model.onnx") == b"graph"


def test_the_layout_is_the_documented_one(registry: Registry) -> None:
    registry.upload("mnist", FILES, {"run_id": "r1"})
    record = registry.promote("mnist", "r1", {}, expect=None)
    keys = [entry.key for entry in registry.storage.list("models/")]
    assert keys == [
        "models/mnist/aliases/champion.json",
        record.key,
        "models/mnist/versions/r1/metadata.json",
        "models/mnist/versions/r1/model.onnx",
        "models/mnist/versions/r1/report/per_class.json",
    ]


def test_the_same_upload_again_gives_the_same_version(registry: Registry) -> None:
    first = registry.upload("mnist", FILES, {"run_id": "r1", "try": 1})
    again = registry.upload("mnist", FILES, {"run_id": "r1", "try": 2})
    assert again == first
    assert [one.version for one in registry.versions("mnist")] == ["r1"]


def test_without_a_run_id_the_content_names_the_version(registry: Registry) -> None:
    first, again = (registry.upload("mnist", FILES, {}) for _ in range(2))
    other = registry.upload("mnist", {"model.onnx": b"other"}, {})
    assert first.version == again.version != other.version
    assert len(registry.versions("mnist")) == 2


def test_other_content_under_a_taken_version_is_refused(registry: Registry) -> None:
    registry.upload("mnist", FILES, {}, "v1")
    with pytest.raises(Conflict, match=r"other content in model\.onnx"):
        registry.upload("mnist", {**FILES, "model.onnx": b"changed"}, {}, "v1")
    assert registry.read(registry.resolve("mnist", "v1"), "model.onnx") == b"graph"


@pytest.mark.parametrize(
    ("name", "files", "metadata", "version"),
    [
        ("no/slash", FILES, {}, "v"),
        ("", FILES, {}, "v"),
        ("m", {}, {}, "v"),
        ("m", FILES, {"files": 1}, "v"),
        ("m", FILES, {"loss": float("nan")}, "v"),
        ("m", {"metadata.json": b""}, {}, "v"),
        ("m", {"../out": b""}, {}, "v"),
        ("m", {"absent": Path("/no/such/file")}, {}, "v"),
        ("m", FILES, {}, "champion"),
        ("m", FILES, {}, "v/1"),
    ],
)
def test_a_bad_upload_writes_nothing(
    registry: Registry, name: str, files: dict[str, Path | bytes], metadata: dict[str, object], version: str
) -> None:
    with pytest.raises(InvalidInput):
        registry.upload(name, files, metadata, version)
    assert list(registry.storage.list()) == []


def test_an_unfinished_upload_is_invisible_and_can_be_finished(registry: Registry) -> None:
    registry.storage.put("models/mnist/versions/r1/model.onnx", b"graph")
    assert registry.versions("mnist") == []
    with pytest.raises(NotFound, match="r1"):
        registry.resolve("mnist", "r1")
    registry.upload("mnist", FILES, {"run_id": "r1"})
    assert [one.version for one in registry.versions("mnist")] == ["r1"]


def test_an_unfinished_upload_of_other_bytes_is_not_mixed_in(registry: Registry) -> None:
    registry.storage.put("models/mnist/versions/r1/model.onnx", b"something else")
    with pytest.raises(InvalidInput, match="unfinished upload left another"):
        registry.upload("mnist", FILES, {"run_id": "r1"})


def test_a_changed_byte_is_reported_with_what_and_where(registry: Registry, tmp_path: Path) -> None:
    version = registry.upload("mnist", FILES, {}, "v1")
    registry.storage.put("models/mnist/versions/v1/model.onnx", b"grapf")
    with pytest.raises(Damaged, match=r"v1/model\.onnx must have sha256 [0-9a-f]{64}"):
        registry.read(version, "model.onnx")
    with pytest.raises(Damaged, match=r"v1/model\.onnx"):
        registry.fetch("mnist", "v1", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".podium")] == []


def test_a_missing_file_is_damage(registry: Registry, tmp_path: Path) -> None:
    registry.upload("mnist", FILES, {}, "v1")
    registry.storage.delete("models/mnist/versions/v1/model.onnx")
    with pytest.raises(Damaged, match="missing"):
        registry.fetch("mnist", "v1", tmp_path / "out")


def test_changed_metadata_is_damage(registry: Registry) -> None:
    registry.upload("mnist", FILES, {"metrics": {"accuracy": 0.5}}, "v1")
    key = "models/mnist/versions/v1/metadata.json"
    registry.storage.put(key, registry.storage.get(key).replace(b"0.5", b"0.9"))
    with pytest.raises(Damaged, match=r"v1/metadata\.json"):
        registry.resolve("mnist", "v1")


def test_a_full_target_is_refused(registry: Registry, tmp_path: Path) -> None:
    registry.upload("mnist", FILES, {}, "v1")
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InvalidInput, match="target is empty"):
        registry.fetch("mnist", "v1", tmp_path)
    with pytest.raises(InvalidInput, match="target is empty"):
        registry.fetch("mnist", "v1", tmp_path / "mine")


def test_the_first_promotion_needs_no_champion(registry: Registry) -> None:
    assert registry.champion("mnist") is None
    add(registry, "a")
    record = registry.promote("mnist", "a", {"why": "first"}, expect=None)
    assert (record.version, record.previous, record.sequence) == ("a", None, 1)
    assert registry.champion("mnist") == registry.resolve("mnist", "champion") == registry.resolve("mnist", "a")
    (seen,) = registry.history("mnist")
    assert seen == record
    assert seen.evidence == {"why": "first"}


def test_a_promotion_against_another_champion_than_expected_is_refused(registry: Registry) -> None:
    for version in "abc":
        add(registry, version)
    registry.promote("mnist", "a", {}, expect=None)
    for expect in (None, "c"):
        with pytest.raises(Conflict, match="but it is a"):
            registry.promote("mnist", "b", {}, expect=expect)
    assert registry.resolve("mnist").version == "a"
    assert len(registry.history("mnist")) == 1


def test_promoting_the_champion_again_changes_nothing(registry: Registry) -> None:
    add(registry, "a")
    first = registry.promote("mnist", "a", {}, expect=None)
    assert registry.promote("mnist", "a", {}, expect=None) == first
    assert registry.history("mnist") == [first]


def test_only_a_complete_version_can_be_promoted(registry: Registry) -> None:
    registry.storage.put("models/mnist/versions/half/model.onnx", b"graph")
    with pytest.raises(NotFound, match="half"):
        registry.promote("mnist", "half", {}, expect=None)
    assert registry.champion("mnist") is None


def test_rolling_back_goes_further_back_each_time(registry: Registry) -> None:
    expect = None
    for version in "abc":
        add(registry, version)
        registry.promote("mnist", version, {}, expect=expect)
        expect = version
    assert registry.rollback("mnist", reason="c is bad at sevens").version == "b"
    assert registry.rollback("mnist").version == "a"
    with pytest.raises(NotFound, match="first champion"):
        registry.rollback("mnist")
    assert registry.rollback("mnist", to="c").version == "c"
    assert [(event.event, event.version, event.replaced) for event in registry.history("mnist")] == [
        ("promotion", "a", None),
        ("promotion", "b", "a"),
        ("promotion", "c", "b"),
        ("rollback", "b", "c"),
        ("rollback", "a", "b"),
        ("rollback", "c", "a"),
    ]
    assert [event.sequence for event in registry.history("mnist")] == [1, 2, 3, 4, 5, 6]
    assert registry.history("mnist")[3].evidence["reason"] == "c is bad at sevens"


def test_rolling_back_to_a_damaged_version_keeps_the_champion(registry: Registry) -> None:
    add(registry, "a")
    add(registry, "b")
    registry.promote("mnist", "a", {}, expect=None)
    registry.promote("mnist", "b", {}, expect="a")
    registry.storage.put("models/mnist/versions/a/model.onnx", b"rotten")
    with pytest.raises(Damaged):
        registry.rollback("mnist")
    assert registry.resolve("mnist").version == "b"


def test_an_alias_of_your_own_resolves_and_moves(registry: Registry) -> None:
    add(registry, "a")
    add(registry, "b")
    registry.alias("mnist", "staging", "a")
    registry.alias("mnist", "staging", "b", reason="try it")
    assert registry.resolve("mnist", "staging").version == "b"
    assert {name: held.version for name, held in registry.aliases("mnist").items()} == {"staging": "b"}
    with pytest.raises(InvalidInput, match="promote and rollback"):
        registry.alias("mnist", "champion", "a")
    with pytest.raises(InvalidInput, match="called like a version"):
        registry.alias("mnist", "a", "b")


class Killed(BaseException):
    """Stands for the process ending between two writes."""


class Dying:
    """A storage whose process dies before its nth write."""

    def __init__(self, storage: Storage, writes: int) -> None:
        self._storage, self._left = storage, writes

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def put(self, *args: object, **options: object) -> object:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return self._storage.put(*args, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_promotion_killed_at_any_write_leaves_pointer_and_history_in_step(registry: Registry, writes: int) -> None:
    for version in "abc":
        add(registry, version)
    registry.promote("mnist", "a", {}, expect=None)
    with suppress(Killed):
        Registry(Dying(registry.storage, writes)).promote("mnist", "b", {"n": 1}, expect="a")  # type: ignore[arg-type]
    champion = registry.resolve("mnist").version
    moves = [event.version for event in registry.history("mnist")]
    assert (champion, moves) == (("a", ["a"]) if writes <= 1 else ("b", ["a", "b"]))
    registry.promote("mnist", "c", {}, expect=champion)
    stored = [
        records.parse(registry.storage.get(entry.key), entry.key, "mnist").version
        for entry in registry.storage.list("models/mnist/history/")
    ]
    assert stored == [*moves, "c"]


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_an_upload_killed_at_any_write_is_invisible_and_can_be_repeated(registry: Registry, writes: int) -> None:
    with pytest.raises(Killed):
        Registry(Dying(registry.storage, writes)).upload("mnist", FILES, {}, "v")  # type: ignore[arg-type]
    assert registry.versions("mnist") == []
    assert registry.upload("mnist", FILES, {}, "v").version == "v"
    assert registry.read(registry.resolve("mnist", "v"), "model.onnx") == b"graph"


def test_a_lost_or_broken_index_is_made_again(registry: Registry) -> None:
    for version in "abc":
        add(registry, version)
    listed = registry.versions("mnist")
    assert [one.version for one in listed] == ["a", "b", "c"]
    assert registry.storage.head("models/mnist/index.json")
    for broken in (b"", b"[]", b'{"format": "podium.index/1", "versions": {"a": {}}}'):
        registry.storage.put("models/mnist/index.json", broken)
        assert registry.versions("mnist") == listed
    registry.storage.delete("models/mnist/index.json")
    assert registry.versions("mnist") == listed


LABELS = np.arange(100) % 10
BAD, GOOD, BEST = (np.where(np.arange(100) < wrong, (LABELS + 1) % 10, LABELS) for wrong in (40, 20, 5))


def predicting(**by_version: np.ndarray):  # type: ignore[no-untyped-def]
    return lambda version: by_version[version.version]


def test_a_contest_promotes_the_better_and_keeps_the_champion_from_the_worse(registry: Registry) -> None:
    for version in ("bad", "good"):
        add(registry, version)
    predict = predicting(bad=BAD, good=GOOD)
    first = challenge(registry, "mnist", "bad", PromotionRule(), predict, LABELS)
    assert first.record
    assert first.champion is None
    second = challenge(registry, "mnist", "good", PromotionRule(), predict, LABELS, {"run_id": "r2"})
    assert second.record
    assert second.record.evidence["run_id"] == "r2"
    assert second.record.evidence["only_challenger_right"] == 20
    third = challenge(registry, "mnist", "bad", PromotionRule(), predict, LABELS)
    assert third.record is None
    assert registry.resolve("mnist").version == "good"
    refusal = registry.history("mnist")[-1]
    assert (refusal.event, refusal.version, refusal.alias) == ("refusal", "bad", None)
    assert (refusal.evidence["champion"], refusal.evidence["only_champion_right"]) == ("good", 20)


def test_a_refusal_repeated_is_recorded_once_and_another_one_is_another(registry: Registry) -> None:
    for version in ("bad", "good"):
        add(registry, version)
    predict = predicting(bad=BAD, good=GOOD)
    challenge(registry, "mnist", "good", PromotionRule(), predict, LABELS)
    for rule in (PromotionRule(), PromotionRule(), PromotionRule(criterion="significant")):
        challenge(registry, "mnist", "bad", rule, predict, LABELS)
    assert [event.event for event in registry.history("mnist")] == ["promotion", "refusal", "refusal"]
    assert list(registry.verify("mnist")) == []


def test_a_contest_is_repeated_against_whoever_won_meanwhile(registry: Registry) -> None:
    for version in ("bad", "good", "best"):
        add(registry, version)
    registry.promote("mnist", "bad", {}, expect=None)
    asked = []

    def predict(version):  # type: ignore[no-untyped-def]
        asked.append(version.version)
        if version.version == "bad":  # while the champion is scored, another run promotes a better one
            registry.promote("mnist", "best", {}, expect="bad")
        return {"bad": BAD, "good": GOOD, "best": BEST}[version.version]

    ended = challenge(registry, "mnist", "good", PromotionRule(), predict, LABELS)
    assert asked == ["good", "bad", "best"]
    assert ended.record is None
    assert ended.champion == "best"
    assert registry.resolve("mnist").version == "best"


def test_a_promotion_step_fired_twice_makes_one_promotion(registry: Registry) -> None:
    add(registry, "good")
    first, again = (
        challenge(registry, "mnist", "good", PromotionRule(), predicting(good=GOOD), LABELS) for _ in range(2)
    )
    assert first.record == again.record
    assert len(registry.history("mnist")) == 1


def test_moves_keep_their_order_when_clocks_differ(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([5, 0, 1, 2])
    monkeypatch.setattr(records, "now", lambda: f"2026-01-02T03:04:0{next(seconds)}.000000Z")
    expect = None
    for version in "abcd":
        add(registry, version)
        if version == "d":
            registry.storage.delete("models/mnist/aliases/champion.json")
            expect = None
        registry.promote("mnist", version, {}, expect=expect)
        expect = version
    events = registry.history("mnist")
    assert [event.version for event in events] == ["a", "b", "c", "d"]
    assert [event.time[-9:] for event in events] == ["5.000000Z", "5.000001Z", "5.000002Z", "5.000003Z"]
    keys = [entry.key for entry in registry.storage.list("models/mnist/history/")]
    assert keys == [event.key for event in events]
