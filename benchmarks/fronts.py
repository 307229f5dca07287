"""How much of a Pareto front each algorithm finds: the area that its trials dominate, more being better.

    python benchmarks/fronts.py --trials 40

Two objectives, both minimized, two trials at a time: ZDT1 and ZDT2 with five parameters, and "model", an error and a
latency that depend on a width, a depth and a learning rate, with noise as two trainings have it.
"""

import argparse
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

import optuna

from podium.search.pareto import Value
from podium.search.search import Search
from podium.search.space import Parameter

CORNER = (1.1, 6.0)

Point = tuple[float, float]


def zdt1(values: Sequence[float]) -> Point:
    """Return both objectives; the front is convex."""
    g = 1 + 9 * sum(values[1:]) / (len(values) - 1)
    return values[0], g * (1 - math.sqrt(values[0] / g))


def zdt2(values: Sequence[float]) -> Point:
    """Return both objectives; the front is not convex."""
    g = 1 + 9 * sum(values[1:]) / (len(values) - 1)
    return values[0], g * (1 - (values[0] / g) ** 2)


def model(values: Sequence[float]) -> Point:
    """Return the error and the latency of a model that nobody has to train."""
    width, depth, rate = values
    error = (
        0.05
        + 0.6 * math.exp(-4 * width)
        + (rate - 0.35 - 0.2 * width) ** 2
        + 0.2 * (depth - 0.5) ** 2
    )
    return error + random.gauss(0, 0.005), 5 * (0.1 + width + 0.5 * width * depth) / 1.6


PROBLEMS: dict[str, tuple[Callable[[Sequence[float]], Point], int]] = {
    "zdt1": (zdt1, 5),
    "zdt2": (zdt2, 5),
    "model": (model, 3),
}


def area(points: Sequence[Point]) -> float:
    """Return the area that points dominate, up to the corner."""
    height, total = CORNER[1], 0.0
    for x, y in sorted(points):
        if x < CORNER[0] and y < height:
            total += (CORNER[0] - x) * (height - y)
            height = y
    return total


def searched(algorithm: str, problem: str, trials: int, seed: int) -> Iterator[Point]:
    """Yield what podium's search finds."""
    objective, count = PROBLEMS[problem]
    space = [Parameter(name=f"x{at}", kind="double", low=0.001, high=1.0) for at in range(count)]
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        search = Search(space, algorithm, {"random_state": seed}, maximize=False, further=[False],
                        directory=Path(folder), name="study")  # fmt: skip
        asked: list[tuple[str, Point]] = []
        for number in range(trials):
            point = search.ask(f"t{number}")
            assert point is not None
            asked.append((f"t{number}", objective([float(value) for value in point.values()])))
            if len(asked) == 2:
                name, found = asked.pop(0)
                search.tell(name, Value(found[0], found[1:]))
                yield found


def evolved(problem: str, trials: int, seed: int) -> Iterator[Point]:
    """Yield what Optuna's NSGA-II finds, which podium does not offer."""
    objective, count = PROBLEMS[problem]
    random.seed(seed)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(population_size=20, seed=seed)
    study = optuna.create_study(directions=["minimize"] * 2, sampler=sampler)
    for _ in range(trials):
        trial = study.ask()
        found = objective([trial.suggest_float(f"x{at}", 0.001, 1.0) for at in range(count)])
        study.tell(trial, found)
        yield found


def main() -> None:
    """Print a row for each problem and algorithm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument(
        "--algorithms", nargs="+", default=["random", "tpe", "multivariate-tpe", "nsga2"]
    )
    given = parser.parse_args()
    for problem in given.problems:
        for algorithm in given.algorithms:
            began, areas = time.perf_counter(), []
            for seed in range(given.seeds):
                nsga2 = algorithm == "nsga2"
                found = evolved(problem, given.trials, seed) if nsga2 else searched(
                    algorithm, problem, given.trials, seed
                )  # fmt: skip
                areas.append(area(list(found)))
            each = 1000 * (time.perf_counter() - began) / given.seeds / given.trials
            print(
                f"{problem:6} {algorithm:20} {mean(areas):.2f} ± {stdev(areas):.2f}  {each:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
