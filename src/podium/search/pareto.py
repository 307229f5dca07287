"""Trials with several objectives: the values of each, and the front of those that no other
dominates."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class Value(float):
    """A trial's objective, with further objectives and constraints; a float, since most algorithms
    use the objective alone."""

    further: tuple[float, ...]
    broken: Mapping[str, float]
    """By how much it breaks each constraint, above 0; 0 or less if it keeps it."""

    feasible: bool
    """Whether it keeps every constraint."""

    def __new__(
        cls, value: float, further: Sequence[float] = (), broken: Mapping[str, float] | None = None
    ) -> "Value":
        made = super().__new__(cls, value)
        made.further, made.broken = tuple(further), dict(broken or {})
        made.feasible = all(by <= 0 for by in made.broken.values())
        return made

    @classmethod
    def of(cls, value: float) -> "Value":
        return value if isinstance(value, Value) else cls(value)

    @classmethod
    def read(cls, trial: "FrozenTrial") -> "Value | None":
        """Return a study's value of a trial; None if it has no result."""
        return cls(trial.values[0], trial.values[1:], trial.constraints) if trial.values else None

    @property
    def objectives(self) -> tuple[float, ...]:
        """All of them, the first one first."""
        return (float(self), *self.further)

    def costs(self, maximize: Sequence[bool]) -> tuple[float, ...]:
        """Return its objectives, so that less is better in each of them."""
        return tuple(
            -value if more else value for value, more in zip(self.objectives, maximize, strict=True)
        )


def tell(study: "Study", number: int, value: float | None) -> None:
    """Tell a study, which is alone in its storage, the end of a trial; None: it failed."""
    from optuna.trial import Trial, TrialState

    if value is None:
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        return
    result = Value.of(value)
    told = study.get_trials(deepcopy=False)[number].constraints if result.broken else {}
    for name, by in result.broken.items():
        if name not in told:
            Trial(study, number).set_constraint(
                name, by
            )  # alone in its storage, a study's numbers are its ids
    study.tell(number, result.objectives, skip_if_finished=True)


def _is_free(costs: tuple[float, ...], front: Sequence[tuple[float, ...]]) -> bool:
    # One dominates another if it is nowhere above it, and somewhere below.
    return not any(
        all(mine <= theirs for mine, theirs in zip(one, costs, strict=True)) and one != costs
        for one in reversed(front)
    )


def fronts(costs: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the number of the front that each is on: 1 if nothing dominates it, 2 if only those on
    1 do, and so on.

    By efficient non-dominated sort (Zhang, Tian, Cheng and Jin 2015): only those that come before
    it in the order can dominate one, and a front is found by bisection.
    """
    members: list[list[tuple[float, ...]]] = []
    numbers = [0] * len(costs)
    for at in sorted(range(len(costs)), key=costs.__getitem__):
        front = bisect_left(members, True, key=partial(_is_free, costs[at]))
        if front == len(members):
            members.append([])
        members[front].append(costs[at])
        numbers[at] = front + 1
    return numbers
