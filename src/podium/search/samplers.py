"""Which algorithms plan their points themselves, and how such a plan continues a study."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.search.distributions import column, decode
from podium.search.plans import Asha, Grid, Hyperband, Plan, Seen, Sobol
from podium.search.population import Population
from podium.search.restarts import RestartingCmaEs
from podium.search.space import Parameter

PLANS: dict[str, Callable[[Sequence[Parameter], Mapping[str, Any], bool], Plan]] = {
    "grid": Grid,
    "sobol": Sobol,
    "hyperband": Hyperband,
    "asha": Asha,
    "pbt": Population,
}


def plan(
    algorithm: str, space: Sequence[Parameter], settings: Mapping[str, Any], *, maximize: bool, seen: Sequence[Any]
) -> Plan | None:
    """Return the plan of an algorithm that has one; it continues after those trials of an Optuna study."""
    restarts = algorithm == "cmaes" and settings.get("restart_strategy", "none") != "none"
    kind = RestartingCmaEs if restarts else PLANS.get(algorithm)
    if kind is None:
        return None
    history = [
        Seen(
            trial=trial.user_attrs["trial"],
            point={parameter.name: decode(parameter, trial.params[column(parameter)]) for parameter in space},
            value=trial.value if trial.state.is_finished() else None,
            running=not trial.state.is_finished(),
            tags=trial.user_attrs.get("tags", {}),
        )
        for trial in seen
        if "trial" in trial.user_attrs
    ]
    made = kind(space, settings, maximize)
    made.recall(history)
    return made
