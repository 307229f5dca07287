"""model.onnx computes what torch computes, for every network."""

from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tasks import digits
from torch import nn

from podium.errors import Failed
from podium.trainer import models, onnx_graph, output
from podium.trainer.config import parse


def images(count: int) -> torch.Tensor:
    return torch.randint(
        0, 256, (count, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize(
    "flags", ["tutorial", "fast", "best", "mlp", "linear", "fast --flip", "best --flip --width 0.5"]
)
def test_onnxruntime_and_torch_agree_on_pixels(flags: str) -> None:
    model = models.build(parse(["--model", *flags.split()]), digits())
    with torch.no_grad():
        model(images(64))  # moves the running statistics away from their start
        model.eval()
        expected = model(images(5)).numpy()
    made = onnx_graph._write(model, digits())
    onnx.checker.check_model(made, full_check=True)
    session = onnxruntime.InferenceSession(made)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("images", "tensor(uint8)", ["n", 28, 28])
    ]
    for count in (1, 5):  # the number of images is free
        (logits,) = session.run(["logits"], {"images": images(5)[:count].numpy()})
        np.testing.assert_allclose(logits, expected[:count], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("flags", ["--model fast", "--model fast --flip"])
def test_an_unknown_layer_is_exported_by_torch(flags: str) -> None:
    model = models.build(parse(flags.split()), digits())
    model = nn.Sequential(*model, nn.Softplus()).eval()
    with pytest.raises(onnx_graph._UnknownLayer, match="Softplus"):
        onnx_graph._write(model, digits())
    blob = onnx_graph.export(model, digits())
    with torch.no_grad():
        output.compare(blob, images(5).numpy(), model(images(5)).numpy(), digits())
    session = onnxruntime.InferenceSession(blob)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("images", "tensor(uint8)", ["n", 28, 28])
    ]
    assert [i.name for i in session.get_outputs()] == ["logits"]


def test_an_export_that_differs_from_torch_is_refused() -> None:
    model = models.build(parse([]), digits()).eval()
    blob = onnx_graph._write(model, digits())
    with torch.no_grad():
        logits = model(images(8)).numpy()
    output.compare(blob, images(8).numpy(), logits, digits())
    for wrong in (logits + 0.01, np.full_like(logits, np.nan)):
        with pytest.raises(Failed, match="differ by"):
            output.compare(blob, images(8).numpy(), wrong, digits())


def test_the_network_of_the_tutorial_has_its_layers() -> None:
    model = models.build(parse([]), digits())
    shapes = [tuple(p.shape) for p in model.parameters() if p.ndim > 1]
    assert shapes == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 9216), (10, 128)]
    assert sum(p.numel() for p in model.parameters()) == 1_199_882
    widths = [
        (layer.in_channels, layer.out_channels) for layer in model if isinstance(layer, nn.Conv2d)
    ]
    assert all(left[1] == right[0] for left, right in pairwise(widths))


def test_normalized_pixels_have_mean_zero_and_deviation_one() -> None:
    pixels = images(50)
    scaled = pixels.float() / 255
    out = models.Normalize((scaled.mean().item(),), (scaled.std().item(),))(pixels)
    assert out.shape == (50, 1, 28, 28)
    assert out.mean().item() == pytest.approx(0, abs=1e-4)
    assert out.std().item() == pytest.approx(1, abs=1e-4)


def test_a_mirrored_network_evaluates_mirror_images_alike() -> None:
    model = models.build(parse(["--model", "fast", "--flip"]), digits())
    with torch.no_grad():
        assert not torch.allclose(model(images(8)), model(images(8).flip(-1)), atol=1e-3)
        model.eval()
        torch.testing.assert_close(model(images(8)), model(images(8).flip(-1)))


def test_the_width_multiplies_the_channels() -> None:
    counts = []
    for width in ("0.5", "1", "2"):
        model = models.build(parse(["--model", "best", "--width", width]), digits())
        counts.append(
            [layer.out_channels for layer in model.modules() if isinstance(layer, nn.Conv2d)]
        )
    assert counts[1] == [32, 32, 32, 64, 64, 64, 128, 128, 128]
    assert counts[0] == [count // 2 for count in counts[1]]
    assert counts[2] == [count * 2 for count in counts[1]]
