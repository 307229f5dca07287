"""A pool: pods of a cluster that run the trials of a sweep one after another, in place of pods for
each trial."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from podium.display.text import plural
from podium.errors import InvalidInput
from podium.manifests.options.base import Setting, SweepOption, Values

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Pool(SweepOption):
    """Number of pods that run the trials."""

    title: ClassVar[str] = "pool"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="pool", kind=int, help="Number of worker pods on a cluster that run the trials."
        ),
    )

    pods: int

    @classmethod
    def of(cls, values: Values) -> "Pool | None":
        pods = values.get("pool")
        if pods is not None and pods < 1:
            raise InvalidInput(f"pool is a number of pods above 0, not {pods}", "pool: 8")
        return None if pods is None else cls(pods=pods)

    def describe(self, experiment: "Experiment") -> str:
        return plural(self.size(experiment), "pod")

    @classmethod
    def prepare(cls, spec: dict[str, Any], values: Values) -> Values:
        if option := cls.of(values):
            spec["parallelTrialCount"] = min(option.pods, spec.get("maxTrialCount") or option.pods)
        return values

    def size(self, experiment: "Experiment") -> int:
        """Return how many pods are needed: no more than trials run at a time."""
        limits = experiment.limits
        return min(self.pods, limits.parallel, limits.max_trials or limits.parallel)


def pool_size(experiment: "Experiment") -> int:
    """Return the number of pods that run the trials of an Experiment one after another; 0 if each
    trial has pods of its own."""
    option = Pool.of(experiment.asked)
    return option.size(experiment) if option else 0
