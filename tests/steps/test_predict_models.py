"""A model that has no ONNX: nearest neighbors in a file, with the script that predicts with them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.code.bundle import pack
from podium.data import artifact
from podium.errors import Failed, InvalidInput
from podium.models import open_registry
from podium.models.shared_items import predictions
from podium.prediction import ModelDirectory
from podium.prediction.command import CommandModel
from podium.steps.evaluate import PREDICTIONS, _EvaluationResult, evaluate
from podium.steps.promote import promote
from podium.steps.upload_model import upload_model
from podium.training.identity import RunIdentity, StepContext
from podium.training.import_model import ModelSource
from podium.training.origin import Origin
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

pytestmark = pytest.mark.whole

PREDICT = """
import argparse, os
import numpy as np

class Neighbors:
    def __init__(self, known):
        self.images, self.labels = known["images"], known["labels"]
    def predict_proba(self, images):
        distances = (self.images**2).sum(1) - 2.0 * images @ self.images.T
        return np.eye(10)[self.labels[np.argpartition(distances, 5)[:, :5]]].mean(1)
    def predict(self, images):
        return self.predict_proba(images).argmax(1)

parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
print("sees", sorted(os.listdir(given.inputs)))
neighbors = Neighbors(np.load("neighbors.npz"))
images = np.load(given.inputs + "/images.npy").reshape(-1, 784).astype(float)
np.save(given.output, {result})
"""
PROBABLE = "neighbors.predict_proba(images)"


def save(
    target: Path,
    data: Path,
    result: str = PROBABLE,
    command: tuple[str, ...] = ("python", "predict.py"),
) -> Path:
    """Keep the neighbors and leave a model directory as a trial would."""
    part = artifact.load(data, "train")
    target.mkdir(parents=True)
    images = np.asarray(part.inputs["images"], float).reshape(-1, 784)
    np.savez(target / "neighbors.npz", images=images, labels=np.asarray(part.target))
    (target / "predict.py").write_text(PREDICT.replace("{result}", result))
    (target / "model.json").write_text(json.dumps({"predict": command}))
    Origin(kind="training", name="train-1", run_id="run", uri=str(target), image="mine:1").write(
        ModelDirectory(target)
    )
    return target


def step(tmp_path: Path) -> StepContext:
    return StepContext.of(RunIdentity(id="20260102-030405-abcd"), str(tmp_path / "store"))


def jobs(tmp_path: Path) -> PredictJobs:
    target = LaunchTarget(cluster=f"local://{tmp_path}/cluster")
    return PredictJobs(step=step(tmp_path), target=target)


def judge(data: Path, tmp_path: Path, model: Path) -> _EvaluationResult:
    return evaluate(
        step(tmp_path),
        data,
        [str(model)],
        tmp_path / "evaluation",
        tmp_path / "predictions",
        jobs=jobs(tmp_path),
    )


def test_neighbors_are_evaluated_stored_and_promoted(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", tiny_dataset)
    judge(tiny_dataset, tmp_path, model)
    capfd.readouterr()
    found = judge(tiny_dataset, tmp_path, model)  # as a retry does
    assert found.metrics["accuracy"] > 0.9
    out = capfd.readouterr().out
    assert "podium | Job predict-test-" in out
    assert out.count("sees ['images.npy']") == 2
    assert list((tmp_path / "store").rglob("*.npy")) == []

    version = upload_model(
        step(tmp_path),
        str(model),
        tmp_path / "predictions",
        tmp_path / "evaluation",
        model_name="knn",
    )
    registered = open_registry(tmp_path / "store").model("knn")
    stored = registered.version(version)
    assert {"neighbors.npz", "predict.py", "model.json", PREDICTIONS} <= set(stored.files)
    assert stored.metadata["image"] == "mine:1"
    ended = promote(step(tmp_path), tiny_dataset, tmp_path / "evaluation", tmp_path / "decision", tmp_path / "report.html",
                    version=version, model_name="knn", jobs=jobs(tmp_path))  # fmt: skip
    assert ended.outcome == "promoted"

    again = predictions([stored], str(tiny_dataset))
    # A comparison goes by the hashes of the items, so that no verdict depends on their order.
    stored_rows = np.load(tmp_path / "predictions" / PREDICTIONS).tolist()
    assert sorted(again.predicted[0].tolist()) == sorted(stored_rows)


def test_a_file_that_podium_would_write_over_is_refused(tiny_dataset: Path, tmp_path: Path) -> None:
    """The target of the test part would take the place of the neighbors' labels."""
    model = save(tmp_path / "model", tiny_dataset)
    np.save(model / "target.npy", np.zeros(3))
    with pytest.raises(InvalidInput, match=r"holds target\.npy, and podium writes a file of that"):
        judge(tiny_dataset, tmp_path, model)
    source = ModelSource(uri=str(model))
    with pytest.raises(InvalidInput, match=r"holds target\.npy"):
        source.upload(open_registry(tmp_path / "store").model("knn"))
    (model / "target.npy").rename(model / "labels.npy")
    (model / "MODEL_CARD.md").write_text("# Neighbors")
    stored = source.upload(open_registry(tmp_path / "store").model("knn"))
    assert {"labels.npy", "MODEL_CARD.md"} <= set(stored.files)


