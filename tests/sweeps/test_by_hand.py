"""Trials that a person stops or begins, beside those of the search."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

import podium
from podium.errors import InvalidInput, NotFound
from podium.manifests.labels import BY_HAND

PROGRAM = """
import pathlib, sys, time
x, seconds = float(sys.argv[1]), float(sys.argv[2])
for epoch in range(1, 4):
    print(f"loss={(x - 0.5) ** 2 + 1 / epoch}", flush=True)
    time.sleep(seconds)
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """An Experiment over x from 0 to 1, whose trials print three losses, so many seconds apart."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def write(algorithm: str = "tpe", seconds: float = 0.0, **spec: Any) -> dict[str, Any]:
        command = ["python", str(program), "${trialParameters.x}", str(seconds)]
        step = {"step": "0.25"} if algorithm == "grid" else {}
        return write_experiment(
            job(command), name="sweep", algorithm={"algorithmName": algorithm}, resumePolicy="LongRunning",
            parameters=[space("x", min="0", max="1", **step)],
            template={"trialParameters": [{"name": "x", "reference": "x"}], "retain": True},
            **{"maxTrialCount": 3, "parallelTrialCount": 1, **spec},
        )  # fmt: skip

    return write


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def running(sweep: podium.Sweep) -> list[str]:
    """Return the names of the running trials that have printed something."""
    return [trial.name for trial in sweep.results if trial.phase == "Running" and trial.metrics]


def test_a_stopped_trial_counts_with_what_it_printed(
    experiment: Callable[..., dict[str, Any]],
) -> None:
    sweep = podium.sweep(experiment(seconds=30.0, maxTrialCount=1), wait=False)
    until(lambda: running(sweep))
    (name,) = running(sweep)
    assert podium.open_sweep("sweep").stop_trial(name).wait().status == "Succeeded"
    (trial,) = sweep.results
    assert (trial.phase, trial.message) == ("EarlyStopped", "Trial was stopped by hand")
    assert sweep.best.value == pytest.approx((float(trial.assignments["x"]) - 0.5) ** 2 + 1)
    sweep.close()


@pytest.mark.parametrize("algorithm", ["tpe", "grid", "random"])
def test_a_trial_by_hand_joins_those_of_the_search(
    algorithm: str, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment(algorithm, seconds=0.3), wait=False)
    until(lambda: sweep.results)
    name = podium.open_sweep("sweep").add_trial({"x": 0.5})
    sweep.wait()
    trials = {trial.name: trial for trial in sweep.results}
    assert trials[name].labels[BY_HAND] == "true"
    assert (sweep.best.name, sweep.best.value) == (name, pytest.approx(1 / 3))
    assert len(trials) == 3, "it is one of the Experiment's trials"
    assert sweep.experiment.trial_count == 3
    sweep.close()


@pytest.mark.parametrize("algorithm", ["tpe", "grid"])
def test_a_finished_sweep_goes_on_for_one_more(
    algorithm: str, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment(algorithm, maxTrialCount=2))
    first = sweep.results[0]
    name = sweep.add_trial({"x": 0.5}, like=first.name)
    assert (len(sweep.results), sweep.status, sweep.best.value) == (
        3,
        "Succeeded",
        pytest.approx(1 / 3),
    )
    assert name in [trial.name for trial in sweep.results]
    again = sweep.add_trial(like=first.name)
    trials = {trial.name: trial for trial in sweep.results}
    assert trials[again].assignments == first.assignments
    sweep.resume(5)
    assert len(sweep.results) == 5, "the search goes on as well"
    drawn = [trial.assignments["x"] for trial in sweep.results if BY_HAND not in trial.labels]
    assert len(set(drawn)) == len(drawn) == 3


def test_a_sweep_that_ended_for_good_takes_no_trial(
    experiment: Callable[..., dict[str, Any]],
) -> None:
    made = experiment(maxTrialCount=1)
    made["spec"]["resumePolicy"] = "Never"
    sweep = podium.sweep(made)
    with pytest.raises(InvalidInput, match="has ended for good"):
        sweep.add_trial({"x": 0.5})
    assert len(sweep.results) == 1


def test_values_outside_of_the_space_are_refused(experiment: Callable[..., dict[str, Any]]) -> None:
    sweep = podium.sweep(experiment(maxTrialCount=1))
    for values, problem in (
        ({}, "no value is given for x"),
        ({"x": 2}, "x=2 lies outside of its space"),
        ({"x": "much"}, "x=much is not a number"),
        ({"x": 0.5, "y": 1}, "sweep does not search over 'y'"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            sweep.add_trial(values)
    with pytest.raises(NotFound, match="sweep has no trial 'other'"):
        sweep.add_trial(like="other")
    with pytest.raises(NotFound, match="sweep has no trial 'other'"):
        sweep.stop_trial("other")
    with pytest.raises(InvalidInput, match="does not run"):
        sweep.stop_trial(sweep.results[0].name)
    assert len(sweep.results) == 1


def test_a_request_left_by_a_killed_engine_is_met_once(
    experiment: Callable[..., dict[str, Any]],
) -> None:
    sweep = podium.sweep(experiment(maxTrialCount=1))
    name = sweep.add_trial({"x": 0.25})
    directory = Path(str(sweep.cluster.directory("Experiment", "sweep")))
    (directory / "asked" / f"{name}.json").write_text(json.dumps({"x": "0.25"}))
    sweep.resume(3)
    assert sorted(trial.name for trial in sweep.results).count(name) == 1
    assert list((directory / "asked").iterdir()) == []


def test_the_commands_stop_and_add_trials(
    experiment: Callable[..., dict[str, Any]], typed: Callable[..., Any]
) -> None:
    sweep = podium.sweep(experiment(seconds=30.0, maxTrialCount=1), wait=False)
    until(lambda: running(sweep))
    (name,) = running(sweep)
    done = typed("experiment", "stop", "sweep", "--trial", name)
    assert (done.returncode, done.stderr) == (
        0,
        f"trial {name} stops; the metrics it has reported count\n",
    )
    sweep.wait()
    assert "a value is written NAME=VALUE" in typed("experiment", "add", "sweep", "x").stderr
    done = typed("experiment", "add", "sweep", "x=2")
    assert (done.returncode, "lies outside of its space" in done.stderr) == (2, True)
    sweep.close()
