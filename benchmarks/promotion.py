"""How promotion rules do over 200 nights on one test part: `python benchmarks/promotion.py [--repeats N]`.

Each night a challenger is compared with the champion on the same test items. All models have a true accuracy of .90 and
err independently of each other, so every promotion is a false one, and what the champion's figure exceeds .90 by is
inflation. Power is how often a challenger of a true .92 would be promoted on the first night, and after 200 nights.
What is served in the end is the champion's true accuracy after 200 nights of challengers that do differ: their true
accuracies are normal around .90 with a standard deviation of .01. Steps down are promotions of a truly worse one then.
Prints a Markdown table; the one in docs/benchmarks.md comes from here.
"""

import argparse

import numpy as np

from podium.models.rule import PromotionRule, decide
from podium.scoring import METRICS

NIGHTS, TRUE, BETTER, SPREAD = 200, 0.90, 0.92, 0.01
RULES = ("better", "ladder", "significant", "significant,spend=nights")


def predictions(truth: float, items: int, random: np.random.Generator) -> np.ndarray:
    """Return predictions of class 0, which is the right one, with a probability."""
    return (random.random(items) >= truth).astype(np.int64)


def wins(rule: str, items: int, challenger: np.ndarray, champion: np.ndarray, night: int) -> bool:
    """Ask podium's own rule."""
    target = np.zeros(items, np.int64)
    return decide(PromotionRule.parse(rule), METRICS["accuracy"], target, challenger, champion, uses=night).promote


def season(rule: str, items: int, random: np.random.Generator) -> tuple[int, float, bool, bool]:
    """Return false promotions, inflation, and whether a better model wins on the first and after the last night."""
    champion = predictions(TRUE, items, random)
    first = wins(rule, items, predictions(BETTER, items, random), champion, 1)
    promoted = 0
    for night in range(1, NIGHTS + 1):
        challenger = predictions(TRUE, items, random)
        if challenger.sum() < champion.sum() and wins(rule, items, challenger, champion, night):
            champion, promoted = challenger, promoted + 1
    last = wins(rule, items, predictions(BETTER, items, random), champion, NIGHTS + 1)
    return promoted, float((champion == 0).mean()) - TRUE, first, last


def differing(rule: str, items: int, random: np.random.Generator) -> tuple[float, int]:
    """Return the champion's true accuracy after 200 nights of challengers that differ, and its steps down."""
    truth, champion, down = TRUE, predictions(TRUE, items, random), 0
    for night in range(1, NIGHTS + 1):
        other = random.normal(TRUE, SPREAD)
        challenger = predictions(other, items, random)
        if challenger.sum() < champion.sum() and wins(rule, items, challenger, champion, night):
            truth, champion, down = other, challenger, down + (other < truth)
    return truth, down


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="seasons a row")
    repeats = parser.parse_args().repeats
    heads = ("rule", "test items", "false promotions", "seasons with one", "inflation", "power, night 1", "after 200",
             "served in the end", "steps down")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for items in (300, 1000):
        for rule in RULES:
            random = np.random.default_rng(0)
            rows = np.array([season(rule, items, random) for _ in range(repeats)], float)
            promoted, inflation, first, last = rows.mean(0)
            any_one = (rows[:, 0] > 0).mean()
            shares = " | ".join(f"{share:.0%}" for share in (first, last))
            served, down = np.mean([differing(rule, items, random) for _ in range(repeats)], 0)
            print(f"| `{rule}` | {items:,} | {promoted:.2f} | {any_one:.0%} | {inflation:+.4f} | {shares} "
                  f"| {served:.4f} | {down:.2f} |")  # fmt: skip


if __name__ == "__main__":
    main()
