"""Settings of the search and early-stopping algorithms, checked as Katib's services check them.

Sources: katib 0.19, pkg/suggestion/v1beta1/{hyperopt,optuna,goptuna,skopt,hyperband} and pkg/earlystopping.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from podium.errors import suggestion
from podium.manifests.fields import mapping, numbered, text
from podium.manifests.rules import Violation, broken, unsupported


class Setting(NamedTuple):
    """What the value of a setting may be."""

    convert: Callable[[str], Any]
    """Makes a number or a word of the text."""

    holds: Callable[[Any], bool]
    """Whether podium and Katib take the value."""

    kind: str
    """What is expected, in words."""

    katib: tuple[str, ...] = ()
    """Further values that Katib takes and podium does not."""

    def read(self, given: str) -> Any:
        """Return the value; None if neither podium nor Katib takes it."""
        try:
            value = self.convert(given)
        except (ValueError, OverflowError):
            return None
        return value if self.holds(value) else None


_SEED = Setting(int, lambda value: value >= 0, "an integer >= 0")
_COUNT = Setting(int, lambda value: value > 0, "an integer > 0")
_COUNT_0 = Setting(int, lambda value: value >= 0, "an integer >= 0")
_POSITIVE = Setting(float, lambda value: 0 < value < math.inf, "a number > 0")
_RESOURCE = Setting(float, lambda value: 1 <= value < math.inf, "a number >= 1")
_ETA = Setting(lambda text: int(float(text)), lambda value: value >= 2, "an integer >= 2")
_NAME = Setting(str, bool, "the name of a search parameter")
_SHARE = Setting(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def _one_of(*names: str, katib: tuple[str, ...] = ()) -> Setting:
    return Setting(str, lambda value: value in names, f"one of {', '.join(names)}", katib)


IGNORING = ("cmaes", "sobol", "hyperband", "pbt")
"""Algorithms whose Katib service drops a setting that it does not know; the other services refuse it."""

_KNOWN: dict[str, dict[str, Setting]] = {
    "random": {"random_state": _SEED},
    "grid": {"random_state": _SEED},
    "tpe": {
        "gamma": Setting(float, lambda value: 0 < value < 1, "a number between 0 and 1"),
        "prior_weight": _POSITIVE,
        "n_EI_candidates": _COUNT,
        "random_state": _SEED,
    },
    "multivariate-tpe": {"n_startup_trials": _COUNT_0, "n_ei_candidates": _COUNT, "random_state": _SEED},
    "cmaes": {
        "random_state": _SEED,
        "sigma": _POSITIVE,
        "restart_strategy": _one_of("none", "ipop", "bipop"),
    },
    "sobol": {"random_state": _SEED},
    "bayesianoptimization": {
        "base_estimator": _one_of("GP", katib=("RF", "ET", "GBRT")),
        "n_initial_points": _COUNT_0,
        "acq_func": _one_of("gp_hedge", "EI", katib=("LCB", "PI", "EIps", "PIps")),
        "acq_optimizer": _one_of("auto", "sampling", "lbfgs"),
        "random_state": _SEED,
    },
    "hyperband": {"r_l": _RESOURCE, "eta": _ETA, "resource_name": _NAME, "random_state": _SEED},
    "asha": {"r_l": _RESOURCE, "r_min": _RESOURCE, "eta": _ETA, "resource_name": _NAME, "random_state": _SEED},
    "pbt": {
        "suggestion_trial_dir": Setting(str, lambda text: text.startswith("/"), "an absolute path"),
        "n_population": Setting(int, lambda value: value >= 5, "an integer >= 5"),
        "truncation_threshold": _SHARE,
        "resample_probability": _SHARE,
        "random_state": _SEED,
    },
    "medianstop": {"min_trials_required": _COUNT, "start_step": _COUNT},
}


def takes_setting(algorithm: str, setting: str) -> bool:
    """Return whether podium's implementation of an algorithm has a setting; False for an unknown algorithm."""
    return setting in _KNOWN.get(algorithm, {})


def read_settings(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``algorithmSettings`` into numbers and words; what breaks a rule is left out."""
    read = {name: setting.read(value) for _, name, value, setting in _given(algorithm) if setting}
    return {name: value for name, value in read.items() if value is not None}


def _given(algorithm: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str, Setting | None]]:
    """Yield path, name and value of each setting, and what its value may be."""
    known = _KNOWN.get(text(algorithm.get("algorithmName")), {})
    for where, setting in numbered(f"{path}.algorithmSettings", algorithm.get("algorithmSettings")):
        name = text(setting.get("name"))
        yield where, name, text(setting.get("value")), known.get(name)


def broken_settings(algorithm: Any, path: str) -> Iterator[Violation]:
    """Yield what the algorithm's service would refuse.

    Args:
        algorithm: ``spec.algorithm`` or ``spec.earlyStopping``.
    """
    name = text(mapping(algorithm).get("algorithmName"))
    for where, given, value, setting in _given(mapping(algorithm), path) if name in _KNOWN else ():
        known = _KNOWN[name]
        if setting is None and name not in IGNORING:
            must = f"must be a setting of {name}: {', '.join(known)}"
            yield broken(f"{where}.name", must, given, suggestion(given, known))
        elif setting and value not in setting.katib and setting.read(value) is None:
            hint = f"give {setting.kind}, in quotes"
            yield broken(f"{where}.value", f"must be {setting.kind} for {given}", value, hint)


def unsupported_settings(algorithm: Any, path: str) -> Iterator[Violation]:
    """Yield what Katib may run and podium does not.

    Args:
        algorithm: ``spec.algorithm`` or ``spec.earlyStopping``.
    """
    name = text(mapping(algorithm).get("algorithmName"))
    if algorithm and name not in _KNOWN:
        runs = f"podium searches with {', '.join(known for known in _KNOWN if known != 'medianstop')}"
        yield unsupported(f"{path}.algorithmName", runs, name)
    for where, given, value, setting in _given(mapping(algorithm), path) if name in _KNOWN else ():
        if setting is None and name in IGNORING:
            yield unsupported(f"{where}.name", f"podium runs {name} with settings {', '.join(_KNOWN[name])}", given)
        elif setting and value in setting.katib:
            words = setting.kind.removeprefix("one of ")
            yield unsupported(f"{where}.value", f"podium runs {name} with {given} {words}", value)
