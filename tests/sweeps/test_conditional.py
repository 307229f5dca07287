"""Sweeps with parameters that count only where others have certain values."""

import itertools
import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner
from sweep_manifests import job, space, write_experiment

import podium
from podium.cli.experiment import experiment as commands
from podium.cli.tune import tune as tune_command
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check, customize
from podium.manifests.experiment.rules import examine
from podium.manifests.labels import NUMBER
from podium.manifests.options import annotation
from podium.manifests.options.conditions import Conditions, conditional
from podium.manifests.rules import RUNNERS
from podium.search.algorithm import PastTrial
from podium.search.algorithms import ALGORITHMS, choose
from podium.search.distributions import Columns, _column
from podium.search.search import JOURNAL, Search, _open_journal
from podium.search.space import Parameter, Premise, count_points

OURS = "momentum if optimizer=sgd; beta2 if optimizer=adam,adamw; nesterov if momentum>=0.5; width3 if layers>=3"
PROGRAM = """
import sys
optimizer, momentum, beta2, nesterov, layers, width3 = sys.argv[1:]
loss = {"sgd": 1.0, "adam": 0.5, "adamw": 0.4}[optimizer]
loss += abs(float(momentum) - 0.75) if optimizer == "sgd" else abs(float(beta2) - 0.95)
loss += 0.1 * (optimizer == "sgd" and float(momentum) >= 0.5 and nesterov == "no")
print(f"loss={loss + (abs(int(width3) - 32) / 100 if int(layers) >= 3 else 0.2):.6f}")
"""
PARAMETERS = [
    space("optimizer", "categorical", list=["sgd", "adam", "adamw"]), space("momentum", min="0", max="1", step="0.25"),
    space("beta2", "discrete", list=["0.9", "0.95", "0.99"]), space("nesterov", "categorical", list=["no", "yes"]),
    space("layers", "int", min="1", max="4"), space("width3", "int", min="16", max="64", step="16"),
]  # fmt: skip
TAKERS = [name for name, known in ALGORITHMS.items() if known.takes_conditions]
RESOURCE = {"r_l": 4.0, "eta": 2, "resource_name": "epochs"}


def sweep_of(
    folder: Path, trials: int = 12, algorithm: str = "tpe", **asked: Any
) -> dict[str, Any]:
    """An Experiment of a program with an optimizer and up to four layers, by a seed."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    manifest = write_experiment(
        job(["python", str(program), *(f"${{trialParameters.{each['name']}}}" for each in PARAMETERS)]),
        name="choice", parallelTrialCount=3, maxTrialCount=trials, resumePolicy="LongRunning", parameters=PARAMETERS,
        algorithm={"algorithmName": algorithm, "algorithmSettings": [{"name": "random_state", "value": "3"}]},
    )  # fmt: skip
    manifest["metadata"]["annotations"] = annotation({"conditions": OURS, **asked})
    return manifest


def premises_of(text: str) -> Mapping[str, tuple[Premise, ...]]:
    conditions = Conditions.of({"conditions": (text,)})
    assert conditions
    return conditions.premises


def counts(name: str, point: dict[str, str]) -> bool:
    """Say again, without podium, where a parameter counts."""
    sgd = point["optimizer"] == "sgd"
    return {"momentum": sgd, "beta2": not sgd, "nesterov": sgd and float(point["momentum"]) >= 0.5,
            "width3": int(point["layers"]) >= 3}.get(name, True)  # fmt: skip


NAMES = [each["name"] for each in PARAMETERS]
IDLE = {"momentum": "0.0", "beta2": "0.9", "nesterov": "no", "width3": "16"}


def searched(folder: Path, algorithm: str, *, seed: int = 1, begun: list[PastTrial] | None = None,
             lag: int | None = None) -> Search:  # fmt: skip
    """A search over our space, with a resource where the algorithm needs one."""
    resource = (
        [Parameter(name="epochs", kind="int", low=1, high=4, step=1)]
        if algorithm in ("hyperband", "asha")
        else []
    )
    settings = {"random_state": seed, **(RESOURCE if resource else {})}
    known = Experiment.parse(sweep_of(folder)).space
    return Search([*known, *resource], algorithm, settings, maximize=False, directory=folder / algorithm, name="s",
                  begun=begun, lag=lag)  # fmt: skip


def loss(point: dict[str, str]) -> float:
    """The program's loss, but for steps between."""
    base = {"sgd": 1.0, "adam": 0.5, "adamw": 0.4}[point["optimizer"]]
    return base + (
        abs(float(point["momentum"]) - 0.75) if base == 1.0 else abs(float(point["beta2"]) - 0.95)
    )


