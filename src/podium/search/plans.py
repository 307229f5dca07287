"""Algorithms that plan their points themselves: grid, sobol, hyperband, and asha, which is our own addition."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.search.distributions import at
from podium.search.space import Parameter, count_points

Point = dict[str, str]


@dataclass(kw_only=True)
class Seen:
    """A trial that an earlier process began."""

    trial: str
    point: Point
    value: float | None
    running: bool
    tags: dict[str, str] = field(default_factory=dict)


class Plan:
    """Gives points one by one; a resumed plan recalls what it gave before."""

    finished = False

    def __init__(self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool) -> None:
        self.space = space
        self.settings = settings
        self.maximize = maximize
        self.given = 0

    def next(self, trial: str) -> Point | None:
        """Return the next point; None if there is none now (it must wait) or ever (finished)."""
        raise NotImplementedError

    def tags(self, trial: str) -> dict[str, str]:
        """Return what a trial that was given a point has to remember, beside its values."""
        return {}

    def tell(self, trial: str, value: float | None) -> None:
        """Learn what became of a trial."""

    def recall(self, history: Iterable[Seen]) -> None:
        """Go on after the given trials, oldest first."""
        self.given = len(list(history))


class Grid(Plan):
    """Every point once, in an order that looks random and stays the same when more trials are allowed later."""

    def __init__(self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool) -> None:
        super().__init__(space, settings, maximize)
        self.count = count_points(space)
        draw = random.Random(settings.get("random_state", 0))
        self.start = draw.randrange(self.count)
        # A stride without common divisor with the count visits every point, and needs no list of them.
        self.stride = next(
            stride for stride in iter(lambda: draw.randrange(self.count) + 1, 0) if math.gcd(stride, self.count) == 1
        )
        self.finished = False

    def next(self, trial: str) -> Point | None:
        """Return the next point, None after the last."""
        if self.given >= self.count:
            self.finished = True
            return None
        number = (self.start + self.given * self.stride) % self.count
        self.given += 1
        point = {}
        for parameter in self.space:
            number, step = divmod(number, parameter.points)
            point[parameter.name] = parameter.nth(step)
        return point


class Sobol(Plan):
    """A Sobol sequence without its first point, the corner; scrambled if it has a seed."""

    def next(self, trial: str) -> Point | None:
        """Return the next point."""
        from scipy.stats import qmc

        seed = self.settings.get("random_state")
        engine = qmc.Sobol(len(self.space), scramble=seed is not None, seed=seed)
        # When scrambled, the first point is not a corner, and the sequence is even only with it.
        if past := self.given + (seed is None):
            engine.fast_forward(past)  # not by 0: it would raise OverflowError
        self.given += 1
        unit = engine.random(1)[0]
        return {parameter.name: at(parameter, float(u)) for parameter, u in zip(self.space, unit, strict=True)}


class Hyperband(Plan):
    """Katib's brackets: ``s`` from s_max to 0, each beginning with n trials of r_l / eta^s, the best 1/eta continuing.

    Katib itself gets stuck when a bracket's second rung has fewer points than it asks for; here each rung begins when
    the one before has ended.
    """

    def __init__(self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool) -> None:
        super().__init__(space, settings, maximize)
        self.resource, self.eta = settings["resource_name"], settings.get("eta", 3)
        self.draw = random.Random(settings.get("random_state"))
        self.rungs = _hyperband_rungs(settings["r_l"], self.eta)
        self.rung = -1
        self.queue: list[Point] = []
        self.open: dict[str, Point] = {}
        self.done: list[tuple[float | None, Point]] = []

    def next(self, trial: str) -> Point | None:
        """Return the next point of the rung; None while it is being finished."""
        if not self.queue and not self.open:
            self._next_rung()
        if not self.queue:
            return None
        self.open[trial] = point = self.queue.pop(0)
        return point

    def tell(self, trial: str, value: float | None) -> None:
        """Take a trial's result into its rung."""
        if trial in self.open:
            self.done.append((value, self.open.pop(trial)))

    def recall(self, history: Iterable[Seen]) -> None:
        """Replay: the rungs follow from the results, the points from the trials."""
        for seen in history:
            if not self.queue and not self.open:
                self._next_rung()
            if self.queue:  # equals may have been promoted in another order
                self.queue.remove(seen.point) if seen.point in self.queue else self.queue.pop(0)
            self.open[seen.trial] = seen.point
            if not seen.running:
                self.tell(seen.trial, seen.value)

    def _next_rung(self) -> None:
        self.rung += 1
        if self.rung >= len(self.rungs):
            self.finished = True
            return
        count, resource, first = self.rungs[self.rung]
        if first:
            points = [_sample(self.space, self.draw) for _ in range(count)]
        else:
            points = [point for _, point in _best_first(self.done, self.maximize)][:count]
        self.done = []
        self.queue = [{**point, self.resource: str(resource)} for point in points]


