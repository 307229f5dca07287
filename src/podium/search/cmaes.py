"""CMA-ES, also with restarts with other populations: IPOP (Auger and Hansen 2005) and BIPOP (Hansen
2009).

Optuna's sampler has not restarted since 4.4; the library cmaes, which it uses, says when a restart
is due.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.search.algorithm import POSITIVE, SEED, Algorithm, PastTrial, Plan, Point, one_of
from podium.search.space import Parameter

if TYPE_CHECKING:
    import numpy as np
    from cmaes import CMA
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

_GROWTH = 2
"""Factor by which a population grows at a restart, as in Katib."""

_WIDTH = 1 / 6
"""First standard deviation, of a range's length."""


class _RestartingCmaEs(Plan):
    """Searches the numeric parameters by CMA-ES, the others by chance.

    A resumed search replays its trials one by one, so that with parallel trials a generation may be
    cut elsewhere than before.
    """

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
        super().__init__(space, settings, maximize)
        self.numeric = [parameter for parameter in space if parameter.numeric]
        self.seed = settings.get("random_state", random.SystemRandom().getrandbits(31))
        self.draw = random.Random(self.seed)
        self.restarts = 0
        self.grown = 0
        self.evaluations = {"small": 0, "large": 0}
        self.regime = "small"
        self.cma = self._start([0.5] * len(self.numeric), None)
        self.first_population = self.cma.population_size
        self.open: dict[str, tuple[int, np.ndarray]] = {}
        self.generation: list[tuple[np.ndarray, float]] = []

    def next(self, trial: str) -> Point:
        units = self._ask()
        point = {parameter.name: parameter.at(units[parameter.name]) for parameter in self.space}
        self._begin(trial, point)
        return point

    def tell(self, trial: str, value: float | None) -> None:
        """Take a trial into its generation; one that failed, or was asked for before a restart,
        does not count."""
        restarts, position = self.open.pop(trial, (-1, None))
        if position is None or value is None or restarts != self.restarts:
            return
        self.generation.append((position, -value if self.maximize else value))
        if len(self.generation) == self.cma.population_size:
            self.cma.tell(self.generation)
            self.generation = []
            if self.cma.should_stop():
                self._restart()

    def recall(self, history: Iterable[PastTrial]) -> None:
        for past in history:
            self._ask()  # a seed must not give it again
            self._begin(past.trial, past.point)
            if not past.running:
                self.tell(past.trial, past.value)

    def _ask(self) -> dict[str, float]:
        chosen = zip(self.numeric, self.cma.ask(), strict=True)
        by_chance = {
            parameter.name: self.draw.random() for parameter in self.space if not parameter.numeric
        }
        return {parameter.name: float(position) for parameter, position in chosen} | by_chance

    def _begin(self, trial: str, point: Point) -> None:
        import numpy as np

        # As the trial sees it: an int or a step is not the very place that was asked for.
        position = np.array([parameter.share(point[parameter.name]) for parameter in self.numeric])
        self.open[trial] = (self.restarts, position)

    def _restart(self) -> None:
        self.restarts += 1
        draw = random.Random(f"{self.seed}/{self.restarts}")
        population = self._next_population(draw)
        self.cma = self._start([draw.random() for _ in self.numeric], population)

    def _next_population(self, draw: random.Random) -> int:
        """Return the size of the next population: larger each time, or for bipop alternating with
        small ones that use as many evaluations."""
        self.evaluations[self.regime] += self.cma.population_size * self.cma.generation
        bipop = self.settings["restart_strategy"] == "bipop"
        self.regime = (
            "small" if bipop and self.evaluations["small"] < self.evaluations["large"] else "large"
        )
        if self.regime == "small":
            return int(self.first_population * (_GROWTH**self.grown) ** (draw.random() ** 2))
        self.grown += 1
        return int(self.first_population * _GROWTH**self.grown)

    def _start(self, mean: list[float], population: int | None) -> "CMA":
        import numpy as np
        from cmaes import CMA

        return CMA(
            mean=np.array(mean),
            sigma=self.settings.get("sigma", _WIDTH),
            bounds=np.array([[0.0, 1.0]] * len(mean)),
            seed=(self.seed + self.restarts) % 2**32,
            population_size=population,
        )


def _plan(space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool) -> Plan | None:
    restarts = settings.get("restart_strategy", "none") != "none"
    return _RestartingCmaEs(space, settings, maximize) if restarts else None


def _sampler(
    settings: Mapping[str, Any], warm: "Sequence[FrozenTrial]", seed: int, unseen: int
) -> "BaseSampler":
    from optuna.samplers import CmaEsSampler

    # Optuna begins either with a given width or with the one that earlier trials suggest.
    start = {"source_trials": _continuous(warm)} if warm else {"sigma0": settings.get("sigma")}
    return CmaEsSampler(seed=seed, warn_independent_sampling=False, **start)


def _continuous(trials: "Sequence[FrozenTrial]") -> "list[FrozenTrial]":
    """Return trials without the parameters that are drawn at random: CMA-ES takes only trials with
    exactly its own."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import create_trial

    shown = []
    for trial in trials:
        kept = {
            name: kind
            for name, kind in trial.distributions.items()
            if not isinstance(kind, CategoricalDistribution) and not kind.single()
        }
        params = {name: trial.params[name] for name in kept}
        shown.append(create_trial(params=params, distributions=kept, value=trial.value))
    return shown


CMA_ES = Algorithm(
    name="cmaes",
    settings={
        "random_state": SEED,
        "sigma": POSITIVE,
        "restart_strategy": one_of("none", "ipop", "bipop"),
    },
    drops_unknown_settings=True,
    needs_two_numbers=True,
    warm_trials=10,  # it begins at the best tenth of them (Nomura 2021, as in the package cmaes)
    plan=_plan,
    sampler=_sampler,
)
