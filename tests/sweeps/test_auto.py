"""An Experiment that leaves its algorithm to podium is Katib's as it stands, and keeps the choice once it is made."""

from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

import podium
from podium.cli.experiment import show_status
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check, customize, load
from podium.manifests.options import annotation
from podium.manifests.options.algorithm import settled
from podium.manifests.rules import RUNNERS

PRINTS_X = ["sh", "-c", "echo score=${1#--x=}", "sh"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def asks(value: str = "auto", **spec: Any) -> dict[str, Any]:
    """An Experiment that leaves its algorithm to podium."""
    given = write_experiment(job(["echo", "loss=${trialParameters.x}"]), **spec)
    given["metadata"]["annotations"] = annotation({"algorithm": value})
    return given


def values(sweep: podium.Sweep) -> list[str]:
    return [trial.assignments["x"] for trial in sweep.results]


def test_auto_leaves_katib_an_algorithm_it_knows() -> None:
    left = customize(Experiment.parse(load("cmaes")), algorithm="auto", max_trials=20)
    assert left.asked["algorithm"] == "auto"
    assert left.algorithm.name == "multivariate-tpe"
    check(left, RUNNERS)
    assert customize(left, algorithm="tpe").annotations == {}


def test_settings_that_the_new_algorithm_lacks_go() -> None:
    settings = [{"name": "sigma", "value": "1"}, {"name": "random_state", "value": "3"}]
    manifest = asks(algorithm={"algorithmName": "cmaes", "algorithmSettings": settings})
    changed = customize(Experiment.parse(manifest), algorithm="sobol")
    assert changed.algorithm.name == "sobol"
    assert changed.algorithm.settings == {"random_state": 3}
    assert changed.choice is None


def test_an_explicit_algorithm_is_what_searches() -> None:
    experiment = Experiment.parse(write_experiment(job(["true"])))
    assert experiment.choice is None
    assert experiment.search is experiment.algorithm


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"algorithm is auto, or one that podium chose, not 'cmaes'"
    ):
        check(Experiment.parse(asks("cmaes")))


def test_a_sweep_of_few_points_ends_as_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    few = [space("x", "int", min="1", max="3")]
    sweep = podium.sweep(asks(parameters=few, maxTrialCount=9, algorithm={"algorithmName": "tpe"}))
    assert sorted(values(sweep)) == ["1", "2", "3"]
    chosen = "algorithm: grid, chosen by auto: the space has 3 points, which fit into 9 trials"
    assert chosen in capsys.readouterr().err
    assert sweep.experiment.asked["algorithm"] == "grid"
    assert chosen.removeprefix("algorithm: ") in sweep.report().read_text()
    show_status(sweep, as_json=False)
    assert chosen in capsys.readouterr().out


def test_a_seed_gives_the_same_choice_and_points() -> None:
    def tuned() -> podium.Sweep:
        return podium.tune(
            PRINTS_X, {"x": (0.0, 1.0)}, objective="min:score", trials=12, parallel=1, seed=4
        )

    first, second = tuned(), tuned()
    assert first.experiment.choice == second.experiment.choice
    assert values(first) == values(second)
    assert len(set(values(first))) == 12


def test_a_resumed_sweep_keeps_its_choice() -> None:
    sweep = podium.sweep(asks(parallelTrialCount=2, resumePolicy="LongRunning"))
    assert sweep.experiment.search.name == "sobol"
    longer = sweep.resume(trials=4)
    assert longer.experiment.search.name == "sobol"
    assert len(set(values(longer))) == 4


def test_where_katib_may_run_it_no_torch_is_expected() -> None:
    experiment = Experiment.parse(asks(maxTrialCount=60))
    assert experiment.choice == ("multivariate-tpe", "there is no Gaussian process without torch")
    assert settled(experiment).choice == (
        "bayesianoptimization",
        "a Gaussian process, which was ahead in most comparisons of 25 to 100 trials",
    )


def test_workers_do_not_decide_a_deterministic_choice() -> None:
    names = set()
    for workers in (1, 60):
        experiment = customize(
            Experiment.parse(asks(maxTrialCount=60, parallelTrialCount=workers)), deterministic=60
        )
        names.add(settled(experiment).search.name)
    assert names == {"multivariate-tpe"}, (
        "with a Gaussian process and all at once it would be two others"
    )
