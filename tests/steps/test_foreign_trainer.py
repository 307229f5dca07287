"""A sweep and a training of a script that knows nothing of podium, on the embedded cluster."""

import json
from pathlib import Path

import pytest
import yaml

from podium.steps.sweep import SweepSettings, sweep
from podium.steps.train import TrainSettings, train
from podium.training.identity import RunIdentity, StepContext
from podium.training.target import LaunchTarget

SCRIPT = """
mkdir -p "$PODIUM_OUTPUT"
test -f "$PODIUM_DATA/dataset.json"
echo "$@" > "$PODIUM_OUTPUT/seen"
echo graph > "$PODIUM_OUTPUT/model.onnx"
echo "score=$1"
"""


def experiment(command: list[str]) -> str:
    """Write an Experiment whose trials run a command as a Job."""
    container = {"name": "main", "image": "anything", "command": command}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {
        "spec": {"restartPolicy": "Never", "containers": [container]}}}}  # fmt: skip
    return yaml.safe_dump({
        "apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "own"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "score"},
            "algorithm": {"algorithmName": "grid"},
            "parameters": [{"name": "rate", "parameterType": "discrete", "feasibleSpace": {"list": ["0.5", "0.25"]}}],
            "trialTemplate": {
                "primaryContainerName": "main", "trialParameters": [{"name": "rate", "reference": "rate"}],
                "trialSpec": job,
            },
        },
    })  # fmt: skip


@pytest.fixture
def step(tmp_path: Path) -> StepContext:
    return StepContext.of(RunIdentity(id="20260102-030405-abcd"), str(tmp_path / "store"))


@pytest.fixture
def target(tmp_path: Path) -> LaunchTarget:
    return LaunchTarget(cluster=f"local://{tmp_path}/cluster")


def test_the_training_runs_the_best_trials_own_command(
    tiny_dataset: Path,
    tmp_path: Path,
    step: StepContext,
    target: LaunchTarget,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "fit.sh").write_text(SCRIPT)
    command = ["sh", str(tmp_path / "fit.sh"), "${trialParameters.rate}", "${podium.name}"]
    settings = SweepSettings(
        experiment=experiment(command), max_trials=2, parallel_trials=2, trial_epochs=5, seed=3
    )
    swept = sweep(
        step, str(tiny_dataset), tmp_path / "trials", task="sweep", settings=settings, target=target
    )
    assert swept.hyperparameters == {"rate": "0.5"}
    assert swept.metrics["score"] == 0.5
    assert (Path(swept.model) / "seen").read_text() == f"0.5 {swept.trial}\n"

    again = TrainSettings(recipe=swept.recipe, epochs=3, seed=1)
    trained = train(step, str(tiny_dataset), task="train", settings=again, target=target)
    name = Path(trained.model).name
    assert (Path(trained.model) / "seen").read_text() == f"0.5 {name}\n"
    assert trained.metrics == {"score": 0.5}
    assert (tmp_path / "cluster" / "jobs" / name / "object.json").is_file()
    origin = json.loads((Path(trained.model) / "origin.json").read_text())
    assert (origin["hyperparameters"], origin["image"]) == ({"rate": "0.5"}, "anything")
    assert "epochs and seed are not passed on" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "seen"),
    [(["'a b'", "--out='${podium.output}'"], "a b --out={}"), (["$((1+1))"], "2")],
)
def test_the_training_reads_quotes_as_the_trials_shell_does(
    tiny_dataset: Path,
    tmp_path: Path,
    step: StepContext,
    target: LaunchTarget,
    words: list[str],
    seen: str,
) -> None:
    (tmp_path / "fit.sh").write_text(SCRIPT)
    command = ["sh", str(tmp_path / "fit.sh"), "${trialParameters.rate}", *words]
    settings = SweepSettings(experiment=experiment(command), max_trials=1, parallel_trials=1)
    swept = sweep(
        step, str(tiny_dataset), tmp_path / "trials", task="sweep", settings=settings, target=target
    )
    again = TrainSettings(recipe=swept.recipe)
    trained = train(step, str(tiny_dataset), task="train", settings=again, target=target)
    rate = swept.hyperparameters["rate"]
    for model in (swept.model, trained.model):
        assert (Path(model) / "seen").read_text() == f"{rate} {seen.format(model)}\n"


