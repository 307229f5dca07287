"""Versions, the champion and its history, on a directory. What differs between storages is in tests/contract."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from challenges import judging

from podium.errors import Conflict, Damaged, InvalidInput, NotFound
from podium.models import Model, PromotionRule, Record, Registry, open_registry, record
from podium.storage import Entry, Storage

FILES: dict[str, Path | bytes] = {"model.onnx": b"graph", "report/per_class.json": b"{}"}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return open_registry(tmp_path / "store").model("mnist")


def add(model: Model, version: str, content: bytes = b"graph") -> str:
    return model.upload({"model.onnx": content + version.encode()}, {"run_id": version}).version


def test_a_version_comes_back_as_it_was_uploaded(model: Model, tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"graph")
    made = model.upload(
        {**FILES, "model.onnx": source}, {"run_id": "r1", "metrics": {"accuracy": 0.99}}
    )
    assert made.version == "r1"
    seen = model.version("r1")
    assert seen == made
    assert seen.metadata == {"run_id": "r1", "metrics": {"accuracy": 0.99}}
    model.version("r1").fetch(tmp_path / "out")
    assert (tmp_path / "out/model.onnx").read_bytes() == b"graph"
    assert json.loads((tmp_path / "out/metadata.json").read_text())["version"] == "r1"
    assert seen.read("model.onnx") == b"graph"


def test_the_layout_is_the_documented_one(model: Model) -> None:
    model.upload(FILES, {"run_id": "r1"})
    model.set_champion("r1", {}, expect=None)
    keys = [entry.key for entry in model.storage.list("models/")]
    assert keys == [
        "models/mnist/model.json",
        "models/mnist/versions/r1/metadata.json",
        "models/mnist/versions/r1/model.onnx",
        "models/mnist/versions/r1/report/per_class.json",
    ]


def test_the_same_upload_again_gives_the_same_version(model: Model) -> None:
    first = model.upload(FILES, {"run_id": "r1", "try": 1})
    again = model.upload(FILES, {"run_id": "r1", "try": 2})
    assert again == first
    assert [version.version for version in model.versions] == ["r1"]


def test_without_a_run_id_the_content_names_the_version(model: Model) -> None:
    first, again = (model.upload(FILES, {}) for _ in range(2))
    other = model.upload({"model.onnx": b"other"}, {})
    assert first.version == again.version != other.version
    assert len(model.versions) == 2


def test_other_content_under_a_taken_version_is_refused(model: Model) -> None:
    model.upload(FILES, {}, "v1")
    with pytest.raises(Conflict, match=r"other content in model\.onnx"):
        model.upload({**FILES, "model.onnx": b"changed"}, {}, "v1")
    assert model.version("v1").read("model.onnx") == b"graph"


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
    model: Model,
    name: str,
    files: dict[str, Path | bytes],
    metadata: dict[str, object],
    version: str,
) -> None:
    with pytest.raises(InvalidInput):
        Registry(model.storage).model(name).upload(files, metadata, version)
    assert list(model.storage.list()) == []


def test_a_version_takes_no_name_of_an_alias(model: Model) -> None:
    add(model, "a")
    model.alias("staging", "a")
    with pytest.raises(InvalidInput, match="staging is an alias of mnist, which points at a"):
        add(model, "staging", b"another graph")
    assert [version.version for version in model.versions] == ["a"]


def test_text_is_no_file_to_upload(model: Model) -> None:
    with pytest.raises(InvalidInput, match="a dict with a path or bytes by name"):
        model.upload({"model.onnx": "graph.onnx"}, {})  # type: ignore[dict-item]


def test_an_unfinished_upload_is_invisible_and_can_be_finished(model: Model) -> None:
    model.storage.put("models/mnist/versions/r1/model.onnx", b"graph")
    assert list(model.versions) == []
    with pytest.raises(NotFound, match="r1"):
        model.version("r1")
    model.upload(FILES, {"run_id": "r1"})
    assert [version.version for version in model.versions] == ["r1"]


def test_an_unfinished_upload_of_other_bytes_is_not_mixed_in(model: Model) -> None:
    model.storage.put("models/mnist/versions/r1/model.onnx", b"something else")
    with pytest.raises(InvalidInput, match=r"unfinished upload left another[\s\S]*--fix --grace 0"):
        model.upload(FILES, {"run_id": "r1"})


def test_a_changed_byte_is_reported_with_what_and_where(model: Model, tmp_path: Path) -> None:
    version = model.upload(FILES, {}, "v1")
    model.storage.put("models/mnist/versions/v1/model.onnx", b"grapf")
    with pytest.raises(Damaged, match=r"v1/model\.onnx has sha256 [0-9a-f]{64}"):
        version.read("model.onnx")
    with pytest.raises(Damaged, match=r"v1/model\.onnx"):
        model.version("v1").fetch(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".podium")] == []


def test_a_missing_file_is_damage(model: Model, tmp_path: Path) -> None:
    model.upload(FILES, {}, "v1")
    model.storage.delete("models/mnist/versions/v1/model.onnx")
    with pytest.raises(Damaged, match="missing"):
        model.version("v1").fetch(tmp_path / "out")


def test_changed_metadata_is_damage(model: Model) -> None:
    model.upload(FILES, {"metrics": {"accuracy": 0.5}}, "v1")
    key = "models/mnist/versions/v1/metadata.json"
    model.storage.put(key, model.storage.get(key).replace(b"0.5", b"0.9"))
    with pytest.raises(Damaged, match=r"v1/metadata\.json"):
        model.version("v1")


def test_a_full_target_is_refused(model: Model, tmp_path: Path) -> None:
    model.upload(FILES, {}, "v1")
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InvalidInput, match="not an empty directory"):
        model.version("v1").fetch(tmp_path)
    with pytest.raises(InvalidInput, match="not an empty directory"):
        model.version("v1").fetch(tmp_path / "mine")


def test_the_first_promotion_needs_no_champion(model: Model) -> None:
    assert model.find_champion() is None
    add(model, "a")
    record = model.set_champion("a", {"why": "first"}, expect=None)
    assert (record.version, record.previous, record.sequence) == ("a", None, 1)
    assert model.find_champion() == model.version("champion") == model.version("a")
    (seen,) = model.records()
    assert seen == record
    assert seen.evidence == {"why": "first"}


def test_a_promotion_against_another_champion_than_expected_is_refused(model: Model) -> None:
    for version in "abc":
        add(model, version)
    model.set_champion("a", {}, expect=None)
    for expect in (None, "c"):
        with pytest.raises(Conflict, match="is now a"):
            model.set_champion("b", {}, expect=expect)
    assert model.version().version == "a"
    assert len(model.records()) == 1


def test_promoting_the_champion_again_changes_nothing(model: Model) -> None:
    add(model, "a")
    first = model.set_champion("a", {}, expect=None)
    assert model.set_champion("a", {}, expect=None) == first
    assert model.records() == [first]


def test_only_a_complete_version_can_be_promoted(model: Model) -> None:
    model.storage.put("models/mnist/versions/half/model.onnx", b"graph")
    with pytest.raises(NotFound, match="half"):
        model.set_champion("half", {}, expect=None)
    assert model.find_champion() is None


def test_what_is_not_there_is_named_in_a_sentence(model: Model) -> None:
    url = model.storage.url
    with pytest.raises(NotFound, match=rf"^there is no model mnist in {url}\n"):
        model.version()
    add(model, "a")
    for read in (model.version, model.rollback):
        with pytest.raises(NotFound, match=rf"^model mnist has no champion in {url}\n"):
            read()
    with pytest.raises(NotFound, match=rf"^model mnist has no version b in {url}\n") as raised:
        model.version("b")
    assert raised.value.hint == "versions: a; aliases: none"


def test_rolling_back_goes_further_back_each_time(model: Model) -> None:
    expect = None
    for version in "abc":
        add(model, version)
        model.set_champion(version, {}, expect=expect)
        expect = version
    assert model.rollback(reason="c is bad at sevens").version == "b"
    assert model.rollback().version == "a"
    with pytest.raises(NotFound, match="first champion"):
        model.rollback()
    assert model.rollback(to="c").version == "c"
    assert [(event.event, event.version, event.replaced) for event in model.records()] == [
        ("promotion", "a", None),
        ("promotion", "b", "a"),
        ("promotion", "c", "b"),
        ("rollback", "b", "c"),
        ("rollback", "a", "b"),
        ("rollback", "c", "a"),
    ]
    assert [event.sequence for event in model.records()] == [1, 2, 3, 4, 5, 6]
    assert model.records()[3].evidence["reason"] == "c is bad at sevens"


def test_rolling_back_passes_no_version_put_under_an_old_name(model: Model) -> None:
    expect = None
    for version in "abc":
        add(model, version)
        model.set_champion(version, {}, expect=expect)
        expect = version
    model.delete("a")
    add(model, "a", b"never champion")
    assert model.rollback().version == "b"
    with pytest.raises(NotFound, match="a, a champion of mnist before, was deleted"):
        model.rollback()
    assert model.version().version == "b"
    assert model.rollback("a").version == "a"


def test_rolling_back_to_an_empty_name_is_refused(model: Model) -> None:
    for version, expect in (("a", None), ("b", "a")):
        add(model, version)
        model.set_champion(version, {}, expect=expect)
    with pytest.raises(InvalidInput, match="'' is not a version"):
        model.rollback("")
    assert model.version().version == "b"


def test_a_version_of_another_model_is_refused(model: Model, tmp_path: Path) -> None:
    add(model, "a")
    others = [Model(model.storage, "other"), open_registry(tmp_path / "elsewhere").model("mnist")]
    for other in others:
        add(other, "a", b"another graph")
        for move in (model.promote, lambda version: model.alias("staging", version)):
            with pytest.raises(InvalidInput, match="is not a version of mnist"):
                move(other["a"])  # type: ignore[operator]
    assert model.champion_id is None
    assert model.promote(model["a"]).version == "a"


def test_rolling_back_to_a_damaged_version_keeps_the_champion(model: Model) -> None:
    add(model, "a")
    add(model, "b")
    model.set_champion("a", {}, expect=None)
    model.set_champion("b", {}, expect="a")
    model.storage.put("models/mnist/versions/a/model.onnx", b"rotten")
    with pytest.raises(Damaged):
        model.rollback()
    assert model.version().version == "b"


@pytest.mark.parametrize("lost", ["model.onnx", "metadata.json"])
def test_a_rollback_that_fails_names_another_champion(model: Model, lost: str) -> None:
    for version, expect in (("a", None), ("b", "a"), ("never", None), ("c", "b")):
        add(model, version)
        if version != "never":
            model.set_champion(version, {}, expect=expect)
    model.storage.delete(f"models/mnist/versions/b/{lost}")
    with pytest.raises((Damaged, NotFound)) as raised:
        model.rollback()
    assert "podium models rollback mnist --to a" in str(raised.value.hint)
    assert model.rollback("a").version == "a"


def test_a_rollback_names_no_damaged_champion_instead(model: Model) -> None:
    for version, expect in (("a", None), ("b", "a"), ("c", "b"), ("d", "c")):
        add(model, version)
        model.set_champion(version, {}, expect=expect)
    for version in "bc":
        model.storage.delete(f"models/mnist/versions/{version}/model.onnx")
    with pytest.raises((Damaged, NotFound)) as raised:
        model.rollback()
    assert "podium models rollback mnist --to a" in str(raised.value.hint)


def test_a_version_whose_files_are_gone_is_said_to_be(model: Model) -> None:
    add(model, "a")
    model.storage.delete("models/mnist/versions/a/metadata.json")
    with pytest.raises(NotFound, match=r"metadata\.json of version a of mnist is gone") as raised:
        model.version("a")
    assert "podium models verify mnist" in str(raised.value.hint)


def test_an_alias_of_your_own_resolves_and_moves(model: Model) -> None:
    add(model, "a")
    add(model, "b")
    model.alias("staging", "a")
    model.alias("staging", "b", reason="try it")
    assert model.version("staging").version == "b"
    assert {name: held.version for name, held in model.aliases().items()} == {"staging": "b"}
    with pytest.raises(InvalidInput, match="promote and rollback"):
        model.alias("champion", "a")
    with pytest.raises(InvalidInput, match="name of a version"):
        model.alias("a", "b")


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


@pytest.mark.parametrize("writes", [0, 1])
def test_a_promotion_is_one_write(model: Model, writes: int) -> None:
    for version in "abc":
        add(model, version)
    model.set_champion("a", {}, expect=None)
    dying = Registry(Dying(model.storage, writes)).model("mnist")  # type: ignore[arg-type]
    with suppress(Killed):
        dying.set_champion("b", {"n": 1}, expect="a")
    champion = model.version().version
    moves = [event.version for event in model.records()]
    assert (champion, moves) == (("a", ["a"]) if writes < 1 else ("b", ["a", "b"]))
    model.set_champion("c", {}, expect=champion)
    assert [event.version for event in again(model).records()] == [*moves, "c"]
    assert list(model.verify()) == []


def again(model: Model) -> Model:
    """Open a model anew, with nothing read."""
    return Registry(model.storage).model(model.name)


def fill(model: Model, *numbers: int) -> None:
    """Refuse a version once for each number, in one write."""
    evidence = [{"number": number} for number in numbers]
    new = [Record.new("refusal", model.name, "a", evidence=each) for each in evidence]
    model.ledger.change(
        lambda state: None if state.has(new[0]) else replace(state, history=(*state.history, *new))
    )


def test_an_old_part_of_the_history_moves_out(model: Model) -> None:
    add(model, "a")
    model.set_champion("a", {}, expect=None)
    for start in (0, 110, 220):
        fill(model, *range(start, start + 110))
    stored = json.loads(model.storage.get("models/mnist/model.json"))
    segments = [entry.key for entry in model.storage.list("models/mnist/history/")]
    named = [f"models/mnist/history/{name}.json" for name in stored["segments"]]
    assert (sorted(named), len(named), len(stored["history"])) == (segments, 2, 100)
    records = again(model).records()
    assert [each.evidence.get("number") for each in records] == [None, *range(330)]
    assert model.aliases()["champion"] == records[0]
    assert list(model.verify()) == []


def test_large_records_move_out_before_they_are_many(model: Model) -> None:
    add(model, "a")
    for number in range(15):
        model.ledger.refuse("a", None, {"number": number, "spent": "x" * 50_000})
    assert model.storage.head(model.ledger.key).size < 600_000  # type: ignore[union-attr]
    assert [each.evidence["number"] for each in again(model).records()] == [*range(15)]


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_kill_while_history_moves_out_loses_nothing(model: Model, writes: int) -> None:
    add(model, "a")
    fill(model, *range(150))
    dying = Registry(Dying(model.storage, writes)).model("mnist")  # type: ignore[arg-type]
    with suppress(Killed):
        dying.ledger.refuse("a", None, {"number": 150})
    numbers = [each.evidence["number"] for each in again(model).records()]
    assert numbers == [*range(150 + (writes > 1))]
    model.ledger.refuse("a", None, {"number": 150})
    assert [each.evidence["number"] for each in again(model).records()] == [*range(151)]
    assert len(model.gc(grace=timedelta(0), delete=True)) == (writes == 1)
    assert [each.evidence["number"] for each in again(model).records()] == [*range(151)]
    assert list(again(model).verify()) == []


def test_a_segment_collected_while_its_writer_sleeps_is_not_named(model: Model) -> None:
    add(model, "a")
    fill(model, *range(150))

    class Sleepy(Dying):
        def put(self, key: str, *args: object, **options: object) -> object:
            if key == model.ledger.key and self._left == 98:  # its segment is written
                assert len(model.gc(grace=timedelta(0), delete=True)) == 1
            return super().put(key, *args, **options)

    Registry(Sleepy(model.storage, 99)).model("mnist").ledger.refuse("a", None, {"number": 150})  # type: ignore[arg-type]
    assert [each.evidence["number"] for each in again(model).records()] == [*range(151)]
    assert list(again(model).verify()) == []


def test_a_document_is_read_again_only_once_it_changed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(model, "a")
    model.set_champion("a", {}, expect=None)
    read, keys = model.storage.read, []
    monkeypatch.setattr(
        model.storage, "read", lambda key, **options: (keys.append(key), read(key, **options))[1]
    )
    follower = again(model)
    for _ in range(3):
        assert follower.version().version == "a"
    assert keys.count("models/mnist/model.json") == 1
    add(model, "b")
    model.set_champion("b", {}, expect="a")
    assert follower.version().version == "b"


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_killed_upload_is_invisible_and_can_be_repeated(model: Model, writes: int) -> None:
    with pytest.raises(Killed):
        Registry(Dying(model.storage, writes)).model("mnist").upload(FILES, {}, "v")  # type: ignore[arg-type]
    assert list(model.versions) == []
    assert model.upload(FILES, {}, "v").version == "v"
    assert model.version("v").read("model.onnx") == b"graph"


LABELS = np.arange(100) % 10
BAD, GOOD, BEST = (
    np.where(np.arange(100) < wrong, (LABELS + 1) % 10, LABELS) for wrong in (40, 20, 5)
)


def predicting(**by_version: np.ndarray):  # type: ignore[no-untyped-def]
    return lambda version: by_version[version.version]


def test_a_contest_promotes_only_the_better(model: Model) -> None:
    for version in ("bad", "good"):
        add(model, version)
    predict = predicting(bad=BAD, good=GOOD)
    first = model.challenge("bad", judging(predict, LABELS))
    assert first.record
    assert first.champion is None
    second = model.challenge("good", judging(predict, LABELS), {"run_id": "r2"})
    assert second.record
    assert second.record.evidence["run_id"] == "r2"
    assert second.record.evidence["only_challenger_right"] == 20
    third = model.challenge("bad", judging(predict, LABELS))
    assert third.record is None
    assert model.version().version == "good"
    refusal = model.records()[-1]
    assert (refusal.event, refusal.version, refusal.alias) == ("refusal", "bad", None)
    assert (refusal.evidence["champion"], refusal.evidence["only_champion_right"]) == ("good", 20)


def test_a_repeated_refusal_is_recorded_once(model: Model) -> None:
    for version in ("bad", "good"):
        add(model, version)
    predict = predicting(bad=BAD, good=GOOD)
    model.challenge("good", judging(predict, LABELS))
    for rule in ("better", "better", "likely=.97"):
        model.challenge("bad", judging(predict, LABELS, PromotionRule.parse(rule)))
    assert [event.event for event in model.records()] == ["promotion", "refusal", "refusal"]
    assert list(model.verify()) == []


def test_other_files_under_a_deleted_name_are_another_look(model: Model) -> None:
    add(model, "good")
    model.set_champion("good", {}, expect=None)
    part = {"test_part": "digest"}
    for look in range(3):
        add(model, "nightly", f"graph of night {look}".encode())
        wrong = np.where(np.arange(len(LABELS)) < 30 + look, (LABELS + 1) % 10, LABELS)
        ended = model.challenge(
            "nightly", judging(predicting(nightly=wrong, good=GOOD), LABELS), part
        )
        model.delete("nightly")
    assert ended.decision
    assert "challenger 3 on this test part" in "\n".join(ended.decision.reasons)


def test_a_figure_measured_later_is_of_the_files_there_are(model: Model) -> None:
    add(model, "a")
    model.set_champion("a", {}, expect=None)
    measured = {"metric": {"name": "accuracy"}, "champion_value": 0.4, "test_part": "may"}
    add(model, "b")
    model.set_champion("b", measured, expect="a")
    assert model.measured_since(model.version("a"))
    add(model, "c")
    model.set_champion("c", {}, expect="b")
    model.delete("a")
    add(model, "a", b"other files")
    assert model.measured_since(model.version("a")) is None


def test_who_won_meanwhile_is_a_look_too(model: Model) -> None:
    for version in ("bad", "good", "best"):
        add(model, version)
    model.set_champion("bad", {}, expect=None)
    part = {"test_part": "digest"}

    def predict(version):  # type: ignore[no-untyped-def]
        if version.version == "bad":  # another run promotes a better one at the same time
            model.challenge("good", judging(predicting(bad=BAD, good=GOOD), LABELS), part)
        return {"bad": BAD, "good": GOOD, "best": BEST}[version.version]

    ended = model.challenge("best", judging(predict, LABELS), part)
    assert ended.record
    assert ended.decision
    assert "challenger 2 on this test part" in "\n".join(ended.decision.reasons)


def test_a_contest_is_repeated_against_whoever_won_meanwhile(model: Model) -> None:
    for version in ("bad", "good", "best"):
        add(model, version)
    model.set_champion("bad", {}, expect=None)
    asked = []

    def predict(version):  # type: ignore[no-untyped-def]
        asked.append(version.version)
        if (
            version.version == "bad"
        ):  # while the champion is scored, another run promotes a better one
            model.set_champion("best", {}, expect="bad")
        return {"bad": BAD, "good": GOOD, "best": BEST}[version.version]

    ended = model.challenge("good", judging(predict, LABELS))
    assert asked == ["good", "bad", "best"]
    assert ended.record is None
    assert ended.champion == "best"
    assert model.version().version == "best"


def test_a_promotion_step_fired_twice_makes_one_promotion(model: Model) -> None:
    add(model, "good")
    first, again = (
        model.challenge("good", judging(predicting(good=GOOD), LABELS)) for _ in range(2)
    )
    assert first.record == again.record
    assert len(model.records()) == 1


def test_a_promotion_step_fired_twice_tells_one_decision(model: Model) -> None:
    for version in ("bad", "good"):
        add(model, version)
    model.set_champion("bad", {}, expect=None)
    judge = judging(predicting(bad=BAD, good=GOOD), LABELS)
    first, again = (model.challenge("good", judge, {"run_id": "r1"}) for _ in range(2))
    assert first.decision
    assert again.decision
    assert (again.decision.promote, again.champion) == (True, "bad")
    assert again.decision.reasons == first.decision.reasons


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_move_whose_answer_was_lost_is_made_once(
    model: Model, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    for version in ("v1", "v2", "v3"):
        add(model, version)
    model.set_champion("v1", {}, expect=None)
    put, lost = model.storage.put, []

    def losing(key: str, source: bytes, **conditions: str) -> Entry:
        entry = put(key, source, **conditions)
        if conditions.get("if_match") and not lost:
            lost.append(key)
            if overtaken:
                model.set_champion("v3", {}, expect="v2")
            raise Conflict("sent again, it meets itself")
        return entry

    monkeypatch.setattr(model.storage, "put", losing)
    assert model.set_champion("v2", {}, expect="v1").version == "v2"
    moves = [event.version for event in model.records() if event.event == "promotion"]
    assert moves == ["v1", "v2", "v3"][: 2 + overtaken]
    assert model.version().version == ("v3" if overtaken else "v2")


def test_a_lost_answer_does_not_hide_a_deletion(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(model, "v1")
    add(model, "v2")
    model.set_champion("v1", {}, expect=None)
    put, lost = model.storage.put, []

    def losing(key: str, source: bytes, **conditions: str) -> Entry:
        if not conditions.get("if_match") or lost:
            return put(key, source, **conditions)
        lost.append(key)
        model.delete("v2")
        put(key, source, **conditions)
        raise Conflict("sent again, it meets itself")

    monkeypatch.setattr(model.storage, "put", losing)
    with pytest.raises(NotFound, match="v2 of mnist is being deleted"):
        model.set_champion("v2", {}, expect="v1")
    assert model.version().version == "v1"


def test_moves_keep_their_order_when_clocks_differ(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([5, 0, 1, 2])
    monkeypatch.setattr(record, "now", lambda: f"2026-01-02T03:04:0{next(seconds)}.000000Z")
    expect = None
    for version in "abcd":
        add(model, version)
        model.set_champion(version, {}, expect=expect)
        expect = version
    events = model.records()
    assert [event.version for event in events] == ["a", "b", "c", "d"]
    assert [event.time[-9:] for event in events] == [
        "5.000000Z",
        "5.000001Z",
        "5.000002Z",
        "5.000003Z",
    ]