def test_a_champion_without_stored_predictions_predicts_in_a_job(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", tiny_dataset)
    judge(tiny_dataset, tmp_path, model)
    registered = open_registry(tmp_path / "store").model("knn")
    files: dict[str, Path | bytes] = {file.name: file for file in model.iterdir()}
    registered.set_champion(registered.upload(files, {"image": "mine:1"}, "old").version, {}, None)
    challenger = upload_model(
        step(tmp_path),
        str(model),
        tmp_path / "predictions",
        tmp_path / "evaluation",
        model_name="knn",
    )
    capfd.readouterr()
    ended = promote(step(tmp_path), tiny_dataset, tmp_path / "evaluation", tmp_path / "decision", tmp_path / "report.html",
                    version=challenger, model_name="knn", jobs=jobs(tmp_path))  # fmt: skip
    assert ended.outcome == "kept"
    assert "sees ['images.npy']" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("neighbors.predict_proba(images)[1:]", "predictions for"),
        ("neighbors.predict_proba(images)[:, :9]", "predicts 9 classes, but the data has 10"),
        ("neighbors.predict_proba(images) * np.nan", "not finite, first for row 0"),
        ("neighbors.predict_proba(images) * 2", "probabilities that do not sum to 1"),
        ("neighbors.predict(images) + 5.5", "but classes are 0 to 9"),
        ("np.array([object()] * len(images))", "left no array of predictions"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(
    result: str, problem: str, tiny_dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises((InvalidInput, Failed), match=problem):
        judge(tiny_dataset, tmp_path, save(tmp_path / "model", tiny_dataset, result))


def leave(script: str, tmp_path: Path, seconds: float | None = None) -> np.ndarray:
    """Predict ten rows with a shell script, which finds the file to write in $6."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.json").write_text(json.dumps({"predict": ["sh", "-c", script, "sh"]}))
    it = CommandModel(name="it", fetch=lambda copy: shutil.copytree(model, copy), seconds=seconds)
    return it.predict({"images": np.zeros((10, 2))}, classes=3)


def test_a_command_that_goes_on_ends_at_its_limit(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"did not end within 0\.3 s and was ended"):
        leave("sleep 60", tmp_path, seconds=0.3)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ('mkfifo "$6"', "it left something else than a file as its predictions"),
        ('ln -s /dev/zero "$6"', "it left something else than a file as its predictions"),
        ('mkdir "$6"', "it left something else than a file as its predictions"),
        ("true", "it left no file"),
        ('cp "$HEAD" "$6"', "it left no array of predictions: mmap length is greater than file"),
    ],
    ids=["fifo", "link", "directory", "nothing", "a header of 10^13 rows"],
)
def test_an_output_that_would_hang_or_fill_memory_is_refused(
    script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "head").open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
        )
    monkeypatch.setenv("HEAD", str(tmp_path / "head"))
    with pytest.raises(InvalidInput, match=problem):
        leave(script, tmp_path)


def test_nothing_that_a_predict_command_starts_outlives_it(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 100' & while ! test -s {tmp_path}/pid; do :; done"
    with pytest.raises(InvalidInput, match="it left no file"):
        leave(script, tmp_path)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_ctrl_c_ends_a_predict_command_with_all_it_started(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 100' & trap '' INT TERM; sleep 100"
    code = f"import test_predict_models as t; from pathlib import Path; t.leave({script!r}, Path({str(tmp_path)!r}))"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=here, stderr=subprocess.DEVNULL
    ) as process:
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) != 0
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_classes_without_probabilities_are_scored(tiny_dataset: Path, tmp_path: Path) -> None:
    found = judge(
        tiny_dataset, tmp_path, save(tmp_path / "model", tiny_dataset, "neighbors.predict(images)")
    )
    assert found.metrics["accuracy"] > 0.9
    assert "log_loss" not in found.metrics


def test_a_command_predicts_in_the_code_it_was_trained_with(
    tiny_dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "helper.py").write_text(
        "def classes(model, images): return model.predict(images)"
    )
    code = pack(tmp_path / "project").store(str(tmp_path / "store"))
    model = save(
        tmp_path / "model", tiny_dataset, "__import__('helper').classes(neighbors, images)"
    )
    Origin(
        kind="training", name="train-1", run_id="run", uri=str(model), image="mine:1", code=code.uri
    ).write(ModelDirectory(model))
    assert judge(tiny_dataset, tmp_path, model).metrics["accuracy"] > 0.9
    reported = json.loads((tmp_path / "evaluation").read_text())
    assert reported["winner"]["code"] == code.uri


def test_a_failing_predict_command_shows_its_last_words(tiny_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no such neighbors"):
        judge(
            tiny_dataset,
            tmp_path,
            save(tmp_path / "model", tiny_dataset, "exit('no such neighbors')"),
        )


def test_a_command_that_takes_uris_runs_as_it_stands(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", tiny_dataset)
    script = tmp_path / "elsewhere.py"
    shutil.copy(model / "predict.py", script)
    script.write_text(
        script.read_text().replace('load("neighbors', 'load(given.model + "/neighbors')
    )
    document: dict[str, Any] = {"predict": ["python", str(script)], "uris": True}
    (model / "model.json").write_text(json.dumps(document))
    assert judge(tiny_dataset, tmp_path, model).metrics["accuracy"] > 0.9
