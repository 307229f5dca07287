"""Settings of the search and early-stopping algorithms, checked as Katib's services check them.

Sources: katib 0.19, pkg/suggestion/v1beta1/{hyperopt,optuna,goptuna,skopt,hyperband} and pkg/earlystopping.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from podium.manifests.experiment.hints import nearest
from podium.manifests.experiment.rules import Findings
from podium.search.space import Parameter, count_points


class Rule(NamedTuple):
    """What a setting may be."""

    convert: Callable[[str], Any]
    """Makes a number or a word of the text."""

    holds: Callable[[Any], bool]
    """Whether podium and Katib take the value."""

    kind: str
    """What is expected, in words."""

    katib: tuple[str, ...] = ()
    """Further values that Katib takes and podium does not."""


_SEED = Rule(int, lambda value: value >= 0, "an integer >= 0")
_COUNT = Rule(int, lambda value: value > 0, "an integer > 0")
_COUNT_0 = Rule(int, lambda value: value >= 0, "an integer >= 0")
_POSITIVE = Rule(float, lambda value: 0 < value < math.inf, "a number > 0")
_RESOURCE = Rule(float, lambda value: 1 <= value < math.inf, "a number >= 1")
_ETA = Rule(lambda text: int(float(text)), lambda value: value >= 2, "an integer >= 2")
_SHARE = Rule(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def _one_of(*names: str, katib: tuple[str, ...] = ()) -> Rule:
    return Rule(str, lambda value: value in names, f"one of {', '.join(names)}", katib)


IGNORING = ("cmaes", "sobol", "hyperband", "pbt")
"""Algorithms whose Katib service drops a setting that it does not know; the other services refuse it."""

_KNOWN: dict[str, dict[str, Rule]] = {
    "random": {"random_state": _SEED},
    "grid": {"random_state": _SEED},
    "tpe": {
        "gamma": Rule(float, lambda value: 0 < value < 1, "a number between 0 and 1"),
        "prior_weight": _POSITIVE,
        "n_EI_candidates": _COUNT,
        "random_state": _SEED,
    },
    "multivariate-tpe": {"n_startup_trials": _COUNT_0, "n_ei_candidates": _COUNT, "random_state": _SEED},
    "cmaes": {
        "random_state": _SEED,
        "sigma": _POSITIVE,
        "restart_strategy": _one_of("none", katib=("ipop", "bipop")),
    },
    "sobol": {"random_state": _SEED},
    "bayesianoptimization": {
        "base_estimator": _one_of("GP", katib=("RF", "ET", "GBRT")),
        "n_initial_points": _COUNT_0,
        "acq_func": _one_of("gp_hedge", "EI", katib=("LCB", "PI", "EIps", "PIps")),
        "acq_optimizer": _one_of("auto", "sampling", "lbfgs"),
        "random_state": _SEED,
    },
    "hyperband": {"r_l": _RESOURCE, "eta": _ETA, "resource_name": _one_of(), "random_state": _SEED},
    "asha": {"r_l": _RESOURCE, "r_min": _RESOURCE, "eta": _ETA, "resource_name": _one_of(), "random_state": _SEED},
    "pbt": {
        "suggestion_trial_dir": Rule(str, lambda text: text.startswith("/"), "an absolute path"),
        "n_population": Rule(int, lambda value: value >= 5, "an integer >= 5"),
        "truncation_threshold": _SHARE,
        "resample_probability": _SHARE,
        "random_state": _SEED,
    },
    "medianstop": {"min_trials_required": _COUNT, "start_step": _COUNT},
}


def takes_setting(algorithm: str, setting: str) -> bool:
    """Return whether podium's implementation of an algorithm has a setting; False for an unknown algorithm."""
    return setting in _KNOWN.get(algorithm, {})


