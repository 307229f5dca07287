"""How promotion rules do over 200 nights on one test part: `python benchmarks/promotion.py`.

Each night a challenger is compared with the champion on the same test items. In the null seasons all models have a true
accuracy of .90, so every promotion is a false one; what a champion's printed figure exceeds .90 by is too much. Power
is how often a challenger that is truly 1 or 2 points better is promoted on the first night. What is served in the end
is the champion's true accuracy after 200 nights of challengers that do differ: normal around .90 with a standard
deviation of .01.

Errors are independent, or correlated: models share hard items, so that two of them differ on half as many. A growing
test part gets a twentieth of its items anew each night; a drifting one changes under all models, which lose a
point in 100 nights. Permuted rows change nothing, as no rule looks at the order; the last check says so.

Seasons run side by side as arrays; a season keeps, of all models, the figures and, of the champion, the errors. Rules
are those of podium.models.rule; each run first compares them with podium.models.decide.

`--fresh` is about the criterion `fresh` instead: 1,000 new items a night, and one champion until somebody beats it. In
10,000 null seasons of 1,000 nights every challenger is better by the margin and no more; power is of ten nights whose
challengers are all so much better. Where half of the challengers are 2 points better and the others 1 point worse, by
chance, it is how often the one that is promoted is one of the worse.
"""

import argparse
from collections.abc import Iterator
from itertools import count

import numpy as np
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from podium.models import PromotionRule, decide
from podium.models.decision import ALIKE, Earlier, are_alike
from podium.models.fresh import LEVEL, STAKES, Bets, bet
from podium.models.rule import PRIOR_MODELS, PRIOR_SPREAD
from podium.scoring import METRICS

NIGHTS, TRUE, SPREAD = 200, 0.90, 0.01
RULES = ("better", "likely=.8", "likely=.9", "likely=.97")
SHARED = {"independent": 0.0, "correlated": 0.75}
"""Correlation of two models' latent errors; .75 halves the share of items on which two differ."""


