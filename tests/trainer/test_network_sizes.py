"""The networks adapt to size, channels and target; for digits they stay what they were."""

import hashlib

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tasks import digits, pictures, table
from torch import nn

from podium.data.blocks import mean_and_std
from podium.data.schema import Column, InputInfo
from podium.trainer import models, networks, onnx_graph, output
from podium.trainer.config import parse
from podium.trainer.task import Task

OWN = ("tutorial", "fast", "best", "mlp", "linear")
SHAPES = [(8, 8), (16, 16), (16, 40, 3), (28, 28, 3), (64, 64, 3), (97, 75), (130, 96, 3)]

WEIGHTS = {"tutorial": "0b237f3fd035d11f", "fast": "8f96da5c84554d3d", "best": "c3b4c70e38f9048f",
           "best --flip --width 0.5": "6e8b87c00285cdf0"}  # fmt: skip
"""sha256 of the first weights of seed 3, as they were when the trainer knew nothing but digits."""


def items(task: Task, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, *task.info.shape), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("flags", WEIGHTS)
def test_the_first_weights_for_digits_stay_the_same(flags: str) -> None:
    digest = hashlib.sha256()
    for name, value in (
        models.build(parse(["--seed", "3", "--model", *flags.split()]), digits())
        .state_dict()
        .items()
    ):
        digest.update(
            name.encode() + str(tuple(value.shape)).encode() + value.contiguous().numpy().tobytes()
        )
    assert digest.hexdigest()[:16] == WEIGHTS[flags]


def exported(model: nn.Sequential, task: Task) -> onnxruntime.InferenceSession:
    made = onnx_graph._write(model, task)
    onnx.checker.check_model(made, full_check=True)
    return onnxruntime.InferenceSession(made)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_picture_goes_through_network_and_onnx(name: str, shape: tuple[int, ...]) -> None:
    task = pictures(*shape, outputs=7)
    model = models.build(parse(["--model", name]), task)
    with torch.no_grad():
        model(items(task, 16))  # moves the running statistics away from their start
        expected = model.eval()(items(task, 3)).numpy()
    assert expected.shape == (3, 7)
    session = exported(model, task)
    (taken,) = session.get_inputs()
    assert (taken.name, taken.type, taken.shape) == ("images", "tensor(uint8)", ["n", *shape])
    (logits,) = session.run(["logits"], {"images": items(task, 3).numpy()})
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", OWN)
def test_the_last_item_of_an_epoch_may_be_alone(name: str) -> None:
    task = pictures(8, 8, outputs=3)
    model = models.build(parse(["--model", name]), task)
    model(items(task, 1)).sum().backward()
    assert all(buffer.isfinite().all() for buffer in model.buffers())


@pytest.mark.parametrize(
    "name", [name for name in OWN if name not in networks.DENSE]
)  # these have one for each pixel
@pytest.mark.parametrize("side", [224, 512])
def test_large_pictures_need_no_huge_network(name: str, side: int) -> None:
    with torch.device("meta"):
        model = models.build(parse(["--model", name]), pictures(side, side, 3))
    assert sum(parameter.numel() for parameter in model.parameters()) < 6e6


def test_each_channel_has_mean_zero_and_deviation_one() -> None:
    task = pictures(64, 64, 3)
    pixels = items(task, 20)
    scaled = pixels.double() / 255
    mean, std = scaled.mean((0, 1, 2)).tolist(), scaled.std((0, 1, 2)).tolist()
    out = models.Normalize(tuple(mean), tuple(std), has_channels=True)(pixels)
    assert out.shape == (20, 3, 64, 64)
    assert out.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-4)
    assert out.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=1e-4)


def test_pixels_of_floats_are_not_divided_by_255() -> None:
    task = pictures(16, 16, dtype="float32", mean=(2.0,), std=(4.0,))
    model = models.build(parse(["--model", "fast"]), task).eval()
    assert torch.allclose(model[0](torch.full((1, 16, 16), 6.0)), torch.ones(1, 1, 16, 16))
    values = np.random.default_rng(1).normal(2, 4, (3, 16, 16)).astype(np.float32)
    (logits,) = exported(model, task).run(["logits"], {"images": values})
    with torch.no_grad():
        np.testing.assert_allclose(
            logits, model(torch.from_numpy(values)).numpy(), rtol=1e-3, atol=1e-4
        )


