"""All search algorithms. A new one is a file with its Algorithm, and its name in this table."""

from collections.abc import Sequence
from typing import NamedTuple

from podium.display.text import plural
from podium.search.algorithm import COUNT, Algorithm
from podium.search.bayesian import BAYESIAN_OPTIMIZATION, MULTIVARIATE_TPE, TPE
from podium.search.cmaes import CMA_ES
from podium.search.halving import ASHA, HYPERBAND
from podium.search.population import PBT
from podium.search.space import Parameter, count_points
from podium.search.unguided import GRID, RANDOM, SOBOL
from podium.system.plugins import Table

_ALL = (
    RANDOM,
    GRID,
    TPE,
    MULTIVARIATE_TPE,
    CMA_ES,
    SOBOL,
    BAYESIAN_OPTIMIZATION,
    HYPERBAND,
    ASHA,
    PBT,
)

ALGORITHMS = Table[Algorithm](
    "algorithms", {algorithm.name: algorithm for algorithm in _ALL}, Algorithm
)
"""By name, in the order in which messages list them."""

ARCHITECTURE_SEARCHES = ("enas", "darts")
"""Katib's, for a nasConfig in place of parameters; podium does not run them."""

MEDIAN_STOP = Algorithm(
    name="medianstop", settings={"min_trials_required": COUNT, "start_step": COUNT}
)
"""The only algorithm of ``spec.earlyStopping`` (katib: pkg/earlystopping/v1beta1/medianstop)."""


def find(name: str) -> Algorithm:
    """Return the algorithm of that name, of early stopping too; one without facts for an unknown
    name."""
    if name == MEDIAN_STOP.name:
        return MEDIAN_STOP
    return ALGORITHMS.get(name) or Algorithm(name=name, settings={})


AUTO = "auto"

NEAREST = MULTIVARIATE_TPE.name
"""Algorithm that Katib runs in place of the choice: it takes any space and needs no setting."""

MODELED = range(25, 101)
"""Numbers of trials for which a Gaussian process is chosen: ten teach it nothing, and each makes it
slower."""

ROUNDS = 6
"""Times as many trials as run at once, from which on it is chosen: with three, TPE finds as
much."""

_MODELED_SEVERAL = range(40, 101)
"""The same with several objectives, where it is ahead of TPE earlier."""

CHOICES = tuple(each.name for each in (GRID, SOBOL, BAYESIAN_OPTIMIZATION, MULTIVARIATE_TPE, TPE))


class Choice(NamedTuple):
    """An algorithm, and why."""

    algorithm: str
    reason: str

    def __str__(self) -> str:
        return f"{self.algorithm}, chosen by {AUTO}: {self.reason}"


def choose(
    space: Sequence[Parameter],
    trials: int | None,
    parallel: int,
    *,
    modeled: bool,
    several: bool = False,
) -> Choice:
    """Return the algorithm for a search; it follows from the arguments alone.

    Args:
        trials: Maximum number of trials; None for no limit.
        parallel: Trials at a time.
        modeled: Whether a Gaussian process can be had.
        several: Whether there is more than one objective.
    """
    countable = all(parameter.step or not parameter.numeric for parameter in space)
    if trials and countable and (points := count_points(space, beyond=trials)) <= trials:
        return Choice(
            GRID.name,
            f"the space has {plural(points, 'point')}, which fit into {plural(trials, 'trial')}",
        )
    if trials and trials <= parallel:
        return Choice(SOBOL.name, f"{plural(trials, 'trial')} at once cannot learn from each other")
    if any(parameter.when for parameter in space):
        return Choice(
            MULTIVARIATE_TPE.name,
            "it models together the parameters that count together, by the conditions",
        )
    tpe, numbers = (TPE.name, _MODELED_SEVERAL) if several else (MULTIVARIATE_TPE.name, MODELED)
    if trials is None or trials >= numbers.stop:
        return Choice(tpe, "quick however many trials there are")
    if trials < max(numbers.start, ROUNDS * parallel):
        return Choice(
            tpe,
            f"no algorithm is known to be better in so few trials ({trials}, {parallel} at a time)",
        )
    if not modeled:
        return Choice(tpe, "there is no Gaussian process without torch")
    return Choice(
        BAYESIAN_OPTIMIZATION.name,
        f"a Gaussian process, which was ahead in most comparisons of {numbers.start} to {numbers.stop - 1} trials",
    )
