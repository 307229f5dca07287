"""Sweeps with several objectives and with constraints: what is searched, what is best, and what is on the front."""

import json
import math
import random
import re
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sweep_manifests import job, space, write_experiment

import podium
from podium.cli.experiment import experiment as commands
from podium.errors import InvalidInput, NotFound
from podium.manifests.experiment import Experiment, Trial, check, customize, fronts_of, leaderboard
from podium.manifests.labels import NUMBER
from podium.manifests.options import annotation, describe
from podium.manifests.rules import RUNNERS
from podium.metrics.goals import Constraint
from podium.search.pareto import Value, fronts
from podium.search.search import Search
from podium.search.space import Parameter

pytestmark = pytest.mark.whole

ZDT1 = """
import math, random, sys, time
values = [float(word) for word in sys.argv[1:]]
time.sleep(random.random() / 5)
g = 1 + 9 * sum(values[1:]) / (len(values) - 1)
print(f"loss={values[0]:.6f}")
print(f"other={g * (1 - math.sqrt(values[0] / g)):.6f}")
if values[0] < 0.9:
    print(f"size={values[1]:.6f}")
"""
NAMES = ("x", "y", "z")


def zdt1(folder: Path, trials: int = 16, **asked: Any) -> dict[str, Any]:
    """An Experiment over Zitzler's first test function, whose best trials have x anywhere and all others 0."""
    program = folder / "program.py"
    program.write_text(ZDT1)
    manifest = write_experiment(
        job(["python", str(program), *(f"${{trialParameters.{name}}}" for name in NAMES)]),
        name="front", parallelTrialCount=4, maxTrialCount=trials, resumePolicy="LongRunning",
        objective={"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": ["other", "size"]},
        algorithm={"algorithmName": "tpe", "algorithmSettings": [{"name": "random_state", "value": "3"}]},
        parameters=[space(name, min="0", max="1") for name in NAMES],
    )  # fmt: skip
    manifest["metadata"]["annotations"] = annotation(asked)
    return manifest


def trial(name: str, metrics: dict[str, float], state: str = "Succeeded", **asked: Any) -> Trial:
    """A trial that maximizes score, and has ended."""
    observed = [{"name": key, "min": str(value), "max": str(value), "latest": str(value)}
                for key, value in metrics.items()]  # fmt: skip
    return Trial(manifest={
        "kind": "Trial",
        "metadata": {"name": name, "annotations": annotation(asked)},
        "spec": {"objective": {"type": "maximize", "objectiveMetricName": "score"}},
        "status": {"observation": {"metrics": observed}, "conditions": [{"type": state, "status": "True"}]},
    })  # fmt: skip


def by_definition(costs: Sequence[tuple[float, ...]]) -> list[int]:
    """The front of each, one front after the other."""
    numbers, left, number = [0] * len(costs), set(range(len(costs))), 0
    while left:
        number += 1
        best = {at for at in left
                if not any(all(a <= b for a, b in zip(costs[other], costs[at], strict=True))
                           and costs[other] != costs[at] for other in left)}  # fmt: skip
        for at in best:
            numbers[at] = number
        left -= best
    return numbers


def hypervolume(
    points: Sequence[tuple[float, float]], corner: tuple[float, float] = (1.1, 6.0)
) -> float:
    """The area that points dominate, up to a corner."""
    height, area = corner[1], 0.0
    for x, y in sorted(points):
        if x < corner[0] and y < height:
            area += (corner[0] - x) * (height - y)
            height = y
    return area


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_fronts_are_those_of_the_definition(objectives: int) -> None:
    draw = random.Random(objectives)
    for _ in range(30):
        costs = [tuple(float(draw.randrange(6)) for _ in range(objectives)) for _ in range(40)]
        assert fronts(costs) == by_definition(costs)


