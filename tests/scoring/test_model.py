"""Models here are ONNX graphs written by hand: flatten, one matrix, so that the right answer is known."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from handmade import save, score
from onnx import TensorProto, helper, numpy_helper

from podium.errors import Damaged, Failed, InvalidInput, NotFound
from podium.models import open_registry
from podium.scoring import OnnxModel, model as scoring_model
from podium.scoring.model import _softmax


def linear_model(
    weights: np.ndarray,
    *,
    kind: int = TensorProto.UINT8,
    side: int = 28,
    name: str = "images",
    batch: Any = "n",
) -> bytes:
    """Return a model whose logits are pixels (0..1) times weights [pixels, classes]."""
    nodes = [
        helper.make_node("Cast", [name], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["float", "white"], ["scaled"]),
        helper.make_node("Flatten", ["scaled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    constants = [
        numpy_helper.from_array(np.float32(255), "white"),
        numpy_helper.from_array(weights.astype(np.float32), "weights"),
    ]
    taken = [helper.make_tensor_value_info(name, kind, [batch, side, side])]
    given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", weights.shape[1]])]
    graph = helper.make_graph(nodes, "linear", taken, given, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.fixture
def three_classes() -> tuple[bytes, np.ndarray, np.ndarray]:
    """A model that finds which of three rows is lit, and twelve pictures: two of them are labelled wrongly."""
    weights = np.zeros((28, 28, 3))
    for row in range(3):
        weights[row, :, row] = 1
    images = np.zeros((12, 28, 28), np.uint8)
    lit = np.arange(12) % 3
    images[np.arange(12), lit] = 255
    labels = lit.astype(np.uint8)
    labels[[0, 1]] = [2, 2]
    return linear_model(weights.reshape(784, 3)), images, labels


def test_accuracy_and_confusion_count_what_was_found(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
) -> None:
    model, images, labels = three_classes
    scores = score(model, {"images": images}, labels, classes=3)
    assert scores.metrics["accuracy"] == pytest.approx(10 / 12)
    assert scores.confusion is not None
    assert scores.confusion.tolist() == [[3, 0, 0], [0, 3, 0], [1, 1, 4]]
    assert scores.predictions.argmax(1).tolist() == [0, 1, 2] * 4
    assert scores.predictions.dtype == np.float32


def test_the_loss_is_the_mean_cross_entropy(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
) -> None:
    model, images, labels = three_classes
    wide = np.log(
        np.exp(28) + 2
    )  # the lit row gives 28, the others 0; single precision ends at 2**-23
    expected = (10 * 2**-23 + 2 * min(wide, 23 * np.log(2))) / 12
    assert score(model, {"images": images}, labels, classes=3).metrics["log_loss"] == pytest.approx(
        expected
    )


def test_a_model_runs_on_one_thread_or_more() -> None:
    with pytest.raises(InvalidInput, match="`threads >= 1` must hold, but got threads=0"):
        OnnxModel(linear_model(np.ones((784, 3))), threads=0)


def test_neither_batch_nor_threads_change_the_result(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, images, _ = three_classes
    (tmp_path / "model.onnx").write_bytes(model)
    inputs = {"images": images}
    second = OnnxModel(tmp_path / "model.onnx", threads=2).predict(inputs, classes=3)
    monkeypatch.setattr(scoring_model, "_LARGEST_BATCH", 5)
    first = OnnxModel(model, threads=1).predict(inputs, classes=3)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("size", [1, 5, 64])
def test_a_fixed_batch_takes_any_number_of_rows(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torch.onnx.export writes it from one example: the batch of that example, and no other."""
    free, images, _ = three_classes
    weights = numpy_helper.to_array(onnx.load_from_string(free).graph.initializer[1])
    fixed = OnnxModel(linear_model(weights, batch=size))
    with pytest.raises(Exception, match="Got: 12 Expected: "):
        fixed._session.run(None, {"images": images})
    monkeypatch.setattr(scoring_model, "_LARGEST_BATCH", 7)
    assert fixed.run({"images": images[:0]})["logits"].shape == (0, 3)
    for rows in (1, 5, 12):
        inputs = {"images": images[:rows]}
        expected = OnnxModel(free).predict(inputs, classes=3)
        np.testing.assert_array_equal(fixed.predict(inputs, classes=3), expected)
        assert len(fixed.run(inputs)["logits"]) == rows


