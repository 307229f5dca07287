"""A search algorithm that podium chooses, or that Katib does not know: Katib gets one that takes
any space."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from podium.errors import InvalidInput, suggestion
from podium.manifests.options.base import Setting, SweepOption, Values
from podium.search.algorithms import AUTO, CHOICES, NEAREST, Choice, choose, find

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class ChosenAlgorithm(SweepOption):
    """podium's choice of an algorithm, in place of Katib's."""

    title: ClassVar[str] = "algorithm"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="algorithm",
            metavar="NAME",
            help="Search algorithm (spec.algorithm); auto: podium's choice.",
        ),
        Setting(name="algorithm_reason", is_result=True, help="Why podium chose it."),
    )

    algorithm: str
    """``auto`` until it is chosen."""

    reason: str = ""

    @classmethod
    def of(cls, values: Values) -> "ChosenAlgorithm | None":
        name = values.get("algorithm")
        if name is None:
            return None
        if name not in (AUTO, *CHOICES):
            problem = f"algorithm is {AUTO}, or one that podium chose, not {name!r}"
            raise InvalidInput(problem, suggestion(name, (AUTO, *CHOICES)))
        return cls(algorithm=name, reason=values.get("algorithm_reason", ""))

    def describe(self, experiment: "Experiment") -> str:
        return str(self.choice(experiment))

    @classmethod
    def prepare(cls, spec: dict[str, Any], values: Values) -> Values:
        """Set spec.algorithm to one that Katib has, with the settings that Katib supports."""
        name = values.get("algorithm")
        if name is None or "algorithm_reason" in values:
            return values
        written = spec.get("algorithm") or {}
        algorithm = find(NEAREST if name == AUTO else name)
        settings = [
            entry
            for entry in written.get("algorithmSettings") or []
            if entry.get("name") in algorithm.settings
        ]
        spec["algorithm"] = {"algorithmName": algorithm.name, "algorithmSettings": settings}
        return {"algorithm": AUTO} if name == AUTO else {}

    def choice(self, experiment: "Experiment", *, modeled: bool = False) -> Choice:
        """Return the choice that was made, or would be; for a deterministic sweep it depends on
        neither workers nor machine.

        Args:
            modeled: Whether a Gaussian process can be had.
        """
        if self.algorithm != AUTO:
            return Choice(self.algorithm, self.reason)
        same, several = ("deterministic" in experiment.asked), ("objectives" in experiment.asked)
        parallel = 1 if same else experiment.limits.parallel
        most = experiment.limits.max_trials
        return choose(
            experiment.space, most, parallel, modeled=modeled and not same, several=several
        )


def settled(experiment: "Experiment") -> "Experiment":
    """Return an Experiment of this machine with the choice and its reason in it, so that they stay
    as they are."""
    option = ChosenAlgorithm.of(experiment.asked)
    if option is None or option.algorithm != AUTO:
        return experiment
    choice = option.choice(
        experiment, modeled=find_spec("torch") is not None
    )  # Optuna's Gaussian process needs it
    chosen: Mapping[str, str] = {"algorithm": choice.algorithm, "algorithm_reason": choice.reason}
    return experiment.with_asked(chosen)
