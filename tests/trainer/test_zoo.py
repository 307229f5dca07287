"""Networks of torchvision: their names, any picture, ONNX, and weights from a file."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from tasks import digits, pictures

from podium.errors import InvalidInput
from podium.trainer import models, networks, onnx_graph, weights
from podium.trainer.config import parse
from podium.trainer.task import Task


def build(name: str, task: Task) -> torch.nn.Sequential:
    return models.build(parse(["--model", name]), task)


def items(task: Task, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, *task.info.shape), dtype=torch.uint8, generator=generator)


def test_the_names_are_those_of_torchvision() -> None:
    from torchvision import models

    known = set(models.list_models(module=models))
    assert {*networks.TORCHVISION, *networks.TOO_LARGE} == known
    assert not known & set(networks.OWN)
    assert tuple(map(int, version("torchvision").split(".")[:2])) == networks.LISTED, (
        "if the names are right, raise it"
    )


def test_without_torchvision_the_listed_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert networks.exists("resnet18")
    assert not networks.exists("cnn")
    assert networks.recipe("cnn") == {}


def test_a_newer_torchvision_is_asked_for_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "TORCHVISION", ())
    assert not networks.exists("resnet18")
    monkeypatch.setattr(networks, "LISTED", (0, 20))
    assert networks.exists("resnet18")
    assert not any(map(networks.exists, ("bset", "Resnet18", *networks.TOO_LARGE)))


@pytest.mark.parametrize("shape", [(16, 16), (32, 48, 3), (80, 64, 3)], ids=str)
def test_pictures_of_any_size_go_through_network_and_onnx(shape: tuple[int, ...]) -> None:
    task = pictures(*shape, outputs=7)
    model = build("resnet18", task)
    with torch.no_grad():
        model(items(task, 8))
        expected = model.eval()(items(task, 3)).numpy()
    blob = onnx_graph.export(model, task)
    made = onnx.load_from_string(blob)
    assert [entry.version for entry in made.opset_import if not entry.domain] == [onnx_graph.OPSET]
    session = onnxruntime.InferenceSession(blob)
    (taken,) = session.get_inputs()
    assert (taken.name, taken.type, taken.shape) == ("images", "tensor(uint8)", ["n", *shape])
    for count in (1, 3):  # the number of pictures is free
        (logits,) = session.run(["logits"], {"images": items(task, 3)[:count].numpy()})
        np.testing.assert_allclose(logits, expected[:count], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name", ["mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "googlenet"]
)
def test_other_kinds_of_networks_become_onnx_as_well(name: str) -> None:
    task = pictures(32, 32, 3, outputs=5)
    model = build(name, task).eval()
    (logits,) = onnxruntime.InferenceSession(onnx_graph.export(model, task)).run(
        ["logits"], {"images": items(task, 3).numpy()}
    )
    with torch.no_grad():
        np.testing.assert_allclose(logits, model(items(task, 3)).numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "size", "expected"), [
    ("resnet18", (28, 28), (64, 64)), ("resnet18", (32, 48), (64, 96)), ("resnet18", (96, 72), (96, 72)),
    ("inception_v3", (96, 96), (128, 128)), ("vit_b_16", (64, 96), (224, 224)), ("vgg11", (300, 300), (224, 224)),
])  # fmt: skip
def test_small_pictures_are_enlarged_in_proportion(
    name: str, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert models._fitting_size(name, size) == expected


@pytest.mark.parametrize("ending", [".safetensors", ".pth"])
def test_weights_of_another_task_get_a_new_last_layer(ending: str, tmp_path: Path) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(5)
    theirs = resnet18(num_classes=1000).state_dict()
    file = str(tmp_path / f"resnet18{ending}")
    save_file(theirs, file) if ending == ".safetensors" else torch.save(theirs, file)
    model = build("resnet18", pictures(64, 64, 3, outputs=5))
    before = model[-1].fc.weight.clone()
    assert not weights.fill(model, weights.read(file), file)
    assert torch.equal(model[-1].fc.weight, before)
    assert torch.equal(model[-1].layer4[1].conv2.weight, theirs["layer4.1.conv2.weight"])
    assert torch.equal(model[-1].bn1.running_var, theirs["bn1.running_var"])


def test_torchvisions_own_files_of_a_densenet_fill_it() -> None:
    model = build("densenet121", pictures(64, 64, 3, outputs=5))
    state = model[-1].state_dict()
    published = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", key): value + 1
        for key, value in state.items()
    }
    assert published.keys() != state.keys()
    assert weights.fill(model, published, "densenet121-a639ec97.pth")
    name = "features.denseblock2.denselayer3.conv1.weight"
    after = model[-1].state_dict()
    assert torch.equal(after[name], published[name.replace("conv1", "conv.1")])


def test_weights_of_the_same_task_fill_every_layer(tmp_path: Path) -> None:
    task = pictures(64, 64, 3, outputs=5)
    source, model = (
        models.build(parse(["--model", "fast", "--seed", seed]), task) for seed in ("1", "2")
    )
    save_file(
        {key: value.contiguous() for key, value in source.state_dict().items()},
        tmp_path / "model.safetensors",
    )
    assert weights.fill(model, weights.read(f"file://{tmp_path}/model.safetensors"), "")
    for key, value in model.state_dict().items():
        assert torch.equal(value, source.state_dict()[key])


def test_weights_of_another_network_are_refused_by_name() -> None:
    from torchvision.models import resnet34

    other = resnet34(num_classes=5).state_dict()
    with pytest.raises(
        InvalidInput,
        match=r"do not fit this network: layer1.2.conv1.weight belongs to another network, and",
    ):
        weights.fill(build("resnet18", pictures(64, 64, 3, outputs=5)), other, "w.pt")
    with pytest.raises(InvalidInput, match=r"has the shape \[16, 3, 5, 5\], not \[16, 1, 5, 5\]"):
        weights.fill(
            build("fast", digits()), build("fast", pictures(28, 28, 3)).state_dict(), "w.pt"
        )


@pytest.mark.parametrize(("content", "said"), [(None, "there is no file --weights"), (b"", "does not hold weights"),
                                               (b"not a pickle", "does not hold weights")])  # fmt: skip
def test_a_file_without_weights_is_refused(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    for name in ("w.pt", "w.safetensors"):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=said):
            weights.read(str(tmp_path / name))
