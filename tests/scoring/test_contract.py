"""Real models by the contract: scikit-learn's through skl2onnx, one of two inputs, one over memory maps."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from handmade import score
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from podium.errors import InvalidInput
from podium.scoring import METRICS, OnnxModel, find_metric, score_predictions

Array = np.ndarray[Any, Any]


def convert(model: Any, rows: Array, **options: Any) -> bytes:
    """Write a scikit-learn model as ONNX, as a user would for a table dataset."""
    types = [("table", FloatTensorType([None, rows.shape[1]]))]
    return bytes(
        to_onnx(model, initial_types=types, target_opset=18, **options).SerializeToString()
    )


@pytest.fixture(scope="module")
def wine() -> tuple[Array, Array]:
    rows, labels = load_wine(return_X_y=True)
    return rows.astype(np.float32), labels


@pytest.fixture(scope="module")
def wine_model(wine: tuple[Array, Array]) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*wine)


def test_a_scikit_learn_classifier_gives_its_probabilities(
    wine: tuple[Array, Array], wine_model: Any
) -> None:
    rows, labels = wine
    scores = score(
        convert(wine_model, rows, options={"zipmap": False}), {"table": rows}, labels, classes=3
    )
    np.testing.assert_allclose(scores.predictions, wine_model.predict_proba(rows), atol=1e-5)
    assert scores.metrics["accuracy"] == wine_model.score(rows, labels)
    assert set(scores.metrics) == {
        name for name, metric in METRICS.items() if metric.kind == "classification"
    }


@pytest.mark.parametrize("name", ["dense_1", "logits"])
def test_a_softmax_of_another_name_is_not_taken_twice(
    wine: tuple[Array, Array], wine_model: Any, name: str
) -> None:
    rows, labels = wine
    content = convert(wine_model, rows, options={"zipmap": False})
    model = onnx.ModelProto.FromString(content)
    model.graph.node.append(helper.make_node("Identity", ["probabilities"], [name]))
    while model.graph.output:
        model.graph.output.pop()
    kind = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])
    model.graph.output.append(kind)
    scores = score(model.SerializeToString(), {"table": rows}, labels, classes=3)
    known = log_loss(labels, wine_model.predict_proba(rows))
    assert (scores.metrics["log_loss"] == pytest.approx(known, abs=1e-4)) == (name != "logits")


def test_two_classes_give_the_area_of_scikit_learn() -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = rows.astype(np.float32)
    model = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(rows, labels)
    scores = score(
        convert(model, rows, options={"zipmap": False}), {"table": rows}, labels, classes=2
    )
    expected = roc_auc_score(labels, model.predict_proba(rows)[:, 1])
    assert scores.metrics["roc_auc"] == pytest.approx(expected, abs=1e-3)


def test_probabilities_as_maps_are_refused_with_a_hint(
    wine: tuple[Array, Array], wine_model: Any
) -> None:
    with pytest.raises(
        InvalidInput,
        match=r'list of maps.*\nhint: convert the model with options=\{"zipmap": False\}',
    ):
        score(convert(wine_model, wine[0]), {"table": wine[0]}, wine[1], classes=3)


def test_scores_called_probabilities_are_refused(wine: tuple[Array, Array]) -> None:
    rows, labels = wine[0] / wine[0].max(0), wine[1]
    model = LinearSVC(random_state=0).fit(rows, labels)
    with pytest.raises(
        InvalidInput, match=r"probabilities that are none, first for row 0: .*\nhint: .*logits"
    ):
        score(convert(model, rows), {"table": rows}, labels, classes=3)


@pytest.mark.parametrize(
    "model", [LinearRegression(), RandomForestRegressor(n_estimators=5, random_state=0)]
)
def test_a_scikit_learn_regressor_is_measured(model: Any) -> None:
    rows, target = load_diabetes(return_X_y=True)
    rows = rows.astype(np.float32)
    model.fit(rows, target)
    scores = score(convert(model, rows), {"table": rows}, target, classes=None)
    assert scores.predictions.shape == target.shape
    assert scores.confusion is None
    assert scores.metrics["rmse"] == pytest.approx(
        np.sqrt(mean_squared_error(target, model.predict(rows))), rel=1e-4
    )
    assert scores.metrics["r2"] == pytest.approx(model.score(rows, target), rel=1e-3)


def test_several_targets_are_predicted_together() -> None:
    rows, target = load_diabetes(return_X_y=True)
    rows, both = rows.astype(np.float32), np.stack([target, -target / 2], axis=1)
    model = LinearRegression().fit(rows, both)
    scores = score(convert(model, rows), {"table": rows}, both, classes=None)
    assert scores.predictions.shape == both.shape
    with pytest.raises(InvalidInput, match="predicts 2 values a row, but the target has 1"):
        score(convert(model, rows), {"table": rows}, target, classes=None)


def two_inputs() -> bytes:
    """Return a model that sums the tokens that a mask leaves, and is sure of class 1 if the sum is above 10."""
    nodes = [
        helper.make_node("Mul", ["tokens", "mask"], ["left"]),
        helper.make_node("ReduceSum", ["left", "axis"], ["sum"], keepdims=1),
        helper.make_node("Cast", ["sum"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["float", "ten"], ["above"]),
        helper.make_node("Neg", ["above"], ["below"]),
        helper.make_node("Concat", ["below", "above"], ["logits"], axis=1),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([1]), "axis"),
        onnx.numpy_helper.from_array(np.float32(10), "ten"),
    ]
    taken = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", 6])
        for name in ("tokens", "mask")
    ]
    given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph(nodes, "sum", taken, given, constants)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()
    )


def test_a_model_takes_two_inputs_by_their_names() -> None:
    random = np.random.default_rng(0)
    tokens, mask = random.integers(0, 9, (700, 6)), random.integers(0, 2, (700, 6))
    labels = ((tokens * mask).sum(1) > 10).astype(np.int64)
    predicted = OnnxModel(two_inputs()).predict({"mask": mask, "tokens": tokens}, classes=2)
    assert (predicted.argmax(1) == labels).all()
    with pytest.raises(
        InvalidInput,
        match=r"takes mask \(int64 \[n, 6\]\), but got tokens \(int64 \[n, 6",
    ):
        OnnxModel(two_inputs()).predict({"tokens": tokens}, classes=2)


def test_the_hint_for_an_input_of_another_name_names_it(
    wine: tuple[Array, Array], wine_model: Any
) -> None:
    model = to_onnx(wine_model, wine[0][:1], target_opset=18).SerializeToString()
    with pytest.raises(InvalidInput, match="takes X ") as refused:
        OnnxModel(model).predict({"table": wine[0]}, classes=3)
    assert "give it as X, or name the model's input table" in (refused.value.hint or "")
    assert 'torch.onnx.export(…, input_names=["table"])' in (refused.value.hint or "")
    assert 'keras.Input(…, name="table")' in (refused.value.hint or "")
    assert 'initial_types=[("table", …)]' in (refused.value.hint or "")


def test_a_model_may_leave_inputs_unused(wine: tuple[Array, Array], wine_model: Any) -> None:
    rows, labels = wine
    model = convert(wine_model, rows, options={"zipmap": False})
    alone = score(model, {"table": rows}, labels, classes=3)
    beside = score(
        model, {"pictures": np.zeros((178, 4, 4), np.uint8), "table": rows}, labels, classes=3
    )
    assert alone.metrics == beside.metrics


def only_classes(output: str, kind: int) -> bytes:
    nodes = [helper.make_node("Cast", ["table"], [output], to=kind)]
    taken = [helper.make_tensor_value_info("table", TensorProto.FLOAT, ["n"])]
    given = [helper.make_tensor_value_info(output, kind, ["n"])]
    graph = helper.make_graph(nodes, "classes", taken, given)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()
    )


def test_a_model_of_classes_only_has_metrics_of_classes() -> None:
    rows = np.array([0, 1, 2, 1], np.float32)
    scores = score(
        only_classes("label", TensorProto.INT64), {"table": rows}, np.array([0, 1, 1, 1]), classes=3
    )
    assert scores.predictions.tolist() == [0, 1, 2, 1]
    assert set(scores.metrics) == {"accuracy", "balanced_accuracy", "f1_macro"}
    with pytest.raises(
        InvalidInput, match="log_loss needs probabilities, but the model gives classes only"
    ):
        scores.value(METRICS["log_loss"])
    with pytest.raises(
        InvalidInput, match=r"returns class \[5\] for row 1, but the data has classes 0 to 2"
    ):
        score(
            only_classes("label", TensorProto.INT64),
            {"table": np.array([0, 5], np.float32)},
            np.array([0, 1]),
            classes=3,
        )


def test_a_model_without_predictions_is_refused() -> None:
    rows = np.zeros(3, np.float32)
    with pytest.raises(
        InvalidInput,
        match=r"returns label \(tensor\(string\) \[n\]\): none of it holds predictions",
    ):
        score(
            only_classes("label", TensorProto.STRING), {"table": rows}, np.zeros(3, int), classes=2
        )
    with pytest.raises(InvalidInput, match="none of it holds predictions"):
        score(only_classes("label", TensorProto.INT64), {"table": rows}, rows, classes=None)


def test_a_metric_of_the_other_kind_is_refused() -> None:
    scores = score_predictions(np.array([1.0, 2.0]), np.array([1.0, 3.0]), classes=None)
    with pytest.raises(
        InvalidInput, match="accuracy measures classification, but the dataset is regression"
    ):
        scores.value(find_metric("accuracy"))


@pytest.mark.whole
def test_memory_stays_bounded_whatever_the_number_of_rows(
    tmp_path: Path, wine: tuple[Array, Array], wine_model: Any
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(convert(wine_model, wine[0], options={"zipmap": False}))
    for name, count in (("small", 400_000), ("large", 4_000_000)):
        rows = np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, (count, 13))
        rows[::1000] = wine[0][0]
        del rows
    script = """if True:
        import sys
        from pathlib import Path
        import numpy as np
        from podium.scoring import OnnxModel
        rows = np.load(sys.argv[2], mmap_mode="r")
        OnnxModel(Path(sys.argv[1]), threads=1).predict({"table": rows}, classes=3, target=Path(sys.argv[2] + ".out"))
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(status["RssAnon"].split()[0])
    """
    anonymous = {}
    for name in ("small", "large"):
        words = [sys.executable, "-c", script, str(model), str(tmp_path / f"{name}.npy")]
        anonymous[name] = int(
            subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
        )
    assert anonymous["large"] < anonymous["small"] + 30_000  # kB; its rows are 187 MB more
