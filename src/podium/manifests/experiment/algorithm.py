"""``spec.algorithm`` and ``spec.earlyStopping`` of an Experiment."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from podium.manifests.fields import Attribute, ManifestView, objects, text
from podium.search.algorithm import Algorithm
from podium.search.algorithms import find


class AlgorithmSpec(ManifestView):
    """A search algorithm or an early-stopping rule, with its settings."""

    name = Attribute("manifest.algorithmName", text)
    given = Attribute(
        "manifest.algorithmSettings", lambda value: tuple(map(_name_and_value, objects(value)))
    )
    """Names and values of its settings, as they are written."""

    @cached_property
    def facts(self) -> Algorithm:
        """The algorithm of this name in podium's table."""
        return find(self.name)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Known settings of the algorithm, as numbers and words, without those that break a
        rule."""
        known = self.facts.settings
        read = {name: known[name].read(value) for name, value in self.given if name in known}
        return {name: value for name, value in read.items() if value is not None}

    def instead(self, name: str) -> "AlgorithmSpec":
        """Return another algorithm with the settings that it supports."""
        known = find(name).settings
        kept = [
            {"name": setting, "value": value} for setting, value in self.given if setting in known
        ]
        return AlgorithmSpec(manifest={"algorithmName": name, "algorithmSettings": kept})


def _name_and_value(setting: Mapping[str, Any]) -> tuple[str, str]:
    return text(setting.get("name")), text(setting.get("value"))
