"""What a registry makes of its objects, whoever wrote them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.cli import model_view
from podium.display import tables
from podium.errors import Damaged, InvalidInput
from podium.models import Model, Record, Registry, open_registry, version as versions
from podium.models.document import MAX_BYTES, seal
from podium.models.ledger import State
from podium.storage import connect

NONSENSE: list[Any] = [5, -1, 1e308, 10**400, True, "x", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", [],
                       [[]], {}, {"a": [None]}, [{"name": 7}], [1, 2], None]  # fmt: skip
METADATA = {
    "format": "podium.model/1", "name": "mnist", "version": "c", "created": "2026-01-02T03:04:05+00:00",
    "files": {"model.onnx": {"sha256": "0" * 64, "size": 5}}, "run_id": "c", "metric": {"name": "accuracy", "maximize": True}, "metrics": {"accuracy": 0.5, "log_loss": 1.0},
    "dataset": {"digest": "d", "test_digest": "t", "name": "n", "classes": ["a"], "counts": {"train": 5}},
    "report": {"classes": [{"name": "a"}], "confusion": [[3]]}, "hyperparameters": {"lr": 0.1},
    "origin": {"kind": "trial", "uri": "u"}, "image": "i", "code_version": "1", "environment": {"python": "3"},
}  # fmt: skip
EVIDENCE = {"reason": "r", "reasons": ["no: x"], "metric": {"name": "accuracy"}, "value": 0.5, "champion": "a", "champion_value": 0.4,
            "p_value": 0.1}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, entry in inner:
        yield from places(entry, (*path, key))


def spoiled(value: Any) -> Iterator[Any]:
    """Yield a document again and again, each time with nonsense at another place."""

    def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
        copy = value.copy()
        copy[path[0]] = replaced(value[path[0]], path[1:], new) if path[1:] else new
        return copy

    for path in places(value):
        for new in NONSENSE:
            yield replaced(value, path, new)


def test_nonsense_in_metadata_is_damage_or_can_be_shown(tmp_path: Path) -> None:
    shown = 0
    for document in spoiled(METADATA):
        try:
            version = versions.parse_metadata(seal(document), connect(tmp_path), "mnist", "c")
        except Damaged:
            continue
        assert isinstance(version, versions.Version)
        model_view.version(version, {})
        version.facts.report.most_confused()
        json.dumps(version.document())
        shown += 1
    assert shown > 50


@pytest.mark.parametrize("event", ["promotion", "refusal"])
def test_nonsense_in_a_record_is_damage_or_can_be_shown(event: str) -> None:
    made = Record.new(
        event, "mnist", "c", alias="champion" if event == "promotion" else None, evidence=EVIDENCE
    )
    shown = 0
    for document in spoiled(made.to_json()):
        try:
            record = Record.parse(document, "model.json", "mnist")
        except Damaged:
            continue
        tables.paint(model_view.history([record]))
        shown += 1
    assert shown > 20


@pytest.mark.parametrize("member", ["sequence", "evidence", "time", "id", "version"])
def test_a_record_that_lacks_a_member_is_damage(member: str) -> None:
    document = Record.new("promotion", "mnist", "c", alias="champion", evidence=EVIDENCE).to_json()
    del document[member]
    with pytest.raises(Damaged, match=f"model.json has no {member}"):
        Record.parse(document, "model.json", "mnist")


def test_nonsense_in_a_document_is_damage_or_can_be_shown() -> None:
    record = Record.new("promotion", "mnist", "c", alias="champion", evidence=EVIDENCE)
    state = State(
        versions={"c": "0" * 64},
        aliases={"champion": record},
        history=(record,),
        deleting={"d": "t"},
    )
    for document in spoiled(state.document("mnist")):
        try:
            seen = State.parse(document, "model.json", "mnist")
        except Damaged:
            continue
        tables.paint(model_view.history(seen.history))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return open_registry(tmp_path / "store").model("mnist")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"note": "x" * MAX_BYTES}, "larger than"),
        ({"note": nested(200)}, "nested more than 100"),
        ({"note": nested(50_000)}, "nested more than 100"),
        ({"note": "\ud800"}, "surrogate"),
        ({"dataset": 7}, "dataset must be an object"),
        ({"report": 5}, "report must be an object"),
        (
            {"report": {"confusion": [[1]], "classes": []}},
            "confusion has 1 rows, but there are 0 classes",
        ),
        ({"report": {"confusion": [[1, 2]], "classes": ["a"]}}, "square matrix"),
        ({"metric": {"name": "rmse"}, "metrics": {"rmse": "high"}}, "rmse must be a finite number"),
        ({"metric": {"name": "rmse", "maximize": "no"}}, "maximize must be true or false"),
        ({"metric": "rmse"}, "metric must be an object"),
        ({"run_id": 7}, "run_id must be text"),
        ({"hyperparameters": [1]}, "hyperparameters must be an object"),
    ],
)
def test_metadata_that_no_reader_could_read_is_not_uploaded(
    model: Model, metadata: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        model.upload({"model.onnx": b"m"}, metadata, "v")
    assert list(model.storage.list()) == []


def test_evidence_that_no_reader_could_read_is_not_written(model: Model) -> None:
    model.upload({"model.onnx": b"m"}, {}, "v")
    with pytest.raises(InvalidInput, match="value must be a finite number"):
        model.set_champion("v", {"value": "high"}, expect=None)
    assert model.find_champion() is None


def test_a_whole_number_is_listed_as_a_float(model: Model) -> None:
    model.upload(
        {"model.onnx": b"m"}, {"metric": {"name": "accuracy"}, "metrics": {"accuracy": 1}}, "v"
    )
    assert repr(model.versions[0].facts.value) == "1.0"


def test_names_nobody_can_have_given_are_left_out(model: Model, tmp_path: Path) -> None:
    model.upload({"model.onnx": b"m"}, {}, "v")
    places = (
        "models/b\nd/x",
        "models/mnist/versions/b\nd/metadata.json",
        "models/mnist/history/b\nd.json",
    )
    for place in places:
        (tmp_path / "store" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / place).write_text("{}")
    assert list(Registry(model.storage)) == ["mnist"]
    assert [version.version for version in model.versions] == ["v"]
    assert model.aliases() == {}
    assert model.records() == []
    assert list(model.verify()) == []