class Season:
    """Seasons side by side: the test items and what all models share on them."""

    def __init__(self, seasons: int, items: int, shared: float, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.shared = shared
        self.hard = self.random.normal(size=(seasons, items)).astype(np.float32)

    def right(self, truth: np.ndarray) -> np.ndarray:
        """Return which items models of these true accuracies, [seasons], have right."""
        own = self.random.standard_normal(self.hard.shape, dtype=np.float32)
        latent = self.shared**0.5 * self.hard + (1 - self.shared) ** 0.5 * own
        return latent < norm.ppf(truth).astype(np.float32)[:, None]

    def renew(self, share: float) -> None:
        """Exchange the oldest items for new ones."""
        count = max(1, int(share * self.hard.shape[1]))
        fresh = self.random.standard_normal((len(self.hard), count), dtype=np.float32)
        self.hard = np.concatenate([self.hard[:, count:], fresh], axis=1)


class Board:
    """The recorded figures of each season, and what they say of a lead."""

    def __init__(self) -> None:
        self.others = list[np.ndarray]()
        self.noises: np.ndarray | float = 0.0
        self.compared: np.ndarray | float = 0.0

    def add(
        self, value: np.ndarray, champion: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Take the figures of a challenger and the champion; return mean, weight and noise."""
        usual = (self.noises + noise) / (self.compared + 1)
        near = np.abs(value - champion) <= ALIKE * np.sqrt(noise)
        self.noises, self.compared = self.noises + noise * near, self.compared + near
        figures = np.stack([value, champion, *self.others])
        alike = np.abs(figures - champion) <= ALIKE * np.sqrt(np.maximum(usual, noise))
        alike[:2] = True
        others = alike[2:].sum(0)
        mean, squares = scatter(figures, alike)
        own = np.square(value - champion) / 2
        noise, usual = (np.maximum(each, 1e-300) for each in (noise, usual))
        by_chance = np.minimum(others * usual, 2 * (scatter(figures[2:], alike[2:])[1] + usual))
        telling = np.minimum(noise, usual) / np.maximum(noise, usual)
        theirs = telling * noise / usual * (squares - own - by_chance)
        prior = PRIOR_MODELS * noise * PRIOR_SPREAD**2
        spread = np.maximum(0, (own - noise + theirs + prior) / (others + 1 + PRIOR_MODELS))
        return mean, spread / np.maximum(spread + noise, 1e-300), noise


def scatter(figures: np.ndarray, alike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the figures that count, and the sum of their squared distances from it."""
    mean = (figures * alike).sum(0) / np.maximum(1, alike.sum(0))
    return mean, (np.square(figures - mean) * alike).sum(0)


def nights(
    rule: str, season: Season, truths: Iterator[np.ndarray], *, growth: float = 0, drift: float = 0
) -> tuple[np.ndarray, ...]:
    """Return promotions, printed figure, shrunk figure and truth of the last champion."""
    truth = next(truths)
    champion = season.right(truth)
    board = Board()
    promoted = np.zeros(len(truth))
    mean, weight = champion.mean(1), np.zeros(len(truth))
    for night in range(1, NIGHTS + 1):
        other = next(truths)
        if growth:
            season.renew(growth)
            champion = np.concatenate(
                [champion[:, (count := max(1, int(growth * champion.shape[1]))) :],
                 season.right(truth - drift * night)[:, -count:]], axis=1,
            )  # fmt: skip
        challenger = season.right(other - drift * night)
        lead = challenger.mean(1) - champion.mean(1)
        noise = (challenger != champion).mean(1) / (2 * champion.shape[1])
        mean, weight, error = board.add(challenger.mean(1), champion.mean(1), noise)
        level = float(rule.partition("=")[2] or 0)
        likely = ndtr(lead * np.sqrt(weight) / np.sqrt(2 * np.maximum(error, 1e-300)))
        wins = (likely >= level) & (lead > 0) if level else lead > 0
        board.others.append(np.where(wins, champion.mean(1), challenger.mean(1)))
        champion[wins], truth = challenger[wins], np.where(wins, other, truth)
        promoted += wins
    printed = champion.mean(1)
    return promoted, printed, mean + weight * (printed - mean), truth - drift * NIGHTS


def equal(seasons: int) -> Iterator[np.ndarray]:
    """Yield the same true accuracies every night."""
    while True:
        yield np.full(seasons, TRUE)


def broken(seasons: int) -> Iterator[np.ndarray]:
    """Yield the same, but that the third night's challenger guesses."""
    for night in count():
        yield np.full(seasons, 0.5 if night == 3 else TRUE)


def differing(seasons: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the true accuracies of models that differ; the first is average."""
    random = np.random.default_rng(seed)
    yield np.full(seasons, TRUE)
    while True:
        yield random.normal(TRUE, SPREAD, seasons)


def power(rule: str, season: Season, points: float) -> float:
    """Return how often a model that is better by so much wins on the first night."""
    seasons = len(season.hard)
    champion = season.right(np.full(seasons, TRUE))
    challenger = season.right(np.full(seasons, TRUE + points))
    noise = (challenger != champion).mean(1) / (2 * champion.shape[1])
    _, weight, error = Board().add(challenger.mean(1), champion.mean(1), noise)
    lead, level = challenger.mean(1) - champion.mean(1), float(rule.partition("=")[2] or 0)
    likely = ndtr(lead * np.sqrt(weight) / np.sqrt(2 * np.maximum(error, 1e-300)))
    return float(((likely >= level) & (lead > 0) if level else lead > 0).mean())


def check() -> None:
    """Compare the arrays with podium's own rule, and the order of rows with another."""
    random = np.random.default_rng(1)
    right = Season(12, 400, 0.5, 1).right(random.normal(0.9, 0.02, 12))
    board, target = Board(), np.zeros(400, np.int64)
    figures, noises = list[float](), list[float]()
    for given in right[1:]:
        noise = (given != right[0]).mean() / 800
        _, weight, error = board.add(given[None].mean(1), right[:1].mean(1), np.array([noise]))
        board.others.append(given[None].mean(1))
        lead = given.mean() - right[0].mean()
        expected = ndtr(lead * np.sqrt(weight) / np.sqrt(2 * error))[0]
        order = random.permutation(400)
        earlier = Earlier(figures=tuple(figures), noises=tuple(noises))
        models = (1 - given.astype(np.int64))[order], (1 - right[0].astype(np.int64))[order]
        decided = decide(PromotionRule(), METRICS["accuracy"], target, *models, earlier=earlier)
        assert abs(decided.figures["probability"] - expected) < 1e-9
        figures.append(float(given.mean()))
        if are_alike(given.mean(), right[0].mean(), float(noise)):
            noises.append(float(noise))


def row(rule: str, items: int, errors: str, seasons: int) -> str:
    """Return a row of the table."""

    def again(seed: int = 0, count: int = seasons) -> Season:
        return Season(count, items, SHARED[errors], seed)

    false, printed, shrunk, _ = nights(rule, again(), equal(seasons))
    truth = nights(rule, again(2), differing(seasons, 2))[3]
    grown = nights(rule, again(3), equal(seasons), growth=0.05)[0]
    after = nights(rule, again(), broken(seasons))[0]
    _, raw, believed, now = nights(rule, again(4), equal(seasons), growth=0.05, drift=1e-4)
    cells = [
        f"`{rule}`", f"{items:,}", errors, f"{false.mean():.2f}", f"{(false > 0).mean():.0%}",
        f"{printed.mean() - TRUE:+.4f}", f"{shrunk.mean() - TRUE:+.4f}",
        f"{power(rule, again(5, 1000), 0.01):.0%}", f"{power(rule, again(6, 1000), 0.02):.0%}",
        f"{truth.mean():.4f}", f"{(after > 0).mean():.0%}", f"{grown.mean():.2f}",
        f"{(raw - now).mean():+.4f}, {(believed - now).mean():+.4f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def sides(lead: float, shared: float) -> np.ndarray:
    """Return the shares of items that only the challenger, only the champion, and both or none have right."""
    truths = np.array([TRUE + lead, TRUE])
    both = multivariate_normal([0, 0], [[1, shared], [shared, 1]]).cdf(norm.ppf(truths))
    only = truths - both
    return np.array([*only, 1 - only.sum()])


def wealth(margin: float) -> np.ndarray:
    """Return the log of what each stake makes of 1 by an item of each of these sides."""
    shares = (np.array([1, -1, 0]) - margin) / (1 + margin)
    return np.log1p(np.outer(STAKES, shares))


def reign(
    season: tuple[int, int],
    leads: tuple[float, ...],
    shared: float,
    margin: float,
    seed: int,
    items: int = 1000,
) -> np.ndarray:
    """Return the lead of the first challenger that is promoted in each of (seasons, nights); NaN if none is."""
    seasons, nights = season
    random, won, logs = (
        np.random.default_rng(seed),
        np.full(seasons, np.nan),
        np.zeros((seasons, len(STAKES))),
    )
    chances, each = np.array([sides(lead, shared) for lead in leads]), wealth(margin)
    for _ in range(nights):
        which = random.integers(len(leads), size=seasons)
        gained = random.binomial(items, chances[which, 0])
        lost = random.binomial(items - gained, chances[which, 1] / (1 - chances[which, 0]))
        logs += np.stack([gained, lost, items - gained - lost], axis=1) @ each.T
        promoted = (np.exp(logs).mean(1) >= 1 / LEVEL) & (gained - lost > margin * items)
        won = np.where(np.isnan(won) & promoted, np.array(leads)[which], won)
    return won


def fresh_row(errors: str, margin: float) -> str:
    """Return a row of the table of fresh."""
    shared = SHARED[errors]
    null = reign((10_000, 1000), (margin,), shared, margin, 1)
    powers = [reign((10_000, 10), (lead,), shared, margin, 2) for lead in (0.01, 0.02)]
    mixed = reign((10_000, 100), (0.02, -0.01), shared, margin, 3)
    cells = [
        f"`fresh={margin:g}`", errors, f"{np.isfinite(null).mean():.1%}",
        *(f"{np.isfinite(power).mean():.0%}" for power in powers), f"{(mixed < 0).mean():.1%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def check_fresh() -> None:
    """Compare a night of counts with podium's own bets."""
    counts, gains = np.array([60, 40, 900]), np.repeat([1.0, -1.0, 0.0], [60, 40, 900])
    own = bet(Bets(), gains, np.arange(1000), 0.005, exact=True)[0]
    assert np.allclose(own.logs, wealth(0.005) @ counts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seasons", type=int, default=60, help="of each kind")
    parser.add_argument("--items", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--fresh", action="store_true", help="bets on new items instead")
    given = parser.parse_args()
    if given.fresh:
        check_fresh()
        columns = "rule | errors | null seasons with a promotion | +1 point | +2 points | promoted is the worse"
        print(f"| {columns} |\n|{'---|' * 6}", flush=True)
        for errors in SHARED:
            for margin in (0, 0.005):
                print(fresh_row(errors, margin), flush=True)
        return
    check()
    heads = ("rule", "test items", "errors", "false promotions", "seasons with one", "printed − truth",
             "shrunk − truth", "+1 point, night 1", "+2 points, night 1", "served in the end",
             "seasons with one, a broken model", "false, growing", "drifting: printed, shrunk − truth")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for items in given.items:
        for errors in SHARED:
            for rule in RULES:
                print(row(rule, items, errors, given.seasons), flush=True)


if __name__ == "__main__":
    main()
