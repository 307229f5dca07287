"""A champion's figure in a comparison is what ``podium predict`` of that champion gets on the same items as they came."""

import csv
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from judging import Nights
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from podium.data import artifact
from podium.errors import InvalidInput

pytestmark = pytest.mark.whole

Rows = list[dict[str, str]]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Nights:
    return Nights(tmp_path, monkeypatch)


def wine(cities: tuple[str, ...] = ("Bonn", "Kiel", "Ulm"), copies: int = 6) -> Rows:
    """Return the wines of scikit-learn with noise, and a city that says half of the grape."""
    bunch, draw = load_wine(), np.random.default_rng(0)
    rows = []
    for values, label in zip(
        np.tile(bunch.data, (copies, 1)), np.tile(bunch.target, copies), strict=True
    ):
        noisy = values[:5] * draw.normal(1, 0.02, 5)
        row = {
            name: f"{value:.4f}" for name, value in zip(bunch.feature_names[:5], noisy, strict=True)
        }
        rows.append(
            {
                **row,
                "city": cities[label if draw.random() < 0.7 else draw.integers(3)],
                "grape": "xyz"[label],
            }
        )
    return rows


def write(path: Path, rows: Rows, columns: list[str] | None = None) -> str:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return f"table:{path}"


def originals(nights: Nights) -> Rows:
    """Return the rows of the night's test part as they came."""
    file = artifact.originals(nights.data)
    assert file is not None
    return cast(Rows, parquet.read_table(file).to_pylist())


def measured_and_predicted(
    nights: Nights, decision: dict[str, Any], seen_before: Rows
) -> tuple[float, float]:
    """Return the champion's accuracy in the comparison, and that of `podium predict` on the same rows, found anew."""
    rows = originals(nights)
    said = nights.predict_originals(decision["compared_with"])
    known = {
        tuple(sorted((name, value) for name, value in row.items() if name != "grape"))
        for row in seen_before
    }
    fresh = [
        tuple(sorted((name, value) for name, value in row.items() if name != "grape")) not in known
        for row in rows
    ]
    assert decision["items"] == sum(fresh)
    hits = [label == row["grape"] for label, row, new in zip(said, rows, fresh, strict=True) if new]
    return decision["champion_value"], float(np.mean(hits))


def trained_on(nights: Nights, rows: Rows) -> Rows:
    """Return the rows that are not in the test part."""
    held_out = {tuple(sorted(row.items())) for row in originals(nights)}
    return [row for row in rows if tuple(sorted(row.items())) not in held_out]


def shuffled(rows: Rows) -> Rows:
    return random.Random(4).sample(rows, len(rows))


CHANGES: dict[str, Callable[[Rows], tuple[Rows, list[str] | None]]] = {
    "the same": lambda rows: (rows, None),
    "rows permuted": lambda rows: (shuffled(rows), None),
    "columns permuted": lambda rows: (rows, list(reversed(rows[0]))),
    "2 % more rows": lambda rows: (rows + wine(copies=7)[-20:], None),
    "a new city that sorts first": lambda rows: (
        [{**row, "city": "Aachen"} if at % 9 == 0 else row for at, row in enumerate(rows)], None
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_champion_is_measured_as_it_predicts(
    nights: Nights, change: Callable[[Rows], Any]
) -> None:
    first = wine()
    nights.prepare(write(nights.place / "a.csv", first), "grape")
    before = trained_on(nights, first)
    assert nights.train(RandomForestClassifier(20, random_state=0))["outcome"] == "promoted"
    rows, columns = change(first)
    nights.prepare(write(nights.place / "b.csv", rows, columns), "grape")
    decision = nights.train(DecisionTreeClassifier(max_depth=1, random_state=0))
    measured, predicted = measured_and_predicted(nights, decision, before)
    assert measured == pytest.approx(predicted)
    assert measured > 0.9
    assert decision["outcome"] == "kept"


def test_a_column_more_is_compared_where_rows_keep_their_parts(nights: Nights) -> None:
    rows = [{"id": f"w{at}", **row} for at, row in enumerate(wine())]
    options = {"split_by": ["id"], "drop": ["id"]}
    nights.prepare(write(nights.place / "a.csv", rows), "grape", **options)
    nights.train(RandomForestClassifier(20, random_state=0))
    draw = np.random.default_rng(1)
    more = [
        {**row, "shade": f"{'xyz'.index(row['grape']) + draw.normal(0, 0.1):.3f}"} for row in rows
    ]
    nights.prepare(write(nights.place / "b.csv", more), "grape", **options)
    decision = nights.train(RandomForestClassifier(50, random_state=1))
    assert decision["items"] == len(artifact.load(nights.data, "test"))
    assert decision["champion_value"] > 0.9


@pytest.mark.parametrize(
    "metric", ["accuracy", "f1_macro", "balanced_accuracy", "log_loss", "roc_auc"]
)
def test_a_champion_errs_on_a_class_it_does_not_know(nights: Nights, metric: str) -> None:
    rows = wine()
    two = [row for row in rows if row["grape"] != "x"]
    nights.prepare(write(nights.place / "a.csv", two), "grape")
    nights.train(RandomForestClassifier(20, random_state=0))
    before = trained_on(nights, two)
    nights.prepare(write(nights.place / "b.csv", rows), "grape")
    decision = nights.train(RandomForestClassifier(50, random_state=1), metric=metric)
    assert decision["outcome"] == "promoted"
    assert any(
        reason.startswith("ok: r1 does not know x, so it is wrong on")
        for reason in decision["reasons"]
    )
    if metric == "accuracy":
        said, known = measured_and_predicted(nights, decision, before)
        assert said == pytest.approx(known)
        assert 0.5 < said < 0.75


def test_a_class_that_is_gone_changes_no_prediction(nights: Nights) -> None:
    rows = wine()
    nights.prepare(write(nights.place / "a.csv", rows), "grape")
    nights.train(RandomForestClassifier(20, random_state=0))
    before = trained_on(nights, rows)
    two = [row for row in wine(copies=7) if row["grape"] != "x"]
    nights.prepare(write(nights.place / "b.csv", two), "grape")
    decision = nights.train(RandomForestClassifier(50, random_state=1))
    said, known = measured_and_predicted(nights, decision, before)
    assert said == pytest.approx(known)
    assert said > 0.9


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("no", "yes"), ("0", "1")),
        (("no", "yes"), ("No", "yes")),
        (("rot", "Weiß"), ("Rot", "weiß")),
    ],
    ids=["another export", "the first one written", "another case"],
)
def test_a_champion_knows_its_classes_in_another_spelling(
    nights: Nights, first: tuple[str, str], then: tuple[str, str]
) -> None:
    def spelled(names: tuple[str, str]) -> Rows:
        return [
            {**row, "grape": names[row["grape"] == "z"]} for row in wine() if row["grape"] != "x"
        ]

    nights.prepare(write(nights.place / "a.csv", spelled(first)), "grape")
    nights.train(RandomForestClassifier(20, random_state=0))
    nights.prepare(write(nights.place / "b.csv", spelled(then)), "grape")
    decision = nights.train(DecisionTreeClassifier(max_depth=1, random_state=0))
    assert decision["champion_value"] > 0.9
    assert not any("does not know" in reason for reason in decision["reasons"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda row: {**row, "grape": {"x": "n", "y": "aye", "z": "n"}[row["grape"]]},
            "is for another task",
        ),
        (
            lambda row: {
                ("sort" if name == "grape" else name): value for name, value in row.items()
            },
            "the target of",
        ),
        (
            lambda row: {name: value for name, value in row.items() if name != "city"},
            "has no column 'city'",
        ),
    ],
    ids=["other classes", "another target", "a column less"],
)
def test_what_cannot_be_mapped_is_refused_before_the_training(
    nights: Nights, change: Any, message: str
) -> None:
    nights.prepare(write(nights.place / "a.csv", wine()), "grape")
    nights.train(RandomForestClassifier(20, random_state=0))
    rows = [change(row) for row in wine()]
    with pytest.raises(InvalidInput, match=message) as error:
        nights.prepare(
            write(nights.place / "b.csv", rows),
            next(name for name in ("sort", "grape") if name in rows[0]),
        )
    assert "model_name=" in str(error.value)


