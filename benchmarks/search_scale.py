"""Measure what a suggestion costs in a long sweep, and what the bound on the sampler's history costs in regret.

    python benchmarks/search_scale.py time --trials 1000 5000 10000
    python benchmarks/search_scale.py regret --trials 1500 --limit 500 --seeds 20

`time` fills a study with random points and prints the CPU milliseconds of `Search.ask` and `Search.tell` (medians).
`regret` searches with the whole history and with at most `--limit` trials seen, the same seeds side by side, and prints
a line for each search; the best value there is is 0. The algorithms' own limits are in `podium.search.bayesian`.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import describe

from podium.manifests.experiment.space import read_space
from podium.search.algorithms import ALGORITHMS
from podium.search.search import Search
from podium.search.space import Parameter

WHOLE = 10**9
ROWS = (
    ((10, 3, 17, 3.5, 1.7, 8), (1312, 1696, 5569, 124, 8283, 5886), 1.0),
    ((0.05, 10, 17, 0.1, 8, 14), (2329, 4135, 8307, 3736, 1004, 9991), 1.2),
    ((3, 3.5, 1.7, 10, 17, 8), (2348, 1451, 3522, 2883, 3047, 6650), 3.0),
    ((17, 8, 0.05, 10, 0.1, 14), (4047, 8828, 8732, 5743, 1091, 381), 3.2),
)


def hartmann6(point: Mapping[str, str]) -> float:
    """Return the Hartmann function of six variables, above its minimum."""
    x = [float(value) for value in point.values()]
    terms = (
        weight
        * math.exp(
            -sum(a * (v - p / 10_000) ** 2 for a, v, p in zip(slopes, x, places, strict=True))
        )
        for slopes, places, weight in ROWS
    )
    return 3.32236801 - sum(terms)


def mixed(point: Mapping[str, str]) -> float:
    """Return what a training might: a learning rate that depends on the optimizer, a width, a rate of dropout."""
    best = {"sgd": -1.0, "adam": -3.0, "adagrad": -2.0}[point["optimizer"]]
    penalty = {"sgd": 0.0, "adam": 0.02, "adagrad": 0.1}[point["optimizer"]]
    rate, width, drop = (
        math.log10(float(point["lr"])) - best,
        int(point["width"]),
        float(point["drop"]),
    )
    return (
        penalty
        + rate**2
        + (math.log2(width / 96)) ** 2 / 10
        + (drop - 0.3) ** 2
        + (point["batch"] != "32") * 0.05
    )


def doubles(count: int) -> list[Parameter]:
    """Return a space of numbers between 0 and 1."""
    space = {"min": "0", "max": "1"}
    return list(
        read_space(
            [
                {"name": f"x{place}", "parameterType": "double", "feasibleSpace": space}
                for place in range(count)
            ]
        )
    )


def mixed_space() -> list[Parameter]:
    """Return the space of `mixed`."""
    spaces: list[tuple[str, str, dict[str, Any]]] = [
        ("lr", "double", {"min": "0.00001", "max": "1", "distribution": "logUniform"}),
        ("width", "int", {"min": "8", "max": "512", "distribution": "logUniform"}),
        ("drop", "double", {"min": "0", "max": "0.9"}),
        ("batch", "discrete", {"list": ["16", "32", "64", "128"]}),
        ("optimizer", "categorical", {"list": ["sgd", "adam", "adagrad"]}),
    ]
    return list(
        read_space(
            [{"name": name, "parameterType": kind, "feasibleSpace": s} for name, kind, s in spaces]
        )
    )


def regret(
    algorithm: str, problem: str, seed: int, trials: int, limit: int
) -> tuple[float, float, float]:
    """Return the best value after half and after all of the trials, and the CPU seconds."""
    value, space = (hartmann6, doubles(6)) if problem == "hartmann6" else (mixed, mixed_space())
    ALGORITHMS.own[algorithm] = replace(ALGORITHMS[algorithm], history=limit)
    values, began = [], time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        settings = {"random_state": seed}
        search = Search(
            space, algorithm, settings, maximize=False, directory=Path(directory), name="study"
        )
        for number in range(trials):
            values.append(value(search.ask(f"t{number}") or {}))
            search.tell(f"t{number}", values[-1])
    return min(values[: trials // 2]), min(values), time.process_time() - began


def print_regret(options: argparse.Namespace) -> None:
    """Print a line for each search, then how the pairs compare."""
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(options.seeds):
        for problem in ("mixed", "hartmann6"):
            for algorithm in options.algorithms:
                ends = []
                for limit in (options.limit, WHOLE):
                    half, end, seconds = regret(algorithm, problem, seed, options.trials, limit)
                    ends.append(end)
                    seen = "all" if limit == WHOLE else limit
                    print(f"{problem:9} {algorithm:17} seed {seed:2} sees {seen:>4}: ", end="")
                    print(f"half {half:.5f} end {end:.5f} cpu {seconds:.0f} s", flush=True)
                pairs.setdefault((problem, algorithm), []).append((ends[0], ends[1]))
    for (problem, algorithm), found in pairs.items():
        bounded, whole = (statistics.median(column) for column in zip(*found, strict=True))
        better = sum(one <= other for one, other in found)
        print(
            f"{problem:9} {algorithm:17} median bounded {bounded:.5f} whole {whole:.5f},", end=" "
        )
        print(f"not worse in {better} of {len(found)}")


def print_time(options: argparse.Namespace) -> None:
    """Print the cost of a suggestion after some numbers of trials."""
    space, points = doubles(5), 11
    for trials in options.trials:
        for algorithm in options.algorithms:
            with tempfile.TemporaryDirectory() as directory:
                arguments: dict[str, Any] = {
                    "maximize": False,
                    "directory": Path(directory),
                    "name": "study",
                }
                fill = Search(space, "random", {"random_state": 1}, **arguments)
                for number in range(trials):
                    ask_and_tell(fill, number)
                search = Search(space, algorithm, {"random_state": 1}, **arguments)
                costs = [ask_and_tell(search, trials + number) for number in range(points)]
            ask, tell = (1000 * statistics.median(column) for column in zip(*costs, strict=True))
            print(
                f"{algorithm:20} after {trials:6} trials: ask {ask:6.1f} ms, tell {tell:5.1f} ms of CPU",
                flush=True,
            )


def ask_and_tell(search: Search, number: int) -> tuple[float, float]:
    """Return the CPU seconds of a trial's ask and tell."""
    began = time.process_time()
    point = search.ask(f"t{number}") or {}
    asked = time.process_time()
    search.tell(f"t{number}", sum((float(value) - 0.3) ** 2 for value in point.values()))
    return asked - began, time.process_time() - asked


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    timed = commands.add_parser("time")
    timed.add_argument("--trials", type=int, nargs="+", default=[1000, 5000, 10_000])
    timed.add_argument(
        "--algorithms",
        nargs="+",
        default=["random", "tpe", "multivariate-tpe", "bayesianoptimization"],
    )
    timed.set_defaults(run=print_time)
    compared = commands.add_parser("regret")
    compared.add_argument("--trials", type=int, default=1500)
    compared.add_argument("--limit", type=int, default=500)
    compared.add_argument("--seeds", type=int, default=20)
    compared.add_argument("--algorithms", nargs="+", default=["tpe", "multivariate-tpe"])
    compared.set_defaults(run=print_regret)
    options = parser.parse_args()
    print(describe())
    options.run(options)


if __name__ == "__main__":
    main()
