"""Population based training: generations, families and the files that trials hand on."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.experiment import Trial
from podium.manifests.labels import PBT_GENERATION, PBT_PARENT
from podium.manifests.typed import typed
from podium.search.algorithm import PastTrial
from podium.search.population import GENERATION, PARENT, _Population
from podium.search.search import Search
from podium.search.space import Parameter
from podium.sweeps.local import LocalSweeps
from podium.sweeps.local_trial import _prepare

SPACE = [
    Parameter(name="lr", kind="double", low=0.1, high=1.0, step=0.1),
    Parameter(name="units", kind="int", low=4, high=32, step=1),
    Parameter(name="kind", kind="categorical", choices=("a", "b", "c")),
]
SETTINGS = {
    "n_population": 5,
    "truncation_threshold": 0.2,
    "random_state": 1,
    "suggestion_trial_dir": "/family",
}

PROGRAM = """
import pathlib, sys
place = pathlib.Path(sys.argv[1])
began = float((place / "sum").read_text()) if (place / "sum").exists() else 0.0
(place / "sum").write_text(str(began + float(sys.argv[2])))
print(f"began={began}")
print("score=" + (place / "sum").read_text())
"""


def generation(population: _Population, values: list[float], first: int = 0) -> list[str]:
    """Run trials one after the other, to these values."""
    names = [f"t{first + number}" for number in range(len(values))]
    for name, value in zip(names, values, strict=True):
        population.next(name)
        population.tell(name, value)
    return names


def test_the_worst_copy_the_best_and_the_others_change_theirs() -> None:
    population = _Population(SPACE, SETTINGS, True)
    first = generation(population, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert all(population.tags(name) == {GENERATION: "0"} for name in first), (
        "more than the population must end"
    )
    second = generation(population, [0.0] * 5, first=6)
    labels = [population.tags(name) for name in second]
    assert {label[GENERATION] for label in labels} == {"1"}
    parents = [label[PARENT] for label in labels]
    assert len(set(parents)) == 5
    at = population.members
    assert parents[0] in ("t0", "t1"), "a fifth of the population, from below its lower bound"
    assert at["t6"].point in (at["t4"].point, at["t5"].point)
    for child in second[1:]:
        mine, before = at[child].point, at[str(at[child].parent)].point
        for name, low, high in (("lr", 0.1, 1.0), ("units", 4, 32)):
            changed = [float(before[name]) * factor for factor in (0.8, 1.2)]
            bounded = [
                min(max(int(value) if name == "units" else value, low), high) for value in changed
            ]
            assert any(abs(float(mine[name]) - value) < 1e-9 for value in bounded), (mine, before)
        assert mine["units"] == str(int(mine["units"])), "a program may read it as an integer"
        assert mine["kind"] != before["kind"]


def test_fewer_is_better_if_the_objective_is_to_be_small() -> None:
    population = _Population(SPACE, SETTINGS, False)
    generation(population, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (child,) = generation(population, [0.0], first=6)
    assert population.members[child].parent in ("t4", "t5")
    assert population.members[child].point in (
        population.members["t0"].point,
        population.members["t1"].point,
    )


def test_values_are_drawn_anew_or_kept_with_a_probability() -> None:
    kept = _Population(SPACE, {**SETTINGS, "resample_probability": 0.0}, True)
    generation(kept, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0])
    child = kept.members["t7"]
    assert child.point == kept.members[str(child.parent)].point
    drawn = _Population(SPACE, {**SETTINGS, "resample_probability": 1.0}, True)
    names = generation(drawn, [float(number) for number in range(11)])
    assert all(float(drawn.members[name].point["lr"]) * 10 % 1 < 1e-6 for name in names), (
        "on their steps"
    )


def test_a_failed_trial_is_repeated_with_the_same_parent() -> None:
    population = _Population(SPACE, SETTINGS, True)
    generation(population, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    point = population.next("failed")
    family = population.tags("failed")
    population.tell("failed", None)
    again = [
        (population.next(f"later{number}"), population.tags(f"later{number}"))
        for number in range(5)
    ]
    assert again[-1] == (point, family)


def test_a_seeded_population_that_goes_on_draws_nobody_twice() -> None:
    points = [(first := _Population(SPACE, SETTINGS, True)).next("t0")]
    points += [first.next(f"t{number}") for number in range(1, 7)]
    again = _Population(SPACE, SETTINGS, True)
    again.recall(
        PastTrial(trial=f"t{n}", point=point or {}, value=None, running=True)
        for n, point in enumerate(points[:6])
    )
    assert again.next("t6") == points[6]


def test_a_search_that_goes_on_knows_its_generations(tmp_path: Path) -> None:
    def begin() -> Search:
        return Search(SPACE, "pbt", SETTINGS, maximize=True, directory=tmp_path, name="study")

    search = begin()
    for number in range(8):
        assert search.ask(f"t{number}")
        search.tell(f"t{number}", float(number))
    known = {f"t{number}": search.tags(f"t{number}") for number in range(8)}
    search = begin()
    assert {name: search.tags(name) for name in known} == known
    found = []
    for number in range(8, 12):
        assert search.ask(f"t{number}")
        found.append(search.tags(f"t{number}"))
    assert [value[GENERATION] for value in found[:3]] == ["1"] * 3, (
        "two of five had been there before"
    )
    assert len({trial[PARENT] for trial in [known["t6"], known["t7"], *found[:3]]}) == 5


def test_an_end_that_a_population_recalls_counts_once(tmp_path: Path) -> None:
    def begin() -> Search:
        return Search(SPACE, "pbt", SETTINGS, maximize=True, directory=tmp_path, name="study")

    search = begin()
    for number in range(8):
        search.ask(f"t{number}")
        search.tell(f"t{number}", float(number))
    search = begin()
    for number in range(8):  # as an engine that goes on does
        search.tell(f"t{number}", float(number))
    for number in range(8, 16):
        search.ask(f"t{number}")
    assert {search.tags(f"t{number}")[GENERATION] for number in range(8, 16)} == {"1"}, (
        "two of it have ended"
    )


@pytest.mark.parametrize("begun", [1, 6], ids=["before it was repeated", "after it was"])
def test_a_population_that_goes_on_repeats_a_failure_once(begun: int, tmp_path: Path) -> None:
    points: list[dict[str, str] | None] = []
    for stop in (begun, 12):
        search = Search(SPACE, "pbt", SETTINGS, maximize=True, directory=tmp_path, name="study")
        if points:  # as an engine that goes on does
            search.tell("t0", None)
        for number in range(len(points), stop):
            points.append(search.ask(f"t{number}"))
            if number == 0:
                search.tell("t0", None)
    assert points.count(points[0]) == 2


def test_a_population_that_goes_on_keeps_seeds_that_are_alike(tmp_path: Path) -> None:
    def begin(name: str) -> Search:
        space = [Parameter(name="kind", kind="categorical", choices=("a", "b"))]
        return Search(space, "pbt", SETTINGS, maximize=True, directory=tmp_path, name=name)

    whole, search = begin("whole"), begin("study")
    for number in range(5):
        search = begin("study") if number == 2 else search
        assert search.ask(f"t{number}") == whole.ask(f"t{number}")


def test_a_population_over_a_bell_goes_on(tmp_path: Path) -> None:
    bell = Parameter(name="lr", kind="double", low=0.1, high=1.0, step=0.1, distribution="normal")
    points = []
    for _ in range(2):
        search = Search([bell], "pbt", SETTINGS, maximize=True, directory=tmp_path, name="study")
        points.append(search.ask(f"t{len(points)}"))
    assert points[0] != points[1]


def experiment(program: Path, most: int, **changes: Any) -> dict[str, Any]:
    command = ["python", str(program), "/family/", "${trialParameters.lr}"]
    container = {"name": "main", "image": "python", "command": command}
    job = {
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    settings = {**SETTINGS, "suggestion_trial_dir": "/family/"}
    spec = {
        "objective": {
            "type": "maximize",
            "objectiveMetricName": "score",
            "additionalMetricNames": ["began"],
        },
        "algorithm": {
            "algorithmName": "pbt",
            "algorithmSettings": [
                {"name": name, "value": str(value)} for name, value in settings.items()
            ],
        },
        "resumePolicy": "FromVolume",
        "parallelTrialCount": 2,
        "maxTrialCount": most,
        "maxFailedTrialCount": 1,
        "parameters": [
            {
                "name": "lr",
                "parameterType": "double",
                "feasibleSpace": {"min": "0.1", "max": "1", "step": "0.1"},
            }
        ],
        "trialTemplate": {
            "primaryContainerName": "main",
            "trialParameters": [{"name": "lr", "reference": "lr"}],
            "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
        },
    }
    made = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "e"}}
    return {**made, "spec": {**spec, **changes}}


def test_each_trial_begins_with_what_its_parent_left(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as cluster:
        cluster.create(typed(experiment(program, most=13)))
        assert cluster.join("Experiment", "e", 60)
        cluster.resume("Experiment", "e", {"maxTrialCount": 16})
        assert cluster.join("Experiment", "e", 60)
        assert cluster.get("Experiment", "e").manifest["status"]["trialsSucceeded"] == 16
        trials = {trial.name: trial for trial in cluster.trials("e")}
    assert max(int(trial.labels[PBT_GENERATION]) for trial in trials.values()) >= 2
    for trial in trials.values():
        parent = trial.labels.get(PBT_PARENT)
        assert (parent is None) == (trial.labels[PBT_GENERATION] == "0")
        began = float(trial.metrics["began"]["latest"])
        assert began == (float(trials[parent].metrics["score"]["latest"]) if parent else 0.0)
        assert trial.value == pytest.approx(began + float(trial.assignments["lr"]))
    kept = tmp_path / "cluster" / "experiments" / "e" / "checkpoints"
    assert {path.parent.name for path in kept.glob("*/sum")} == set(trials)


@pytest.mark.parametrize("labels", [{}, {PBT_PARENT: "parent"}])
def test_a_trial_that_starts_again_has_no_old_files(labels: dict[str, str], tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    if labels:
        (root / "parent").mkdir(parents=True)
        (root / "parent/weights").write_text("the parent's")
    trial = Trial.parse({"kind": "Trial", "metadata": {"name": "child", "labels": labels}})
    own = _prepare(root, trial)
    (own / "weights").write_text("half")
    (own / "half").touch()
    assert _prepare(root, trial) == own
    left = {file.name: file.read_text() for file in own.iterdir()}
    assert left == ({"weights": "the parent's"} if labels else {})


def test_a_child_gets_every_file_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent/step-2").write_text("weights")
    (tmp_path / "parent/latest").symlink_to("step-2")
    (tmp_path / "parent/first").symlink_to("step-1")
    (tmp_path / "parent/back").symlink_to(".")
    os.mkfifo(tmp_path / "parent/workers")
    made = {"kind": "Trial", "metadata": {"name": "child", "labels": {PBT_PARENT: "parent"}}}
    own = _prepare(tmp_path, Trial.parse(made))
    assert {file.name: file.read_text() for file in own.iterdir()} == {
        "step-2": "weights",
        "latest": "weights",
    }


def test_a_child_whose_parents_files_are_gone_names_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kept = tmp_path / "cluster" / "experiments" / "e" / "checkpoints"
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as cluster:
        cluster.create(typed(experiment(program, most=6)))
        assert cluster.join("Experiment", "e", 60)
        shutil.rmtree(kept)
        cluster.resume("Experiment", "e", {"maxTrialCount": 7})
        assert cluster.join("Experiment", "e", 60)
        (failed,) = [trial for trial in cluster.trials("e") if not trial.is_good]
    parent = kept / failed.labels[PBT_PARENT]
    assert failed.message == f"{parent}: No such file or directory\nhint: check the path"


COPIES = """
import sys
from pathlib import Path
from podium.manifests.experiment import Trial
from podium.manifests.labels import PBT_PARENT
from podium.sweeps.local_trial import _prepare
root = Path(sys.argv[1])
(root / "parent").mkdir()
(root / "parent/weights").write_bytes(b"x" * 400_000)
trial = Trial.parse({"kind": "Trial", "metadata": {"name": "child", "labels": {PBT_PARENT: "parent"}}})
try:
    _prepare(root, trial)
except OSError as error:
    print(error.errno)
"""


def test_a_disk_too_small_for_a_childs_files_is_full(tmp_path: Path) -> None:
    """Only then the sweep stops, and its trials run again once there is room."""
    mount = 'mount -t tmpfs -o size=600k none "$0" && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"]).returncode:
        pytest.skip("this user may not mount a small disk")
    program = [*words, sys.executable, "-c", COPIES, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert ended.stdout == f"{errno.ENOSPC}\n", ended.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resumePolicy": "LongRunning"}, "resumePolicy: must be FromVolume"),
        (
            {
                "parameters": [
                    {
                        "name": "lr",
                        "parameterType": "double",
                        "feasibleSpace": {"min": "0", "max": "1"},
                    }
                ]
            },
            "step",
        ),
        ({"algorithm": {"algorithmName": "pbt"}}, "pbt needs the settings"),
    ],
)
def test_what_a_population_lacks_is_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with (
        LocalSweeps(tmp_path, fork_server=False) as cluster,
        pytest.raises(InvalidInput, match=message),
    ):
        cluster.create(
            typed(json.loads(json.dumps(experiment(tmp_path / "program.py", most=6, **change))))
        )
