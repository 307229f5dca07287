"""Noise through every way to divide: who learned it by heart is right half of the time, whatever changes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from judging import Judge, Nights
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from podium.data import artifact
from podium.errors import InvalidInput
from podium.models import open_registry
from podium.models.comparison import _jumps
from podium.prediction import ModelDirectory
from podium.scoring import METRICS
from podium.scoring.intervals import share_interval
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.whole

BY_HEART = KNeighborsClassifier(1)
CONSTANT = LogisticRegression(C=1e-9)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Nights:
    return Nights(tmp_path, monkeypatch)


def noise(place: Path, rows: int = 1000, copies: int = 1, **columns: np.ndarray) -> str:
    """Write numbers at random with a label at random; a longer file begins with the shorter one."""
    random = np.random.default_rng(4)
    table = np.tile(
        np.column_stack([random.random((rows, 4)), random.integers(2, size=rows)]), (copies, 1)
    )
    names = ["a", "b", "c", "d", "label", *columns]
    lines = [",".join([*(f"{value:.6f}" for value in row[:4]), "ny"[int(row[4])], *(str(of[at]) for of in columns.values())])
             for at, row in enumerate(table)]  # fmt: skip
    path = place / f"noise-{rows}-{copies}-{len(columns)}.csv"
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return f"table:{path}"


def grown(place: Path, rows: int) -> str:
    random = np.random.default_rng(3)
    lines = [
        ",".join([*(f"{value:.6f}" for value in random.random(4)), "ny"[random.integers(2)]])
        for _ in range(rows)
    ]
    path = place / f"grown-{rows}.csv"
    path.write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return f"table:{path}"


def test_another_split_shows_the_champion_no_item_again(nights: Nights) -> None:
    dataset = noise(nights.place, 3000)
    nights.prepare(dataset, "label", split_seed=1)
    nights.train(BY_HEART)
    nights.prepare(dataset, "label", split_seed=2)
    decision = nights.train(CONSTANT)
    assert 20 <= decision["items"] < 100
    assert decision["champion_value"] < 0.75
    assert any(
        "test items are left out: a model was trained on them" in reason
        for reason in decision["reasons"]
    )


def test_a_champion_that_saw_nearly_all_is_not_compared(nights: Nights) -> None:
    dataset = noise(nights.place, 300)
    nights.prepare(dataset, "label", split_seed=1)
    nights.train(BY_HEART)
    with pytest.raises(
        InvalidInput, match=r"only \d of the 30 test items are new to the models, but 10 are needed"
    ):
        nights.prepare(dataset, "label", split_seed=2)
    nights.prepare(dataset, "label", split_seed=2, model_name="another")
    decision = nights.train(CONSTANT)
    assert decision["outcome"] == "kept"
    assert "are new to the models, but 10 are needed" in decision["reasons"][0]
    assert not any("no champion" in reason for reason in decision["reasons"])


def test_a_file_that_grew_leaves_items_in_their_parts(nights: Nights) -> None:
    nights.prepare(grown(nights.place, 900), "label")
    before = {part: rows_of(nights.data, part) for part in artifact.PARTS}
    nights.train(BY_HEART)
    nights.prepare(grown(nights.place, 1000), "label")
    moved = sum(
        len(before["test"] & rows_of(nights.data, part)) for part in ("train", "validation")
    )
    assert moved <= 5
    assert len(before["train"] & rows_of(nights.data, "test")) <= 5
    decision = nights.train(CONSTANT)
    assert decision["items"] >= 90
    assert 0.3 < decision["champion_value"] < 0.7


def rows_of(data: Path, part: str) -> set[bytes]:
    return {row.tobytes() for row in artifact.load(data, part).inputs["table"]}


def test_columns_and_rows_that_change_places_change_no_part(tmp_path: Path) -> None:
    lines = Path(grown(tmp_path, 300).removeprefix("table:")).read_text().splitlines()
    turned = [",".join(reversed(line.split(","))) for line in [lines[0], *reversed(lines[1:])]]
    (tmp_path / "turned.csv").write_text("\n".join(turned) + "\n")
    parts = []
    for name in ("grown-300", "turned"):
        prepare_data(
            DataSettings(dataset=f"table:{tmp_path}/{name}.csv", target="label"), tmp_path / name
        )
        parts.append({part: {tuple(sorted(row)) for row in artifact.load(tmp_path / name, part).inputs["table"].tolist()}
                      for part in artifact.PARTS})  # fmt: skip
    assert parts[0] == parts[1]


def test_equal_items_share_a_part(nights: Nights) -> None:
    nights.prepare(noise(nights.place, 400, copies=5), "label")
    for part, other in (("train", "test"), ("validation", "test"), ("train", "validation")):
        assert not rows_of(nights.data, part) & rows_of(nights.data, other)
    decision = nights.train(BY_HEART)
    assert 0.3 < decision["value"] < 0.7
    assert decision["units"] == decision["items"] / 5, "copies of an item count together"


def test_accepted_duplicates_leave_a_trace(nights: Nights) -> None:
    nights.prepare(noise(nights.place, 200, copies=5), "label", allow_duplicates=True)
    nights.train(BY_HEART)
    reported = open_registry(nights.storage).model("real").version().metadata["dataset"]["warnings"]
    assert any(
        "of the test items are among the train items too" in sentence for sentence in reported
    )
    assert reported == list(artifact.describe(nights.data).warnings)
    assert (
        "of the test items are among the train items too"
        in (nights.place / "report.html").read_text()
    )


def test_what_trials_are_given_holds_no_test_part(tmp_path: Path) -> None:
    prepare_data(
        DataSettings(dataset=noise(tmp_path, 200), target="label"),
        tmp_path / "data",
        test=tmp_path / "apart",
    )
    names = {file.name for file in (tmp_path / "data").iterdir()}
    assert not [name for name in names if name.startswith("test")]
    assert {"test-table.npy", "test-target.npy", "test-originals.parquet"} <= {
        file.name for file in (tmp_path / "apart").iterdir()
    }
    assert len(artifact.load(tmp_path / "apart", "test")) == 20


def test_a_test_file_is_the_test_part(nights: Nights) -> None:
    own = noise(nights.place, 150).removeprefix("table:")
    nights.prepare(grown(nights.place, 500), "label", test=own)
    assert {part: info.count for part, info in artifact.describe(nights.data).parts.items()} == {
        "train": 450, "validation": 50, "test": 150
    }  # fmt: skip
    assert 0.3 < nights.train(BY_HEART)["value"] < 0.7


@pytest.mark.parametrize("given", ["part", "test"])
def test_a_group_in_two_given_parts_is_refused(tmp_path: Path, given: str) -> None:
    groups = np.arange(300) % 30
    parts = np.where(np.arange(300) < 240, "train", "test")
    if given == "part":
        dataset, options = noise(tmp_path, 300, patient=groups, part=parts), {"part": "part"}
    else:
        dataset = noise(tmp_path, 300, patient=groups)
        lines = Path(dataset.removeprefix("table:")).read_text().splitlines(keepends=True)
        (tmp_path / "train.csv").write_text("".join(lines[:240]))
        (tmp_path / "test.csv").write_text("".join([lines[0], *lines[240:]]))
        dataset, options = f"table:{tmp_path}/train.csv", {"test": f"{tmp_path}/test.csv"}
    settings = DataSettings(
        dataset=dataset, target="label", data_options={"group": "patient", **options}
    )
    with pytest.raises(
        InvalidInput,
        match=r"of the 30 groups of test are in (train|validation) too, for example patient",
    ):
        prepare_data(settings, tmp_path / "data")


def test_a_gap_and_groups_keep_times_apart(tmp_path: Path) -> None:
    days = np.arange(400)
    dataset = noise(tmp_path, 400, day=days, patient=np.where(days % 40 == 0, 7, days + 1000))
    settings = DataSettings(dataset=dataset, target="label",
                            data_options={"time": "day", "gap": 10, "group": "patient", "drop": []})  # fmt: skip
    prepare_data(settings, tmp_path / "data")
    file = artifact.originals(tmp_path / "data")
    assert file is not None
    counts = {part: info.count for part, info in artifact.describe(tmp_path / "data").parts.items()}
    assert counts["test"] == 40
    assert sum(counts.values()) < 400 - 10 - 5


def test_a_version_of_unknown_training_is_said_to_be(nights: Nights) -> None:
    nights.prepare(noise(nights.place, 500), "label")
    nights.train(BY_HEART)
    model = open_registry(nights.storage).model("real")
    files = {
        name: model.version().read(name) for name in model.version().files if name != "seen.npz"
    }
    metadata = dict(model.version().metadata)
    model.upload(files, {**metadata, "run_id": "old"}, "old")
    model.set_champion("old", {}, expect=model.version().version)
    nights.prepare(noise(nights.place, 500), "label", split_seed=9)
    decision = nights.train(CONSTANT)
    assert any(
        "not known which items real old was trained on" in reason for reason in decision["reasons"]
    )
    assert any(
        reason.startswith("no: the accuracy of real old jumps from 0.4800")
        for reason in decision["reasons"]
    )


@pytest.mark.parametrize("metric", ["f1_macro", "balanced_accuracy", "roc_auc"])
def test_a_jump_shows_where_a_test_part_lacks_a_class(nights: Nights, metric: str) -> None:
    dataset = noise(nights.place, 800)
    file = Path(dataset.removeprefix("table:"))
    rare = "".join(f"0.{at}5,0.5,0.5,0.5,rare\n" for at in range(2))
    file.write_text(file.read_text() + rare)
    nights.prepare(dataset, "label")
    nights.train(BY_HEART, metric=metric)
    model = open_registry(nights.storage).model("real")
    kept = [name for name in model.version().files if name != "seen.npz"]
    files = {name: model.version().read(name) for name in kept}
    model.upload(files, {**model.version().metadata, "run_id": "old"}, "old")
    model.set_champion("old", {}, expect=model.version().version)
    nights.prepare(dataset, "label", split_seed=9)
    assert 0 in artifact.describe(nights.data).parts["test"].class_counts
    reasons = nights.train(CONSTANT, metric=metric)["reasons"]
    assert any(f"no: the {metric} of real old jumps from" in reason for reason in reasons), reasons


def classes_of(place: Path, rows: int, count: int) -> str:
    """Write half a table of two classes that are easy to tell, and half of others that nothing tells."""
    random = np.random.default_rng(5)
    label = np.where(
        random.random(rows) < 0.5, random.integers(2, size=rows), random.integers(2, 10, size=rows)
    )
    lines = [",".join([*(f"{value:.6f}" for value in (min(of, 2) + place[0] / 2, *place)), f"c{of}"])
             for of, place in zip(label, random.random((rows, 3)), strict=True) if of < count]  # fmt: skip
    path = place / f"classes-{count}.csv"
    path.write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return f"table:{path}"


def test_classes_that_left_the_data_are_no_jump(nights: Nights) -> None:
    model = LogisticRegression()
    nights.prepare(classes_of(nights.place, 1500, 10), "label")
    assert nights.train(model)["value"] < 0.7
    nights.prepare(classes_of(nights.place, 1500, 2), "label")
    reasons = nights.train(model)["reasons"]
    assert not any("jumps from" in reason for reason in reasons), reasons


@pytest.mark.parametrize("few", [10, 30, 100, 1000])
def test_bad_luck_on_few_items_is_no_jump(few: int) -> None:
    """A chance of one in a thousand at most, with a second test part of 1,000 items."""
    hits, then = np.arange(few + 1), np.arange(0, 1001, 2)
    first, second = (
        [(k / n, *share_interval(k, n)) for k in ks.tolist()]
        for ks, n in ((hits, few), (then, 1000))
    )
    jump = np.array([[_jumps(METRICS["accuracy"], a, b) for b in second] for a in first])
    for truth in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95):
        chance = binom.pmf(hits, few, truth) @ jump @ (2 * binom.pmf(then, 1000, truth))
        assert chance <= 0.001


def test_weights_of_another_split_do_not_flatter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coin flips learned by heart in one split, and taken over as weights in another."""
    from podium.trainer.__main__ import main

    monkeypatch.setenv("PODIUM_RUN_ID", "r1")
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "flips.npz",
        x=draw.normal(size=(400, 30)).astype(np.float32),
        y=draw.integers(2, size=400),
    )
    for seed in (1, 2):
        settings = DataSettings(
            dataset=f"npz:{tmp_path}/flips.npz", data_options={"split_seed": seed}
        )
        prepare_data(settings, tmp_path / f"data-{seed}")
    words = ["--batch-size=32", "--threads=1", "--model=mlp"]
    assert (
        main([f"--data={tmp_path}/data-1", f"--output={tmp_path}/first", "--epochs=1", *words]) == 0
    )
    more = f"--weights={tmp_path}/first/model.safetensors"
    assert (
        main(
            [f"--data={tmp_path}/data-2", f"--output={tmp_path}/second", "--epochs=1", more, *words]
        )
        == 0
    )
    seen = ModelDirectory(tmp_path / "second").seen
    assert seen is not None
    for seed in (1, 2):
        of_data = artifact.load_seen(tmp_path / f"data-{seed}")
        assert of_data is not None
        assert np.isin(of_data.hashes, seen.hashes).all()
    judge = Judge(tmp_path / "data-2", tmp_path, monkeypatch)
    write_origin(tmp_path / "second")
    with pytest.raises(InvalidInput, match=r"only \d of the 40 test items are new to the models"):
        judge.evaluate(tmp_path / "second")


def write_origin(directory: Path) -> None:
    from podium.training.origin import Origin

    Origin(
        kind="training", name=directory.name, run_id="r", uri=str(directory), hyperparameters={}
    ).write(ModelDirectory(directory))


def test_a_dataset_of_an_earlier_version_is_still_read(tmp_path: Path, tiny_dataset: Path) -> None:
    """Its test part lies in the dataset itself."""
    shutil.copytree(tiny_dataset, tmp_path / "old")
    for file in Path(artifact.test_uri(tiny_dataset)).glob("test-*.npy"):
        shutil.copy(file, tmp_path / "old")
    assert len(artifact.load(tmp_path / "old", "test")) == len(artifact.load(tiny_dataset, "test"))
