"""One view of an Experiment: as written, as admitted, and its search space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.doctor.pods import items, mapping
from podium.search.space import Parameter


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What the rules look at."""

    given: Mapping[str, Any]
    """The Experiment as written."""

    admitted: Mapping[str, Any]
    """With Katib's defaults."""

    space: Sequence[Parameter]
    """The search space, as far as it can be read."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The admitted spec."""
        return mapping(self.admitted.get("spec"))

    @property
    def objective(self) -> Mapping[str, Any]:
        """The admitted objective."""
        return mapping(self.spec.get("objective"))

    @property
    def algorithm(self) -> str:
        """algorithmName."""
        return str(mapping(self.spec.get("algorithm")).get("algorithmName"))

    @property
    def collector(self) -> str:
        """Kind of the metrics collector."""
        return str(mapping(mapping(self.spec.get("metricsCollectorSpec")).get("collector")).get("kind") or "StdOut")

    @property
    def is_text(self) -> bool:
        """Whether metrics are read from lines of text."""
        source = mapping(mapping(self.spec.get("metricsCollectorSpec")).get("source"))
        return self.collector == "StdOut" or (
            self.collector == "File" and mapping(source.get("fileSystemPath")).get("format") != "JSON"
        )

    @property
    def metrics(self) -> list[str]:
        """Every metric, the objective first."""
        names = [self.objective.get("objectiveMetricName"), *items(self.objective.get("additionalMetricNames"))]
        return [str(name) for name in names if name]

    @property
    def formats(self) -> list[str]:
        """metricsFormat patterns; none for Katib's own."""
        source = mapping(mapping(self.spec.get("metricsCollectorSpec")).get("source"))
        return [str(one) for one in items(mapping(source.get("filter")).get("metricsFormat"))]

    @property
    def strategies(self) -> dict[str, str]:
        """Strategy by metric."""
        given = map(mapping, items(self.objective.get("metricStrategies")))
        return {str(one.get("name")): str(one.get("value")) for one in given}
