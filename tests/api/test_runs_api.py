"""`podium.run`, `podium.runs` and `podium.train`, on a tiny dataset with real processes."""

import inspect
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import podium
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.runner.run import Run
from podium.storage import path_of

PIPELINE = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def halve(number: float, marker: str) -> float:
    import pathlib
    if not pathlib.Path(marker).exists():
        raise RuntimeError("the marker is missing")
    return number / 2

@dsl.pipeline
def halving(number: float, marker: str) -> float:
    return halve(number=number, marker=marker).output
"""

WAITING = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def wait_for(marker: str) -> str:
    import pathlib, time
    while not pathlib.Path(marker).exists():
        time.sleep(0.05)
    return "there"

@dsl.pipeline
def waiting(marker: str) -> str:
    return wait_for(marker=marker).output
"""

TRAINER = """
import os, pathlib
output = pathlib.Path(os.environ["PODIUM_OUTPUT"])
output.mkdir(parents=True)
(output / "model.json").write_text('{"predict": ["python", "predict.py"]}')
for epoch in range(3):
    print(f"accuracy={epoch / 4} loss={1 - epoch / 4}")
"""


@pytest.fixture
def pipeline(home: Path) -> Path:
    Path("halving.py").write_text(PIPELINE)
    return Path("halving.py").absolute()


def test_a_failed_run_goes_on_where_it_failed(pipeline: Path, tmp_path: Path, home: Path) -> None:
    with pytest.raises(Failed, match="the marker is missing"):
        podium.run(pipeline, number=3.0, marker=str(tmp_path / "marker"))
    run = podium.runs()["latest"]
    assert (run.state, run.steps) == ("failed", {"halve": "failed"})
    assert "the marker is missing" in run.logs("halve")
    with pytest.raises(PodiumError, match="has no result: it is failed"):
        run.outcome  # noqa: B018
    with pytest.raises(NotFound, match="has no sweep on this machine"):
        run.sweep  # noqa: B018
    with pytest.raises(NotFound, match="has no step, trial or job 'halved'"):
        run.logs("halved")
    (tmp_path / "marker").touch()
    moved = pipeline.rename(pipeline.with_suffix(".moved"))
    with pytest.raises(InvalidInput, match="there is no file"):
        run.resume(wait=False)
    moved.rename(pipeline)
    assert run.resume().outputs == {"Output": 1.5}
    assert [(name, podium.runs()[name].state) for name in podium.runs()] == [(run.id, "succeeded")]
    assert "succeeded" in podium.runs()._repr_html_()
    assert podium.runs().frame.to_dict("records")[0]["number"] == 3.0
    assert (podium.runs().old(keep=1), podium.runs().old(older_than=1)) == ([], [])
    with pytest.raises(InvalidInput, match="neither keep nor older_than is given"):
        podium.runs().old()
    assert "halve" in podium.runs()["latest"]._repr_html_()
    (old,) = podium.runs().old(keep=0)
    assert old.size > 1000
    old.delete()
    assert (len(podium.runs()), run.directory.exists()) == (0, False)
    for gone in (run.resume, run.delete):
        with pytest.raises(NotFound, match=f"there is no run '{run.id}'"):
            gone()


@pytest.fixture
def waiting(home: Path) -> Path:
    """A pipeline whose only step waits for a file."""
    Path("waiting.py").write_text(WAITING)
    return Path("waiting.py").absolute()


def until(state: str, run: Run) -> None:
    """Wait until a run's step is in a state."""
    while run.steps["wait-for"] != state:
        time.sleep(0.02)


def test_a_run_in_the_background_is_watched_to_its_end(
    waiting: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = podium.run(waiting, marker=str(tmp_path / "marker"), wait=False)
    until("running", run)
    assert (run.state, repr(run)) == ("running", f"<run {run.id} of {waiting}: running>")
    assert "running" in run._repr_html_()
    seen = podium.runs()["latest"]
    assert seen.state == "running"
    (tmp_path / "marker").touch()
    assert run.wait().outputs == {"Output": "there"}
    assert "[1/1] wait-for: succeeded" in capsys.readouterr().err
    assert seen.wait().outputs == run.outputs
    assert run.wait().stop().state == "succeeded"


@pytest.mark.whole
def test_a_run_in_the_background_ends_with_python(
    waiting: Path, tmp_path: Path, home: Path
) -> None:
    marker = str(tmp_path / "marker")
    code = f"""
import podium, time
run = podium.run({str(waiting)!r}, marker={marker!r}, wait=False)
while run.steps["wait-for"] != "running":
    time.sleep(0.02)
"""
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)
    stopped = podium.runs()["latest"]
    assert (stopped.state, stopped.steps) == ("stopped", {"wait-for": "stopped"})
    again = stopped.resume(wait=False)
    until("running", again)
    assert again.stop().state == podium.runs()["latest"].state == "stopped"
    assert again.wait() is again


def test_a_run_is_stopped_from_another_process(waiting: Path, tmp_path: Path) -> None:
    run = podium.run(waiting, marker=str(tmp_path / "marker"), wait=False)
    until("running", run)
    seen = podium.runs()["latest"].stop()
    assert (seen.state, seen.steps) == ("stopped", {"wait-for": "stopped"})
    with pytest.raises(Failed, match="was stopped by another process"):
        run.wait()
    (tmp_path / "marker").touch()
    assert seen.resume().outputs == {"Output": "there"}


