"""Raw data is prepared, a scikit-learn model trained and written as ONNX, and raw data predicted: as by scikit-learn."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import csv, parquet
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from podium.data import artifact
from podium.data.options import DataOptions
from podium.data.sources import table as table_source
from podium.data.splits import divide
from podium.prediction import Outcome, open_model
from podium.prediction.predictor import _describe_preprocessing
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.whole


def save_onnx(model: Any, input_name: str, type_: Any, target: Path, data: Path) -> None:
    """Write a model directory as a trainer would."""
    from skl2onnx import convert_sklearn

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {id(model): {"zipmap": False}} if hasattr(model, "classes_") else None
        made = convert_sklearn(
            model, initial_types=[(input_name, type_)], options=options, target_opset=18
        )
    target.mkdir()
    (target / "model.onnx").write_bytes(made.SerializeToString())
    info = artifact.describe(data)
    (target / "preprocessing.json").write_text(json.dumps(_describe_preprocessing(info)))


def prepare(tmp_path: Path, dataset: str, target: str = "", **options: Any) -> Path:
    prepare_data(
        DataSettings(dataset=dataset, target=target, data_options=options), tmp_path / "data"
    )
    return tmp_path / "data"


def predicted(model: Path, *items: Path) -> list[Outcome]:
    results = list(open_model(model).stream([str(item) for item in items]))
    assert all(isinstance(result, Outcome) for result in results)
    return [result for result in results if isinstance(result, Outcome)]


def with_holes(count: int = 3000) -> pa.Table:
    """Make customers who leave, or not, for reasons in the data, some of which are not known."""
    rng = np.random.default_rng(7)
    age, months = rng.integers(18, 80, count), rng.exponential(20, count).round(4)
    plan, member = rng.choice(["basic", "family", "business"], count), rng.random(count) < 0.4
    risk = (
        0.04 * (50 - age)
        - 0.05 * months
        + 1.5 * (plan == "basic")
        - 1.2 * member
        + rng.normal(0, 0.5, count)
    )
    holes = {name: rng.random(count) < 0.1 for name in ("age", "plan", "member")}
    return pa.table({
        "age": pa.array(age, mask=holes["age"]), "months": months, "plan": pa.array(plan, mask=holes["plan"]),
        "member": pa.array(member, mask=holes["member"]), "leaves": np.where(risk > 0, "yes", "no"),
    })  # fmt: skip


def bundled(name: str, **options: Any) -> pa.Table:
    """Return one of scikit-learn's data sets as a table with the column ``target``."""
    found = getattr(datasets, f"load_{name}")(**options)
    names = [str(column) for column in found.feature_names]
    return pa.table({**dict(zip(names, found.data.T, strict=True)), "target": found.target})


