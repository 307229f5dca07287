"""An ensemble of a sweep's trials as one model: which take part, and that it answers as their mean."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from podium.data.validated import Validated
from podium.files.documents import parse
from podium.prediction.directory import ModelDirectory
from podium.scoring import OnnxModel
from podium.storage import connect
from podium.training.ensemble import _choose, build
from podium.training.handover import TrialRow, TrialTable
from podium.training.origin import Origin
from podium.training.trained import TrainedMetrics

CLASSES = ("low", "mid", "high")
RNG = np.random.default_rng(1)
ITEMS = RNG.normal(size=(400, 5)).astype(np.float32)
TRUTH = (ITEMS[:, 0] + ITEMS[:, 1] > 0).astype(np.int64) + (ITEMS[:, 2] > 0.5)


def graph(weights: NDArray[Any], name: str, *, opset: int = 17) -> bytes:
    """A model.onnx that multiplies rows by weights; of probabilities after a softmax."""
    nodes = [
        helper.make_node(
            "MatMul", ["rows", "weights"], ["sums" if name == "probabilities" else name]
        )
    ]
    if name == "probabilities":
        nodes.append(helper.make_node("Softmax", ["sums"], [name], axis=1))
    body = helper.make_graph(
        nodes,
        "member",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", weights.shape[1]])],
        [numpy_helper.from_array(weights.astype(np.float32), "weights")],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _info(kind: str) -> Any:
    return type("Info", (), {"classes": CLASSES if kind == "classification" else ()})()


def member(folder: Path, model: bytes, target: NDArray[Any]) -> str:
    """Write a trial's model directory, and return its URI."""
    (folder / "model.onnx").parent.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    (folder / "metrics.json").write_text('{"dataset": "d1"}')
    is_class = target.dtype.kind == "i"
    predictions = OnnxModel(model).predict(
        {"rows": ITEMS}, classes=len(CLASSES) if is_class else None
    )
    Validated(target=target, predictions=predictions).write(connect(folder))
    return str(folder)


def table(models: Sequence[str]) -> TrialTable:
    rows = [
        TrialRow(name=f"t{at}", state="Succeeded", parameters={}, value=1.0 - at / 10, seconds=1.0,
                 message="", number=at + 1, model=uri, epochs=[])
        for at, uri in enumerate(models)
    ]  # fmt: skip
    document = {
        "experiment": "sweep", "algorithm": "random", "objective": {"metric": "accuracy", "maximize": True},
        "parameters": [], "best": rows[0].name, "trials": [vars(row) for row in rows],
    }  # fmt: skip
    return parse(TrialTable, document, "the table")


def weak(seed: int, outputs: int = 3) -> NDArray[Any]:
    """Weights that are right in part, each in another one."""
    true = np.zeros((5, outputs))
    true[0], true[1], true[2] = np.arange(outputs), np.arange(outputs), np.arange(outputs)
    return true + np.random.default_rng(seed).normal(size=(5, outputs)) * 1.5


