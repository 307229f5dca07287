"""The search space of an Experiment, and the rules about a parameter's values."""

from collections.abc import Iterator, Mapping
from typing import Any

from podium.manifests.fields import items, mapping, text
from podium.manifests.rules import Violation, broken, shorten, unsupported
from podium.metrics import number
from podium.search.space import LOG, Parameter

OBJECTIVE = "objective: {type: maximize, objectiveMetricName: accuracy}"
SPACE = '- {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "1"}}'
TEMPLATE = (
    "a trialTemplate has a primaryContainerName, trialParameters like {name: lr, reference: lr}, and as trialSpec a "
    "Job, PyTorchJob or TrainJob with apiVersion and kind that says ${trialParameters.lr}"
)
PODS = (
    "containers stand in spec.template.spec of a Job, in spec.pytorchReplicaSpecs.Master.template.spec of a "
    "PyTorchJob, in spec.trainer of a TrainJob"
)


NUMERIC, LISTED = ("double", "int"), ("discrete", "categorical")


def read_space(parameters: Any) -> tuple[Parameter, ...]:
    """Read ``spec.parameters``; a parameter that breaks a rule is left out."""
    space = (read_parameter(given) for given in map(mapping, items(parameters)))
    return tuple(parameter for parameter in space if parameter)


def read_parameter(given: Mapping[str, Any]) -> Parameter | None:
    """Read one of ``spec.parameters``; None if it breaks a rule."""
    name, kind, feasible = (
        text(given.get("name")),
        given.get("parameterType"),
        mapping(given.get("feasibleSpace")),
    )
    if not name or any(True for _ in broken_values(given, "")):
        return None
    if kind in LISTED:
        return Parameter(
            name=name, kind=kind, choices=tuple(dict.fromkeys(items(feasible.get("list"))))
        )
    low, high, step = (number(feasible.get(field) or "") for field in ("min", "max", "step"))
    if kind not in NUMERIC or low is None or high is None:
        return None
    distribution = text(feasible.get("distribution")) or "uniform"
    step = 1.0 if kind == "int" and step is None else step
    return Parameter(name=name, kind=kind, low=low, high=high, step=step, distribution=distribution)


def broken_values(given: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """Yield parts of a parameter that Katib accepts but cannot search.

    Args:
        given: The parameter, its fields of the right types.
    """
    kind, feasible, path = (
        given.get("parameterType"),
        mapping(given.get("feasibleSpace")),
        f"{path}.feasibleSpace",
    )
    if kind not in NUMERIC:
        if not feasible.get("list"):
            yield broken(f"{path}.list", "must hold at least one value", [], 'list: ["16", "32"]')
        return
    numbers: dict[str, float] = {}
    for field in ("min", "max", "step"):
        value = number(feasible.get(field) or "")
        if value is not None and (kind == "double" or value == int(value)):
            numbers[field] = value
        elif feasible.get(field):
            must = "must be an integer" if kind == "int" else "must be a number"
            yield broken(f"{path}.{field}", must, feasible[field], SPACE)
    if {"min", "max"} <= set(numbers):
        bounds, distribution = (
            f"min={feasible['min']}, max={feasible['max']}",
            feasible.get("distribution"),
        )
        if numbers["min"] > numbers["max"]:
            yield broken(path, "min <= max", bounds, "exchange them")
        if distribution in LOG and numbers["min"] <= 0:
            hint = "there is no logarithm of 0: begin at a small positive number"
            yield broken(f"{path}.min", f"min > 0 for {distribution}", bounds, hint)
    if numbers.get("step", 1) <= 0:
        yield broken(
            f"{path}.step", "step > 0", numbers["step"], "give the distance between two values"
        )


def repeated_values(given: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """Yield a list that holds a value twice, which Katib searches and podium does not."""
    choices = items(mapping(given.get("feasibleSpace")).get("list"))
    twice = sorted({value for value in choices if choices.count(value) > 1})
    if twice and given.get("parameterType") not in NUMERIC:
        runs = "podium searches a list in which each value stands once"
        yield unsupported(f"{path}.feasibleSpace.list", runs, f"{shorten(twice)} twice")
