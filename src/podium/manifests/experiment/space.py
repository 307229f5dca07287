"""The search space of an Experiment, and the rules about a parameter's values."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from podium.manifests.fields import (
    Attribute,
    ManifestView,
    items,
    mapping,
    numbered,
    objects,
    present,
    text,
)
from podium.manifests.rules import Violation, broken
from podium.metrics import number
from podium.search.algorithms import find
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _WrittenParameter(ManifestView):
    """An entry of ``spec.parameters``, which may break rules."""

    path: str

    name = Attribute("manifest.name", text)
    kind = Attribute("manifest.parameterType", text)
    feasible = Attribute("manifest.feasibleSpace", mapping)
    choices = Attribute("manifest.feasibleSpace.list", items)

    def read(self) -> Parameter | None:
        """Return the parameter; None if it breaks a rule."""
        if not self.name or any(True for _ in self.problems()):
            return None
        if self.kind in LISTED:
            choices = tuple(dict.fromkeys(self.choices))
            return Parameter(name=self.name, kind=self.kind, choices=choices)
        ends = (number(self.feasible.get(field) or "") for field in ("min", "max", "step"))
        low, high, step = ends
        if self.kind not in NUMERIC or low is None or high is None:
            return None
        return Parameter(
            name=self.name,
            kind=self.kind,
            low=low,
            high=high,
            step=1.0 if self.kind == "int" and step is None else step,
            distribution=text(self.feasible.get("distribution")) or "uniform",
        )

    def problems(self) -> Iterator[Violation]:
        """Yield what Katib accepts but cannot search; the types of all fields are right."""
        feasible, path = self.feasible, f"{self.path}.feasibleSpace"
        if self.kind not in NUMERIC:
            if not self.choices:
                hint = 'list: ["16", "32"]'
                yield broken(f"{path}.list", "must hold at least one value", [], hint)
            return
        numbers: dict[str, float] = {}
        for field in ("min", "max", "step"):
            value = number(feasible.get(field) or "")
            if value is not None and (self.kind == "double" or value == int(value)):
                numbers[field] = value
            elif feasible.get(field):
                must = "must be an integer" if self.kind == "int" else "must be a number"
                yield broken(f"{path}.{field}", must, feasible[field], SPACE)
        if {"min", "max"} <= set(numbers):
            bounds = f"min={feasible['min']}, max={feasible['max']}"
            distribution = feasible.get("distribution")
            if numbers["min"] > numbers["max"]:
                yield broken(path, "min <= max", bounds, "exchange them")
            if distribution in LOG and numbers["min"] <= 0:
                hint = "there is no logarithm of 0: begin at a small positive number"
                yield broken(f"{path}.min", f"min > 0 for {distribution}", bounds, hint)
        if numbers.get("step", 1) <= 0:
            hint = "give the distance between two values"
            yield broken(f"{path}.step", "step > 0", numbers["step"], hint)


def written_space(parameters: Any) -> tuple[_WrittenParameter, ...]:
    entries = numbered("spec.parameters", parameters)
    return tuple(_WrittenParameter(manifest=entry, path=path) for path, entry in entries)


def read_space(parameters: Any) -> tuple[Parameter, ...]:
    """Read ``spec.parameters``; a parameter that breaks a rule is left out."""
    space = (written.read() for written in written_space(parameters))
    return tuple(parameter for parameter in space if parameter)


class AlgorithmSpec(ManifestView):
    """A search algorithm or an early-stopping rule, with its settings."""

    name = Attribute("manifest.algorithmName", text)
    given = Attribute(
        "manifest.algorithmSettings",
        lambda value: tuple(
            (text(each.get("name")), text(each.get("value"))) for each in objects(value)
        ),
    )
    """Names and values of its settings, as they are written."""

    facts = Attribute("name", find)
    """The algorithm of this name in podium's table."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Known settings of the algorithm, as numbers and words, without those that break a
        rule."""
        supported = self.facts.settings
        read = {
            name: supported[name].read(value) for name, value in self.given if name in supported
        }
        return present(**read)

    def instead(self, name: str) -> "AlgorithmSpec":
        """Return another algorithm with the settings that it supports."""
        supported = find(name).settings
        kept = [
            {"name": setting, "value": value}
            for setting, value in self.given
            if setting in supported
        ]
        return AlgorithmSpec(manifest={"algorithmName": name, "algorithmSettings": kept})
