"""``folds``: the trials of a sweep are cross-validated, whatever program they run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import podium
from podium.cli import app
from podium.code.folds import _replaced
from podium.data import artifact
from podium.errors import Failed, InvalidInput, NotFound
from podium.manifests.experiment import Experiment, check, customize
from podium.reports.leaderboard import Leaderboard
from podium.steps.evaluate import evaluate
from podium.steps.sweep import SweepSettings, sweep
from podium.steps.train import TrainSettings, train
from podium.training.identity import RunIdentity, StepContext
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

pytestmark = pytest.mark.whole


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    random = np.random.default_rng(0)
    numbers = random.normal(size=(120, 2))
    words = np.where(numbers.sum(1) + random.normal(size=120) > 0, "yes", "no")
    lines = [f"{a},{b},{word}" for (a, b), word in zip(numbers, words, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,outcome", *lines]))
    where = f"table:{tmp_path}/rows.csv"
    return str(podium.prepare_data(where, tmp_path / "data", target="outcome"))


SCRIPT = """
import argparse, os
from podium.trainer import kit

parser = argparse.ArgumentParser()
for flag in ("--data", "--output", "--least"):
    parser.add_argument(flag)
given = parser.parse_args()
train, validation = kit.load("train"), kit.load("validation")
with open(os.environ["LOG"], "a") as log:
    print(given.data, len(train), len(validation), file=log)
for epoch in (1, 2):
    said = validation.inputs["table"].sum(1) > float(given.least) * epoch
    kit.report(accuracy=float((said == validation.target).mean()))