def test_inputs_of_two_fixed_batches_are_refused() -> None:
    both = {"a": (TensorProto.FLOAT, [2, 3]), "b": (TensorProto.FLOAT, [4, 3])}
    nodes = [helper.make_node("Concat", ["a", "b"], ["out"], axis=0)]
    rows = np.ones((4, 3), np.float32)
    with pytest.raises(InvalidInput, match=r"takes a \(float32 \[2, 3\]\), but got a") as caught:
        OnnxModel(save(nodes, both, "out", 3)).predict({"a": rows, "b": rows}, classes=3)
    assert "the items along the first axis" in caught.value.hint


def test_a_batch_on_the_second_axis_is_refused() -> None:
    """As recurrent networks of PyTorch have it: five items at a time would be one sequence."""
    rows = np.ones((7, 5, 3), np.float32)

    def summing(axis: int, shape: list[Any]) -> OnnxModel:
        nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["logits"], keepdims=0)]
        axes = numpy_helper.from_array(np.int64([axis]), "axes")
        return OnnxModel(save(nodes, {"x": (TensorProto.FLOAT, shape)}, "logits", 3, axes))

    with pytest.raises(InvalidInput, match=r"takes x \(float32 \[5, n, 3\]\)") as caught:
        summing(0, [5, "n", 3]).predict({"x": rows}, classes=3)
    assert "the items along the first axis" in caught.value.hint
    assert summing(1, [1, "length", 3]).predict({"x": rows}, classes=3).shape == (7, 3)
    pictures = np.ones((7, 3, 5), np.float32)
    assert summing(2, [2, 3, "width"]).predict({"x": pictures}, classes=3).shape == (7, 3)


def test_a_fixed_batch_that_mixes_its_rows_is_refused() -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["out"], keepdims=1)]
    model = save(
        nodes,
        {"x": (TensorProto.FLOAT, [4, 3])},
        "out",
        3,
        numpy_helper.from_array(np.int64([0]), "axes"),
    )
    with pytest.raises(InvalidInput, match=r"takes 4 rows at a time and returns out of \[1, 3\]"):
        OnnxModel(model).predict({"x": np.ones((9, 3), np.float32)}, classes=3)


def test_a_class_without_images_has_an_empty_row(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
) -> None:
    model, images, labels = three_classes
    some = labels != 1
    confusion = score(model, {"images": images[some]}, labels[some], classes=3).confusion
    assert confusion is not None
    assert confusion[1].tolist() == [0, 0, 0]


def test_probabilities_sum_to_one_even_for_huge_logits() -> None:
    rows = _softmax(np.array([[1000, 0, -1000], [0, 0, 0]], np.float32))
    np.testing.assert_allclose(rows, [[1, 0, 0], [1 / 3] * 3], atol=1e-6)


@pytest.mark.parametrize("operator", ["Relu", "Softmax"])
def test_an_item_is_judged_alike_in_any_batch(operator: str) -> None:
    node = helper.make_node(operator, ["table"], ["dense_1"])
    content = save([node], {"table": (TensorProto.FLOAT, ["n", 2])}, "dense_1", 2)
    both = np.array([[0.25, 0.75], [3, 1]], np.float32)
    for order in (both, both[::-1]):  # a version that is served anew sees requests in any order
        model = OnnxModel(content)
        alone = [model.predict({"table": row[None]}, classes=2)[0] for row in order]
        np.testing.assert_allclose(model.predict({"table": order}, classes=2), alone)
        np.testing.assert_allclose(alone, _softmax(order), rtol=1e-6)


