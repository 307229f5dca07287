"""A sweep that gives the same trials and the same best one each time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from podium.errors import InvalidInput
from podium.manifests.options.base import Setting, SweepOption, UnderKatib, Values

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Deterministic(SweepOption):
    """Trials that follow from the seed alone, whatever ends first."""

    title: ClassVar[str] = "deterministic"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="deterministic",
            kind=int,
            metavar="N",
            help="Same trials in every run: each follows from results N trials back, best twice the parallel ones.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib's suggestions depend on which trials end first.",
        what="only podium's own engine gives the same trials each time",
        hint="leave it out where Katib runs it",
    )

    trials: int
    """Number of newest trials whose results the search ignores."""

    @classmethod
    def of(cls, values: Values) -> "Deterministic | None":
        trials = values.get("deterministic")
        if trials is not None and trials < 1:
            raise InvalidInput(
                f"deterministic is a number of trials above 0, not {trials}", "deterministic: 16"
            )
        return None if trials is None else cls(trials=trials)

    def describe(self, experiment: "Experiment") -> str:
        return f"the same trials each time, each from results {self.trials} trials back"

    def check(self, experiment: "Experiment") -> None:
        """Refuse more trials at a time than it waits for, and options that depend on which trial
        ends first."""
        if (parallel := experiment.limits.parallel) > self.trials:
            raise InvalidInput(
                f"{parallel} trials at a time are more than the {self.trials} that a deterministic search waits for",
                f"--deterministic {2 * parallel}, the same in each run that is to be compared",
            )
        reasons = {
            "spec.objective.goal": experiment.objective.goal is not None,
            "spec.earlyStopping": experiment.early_stopping is not None,
            "a budget": any(name in experiment.asked for name in ("max_time", "max_cost")),
        }
        for reason, is_there in reasons.items():
            if is_there:
                problem = f"{reason} depends on which trial ends first: no two runs are the same"
                raise InvalidInput(problem, f"leave {reason} or deterministic out")

    def search(self, experiment: "Experiment") -> Values:
        return {"lag": self.trials}

    def check_trial_by_hand(self, experiment: "Experiment") -> None:
        """Refuse it: the trials follow from the seed alone."""
        problem = f"{experiment.name} gives the same trials each time; one by hand would change those after it"
        raise InvalidInput(problem, "start a sweep without deterministic")