def test_columns_are_standardized_and_categories_kept_apart() -> None:
    rows = torch.tensor([[180.0, 2.0, 7e4, 0.0], [160.0, -1.0, 7e4, 9.0]])
    expected = torch.tensor(
        [[1.0, 0, 0, 0, 1, 1, 0], [-1.0, 0, 0, 0, 0, 0, 0]]
    )  # -1 and 9 are no category
    columns = models.Columns(table().info)
    assert columns.features == 7
    assert torch.equal(columns(rows), expected)


@pytest.mark.parametrize(("constant", "new"), [(2025.0, 2026.0), (0.1, 0.2), (1 / 3, 0.0)])
def test_a_column_constant_in_training_decides_nothing(constant: float, new: float) -> None:
    draw = np.random.default_rng(0)
    rows = np.stack([draw.normal(size=999), np.full(999, constant)], 1).astype(np.float32)
    mean, std = mean_and_std(iter(np.array_split(rows, 7)), "table")
    assert std[1] == 0
    columns = (Column(name="x", kind="number"), Column(name="year", kind="number"))
    info = InputInfo(
        meaning="table", dtype="float32", shape=(2,), columns=columns, mean=mean, std=std
    )
    task = Task(kind="classification", input="table", info=info, outputs=2)
    model = models.build(parse(["--model", "mlp"]), task).eval()
    rows[:, 1] = new
    (logits,) = exported(model, task).run(["logits"], {"table": rows})
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert (np.abs(probabilities - 0.5) < 0.49).all()


def test_the_baseline_is_one_layer() -> None:
    model = models.build(parse(["--model", "linear"]), table())
    assert [type(layer) for layer in model] == [models.Columns, nn.Linear]


@pytest.mark.parametrize("depth", ["1", "3"])
def test_a_table_goes_through_network_and_onnx(depth: str) -> None:
    task = table()
    model = models.build(parse(["--model", "mlp", "--depth", depth]), task).eval()
    assert sum(isinstance(layer, nn.Linear) for layer in model) == int(depth) + 1
    rows = np.array([[180, 2, 7e4, 0], [160, 0, 7e4, 1], [171, 1, 7e4, 5]], np.float32)
    session = exported(model, task)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("table", "tensor(float)", ["n", 4])
    ]
    (logits,) = session.run(["logits"], {"table": rows})
    with torch.no_grad():
        np.testing.assert_allclose(
            logits, model(torch.from_numpy(rows)).numpy(), rtol=1e-4, atol=1e-5
        )


def test_an_array_of_integers_goes_through_network_and_onnx() -> None:
    info = InputInfo(meaning="array", dtype="int64", shape=(5, 3), mean=(1e6,), std=(2.0,))
    task = Task(kind="classification", input="steps", info=info, outputs=3)
    model = models.build(parse(["--model", "mlp"]), task).eval()
    values = np.random.default_rng(1).integers(999_990, 1_000_010, (4, 5, 3))
    (logits,) = exported(model, task).run(["logits"], {"steps": values})
    with torch.no_grad():
        np.testing.assert_allclose(
            logits, model(torch.from_numpy(values)).numpy(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("flags", ["mlp", "linear", "fast --flip"])
def test_a_regression_answers_in_the_units_of_its_target(flags: str) -> None:
    task = pictures(
        28, 28, kind="regression", outputs=2, target_mean=(5e5, -3.0), target_std=(1e5, 0.1)
    )
    model = models.build(parse(["--model", *flags.split()]), task).eval()
    (values,) = exported(model, task).run(["values"], {"images": items(task, 4).numpy()})
    assert values.shape == (4, 2)
    assert np.all(np.abs(values - [5e5, -3]) < [3e5, 0.3])
    with torch.no_grad():
        expected = model(items(task, 4)).numpy()
    output.compare(onnx_graph.export(model, task), items(task, 4).numpy(), expected, task)