def test_the_first_objective_leads_within_a_front() -> None:
    both = {"objectives": "min:ms"}
    rows = [trial("slow", {"score": 9, "ms": 9}, **both), trial("worse", {"score": 5, "ms": 9}, **both),
            trial("quick", {"score": 5, "ms": 1}, **both), trial("equal", {"score": 9, "ms": 9}, **both),
            trial("lacks", {"score": 99}, **both), trial("ran", {"score": 99, "ms": 0}, "Failed", **both)]  # fmt: skip
    assert fronts_of(rows) == {"slow": 1, "equal": 1, "quick": 1, "worse": 2}
    assert [row.name for row in leaderboard(rows)] == [
        "equal",
        "slow",
        "quick",
        "worse",
        "ran",
        "lacks",
    ]
    assert rows[4].infeasible == ["ms is no number"]


@pytest.mark.parametrize(
    ("bound", "broken"), [("ms<=9", []), ("ms>=9", []), ("ms<9", ["ms 9 breaks ms<9"])]
)
def test_a_value_at_a_limit_breaks_strict_ones_only(bound: str, broken: list[str]) -> None:
    assert trial("a", {"score": 1, "ms": 9}, constraints=bound).infeasible == broken


def test_equals_in_the_first_objective_are_told_by_the_next() -> None:
    rows = [
        trial("a", {"score": 9, "ms": 9}, objectives="min:ms"),
        trial("b", {"score": 9, "ms": 2}, objectives="ms"),
    ]
    assert [row.name for row in leaderboard(rows)] == ["b", "a"], "ms: less is better by its name"


@pytest.mark.parametrize(
    ("text", "kept", "broken"),
    [
        ("ms<=20", 20, 20.01),
        ("ms<20", 19.99, 20),
        ("ms >= 0.5", 0.5, 0.4),
        ("ms>0", 1e-9, 0),
        ("ms<=-1", -1, 0),
    ],
)
def test_a_constraint_is_kept_up_to_its_limit(text: str, kept: float, broken: float) -> None:
    constraint = Constraint.read(text)
    assert constraint.broken_by(kept) <= 0 < constraint.broken_by(broken)