class Asha(Plan):
    """Successive halving without waiting: the best 1/eta of a rung continue as soon as they are known (Li 2020)."""

    def __init__(self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool) -> None:
        super().__init__(space, settings, maximize)
        self.resource, self.eta = settings["resource_name"], settings.get("eta", 3)
        self.draw = random.Random(settings.get("random_state"))
        least, most = settings.get("r_min", 1.0), settings["r_l"]
        count = int(math.log(most / least) / math.log(self.eta) + 1e-9) + 1 if most >= least else 1
        self.levels = [str(int(least * self.eta**level)) for level in range(count)]
        self.results: list[dict[str, tuple[float | None, Point]]] = [{} for _ in self.levels]
        self.promoted: list[set[str]] = [set() for _ in self.levels]
        self.open: dict[str, tuple[int, Point]] = {}

    def next(self, trial: str) -> Point | None:
        """Promote where possible, highest rung first; else begin a new point."""
        for level in reversed(range(len(self.levels) - 1)):
            ranked = _best_first(list(self.results[level].values()), self.maximize)
            for _, point in ranked[: len(ranked) // self.eta]:
                if _key(point, self.resource) not in self.promoted[level]:
                    return self._begin(trial, level + 1, point)
        return self._begin(trial, 0, _sample(self.space, self.draw))

    def tell(self, trial: str, value: float | None) -> None:
        """Take a trial's result into its rung."""
        if trial in self.open:
            level, point = self.open.pop(trial)
            self.results[level][trial] = (value, point)

    def recall(self, history: Iterable[Seen]) -> None:
        """Put earlier trials into their rungs."""
        for seen in history:
            if seen.point[self.resource] in self.levels:
                level = self.levels.index(seen.point[self.resource])
                if level == 0:
                    _sample(self.space, self.draw)  # a seed must not give it again
                self._begin(seen.trial, level, seen.point)
                if not seen.running:
                    self.tell(seen.trial, seen.value)

    def _begin(self, trial: str, level: int, point: Point) -> Point:
        if level:
            self.promoted[level - 1].add(_key(point, self.resource))
        begun = {**point, self.resource: self.levels[level]}
        self.open[trial] = (level, begun)
        return begun


def budget(parameter: Parameter, most: float) -> Parameter:
    """Return the parameter of a resource as hyperband and asha give it: whole numbers, as in Katib past its bounds."""
    return Parameter(name=parameter.name, kind="int", low=1.0, high=float(int(most)), step=1.0)


def _sample(space: Sequence[Parameter], draw: random.Random) -> Point:
    return {parameter.name: at(parameter, draw.random()) for parameter in space}


def _hyperband_rungs(most: float, eta: int) -> list[tuple[int, int, bool]]:
    """Return (trials, resource, whether they are new) of each rung (katib: pkg/suggestion/v1beta1/hyperband)."""
    highest = int(math.log(most) / math.log(eta) + 1e-9)
    rungs = []
    for s in range(highest, -1, -1):
        count = math.ceil((highest + 1) * eta**s / (s + 1))
        resource = most * eta**-s
        for i in range(s + 1):
            rungs.append((count, max(int(resource * eta**i + 1e-9), 1), i == 0))
            count = math.ceil(count / eta)
    return rungs


def _best_first(results: Sequence[tuple[float | None, Point]], maximize: bool) -> list[tuple[float | None, Point]]:
    sign = -1.0 if maximize else 1.0
    return sorted(results, key=lambda result: (result[0] is None, sign * (result[0] or 0.0)))


def _key(point: Point, resource: str) -> str:
    return repr(sorted((name, value) for name, value in point.items() if name != resource))
