"""The train step on the embedded cluster, with the real trainer."""

import json
from pathlib import Path

import pytest

from podium.errors import NotFound
from podium.scoring import METRICS
from podium.steps.train import TrainSettings, train
from podium.training.identity import RunIdentity, StepContext
from podium.training.recipe import TRAINER, Recipe
from podium.training.target import LaunchTarget

pytestmark = pytest.mark.whole

WRITE = """
import json, os, pathlib, sys
target = pathlib.Path(os.environ["PODIUM_OUTPUT"])
target.mkdir(parents=True)
(target / "model.onnx").write_bytes(b"graph")
(target / "seen.json").write_text(json.dumps(sys.argv[1:] + os.listdir(os.environ["PODIUM_DATA"])))
print("accuracy=0.5 loss=nan")
print("accuracy=0.75 loss=0.25")
"""


@pytest.fixture
def step(tmp_path: Path) -> StepContext:
    return StepContext.of(RunIdentity(id="run-1"), f"file://{tmp_path}/store")


@pytest.fixture
def target(tmp_path: Path) -> LaunchTarget:
    return LaunchTarget(
        trainer_image="unused",
        cluster=f"local://{tmp_path}/cluster",
    )


def test_a_model_tells_the_flags_its_training_was_given(
    tiny_dataset: Path, tmp_path: Path, step: StepContext, target: LaunchTarget
) -> None:
    settings = TrainSettings(
        hyperparameters={"model": "fast", "lr": "0.5", "epochs": "1"}, epochs=2, workers=1, seed=7
    )
    result = train(step, str(tiny_dataset), task="train", settings=settings, target=target)

    model = Path(result.model.removeprefix("file://"))
    reported = json.loads((model / "origin.json").read_text())["hyperparameters"]
    used = json.loads((model / "hyperparameters.json").read_text())
    assert reported == {"model": "fast", "lr": "0.5", "epochs": 2, "seed": 7}
    assert (used["model"], used["lr"], used["epochs"], used["seed"]) == ("fast", 0.5, 2, 7)
    assert result.metrics["epoch"] in (1, 2)


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A trainer that imports nothing of podium."""
    (tmp_path / "fit.py").write_text(WRITE)
    return str(tmp_path / "fit.py")


def test_a_foreign_command_runs_as_it_stands(
    tiny_dataset: Path, tmp_path: Path, step: StepContext, target: LaunchTarget, script: str
) -> None:
    settings = TrainSettings(
        command=["python", script], hyperparameters={"rate": 0.5}, epochs=3, seed=1
    )
    result = train(step, str(tiny_dataset), task="train", settings=settings, target=target)
    seen = json.loads((Path(result.model.removeprefix("file://")) / "seen.json").read_text())
    assert seen[0] == "--rate=0.5"
    assert [word.partition("=")[0] for word in seen[1:3]] == ["--data", "--output"]
    assert "dataset.json" in seen


def test_metrics_come_from_the_log_without_a_file(
    tiny_dataset: Path,
    step: StepContext,
    target: LaunchTarget,
    script: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = TrainSettings(command=["sh", "-c", f"python {script}"], epochs=3)
    result = train(step, str(tiny_dataset), task="train", settings=settings, target=target)
    assert result.metrics == {"accuracy": 0.75, "loss": 0.25}
    kept = json.loads((Path(result.model.removeprefix("file://")) / "metrics.json").read_text())
    assert kept["epochs"] == [{"accuracy": 0.5}, {"accuracy": 0.75, "loss": 0.25}]
    assert "epochs and seed are not passed on" in capfd.readouterr().out


def test_a_training_without_a_model_is_refused(
    tiny_dataset: Path, step: StepContext, target: LaunchTarget
) -> None:
    words = ["sh", "-c", 'mkdir -p "$PODIUM_OUTPUT" && echo 1 > "$PODIUM_OUTPUT/weights.bin"']
    with pytest.raises(NotFound, match=r"neither model.onnx nor model.json, only weights.bin"):
        train(
            step,
            str(tiny_dataset),
            task="train",
            settings=TrainSettings(command=words),
            target=target,
        )


def test_a_recipe_survives_being_written() -> None:
    recipe = Recipe.of_command(TRAINER, {"lr": 0.5})
    again = Recipe.parse(recipe.to_text())
    assert again.command == (*TRAINER, "--lr=0.5")
    assert again.metrics == (*METRICS, "loss")
    assert again.uses_builtin_trainer


def test_a_trainjob_trains_podiums_trainer_on_two_nodes(
    tiny_dataset: Path,
    tmp_path: Path,
    step: StepContext,
    target: LaunchTarget,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = TrainSettings(
        hyperparameters={"model": "fast", "lr": "0.5"}, epochs=1, workers=1, job_kind="trainjob"
    )
    trained = train(step, str(tiny_dataset), task="train", settings=settings, target=target)
    (job,) = (tmp_path / "cluster" / "trainjobs").iterdir()
    stored = json.loads((job / "object.json").read_text())
    assert stored["spec"]["trainer"]["numNodes"] == 2
    assert stored["status"]["conditions"][-1]["reason"] == "AllJobsCompleted"
    assert trained.metrics["accuracy"] > 0
    assert f"TrainJob {job.name}: 2 nodes" in capfd.readouterr().out


def test_a_foreign_command_runs_as_a_job_if_asked(
    tiny_dataset: Path, tmp_path: Path, step: StepContext, target: LaunchTarget, script: str
) -> None:
    settings = TrainSettings(command=["python", script], job_kind="job")
    train(step, str(tiny_dataset), task="train", settings=settings, target=target)
    assert len(list((tmp_path / "cluster" / "jobs").iterdir())) == 1