def test_conditions_are_read_as_they_are_written() -> None:
    known = premises_of(f"{OURS} ;a if b=1 and c<2;; a if d=x y ")
    assert {name: list(map(str, premises)) for name, premises in known.items()} == {
        "momentum": ["optimizer=sgd"], "beta2": ["optimizer=adam,adamw"], "nesterov": ["momentum>=0.5"],
        "width3": ["layers>=3"], "a": ["b=1", "c<2", "d=x y"],
    }  # fmt: skip


def test_a_chain_of_conditions_has_each_premise_once() -> None:
    widths = [
        Parameter(name=f"w{number}", kind="int", low=0, high=9, step=1) for number in range(60)
    ]
    chain = "; ".join(
        f"w{number} if w{number - 1}>=1 and w{number - 1}<=8" for number in range(1, 60)
    )
    known = conditional(widths, {"conditions": (chain,)})
    assert [len(parameter.when) for parameter in known] == [2 * number for number in range(60)]


@pytest.mark.parametrize(
    ("premise", "true", "false"),
    [("x=a,b", "b", "c"), ("x=0.5", "0.50", "0.4"), ("x<=3", "3", "4"), ("x<3", "2.9", "3"), ("x>3", "1e1", "3"),
     ("x>=3", "3.0", "word"), ("x=nan", "nan", "")],
)  # fmt: skip
def test_a_premise_holds_by_text_or_number(premise: str, true: str, false: str) -> None:
    ((one,),) = premises_of(f"y if {premise}").values()
    assert one.holds(true)
    assert not one.holds(false)


@pytest.mark.parametrize(
    ("conditions", "algorithm", "message", "hint"),
    [
        ("momentum when optimizer=sgd", "tpe", "a condition is a parameter, if, .* not 'momentum when", "momentum if"),
        ("momentum if optimizer==sgd", "tpe", "a condition is a parameter, if", "momentum if"),
        ("momentum if optimiser=sgd", "tpe", "a condition names optimiser, which is not searched", "optimizer"),
        ("gamma if optimizer=sgd", "tpe", "a condition names gamma, which is not searched", "one of optimizer, momentum"),
        ("momentum if optimizer=sdg", "tpe", "sdg of the condition optimizer=sdg is not a value", "did you mean sgd"),
        ("momentum if layers=7", "tpe", "7 of the condition layers=7 is not a value of layers", "1 to 4"),
        ("momentum if layers>4", "tpe", "the condition layers>4 never holds", "1 to 4"),
        ("momentum if optimizer>2", "tpe", "the condition optimizer>2 never holds", "sgd, adam, adamw"),
        ("momentum if layers>3.5 and layers<4", "tpe", "the condition layers>3.5 and layers<4 never holds", "1 to 4"),
        ("momentum if optimizer=sgd; momentum if optimizer=adam", "tpe", "optimizer=adam never holds", "sgd,adam"),
        ("momentum if optimizer=sgd; beta2 if momentum>0 and optimizer=adam", "tpe", "never holds", "for either"),
        ("momentum if layers>=2; layers if momentum>0", "tpe", "whether momentum counts depends on itself", "leave one"),
        ("layers if layers>=2", "tpe", "whether layers counts depends on itself", "leave one"),
        (OURS, "cmaes", "cmaes searches all parameters in each trial", "random, grid, tpe"),
        (OURS, "bayesianoptimization", "bayesianoptimization searches all parameters", "set the algorithm"),
        ("layers if optimizer=sgd", "asha", "layers says how long a trial of asha runs", "leave the condition"),
    ],
)  # fmt: skip
def test_conditions_that_cannot_hold_are_refused(
    tmp_path: Path, conditions: str, algorithm: str, message: str, hint: str
) -> None:
    manifest = sweep_of(tmp_path, algorithm=algorithm, conditions=conditions)
    if algorithm == "asha":
        manifest["spec"]["algorithm"]["algorithmSettings"] = [
            {"name": "resource_name", "value": "layers"}, {"name": "r_l", "value": "4"}
        ]  # fmt: skip
    with pytest.raises(InvalidInput, match=message) as caught:
        check(Experiment.parse(manifest))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "holds"),
    [("momentum=0.5", False), ("momentum=0.5,0.25", False), ("momentum<=0", False), ("momentum>=1", False),
     ("momentum<1", True), ("momentum>0.2 and momentum<0.3", True), ("momentum>=0.5 and momentum<=0.5", False),
     ("width3>48", True), ("width3>48 and width3<64", False), ("width3=48,64 and width3>48", True)],
)  # fmt: skip
def test_a_single_point_of_a_continuum_is_no_condition(
    tmp_path: Path, asked: str, holds: bool
) -> None:
    manifest = sweep_of(tmp_path, conditions=f"nesterov if {asked}")
    free = space("momentum", min="0", max="1")
    manifest["spec"]["parameters"] = [
        free if each["name"] == "momentum" else each for each in PARAMETERS
    ]
    if holds:
        check(Experiment.parse(manifest))
        return
    with pytest.raises(InvalidInput, match=f"the condition {asked} never holds") as caught:
        check(Experiment.parse(manifest))
    assert ("hardly ever has just this one: ask with <=" in (caught.value.hint or "")) == (
        "momentum=" in asked
    )