"""


def test_a_script_is_called_for_each_fold(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    begun = podium.tune(str(script), {"least": [0.5]}, data=data, trials=1, folds=3)
    log = [line.rsplit(" ", 2) for line in (tmp_path / "log").read_text().splitlines()]
    both = sum(artifact.describe(data).parts[part].count for part in artifact.LEARNED)
    assert [name.partition("#")[2] for name, *_ in log] == [
        "fold=1/3:1",
        "fold=2/3:1",
        "fold=3/3:1",
        "fold=0/3:1",
    ]
    assert sum(int(validated) for _, _, validated in log[:3]) == both
    assert int(log[3][1]) == both
    trial = begun.best
    left = json.loads(Path(trial.model or "", "metrics.json").read_text())
    assert [len(left[name]) for name in ("folds", "epochs")] == [3, 2]
    assert trial.value == pytest.approx(max(epoch["accuracy"] for epoch in left["epochs"]))
    assert "accuracy_se" in trial.metrics


def test_folds_that_stop_at_their_own_epochs_count_whole(data: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\n"
        "fold = int(os.environ['PODIUM_DATA'].partition('#fold=')[2][0])\n"
        "for epoch in range(2 + fold):\n"
        "    print(f'loss={1 / (1 + epoch)}')\n"
        "print(f'accuracy={.5 + fold / 10}')\n"
    )
    begun = podium.tune(str(script), {"least": [0.5]}, data=data, trials=1, folds=3)
    assert begun.best.value == pytest.approx(0.7), "the mean of .6, .7 and .8"


def test_a_command_that_fails_on_a_fold_fails(data: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('accuracy=0.5')\nraise SystemExit(3)")
    with pytest.raises(Failed):
        podium.tune(str(script), {"least": [0.5]}, data=data, trials=1, folds=3)
    begun = podium.open_sweep("train")
    assert begun.results[0].value is None
    assert "ended with exit code 3 on" in str(begun.logs(begun.results[0].name))


def small(**changes: Any) -> Experiment:
    experiment = customize(Experiment.load("tables"), **changes)
    return experiment.changed(lambda manifest: manifest["spec"].update(maxTrialCount=2))


def test_a_sweep_shows_the_error_of_each_mean(data: str) -> None:
    begun = podium.sweep(small(), data=data, folds=3, trials=2)
    for trial in begun.results:
        left = json.loads(
            Path(podium.open_sweep(begun.name).best.model, "metrics.json").read_text()
        )
        assert {"accuracy", "accuracy_se"} <= trial.metrics.keys()
    assert begun.best.metrics["accuracy_se"] == pytest.approx(left["accuracy_se"], abs=1e-4)
    low, high = begun.trials.iloc[0][["low", "high"]]
    assert low < begun.best.value < high


def test_folds_of_the_annotation_reach_the_command() -> None:
    manifest = dict(Experiment.load("tables").manifest)
    manifest["metadata"] = {"name": "t", "annotations": {"podium.dev/sweep": "folds: 4"}}
    with pytest.raises(InvalidInput, match="the trials' command does not run folds"):
        check(Experiment.parse(manifest))
    written = check(customize(Experiment.parse(manifest)))
    assert "--folds=4" in str(written.template.workload.manifest)
    assert written.objective.additional == ("loss", "accuracy_se")
    again = customize(written, folds=6)
    assert str(again.manifest).count("--folds=") == 1
    assert "--folds=6" in str(again.manifest)


def test_katib_gets_folds_in_the_command() -> None:
    result = CliRunner().invoke(app, ["experiment", "render", "tables", "--folds", "5"])
    assert result.exit_code == 0, result.output
    assert "- --folds=5" in result.output
    assert "- accuracy_se" in result.output


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("tables", {"folds": 1}, "2 <= folds <= 100 must hold, but got folds=1"),
        ("medianstop", {"folds": 5}, "reports when its last fold has ended"),
        ("tables", {"folds": 5, "algorithm": "pbt"}, "each fold trains from the start"),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check(customize(Experiment.load(name), **asked))


def test_folds_without_a_dataset_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('accuracy=0.5')")
    with pytest.raises(InvalidInput, match="the trials get none"):
        podium.tune(str(script), {"x": [1, 2]}, trials=1, folds=3)


def test_folds_the_data_cannot_have_start_no_trial(data: str) -> None:
    with pytest.raises(InvalidInput, match="folds=90 are more than the"):
        podium.sweep(small(), data=data, folds=90)
    with pytest.raises(NotFound):
        podium.open_sweep("tables")


def test_a_run_chooses_by_the_folds(
    data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = StepContext.of(RunIdentity(id="20260102-030405-abcd"), str(tmp_path / "store"))
    target = LaunchTarget(cluster=f"local://{tmp_path}/cluster")
    settings = SweepSettings(
        experiment="tables", max_trials=2, parallel_trials=2, folds=3, ensemble=True
    )
    trials = tmp_path / "trials"
    swept = sweep(step, data, trials, task="sweep", settings=settings, target=target)
    again = TrainSettings(recipe=swept.recipe, workers=0, seed=7)
    trained = train(step, data, task="train", settings=again, target=target)
    capfd.readouterr()
    found = evaluate(
        step,
        data,
        list(filter(None, [swept.model, trained.model, swept.ensemble])),
        tmp_path / "evaluation",
        tmp_path / "predictions",
        trials,
        jobs=PredictJobs(step=step, target=target),
    )
    said = capfd.readouterr().out
    assert said.count(": 3 folds accuracy") >= 2, said
    assert ": validation accuracy" not in said
    assert found.metrics["validation_accuracy"] == pytest.approx(
        swept.metrics["accuracy"], abs=0.02
    )


def test_a_run_takes_folds_for_a_small_table(data: str, tmp_path: Path) -> None:
    assert artifact.usual_folds(data) == 5
    (tmp_path / "few.csv").write_text(
        "x,label\n" + "".join(f"{at},{'ab'[at < 4]}\n" for at in range(40))
    )
    few = podium.prepare_data(f"table:{tmp_path}/few.csv", tmp_path / "few", target="label")
    assert artifact.usual_folds(few) == 0, "not in every fold would be an a"
    run = RunIdentity(id="20260102-030405-abcd")
    chosen = SweepSettings(experiment="auto", max_trials=2, parallel_trials=2)
    table = replace(chosen, data_meaning="table")
    small = replace(table, data_kind="classification").with_folds(5)
    assert small.adapt(LaunchTarget(cluster="local:///x"), name="s", run=run).asked["folds"] == 5
    for other in (
        replace(chosen, data_meaning="image"),
        SweepSettings(experiment="tables", max_trials=2, parallel_trials=2),
        replace(table, folds=0),
    ):
        kept = other.with_folds(5).adapt(LaunchTarget(cluster="local:///x"), name="s", run=run)
        assert "folds" not in kept.asked


def test_folds_go_with_the_other_options(data: str) -> None:
    asked = {"folds": 3, "confirm": "1x2", "deterministic": 4}
    begun = podium.sweep(small(), data=data, trials=2, parallel=1, **asked)
    runs = [trial for trial in begun.results if trial.repeats]
    for trial in runs:
        command = str(trial.workload.manifest)
        assert "--folds=3" in command
        assert "--seed=" in command
    assert begun.best.value == pytest.approx(np.mean([trial.value for trial in runs]))
    check(customize(Experiment.load("random-job"), folds=5, pool=2))


def test_a_runs_leaderboard_shows_the_error_of_each_mean() -> None:
    row = {"name": "t", "state": "Succeeded", "parameters": {}, "value": 0.9, "seconds": 1.0}
    document = {"objective": {"metric": "accuracy"}, "parameters": [], "trials": [row]}
    assert Leaderboard.read(document).metrics == ["accuracy"]
    row["metrics"] = {"accuracy_se": {"latest": "0.02"}}
    shown = Leaderboard.read(document)
    assert shown.metrics == ["accuracy", "accuracy_se"]
    assert shown.rows[0].metrics["accuracy_se"] == "0.02"


def test_a_command_gets_the_fold_wherever_it_names_the_data() -> None:
    words = "train --data=/d/mnist --val /d/mnist/val --other /d/mnist-2"
    replaced = _replaced(words, {"/d/mnist": "FOLD"})
    assert replaced == "train --data=FOLD --val FOLD/val --other /d/mnist-2"
    words = "/opt/data/train.py --data=file:///data --output=/data/models/t1"
    replaced = _replaced(words, {"/data": "/tmp/data/1", "/data/models/t1": "OUT"})
    assert replaced == "/opt/data/train.py --data=file:///tmp/data/1 --output=OUT"
