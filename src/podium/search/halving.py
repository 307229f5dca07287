"""Successive halving: hyperband by Katib's brackets, and asha, which is our own addition."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podium.search.algorithm import SEED, Algorithm, PastTrial, Plan, Point, Setting
from podium.search.space import Parameter, settled


class _Hyperband(Plan):
    """Katib's brackets: ``s`` from s_max to 0, each beginning with n trials of r_l / eta^s, the
    best 1/eta continuing.

    Katib itself gets stuck when a bracket's second rung has fewer points than it asks for; here
    each rung begins when the one before has ended.
    """

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
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
        if trial in self.open:
            self.done.append((value, self.open.pop(trial)))

    def recall(self, history: Iterable[PastTrial]) -> None:
        """Replay: the rungs follow from the results, the points from the trials."""
        for past in history:
            if not self.queue and not self.open:
                self._next_rung()
            if self.queue:  # equals may have been promoted in another order
                self.queue.remove(past.point) if past.point in self.queue else self.queue.pop(0)
            self.open[past.trial] = past.point
            if not past.running:
                self.tell(past.trial, past.value)

    def _next_rung(self) -> None:
        self.rung += 1
        if self.rung >= len(self.rungs):
            return
        count, resource, first = self.rungs[self.rung]
        if first:
            points = [_sample(self.space, self.draw) for _ in range(count)]
        else:
            points = [point for _, point in _best_first(self.done, self.maximize)][:count]
        self.done = []
        self.queue = [{**point, self.resource: str(resource)} for point in points]


class _Asha(Plan):
    """Successive halving without waiting: the best 1/eta of a rung continue as soon as they are
    known (Li 2020)."""

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
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
            for value, point in ranked[: len(ranked) // self.eta]:
                if value is not None and _key(point, self.resource) not in self.promoted[level]:
                    return self._begin(trial, level + 1, point)
        return self._begin(trial, 0, _sample(self.space, self.draw))

    def tell(self, trial: str, value: float | None) -> None:
        if trial in self.open:
            level, point = self.open.pop(trial)
            self.results[level][trial] = (value, point)

    def recall(self, history: Iterable[PastTrial]) -> None:
        """Put earlier trials into their rungs."""
        for past in history:
            if past.point[self.resource] in self.levels:
                level = self.levels.index(past.point[self.resource])
                if level == 0:
                    _sample(self.space, self.draw)  # a seed must not give it again
                self._begin(past.trial, level, past.point)
                if not past.running:
                    self.tell(past.trial, past.value)

    def _begin(self, trial: str, level: int, point: Point) -> Point:
        if level:
            self.promoted[level - 1].add(_key(point, self.resource))
        begun = {**point, self.resource: self.levels[level]}
        self.open[trial] = (level, begun)
        return begun


def _explored(parameter: Parameter, settings: Mapping[str, Any]) -> Parameter:
    """Return the resource as whole numbers, as in Katib past its bounds."""
    if parameter.name != settings["resource_name"]:
        return parameter
    most = max(settings["r_l"], settings.get("r_min", 1.0))
    return Parameter(name=parameter.name, kind="int", low=1.0, high=float(int(most)), step=1.0)


def _sample(space: Sequence[Parameter], draw: random.Random) -> Point:
    return settled(space, {parameter.name: parameter.at(draw.random()) for parameter in space})


def _hyperband_rungs(most: float, eta: int) -> list[tuple[int, int, bool]]:
    """Return (trials, resource, whether they are new) of each rung (katib:
    pkg/suggestion/v1beta1/hyperband)."""
    highest = int(math.log(most) / math.log(eta) + 1e-9)
    rungs = []
    for s in range(highest, -1, -1):
        count = math.ceil((highest + 1) * eta**s / (s + 1))
        resource = most * eta**-s
        for i in range(s + 1):
            rungs.append((count, max(int(resource * eta**i + 1e-9), 1), i == 0))
            count = math.ceil(count / eta)
    return rungs


def _best_first(
    results: Sequence[tuple[float | None, Point]], maximize: bool
) -> list[tuple[float | None, Point]]:
    sign = -1.0 if maximize else 1.0
    return sorted(results, key=lambda result: (result[0] is None, sign * (result[0] or 0.0)))


def _key(point: Point, resource: str) -> str:
    return repr(sorted((name, value) for name, value in point.items() if name != resource))


def _first_rung(settings: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of trials in the first bracket (katib:
    pkg/suggestion/v1beta1/hyperband/service.py)."""
    most, eta = settings["r_l"], settings.get("eta", 3)
    return math.ceil(eta ** int(math.log(most) / math.log(eta))), f"r_l={most:g}, eta={eta}"


_RESOURCE = Setting(float, lambda value: 1 <= value < math.inf, "a number >= 1")
_ETA = Setting(lambda text: int(float(text)), lambda value: value >= 2, "an integer >= 2")
_NAME = Setting(str, bool, "the name of a search parameter")

HYPERBAND = Algorithm(
    name="hyperband",
    settings={"r_l": _RESOURCE, "eta": _ETA, "resource_name": _NAME, "random_state": SEED},
    required=("r_l", "resource_name"),
    example='{name: resource_name, value: epochs} and {name: r_l, value: "9"}',
    drops_unknown_settings=True,
    at_once=_first_rung,
    plan=_Hyperband,
    explored=_explored,
    takes_conditions=True,
)
ASHA = Algorithm(
    name="asha",
    settings={
        "r_l": _RESOURCE,
        "r_min": _RESOURCE,
        "eta": _ETA,
        "resource_name": _NAME,
        "random_state": SEED,
    },
    required=HYPERBAND.required,
    example=HYPERBAND.example,
    in_katib=False,
    plan=_Asha,
    explored=_explored,
    takes_conditions=True,
)