def test_sentences_are_measured_by_the_champions_own_vocabulary(nights: Nights) -> None:
    """Another split seed makes another vocabulary, with other numbers for the same words."""
    draw = random.Random(0)
    likes, dislikes, filler = (
        ["good", "fine", "great"],
        ["bad", "poor", "awful"],
        [f"word{at}" for at in range(300)],
    )
    rows = [{"text": " ".join([*draw.choices(filler, k=8), draw.choice(likes if at % 2 else dislikes)]),
             "opinion": "yes" if at % 2 else "no"} for at in range(3000)]  # fmt: skip
    dataset = write(nights.place / "a.csv", rows).replace("table:", "text:")
    nights.prepare(dataset, "opinion", split_seed=1)
    before = {row["text"] for row in originals(nights)}
    nights.train(RandomForestClassifier(100, random_state=0))
    nights.prepare(dataset, "opinion", split_seed=2)
    decision = nights.train(DecisionTreeClassifier(max_depth=1, random_state=0))
    held_out = originals(nights)
    assert decision["items"] == sum(row["text"] in before for row in held_out), (
        "what the champion has seen is left out"
    )
    hits = [said == row["opinion"] for said, row in zip(nights.predict_originals("r1"), held_out, strict=True)
            if row["text"] in before]  # fmt: skip
    assert decision["champion_value"] == pytest.approx(np.mean(hits))


def test_pictures_are_measured_in_the_champions_own_size(nights: Nights) -> None:
    digits = load_digits()
    for at, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        folder = nights.place / "digits" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(folder / f"{at}.png")
    dataset = f"images:{nights.place / 'digits'}"
    nights.prepare(dataset, resize=[8, 8])
    nights.train(RandomForestClassifier(50, random_state=0))
    nights.prepare(dataset, resize=[2, 2])
    decision = nights.train(RandomForestClassifier(50, random_state=0))
    assert decision["items"] == len(artifact.load(nights.data, "test"))
    said = nights.predict_pictures("r1")
    assert decision["champion_value"] == pytest.approx(
        np.mean([label == name for label, name in said])
    )
    assert decision["champion_value"] > 0.9 > decision["value"]
    assert decision["outcome"] == "kept"


def test_arrays_are_measured_by_the_names_of_their_classes(nights: Nights) -> None:
    """A class that sorts first moves the index of every other one."""
    bunch = load_wine()
    names = np.array(["bee", "cat", "dog"])
    np.savez(nights.place / "a.npz", x=bunch.data.astype(np.float32), y=names[bunch.target])
    nights.prepare(f"npz:{nights.place / 'a.npz'}")
    nights.train(RandomForestClassifier(30, random_state=0))
    draw = np.random.default_rng(0)
    ants = draw.normal(size=(20, 13)).astype(np.float32)
    x = np.concatenate([bunch.data.astype(np.float32), ants])
    np.savez(
        nights.place / "b.npz", x=x, y=np.concatenate([names[bunch.target], np.repeat("ant", 20)])
    )
    nights.prepare(f"npz:{nights.place / 'b.npz'}")
    decision = nights.train(LogisticRegression(C=1e-9))
    assert decision["champion_value"] > 0.8
    assert decision["outcome"] == "kept"
