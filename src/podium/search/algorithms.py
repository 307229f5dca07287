"""All search algorithms. A new one is a file with its Algorithm, and its name in this table."""

from podium.search.algorithm import COUNT, Algorithm
from podium.search.bayesian import BAYESIAN_OPTIMIZATION, MULTIVARIATE_TPE, TPE
from podium.search.cmaes import CMA_ES
from podium.search.halving import ASHA, HYPERBAND
from podium.search.population import PBT
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
