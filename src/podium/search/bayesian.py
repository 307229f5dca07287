"""Algorithms that model the objective by earlier results: tpe, multivariate-tpe,
bayesianoptimization."""

import math
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput
from podium.search.algorithm import COUNT, COUNT_0, POSITIVE, SEED, Algorithm, Setting, one_of

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

BEST = 25
"""The best trials are always seen: TPE, by Optuna's rule and by hyperopt's, takes no more of them
for good ones."""


def _tpe(
    settings: Mapping[str, Any], warm: Any, seed: int, unseen: int, *, multivariate: bool = False
) -> "BaseSampler":
    from optuna.samplers import TPESampler

    options = {
        "prior_weight": settings.get("prior_weight"),
        "n_ei_candidates": settings.get("n_ei_candidates", settings.get("n_EI_candidates")),
        "n_startup_trials": settings.get("n_startup_trials"),
    }
    if "gamma" in settings:  # hyperopt's rule, which Katib's tpe runs
        share = settings["gamma"]
        options["gamma"] = lambda count: min(math.ceil(share * math.sqrt(unseen + count)), BEST)
    options = {name: value for name, value in options.items() if value is not None}
    group = multivariate and settings.get("group", False)
    # As in Optuna 5; it was False before: trials that run count as bad ones meanwhile.
    return TPESampler(
        seed=seed, multivariate=multivariate, group=group, constant_liar=True, **options
    )


def _gaussian_process(
    settings: Mapping[str, Any], warm: Any, seed: int, unseen: int
) -> "BaseSampler":
    from optuna.samplers import GPSampler

    if find_spec("torch") is None:
        raise InvalidInput(
            "bayesianoptimization needs PyTorch, which is not installed",
            "pip install 'podium-ml[torch]', or multivariate-tpe, which needs nothing more",
        )
    startup = settings.get("n_initial_points", 10)
    return GPSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)


TPE = Algorithm(
    name="tpe",
    settings={
        "gamma": Setting(float, lambda value: 0 < value < 1, "a number between 0 and 1"),
        "prior_weight": POSITIVE,
        "n_EI_candidates": COUNT,
        "random_state": SEED,
    },
    distributions=("logUniform", "normal", "logNormal"),
    warm_trials=1,
    takes_several=True,
    takes_conditions=True,
    sampler=_tpe,
    history=1000,
)
MULTIVARIATE_TPE = Algorithm(
    name="multivariate-tpe",
    settings={"n_startup_trials": COUNT_0, "n_ei_candidates": COUNT, "random_state": SEED},
    distributions=("logUniform",),
    warm_trials=1,
    takes_several=True,
    takes_conditions=True,
    sampler=partial(_tpe, multivariate=True),
    history=4000,
)
BAYESIAN_OPTIMIZATION = Algorithm(
    name="bayesianoptimization",
    settings={
        "base_estimator": one_of("GP", katib=("RF", "ET", "GBRT")),
        "n_initial_points": COUNT_0,
        "acq_func": one_of("gp_hedge", "EI", katib=("LCB", "PI", "EIps", "PIps")),
        "acq_optimizer": one_of("auto", "sampling", "lbfgs"),
        "random_state": SEED,
    },
    always_log=True,
    warm_trials=1,
    takes_several=True,
    sampler=_gaussian_process,
    history=400,
)
