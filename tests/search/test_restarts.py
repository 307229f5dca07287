"""CMA-ES with restarts: when they happen, how populations grow, and what a search that goes on remembers."""

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from podium.manifests.experiment.space import read_space
from podium.search.cmaes import _RestartingCmaEs
from podium.search.search import Search
from podium.search.space import Parameter

SPACE = list(
    read_space(
        [
            {"name": "x", "parameterType": "double", "feasibleSpace": {"min": "-4", "max": "4"}},
            {"name": "y", "parameterType": "double", "feasibleSpace": {"min": "0.001", "max": "1", "distribution": "logUniform"}},
            {"name": "n", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "9", "step": "2"}},
            {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
        ]
    )
)  # fmt: skip


def plan(strategy: str, space: list[Parameter] = SPACE, **settings: Any) -> _RestartingCmaEs:
    return _RestartingCmaEs(
        space, {"restart_strategy": strategy, "random_state": 1, **settings}, maximize=False
    )


def rastrigin(point: dict[str, str]) -> float:
    """A function with many local minima; 0 at its best."""
    places = [float(point["x"]), math.log10(float(point["y"])) + 1.5]
    return sum(place**2 - 3 * math.cos(2 * math.pi * place) + 3 for place in places)


def flat(point: dict[str, str]) -> float:
    """A function that gives no hint; CMA-ES soon gives up."""
    return 1.0


def run(
    search: _RestartingCmaEs, trials: int, function: Any = rastrigin
) -> tuple[list[float], list[int]]:
    values, populations = [], [search.cma.population_size]
    for number in range(trials):
        values.append(function(search.next(str(number))))
        search.tell(str(number), values[-1])
        if search.cma.population_size != populations[-1] or len(populations) <= search.restarts:
            populations.append(search.cma.population_size)
    return values, populations


def test_ipop_doubles_the_population_at_each_restart() -> None:
    _, populations = run(plan("ipop", SPACE[:2]), 900, flat)
    first = populations[0]
    assert len(populations) >= 4
    assert populations == [first * 2**number for number in range(len(populations))]


def test_ipop_leaves_local_minima() -> None:
    values, _ = run(plan("ipop", SPACE[:2]), 1500)
    assert min(values) < 0.1


def test_bipop_returns_to_small_populations() -> None:
    _, populations = run(plan("bipop", SPACE[:2]), 900, flat)
    assert max(populations) > populations[0]
    assert any(later < earlier for earlier, later in pairwise(populations))


def test_small_populations_are_mostly_near_the_first() -> None:
    search = plan("bipop", SPACE[:2])
    search.grown, search.evaluations = 4, {"small": 0, "large": 10**9}
    grown = [
        search._next_population(random.Random(seed)) / search.first_population
        for seed in range(400)
    ]
    assert max(grown) <= 16
    # 16 to the power of a uniform number squared (Hansen 2009): below its median of .25 half of them fall.
    assert sum(size <= 2 for size in grown) == pytest.approx(200, abs=40)


def test_a_seed_gives_the_same_points_again() -> None:
    assert run(plan("ipop"), 60) == run(plan("ipop"), 60)
    assert run(plan("ipop"), 60) != run(plan("ipop", random_state=2), 60)


def test_a_result_from_before_a_restart_does_not_count() -> None:
    search = plan("ipop", SPACE[:2])
    search.next("late")
    run(search, 300, flat)
    assert search.restarts
    before = len(search.generation)
    search.tell("late", 0.0)
    assert len(search.generation) == before


def test_failed_trials_do_not_end_a_generation() -> None:
    search = plan("ipop")
    for number in range(40):
        search.next(str(number))
        search.tell(str(number), None)
    assert search.cma.generation == 0


@pytest.mark.parametrize("maximize", [False, True])
def test_it_finds_the_better_side(maximize: bool, tmp_path: Path) -> None:
    settings = {"restart_strategy": "ipop", "random_state": 3}
    search = Search(
        SPACE[:2], "cmaes", settings, maximize=maximize, directory=tmp_path, name="study"
    )
    found = []
    for number in range(80):
        point = search.ask(f"t{number}")
        assert point
        found.append(float(point["x"]))
        search.tell(f"t{number}", found[-1])
    last = sum(found[-20:]) / 20
    assert last > 2 if maximize else last < -2


def test_a_search_that_goes_on_remembers_its_generations(tmp_path: Path) -> None:
    settings = {"restart_strategy": "ipop", "random_state": 1}
    points = []
    for number in range(30):  # each by a process of its own
        search = Search(SPACE, "cmaes", settings, maximize=False, directory=tmp_path, name="study")
        point = search.ask(f"t{number}")
        assert point
        points.append(point)
        search.tell(f"t{number}", rastrigin(point))
    whole = plan("ipop")
    assert points == [next_point(whole, number) for number in range(30)]


def next_point(search: _RestartingCmaEs, number: int) -> dict[str, str]:
    point = search.next(str(number))
    search.tell(str(number), rastrigin(point))
    return point


@pytest.mark.parametrize("parameter", SPACE[:3])
def test_a_value_leads_back_to_its_place(parameter: Parameter) -> None:
    for place in (0.0, 0.1, 0.5, 0.77, 0.999):
        again = float(parameter.at(parameter.share(parameter.at(place))))
        assert again == pytest.approx(float(parameter.at(place)))
