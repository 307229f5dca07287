"""Reproducible search: points depend on results, but not on the order in which they arrive.

Workers differ in speed, so what is known when a point is asked for differs from one run of a sweep
to the next, and with it every later point. Here the k-th point follows from the seed and from the
results of the trials up to k - lag alone, however many of the others have ended; it waits until
those have.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput
from podium.search.algorithm import PastTrial, Plan, Point
from podium.search.distributions import Columns
from podium.search.pareto import tell
from podium.search.space import Parameter

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial

NUMBER = "number"
"""Tag of a trial: which one it is, counted from 0."""

SAMPLER = "sampler"
"""Tag of a trial: the library that suggested it, with its version."""


class OtherLibrary(InvalidInput):
    """Another version of Optuna began the sweep."""


def check_sampler(trial: str, library: str | None) -> None:
    """Check the library that suggested a trial, None if it is not known.

    Raises:
        OtherLibrary: It is another version of Optuna: the next points would be others.
    """
    if library and library != (here := _library()):
        raise OtherLibrary(
            f"trial {trial} was suggested by {library}, and this is {here}: "
            "the trials after it may be others than in one run",
            f"go on with {library.replace('-', '==')}, or start the sweep again",
        )


def _library() -> str:
    import optuna

    return f"optuna-{optuna.__version__}"


class Sampled(Plan):
    """A plan whose points come from Optuna's sampler, with a new seed for each point.

    Args:
        directions: Directions of the objectives; the first is that of the plan.
        sampler: Returns a sampler for a seed.
        keeps: Whether the sampler keeps something of its own from point to point, beside the
            trials.
        earlier: Trials of other sweeps, which it learns from.
    """

    def __init__(
        self,
        space: Sequence[Parameter],
        settings: Mapping[str, Any],
        maximize: bool,
        *,
        directions: "Sequence[StudyDirection]",
        sampler: "Callable[[int], BaseSampler]",
        keeps: bool,
        earlier: "Sequence[FrozenTrial]",
    ) -> None:
        import optuna

        super().__init__(space, settings, maximize)
        self._columns, self._sampler, self._keeps = Columns(space), sampler, keeps
        self._study = optuna.create_study(directions=directions)
        self._study.add_trials(earlier)
        self._numbers: dict[str, int] = {}

    def next(self, trial: str) -> Point:
        draw = random.Random(f"{self.settings['random_state']}/{self.given}")
        self._study.sampler = self._sampler(draw.getrandbits(31))
        asked = self._columns.suggest(self._study)
        self._begun(trial, asked.number)
        return self._columns.decode(asked.params)

    def tags(self, trial: str) -> dict[str, str]:
        return {SAMPLER: _library()}

    def again(self, past: PastTrial) -> Point:
        """Return the point of a trial that an earlier process began, as if it were the next.

        Raises:
            OtherLibrary: Another version of Optuna suggested it: the next points would be others.
        """
        check_sampler(past.trial, past.tags.get(SAMPLER))
        if self._keeps:
            return self.next(past.trial)
        columns = self._columns.encode(past.point)
        self._begun(past.trial, self._columns.add_running(self._study, columns))
        return past.point

    def tell(self, trial: str, value: float | None) -> None:
        tell(self._study, self._numbers[trial], value)

    def _begun(self, trial: str, number: int) -> None:
        self._numbers[trial] = number
        self.given += 1


class InOrder(Plan):
    """A plan that hears of results in the order in which their trials began, and only of those that
    are long past.

    Args:
        plan: Source of the points, with a seed.
        lag: Maximum number of trials at a time: the results of the newest so many are not used.
    """

    def __init__(self, plan: Plan, lag: int) -> None:
        super().__init__(plan.space, plan.settings, plan.maximize)
        self._plan, self._lag = plan, lag
        self._trials: list[str] = []
        self._results: dict[str, float | None] = {}
        self._told = 0

    def next(self, trial: str) -> Point | None:
        """Return the next point; None before the trials it depends on have ended."""
        return self._after(trial, lambda: self._plan.next(trial))

    def tags(self, trial: str) -> dict[str, str]:
        """Return its number, and the plan's data to store."""
        return {NUMBER: str(self._trials.index(trial)), **self._plan.tags(trial)}

    def tell(self, trial: str, value: float | None) -> None:
        """Take in a result; it is passed on when its turn has come."""
        self._results[trial] = value

    def recall(self, history: Iterable[PastTrial]) -> None:
        """Ask for the points of the given trials again, in the order of their numbers.

        Raises:
            InvalidInput: They were others: by another version of podium or of Optuna.
        """
        seen = sorted(history, key=lambda past: int(past.tags.get(NUMBER, 0)))
        self._results = {past.trial: past.value for past in seen if not past.running}
        for past in seen:
            point = self._after(past.trial, lambda past=past: self._again(past))  # type: ignore[misc]
            if point != past.point:
                raise InvalidInput(
                    f"trial {past.trial} has {_said(past.point)}, but the search gives {_said(point)} now: "
                    "it was begun by another version of podium or of its libraries",
                    "start it again, or continue with that version",
                )

    def _again(self, past: PastTrial) -> Point | None:
        return (
            self._plan.again(past)
            if isinstance(self._plan, Sampled)
            else self._plan.next(past.trial)
        )

    def _after(self, trial: str, ask: Callable[[], Point | None]) -> Point | None:
        while self._told <= len(self._trials) - self._lag:
            if not self._pass_on():
                return None
        while (
            point := ask()
        ) is None:  # a rung that has to be full: it hears of more, in order as well
            if not self._pass_on():
                return None
        self._trials.append(trial)
        return point

    def _pass_on(self) -> bool:
        if (
            self._told == len(self._trials)
            or (trial := self._trials[self._told]) not in self._results
        ):
            return False
        self._plan.tell(trial, self._results[trial])
        self._told += 1
        return True


def _said(point: Mapping[str, str] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in (point or {}).items()) or "none"
