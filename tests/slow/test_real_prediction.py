"""A network trained on MNIST reads digits it has never seen the like of: printed, photographed, coloured."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from podium.data import artifact
from podium.data.pictures import prepare_picture
from podium.scoring import OnnxModel

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
from drawing import FONTS, as_jpeg, draw, tight

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    target = tmp_path_factory.mktemp("model")
    command = [
        sys.executable,
        "-m",
        "podium.trainer",
        "--data",
        str(mnist),
        "--output",
        str(target),
        "--model",
        "fast",
    ]
    subprocess.run([*command, "--epochs", "2"], check=True, timeout=800, capture_output=True)
    return OnnxModel(target / "model.onnx")


def share_read(model: OnnxModel, pictures: list[Image.Image], labels: list[int]) -> float:
    images = np.stack([prepare_picture(picture) for picture in pictures])
    return float((model.predict({"images": images}, classes=10).argmax(1) == labels).mean())


def test_handwriting_is_read_as_well_as_mnists_images(model: OnnxModel, mnist: Path) -> None:
    part = artifact.load(mnist, "validation")
    images, labels = part.inputs["images"][::12], part.target[::12].tolist()
    before = float((model.predict({"images": images}, classes=10).argmax(1) == labels).mean())
    ink_on_paper = [
        Image.fromarray(255 - image // 2).resize((200, 200), Image.Resampling.BICUBIC)
        for image in images
    ]
    assert share_read(model, ink_on_paper, labels) >= before - 0.01
    assert share_read(model, [Image.fromarray(image) for image in images], labels) >= before - 0.01


def test_printed_digits_are_read_in_every_font(model: OnnxModel) -> None:
    drawn = [(draw(digit, font), digit) for font in FONTS for digit in range(10)]
    inverted = [
        (draw(digit, font, ink=(255, 255, 255), paper=(0, 40, 0)), digit)
        for font in FONTS
        for digit in range(10)
    ]
    ways = {"plain": drawn, "on a blackboard": inverted}
    ways["jpeg"] = [(as_jpeg(picture), digit) for picture, digit in drawn]
    ways["tight"] = [(tight(picture), digit) for picture, digit in drawn]
    for way, pairs in ways.items():
        read = share_read(model, [picture for picture, _ in pairs], [digit for _, digit in pairs])
        print(f"{way}: {read:.3f} of {len(pairs)}")
        assert read >= 0.85, (
            way
        )  # a printed 1 with a flag is a 7 to a network that knows American handwriting
