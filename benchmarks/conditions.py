"""What conditions are worth: the same search with and without them, less being better.

    python benchmarks/conditions.py --seeds 40

"family" is a choice between three optimizers with three parameters of their own each, "layers" up to six layers with a
width each; what does not count changes nothing. A search without conditions is given all parameters in each trial.
"""

import argparse
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, stdev

from podium.manifests.options.conditions import conditional
from podium.search.search import Search
from podium.search.space import Parameter

AFTER = (30, 60, 100)

OWN = {
    "sgd": {"momentum": 0.9, "dampening": 0.2, "clip": 0.7},
    "adam": {"beta1": 0.9, "beta2": 0.99, "eps": 0.1},
    "lamb": {"trust": 0.4, "bound": 0.6, "decay": 0.3},
}
"""The best values of each optimizer's own parameters."""

BASE, RATE = {"sgd": 0.15, "adam": 0.0, "lamb": 0.1}, {"sgd": -1.0, "adam": -2.5, "lamb": -2.0}
LAYERS = range(2, 7)
LR = Parameter(name="lr", kind="double", low=1e-5, high=1.0, distribution="logUniform")
FAMILY = [
    Parameter(name="family", kind="categorical", choices=tuple(OWN)), LR,
    *(Parameter(name=name, kind="double", low=0.0, high=1.0) for names in OWN.values() for name in names),
]  # fmt: skip
DEPTH = [
    Parameter(name="layers", kind="int", low=1, high=6, step=1), LR,
    *(Parameter(name=f"width{layer}", kind="int", low=8, high=128, step=1) for layer in LAYERS),
]  # fmt: skip


def family(point: Mapping[str, str]) -> float:
    """Return how far a point is from the best one."""
    chosen = point["family"]
    own = sum((float(point[name]) - best) ** 2 for name, best in OWN[chosen].items())
    return BASE[chosen] + own + 0.1 * (math.log10(float(point["lr"])) - RATE[chosen]) ** 2


def layers(point: Mapping[str, str]) -> float:
    """Return how far a point is from the best one, which has three layers."""
    count = int(point["layers"])
    widths = sum(
        ((int(point[f"width{layer}"]) - 128 / layer) / 60) ** 2
        for layer in LAYERS
        if layer <= count
    )
    return 0.2 * abs(count - 3) + widths + 0.1 * (math.log10(float(point["lr"])) + 2) ** 2


PROBLEMS: dict[str, tuple[list[Parameter], Callable[[Mapping[str, str]], float], str]] = {
    "family": (
        FAMILY,
        family,
        "; ".join(f"{name} if family={own}" for own, names in OWN.items() for name in names),
    ),
    "layers": (DEPTH, layers, "; ".join(f"width{layer} if layers>={layer}" for layer in LAYERS)),
}


def search(problem: str, algorithm: str, conditions: bool, seed: int) -> list[float]:
    """Return the best value after some numbers of trials."""
    space, value, text = PROBLEMS[problem]
    given = conditional(space, {"conditions": (text,)} if conditions else {})
    best = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        found = Search(
            given,
            algorithm,
            {"random_state": seed},
            maximize=False,
            directory=Path(folder),
            name="s",
        )
        for number in range(max(AFTER)):
            point = found.ask(f"t{number}")
            assert point is not None
            reached = value(point)
            found.tell(f"t{number}", reached)
            best.append(min(reached, best[-1] if best else math.inf))
    return [best[after - 1] for after in AFTER]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--algorithms", nargs="+", default=["random", "tpe", "multivariate-tpe"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"| problem | algorithm | {' | '.join(f'after {after}: without, with, better in' for after in AFTER)} |"
    )
    print("|---|---|" + "---|" * len(AFTER))
    for problem in PROBLEMS:
        for algorithm in given.algorithms:
            pairs = [
                [search(problem, algorithm, known, seed) for known in (False, True)]
                for seed in range(given.seeds)
            ]
            cells = []
            for at in range(len(AFTER)):
                without, with_them = ([pair[side][at] for pair in pairs] for side in (0, 1))
                better = sum(new < old for old, new in zip(without, with_them, strict=True))
                error = [stdev(values) / math.sqrt(len(values)) for values in (without, with_them)]
                cells.append(f"{mean(without):.3f} ± {error[0]:.3f}, {mean(with_them):.3f} ± {error[1]:.3f}, "
                             f"{better} of {given.seeds}")  # fmt: skip
            print(f"| {problem} | {algorithm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
