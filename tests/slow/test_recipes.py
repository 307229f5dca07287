"""The recipes, section by section, as a reader would type them; the data are small, the processes real."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import write_pictures
from recipes import RECIPES, changed, copy_recipes, small_data, typed_lines

from podium.data import artifact
from podium.data.sources.known import known_dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LINUX = sys.platform == "linux"


class Reader:
    """Somebody in a clone of podium with its environment activated, who types the lines of a section."""

    def __init__(self, folder: Path, changes: dict[str, str]) -> None:
        self.folder, self.changes = folder, changes
        self.recipes = copy_recipes(folder, changes)
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line; `cd` and `export` are kept for the next ones."""
        line = changed(line, self.changes)
        if folder := re.fullmatch(r"cd (\S+)", line):
            self.folder /= folder[1]
        elif variable := re.fullmatch(r"export (\w+)=(\S+)", line):
            self.env[variable[1]] = variable[2]
        done = subprocess.run(
            ["bash", "-c", line] if not folder else ["true"], cwd=self.folder, env=self.env,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done

    def begin(self, line: str) -> subprocess.Popen[str]:
        """Start a line's program and return while it runs."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {changed(line, self.changes)}"], cwd=self.folder, env=self.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    @property
    def home(self) -> Path:
        return Path(self.env["PODIUM_HOME"])


def metric_lines(text: str) -> list[str]:
    return re.findall(r" (accuracy=\S+ loss=\S+)", text)


def test_master_and_worker_train_as_job_and_as_trainjob(tiny_dataset: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, small_data(tiny_dataset, tmp_path))
    run, logs, migrate, run_migrated = (
        reader.type(line) for line in typed_lines("A master and a worker")
    )
    assert len(metric_lines(run.stdout)) == 2, "one line an epoch, from rank 0 alone"
    assert metric_lines(run_migrated.stdout) == metric_lines(run.stdout)
    assert "400 train" in logs.stdout
    assert metric_lines(logs.stdout) == []
    assert "becomes a TrainJob" in migrate.stderr
    assert "worker-0 succeeded" in run.stderr
    assert "node-1 succeeded" in run_migrated.stderr


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed: openmpi-bin")
def test_mpirun_trains_as_job_and_as_trials(tiny_dataset: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, small_data(tiny_dataset, tmp_path))
    run, _, tune = (reader.type(line) for line in typed_lines("mpirun"))
    assert len(metric_lines(run.stdout)) == 2, "one line an epoch, from rank 0 alone"
    assert tune.stderr.count(" Succeeded accuracy=") == 2
    assert "train with them: mpirun" in tune.stdout


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_reads_the_log_of_each_worker(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import papermill

    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    executed = papermill.execute_notebook(
        str(RECIPES / "notebook/job.ipynb"), str(tmp_path / "out.ipynb"), {"dataset": str(tiny_dataset), "limit": 0},
        cwd=str(tmp_path), kernel_name="python3", progress_bar=False,
    )  # fmt: skip
    shown = {cell.source: text_of(cell) for cell in executed.cells if cell.cell_type == "code"}
    assert "Succeeded" in shown["job.wait()"]
    assert len(metric_lines(shown["job.logs()"])) == 2
    assert "400 train" in shown['job.logs("worker-1")']
    assert metric_lines(shown['job.logs("worker-1")']) == []
    assert [
        output.text
        for cell in executed.cells
        for output in cell.get("outputs", [])
        if output.get("name") == "stderr"
    ] == []


def text_of(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def test_the_shared_volume_holds_data_and_model(tiny_dataset: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    reader = Reader(tmp_path, small_data(tiny_dataset, volume))
    _, prepare, train, listed, uploaded = (
        reader.type(line) for line in typed_lines("A shared volume")
    )
    assert "400 train" in prepare.stdout
    assert "shared Succeeded: master-0 succeeded" in train.stderr  # no worker is waited for
    assert {"model.onnx", "metrics.json"} <= set(listed.stdout.split())
    assert re.search(r"accuracy [01]\.\d+ on the test part", uploaded.stdout)
    again = reader.type("podium job run examples/recipes/volume/train.yaml --name again")
    assert "this training is finished" in again.stdout
    assert metric_lines(again.stdout) == metric_lines(train.stdout)


def garments(seed: int, count: int) -> artifact.Split:
    """Draw light pieces of cloth on black, as tall as the picture; width and the place of a dark belt tell the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.uint8) % 10
    rng.shuffle(labels)
    pictures = np.zeros((count, 28, 28), np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        side, belt = 2 + label % 5 * 2, 4 + label // 5 * 12
        picture[:, side : 28 - side] = rng.integers(180, 255)  # a grain would not outlive the photo
        picture[belt : belt + 6, side : 28 - side] = 90
    return artifact.Split(inputs={"images": pictures}, target=labels)


def test_data_model_and_prediction_come_from_a_bucket(
    new_bucket: Callable[[str], str], tmp_path: Path
) -> None:
    classes = known_dataset("fashion-mnist").classes
    reading = {
        "kind": "image",
        "input": "images",
        "recipe": "garment",
        "size": [28, 28],
        "channels": 1,
    }
    parts = {"train": garments(1, 8000), "validation": garments(2, 100), "test": garments(3, 100)}
    write_pictures(
        tmp_path / "drawn", parts, name="fashion-mnist", classes=classes, preprocessing=reading
    )
    bucket = new_bucket("moto")
    reader = Reader(tmp_path, small_data(tmp_path / "drawn", tmp_path, bucket))
    printed = {line.partition(" s3://")[0]: reader.type(line) for line in typed_lines("Buckets")}
    run, predicted = printed["podium run"], printed["podium predict garment.png --storage"]
    assert f"model   {bucket}/podium/models/fashion/versions/" in run.stdout
    assert "Promoted." in run.stdout
    truth = classes[parts["test"].target[0]]
    assert re.search(rf"garment\.png +{truth} ", predicted.stdout), predicted.stdout
    assert (reader.folder / "exported/model.onnx").is_file()
    assert not list(reader.home.glob("store/models/*")), "the models are in the bucket alone"


@pytest.mark.skipif(not LINUX, reason="without /proc the processes of a killed run may outlive it")
def test_a_killed_run_resumes_and_the_next_is_cached(tiny_dataset: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, small_data(tiny_dataset, tmp_path / "volume"))
    without_server = [
        re.sub(r" tracking=\S+", " max_trials=1 epochs=60", line)
        for line in typed_lines("Tracking, checkpoints, cache, GPUs")
    ]
    folder, _, run, resume, second, render, migrate, compile_ = without_server
    reader.type(folder)
    process = reader.begin(run)
    kill_in_training(process, epoch=5)
    (job,) = (reader.home / "runs").glob("*/cluster/pytorchjobs/train-*")
    resumed = reader.type(resume)
    assert "Sweep hyperparameters: succeeded" in resumed.stderr, "nothing that finished is repeated"
    assert (
        f"PyTorchJob {job.name} of an earlier attempt failed; starting it again" in resumed.stderr
    )
    epochs = [int(epoch) for epoch in re.findall(r"^Train Epoch: (\d+)", log_of(job), re.MULTILINE)]
    assert min(epochs) > 4, "it goes on from a checkpoint"
    assert max(epochs) == 60
    resources = json.loads((job / "object.json").read_text())["spec"]["pytorchReplicaSpecs"][
        "Master"
    ]["template"]
    asked = resources["spec"]["containers"][0]["resources"]
    assert asked["requests"]["nvidia.com/gpu"] == asked["limits"]["nvidia.com/gpu"] == "1"

    cached = reader.type(second.replace("epochs=60", "epochs=2"))
    assert "data unchanged since run" in cached.stderr
    assert "Prepare the data: cached" in cached.stderr
    for line in (render, migrate, compile_):
        reader.type(line)
    for file in ("rendered.yaml", "trainjobs.yaml", "tracked.yaml"):
        assert "nvidia.com/gpu" in (reader.folder / file).read_text()


def kill_in_training(process: subprocess.Popen[str], epoch: int) -> None:
    """Kill a run in the midst of its last training, as `kill -9` would."""
    assert process.stderr is not None
    training, said = False, []
    try:
        for line in process.stderr:
            said.append(line)
            training |= line.startswith("[4/7] Train")
            if training and f"epoch {epoch}: " in line:
                break
        assert process.poll() is None, "".join(said)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    time.sleep(2)  # what it started sees it gone, and ends


def log_of(job: Path) -> str:
    return (job / "logs/master-0.log").read_text()


@pytest.mark.filterwarnings("ignore")  # other people's deprecations
def test_trials_training_and_champion_are_tracked(tiny_dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    from mlflow.tracking import MlflowClient

    reader = Reader(tmp_path, small_data(tiny_dataset, tmp_path / "volume"))
    folder, export, run, *_ = typed_lines("Tracking, checkpoints, cache, GPUs")
    for line in (folder, export, f"{run} epochs=2"):
        done = reader.type(line)
    assert re.search("MLflow: run .*, tracked version 1, champion", done.stderr)
    client = MlflowClient(tracking_uri=reader.env["MLFLOW_TRACKING_URI"])
    runs = {
        each.name: client.search_runs([each.experiment_id]) for each in client.search_experiments()
    }
    (sweep,) = (name for name in runs if name.startswith("sweep-"))
    assert {name: len(found) for name, found in runs.items() if found} == {
        sweep: 2,
        "podium": 1,
        "tracked": 1,
    }
    assert all(each.info.status == "FINISHED" for found in runs.values() for each in found)
    assert client.get_model_version_by_alias("tracked", "champion").version in (1, "1")
    offline = [path.parents[4].name for path in reader.home.rglob("offline-run-*")]
    assert sorted(name.partition("-")[0] for name in offline) == ["sweep", "sweep", "train"]