def with_large_numbers(count: int = 1000) -> pa.Table:
    """Make machines that fail by their code, their time of day, and milliseconds."""
    rng = np.random.default_rng(8)
    code, second, stamp = (
        rng.integers(1, 6, count),
        rng.integers(0, 86_400, count),
        rng.integers(0, 5000, count),
    )
    made = (
        np.datetime64("2026-01-01")
        + rng.integers(0, 300, count) * np.timedelta64(86_400, "s")
        + second
    )
    fails = (code == 3) | (second < 20_000) | (stamp > 4000)
    return pa.table({"code": 100_000_000 + code, "made": made, "stamp": 1_764_000_000_000 + stamp,
                     "fails": np.where(fails, "yes", "no")})  # fmt: skip


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "holes", "large"])
def test_classes_of_rows_are_those_of_scikit_learn(name: str, tmp_path: Path) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    own = {"holes": (with_holes, "leaves"), "large": (with_large_numbers, "fails")}
    table, target = (own[name][0](), own[name][1]) if name in own else (bundled(name), "target")
    csv.write_csv(table, tmp_path / "raw.csv")
    data = prepare(tmp_path, f"table:{tmp_path}/raw.csv", target)
    info, train, test = (
        artifact.describe(data),
        artifact.load(data, "train"),
        artifact.load(data, "test"),
    )
    model = RandomForestClassifier(30, random_state=1).fit(train.inputs["table"], train.target)
    assert model.score(test.inputs["table"], test.target) > 0.8
    save_onnx(
        model,
        "table",
        FloatTensorType([None, train.inputs["table"].shape[1]]),
        tmp_path / "model",
        data,
    )

    parquet.write_table(table.drop_columns([target]), tmp_path / "new.parquet")
    outcomes = predicted(tmp_path / "model", tmp_path / "new.parquet")
    raw = table_source.TABLE.read(f"{tmp_path}/raw.csv", DataOptions(target=target), tmp_path)
    assert raw.fit is not None
    everything = raw.fit(divide(raw, DataOptions(target=target)).index["train"]).items.inputs[
        "table"
    ]
    expected = model.predict_proba(everything)
    assert [outcome.label for outcome in outcomes] == [
        info.classes[at] for at in expected.argmax(1)
    ]
    given = [list((outcome.probabilities or {}).values()) for outcome in outcomes]
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_numbers_of_rows_are_those_of_scikit_learn(tmp_path: Path) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    table = bundled("diabetes", scaled=False)
    csv.write_csv(table, tmp_path / "raw.csv")
    data = prepare(tmp_path, f"table:{tmp_path}/raw.csv", "target", kind="regression")
    train = artifact.load(data, "train")
    model = make_pipeline(StandardScaler(), Ridge()).fit(train.inputs["table"], train.target)
    save_onnx(model, "table", FloatTensorType([None, 10]), tmp_path / "model", data)
    outcomes = predicted(tmp_path / "model", tmp_path / "raw.csv")
    expected = model.predict(np.stack(table.drop_columns(["target"]).columns, 1).astype(np.float32))
    np.testing.assert_allclose([outcome.values[0] for outcome in outcomes], expected, rtol=1e-4)


def test_classes_of_pictures_are_those_of_scikit_learn(tmp_path: Path) -> None:
    digits = datasets.load_digits()
    for at, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (tmp_path / f"raw/{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype(np.uint8)).save(tmp_path / f"raw/{label}/{at:04}.png")
    data = prepare(tmp_path, f"images:{tmp_path}/raw", allow_duplicates=True)
    info, train = artifact.describe(data), artifact.load(data, "train")
    assert (info.classes, train.inputs["images"].shape[1:]) == (tuple("0123456789"), (8, 8))
    flat = train.inputs["images"].reshape(len(train), -1).astype(np.float32)
    model = LogisticRegression(max_iter=300).fit(flat / 255, train.target)
    save_pictures(model, tmp_path / "model", data)

    test = artifact.load(data, "test")
    assert model.score(test.inputs["images"].reshape(len(test), -1) / 255, test.target) > 0.9
    outcomes = predicted(tmp_path / "model", tmp_path / "raw/3")
    files = [int(Path(str(outcome.name["picture"])).stem) for outcome in outcomes]
    pixels = (digits.images[files].reshape(-1, 64) * 15).astype(np.uint8) / 255
    assert [outcome.label for outcome in outcomes] == [
        str(label) for label in model.predict(pixels)
    ]


def save_pictures(model: LogisticRegression, target: Path, data: Path) -> None:
    """Write a linear model of pixels as ONNX by hand: skl2onnx has no cast and flatten."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array((model.coef_.T / 255).astype(np.float32), "weights")
    bias = numpy_helper.from_array(model.intercept_.astype(np.float32), "bias")
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["float"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weights", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes, "linear", [helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 10])], [weights, bias],
    )  # fmt: skip
    target.mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        target / "model.onnx",
    )
    (target / "preprocessing.json").write_text(
        json.dumps(_describe_preprocessing(artifact.describe(data)))
    )