@pytest.mark.parametrize(
    ("annotations", "spec", "message"),
    [
        ({"objectives": "min:other", "constraints": "size=5"}, {}, "not 'size=5'"),
        ({"constraints": "size<=small"}, {}, "a number, not 'size<=small'"),
        ({"objectives": "min:"}, {}, "the name of a metric, but got 'min:'"),
        (
            {"objectives": "min:othr"},
            {},
            "othr is not among the metrics that are recorded: loss, other, size",
        ),
        ({"objectives": "min:loss"}, {}, "loss is an objective twice"),
        (
            {"objectives": "min:other"},
            {"algorithmName": "cmaes"},
            "cmaes searches for one objective",
        ),
        (
            {"constraints": "size<1"},
            {"algorithmName": "asha"},
            "asha searches for one objective without constraints",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(
    tmp_path: Path, annotations: dict[str, str], spec: dict[str, Any], message: str
) -> None:
    manifest = zdt1(tmp_path, **annotations)
    manifest["spec"]["algorithm"] = spec or manifest["spec"]["algorithm"]
    with pytest.raises(InvalidInput, match=message) as caught:
        check(Experiment.parse(manifest))
    assert caught.value.hint


def test_early_stopping_by_one_of_several_is_refused(tmp_path: Path) -> None:
    manifest = zdt1(tmp_path, objectives="min:other")
    manifest["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
    with pytest.raises(
        InvalidInput, match="judges a trial by loss alone, though other may be good"
    ):
        check(Experiment.parse(manifest))


def test_katib_is_said_not_to_know_of_them(tmp_path: Path) -> None:
    for annotations in ({"objectives": "min:other"}, {"constraints": "size<=1"}):
        with pytest.raises(
            InvalidInput, match="only podium's own engine heeds further objectives and constraints"
        ):
            check(Experiment.parse(zdt1(tmp_path, **annotations)), RUNNERS)


def test_options_record_the_metrics_with_their_strategies(tmp_path: Path) -> None:
    manifest = zdt1(tmp_path)
    manifest["spec"]["objective"] = {"type": "maximize", "objectiveMetricName": "loss"}
    changed = customize(
        Experiment.parse(manifest), objectives=["min:other"], constraints=["size<=0.5", "other<3"]
    )
    assert changed.asked == {"objectives": ("min:other",), "constraints": ("size<=0.5", "other<3")}
    assert changed.objective.additional == ("other", "size")
    assert changed.objective.strategies == {"loss": "max", "other": "min", "size": "latest"}
    check(changed)


@pytest.mark.parametrize("algorithm", ["tpe", "multivariate-tpe"])
def test_a_search_finds_more_of_the_front_than_chance(tmp_path: Path, algorithm: str) -> None:
    space = [Parameter(name=name, kind="double", low=0.0, high=1.0) for name in "abcd"]

    def volume(algorithm: str, seed: int) -> float:
        search = Search(space, algorithm, {"random_state": seed}, maximize=False, further=[False],
                        directory=tmp_path / f"{algorithm}-{seed}", name="s")  # fmt: skip
        points = []
        for number in range(60):
            point = search.ask(f"t{number}")
            assert point is not None
            first, *rest = map(float, point.values())
            g = 1 + 9 * sum(rest) / len(rest)
            points.append((first, g * (1 - math.sqrt(first / g))))
            search.tell(f"t{number}", Value(points[-1][0], points[-1][1:]))
        return hypervolume(points)

    seeds = range(3)
    gained = [volume(algorithm, seed) - volume("random", seed) for seed in seeds]
    assert sum(gained) / len(gained) > 0.3, gained
    assert min(gained) > 0, gained


@pytest.mark.parametrize("algorithm", ["tpe", "multivariate-tpe", "bayesianoptimization"])
def test_a_search_learns_what_breaks_a_constraint(tmp_path: Path, algorithm: str) -> None:
    if algorithm == "bayesianoptimization":
        pytest.importorskip("torch")
    space = [Parameter(name=name, kind="double", low=0.01, high=1.0) for name in "ab"]
    search = Search(
        space, algorithm, {"random_state": 1}, maximize=True, directory=tmp_path, name="s"
    )
    seen = []
    for number in range(30):
        point = search.ask(f"t{number}")
        assert point is not None
        a, b = map(float, point.values())
        seen.append(a + b)
        search.tell(f"t{number}", Value(a, broken={"sum<=0.6": a + b - 0.6}))
    assert sum(total <= 0.65 for total in seen[15:]) >= 6, f"by chance it is every fifth: {seen}"


def test_a_resumed_study_still_knows_all_values(tmp_path: Path) -> None:
    space = [Parameter(name="a", kind="double", low=0.0, high=1.0)]

    def opened() -> Search:
        return Search(space, "multivariate-tpe", {"random_state": 1}, maximize=True, further=[False],
                      directory=tmp_path, name="s")  # fmt: skip

    first = opened()
    for number in range(12):
        assert first.ask(f"t{number}")
        first.tell(f"t{number}", Value(0.0, [float(number)], {"c<=1": number - 5.0}))
    first.tell(
        "t3", Value(1.0, [1.0], {"c<=1": 1.0})
    )  # as the engine does for each trial when it resumes
    again = opened()
    known = [Value.read(each) for each in again._study.get_trials(deepcopy=False)]
    assert [(value.objectives, value.feasible) for value in known if value is not None] == [
        ((0.0, float(number)), number <= 5) for number in range(12)
    ]
    assert again.ask("t12")


def test_a_sweep_names_its_front_everywhere(tmp_path: Path) -> None:
    with closing(
        podium.sweep(zdt1(tmp_path, objectives="min:other"), cluster=tmp_path / "cluster")
    ) as sweep:
        points = {each.name: (each.value, each.reached) for each in sweep.results}
        front = {each.name for each in sweep.front}
        costs = {
            name: reached.objectives for name, (_, reached) in points.items() if reached is not None
        }
        expected = {
            name
            for name, number in zip(costs, by_definition(list(costs.values())), strict=True)
            if number == 1
        }
        assert front == expected
        assert 1 < len(front) < 16
        assert sweep.best.name == sweep.front[0].name == sweep.experiment.optimal_trial
        assert sweep.best.value == min(value for value, _ in points.values() if value is not None)
        drawn = sweep.plot.front().data
        assert {each.name: len(each.x) for each in drawn}["Pareto front"] == len(front)
        with pytest.raises(
            InvalidInput, match=r"two of the objectives \(loss, other\), not by loss, size"
        ):
            sweep.plot.front("loss", "size")
        report = sweep.report().read_text()
        assert "<h2>Pareto front</h2>" in report
        assert "minimize loss, minimize other" in report
        assert len(re.findall(r"<tr data-number=\"\d+\" class=\"best\">", report)) == len(front)
    cli = ["--dir", str(tmp_path / "cluster"), "front"]
    status = json.loads(CliRunner().invoke(commands, ["status", *cli, "--json"]).stdout)
    assert set(status["front"]) == front
    rows = json.loads(CliRunner().invoke(commands, ["trials", *cli, "--json"]).stdout)
    assert {row["name"] for row in rows if row["front"] == 1} == front
    best = json.loads(CliRunner().invoke(commands, ["best", *cli, "--json"]).stdout)
    assert [row["name"] for row in best["front"]] == [
        each["name"] for each in rows if each["front"] == 1
    ]
    shown = CliRunner().invoke(commands, ["status", *cli]).stdout
    assert "objectives: minimize loss, minimize other" in shown


def test_three_objectives_are_drawn_in_pairs(tmp_path: Path) -> None:
    manifest = zdt1(tmp_path, 8, objectives="min:other, max:size")
    with closing(podium.sweep(manifest, algorithm="random", cluster=tmp_path / "cluster")) as sweep:
        lacking = [each for each in sweep.results if each.infeasible == ["size is no number"]]
        assert len(lacking) == sum(float(each.assignments["x"]) >= 0.9 for each in sweep.results)
        report = sweep.report().read_text()
        assert all(f'data-figure="front-{number}"' in report for number in (1, 2, 3))
        assert "size (more is better)" in report
        assert all(trace.mode == "markers" for trace in sweep.plot.front("other", "size").data)


def test_the_best_trial_keeps_the_constraints(tmp_path: Path) -> None:
    with closing(
        podium.sweep(zdt1(tmp_path, constraints="loss>=0.3"), cluster=tmp_path / "cluster")
    ) as sweep:
        rows = leaderboard(sweep.results)
        feasible = [each for each in rows if not each.infeasible]
        assert 0 < len(feasible) < len(rows)
        assert rows[: len(feasible)] == feasible
        assert sweep.best.value >= 0.3
        assert sweep.best.name == feasible[0].name == sweep.experiment.optimal_trial
        assert sweep.best.value > min(each.value for each in rows if each.value is not None)
        assert [each.name for each in sweep.front] == [sweep.best.name]
    broken = (
        CliRunner().invoke(commands, ["trials", "--dir", str(tmp_path / "cluster"), "front"]).stdout
    )
    assert broken.count("breaks loss>=0.3") == len(rows) - len(feasible)
    assert "Infeasible" in broken


def test_without_a_feasible_trial_there_is_no_best(tmp_path: Path) -> None:
    with closing(
        podium.sweep(zdt1(tmp_path, 4, constraints="other<=-1"), cluster=tmp_path / "cluster")
    ) as sweep:
        assert sweep.status == "Succeeded"
        assert sweep.experiment.status["currentOptimalTrial"] == {"observation": {}}
        with pytest.raises(
            NotFound,
            match=r"no trial of front is feasible, though 4 have a result: of front-.* breaks",
        ):
            _ = sweep.best
        assert sweep.front == []
        assert "breaks other&lt;=-1" in sweep.report().read_text()


def test_a_warm_start_takes_what_has_all_metrics(tmp_path: Path) -> None:
    with closing(
        podium.sweep(zdt1(tmp_path, 8), algorithm="random", cluster=tmp_path / "cluster")
    ) as sweep:
        whole = sum(float(each.assignments["x"]) < 0.9 for each in sweep.results)
    more = zdt1(tmp_path, 12, objectives="min:other", constraints="size<=0.7")
    with closing(
        podium.sweep(more, name="more", warm_start=["front"], cluster=tmp_path / "cluster")
    ) as sweep:
        created = sweep.experiment.condition("Created")
        assert created is not None
        assert f"starts warm from {whole} trials" in created.message
        assert sweep.front


def test_a_goal_needs_a_feasible_trial(tmp_path: Path) -> None:
    manifest = zdt1(tmp_path, 6, constraints="other<=-1")
    manifest["spec"]["objective"]["goal"] = 2.0
    with closing(podium.sweep(manifest, cluster=tmp_path / "cluster")) as sweep:
        assert sweep.experiment.state.reason == "ExperimentMaxTrialsReached"


def test_a_deterministic_front_is_the_same_each_time(tmp_path: Path) -> None:
    def outcome(sweep: podium.Sweep) -> list[tuple[object, ...]]:
        on, rows = (
            fronts_of(sweep.results),
            sorted(sweep.results, key=lambda each: int(each.labels[NUMBER])),
        )
        return [(*each.assignments.values(), on.get(each.name)) for each in rows]

    manifest = zdt1(tmp_path, 14, objectives="min:other", constraints="size<=0.8", deterministic=4)
    outcomes = []
    for parallel in (1, 4):
        with closing(
            podium.sweep(manifest, parallel=parallel, cluster=tmp_path / str(parallel))
        ) as sweep:
            outcomes.append(outcome(sweep))
    begun = podium.sweep(manifest, cluster=tmp_path / "broken", wait=False)
    while len(begun.finished) < 6:  # others run
        time.sleep(0.05)
    begun.stop()
    with closing(begun.resume()):
        outcomes.append(outcome(begun))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_tune_takes_several_objectives_and_constraints(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nx = float(sys.argv[1].removeprefix('--x='))\n"
        "print(f'accuracy={1 - (x - 0.8) ** 2}')\nprint(f'latency_ms={40 * x}')\n"
    )
    tuned = podium.tune(script, {"x": (0.0, 1.0)}, objective=["accuracy", "min:latency_ms"], trials=10, seed=1,
                        constraints=["latency_ms<=20"], cluster=tmp_path / "cluster")  # fmt: skip
    with closing(tuned) as sweep:
        assert sweep.best.parameters["x"] <= 0.5
        assert describe(sweep.experiment)["objectives"] == (
            "maximize accuracy, minimize latency_ms, latency_ms<=20"
        )
    with pytest.raises(InvalidInput, match="asha searches for one objective"):
        podium.tune(script, {"x": (0.0, 1.0)}, objective=["accuracy", "min:latency_ms"], algorithm="asha",
                    settings={"r_l": 2, "resource_name": "x"}, cluster=tmp_path / "cluster")  # fmt: skip


def test_a_front_shows_the_limit_of_a_constraint(tmp_path: Path) -> None:
    manifest = zdt1(tmp_path, 8, objectives="min:other", constraints="other<=4, loss>=0.1, size<1")
    with closing(podium.sweep(manifest, algorithm="random", cluster=tmp_path / "cluster")) as sweep:
        lines = {line.label.text: line for line in sweep.plot.front().layout.shapes}
        assert set(lines) == {"other<=4", "loss>=0.1"}, "size is on no axis"
        assert (lines["other<=4"].x0, lines["other<=4"].x1, lines["other<=4"].yref) == (
            4,
            4,
            "paper",
        )
        assert (lines["loss>=0.1"].y0, lines["loss>=0.1"].y1, lines["loss>=0.1"].xref) == (
            0.1,
            0.1,
            "paper",
        )
        assert (
            "other\\u003c=4" in sweep.report().read_text()
            or "other<=4" in sweep.report().read_text()
        )
