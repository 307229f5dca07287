"""A version that meets its rule waits until a person has said yes or no."""

import getpass
import json
import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from handmade import npy, shapes_model

from podium.errors import InvalidInput, NotFound, PodiumError
from podium.models import Model, NotPromoted, open_registry
from podium.models.signature import sign

LABELS = (np.arange(400) % 2).astype(np.uint8)
Typed = Callable[..., tuple[int, str, str]]
RULE = "better,approved"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """old, new and newest, each better than the one before; old is champion, and new waits."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("shapes")
    for version, wrong in (("old", 80), ("new", 40), ("newest", 10)):
        predicted = np.where(np.arange(400) < wrong, 1 - LABELS, LABELS).astype(np.uint8)
        files = {
            "model.onnx": shapes_model(),
            "predictions.npy": npy(predicted),
            "target.npy": npy(LABELS),
        }
        model.upload(files, {
            "run_id": version, "metrics": {"accuracy": 1 - wrong / 400},
            "metric": {"name": "accuracy", "maximize": True},
            "dataset": {"digest": "d" * 64, "test_digest": "t", "classes": ["wide", "tall"]},
        })  # fmt: skip
    model.set_champion("old", {}, expect=None)
    with pytest.raises(
        NotPromoted, match="it waits for a person: podium models approve shapes new"
    ):
        model.promote("new", rule=RULE)
    return model


def test_a_version_waits_until_a_person_says_yes(model: Model) -> None:
    assert [record.version for record in model.waiting] == ["new"]
    assert model.champion.version == "old"
    promotion = model.approve("new", "seen on the shop floor")
    assert (promotion.version, model.champion.version, model.waiting) == ("new", "new", [])
    word = next(record for record in model.records() if record.event == "approval")
    assert word.evidence["reason"] == "seen on the shop floor"
    assert word.evidence["by"].startswith(f"{getpass.getuser()}@")
    assert promotion.decision
    assert any("approved by" in reason for reason in promotion.decision.reasons)


def test_a_rejected_version_stays_refused(model: Model) -> None:
    model.reject("new", "worse on sevens")
    assert model.waiting == []
    with pytest.raises(NotPromoted, match=r"rejected by .*: worse on sevens"):
        model.promote("new", rule=RULE)
    with pytest.raises(NotFound, match="new of shapes does not wait"):
        model.approve("new", "changed my mind")


def put_other_files(model: Model, version: str) -> None:
    """Delete a version, and upload other files under its name, as good as newest."""
    model.delete(version)
    stored = model.version("newest")
    files = {name: stored.read(name) for name in stored.files} | {"note.txt": b"of another run"}
    model.upload(files, dict(stored.metadata) | {"run_id": version})


def test_an_approval_is_of_files_not_of_a_name(model: Model) -> None:
    model.approve("new", "seen on the shop floor")
    model.set_champion("old", {}, expect="new")
    model.alias("kept", "old")
    model.promote("newest", rule="better")
    model.promote("old")
    put_other_files(model, "new")
    with pytest.raises(NotPromoted, match="it waits for a person"):
        model.promote("new", rule=RULE)
    assert [record.version for record in model.waiting] == ["new"]


def test_a_deleted_version_waits_for_nobody(model: Model) -> None:
    model.delete("new")
    assert model.waiting == []


def test_a_version_that_waits_is_not_retired(model: Model) -> None:
    assert model.retire(keep=1, grace=timedelta(0), delete=True) == []
    model.reject("new", "worse on sevens")
    (retired,) = model.retire(keep=1, grace=timedelta(0), delete=True)
    assert retired.version == "new"


def test_a_version_that_waits_again_can_be_approved(model: Model) -> None:
    with pytest.raises(NotPromoted):
        model.promote("new", rule="better,minimum=.99")
    with pytest.raises(NotPromoted, match="it waits for a person"):
        model.promote("new", rule=RULE)
    assert model.approve("new", "seen").version == "new"


def test_an_approval_that_could_not_compare_is_repeated(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PodiumError, match="there is no dataset"):
        model.approve("new", "seen", data=tmp_path / "gone")
    assert model.champion.version == "old"
    assert model.approve("new", "seen").version == "new"


def test_an_approval_needs_no_name_of_the_user(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    model.approve("new", "seen on the shop floor")
    word = next(record for record in model.records() if record.event == "approval")
    assert word.evidence["by"].startswith(f"uid {os.getuid()}@")


def test_an_approved_version_is_compared_again(model: Model) -> None:
    model.promote("newest", rule="better")
    with pytest.raises(NotPromoted, match="newest stays champion"):
        model.approve("new", "seen on the shop floor")
    assert model.champion.version == "newest"


def test_what_does_not_meet_the_rule_does_not_wait(model: Model) -> None:
    model.promote("newest", rule="better")
    with pytest.raises(NotPromoted):
        model.promote("old", rule=RULE)
    assert "old" not in [record.version for record in model.waiting]


def test_an_approval_is_signed_where_signatures_are_asked_for(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = tmp_path / "key.pem", tmp_path / "other.pem"
    for each in (key, other):
        curve = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
        subprocess.run([*curve, "-out", each], check=True)
    public = ["openssl", "ec", "-in", key, "-pubout", "-out", tmp_path / "key.pub"]
    subprocess.run(public, check=True, capture_output=True)
    for version in model.versions:
        sign(version, key)
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(tmp_path / "key.pub"))
    with pytest.raises(InvalidInput, match="asks for signed approvals"):
        model.approve("new", "by whom?")
    assert model.approve("new", "audit 12", key=str(key)).version == "new"
    word = next(record for record in model.records() if record.event == "approval")
    assert len(word.evidence["key"]) == 64
    with pytest.raises(NotPromoted):
        model.promote("newest", rule=RULE)
    with pytest.raises(NotPromoted) as refused:
        model.approve("newest", "by somebody else", key=other)
    assert "no: the approval of shapes newest is not a valid signature" in (
        refused.value.hint or ""
    )


def test_a_person_says_so_on_the_command_line(model: Model, typed: Typed) -> None:
    code, _, err = typed("models", "approve", "shapes", "newest", "--reason", "x")
    assert code == 1
    assert "does not wait for approval" in err
    code, out, _ = typed(
        "models", "approve", "shapes", "new", "--reason", "seen on the shop floor", "--json"
    )
    assert (code, json.loads(out)["version"]) == (0, "new")
    assert "approval" in typed("models", "history", "shapes")[1]
