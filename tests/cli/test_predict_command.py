"""`podium predict` with models written by hand, which go by their preprocessing.json."""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import DIGIT, SHAPES, TABLE, rows_model, save, shapes_model
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw

import podium
from podium.data.profile import Profile
from podium.data.row_files import BATCH
from podium.data.rows import Problem
from podium.data.schema import Column
from podium.models import open_registry
from podium.prediction import open_model
from podium.storage import connect

Predict = Callable[..., Any]
TEXT = {
    "kind": "text", "vocabulary": ["(padding)", "(unknown)", "good", "bad"], "length": 3, "column": "review",
    "classes": [],
}  # fmt: skip


@pytest.fixture
def shapes() -> bytes:
    """Is the ink of a picture wide (class 0) or tall (class 1)?"""
    return shapes_model()


@pytest.fixture
def directory(tmp_path: Path) -> Callable[[bytes, Any], Path]:
    """Write a model directory."""

    def write(model: bytes, preprocessing: Any) -> Path:
        (tmp_path / "trained").mkdir(exist_ok=True)
        (tmp_path / "trained/model.onnx").write_bytes(model)
        if preprocessing is not None:
            (tmp_path / "trained/preprocessing.json").write_text(json.dumps(preprocessing))
        return tmp_path / "trained"

    return write


@pytest.fixture
def rows(directory: Callable[[bytes, Any], Path]) -> Path:
    """A model of rows: logits (-x, x + 100 * color)."""
    return directory(rows_model(), TABLE)


@pytest.fixture
def words(directory: Callable[[bytes, Any], Path]) -> Path:
    """A model of sentences: the number of words."""
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    nodes = [helper.make_node("ReduceSum", ["mask", "axes"], ["value"])]
    return directory(save(nodes, {"mask": (TensorProto.FLOAT, ["n", 3])}, "value", 1, axes), TEXT)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, box in {"tall.png": (70, 20, 85, 130), "wide.jpg": (20, 70, 130, 85)}.items():
        picture = Image.new("RGB", (150, 150), (240, 238, 230))
        ImageDraw.Draw(picture).rectangle(box, fill=(30, 30, 60))
        picture.save(folder / name)
    return folder


def store(tmp_path: Path, model: bytes, preprocessing: Any) -> str:
    """Make a registry whose champion is the model."""
    registered = open_registry(tmp_path / "store").model("shapes")
    metadata = {"dataset": {"name": "shapes", "classes": ["wide", "tall"]}}
    files: dict[str, Path | bytes] = {"model.onnx": model}
    if preprocessing is not None:
        files["preprocessing.json"] = json.dumps(preprocessing).encode()
    version = registered.upload(files, metadata, "first")
    registered.set_champion(version.version, {}, None)
    return str(tmp_path / "store")


@pytest.fixture
def predict(typed: Callable[..., Any]) -> Predict:
    """Type `podium predict`."""
    return lambda *words: typed("predict", *words)


def test_the_champion_answers_with_its_own_classes(
    predict: Predict, shapes: bytes, pictures: Path, tmp_path: Path
) -> None:
    done = predict(pictures, "--model", "shapes", "--storage", store(tmp_path, shapes, SHAPES))
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["tall", "wide"]
    assert "%" in done.stdout


def test_without_a_name_the_only_model_answers(
    predict: Predict, shapes: bytes, pictures: Path, tmp_path: Path
) -> None:
    done = predict(pictures / "tall.png", "--storage", store(tmp_path, shapes, SHAPES))
    assert done.stdout.split()[1] == "tall", done.stderr
    open_registry(tmp_path / "store").model("other").upload({"model.onnx": shapes}, {}, "first")
    done = predict(pictures / "tall.png", "--storage", str(tmp_path / "store"))
    assert (done.returncode, "--model other or shapes" in done.stderr) == (2, True)


