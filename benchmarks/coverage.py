"""How often 95 % intervals hold the truth: `python benchmarks/coverage.py [--repeats N]`.

Each row is a metric on made-up test parts whose true figure is known; a part has 30, 100 or 1,000 items, or 10 or 20
groups of 20 items that err alike. Two models err with the same distribution, so the true difference is 0. "printed" is
how many parts have the interval at all: of too few items of a class there is none. "p <= .05" is how often the paired
test tells the two equal models apart, "relied on" how often it does so without saying that p and the interval are not
reliable. Prints a Markdown table; the one in docs/benchmarks.md comes from here.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np

from podium.scoring import METRICS, compare
from podium.scoring.intervals import difference, figure_interval

Array = np.ndarray
Part = tuple[Array, Array, Array]
"""Target, and the predictions of two models."""

GROUP = 20
TRUTH = 400_000
"""Items that a true figure is measured on."""


def numbers(errors: Callable[[np.random.Generator, tuple[int, int]], Array]) -> Callable[..., Part]:
    """Return what draws a regression whose two models have errors of a distribution."""

    def draw(items: int, random: np.random.Generator, hardness: Array | None) -> Part:
        target, wrong = random.normal(size=items), errors(random, (2, items))
        if hardness is not None:
            wrong = wrong * np.exp(0.5 * hardness)
        return target, target + wrong[0], target + wrong[1]

    return draw


def labels(shares: tuple[float, ...], skill: float) -> Callable[..., Part]:
    """Return what draws a classification with classes of given shares, seen by two models."""

    def draw(items: int, random: np.random.Generator, hardness: Array | None) -> Part:
        target = random.choice(len(shares), p=shares, size=items)
        logits = random.normal(size=(2, items, len(shares))) + np.log(shares)
        logits[:, np.arange(items), target] += skill
        if hardness is not None:
            logits[:, np.arange(items), target] -= hardness
        logits -= logits.max(2, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(2, keepdims=True)
        return target, chances[0], chances[1]

    return draw


def unequal(random: np.random.Generator, size: tuple[int, int]) -> Array:
    """Draw errors of equal mean square, of which one model has 2 % large ones."""
    large = np.where(random.random(size[1]) < 0.02, 6.14, 0.5)
    return (
        random.normal(size=size) * np.stack([np.ones(size[1]), large * 0.998])
        if size[1]
        else np.empty(size)
    )


NORMAL = numbers(lambda random, size: random.normal(size=size))
HEAVY = numbers(lambda random, size: random.standard_t(3, size=size))
EVEN, RARE, FIVE = (
    labels((0.5, 0.5), 2.0),
    labels((0.9, 0.1), 2.0),
    labels((0.4, 0.3, 0.1, 0.1, 0.1), 2.0),
)
CASES = {
    "accuracy": ("accuracy", EVEN), "accuracy, 10 % positives": ("accuracy", RARE),
    "balanced_accuracy": ("balanced_accuracy", EVEN), "balanced_accuracy, 10 % positives": ("balanced_accuracy", RARE),
    "balanced_accuracy, 5 classes": ("balanced_accuracy", FIVE),
    "f1_macro": ("f1_macro", EVEN), "f1_macro, 10 % positives": ("f1_macro", RARE),
    "f1_macro, 5 classes": ("f1_macro", FIVE),
    "roc_auc": ("roc_auc", EVEN), "roc_auc, 10 % positives": ("roc_auc", RARE), "roc_auc, 5 classes": ("roc_auc", FIVE),
    "log_loss": ("log_loss", EVEN), "log_loss, 10 % positives": ("log_loss", RARE),
    "rmse, normal errors": ("rmse", NORMAL), "rmse, t3 errors": ("rmse", HEAVY),
    "mae, normal errors": ("mae", NORMAL), "mae, t3 errors": ("mae", HEAVY),
    "r2, normal errors": ("r2", NORMAL), "r2, t3 errors": ("r2", HEAVY),
    "rmse, 2 % large errors": ("rmse", numbers(unequal)),
}  # fmt: skip


def covered(
    name: str, size: str, repeats: int, tests: int, random: np.random.Generator
) -> tuple[float, ...]:
    """Return the shares of parts whose figure's and difference's interval is printed, and holds; of p <= .05; and of
    such a p that is said to be reliable."""
    metric, draw = METRICS[CASES[name][0]], CASES[name][1]
    grouped = size.endswith("groups")
    count = int(size.replace(",", "").split()[0]) * (GROUP if grouped else 1)
    groups = np.arange(count) // GROUP if grouped else None
    many = np.arange(TRUTH) // GROUP
    hardness = random.normal(size=many[-1] + 1)[many] if grouped else None
    target, first, _ = draw(TRUTH, random, hardness)
    truth = metric.value(target, first)
    held = []
    for repeat in range(repeats):
        hardness = random.normal(size=groups[-1] + 1)[groups] if groups is not None else None
        target, first, second = draw(count, random, hardness)
        if np.isnan(metric.value(target, first)):
            continue
        found = relied = np.nan
        if repeat < tests:
            tested = compare(metric, target, first, second, groups)
            if tested.p_value is not None:
                found = tested.p_value <= 0.05
                relied = found and not tested.doubt
        of_figure = figure_interval(metric, target, first, groups)
        of_change = difference(metric, target, first, second, groups).interval
        held.append([*_holds(of_figure, truth), *_holds(of_change, 0.0), found, relied])
    with warnings.catch_warnings(action="ignore"):  # a column may be empty
        return tuple(np.nanmean(np.array(held, float), axis=0))


def _holds(interval: tuple[float, float] | None, truth: float) -> tuple[float, float]:
    return (0.0, np.nan) if interval is None else (1.0, float(interval[0] <= truth <= interval[1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="test parts a row")
    parser.add_argument(
        "--tests",
        type=int,
        default=0,
        help="of these, parts whose p value is computed: seconds each",
    )
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--sizes", default="30;100;1,000;10 groups;20 groups", help="test parts")
    given = parser.parse_args()
    heads = (
        "metric",
        "test part",
        "printed",
        "figure",
        "printed",
        "difference",
        "p <= .05",
        "relied on",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in CASES:
        if not name.startswith(tuple(given.only.split(";"))):
            continue
        for size in filter(None, given.sizes.split(";")):
            shares = covered(name, size, given.repeats, given.tests, np.random.default_rng(0))
            print(
                f"| {name} | {size} | {' | '.join(f'{share:.3f}' for share in shares)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