@pytest.mark.parametrize("algorithm", TAKERS)
@pytest.mark.parametrize("lag", [None, 2])
def test_what_does_not_count_is_never_searched(
    tmp_path: Path, algorithm: str, lag: int | None
) -> None:
    search = searched(tmp_path, algorithm, lag=lag)
    points: list[dict[str, str]] = []
    while len(points) < 40 and (point := search.ask(f"t{len(points)}")):
        for name, value in point.items():
            assert counts(name, point) or value == IDLE[name], point
        search.tell(f"t{len(points)}", loss(point))
        points.append(point)
    assert len(points) >= 7
    assert {point["optimizer"] for point in points} == {"sgd", "adam", "adamw"}
    storage = optuna.storages.JournalStorage(_open_journal(tmp_path / algorithm / JOURNAL))
    kept = optuna.load_study(study_name="s", storage=storage).trials
    known = {each.name: _column(each) for each in Experiment.parse(sweep_of(tmp_path)).space}
    for trial, point in zip(kept, points, strict=True):
        assert set(trial.params) - {"epochs"} == {
            known[name] for name in known if counts(name, point)
        }


@pytest.mark.parametrize("algorithm", TAKERS)
def test_a_search_goes_on_where_it_was(tmp_path: Path, algorithm: str) -> None:
    begun: list[PastTrial] = []
    for number in range(12):
        search = searched(tmp_path, algorithm, begun=list(begun), lag=2)
        if (point := search.ask(f"t{number}")) is None:
            break
        search.tell(f"t{number}", loss(point))
        begun.append(PastTrial(trial=f"t{number}", point=point, value=loss(point), running=False,
                               tags=search.tags(f"t{number}")))  # fmt: skip
    (tmp_path / "straight").mkdir()
    straight, again = searched(tmp_path / "straight", algorithm, lag=2), []
    for number in range(len(begun)):
        point = straight.ask(f"t{number}")
        assert point is not None
        straight.tell(f"t{number}", loss(point))
        again.append(point)
    assert again == [past.point for past in begun]


def test_a_grid_has_each_different_trial_once(tmp_path: Path) -> None:
    search = searched(tmp_path, "grid")
    points = []
    while point := search.ask(f"t{len(points)}"):
        points.append(tuple(point.values()))
    known = Experiment.parse(sweep_of(tmp_path)).space
    every = itertools.product(
        *([each.nth(number) for number in range(each.points)] for each in known)
    )
    distinct = {
        tuple(value if counts(name, dict(zip(NAMES, values, strict=True))) else IDLE[name]
              for name, value in zip(NAMES, values, strict=True))
        for values in every
    }  # fmt: skip
    assert len(points) == len(set(points)) == count_points(known) == 140 < 1440
    assert set(points) == distinct


