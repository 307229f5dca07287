"""Pictures that a trainer leaves beside its model, from its job to the report."""

import base64
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from test_foreign_trainer import experiment
from test_predict_models import jobs, judge, save

from podium.reports import render
from podium.steps.evaluate import evaluate
from podium.steps.examples import ALTOGETHER, LARGEST, MOST, pictures_among
from podium.steps.promote import promote
from podium.steps.sweep import SweepSettings, sweep
from podium.steps.upload_model import upload_model
from podium.training.handover import Evaluation

TRAINER = """
import os, shutil, sys
from PIL import Image

output = os.environ["PODIUM_OUTPUT"]
shutil.copytree(sys.argv[1], output, dirs_exist_ok=True, ignore=shutil.ignore_patterns("origin.json"))
Image.new("RGB", (4, 3), "red").save(output + "/loss surface.png")
Image.new("RGB", (4, 3), "blue").save(output + "/attention", "JPEG")
open(output + "/drawing.svg", "w").write("<svg onload='alert(1)'/>")
print("score=" + sys.argv[2])
"""
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"


@pytest.mark.whole
def test_a_trainers_pictures_are_in_the_report(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fit.py").write_text(TRAINER)
    made = save(tmp_path / "made", tiny_dataset)
    command = [sys.executable, str(tmp_path / "fit.py"), str(made), "${trialParameters.rate}"]
    settings = SweepSettings(experiment=experiment(command), max_trials=1, parallel_trials=1)
    place = jobs(tmp_path)
    swept = sweep(
        place.step,
        str(tiny_dataset),
        tmp_path / "trials",
        task="sweep",
        settings=settings,
        target=place.target,
    )
    judge(tiny_dataset, tmp_path, Path(swept.model))
    said = capfd.readouterr().out
    assert "the picture drawing.svg is not in the report: it is neither a PNG nor a JPEG" in said

    version = upload_model(
        place.step,
        swept.model,
        tmp_path / "predictions",
        tmp_path / "evaluation",
        model_name="tiny",
    )
    promote(place.step, tiny_dataset, tmp_path / "evaluation", tmp_path / "decision", tmp_path / "report.html", version=version,
            model_name="tiny", jobs=jobs(tmp_path))  # fmt: skip
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Pictures of the training</h2>" in page
    for media, name in (("image/png", "loss surface.png"), ("image/jpeg", "attention")):
        kept = base64.b64encode(Path(swept.model, name).read_bytes()).decode()
        shown = (
            f'<img src="data:{media};base64,{kept}" alt="{name}"><figcaption>{name}</figcaption>'
        )
        assert shown in page
    assert "drawing.svg" not in page


@pytest.mark.whole
def test_few_pictures_are_advised_to_be_seen_more_often(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = SweepSettings(experiment="auto", max_trials=1, parallel_trials=1)
    place = jobs(tmp_path)
    sweep(
        place.step,
        str(tiny_dataset),
        tmp_path / "trials",
        task="sweep",
        settings=settings,
        target=place.target,
    )
    assert (
        "trial_epochs=25 epochs=50 trains longer; network=resnet18 weights=FILE"
        in capfd.readouterr().out
    )
    assert replace(settings, experiment="random").decided_epochs == 0
    assert replace(settings, experiment="random", trial_epochs=2).decided_epochs == 2


def test_only_the_winners_pictures_are_handed_over(
    candidates: dict[str, Path], tiny_dataset: Path, tmp_path: Path
) -> None:
    for name, directory in candidates.items():
        (directory / f"{name}.png").write_bytes(PNG)
    uris = [str(directory) for directory in candidates.values()]
    place = jobs(tmp_path)
    evaluate(
        place.step,
        tiny_dataset,
        uris,
        tmp_path / "evaluation",
        tmp_path / "predictions",
        jobs=jobs(tmp_path),
    )
    (picture,) = json.loads((tmp_path / "evaluation").read_text())["pictures"]
    assert picture == {
        "name": "strong.png",
        "media": "image/png",
        "base64": base64.b64encode(PNG).decode(),
    }


def found(directory: Path, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    return [picture.name for picture in pictures_among(directory, files)]


@pytest.mark.parametrize(("files", "kept", "why"), [
    ({"a.png": b"GIF89a", "b.png": PNG}, ["b.png"], "a.png is not in the report: it is neither a PNG nor a JPEG"),
    ({"a.png": PNG.ljust(LARGEST + 1), "b.jpg": JPEG.ljust(LARGEST)}, ["b.jpg"], "it has 524,289 bytes, and at most"),
    ({f"{at}.png": PNG for at in range(MOST + 1)}, [f"{at}.png" for at in range(MOST)], "there are 8 already"),
    ({f"{at}.png": PNG.ljust(LARGEST) for at in range(5)}, [f"{at}.png" for at in range(ALTOGETHER // LARGEST)],
     "4.png is not in the report: all together would have more than 2,097,152 bytes"),
    ({"items/a.png": PNG, "model.onnx": b"graph", "empty": b""}, [], ""),
])  # fmt: skip
def test_pictures_beyond_the_limits_are_left_out(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    files: dict[str, bytes],
    kept: list[str],
    why: str,
) -> None:
    assert found(tmp_path, files) == kept
    said = capfd.readouterr().out
    assert why in said
    assert bool(said) == bool(why)


def test_an_evaluation_that_names_an_svg_shows_none(
    candidates: dict[str, Path], tiny_dataset: Path, tmp_path: Path
) -> None:
    place = jobs(tmp_path)
    evaluate(place.step, tiny_dataset, [str(candidates["strong"])], tmp_path / "evaluation", tmp_path / "predictions",
             jobs=jobs(tmp_path))  # fmt: skip
    evaluation: dict[str, Any] = asdict(Evaluation.read(tmp_path / "evaluation"))
    assert evaluation["pictures"] == []
    evaluation["pictures"] = [{"name": "a.svg", "media": "image/svg+xml", "base64": "PHN2Zz4="}]
    decision = {"model_name": "tiny", "version": "v", "outcome": "kept", "rule": "better", "storage": "store",
                "reasons": [], "value": 0.5, "metric": {"name": "accuracy"}, "compared_with": None}  # fmt: skip
    page = render(evaluation, decision)
    assert "Pictures of the training" not in page
    assert "a.svg" not in page
