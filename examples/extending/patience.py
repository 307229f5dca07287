# src/podium/manifests/options/patience.py
"""The end of a sweep that finds nothing better any more."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from podium.errors import InvalidInput
from podium.manifests.options.base import Follower, Setting, SweepOption, Values

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment
    from podium.manifests.experiment.trial import Trial


class Waiting(Follower):
    """Counts the trials since the best one."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.best = most, 0, None

    def trial_ended(self, trial: "Trial") -> None:
        better = self.best is None or (trial.is_good and trial.rank < self.best.rank)
        self.best, self.count = (trial, 0) if better else (self.best, self.count + 1)

    def has_room(self) -> bool:
        return self.count < self.most

    def end(self, trials: int, most: int | None) -> tuple[str, str]:
        return "ExperimentPatienceEnded", f"{self.count} trials were no better than the best"


@dataclass(frozen=True, kw_only=True)
class Patience(SweepOption):
    """How many trials may be no better than the best one."""

    title: ClassVar[str] = "patience"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="patience", kind=int, help="Trials without a better one that end the sweep."),
    )

    trials: int

    @classmethod
    def of(cls, values: Values) -> "Patience | None":
        return cls(trials=values["patience"]) if "patience" in values else None

    def check(self, experiment: "Experiment") -> None:
        if experiment.algorithm.name == "grid":
            raise InvalidInput("a grid is searched to its end", "leave patience out")

    def describe(self, experiment: "Experiment") -> str:
        return f"ends after {self.trials} trials without a better one"

    def follow(self, experiment: "Experiment") -> Follower:
        return Waiting(self.trials)
