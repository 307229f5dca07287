"""The same sweep twice: by other workers, with other delays, and with an engine that is stopped in between."""

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

import podium
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.build import customize
from podium.manifests.labels import NUMBER, SAMPLER
from podium.manifests.options import annotation
from podium.manifests.rules import RUNNERS

pytestmark = pytest.mark.whole

PROGRAM = """
import random, sys, time
x, y = map(float, sys.argv[1:])
time.sleep(random.random() / 5)
if x + y > 1.9:
    sys.exit(1)
print(f"loss={round((x - 0.3) ** 2 + (y - 0.6) ** 2 + 0.3 * x * y, 1)}")
"""
TRIALS, BEHIND = 24, 8


def experiment(folder: Path, workers: int, **spec: Any) -> dict[str, Any]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    names = ("x", "y")
    given = {
        "algorithm": {"algorithmName": "tpe", "algorithmSettings": [{"name": "random_state", "value": "5"}]},
        "parallelTrialCount": workers, "maxTrialCount": TRIALS, "maxFailedTrialCount": TRIALS,
        "parameters": [space(name, min="0", max="1") for name in names], "resumePolicy": "LongRunning", **spec,
    }  # fmt: skip
    command = ["python", str(program), *(f"${{trialParameters.{name}}}" for name in names)]
    manifest = write_experiment(job(command), name="same", **given)
    manifest["spec"]["trialTemplate"]["trialParameters"] = [
        {"name": name, "reference": name} for name in names
    ]
    manifest["metadata"]["annotations"] = annotation({"deterministic": BEHIND})
    return manifest


def outcome(sweep: podium.Sweep) -> tuple[list[tuple[object, ...]], str]:
    """Values, state and result of each trial in the order of their numbers, and the number of the best."""
    trials = sorted(sweep.results, key=lambda trial: int(trial.labels[NUMBER]))
    return [
        (*trial.assignments.values(), trial.phase, trial.value) for trial in trials
    ], sweep.best_trial.labels[NUMBER]


def test_workers_and_delays_change_neither_trials_nor_winner(tmp_path: Path) -> None:
    outcomes = []
    for workers in (1, 4, BEHIND):
        with closing(
            podium.sweep(experiment(tmp_path, workers), cluster=tmp_path / str(workers))
        ) as sweep:
            outcomes.append(outcome(sweep))
            assert (
                sweep.experiment.status["currentOptimalTrial"]["bestTrialName"]
                == sweep.best_trial.name
            )
    assert outcomes[0] == outcomes[1] == outcomes[2]
    values = [value for *_, value in outcomes[0][0] if value is not None]
    assert values.count(min(values)) > 1, (
        "there are equals, so that the order of their ends could decide"
    )


def test_a_stopped_sweep_goes_on_to_the_same_end(tmp_path: Path) -> None:
    with closing(podium.sweep(experiment(tmp_path, 4), cluster=tmp_path / "whole")) as sweep:
        expected = outcome(sweep)
    begun = podium.sweep(experiment(tmp_path, 4), cluster=tmp_path / "broken", wait=False)
    for least in (5, 13):  # more than there are at a time have ended, and others run
        while len(begun.finished) < least:
            time.sleep(0.02)
        begun.stop()
        begun.resume(wait=False)
    begun.wait()
    assert outcome(begun) == expected
    begun.close()


@pytest.mark.parametrize("most", [4, TRIALS], ids=["Succeeded", "Stopped"])
def test_another_optuna_leaves_the_sweep_as_it_was(tmp_path: Path, most: int) -> None:
    manifest = experiment(tmp_path, 4, maxTrialCount=most, maxFailedTrialCount=most)
    with closing(podium.sweep(manifest, cluster=tmp_path / "cluster", wait=False)) as sweep:
        while len(sweep.finished) < 4:
            time.sleep(0.02)
        if most == TRIALS:
            sweep.stop()
        else:
            sweep.wait()
        before = sweep.experiment.manifest
        assert sweep.experiment.state.phase == ("Stopped" if most == TRIALS else "Succeeded")
        file = tmp_path / "cluster/trials" / sweep.results[0].name / "object.json"
        own = file.read_text()
        stored = json.loads(own)
        stored["metadata"]["labels"][SAMPLER] = "optuna-4.9.0"
        file.write_text(json.dumps(stored))
        more = None if most == TRIALS else most + 2
        with pytest.raises(InvalidInput, match=r"was suggested by optuna-4\.9\.0") as refused:
            sweep.resume(more)
        assert "optuna==4.9.0" in str(refused.value.hint)
        assert sweep.experiment.manifest == before
        file.write_text(own)
        sweep.resume(more)
        assert len(sweep.results) == (more or most)


@pytest.mark.parametrize(
    ("trials", "spec", "message"),
    [
        ("many", {}, "deterministic is a whole number, but got 'many'"),
        ("0", {}, "deterministic is a number of trials above 0, not 0"),
        ("3", {}, "4 trials at a time are more than the 3"),
        (
            "8",
            {"objective": {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.1}},
            r"spec\.objective\.goal",
        ),
        (
            "8",
            {"earlyStopping": {"algorithmName": "medianstop"}},
            r"spec\.earlyStopping depends on which trial ends",
        ),
    ],
)
def test_what_depends_on_the_clock_is_refused(
    tmp_path: Path, trials: str, spec: dict[str, Any], message: str
) -> None:
    manifest = experiment(tmp_path, 4, **spec)
    manifest["metadata"]["annotations"] = annotation({"deterministic": trials})
    with pytest.raises(InvalidInput, match=message) as caught:
        check(Experiment.parse(manifest))
    assert caught.value.hint


def test_a_budget_and_a_trial_by_hand_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a budget depends on which trial ends first"):
        check(customize(Experiment.parse(experiment(tmp_path, 1)), max_time="1h"))
    few = {"maxTrialCount": 4, "maxFailedTrialCount": 4}
    with closing(
        podium.sweep(experiment(tmp_path, 4, **few), cluster=tmp_path / "cluster")
    ) as sweep:
        values = {"x": 0.5, "y": 0.5}
        with pytest.raises(InvalidInput, match="one by hand would change those after it"):
            sweep.add_trial(values)


def test_katib_is_said_not_to_know_it(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match="only podium's own engine gives the same trials each time"
    ):
        check(Experiment.parse(experiment(tmp_path, 4)), RUNNERS)


def test_tune_gives_the_same_trials_each_time(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nx = float(sys.argv[1].removeprefix('--x='))\nprint(f'loss={round((x - 0.3) ** 2, 2)}')\n"
    )
    seen = []
    for number, parallel in enumerate((1, 3)):
        tuned = podium.tune(script, {"x": (0.0, 1.0)}, objective="min:loss", trials=8, parallel=parallel, seed=1,
                            deterministic=4, cluster=tmp_path / str(number))  # fmt: skip
        with closing(tuned) as sweep:
            seen.append(
                (sorted(trial.assignments["x"] for trial in sweep.results), sweep.best.parameters)
            )
    assert seen[0] == seen[1]