def read_settings(algorithm: Mapping[str, Any], path: str, findings: Findings) -> dict[str, Any]:
    """Read ``algorithmSettings`` into numbers and words.

    Args:
        algorithm: ``spec.algorithm`` or ``spec.earlyStopping``.
        path: Where it stands.
        findings: Grows by what the algorithm's service would refuse.
    """
    name = algorithm.get("algorithmName", "")
    known = _KNOWN.get(name)
    if known is None:
        runs = f"podium searches with {', '.join(one for one in _KNOWN if one != 'medianstop')}"
        findings.unsupported(f"{path}.algorithmName", runs, name)
        return {}
    read: dict[str, Any] = {}
    for place, setting in enumerate(algorithm.get("algorithmSettings") or []):
        given, text = setting.get("name"), setting.get("value") or ""
        where = f"{path}.algorithmSettings[{place}]"
        if given not in known and name in IGNORING:
            findings.unsupported(where, f"podium runs {name} with settings {', '.join(known)}", str(given))
            continue
        law = f"a setting of {name} is one of {', '.join(known)}"
        if not findings.require(given in known, where, law, given, nearest(given, known), "stuck"):
            continue
        rule = known[given]
        if text in rule.katib:
            findings.unsupported(where, f"podium runs {name} with {given} {rule.kind.removeprefix('one of ')}", text)
            continue
        try:
            value = rule.convert(text)
        except (ValueError, OverflowError):
            value = None
        fits = value is not None and (given == "resource_name" or rule.holds(value))
        law, hint = f"{given} is {rule.kind}", f"give {rule.kind}, in quotes"
        if findings.require(fits, where, law, text, hint, "stuck"):
            read[given] = value
    return read


def check_search(
    algorithm: str, settings: Mapping[str, Any], space: Sequence[Parameter], spec: Mapping[str, Any], findings: Findings
) -> None:
    """Note where an algorithm cannot search the space or keep to the counts."""
    most, parallel = spec.get("maxTrialCount"), spec["parallelTrialCount"]
    path = "spec.parameters"
    if algorithm == "grid":
        bare = [parameter.name for parameter in space if parameter.numeric and parameter.step is None]
        hint = "give feasibleSpace.step"
        if findings.require(not bare, path, "a grid needs a step for each double", bare, hint, "stuck"):
            points = count_points(space)
            hint = f"set maxTrialCount to {points} or less"
            given = f"{most} > {points}"
            law = "maxTrialCount <= points of the grid"
            findings.require(most is None or most <= points, "spec.maxTrialCount", law, given, hint, "stuck")
    if algorithm == "cmaes":
        bounded = sum(parameter.numeric for parameter in space)
        law = "cmaes needs two double or int parameters"
        findings.require(bounded >= 2, path, law, bounded, "use tpe or random", "stuck")
    if algorithm == "pbt":
        _check_population(settings, space, spec, findings)
    if algorithm in ("hyperband", "asha"):
        _check_resource(algorithm, settings, space, parallel, findings)


def _check_population(
    settings: Mapping[str, Any], space: Sequence[Parameter], spec: Mapping[str, Any], findings: Findings
) -> None:
    path = "spec.algorithm.algorithmSettings"
    missing = [
        name for name in ("suggestion_trial_dir", "n_population", "truncation_threshold") if name not in settings
    ]
    hint = '{name: suggestion_trial_dir, value: /checkpoints}, n_population "5" and truncation_threshold "0.2"'
    findings.require(not missing, path, "pbt has these settings", missing, hint, "stuck")
    bare = [parameter.name for parameter in space if parameter.numeric and parameter.step is None]
    law, hint = "pbt needs a step for each double", "give feasibleSpace.step"
    findings.require(not bare, "spec.parameters", law, bare, hint, "stuck")
    law = "pbt keeps its trials' files on a volume: resumePolicy is FromVolume"
    policy = spec.get("resumePolicy")
    findings.require(policy == "FromVolume", "spec.resumePolicy", law, policy, "set it to FromVolume", "stuck")


def _check_resource(
    algorithm: str, settings: Mapping[str, Any], space: Sequence[Parameter], parallel: int, findings: Findings
) -> None:
    path = "spec.algorithm.algorithmSettings"
    missing = [name for name in ("r_l", "resource_name") if name not in settings]
    hint = '{name: resource_name, value: epochs} and {name: r_l, value: "9"}'
    if not findings.require(not missing, path, f"{algorithm} has r_l and resource_name", missing, hint, "stuck"):
        return
    resource = settings["resource_name"]
    named = any(parameter.name == resource for parameter in space)
    hint = nearest(resource, [parameter.name for parameter in space])
    findings.require(named, path, "resource_name is one of the parameters", resource, hint, "stuck")
    eta = settings.get("eta", 3)
    if algorithm == "hyperband":
        # One bracket's first rung is asked for at once (katib: pkg/suggestion/v1beta1/hyperband/service.py).
        least = math.ceil(eta ** int(math.log(settings["r_l"]) / math.log(eta)))
        law = f"parallelTrialCount >= {least} for r_l={settings['r_l']:g}, eta={eta}"
        findings.require(parallel >= least, "spec.parallelTrialCount", law, parallel, f"set it to {least}", "stuck")