@pytest.mark.parametrize("names", [("logits",) * 3, ("logits", "probabilities", "logits")])
def test_the_graph_answers_with_the_mean_of_its_members(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [graph(weak(seed), name) for seed, name in enumerate(names)]
    uris = [member(tmp_path / f"t{at}", model, TRUTH) for at, model in enumerate(models)]
    url = build(table(uris), _info("classification"), str(tmp_path / "together"), "run-1")
    origin = Origin.read(ModelDirectory(url))
    assert (origin.kind, origin.name, origin.experiment) == ("ensemble", "together", "sweep")
    assert sum(origin.hyperparameters.values()) == pytest.approx(1, abs=1e-5)
    assert len(origin.hyperparameters) > 1
    parts = [OnnxModel(model).predict({"rows": ITEMS}, classes=3) for model in models]
    mean = sum(parts[int(name[1:])] * share for name, share in origin.hyperparameters.items())
    whole = OnnxModel(Path(url, "model.onnx")).predict({"rows": ITEMS}, classes=3)
    assert whole == pytest.approx(mean, abs=1e-5)
    loss = TrainedMetrics.read(ModelDirectory(url)).metrics["loss"]
    assert loss < -np.log(parts[0][np.arange(400), TRUTH]).mean()
    assert f"ensemble of {len(origin.hyperparameters)} trials" in capsys.readouterr().out


def test_numbers_are_averaged(tmp_path: Path) -> None:
    target = (ITEMS @ [1, 2, 3, 0, 0]).astype(np.float32)
    models = [graph(np.array([[1 + at, 2 - at, 3, 0, 0]]).T, "values") for at in (-1, 1)]
    uris = [member(tmp_path / f"t{at}", model, target) for at, model in enumerate(models)]
    url = build(table(uris), _info("regression"), str(tmp_path / "together"), "run-1")
    whole = OnnxModel(Path(url, "model.onnx")).predict({"rows": ITEMS}, classes=None)
    assert whole == pytest.approx(target, abs=1e-4)


def test_an_output_of_whole_numbers_is_not_averaged(tmp_path: Path) -> None:
    """Evaluation takes the first of floats."""
    target, models = (ITEMS @ [1, 2, 3, 0, 0]).astype(np.float32), list[bytes]()
    for at in (-1, 1):
        model = onnx.ModelProto.FromString(graph(np.array([[1 + at, 2 - at, 3, 0, 0]]).T, "values"))
        model.graph.node.append(helper.make_node("Cast", ["values"], ["whole"], to=7))
        kind = helper.make_tensor_value_info("whole", TensorProto.INT64, ["n", 1])
        model.graph.output.insert(0, kind)
        models.append(bytes(model.SerializeToString()))
    uris = [member(tmp_path / f"t{at}", model, target) for at, model in enumerate(models)]
    url = build(table(uris), _info("regression"), str(tmp_path / "together"), "run-1")
    whole = OnnxModel(Path(url, "model.onnx")).predict({"rows": ITEMS}, classes=None)
    assert whole == pytest.approx(target, abs=1e-4)


def test_trials_of_networks_and_of_trees_are_averaged(tmp_path: Path) -> None:
    target = (ITEMS @ [1, 2, 3, 0, 0]).astype(np.float32)
    models = [graph(np.array([[1 + at, 2 - at, 3, 0, 0]]).T, "values") for at in (-1, 1)]
    shapes = (target, target[:, None])  # as each leaves it
    uris = [
        member(tmp_path / f"t{at}", *both)
        for at, both in enumerate(zip(models, shapes, strict=True))
    ]
    url = build(table(uris), _info("regression"), str(tmp_path / "together"), "run-1")
    assert set(Origin.read(ModelDirectory(url)).hyperparameters) == {"t0", "t1"}


def test_members_are_added_while_the_loss_falls() -> None:
    parts = [
        OnnxModel(graph(np.eye(5)[at][:, None] * [-1, 0, 1], "logits")).predict(
            {"rows": ITEMS}, classes=3
        )
        for at in range(3)  # each looks at another column
    ]
    losses = [-np.log(part[np.arange(400), TRUTH]).mean() for part in parts]
    order = np.argsort(losses)
    ranked = [parts[at].astype(np.float64) for at in order]
    shares = _choose(ranked, TRUTH)
    mean = sum(ranked[at] * share for at, share in shares.items())
    reached = -np.log(mean[np.arange(400), TRUTH]).mean()
    assert reached < min(losses)
    steps = [-np.log(((mean * 60 + each) / 61)[np.arange(400), TRUTH]).mean() for each in ranked]
    assert min(steps) > reached - 1e-3  # hardly anything is left to gain


def test_nothing_is_built_where_the_best_is_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = np.zeros((5, 3))
    models = [graph(weak(0) * 2, "logits"), graph(exact, "logits")]
    uris = [member(tmp_path / f"t{at}", model, TRUTH) for at, model in enumerate(models)]
    target = OnnxModel(models[0]).predict({"rows": ITEMS}, classes=3).argmax(1)
    for uri, model in zip(uris, models, strict=True):
        predictions = OnnxModel(model).predict({"rows": ITEMS}, classes=3)
        Validated(target=target, predictions=predictions).write(connect(uri))
    assert build(table(uris), _info("classification"), str(tmp_path / "none"), "run-1") == ""
    assert "no ensemble: none of 2 trials makes t0 better" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_trials_without_predictions_take_no_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uris = [member(tmp_path / f"t{at}", graph(weak(at), "logits"), TRUTH) for at in range(2)]
    Path(uris[1], "validation.npz").unlink()
    assert build(table(uris), _info("classification"), str(tmp_path / "none"), "run-1") == ""
    assert "no ensemble: 1 trial left a model.onnx" in capsys.readouterr().out


@pytest.mark.parametrize("left", [
    np.full((400, 3), np.nan, np.float32), TRUTH.astype(np.float32), np.full((400, 2), 0.5, np.float32),
])  # fmt: skip
def test_a_trial_whose_predictions_say_nothing_takes_no_part(
    left: NDArray[Any], tmp_path: Path
) -> None:
    models = [graph(weak(at), "logits") for at in range(3)]
    uris = [member(tmp_path / f"t{at}", model, TRUTH) for at, model in enumerate(models)]
    Validated(target=TRUTH, predictions=left).write(connect(uris[1]))
    url = build(table(uris), _info("classification"), str(tmp_path / "together"), "run-1")
    assert set(Origin.read(ModelDirectory(url)).hyperparameters) == {"t0", "t2"}


def test_constraints_are_not_broken_by_trials_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uris = [member(tmp_path / f"t{at}", graph(weak(at), "logits"), TRUTH) for at in range(2)]
    judged = replace(table(uris), judged={"size_mb": None})
    assert build(judged, _info("classification"), str(tmp_path / "none"), "run-1") == ""
    assert "no ensemble: what else the trials are judged by" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_graphs_of_different_opsets_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [graph(weak(0), "logits"), graph(weak(1), "logits", opset=19)]
    uris = [member(tmp_path / f"t{at}", model, TRUTH) for at, model in enumerate(models)]
    assert build(table(uris), _info("classification"), str(tmp_path / "none"), "run-1") == ""
    assert "no ensemble: models of opset 17 and 19" in capsys.readouterr().out