def test_a_model_that_takes_no_probe_is_judged_anyhow() -> None:
    nodes = [
        helper.make_node("Slice", ["table", "five", "seven", "one"], ["part"]),
        helper.make_node("Softmax", ["part"], ["dense_1"]),
        helper.make_node("Reshape", ["dense_1", "shape"], ["said"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in {"five": [5], "seven": [7], "one": [1], "shape": [-1, 2]}.items()
    ]
    content = save(nodes, {"table": (TensorProto.FLOAT, ["n", "any"])}, "said", 2, *constants)
    rows = np.zeros((1, 7), np.float32)
    rows[0, 6] = 1
    said = OnnxModel(content).predict({"table": rows}, classes=2)
    np.testing.assert_allclose(said, _softmax(rows[:, 5:]), rtol=1e-6)


def test_a_probe_is_no_larger_than_a_batch() -> None:
    """One item of a megabyte is run at a time, and this model takes no more."""
    nodes = [
        helper.make_node("Slice", ["table", "zero", "two", "axis"], ["part"]),
        helper.make_node("Relu", ["part"], ["dense_1"]),
        helper.make_node("Reshape", ["dense_1", "shape"], ["said"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in {"zero": [0], "two": [2], "axis": [1], "shape": [1, 2]}.items()
    ]
    content = save(nodes, {"table": (TensorProto.FLOAT, ["n", 1 << 18])}, "said", 2, *constants)
    rows = np.zeros((1, 1 << 18), np.float32)
    rows[0, :2] = 0.25, 0.75
    said = OnnxModel(content).predict({"table": rows}, classes=2)
    np.testing.assert_allclose(said, _softmax(rows[:, :2]), rtol=1e-6)


def test_a_model_of_other_classes_than_the_data_is_refused(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
) -> None:
    model, images, labels = three_classes
    inputs = {"images": images}
    with pytest.raises(InvalidInput, match="has 3 classes, but the data has 10"):
        score(model, inputs, labels, classes=10)
    with pytest.raises(InvalidInput, match="has 3 classes, but the data has 2"):
        score(model, inputs, labels, classes=2)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"kind": TensorProto.FLOAT}, r"images \(float32 \[n, 28, 28\]\)"),
        ({"side": 32}, r"images \(uint8 \[n, 32, 32\]\)"),
        ({"name": "pictures"}, r"pictures \(uint8 \[n, 28, 28\]\)"),
    ],
)
def test_a_model_that_takes_other_inputs_is_refused(options: dict[str, Any], given: str) -> None:
    side = options.get("side", 28)
    model = OnnxModel(linear_model(np.zeros((side * side, 10)), **options))
    images = np.zeros((4, 28, 28), np.uint8)
    with pytest.raises(
        InvalidInput,
        match=rf"the model takes {given}, but got images \(uint8 \[n, 28, 28",
    ):
        model.predict({"images": images}, classes=10)


def test_inputs_that_do_not_fit_are_refused(
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
) -> None:
    model = OnnxModel(three_classes[0])
    with pytest.raises(InvalidInput, match=r"but got images \(float32 \[n, 28, 28\]\)"):
        model.predict({"images": np.zeros((1, 28, 28), np.float32)}, classes=3)
    with pytest.raises(InvalidInput, match=r"but got images \(uint8 \[n, 784\]\)"):
        model.predict({"images": np.zeros((1, 784), np.uint8)}, classes=3)
    with pytest.raises(InvalidInput, match="no items to run"):
        model.predict({"images": np.zeros((0, 28, 28), np.uint8)}, classes=3)


def test_a_model_that_answers_nan_fails() -> None:
    model = OnnxModel(linear_model(np.full((784, 10), np.nan)))
    with pytest.raises(Failed, match="returns logits that are not finite, first for row 0"):
        model.predict({"images": np.ones((4, 28, 28), np.uint8)}, classes=10)