def test_wrong_parameters_create_nothing(pipeline: Path, home: Path) -> None:
    with pytest.raises(InvalidInput, match="nomber"):
        podium.run(pipeline, nomber=3.0, wait=False)
    with pytest.raises(InvalidInput, match="is not a pipeline"):
        podium.run(test_wrong_parameters_create_nothing)
    assert len(podium.runs()) == 0
    with pytest.raises(NotFound):
        podium.runs()["latest"]


def test_a_job_of_ones_own_trains_and_reports(
    tiny_dataset: Path, home: Path, tmp_path: Path
) -> None:
    Path("trainer.py").write_text(TRAINER)
    container = {"name": "training", "image": "any", "command": ["python", "trainer.py"]}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    Path("job.yaml").write_text(
        yaml.safe_dump(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": spec}
        )
    )
    training = podium.train(tiny_dataset, job="job.yaml", workers=-1, storage=tmp_path / "models")
    assert training.metrics == {"accuracy": 0.5, "loss": 0.5}
    assert training.epochs["accuracy"].tolist() == [0.0, 0.25, 0.5]
    assert training.model.startswith(f"{tmp_path}/models/runs/")
    assert len(training.logs().splitlines()) == 3
    assert "accuracy" in training._repr_html_()


SLOW_TRAINER = """
import sys, time
print("accuracy=0.5", flush=True)
time.sleep(600)
"""


def test_a_training_in_the_background_is_stopped(tiny_dataset: Path, home: Path) -> None:
    Path("trainer.py").write_text(SLOW_TRAINER)
    training = podium.train(tiny_dataset, command=["python", "trainer.py"], wait=False)
    while not training.metrics or training.status == "Created":
        time.sleep(0.02)
    assert (training.status, training.metrics) == ("Running", {"accuracy": 0.5})
    assert repr(training) == f"<training {training.name}: Running, accuracy 0.5000>"
    assert training.stop().status == "Stopped"
    assert training.wait().metrics == {"accuracy": 0.5}
    assert training.logs() == "accuracy=0.5"


def test_a_silent_training_shows_what_it_printed_last(tiny_dataset: Path, home: Path) -> None:
    Path("trainer.py").write_text(
        SLOW_TRAINER.replace("accuracy=0.5", "batch 3 of 9\\taccurate\\n")
    )
    training = podium.train(tiny_dataset, command=["python", "trainer.py"], wait=False)
    assert training._sign_of_life().endswith(" s so far: nothing printed yet")
    while not training.logs():
        time.sleep(0.02)
    assert training.epochs.empty
    assert training._sign_of_life().endswith(" s so far: batch 3 of 9 accurate")
    training.stop()


def test_a_training_in_the_background_is_waited_for(
    tiny_dataset: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("trainer.py").write_text(TRAINER)
    training = podium.train(tiny_dataset, command=["python", "trainer.py"], wait=False)
    assert training.wait().metrics == {"accuracy": 0.5, "loss": 0.5}
    assert (training.wait().status, Path(path_of(training.model)).is_dir()) == ("Succeeded", True)
    assert capsys.readouterr().err.count("epoch 3: accuracy=0.5 loss=0.5") == 2


def test_a_training_names_its_queue(tiny_dataset: Path, home: Path) -> None:
    Path("trainer.py").write_text(TRAINER)
    given = {"command": ["python", "trainer.py"], "queue": "team", "queue_priority": "urgent"}
    assert podium.train(tiny_dataset, **given).job.queue == "team"
    with pytest.raises(InvalidInput, match="queue_priority needs queue"):
        podium.train(tiny_dataset, queue_priority="urgent")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"job": "nothing.yaml"}, "there is no file nothing.yaml"),
        ({"job": {"kind": "Experiment"}}, "the manifest must hold a Job"),
        (
            {"job": {"kind": "Job", "apiVersion": "batch/v1"}, "lr": 1},
            "has its hyperparameters in its command, but got lr",
        ),
    ],
)
def test_what_is_not_a_training_is_refused(
    given: dict, message: str, tiny_dataset: Path, home: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        podium.train(tiny_dataset, **given)
    assert not home.exists()


def test_packages_are_called_like_their_functions() -> None:
    assert list(inspect.signature(podium.run).parameters) == [
        "pipeline",
        "wait",
        "places",
        "parameters",
    ]
    assert list(inspect.signature(podium.registry).parameters) == ["url"]
    code = "import podium.runner.run, podium.models.rule, podium; print(len(podium.runs()), len(podium.registry('store')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "0 0\n", done.stderr


@pytest.mark.slow
def test_a_run_ends_with_a_version_that_predicts(tiny_dataset: Path, home: Path) -> None:
    data = podium.load_dataset(tiny_dataset)
    given = {
        "max_trials": 2,
        "parallel_trials": 1,
        "trial_epochs": 1,
        "epochs": 1,
        "workers": 0,
        "network": "fast",
    }
    run = podium.run("tune_and_promote", dataset=data, **given)
    assert run.promoted
    assert len(run.sweep.results) == 2
    assert len(run.sweep.best.predict(data.test)) == 100
    assert "accuracy=" in run.logs(run.sweep.best.name)
    assert run.model.version == run.version == podium.registry()["tiny"].champion.version
    predictions = run.model.predict(data.test)
    right = (predictions.indices == data.test.target).mean()
    assert right == pytest.approx(run.metrics["accuracy"])
    assert run.report.read_text().startswith("<!doctype html>")
    page = run.report.read_text()
    for title in ("Data", "Who ran when", "Versions", "Steps", "Do it again"):
        assert f"<h2>{title}</h2>" in page
    assert f'<td class="all">{version("torch")}' in page
