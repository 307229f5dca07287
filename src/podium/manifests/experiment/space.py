"""Read the search space of an Experiment and check its bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.manifests.experiment.hints import SPACE
from podium.manifests.experiment.rules import Findings, shorten
from podium.metrics import number
from podium.search.space import LOG, Parameter


def read_space(parameters: Sequence[Mapping[str, Any]], findings: Findings) -> list[Parameter]:
    """Read ``spec.parameters``; what Katib accepts there but cannot search in is noted as stuck.

    Args:
        parameters: Structurally sound, as admission left them.
        findings: Grows by the broken rules.
    """
    space: list[Parameter] = []
    names: set[str] = set()
    for place, given in enumerate(parameters):
        path = f"spec.parameters[{place}]"
        name = given.get("name") or ""
        if not findings.require(bool(name), f"{path}.name", "a parameter has a name", name, SPACE, "stuck"):
            continue
        findings.require(name not in names, f"{path}.name", "names are unique", name, "remove one", level="stuck")
        names.add(name)
        feasible = given.get("feasibleSpace") or {}
        if given.get("parameterType") in ("double", "int"):
            read = _read_numeric(given, feasible, path, findings)
        else:
            read = _read_listed(given, feasible, path, findings)
        if read:
            space.append(read)
    return space


def _read_numeric(
    given: Mapping[str, Any], feasible: Mapping[str, Any], path: str, findings: Findings
) -> Parameter | None:
    kind, before = given["parameterType"], len(findings)
    found: dict[str, float] = {}
    for field in ("min", "max", "step"):
        text = feasible.get(field)
        if text in (None, ""):
            continue
        value = number(text)
        where = f"{path}.feasibleSpace.{field}"
        whole = kind == "double" or (value is not None and value == int(value))
        if findings.require(
            value is not None and whole, where, f"{field} of {_a(kind)} is {_a(kind)}", text, SPACE, "stuck"
        ):
            found[field] = value if value is not None else 0.0
    distribution = feasible.get("distribution") or "uniform"
    if "min" in found and "max" in found:
        bounds = f"min={feasible['min']}, max={feasible['max']}"
        where = f"{path}.feasibleSpace"
        findings.require(found["min"] <= found["max"], where, "min <= max", bounds, "exchange them", "stuck")
        hint = "there is no logarithm of 0: begin at a small positive number"
        log = distribution in LOG
        findings.require(
            not log or found["min"] > 0, f"{where}.min", f"min > 0 for {distribution}", bounds, hint, "stuck"
        )
    findings.require(
        found.get("step", 1) > 0,
        f"{path}.feasibleSpace.step",
        "step > 0",
        found.get("step"),
        "give the distance of two values",
        "stuck",
    )
    if len(findings) > before or not {"min", "max"} <= set(found):
        return None
    step = found.get("step", 1.0 if kind == "int" else None)
    return Parameter(
        name=given["name"], kind=kind, low=found["min"], high=found["max"], step=step, distribution=distribution
    )


def _read_listed(
    given: Mapping[str, Any], feasible: Mapping[str, Any], path: str, findings: Findings
) -> Parameter | None:
    choices = feasible.get("list") or []
    where = f"{path}.feasibleSpace.list"
    if not findings.require(
        bool(choices), where, "a list has at least one value", choices, 'list: ["16", "32"]', "stuck"
    ):
        return None
    twice = sorted({value for value in choices if choices.count(value) > 1})
    if twice:
        findings.unsupported(where, "podium searches a list in which each value stands once", f"{shorten(twice)} twice")
    kind = given.get("parameterType")
    if kind not in ("discrete", "categorical"):
        return None
    return Parameter(name=given["name"], kind=kind, choices=tuple(dict.fromkeys(choices)))


def _a(kind: str) -> str:
    return "an int" if kind == "int" else "a number"