def test_bytes_that_are_no_model_are_called_damaged(
    tmp_path: Path,
    three_classes: tuple[bytes, np.ndarray, np.ndarray],
    capfd: pytest.CaptureFixture[str],
) -> None:
    for data in (b"not a model", three_classes[0][: len(three_classes[0]) // 2], b""):
        with pytest.raises(Damaged, match="ONNX model"):
            OnnxModel(data)
    with pytest.raises(NotFound, match=r"no model file .*nowhere\.onnx"):
        OnnxModel(tmp_path / "nowhere.onnx")
    assert capfd.readouterr() == ("", "")


def with_weights_elsewhere(model: bytes, location: str, how: str) -> bytes:
    """Return the model with its weights in another file: an initializer, or a constant inside a branch."""
    parsed = onnx.ModelProto.FromString(model)
    weights = parsed.graph.initializer[1]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=location)
    if how == "in a branch":
        constant = helper.make_node("Constant", [], ["hidden"])
        constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(weights)
        branch = helper.make_graph([constant], "branch", [], [])
        node = helper.make_node("If", ["white"], ["picked"], then_branch=branch, else_branch=branch)
        parsed.graph.node.append(node)
        parsed.graph.initializer.remove(weights)
    return bytes(parsed.SerializeToString())


@pytest.mark.parametrize("how", ["as an initializer", "in a branch"])
@pytest.mark.parametrize("location", ["weights.bin", "*/_ORT_MEM_ADDR_/*"])
def test_weights_outside_the_model_are_refused(
    how: str, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.ones((784, 3), np.float32)
    model = with_weights_elsewhere(linear_model(weights), location, how)
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())
    (tmp_path / "model.onnx").write_bytes(model)
    monkeypatch.chdir(tmp_path)
    for given in (model, tmp_path / "model.onnx"):
        with pytest.raises(InvalidInput, match="which no checksum covers"):
            OnnxModel(given)
    with pytest.raises(InvalidInput, match="which no checksum covers"):
        open_registry(tmp_path / "store").model("tiny").upload(
            {"model.onnx": tmp_path / "model.onnx"}, {}, "v1"
        )
    assert not list((tmp_path / "store").rglob("metadata.json"))


def endless_model() -> bytes:
    """Return a model that doubles its input until a condition ends that never does."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Mul", ["value", "two"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", TensorProto.FLOAT, ["n", 2]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, ["n", 2]),
        ],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    nodes = [helper.make_node("Loop", ["", "true", "x"], ["logits"], body=body)]
    taken = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
    given = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph(
        nodes, "endless", taken, given, [numpy_helper.from_array(np.array(True), "true")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


def test_a_model_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_MODEL_SECONDS", "1")
    model = OnnxModel(endless_model(), threads=1)
    for _ in range(2):
        with pytest.raises(Failed, match="the model did not end within 1 s") as caught:
            model.predict({"x": np.ones((1, 2), np.float32)}, classes=2)
        assert str(caught.value.hint) == "to allow more: export PODIUM_MODEL_SECONDS=2"
    monkeypatch.setenv("PODIUM_MODEL_SECONDS", "soon")
    with pytest.raises(InvalidInput, match="PODIUM_MODEL_SECONDS is not a number of seconds"):
        model.predict({"x": np.ones((1, 2), np.float32)}, classes=2)


def test_a_model_that_never_ends_ends_at_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(endless_model())
    code = """if True:
        import numpy as np, os, signal, sys
        from pathlib import Path
        from podium.scoring import OnnxModel
        model = OnnxModel(Path(sys.argv[1]), threads=1)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        class Inputs(dict):
            def values(self):  # asked for twice before the batch is run; the second time sets the alarm anew
                signal.setitimer(signal.ITIMER_REAL, .5)
                return super().values()
        model.predict(Inputs(x=np.ones((1, 2), np.float32)), classes=2)
    """
    words = [sys.executable, "-c", code, str(tmp_path / "model.onnx")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