def test_auto_chooses_what_knows_conditions(tmp_path: Path) -> None:
    known = Experiment.parse(sweep_of(tmp_path)).space
    assert choose(known, 140, 2, modeled=True).algorithm == "grid"
    assert choose(known, 60, 2, modeled=True).algorithm == "multivariate-tpe"
    assert choose(known, 60, 2, modeled=True, several=True).algorithm == "multivariate-tpe"
    assert choose(known, 4, 4, modeled=True).algorithm == "sobol"
    for trials in (4, 20, 60, 140, 5000):
        assert ALGORITHMS[choose(known, trials, 4, modeled=True).algorithm].takes_conditions


def test_trainer_flags_are_checked_where_they_do_not_count() -> None:
    def trainer(least: str) -> Experiment:
        parameters = [
            space("model", "categorical", list=["mlp", "linear"]),
            space("depth", "int", min=least, max="6"),
        ]
        flags = [f"--{each['name']}=${{trialParameters.{each['name']}}}" for each in parameters]
        manifest = write_experiment(
            job(["python", "-m", "podium.trainer", *flags]), parameters=parameters
        )
        manifest["metadata"]["annotations"] = annotation({"conditions": "depth if model=mlp"})
        return check(Experiment.parse(manifest))

    with pytest.raises(
        InvalidInput, match="refuses its flags, in trials with model=linear: --depth is for mlp"
    ) as it:
        trainer("3")
    assert it.value.hint == "leave --depth out, or give it 2"
    trainer("2")


def test_katib_takes_the_same_experiment(tmp_path: Path) -> None:
    experiment = check(Experiment.parse(sweep_of(tmp_path)), RUNNERS)
    (note,) = [
        each for each in examine(experiment.manifest) if each.rule == "conditions-without-podium"
    ]
    assert (note.level, note.refuses) == ("note", False)
    assert "searches all parameters in each trial" in note.text


def test_what_does_not_count_is_shown_nowhere(tmp_path: Path) -> None:
    with closing(podium.sweep(sweep_of(tmp_path, 24), cluster=tmp_path / "cluster")) as sweep:
        for trial in sweep.results:
            given = trial.assignments
            assert set(given) == set(NAMES), "its template has a value for each"
            assert trial.parameters == {
                name: value for name, value in given.items() if counts(name, given)
            }
        best = sweep.best_trial
        assert set(sweep.best.parameters) == set(best.parameters) < set(NAMES)
        frame = sweep.trials
        assert frame["momentum"].isna().sum() == (frame["optimizer"] != "sgd").sum() > 0
        drawn = sweep.plot.parallel()
        axis = drawn.layout.xaxis.ticktext.index("momentum")
        lowest = [note.text for note in drawn.layout.annotations if (note.x, note.y) == (axis, 0)]
        assert lowest == ["-"]
        momenta = [
            y for trace in drawn.data for x, y in zip(trace.x, trace.y, strict=True) if x == axis
        ]
        assert momenta.count(0) == frame["momentum"].isna().sum()
        assert set(sweep.plot.importance().data[0]["y"]) == {"optimizer", "layers"}
        assert sweep.plot.history().data
        report = sweep.report().read_text()
        assert "Parallel coordinates" in report
        assert "momentum if optimizer=sgd" in report
    cli = ["--dir", str(tmp_path / "cluster"), "choice"]
    rows = json.loads(CliRunner().invoke(commands, ["trials", *cli, "--json"]).stdout)
    assert all(
        ("momentum" in row["parameters"]) == (row["parameters"]["optimizer"] == "sgd")
        for row in rows
    )
    table = CliRunner().invoke(commands, ["trials", *cli], env={"COLUMNS": "200"}).stdout
    assert " - " in next(line for line in table.splitlines() if rows[0]["name"] in line)
    assert (
        "\nconditions: momentum if optimizer=sgd"
        in CliRunner().invoke(commands, ["status", *cli]).stdout
    )
    shown = CliRunner().invoke(commands, ["best", *cli]).stdout
    assert ("momentum" in shown) == ("momentum" in rows[0]["parameters"])


