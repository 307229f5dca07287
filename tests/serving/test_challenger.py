"""A second version beside the one that answers, and promotion by what both answered."""

import asyncio
import errno
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import TABLE, rows_model, save
from onnx import TensorProto, helper, numpy_helper
from s3servers import KEYS, Application, moto
from servers import Running, serving, tensor, upload_gated

from podium.cli.serve import _beside
from podium.data import held_out
from podium.data.seen import SeenItems
from podium.errors import Damaged, InvalidInput, PodiumError
from podium.models import Model, NotPromoted, live, open_registry
from podium.models.recorded import Recording, digest_of
from podium.models.task import spellings
from podium.serving.challenger import Answered, Challenger
from podium.serving.served import Loaded, find_models
from podium.serving.service import Limits, Service
from podium.storage import connect

pytestmark = pytest.mark.whole

TRUTH = ["low", "high"]


def always_low() -> bytes:
    """A model of the same rows that says low, whatever comes."""
    weights = numpy_helper.from_array(np.zeros((2, 2), np.float32), "weights")
    more = numpy_helper.from_array(np.array([1, 0], np.float32), "more")
    nodes = [
        helper.make_node("MatMul", ["table", "weights"], ["zero"]),
        helper.make_node("Add", ["zero", "more"], ["logits"]),
    ]
    return save(nodes, {"table": (TensorProto.FLOAT, ["n", 2])}, "logits", 2, weights, more)


def items(count: int) -> np.ndarray:
    """Rows x, color: the champion says high of those whose x is above 0."""
    table = np.zeros((count, 2), np.float32)
    table[:, 0] = np.arange(count) - count / 2 + 0.5
    return table


@pytest.fixture
def churn(tmp_path: Path) -> Model:
    """Its champion v1 says low of every row, v2 knows better, v3 has seen the first ten rows."""
    model = open_registry(tmp_path / "store").model("churn")
    described = json.dumps(TABLE).encode()
    rows = held_out.TestInputs(inputs={"table": items(60)[:10]}, kept=np.arange(10))
    seen = SeenItems(hashes=np.sort(rows.hashes())).to_bytes()
    none = SeenItems(hashes=np.zeros(0, np.uint64)).to_bytes()
    for name, graph, known in (("v1", always_low(), none), ("v2", rows_model(), none), ("v3", rows_model(), seen)):  # fmt: skip
        files: dict[str, Path | bytes] = {"model.onnx": graph, "preprocessing.json": described, "seen.npz": known}  # fmt: skip
        model.upload(files, {"run_id": name})
    model.set_champion("v1", {}, expect=None)
    return model