def test_json_holds_every_probability(
    predict: Predict, shapes: bytes, pictures: Path, tmp_path: Path
) -> None:
    registry = store(tmp_path, shapes, DIGIT)
    done = predict(pictures / "tall.png", "--model", "shapes", "--storage", registry, "--json")
    value = json.loads(done.stdout)
    assert (value["model"], value["failed"]) == ("shapes first", [])
    (prediction,) = value["predictions"]
    assert (prediction["class"], Path(prediction["picture"]).name) == ("tall", "tall.png")
    assert prediction["probabilities"]["tall"] > 0.9
    assert sum(prediction["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("preprocessing", [None, {}, {"classes": ["wide", "tall"]}])
def test_a_model_without_preprocessing_is_refused(
    predict: Predict, preprocessing: Any, shapes: bytes, pictures: Path, tmp_path: Path
) -> None:
    done = predict(
        pictures, "--model", "shapes", "--storage", store(tmp_path, shapes, preprocessing)
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "shapes first does not say how pictures, rows or sentences become its inputs" in done.stderr
    )
    assert "--data URI" in done.stderr


def test_mistakes_are_named(
    predict: Predict,
    shapes: bytes,
    pictures: Path,
    tiny_dataset: Path,
    directory: Callable[[bytes, Any], Path],
) -> None:
    trained = directory(shapes, SHAPES)
    nowhere = predict(pictures / "nowhere.png", "--file", trained)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "nowhere.png\nhint: items are files" in nowhere.stderr
    unknown = predict(pictures, "--model", "shape", "--storage", pictures / "store")
    assert unknown.returncode == 1
    assert "Traceback" not in unknown.stderr
    path = predict(pictures, "--model", trained)
    assert (path.returncode, path.stdout) == (2, "")
    assert f"names a model of the registry\nhint: --file {trained}" in path.stderr
    two = predict(pictures, "--file", trained, "--model", "shapes")
    assert (two.returncode, two.stdout) == (2, "")
    assert "a model itself, but --model and --alias name one of the registry" in two.stderr
    two = predict(pictures, "--file", trained, "--alias", "v1")
    assert "a model itself, but --model and --alias name one of the registry" in two.stderr
    both = predict(pictures, "--file", trained, "--json", "-o", trained / "out.csv")
    assert (both.returncode, both.stdout) == (2, "")
    assert "out.csv as CSV, and --json prints JSON" in both.stderr
    other = predict(pictures, "--file", trained / "model.onnx", "--data", tiny_dataset)
    assert other.returncode == 2
    assert "has 2 classes, but the data has 10" in other.stderr
    (trained / "preprocessing.json").write_text('{"kind": "smell"}')
    wrong = predict(pictures, "--file", trained)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "kind 'smell' is not known" in wrong.stderr


def test_the_hint_about_an_encoding_can_be_typed(
    predict: Predict, rows: Path, tmp_path: Path
) -> None:
    file = tmp_path / "new.csv"
    file.write_bytes("x,color\n31,red\n40,Köln\n".encode("cp1252"))
    refused = predict(file, "--file", rows)
    assert "row 2, column color: this is not utf-8\n" in refused.stderr
    assert "for example --encoding cp1252" in refused.stderr
    assert predict(file, "--file", rows, "--encoding", "cp1252").returncode == 0


def test_the_dataset_can_say_how_inputs_are_made(
    predict: Predict, shapes: bytes, pictures: Path, tmp_path: Path
) -> None:
    from podium.data import artifact, artifact_files

    images, labels = np.zeros((2, 28, 28), np.uint8), np.array([0, 1])
    part = artifact.Split(inputs={"images": images}, target=labels)
    artifact_files.write(
        tmp_path / "data", {"train": part, "validation": part, "test": part}, name="shapes", kind="classification",
        classes=("wide", "tall"), inputs={"images": artifact.InputDescription(meaning="image")}, target_name="shape",
        preprocessing=DIGIT, source="drawn", split="given",
    )  # fmt: skip
    registry = store(tmp_path, shapes, None)
    done = predict(
        pictures, "--model", "shapes", "--storage", registry, "--data", tmp_path / "data"
    )
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["tall", "wide"], done.stderr


def test_a_blank_picture_does_not_stop_the_others(
    predict: Predict, shapes: bytes, pictures: Path, directory: Callable[[bytes, Any], Path]
) -> None:
    Image.new("RGB", (150, 150), (240, 238, 230)).save(pictures / "blank.png")
    (pictures / "cut.png").write_bytes((pictures / "tall.png").read_bytes()[:60])
    done = predict(pictures, "--file", directory(shapes, SHAPES), "--json")
    assert done.returncode == 1
    value = json.loads(done.stdout)
    assert [prediction["class"] for prediction in value["predictions"]] == ["tall", "wide"]
    assert [Path(failed["where"]).name for failed in value["failed"]] == ["blank.png", "cut.png"]
    assert "blank.png: the digit must stand out" in done.stderr
    assert "2 of 4 items could not be predicted" in done.stderr


@pytest.fixture
def bucket(pictures: Path, new_bucket: Callable[[str], str]) -> str:
    """The pictures in a bucket, with files of the same names below them."""
    storage = connect(new_bucket("moto"))
    for file in pictures.iterdir():
        storage.put(f"new/{file.name}", file)
        storage.put(f"new/older/{file.name}", file)
    storage.put("new/notes.txt", b"not a picture")
    storage.put("new/cut.png", (pictures / "tall.png").read_bytes()[:60])
    return storage.url


def test_pictures_in_a_bucket_are_predicted(
    predict: Predict,
    shapes: bytes,
    pictures: Path,
    bucket: str,
    directory: Callable[[bytes, Any], Path],
) -> None:
    items = [f"{bucket}/new", pictures / "wide.jpg", f"{bucket}/new/older/wide.jpg"]
    done = predict(*items, "--file", directory(shapes, SHAPES), "--json")
    assert done.returncode == 1
    value = json.loads(done.stdout)
    assert [
        (prediction["picture"], prediction["class"]) for prediction in value["predictions"]
    ] == [
        (f"{bucket}/new/tall.png", "tall"),
        (f"{bucket}/new/wide.jpg", "wide"),
        (str(pictures / "wide.jpg"), "wide"),
        (f"{bucket}/new/older/wide.jpg", "wide"),
    ]
    assert [failed["where"] for failed in value["failed"]] == [f"{bucket}/new/cut.png"]


@pytest.mark.parametrize("item", ["new/nowhere.png", "nothing/here"])
def test_pictures_missing_in_a_bucket_are_named(
    item: str, predict: Predict, shapes: bytes, bucket: str, directory: Callable[[bytes, Any], Path]
) -> None:
    done = predict(f"{bucket}/{item}", "--file", directory(shapes, SHAPES))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"there is no picture at {bucket}/{item}" in done.stderr


def test_rows_are_predicted_in_order_into_a_csv_file(
    predict: Predict, rows: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(
        "color,x,more\nred,-1,\nred,2\ngreen,,1\nblue,abc,1\nblue,-900,1\n"
    )
    done = predict(tmp_path / "new.csv", "--file", rows, "--output", tmp_path / "out.csv")
    assert done.returncode == 1
    assert [
        line.partition("new.csv, ")[2] for line in done.stderr.splitlines() if "new.csv, " in line
    ] == [
        "row 2: has 2 values, but the header names 3",
        "row 4, column x: 'abc' is not a number that float32 can hold",
    ]
    with (tmp_path / "out.csv").open(newline="") as stream:
        predicted = list(csv.DictReader(stream))
    assert [(row["row"], row["prediction"]) for row in predicted] == [
        ("1", "low"),
        ("3", "high"),
        ("5", "low"),
    ]
    assert float(predicted[0]["probability_low"]) == pytest.approx(1 / (1 + np.exp(-2)))
    assert [file.name for file in tmp_path.glob(".*")] == []


def test_values_that_training_did_not_have_are_said(
    predict: Predict, rows: Path, tmp_path: Path
) -> None:
    colors = ["red", "violet", "pink"] + ["green"] * 27
    (tmp_path / "new.csv").write_text("color,x\n" + "".join(f"{color},1\n" for color in colors))
    words = (tmp_path / "new.csv", "--file", rows, "--output", tmp_path / "out.csv")
    done = predict(*words)
    assert done.returncode == 0
    assert (
        "warning: column color: 2 of 30 values did not occur in training, which knows 'red', 'green'"
        in done.stderr
    )
    (tmp_path / "out.csv").unlink()
    done = predict(*words, "--strict")
    assert done.returncode == 1
    assert "error: column color: 2 of 30 values did not occur in training" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_a_column_that_is_empty_all_at_once_is_said(
    predict: Predict, rows: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("color,x\n" + "red,\n" * 29 + ",1\n")
    done = predict(tmp_path / "new.csv", "--file", rows)
    assert done.returncode == 0
    assert (
        "warning: column x: 29 of 30 values are missing, and hardly any were in training"
        in done.stderr
    )
    assert "column color" not in done.stderr


def test_a_table_without_rows_is_said(predict: Predict, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("color,x\n")
    done = predict(tmp_path / "new.csv", "--file", rows)
    assert done.returncode == 0
    assert "warning: the items hold nothing to predict" in done.stderr


def test_a_new_value_now_and_then_is_no_fault(predict: Predict, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("color,x\n" + "red,1\n" * 99 + "violet,1\n")
    done = predict(
        tmp_path / "new.csv", "--file", rows, "--strict", "--output", tmp_path / "out.csv"
    )
    assert (done.returncode, "did not occur" in done.stderr) == (0, False)


def test_numbers_outside_the_range_of_training_are_said(
    predict: Predict, rows: Path, tmp_path: Path
) -> None:
    places = [field["name"] for field in TABLE["columns"]]
    trained = np.zeros((50, len(places)), np.float32)
    trained[:, places.index("x")] = np.linspace(1000, 2000, 50)
    columns = tuple(Column(name=name, kind="number") for name in places)
    profile = Profile.of([("table", "table", columns, [trained])])
    (rows / "profile.json").write_text(json.dumps(asdict(profile)))
    said = "warning: column x: 3 of 4 values lie outside the range of training, 1000 to 2000"
    for numbers, expected in (("1.2 1.3 1.9 1500", True), ("1000 2000 2001 900", False)):
        (tmp_path / "new.csv").write_text(
            "color,x\n" + "".join(f"red,{x}\n" for x in numbers.split())
        )
        done = predict(tmp_path / "new.csv", "--file", rows)
        assert (done.returncode, said in done.stderr) == (0, expected)
    (rows / "profile.json").write_text('{"x":')
    done = predict(tmp_path / "new.csv", "--file", rows)
    assert (done.returncode, done.stdout.count("\n")) == (0, 4)
    assert "warning: numbers outside the range of training go unnoticed" in done.stderr


def test_rows_are_predicted_one_after_the_other_in_python(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("color;x\nred;-1\nred;abc\nblue;2\n")
    first, last, bad = podium.open_model(rows / "model.onnx").stream(
        [tmp_path / "new.csv"], delimiter=";"
    )
    assert (first.label, last.label) == ("low", "high")
    assert isinstance(bad, Problem)
    assert "'abc' is not a number" in str(bad)


def test_files_beside_a_model_may_be_links(rows: Path, tmp_path: Path) -> None:
    described = (rows / "preprocessing.json").rename(tmp_path / "shared.json")
    (rows / "preprocessing.json").symlink_to(described)
    (tmp_path / "new.csv").write_text("color,x\nred,-1\n")
    assert list(podium.open_model(rows).predict(tmp_path / "new.csv")) == ["low"]


@pytest.mark.parametrize(
    "content", ['{"color": "red", "x": 2}\n', "x;color\n2;red\n", "x\tcolor\n2\tred\n"]
)
def test_json_lines_and_other_delimiters_are_read(
    predict: Predict, content: str, rows: Path, tmp_path: Path
) -> None:
    file = tmp_path / ("new.jsonl" if content.startswith("{") else "new.csv")
    file.write_text(content)
    done = predict(file, "--file", rows)
    assert done.stdout == f"{file}, row 1  high  98.2%  (then low 1.8%)\n", done.stderr


def test_a_table_without_a_column_is_refused(predict: Predict, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("color\nred\n")
    done = predict(tmp_path / "new.csv", "--file", rows, "--output", tmp_path / "out.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "new.csv has no column 'x', which the model needs" in done.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("form", ["arguments", "empty", "lines", "table"])
def test_sentences_are_predicted_from_anywhere(
    predict: Predict, form: str, words: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.txt").write_text("good\n\nso very bad indeed\n")
    (tmp_path / "new.csv").write_text("n,review\n1,good\n2,\n3,so very bad indeed\n")
    given = {"arguments": ["good", " ", "so very bad indeed"], "empty": ["good", "", "so very bad indeed"], "lines": [tmp_path / "new.txt"],
             "table": [tmp_path / "new.csv"]}  # fmt: skip
    done = predict(*given[form], "--file", words, "--json")
    value = json.loads(done.stdout)
    assert [prediction["value"] for prediction in value["predictions"]] == [1, 3]
    assert [failed["row"] for failed in value["failed"]] == [2]
    assert "there is no word" in done.stderr


def test_a_sentence_longer_than_a_path_is_predicted(predict: Predict, words: Path) -> None:
    done = predict("so very bad " * 100, "--file", words, "--json")
    assert [each["value"] for each in json.loads(done.stdout)["predictions"]] == [
        3
    ]  # it reads three words


def test_sentences_and_files_are_not_mixed(predict: Predict, words: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("good\n")
    done = predict("a good film", tmp_path / "new.txt", "--file", words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "name sentences or files, not both" in done.stderr


def test_large_tables_are_predicted_batch_by_batch(rows: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=BATCH + 20_000).round(3)
    lines = [f"{value},red" for value in values]
    lines[BATCH + 10_000] = "oops,red"
    (tmp_path / "new.csv").write_text("\n".join(["x,color", *lines]))
    predictor = open_model(rows)
    results = list(predictor.stream([str(tmp_path / "new.csv")]))
    (problem,) = [result for result in results if isinstance(result, Problem)]
    assert f"row {BATCH + 10_001}, column x: 'oops'" in str(problem)
    results.remove(problem)
    labels = [getattr(result, "label", "") for result in results]
    assert labels == ["high" if value > 0 else "low" for value in np.delete(values, BATCH + 10_000)]
