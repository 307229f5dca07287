"""Which trials of a leaderboard cannot be told from the best, by the predictions that they left."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sweep_manifests import job, space, write_experiment

import podium
from podium.cli.experiment import experiment as experiment_command
from podium.data.validated import MOST, VALIDATED, Validated
from podium.manifests.experiment import Experiment, Trial
from podium.prediction.directory import ModelDirectory
from podium.scoring import METRICS
from podium.scoring.comparison import compare
from podium.scoring.intervals import share_interval
from podium.storage import connect
from podium.training.standing import standing

pytestmark = pytest.mark.whole


def sweep_of(metric: str = "accuracy", kind: str = "maximize") -> Experiment:
    objective = {"type": kind, "objectiveMetricName": metric}
    return Experiment.parse(
        write_experiment(job(["true", "${trialParameters.x}"]), objective=objective)
    )


def trial(name: str, value: float, experiment: Experiment) -> Trial:
    text = f"{value:.4f}"
    observed = {"name": experiment.objective.metric, "latest": text, "min": text, "max": text}
    return Trial(
        manifest={
            "kind": "Trial",
            "metadata": {"name": name},
            "spec": {"objective": experiment.spec["objective"]},
            "status": {
                "conditions": [{"type": "Succeeded", "status": "True"}],
                "observation": {"metrics": [observed]},
            },
        }
    )


def left(
    folder: Path, target: np.ndarray, given: Sequence[np.ndarray], metric: str = "accuracy"
) -> tuple[Experiment, list[Trial]]:
    """Trials that left predictions, ranked; ``t0`` left the first of them."""
    measure = METRICS[metric]
    experiment = sweep_of(metric, "maximize" if measure.maximize else "minimize")
    trials = []
    for at, predictions in enumerate(given):
        Validated(target=target, predictions=predictions).write(connect(folder / f"t{at}"))
        trials.append(trial(f"t{at}", measure.value(target, predictions), experiment))
    return experiment, sorted(trials, key=lambda one: one.rank)


def hits(target: np.ndarray, wrong: Sequence[int]) -> np.ndarray:
    predictions = target.copy()
    predictions[list(wrong)] = 1 - predictions[list(wrong)]
    return predictions


def test_trials_are_told_apart_by_mcnemar_and_bonferroni(tmp_path: Path) -> None:
    target = np.arange(200) % 2
    given = [hits(target, wrong) for wrong in (range(10), range(5, 18), range(40, 100))]
    experiment, trials = left(tmp_path, target, given)
    found = standing(experiment, trials, lambda one: str(tmp_path / one.name))
    assert found.intervals["t0"] == share_interval(190, 200)
    assert found.tied == {"t1"}
    assert found.remark == (
        "~ 1 trial cannot be told from the best (McNemar on 200 validation items, "
        "Bonferroni over 2); --confirm 3x3 runs the best again"
    )
    p_value = compare(METRICS["accuracy"], target, given[0], given[2]).p_value
    assert p_value is not None
    assert p_value * 2 < 0.05


def test_errors_of_numbers_are_compared_too(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    target = random.normal(size=300)
    given = [target + spread * random.normal(size=300) for spread in (0.5, 0.51, 2.0)]
    experiment, trials = left(tmp_path, target, given, "rmse")
    found = standing(experiment, trials, lambda one: str(tmp_path / one.name))
    assert found.tied == {trials[1].name}
    assert "t test of the difference on 300 validation items" in found.remark
    low, high = found.intervals["t0"]
    assert low < METRICS["rmse"].value(target, given[0]) < high


def test_the_truly_best_is_hardly_ever_told_apart(tmp_path: Path) -> None:
    random, target, lost = np.random.default_rng(2), np.zeros(150, int), 0
    for at in range(60):
        rates = random.uniform(0.10, 0.30, 8)
        given = [(random.random(150) < rate).astype(int) for rate in rates]
        experiment, trials = left(tmp_path / str(at), target, given)
        found = standing(experiment, trials, lambda one, at=at: str(tmp_path / str(at) / one.name))
        best = f"t{rates.argmin()}"
        lost += best not in {trials[0].name, *found.tied}
    assert lost <= 3


def test_trials_of_one_figure_are_said_to_be_alike(tmp_path: Path) -> None:
    experiment = sweep_of()
    trials = [trial(f"t{at}", 0.5, experiment) for at in range(3)]
    found = standing(experiment, trials, lambda one: "")
    assert found.remark == (
        "all 3 trials report one accuracy, 0.5000: none of the parameters changes it, or it is "
        "not measured"
    )


def test_trials_of_one_figure_keep_their_intervals(tmp_path: Path) -> None:
    target = np.arange(50) % 2
    experiment, trials = left(tmp_path, target, [hits(target, [1]), hits(target, [7])])
    found = standing(experiment, trials, lambda one: str(tmp_path / one.name))
    assert set(found.intervals.values()) == {share_interval(49, 50)}
    assert found.remark == (
        "all 2 trials report one accuracy, 0.9800: 50 validation items do not tell them apart"
    )


@pytest.mark.parametrize("what", ["nothing", "rubbish", "other figures", "other items"])
def test_no_interval_is_made_up(what: str, tmp_path: Path) -> None:
    target = np.arange(50) % 2
    experiment, trials = left(tmp_path, target, [hits(target, range(n)) for n in (2, 4)])
    for name in ("t0", "t1"):
        file = tmp_path / name / VALIDATED
        if what == "nothing":
            file.unlink()
        elif what == "rubbish":
            file.write_bytes(b"PK\x03\x04 rubbish")
        elif what == "other figures":
            Validated(target=target, predictions=hits(target, range(20))).write(
                connect(file.parent)
            )
    if what == "other items":
        other = hits(1 - target, range(4))
        Validated(target=1 - target, predictions=other).write(connect(tmp_path / "t1"))
    found = standing(experiment, trials, lambda one: str(tmp_path / one.name))
    assert not found.tied
    assert found.remark == ""
    assert bool(found.intervals) == (what == "other items")


def test_an_unreachable_storage_leaves_the_leaderboard_as_it_was(tmp_path: Path) -> None:
    experiment = sweep_of()
    trials = [trial(f"t{at}", 0.5 + at / 10, experiment) for at in range(2)]
    assert not standing(experiment, trials, lambda one: f"nowhere://{one.name}").intervals


def test_large_parts_leave_classes_or_nothing(tmp_path: Path) -> None:
    storage = connect(tmp_path)
    target = np.arange(40_000) % 10
    probabilities = np.random.default_rng(0).random((40_000, 10)).astype(np.float32)
    Validated(target=target, predictions=probabilities).write(storage)
    found = Validated.read(storage)
    assert found
    assert found.predictions.dtype == np.uint8
    assert np.array_equal(found.predictions, probabilities.argmax(1))
    (tmp_path / VALIDATED).unlink()
    many = np.zeros(MOST + 1, int)
    Validated(target=many, predictions=many).write(storage)
    assert Validated.read(storage) is None


SCRIPT = """
import os, sys
import numpy as np
wrong, output = int(float(sys.argv[1])), sys.argv[2].removeprefix("--output=")
target = np.arange(100) % 2
predictions = np.where(np.arange(100) < wrong, 1 - target, target)
os.makedirs(output, exist_ok=True)
np.savez(output + "/validation.npz", target=target, predictions=predictions)
print(f"accuracy={1 - wrong / 100:.4f}")
"""


def test_every_leaderboard_marks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "program.py").write_text(SCRIPT)
    command = ["python", str(tmp_path / "program.py"), "${trialParameters.x}"]
    manifest = write_experiment(
        job(command),
        name="sweep",
        objective={"type": "maximize", "objectiveMetricName": "accuracy"},
        algorithm={"algorithmName": "grid"},
        parameters=[space("x", "categorical", list=["5", "7", "40"])],
        maxTrialCount=3,
    )
    begun = podium.sweep(manifest, output=tmp_path / "models")
    frame = begun.trials
    assert list(frame["tied"]) == [False, True, False]
    assert (frame["low"] < frame["accuracy"]).all()
    assert (frame["accuracy"] < frame["high"]).all()
    remark = "~ 1 trial cannot be told from the best (McNemar on 100 validation items"
    assert remark in begun._repr_html_()
    report = begun.report().read_text()
    assert remark in report
    low, high = share_interval(93, 100)
    assert f"{low:.4f} to {high:.4f} ~" in report
    begun.cluster.close()
    shown = CliRunner().invoke(experiment_command, ["trials", "sweep"]).output
    assert "95 %" in shown
    assert "~ 1 trial cannot be told from the best" in " ".join(shown.split())
    rows = json.loads(CliRunner().invoke(experiment_command, ["trials", "sweep", "--json"]).stdout)
    assert [row["tied"] for row in rows] == [False, True, False]


def test_podiums_trainer_leaves_its_predictions(tiny_dataset: Path, tmp_path: Path) -> None:
    flags: list[Any] = ["--data", tiny_dataset, "--output", tmp_path / "out", "--epochs", 2]
    subprocess.run(
        [sys.executable, "-m", "podium.trainer", *map(str, flags), "--batch-size", "32"],
        check=True,
        capture_output=True,
    )
    found = Validated.read(connect(tmp_path / "out"))
    assert found
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert METRICS["accuracy"].value(found.target, found.predictions) == metrics["accuracy"]
    loss = METRICS["log_loss"].value(found.target, found.predictions)
    assert loss == pytest.approx(metrics["loss"], rel=1e-4)  # summed in other parts
    assert VALIDATED not in ModelDirectory(tmp_path / "out").files, "not part of a version"


def test_writing_them_costs_milliseconds(tmp_path: Path) -> None:
    target = np.arange(5_400) % 10
    probabilities = np.random.default_rng(0).random((5_400, 10)).astype(np.float32)
    least = min(
        _seconds(Validated(target=target, predictions=probabilities), tmp_path) for _ in range(9)
    )
    assert least < 0.05
    assert (tmp_path / VALIDATED).stat().st_size < 250_000


def _seconds(validated: Validated, folder: Path) -> float:
    began = time.perf_counter()
    validated.write(connect(folder))
    return time.perf_counter() - began