def ask(server: Running, row: np.ndarray, name: str = "", **headers: str) -> Any:
    body = {"inputs": [tensor(row.reshape(1, 2), "table", "FP32")], "id": name}
    answer = server.infer("churn", body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def compared(server: Running) -> Counter[tuple[str, str, str]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith("podium_serve_compared_total"):
            pairs = dict(pair.split("=") for pair in line.split("{")[1].split("}")[0].split(","))
            labels = [pairs[name].strip('"') for name in ("version", "role", "outcome")]
            counts[labels[0], labels[1], labels[2]] = int(line.split()[-1])
    return counts


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def record(place: Path, rows: np.ndarray, *words: str, first: int = 0) -> None:
    """Ask a server for each row, by the ids r0, r1, …; v2 answers too, and both are recorded."""
    options = words or ("--shadow", "v2")
    with serving("churn", "--storage", place / "store", *options, "--record", place / "answers") as server:  # fmt: skip
        for at, row in enumerate(rows, first):
            assert ask(server, row, f"r{at}")["model_version"] == "v1"
        until(lambda: sum(compared(server).values()) == len(rows))


def write_labels(file: Path, rows: np.ndarray, left_out: Sequence[int] = ()) -> Path:
    lines = [f"r{at},{TRUTH[int(row[0] > 0)]}\n" for at, row in enumerate(rows) if at not in left_out]  # fmt: skip
    file.write_text("id,label\n" + "".join(lines))
    return file


def test_clients_of_a_shadow_get_the_champions_answer(churn: Model, tmp_path: Path) -> None:
    record(tmp_path, items(60))
    exchanges = list(Recording(tmp_path / "answers", "churn"))
    assert [each.id for each in exchanges] == [f"r{at}" for at in range(60)]
    for each, row in zip(exchanges, items(60), strict=True):
        assert list(each.answers) == ["v1", "v2"]
        assert int(np.argmax(each.answers["v1"].predicted[0])) == 0
        assert int(np.argmax(each.answers["v2"].predicted[0])) == int(row[0] > 0)
        assert each.answers["v1"].items == each.answers["v2"].items


def test_live_items_promote_by_the_rule(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    promoted = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    assert churn.champion.version == "v2"
    assert promoted.decision
    figures = promoted.decision.figures
    assert (figures["value"], figures["champion_value"], figures["items"]) == (1.0, 0.5, 60)
    assert promoted.record
    live = promoted.record.evidence["live"]
    assert live["recorded_in"] == str(tmp_path / "answers")
    assert (live["items"], live["labels_in"]) == (60, str(labels))
    assert any("live items that were answered from" in reason for reason in promoted.decision.reasons)  # fmt: skip


def test_a_person_approves_what_live_items_show(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    with pytest.raises(NotPromoted, match="v1 stays champion"):
        churn.promote("v2", rule="likely,approved", live=tmp_path / "answers", labels=labels)
    assert churn.approve("v2", "seen").decision.figures["items"] == 60  # type: ignore[union-attr]


def test_a_worse_version_is_refused_on_live_items(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    churn.promote("v2")
    with pytest.raises(NotPromoted, match="v2 stays champion"):
        churn.promote("v1", rule="likely", live=tmp_path / "answers", labels=labels)
    assert churn.records()[-1].evidence["live"]["items"] == 60


def test_another_look_at_other_live_items_says_so(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)

    labels = write_labels(tmp_path / "labels.csv", rows[:40])
    with pytest.raises(NotPromoted, match="v1 stays champion"):  # for want of a person's word
        churn.promote("v2", rule="likely,approved", live=tmp_path / "answers", labels=labels)
    write_labels(labels, -rows[:20])  # all of v2's answers are wrong
    for _ in range(2):
        with pytest.raises(NotPromoted, match="v1 stays champion"):
            churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
        assert "refused before" not in str(churn.records()[-1].evidence)
    labels = write_labels(labels, rows)
    decision = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels).decision
    assert decision
    assert "refused before, on fewer or other items (1 look): " in "; ".join(decision.reasons)


def test_what_a_version_saw_in_training_does_not_count(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows, "--shadow", "v3")
    labels = write_labels(tmp_path / "labels.csv", rows, left_out=range(10, 60, 5))
    decision = churn.promote("v3", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip
    assert decision
    assert decision.figures["items"] == 40
    words = "\n".join(decision.reasons)
    assert "v3 has seen 10 live items in training" in words
    assert "10 of 60 recorded items have no label" in words


def test_ids_of_different_items_are_left_out_and_said(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    record(tmp_path, rows[:5] + 1000, first=0)
    record(tmp_path, rows[50:], first=50)
    labels = write_labels(tmp_path / "labels.csv", rows)
    decision = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip
    assert decision
    assert decision.figures["items"] == 55
    assert "5 request ids are left out" in "\n".join(decision.reasons)


def test_labels_that_name_no_class_are_refused(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\n" + "".join(f"r{at},{at % 2}\n" for at in range(60)))
    with pytest.raises(InvalidInput, match=r"none of the 60 labels of recorded items, such as '0', is a class of churn v2: low, high"):  # fmt: skip
        churn.promote("v2", rule="not-worse", live=tmp_path / "answers", labels=labels)
    assert churn.champion.version == "v1"


def test_live_labels_may_be_in_another_case(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    labels.write_text(labels.read_text().replace("low", "Low"))
    churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    figures = churn.records()[-1].evidence
    assert (figures["value"], figures["champion_value"]) == (1.0, 0.5)


def test_labels_may_mix_spellings_of_a_class(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    lines = labels.read_text().splitlines(keepends=True)
    labels.write_text("".join(line.upper() if at % 3 == 1 else line for at, line in enumerate(lines)).replace("R", "r"))  # fmt: skip
    decision = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels).decision  # fmt: skip
    assert decision
    assert (decision.figures["value"], decision.figures["champion_value"]) == (1.0, 0.5)
    assert "does not know" not in "\n".join(decision.reasons)


@pytest.mark.parametrize(
    ("own", "spelled"),
    [(("yes", "Yes", "1", "NO", "maybe"), ["yes", "yes", "yes", "no", "maybe"])],
)
def test_each_label_is_the_class_it_spells(own: tuple[str, ...], spelled: list[str]) -> None:
    assert list(map(spellings(("no", "yes"), own).__getitem__, own)) == spelled
    assert spellings(("No", "no"), ("NO",)) == {"NO": "NO"}, "of two classes it may be either"


def test_agreement_knows_classes_in_another_spelling(churn: Model, tmp_path: Path) -> None:
    described = json.dumps({**TABLE, "classes": ["Low", "High"]}).encode()
    seen = churn.version("v2").read("seen.npz")
    churn.upload({"model.onnx": rows_model(), "preprocessing.json": described, "seen.npz": seen}, {"run_id": "v4"})  # fmt: skip
    rows = items(60)
    record(tmp_path, rows, "--shadow", "v4")
    labels = write_labels(tmp_path / "labels.csv", rows, left_out=range(0, 60, 3))
    decision = churn.promote("v4", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip
    assert decision
    assert "v4 and v1 answer the same on 50.0% of 40 items" in "\n".join(decision.reasons)


def copy_of(model: Model, place: Path) -> Model:
    """Make another registry with the same names of versions, of which v2 is another model."""
    other = open_registry(place).model("churn")
    for name in ("v1", "v2"):
        files: dict[str, Path | bytes] = {file: model.version(name).read(file) for file in model.version(name).files}  # fmt: skip
        files |= {"model.onnx": always_low()}
        other.upload(files, {"run_id": name})
    other.set_champion("v1", {}, expect=None)
    return other


def test_answers_of_another_model_of_that_name_do_not_count(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    other = copy_of(churn, tmp_path / "other")
    with pytest.raises(InvalidInput, match="where v2 is another model of that name"):
        other.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    (file,) = (tmp_path / "answers/churn").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines[::6]:
        line["digests"]["v2"] = digest_of(other.version("v2"))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    decision = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip
    assert decision
    assert decision.figures["items"] == 50
    words = "\n".join(decision.reasons)
    assert "10 recorded answers of v2 are left out, as another model of that name gave them" in words  # fmt: skip


def test_no_answer_of_another_model_stands_for_a_failure(churn: Model, tmp_path: Path) -> None:
    recording, rows = Recording(tmp_path / "answers", "churn"), items(60)
    mine, other = digest_of(churn.version("v2")), "another model"
    for fails, digest in ((True, mine), (False, other)):
        for at, row in enumerate(rows):
            hashed = [f"{at:016x}"]
            first = {"predicted": [[1, 0]], "items": hashed}
            second = None if fails else {"predicted": [[float(row[0] <= 0), float(row[0] > 0)]], "items": hashed}  # fmt: skip
            line = {
                "id": f"r{at}", "time": "2026-01-01T00:00:00+00:00", "answers": {"v1": first, "v2": second},
                "digests": {"v1": digest_of(churn.version("v1")), "v2": digest},
            }  # fmt: skip
            recording.add(json.dumps(line).encode() + b"\n")
    labels = write_labels(tmp_path / "labels.csv", rows)
    with pytest.raises(InvalidInput, match="where v2 is another model of that name"):
        churn.promote("v2", rule="not-worse", live=tmp_path / "answers", labels=labels)


def test_labels_of_no_sample_of_the_items_are_refused(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows, left_out=range(30, 50))
    with pytest.raises(InvalidInput, match=r"v2 and v1 answer the same on 75.0% of 40 items with a label and on 0.0% of 20 without one .* refused below p = 0.001"):  # fmt: skip
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    write_labels(labels, rows, left_out=range(0, 60, 3))
    decision = churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip
    assert decision
    assert "v2 and v1 answer the same on 50.0% of 40 items with a label and on 50.0% of 20 without one (Fisher's exact test: p = 1)" in "\n".join(decision.reasons)  # fmt: skip


def test_labels_of_one_answer_alone_are_refused(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    [file] = (tmp_path / "answers").rglob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for at, line in enumerate(lines):  # v1 says high where v2 does, but on each tenth item
        if at % 10:
            line["answers"]["v1"]["predicted"] = line["answers"]["v2"]["predicted"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    labels = write_labels(tmp_path / "labels.csv", rows, left_out=range(30))
    with pytest.raises(InvalidInput, match=r"v2 says high on 100.0% of 30 items with a label and on 0.0% of 30 without one .* refused below p = 0.001"):  # fmt: skip
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    write_labels(labels, rows, left_out=range(1, 60, 2))
    assert churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels, dry_run=True).decision  # fmt: skip


def test_items_after_the_last_label_may_be_others(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows, left_out=[0, *range(30, 60)])
    with pytest.raises(NotPromoted) as kept:
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    assert "on 100.0% of 29 items with a label and on 100.0% of 1 without one" in str(kept.value)


@pytest.fixture
def price(tmp_path: Path) -> Model:
    """A regression whose champion v1 says 0 of every row, while v2 is near the truth, x."""
    model = open_registry(tmp_path / "store").model("churn")
    described = json.dumps({**TABLE, "classes": []}).encode()
    for name, factor in (("v1", 0.0), ("v2", 0.9)):
        weights = numpy_helper.from_array(np.array([[factor], [0]], np.float32), "weights")
        node = helper.make_node("MatMul", ["table", "weights"], ["number"])
        graph = save([node], {"table": (TensorProto.FLOAT, ["n", 2])}, "number", 1, weights)
        model.upload({"model.onnx": graph, "preprocessing.json": described}, {"run_id": name})
    model.set_champion("v1", {}, expect=None)
    return model


def test_labels_of_numbers_promote_unless_they_are_no_sample(price: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)

    def labels(kept: Sequence[int]) -> Path:
        lines = [f"r{at},{rows[at, 0]}\n" for at in kept]
        (tmp_path / "labels.csv").write_text("id,label\n" + "".join(lines))
        return tmp_path / "labels.csv"

    def promote(kept: Sequence[int], **more: Any) -> Any:
        return price.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels(kept), **more).decision  # fmt: skip

    with pytest.raises(InvalidInput, match=r"answer nearly the same on 80.0% of 30 items with a label and on 0.0% of 15 without one .* refused below p = 0.001"):  # fmt: skip
        promote(range(15, 45))
    (tmp_path / "labels.csv").write_text("id,label\nr0,cheap\n")
    with pytest.raises(InvalidInput, match="the label 'cheap' is not a number"):
        price.promote("v2", rule="likely", live=tmp_path / "answers", labels=tmp_path / "labels.csv")  # fmt: skip
    sample = promote(range(2, 60, 3), dry_run=True)
    assert "v2 and v1 answer nearly the same on 50.0% of 20 items with a label and on 50.0% of 40 without one" in "\n".join(sample.reasons)  # fmt: skip
    promoted = promote(range(60))
    assert (promoted.figures["items"], price.champion.version) == (60, "v2")
    assert promoted.figures["value"] == pytest.approx(0.1 * np.sqrt((rows[:, 0] ** 2).mean()), 1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_items_and_whole_requests_drawn_by_chance_are_samples(seed: int) -> None:
    random = np.random.default_rng(seed)
    request = np.arange(200).repeat(200)
    names = [f"r{at}" for at in request]

    def chance(same: np.ndarray, marked: np.ndarray) -> float:
        counts = [
            [int((same & side).sum()), int((~same & side).sum())] for side in (marked, ~marked)
        ]
        return live._chance(counts, same, marked, names)[1]

    different, labeled = (random.permutation(200)[:20] for _ in range(2))
    by_request = ~np.isin(request, different)
    assert chance(by_request, np.isin(request, labeled)) > 0.001
    assert chance(by_request, np.isin(request, different)) < 1e-6
    single = np.isin(np.arange(len(request)), random.permutation(len(request))[:50])
    assert chance(random.random(len(request)) < 0.9, single) > 0.001


def test_ids_that_all_stand_for_different_items_are_said(churn: Model, tmp_path: Path) -> None:
    record(tmp_path, items(3))
    record(tmp_path, items(3) + 1000)
    labels = write_labels(tmp_path / "labels.csv", items(3))
    with pytest.raises(InvalidInput, match=r"each request id in .* stands for different items, .*: 'r0', 'r1', 'r2'"):  # fmt: skip
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)


def test_a_slice_of_recorded_hashes_is_refused(churn: Model, tmp_path: Path) -> None:
    record(tmp_path, items(12))
    labels = write_labels(tmp_path / "labels.csv", items(12))
    with pytest.raises(InvalidInput, match="holds hashes of them") as raised:
        churn.promote("v2", rule="likely,slice=color", live=tmp_path / "answers", labels=labels)
    assert "--rule slice=color --data URI" in str(raised.value)


def test_equal_items_count_once(churn: Model, tmp_path: Path) -> None:
    rows = np.repeat(items(2), 40, axis=0)
    record(tmp_path, rows)
    labels = write_labels(tmp_path / "labels.csv", rows)
    with pytest.raises(NotPromoted):
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    assert churn.records()[-1].evidence["units"] == 2


LABELS = {
    "id,lable\nr0,low\n": "no column 'label'",
    "id,label\nr0,low\nr0,high\n": "twice, in rows 1 and 2",
    "id,label\nx0,low\n": "none of the 1 labels in",
    "id,label\n": "has no",
    "id,item,label\nr0,-1,low\n": "row 1: item is the place in the request, from 0, not -1",
}


def test_labels_that_do_not_fit_are_a_sentence(churn: Model, tmp_path: Path) -> None:
    record(tmp_path, items(12))
    file, before = tmp_path / "labels.csv", len(churn.records())
    for content, sentence in LABELS.items():
        file.write_text(content)
        with pytest.raises(PodiumError, match=sentence):
            churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=file)
    file.write_text("id,label\nr0,low\n")
    for given, sentence in (
        ({"live": tmp_path / "none", "labels": file}, "no recorded answers"),
        ({"live": tmp_path / "answers"}, "go together"),
        ({"live": tmp_path / "answers", "labels": tmp_path / "no.csv"}, "no file"),
        ({"live": tmp_path / "answers", "labels": file, "data": tmp_path}, "not with other data"),
    ):
        with pytest.raises(PodiumError, match=sentence):
            churn.promote("v2", rule="likely", **given)  # type: ignore[arg-type]
    with pytest.raises(PodiumError, match="there is no rule"):
        churn.promote("v2", live=tmp_path / "answers", labels=file)
    with pytest.raises(PodiumError, match="answered none of the labeled items"):
        churn.promote("v3", rule="likely", live=tmp_path / "answers", labels=file)
    assert len(churn.records()) == before


def test_a_canary_answers_its_share_and_keeps_its_clients(churn: Model, tmp_path: Path) -> None:
    words = ("churn", "--storage", tmp_path / "store", "--canary", "v2=30%")
    with serving(*words, "--record", tmp_path / "answers") as server:
        row, users = np.array([5.0, 0], np.float32), [f"user{at}" for at in range(200)]
        sticky = [{user: ask(server, row, **{"Podium-Sticky": user})["model_version"] for user in users} for _ in "12"]  # fmt: skip
        assert sticky[0] == sticky[1]
        share = Counter(sticky[0].values())["v2"] / 200
        assert 0.15 < share < 0.45
        named = [ask(server, row, "the-same")["model_version"] for _ in range(20)]
        assert len(set(named)) == 1
        free = Counter(ask(server, row)["model_version"] for _ in range(200))
        assert free["v1"] > free["v2"] > 0
        counts = compared(server)
        answered = 2 * Counter(sticky[0].values())["v2"] + named.count("v2") + free["v2"]
        assert counts["v2", "canary", "answered"] == answered
        until(lambda: compared(server)["v1", "shadow", "answered"] == answered)
        asked = server.http.post("/v2/models/churn/versions/v2/infer", json={"inputs": [tensor(row.reshape(1, 2), "table", "FP32")]})  # fmt: skip
        assert asked.json()["model_version"] == "v2"
        assert server.http.get("/v2/models/churn").json()["versions"] == ["v1", "v2"]
    first = next(iter(Recording(tmp_path / "answers", "churn")))
    assert list(first.answers) == ["v2", "v1"]


def test_a_request_with_an_unreadable_item_pairs_with_no_label(
    churn: Model, tmp_path: Path
) -> None:
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v2", "--record", tmp_path / "answers")  # fmt: skip
    with serving(*words) as server:
        good = [{"x": 3, "color": "red"}, {"x": -4, "color": "red"}]
        bad = {"x": "many", "color": "red"}
        for name, rows in (("one", good), ("two", [good[0], bad, good[1]])):
            answer = server.http.post("/v2/models/churn/predict", json={"rows": rows}, headers={"X-Request-Id": name})  # fmt: skip
            assert (answer.json()["id"], answer.json()["model_version"]) == (name, "v1")
        until(lambda: compared(server)["v2", "shadow", "answered"] == 2)
    one, two = sorted(Recording(tmp_path / "answers", "churn"), key=lambda each: each.id)
    assert [int(np.argmax(row)) for row in one.answers["v2"].predicted] == [1, 0]
    assert all(one.answers["v1"].items)
    assert two.answers["v2"].predicted == (None,) * 3
    assert two.answers["v1"].items == ("",) * 3


def test_a_failing_shadow_harms_no_client(churn: Model, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.zeros((3, 2), np.float32), "weights")
    node = helper.make_node("MatMul", ["table", "weights"], ["logits"])
    other = save([node], {"table": (TensorProto.FLOAT, ["n", 3])}, "logits", 2, weights)
    churn.upload({"model.onnx": other}, {"run_id": "v4"})
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v4", "--record", tmp_path / "answers")  # fmt: skip
    with serving(*words) as server:
        for at in range(12):
            assert ask(server, items(1)[0], f"r{at}")["model_version"] == "v1"
        until(lambda: compared(server)["v4", "shadow", "failed"] == 12)
        assert not [line for line in server.said if "Traceback" in line]
    exchanges = list(Recording(tmp_path / "answers", "churn"))
    assert {(tuple(each.answers), each.failed) for each in exchanges} == {(("v1",), ("v4",))}


def test_a_promoted_challenger_is_asked_once(churn: Model, tmp_path: Path) -> None:
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v2", "--follow", "0.1")
    with serving(*words) as server:
        churn.promote("v2")
        until(lambda: server.http.get("/v2/models/churn").json()["versions"] == ["v2"])
        before = sum(compared(server).values())
        assert ask(server, items(1)[0])["model_version"] == "v2"
        assert sum(compared(server).values()) == before


def test_few_answers_share_an_object_unless_somebody_removes_it(tmp_path: Path) -> None:
    recording, folder = Recording(tmp_path, "churn"), tmp_path / "churn"
    for _ in range(3):
        recording.add(b"a\n")
    (first,) = folder.iterdir()
    assert first.read_bytes() == b"a\na\na\n"
    first.unlink()
    recording.add(b"b\n")
    (second,) = folder.iterdir()
    assert second.read_bytes() == b"b\n"
    recording.add((1 << 20) * b"c")
    recording.add(b"d\n")
    assert [len(file.read_bytes()) for file in sorted(folder.iterdir())] == [2, 1 << 20, 2]


def test_recorded_bytes_are_bounded(tmp_path: Path) -> None:
    recording, answer = Recording(tmp_path, "churn", most=1000), {"predicted": [0], "items": ["1"]}
    (tmp_path / "churn").mkdir()
    (tmp_path / "churn/train.jsonl").write_text("x" * 5000)
    for at in range(50):
        line = {"id": str(at), "time": "2026-01-01T00:00:00+00:00", "answers": {"v1": answer}, "digests": {"v1": "0"}}  # fmt: skip
        recording.add(json.dumps(line).encode() + b"\n")
    assert (tmp_path / "churn/train.jsonl").stat().st_size == 5000, "it is somebody else's"
    held = list((tmp_path / "churn").glob("0*.jsonl"))
    assert 500 < sum(file.stat().st_size for file in held) <= 1000
    assert [each.id for each in recording][-1] == "49"


REFUSED: dict[str, tuple[list[str], str]] = {
    "no share": (["--canary", "v2"], "above 0 % and below 100 %"),
    "a share of all": (["--canary", "v2=100%"], "above 0 % and below 100 %"),
    "no number": (["--canary", "v2=nan%"], "above 0 % and below 100 %"),
    "no version": (["--shadow", "v9"], "has no version v9"),
    "another model": (["--shadow", "chrun@v2"], "beside chrun of the models churn"),
    "two": (["--shadow", "v2", "--canary", "v3=5%"], "are both to answer beside churn"),
    "nothing to record": (["--record", "answers"], "--record needs --shadow or --canary"),
    "a place that is a file": (["--shadow", "v2", "--record", "file"], "a storage is a directory"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_second_version_that_cannot_be_is_refused(
    what: str, churn: Model, tmp_path: Path, typed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    words, sentence = REFUSED[what]
    done = typed("serve", "churn", "--storage", str(tmp_path / "store"), "--port", "0", *words)
    assert (done.returncode in (1, 2), "Traceback" in done.stderr) == (True, False)
    assert sentence in done.stderr


def test_a_directory_has_no_second_version(tmp_path: Path, typed: Callable[..., Any]) -> None:
    (tmp_path / "model.onnx").write_bytes(rows_model())
    done = typed("serve", f"{tmp_path}/", "--port", "0", "--shadow", "v2")
    assert done.returncode == 2
    assert "is a directory, which has no version 'v2'" in done.stderr


def test_a_version_that_failed_is_not_promoted_by_the_rest(churn: Model, tmp_path: Path) -> None:
    rows = items(60)
    record(tmp_path, rows)
    (file,) = (tmp_path / "answers/churn").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines[:7]:
        line["answers"]["v2"] = None
    lines[7]["answers"]["v2"] = {"predicted": [], "items": []}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    labels = write_labels(tmp_path / "labels.csv", rows)
    with pytest.raises(InvalidInput, match="v2 has no answer to 8 of 60 labeled items"):
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)
    for line in lines:
        line["answers"]["v2"] = {"predicted": [0.5], "items": line["answers"]["v1"]["items"]}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(Damaged, match="recorded answers of churn v2 are not predictions"):
        churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)


BROKEN = ("{", "[]", '{"id":"a"}', '{"id":"a","time":"2026-01-01T00:00:00+00:00","answers":{"v1":{"predicted":[1],"items":[]}},"digests":{"v1":"0"}}',
          '{"id":"a","time":"2026-01-01T00:00:00+00:00","answers":{"v1":{"predicted":[1],"items":["1"]}}}',
          '{"id":"a","time":"x","answers":{}}', "[" * 100_000)  # fmt: skip


def test_answers_that_cannot_be_recorded_are_said(churn: Model, tmp_path: Path) -> None:
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v2", "--record", tmp_path / "answers")  # fmt: skip
    with serving(*words) as server:
        (tmp_path / "answers").mkdir(exist_ok=True)
        (tmp_path / "answers/churn").write_text("a file in its place")
        for row in items(2):
            ask(server, row)
        until(lambda: compared(server)["v2", "shadow", "answered"] == 2)
    said = [line for line in server.said if "2 answered requests of churn@v2 could not be recorded: " in line]  # fmt: skip
    assert len(said) == 1, server.said


def test_answers_wait_for_a_storage_that_is_away(churn: Model, tmp_path: Path) -> None:
    (model,) = find_models(["churn"], str(tmp_path / "store"))
    recording = Recording(tmp_path / "answers", "churn")
    second = Challenger(model.beside("v2"), 0.0, recording, 60)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/churn").write_text("a file in its place")
    for name in "ab":
        second._record(name, datetime.now(UTC), {})
    for _ in range(2):
        with pytest.raises(PodiumError):
            asyncio.run(second.flush())
    assert (second.recorded, second.record_failures) == (0, 0)
    (tmp_path / "answers/churn").unlink()
    asyncio.run(second.flush())
    assert (second.recorded, second.record_failures) == (2, 0)
    assert [each.id for each in recording] == ["a", "b"]


def test_no_answer_is_written_again_where_old_ones_cannot_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(key: str) -> None:
        raise PodiumError(f"cannot delete {key}")

    recording = Recording(tmp_path, "churn", most=20)
    recording.add(b"x" * 20)
    monkeypatch.setattr(recording._storage, "delete", refuse)
    for _ in range(3):
        with pytest.raises(PodiumError):
            recording.add(b"y" * 20)
    assert [file.read_bytes() for file in (tmp_path / "churn").iterdir()] == [b"x" * 20]


def test_a_server_that_ends_records_what_waits_for_the_writer(churn: Model, tmp_path: Path) -> None:
    (model,) = find_models(["churn"], str(tmp_path / "store"))
    second = Challenger(model.beside("v2"), 0.0, Recording(tmp_path / "answers", "churn"), 0.2)
    for each in (model, second.served):
        each.open()
    written = threading.Event()

    async def ask(now: Loaded, threads: Any) -> Answered:
        return Answered(version=now.version, said=None, rows=lambda: ([None], []))

    async def ends_while_a_segment_is_written() -> None:
        second._writer.submit(written.wait, 30)
        second._follow(model.now, await ask(model.now, None), second.served, ask, "a", 1)
        closing = asyncio.create_task(second.close())
        await asyncio.sleep(1)
        written.set()
        await closing

    asyncio.run(ends_while_a_segment_is_written())
    assert [each.id for each in Recording(tmp_path / "answers", "churn")] == ["a"]
    assert (second.recorded, second.record_failures) == (1, 0)


def test_challengers_end_together_and_leave_no_thread(
    churn: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    monkeypatch.setattr("podium.serving.challenger._LAST_WRITE_SECONDS", 2)
    (model,) = find_models(["churn"], str(tmp_path / "store"))
    model.open()
    service = Service([model], token="", limits=Limits(), follow=0.1)
    service._challengers = [
        Challenger(model.beside("v2"), 0.0, Recording(tmp_path / f"answers{at}", "churn"), 60)
        for at in range(3)
    ]
    written = threading.Event()

    async def ends() -> None:
        async with service.running():
            await asyncio.sleep(1)
            for challenger in service._challengers:
                challenger._writer.submit(written.wait, 30)

    began = time.monotonic()
    asyncio.run(ends())
    assert time.monotonic() - began < 5
    written.set()
    ours = ("podium-record", "podium-follow")
    until(
        lambda: (
            not [
                one
                for one in threading.enumerate()
                if one not in before and one.name.startswith(ours)
            ]
        )
    )


def test_a_store_that_is_silent_holds_up_no_servers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    speaks = threading.Event()
    speaks.set()

    def silent(application: Application) -> Application:
        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            speaks.wait(150)
            return application(environ, start)

        return answer

    with moto(around=silent, threads=True) as url:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        place = connect("s3://podium-silent", create=True).url
        model = open_registry(place).model("churn")
        for name in ("v1", "v2"):
            model.upload({"model.onnx": rows_model()}, {"run_id": name})
        model.set_champion("v1", {}, expect=None)
        words = ("churn", "--storage", place, "--follow", "0.1", "--shadow", "v2")
        with serving(*words, "--record", f"{place}/answers") as server:
            speaks.clear()
            ask(server, items(1)[0])
            until(lambda: compared(server)["v2", "shadow", "answered"] == 1)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            ended = server.process.wait(200)
            took = time.monotonic() - began
            speaks.set()
    assert (ended, took < 60) == (143, True), took
    assert "the last answers of churn@v2 could not be recorded within 20 s" in "".join(server.said)


def test_what_is_no_recorded_answer_is_said(churn: Model, tmp_path: Path) -> None:
    (tmp_path / "answers/churn").mkdir(parents=True)
    labels = write_labels(tmp_path / "labels.csv", items(3))
    for content in BROKEN:
        name = f"{1:020d}-1-{1:08x}.jsonl"
        (tmp_path / "answers/churn" / name).write_text(content)
        with pytest.raises(PodiumError, match=r"1.jsonl, line 1, is not a recorded answer"):
            churn.promote("v2", rule="likely", live=tmp_path / "answers", labels=labels)


def test_a_canary_that_fails_is_recorded_as_failed(churn: Model, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.zeros((3, 2), np.float32), "weights")
    node = helper.make_node("MatMul", ["table", "weights"], ["logits"])
    other = save([node], {"table": (TensorProto.FLOAT, ["n", 3])}, "logits", 2, weights)
    churn.upload({"model.onnx": other}, {"run_id": "v4"})
    words = ("churn", "--storage", tmp_path / "store", "--canary", "v4=99.9%", "--record", tmp_path / "answers")  # fmt: skip
    with serving(*words) as server:
        body = {"inputs": [tensor(items(1)[0].reshape(1, 2), "table", "FP32")], "id": "one"}
        assert server.infer("churn", body).status_code >= 400
        until(lambda: compared(server)["v1", "shadow", "answered"] == 1)
    (exchange,) = Recording(tmp_path / "answers", "churn")
    assert (exchange.failed, list(exchange.answers)) == (("v4",), ["v1"])


def test_classes_of_a_command_are_answered_by_their_indices(churn: Model, tmp_path: Path) -> None:
    code = "import numpy, sys\nplace = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n" \
        "rows = len(numpy.load(place['--inputs'] + '/table.npy'))\n" \
        "numpy.save(place['--output'], numpy.ones(rows, int))\n"  # fmt: skip
    files: dict[str, Path | bytes] = {
        "model.json": json.dumps({"predict": ["python", "predict.py"]}).encode(),
        "predict.py": code.encode(),
        "preprocessing.json": json.dumps(TABLE).encode(),
    }
    churn.upload(files, {"run_id": "v4"})
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v4", "--record", tmp_path / "answers")  # fmt: skip
    with serving(*words) as server:
        assert ask(server, items(1)[0], "one")["model_version"] == "v1"
        until(lambda: compared(server)["v4", "shadow", "answered"] == 1)
        body = {"inputs": [tensor(items(2), "table", "FP32")]}
        asked = server.http.post("/v2/models/churn/versions/v4/infer", json=body)
    assert asked.json()["outputs"] == [
        {"name": "predictions", "shape": [2], "datatype": "INT64", "data": [1, 1]}
    ]
    (exchange,) = (each for each in Recording(tmp_path / "answers", "churn") if each.id == "one")
    assert {version: answer.predicted for version, answer in exchange.answers.items()}["v4"] == (1,)


def test_two_ports_that_are_one_are_refused(churn: Model, tmp_path: Path, typed: Callable[..., Any]) -> None:  # fmt: skip
    words = ("--storage", str(tmp_path / "store"), "--port", "9123", "--grpc-port", "9123")
    done = typed("serve", "churn", *words)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "--port and --grpc-port are both 9123" in done.stderr


def ask_raw(server: Running) -> None:
    answer = server.http.post("/v2/models/churn/predict", json={"rows": [{"x": 3, "color": "red"}]})
    assert (answer.status_code, answer.json()["model_version"]) == (200, "v1")


def test_unknown_values_count_once_beside_a_shadow(churn: Model, tmp_path: Path) -> None:
    with serving("churn", "--storage", tmp_path / "store", "--shadow", "v2") as server:
        where, rows = "/v2/models/churn/predict", [{"x": 3, "color": "mauve"}]
        assert server.http.post(where, json={"rows": rows}).status_code == 200
        until(lambda: compared(server)["v2", "shadow", "answered"] == 1)
        page = server.http.get("/metrics").text
    assert 'podium_serve_unknown_values_total{model="churn",column="color"} 1\n' in page


def test_a_slow_shadow_takes_no_thread_of_clients(churn: Model, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    upload_gated(churn, gate)
    with serving("churn", "--storage", tmp_path / "store", "--shadow", "v4") as server:
        for _ in range(70):
            ask_raw(server)
        assert compared(server) == {("v4", "shadow", "dropped"): 6}
        gate.touch()
        until(lambda: compared(server)["v4", "shadow", "answered"] == 64)


def test_what_is_not_answered_at_the_end_is_lost(churn: Model, tmp_path: Path) -> None:
    upload_gated(churn, tmp_path / "gate")
    words = ("--shadow", "v4", "--timeout", "8", "--record", tmp_path / "answers")
    with serving("churn", "--storage", tmp_path / "store", *words) as server:
        for _ in range(3):
            ask_raw(server)
    assert "the server ended before 3 answers came beside a client's\n" in server.said
    exchanges = list(Recording(tmp_path / "answers", "churn"))
    assert [(list(each.answers), each.failed) for each in exchanges] == [(["v1"], ())] * 3


@pytest.mark.parametrize("more", [(), ("--record", "answers")])
def test_a_clients_mistake_is_no_failure_of_a_canary(
    churn: Model, tmp_path: Path, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("churn", "--storage", tmp_path / "store", "--canary", "v2=99.9%", *more)
    with serving(*words) as server:
        for given in (np.zeros((1, 3)), np.zeros((1, 7))):
            body = {"inputs": [tensor(given, "table", "FP32")]}
            assert server.infer("churn", body).status_code == 400
        ask(server, items(1)[0], "good")
        if more:
            until(lambda: compared(server)["v1", "shadow", "answered"] == 1)
        assert {outcome for _, _, outcome in compared(server)} == {"answered"}
    if more:
        assert [each.id for each in Recording("answers", "churn")] == ["good"]


def test_a_canary_fails_on_what_the_champion_takes(churn: Model, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.zeros((3, 2), np.float32), "weights")
    node = helper.make_node("MatMul", ["table", "weights"], ["logits"])
    other = save([node], {"table": (TensorProto.FLOAT, ["n", 3])}, "logits", 2, weights)
    churn.upload({"model.onnx": other}, {"run_id": "v4"})
    words = ("churn", "--storage", tmp_path / "store", "--canary", "v4=99.9%")
    with serving(*words) as server:
        body = {"inputs": [tensor(items(1)[0].reshape(1, 2), "table", "FP32")], "id": "one"}
        assert server.infer("churn", body).status_code == 400
        until(lambda: compared(server)["v4", "canary", "failed"] == 1)


@pytest.mark.parametrize("how", ["--canary", "--shadow"])
def test_a_server_starts_without_a_second_version_that_was_deleted(
    churn: Model, tmp_path: Path, how: str
) -> None:
    churn.delete("v2")
    named = "v2=50%" if how == "--canary" else "v2"
    with serving("churn", "--storage", tmp_path / "store", how, named) as server:
        (said,) = (line for line in server.said if "without churn@v2" in line)
        assert said.startswith("churn v1 answers alone, without churn@v2: model churn has no version v2 in ")  # fmt: skip
        assert {ask(server, row)["model_version"] for row in items(5)} == {"v1"}
        assert server.http.get("/v2/health/ready").json() == {"ready": True}
        assert server.http.get("/v2/models/churn").json()["versions"] == ["v1"]
        assert 'podium_serve_trouble{model="churn@v2"} 1' in server.http.get("/metrics").text


def test_a_server_starts_without_a_second_version_that_is_damaged(
    churn: Model, tmp_path: Path
) -> None:
    (tmp_path / "store" / churn.version("v2").prefix / "model.onnx").write_bytes(b"x")
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v2", "--follow", "0.1")
    with serving(*words) as server:
        assert [line for line in server.said if "churn v1 answers alone, without churn@v2" in line]
        assert ask(server, items(1)[0])["model_version"] == "v1"


def test_no_error_of_a_second_version_stops_the_champion(churn: Model, tmp_path: Path) -> None:
    (model,) = find_models(["churn"], str(tmp_path / "store"))
    model.open()
    second = model.beside("v2")

    def full() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    second._find = full
    assert "churn v1 answers alone, without churn@v2: OSError: [Errno 28] No space" in _beside(model, second)  # fmt: skip
    assert (second.opening, "No space left" in second.trouble) == (False, True)


def test_a_shadow_that_is_the_champion_is_said(churn: Model, tmp_path: Path) -> None:
    words = ("churn", "--storage", tmp_path / "store", "--shadow", "v1")
    with serving(*words) as server:
        assert "churn@v1 is the champion v1: until there is another one, nothing is compared\n" in server.said  # fmt: skip
