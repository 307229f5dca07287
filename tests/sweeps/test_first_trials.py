"""Points that a sweep tries before its algorithm suggests any."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

import podium
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.build import adapt
from podium.manifests.labels import BY_HAND
from podium.manifests.options import annotation
from podium.search.algorithms import ALGORITHMS

FIRST = ("x=0.5, deep=no", "x=0.75 deep=yes layers=3")
PROGRAM = """
import sys
x, deep, layers = sys.argv[1:]
print(f"loss={abs(float(x) - 0.5) + (deep == 'yes')}")
"""
PARAMETERS = [
    space("x", min="0", max="1", step="0.125"),
    space("deep", "categorical", list=["no", "yes"]),
    space("layers", "int", min="2", max="4"),
]
POINTS = [
    {"x": "0.5", "deep": "no", "layers": "2"},
    {"x": "0.75", "deep": "yes", "layers": "3"},
]


def sweep_of(algorithm: str = "tpe", **asked: Any) -> dict[str, Any]:
    """An Experiment with a parameter that counts beside one value of another."""
    program = Path("program.py")
    program.write_text(PROGRAM)
    manifest = write_experiment(
        job(["python", str(program.absolute()), *(f"${{trialParameters.{each['name']}}}" for each in PARAMETERS)]),
        name="first", parallelTrialCount=2, maxTrialCount=6, resumePolicy="LongRunning", parameters=PARAMETERS,
        algorithm={"algorithmName": algorithm},
    )  # fmt: skip
    asked = {"conditions": ("layers if deep=yes",), "first": FIRST, **asked}
    manifest["metadata"]["annotations"] = annotation(asked)
    return manifest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("algorithm", ["random", "tpe", "grid", "bayesianoptimization"])
def test_the_first_trials_have_the_points_asked_for(algorithm: str) -> None:
    asked = {"conditions": ()} if not ALGORITHMS[algorithm].takes_conditions else {}
    points = (
        FIRST
        if asked == {}
        else tuple(f"{text} layers=2" for text in ("x=0.5 deep=no", "x=0.75 deep=yes"))
    )
    with closing(podium.sweep(sweep_of(algorithm, first=points, **asked))) as sweep:
        trials = sweep.results
        assert len(trials) == 6
        assert [trial.assignments["x"] for trial in trials[:2]] == ["0.5", "0.75"]
        assert [BY_HAND in trial.labels for trial in trials] == [True] * 2 + [False] * 4
        assert sweep.best.name == trials[0].name


def test_a_resumed_sweep_tries_no_first_point_twice() -> None:
    with closing(podium.sweep(sweep_of(), max_trials=1, parallel_trials=1)) as sweep:
        assert sweep.results[0].assignments == POINTS[0]
    with closing(podium.open_sweep("first")) as again:
        again.resume(trials=4)
        assert [trial.assignments for trial in again.results[:2]] == POINTS
        assert sum(BY_HAND in trial.labels for trial in again.results) == 2


def test_a_deterministic_sweep_keeps_its_points_behind_the_first() -> None:
    drawn = []
    for name in ("one", "two"):
        manifest = sweep_of("random", deterministic=2)
        manifest["metadata"]["name"] = name
        with closing(podium.sweep(manifest, seed=7)) as sweep:
            drawn.append([trial.assignments for trial in sweep.results])
    assert drawn[0] == drawn[1]
    assert drawn[0][:2] == POINTS


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (("x=0.5",), "a first trial gives x, but no deep"),
        (
            ("x=2 deep=no",),
            "a first trial gives x=2, which is not in its range\nhint: its space is ",
        ),
        (("x=0.1 deep=no",), "a first trial gives x=0.1, which is not in its range"),
        (("depth=2",), "a first trial gives depth, which is not searched"),
        (("x 0.5",), "a first trial has values by parameter, not 'x'"),
        (("x=0.5 deep=yes",), "a first trial gives x, deep, but no layers"),
    ],
)
def test_a_point_that_is_none_of_the_space_is_refused(first: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check(Experiment.parse(sweep_of(first=first)))


def adapted(**fixed: str) -> Experiment:
    manifest = sweep_of()
    container = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    container["command"] = ["python", "-m", "podium.trainer"]
    container["args"] = [
        f"--{each['name']}=${{trialParameters.{each['name']}}}" for each in PARAMETERS
    ]
    return adapt(Experiment.parse(manifest), name="run", fixed=fixed, image_for=lambda image: image)


def test_a_fixed_parameter_decides_conditions_and_first_points() -> None:
    without = adapted(deep="no")
    assert [parameter.name for parameter in without.space] == ["x"]
    assert dict(without.asked) == {"first": ("x=0.5",)}
    (job_of_trial,) = without.template.primary_containers(without.render("trial", {"x": "0.5"}))
    assert [word for word in job_of_trial[1].words if "layers" in word] == []
    having = adapted(deep="yes")
    assert [parameter.name for parameter in having.space] == ["x", "layers"]
    assert dict(having.asked) == {"first": ("x=0.75, layers=3",)}
