"""Sentences: the vocabulary is of the training part, and prediction makes the same tokens."""

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.data import artifact, preprocessing
from podium.data.options import DataOptions
from podium.data.preprocessing.text import TextPreprocessing, words
from podium.data.row_files import open_rows
from podium.data.sources import text
from podium.data.sources.source import Raw
from podium.errors import InvalidInput, PodiumError
from podium.steps.prepare_data import DataSettings, prepare_data

REVIEWS = """text,stars,label
"Good, very good!",5,good
a BAD film,1,bad
not good,2,bad
"""


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    return tmp_path / "reviews.csv"


def read(path: Path, tmp_path: Path, *train: int, target: str = "label", **options: Any) -> Raw:
    (tmp_path / "scratch").mkdir(parents=True, exist_ok=True)
    given = DataOptions.read(target, options)
    text.TEXT.check(given)
    raw = text.TEXT.read(str(path), given, tmp_path / "scratch")
    assert raw.fit is not None
    return raw.fit(np.array(train))


def test_sentences_become_tokens_and_a_mask(reviews: Path, tmp_path: Path) -> None:
    raw = read(reviews, tmp_path, 0, 1, 2)
    assert (raw.kind, raw.classes, raw.items.target.tolist()) == (
        "classification",
        ("bad", "good"),
        [1, 0, 0],
    )
    assert raw.items.inputs["tokens"].shape == raw.items.inputs["mask"].shape == (3, 5)
    assert (raw.items.inputs["tokens"].dtype, raw.items.inputs["mask"].dtype) == (
        np.int64,
        np.float32,
    )
    assert raw.items.inputs["mask"].sum(1).tolist() == [5, 3, 2]
    assert raw.descriptions["tokens"].meaning == "tokens"


def test_the_vocabulary_is_of_the_training_part(reviews: Path, tmp_path: Path) -> None:
    raw = read(reviews, tmp_path, 1)
    assert raw.preprocessing["vocabulary"] == ["(padding)", "(unknown)", "a", "bad", "film"]
    assert raw.items.inputs["tokens"].tolist() == [[1, 1, 1], [2, 3, 4], [1, 1, 0]]


def test_prediction_makes_the_bytes_of_preparation(reviews: Path, tmp_path: Path) -> None:
    raw = read(reviews, tmp_path, 0, 2)
    again = preprocessing.read(raw.preprocessing, "preprocessing.json")
    assert isinstance(again, preprocessing.TextPreprocessing)
    (rows,) = open_rows(reviews)
    applied = again.apply(rows).check()
    assert {name: array.tobytes() for name, array in applied.inputs.items()} == {
        name: array.tobytes() for name, array in raw.items.inputs.items()
    }


def test_sentences_can_be_regressed(reviews: Path, tmp_path: Path) -> None:
    raw = read(reviews, tmp_path, 0, 1, target="stars", kind="regression", length=2, max_words=3)
    assert (raw.kind, raw.items.target.tolist()) == ("regression", [5, 1, 2])
    assert (len(raw.preprocessing["vocabulary"]), raw.preprocessing["length"]) == (5, 2)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("review,day,label\ngood,1,1\nbad,2,0\n", {}, "no column 'text', which is the text"),
        ("text,label\ngood,1\n,0\n", {}, "row 2, column text: there is no word"),
        ("text,label\ngood,1\n\" \",0\n", {}, "row 2, column text: there is no word"),
        ("id,body,text\n1,a,0\n2,b,1\n", {"target": "text"}, "text cannot be both the text and the target"),
        ("text,label\ngood,1\nbad,\n", {}, "row 2, column label: the target is missing"),
        ("text,label\ngood,1\nbad,0\n", {"drop": ["label"]}, "text has no option drop"),
        ("text,label\ngood,1\nbad,0\n", {"length": -1}, "length >= 0"),
    ],
)  # fmt: skip
def test_bad_text_is_refused_with_its_place(
    content: str, options: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(PodiumError, match=message):
        read(tmp_path / "a.csv", tmp_path, 0, 1, **options)


def test_the_only_column_besides_the_target_is_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("review,label\ngood,1\nbad,0\n")
    assert read(tmp_path / "a.csv", tmp_path, 0, 1).preprocessing["column"] == "review"


def test_another_column_can_hold_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("review,label\ngood,1\nbad,0\n")
    raw = read(tmp_path / "a.csv", tmp_path, 0, 1, text="review")
    assert raw.preprocessing["column"] == "review"
    with pytest.raises(InvalidInput, match="no column 'revue'"):
        read(tmp_path / "a.csv", tmp_path, 0, text="revue")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("这个很好", ["这", "个", "很", "好"]),
        ("すごく良いPythonです", ["す", "ご", "く", "良", "い", "python", "で", "す"]),
        ("ดีมาก ok", ["ด", "ี", "ม", "า", "ก", "ok"]),
        ("좋은 책", ["좋은", "책"]),
        ("don't stop", ["don't", "stop"]),
    ],
)
def test_scripts_without_blanks_are_split_into_characters(text: str, expected: list[str]) -> None:
    assert words(text) == [unicodedata.normalize("NFKC", word) for word in expected]


def test_sentences_that_are_cut_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    TextPreprocessing.fit(["a b c", "a", "a b c d"], length=2)
    assert (
        "2 of the 3 training sentences are cut, the longest from 4 words to 2: length=4 takes all"
        in caplog.text
    )


@pytest.mark.parametrize(("source", "grouped"), [("text", True), ("table", False)])
def test_sentences_of_the_same_words_are_a_group(
    source: str, grouped: bool, tmp_path: Path
) -> None:
    rows = [f"{'good' if at % 2 else 'bad'} {at},{at % 2}" for at in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    prepare_data(
        DataSettings(dataset=f"{source}:{tmp_path}/rows.csv", target="label"), tmp_path / "d"
    )
    groups = artifact.load_facts(tmp_path / "d", "groups", "train")
    assert (groups is not None) == grouped