LUCKY = SCRIPT.replace(
    'echo "score=$1"',
    """
case "$PODIUM_SEED$1" in 0.5) echo score=0.9;; *0.5) echo score=0.3;; *) echo score=0.6;; esac
""",
)
"""A rate of 0.5 is the best once, by luck."""


def test_a_run_goes_on_with_the_confirmed_choice(
    tiny_dataset: Path,
    tmp_path: Path,
    step: StepContext,
    target: LaunchTarget,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "fit.sh").write_text(LUCKY)
    command = ["sh", str(tmp_path / "fit.sh"), "${trialParameters.rate}"]
    settings = SweepSettings(
        experiment=experiment(command), max_trials=2, parallel_trials=2, confirm="2x2"
    )
    file = tmp_path / "trials"
    swept = sweep(step, str(tiny_dataset), file, task="sweep", settings=settings, target=target)
    assert swept.hyperparameters == {"rate": "0.25"}
    assert swept.metrics["score"] == pytest.approx(0.6)
    rows = json.loads(file.read_text())["trials"]
    assert [bool(row["repeats"]) for row in rows] == [False, False, True, True, True, True]
    assert rows[0]["note"] == "mean 0.6000 of 2 fresh runs, 0.6000 to 0.6000; 0.6000 when found"
    said = capfd.readouterr().out
    assert "confirm: the best 2 run again with 2 fresh seeds each, 67% of all runs" in said


WITH_RANKS = """
echo "$RANK of $WORLD_SIZE" > "$PODIUM_OUTPUT/rank-$RANK"
until [ "${WORLD_SIZE:-1}" = 1 ] || [ -e "$PODIUM_OUTPUT/rank-1" ]; do sleep 0.05; done
"""
"""The Master's end is the job's, whatever its Worker is at."""


def test_workers_make_a_pytorchjob_of_a_job(
    tiny_dataset: Path, tmp_path: Path, step: StepContext, target: LaunchTarget
) -> None:
    (tmp_path / "fit.sh").write_text(SCRIPT + WITH_RANKS)
    command = ["sh", str(tmp_path / "fit.sh"), "${trialParameters.rate}"]
    settings = SweepSettings(experiment=experiment(command), max_trials=1, parallel_trials=1)
    swept = sweep(
        step, str(tiny_dataset), tmp_path / "trials", task="sweep", settings=settings, target=target
    )
    trained = train(
        step,
        str(tiny_dataset),
        task="train",
        settings=TrainSettings(recipe=swept.recipe, workers=1),
        target=target,
    )
    ranks = sorted(file.read_text() for file in Path(trained.model).glob("rank-*"))
    assert ranks == ["0 of 2\n", "1 of 2\n"]


@pytest.mark.parametrize(
    ("job_kind", "folder"), [("trainjob", "trainjobs"), ("pytorchjob", "pytorchjobs")]
)
def test_a_job_kind_is_that_of_trials_and_training(
    tiny_dataset: Path,
    tmp_path: Path,
    step: StepContext,
    target: LaunchTarget,
    job_kind: str,
    folder: str,
) -> None:
    (tmp_path / "fit.sh").write_text(SCRIPT)
    command = ["sh", str(tmp_path / "fit.sh"), "${trialParameters.rate}"]
    settings = SweepSettings(
        experiment=experiment(command), max_trials=2, parallel_trials=2, job_kind=job_kind
    )
    swept = sweep(
        step, str(tiny_dataset), tmp_path / "trials", task="sweep", settings=settings, target=target
    )
    assert swept.metrics["score"] == 0.5
    again = TrainSettings(recipe=swept.recipe, job_kind=job_kind)
    trained = train(step, str(tiny_dataset), task="train", settings=again, target=target)
    assert (tmp_path / "cluster" / folder / Path(trained.model).name / "object.json").is_file()
    assert not (tmp_path / "cluster" / "jobs").exists()
