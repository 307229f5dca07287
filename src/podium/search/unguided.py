"""Algorithms whose points do not depend on results: random, grid, sobol."""

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from podium.search.algorithm import SEED, Algorithm, Plan, Point
from podium.search.space import Parameter, branches, settled

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class _Grid(Plan):
    """Every point once, in an order that looks random and stays the same when more trials are
    allowed later."""

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
        super().__init__(space, settings, maximize)
        self.branches = list(branches(space))
        self.ends = list(
            accumulate(
                (math.prod(each.points for each in free) for _, free in self.branches), initial=0
            )
        )
        self.count = self.ends[-1]
        draw = random.Random(settings.get("random_state", 0))
        self.start = draw.randrange(self.count)
        # A stride without common divisor with the count visits every point, and needs no list of
        # them.
        self.stride = next(
            stride
            for stride in iter(lambda: draw.randrange(self.count) + 1, 0)
            if math.gcd(stride, self.count) == 1
        )

    def next(self, trial: str) -> Point | None:
        if self.given >= self.count:
            return None
        number = (self.start + self.given * self.stride) % self.count
        self.given += 1
        branch = bisect_right(self.ends, number) - 1
        fixed, free = self.branches[branch]
        number -= self.ends[branch]
        point = dict(fixed)
        for parameter in free:
            number, step = divmod(number, parameter.points)
            point[parameter.name] = parameter.nth(step)
        return {parameter.name: point[parameter.name] for parameter in self.space}


class _Sobol(Plan):
    """A Sobol sequence without its first point, the corner; scrambled if it has a seed."""

    def next(self, trial: str) -> Point | None:
        from scipy.stats import qmc

        seed = self.settings.get("random_state")
        engine = qmc.Sobol(len(self.space), scramble=seed is not None, seed=seed)
        # When scrambled, the first point is not a corner, and the sequence is even only with it.
        if past := self.given + (seed is None):
            engine.fast_forward(past)  # not by 0: it would raise OverflowError
        self.given += 1
        unit = engine.random(1)[0]
        point = {each.name: each.at(float(u)) for each, u in zip(self.space, unit, strict=True)}
        return settled(self.space, point)


def _random_sampler(
    settings: Mapping[str, Any], warm: Any, seed: int, unseen: int
) -> "BaseSampler":
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


RANDOM = Algorithm(
    name="random",
    settings={"random_state": SEED},
    distributions=("logUniform", "normal", "logNormal"),
    sampler=_random_sampler,
    history=1000,
    takes_several=True,
    takes_conditions=True,
)
GRID = Algorithm(
    name="grid",
    settings={"random_state": SEED},
    distributions=("logUniform",),
    is_finite=True,
    needs_steps=True,
    plan=_Grid,
    takes_several=True,
    takes_conditions=True,
)
SOBOL = Algorithm(
    name="sobol",
    settings={"random_state": SEED},
    drops_unknown_settings=True,
    plan=_Sobol,
    takes_several=True,
    takes_conditions=True,
)