def test_a_trial_by_hand_needs_what_counts_alone(tmp_path: Path) -> None:
    with closing(podium.sweep(sweep_of(tmp_path, 3), cluster=tmp_path / "cluster")) as sweep:
        with pytest.raises(InvalidInput, match="no value is given for beta2, layers"):
            sweep.add_trial({"optimizer": "adam", "momentum": 0.5})
        name = sweep.add_trial({"optimizer": "adam", "momentum": 0.5, "beta2": 0.95, "layers": 2})
        with pytest.raises(InvalidInput, match="no value is given for momentum"):
            sweep.add_trial({"optimizer": "sgd"}, like=name)
        sweep.resume().wait()
        (added,) = [trial for trial in sweep.results if trial.name == name]
        assert added.assignments["momentum"] == IDLE["momentum"], "it does not count"
        assert added.parameters == {"optimizer": "adam", "beta2": "0.95", "layers": "2"}


@pytest.mark.whole
def test_the_same_sweep_twice_with_conditions(tmp_path: Path) -> None:
    def outcome(sweep: podium.Sweep) -> list[dict[str, str]]:
        rows = sorted(sweep.results, key=lambda each: int(each.labels[NUMBER]))
        return [each.assignments for each in rows]

    manifest = sweep_of(tmp_path, 14, "multivariate-tpe", deterministic=4)
    outcomes = []
    for parallel in (1, 4):
        with closing(
            podium.sweep(manifest, parallel=parallel, cluster=tmp_path / str(parallel))
        ) as sweep:
            outcomes.append(outcome(sweep))
    begun = podium.sweep(manifest, cluster=tmp_path / "broken", wait=False)
    while len(begun.finished) < 6:
        time.sleep(0.05)
    begun.stop()
    with closing(begun.resume()):
        outcomes.append(outcome(begun))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_warm_start_learns_from_a_sweep_without_conditions(tmp_path: Path) -> None:
    flat = sweep_of(tmp_path, 8)
    del flat["metadata"]["annotations"]
    with closing(podium.sweep(flat, name="flat", cluster=tmp_path / "cluster")):
        pass
    manifest = sweep_of(tmp_path, 6, warm_start="flat")
    with closing(podium.sweep(manifest, cluster=tmp_path / "cluster")) as sweep:
        created = sweep.experiment.condition("Created")
        assert created is not None
        assert "starts warm from 8 trials" in created.message
        assert sweep.best.value < 2


def test_a_warm_start_bounds_what_counts_alone(tmp_path: Path) -> None:
    known = Experiment.parse(sweep_of(tmp_path)).space
    point = {
        "optimizer": "adam",
        "momentum": "7",
        "beta2": "0.95",
        "nesterov": "?",
        "layers": "1",
        "width3": "0",
    }
    assert Columns(known).has(point)
    assert not Columns(known).has({**point, "layers": "3"}), "width3 counts there"


def test_options_write_the_annotation(tmp_path: Path) -> None:
    manifest = sweep_of(tmp_path)
    del manifest["metadata"]["annotations"]
    changed = customize(
        Experiment.parse(manifest),
        conditions=["momentum if optimizer=sgd", "beta2 if optimizer=adam"],
    )
    assert changed.asked == {"conditions": ("momentum if optimizer=sgd", "beta2 if optimizer=adam")}
    assert [str(premise) for premise in check(changed).space[1].when] == ["optimizer=sgd"]
    one = customize(
        Experiment.parse(manifest), conditions="momentum if optimizer=sgd", constraints="loss<=9"
    )
    assert one.asked == {"conditions": ("momentum if optimizer=sgd",), "constraints": ("loss<=9",)}


def test_tune_leaves_out_what_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    Path("train.py").write_text("""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--optimizer"), parser.add_argument("--momentum", type=float, default=0.9)
given = parser.parse_args()
print(f"loss={given.momentum if given.optimizer == 'sgd' else 0.05}")
""")
    words = [
        "train.py",
        "--optimizer",
        "sgd,adam",
        "--momentum",
        "0.1..0.9",
        "--objective",
        "min:loss",
        "--trials",
        "8",
    ]
    ended = CliRunner().invoke(
        tune_command, [*words, "--seed", "1", "--condition", "momentum if optimizer=sgd"]
    )
    assert ended.exit_code == 0, ended.output
    assert "conditions: momentum if optimizer=sgd" in ended.output
    assert "train with them: python train.py --optimizer=adam\n" in ended.output
    refused = CliRunner().invoke(tune_command, [*words, "--condition", "momentum if optimiser=sgd"])
    assert "a condition names optimiser, which is not searched" in str(refused.exception)
