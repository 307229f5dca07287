"""The bounded part of a long study that a sampler sees, in memory: a suggestion costs the same
after ten thousand trials as after a few.

The record on disk stays whole; only what is modeled is bounded.
"""

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from podium.search.distributions import Columns
from podium.search.pareto import Value, fronts, tell

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

BEST = 25
"""The best trials are always seen: TPE, by Optuna's rule and by hyperopt's, takes no more of them
for good ones."""


class History:
    """A study in memory, that a sampler is asked on: all trials up to a limit, then half as many
    and the newest.

    That half is the best trials and a sample of the others, drawn anew from the whole record each
    time the limit is reached. Trials are known by their numbers in the record.

    Args:
        record: The study on disk.
        limit: Maximum number of trials, beside running ones.
        draw: Random numbers for the sampler's seed and the sample.
        sampler: Returns the sampler for a seed and the number of trials it does not see.
    """

    def __init__(
        self,
        record: "Study",
        limit: int,
        columns: Columns,
        draw: random.Random,
        sampler: "Callable[[int, int], BaseSampler]",
    ) -> None:
        self._record, self._limit, self._draw = record, limit, draw
        self._columns, self._sampler = columns, sampler
        self._fill()

    def ask(self, number: int) -> dict[str, Any]:
        """Return the values of the trial that gets this number."""
        if len(self._places) >= self._limit:
            self._fill()
        asked = self._columns.suggest(self._study)
        self._places[number] = asked.number
        return asked.params

    def give(self, number: int, values: "Mapping[str, Any]") -> None:
        self._places[number] = self._columns.add_running(self._study, values)

    def tell(self, number: int, value: float | None) -> None:
        """Report the end of a trial; None: it failed."""
        if (place := self._places.get(number)) is None:
            return  # it ended before, and is out of sight
        tell(self._study, place, value)

    def _fill(self) -> None:
        import optuna
        from optuna.trial import TrialState

        seed = self._draw.getrandbits(31)
        trials = self._record.get_trials(
            deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING)
        )
        seen = trials if len(trials) < self._limit else self._choose(trials)
        sampler = self._sampler(seed, len(trials) - len(seen))
        self._study = optuna.create_study(directions=self._record.directions, sampler=sampler)
        self._study.add_trials(seen)
        self._places = {trial.number: place for place, trial in enumerate(seen)}

    def _choose(self, trials: "list[FrozenTrial]") -> "list[FrozenTrial]":
        running = [trial for trial in trials if not trial.state.is_finished()]
        ended = [trial for trial in trials if trial.state.is_finished()]
        maximize = [direction.name == "MAXIMIZE" for direction in self._record.directions]
        scored = [(trial, value) for trial in ended if (value := Value.read(trial)) is not None]
        costs = [value.costs(maximize) for _, value in scored]
        ranks = fronts(costs) if len(maximize) > 1 else costs
        ranked = sorted(
            zip(scored, ranks, strict=True), key=lambda row: (not row[0][1].feasible, row[1])
        )
        ended = [trial for (trial, _), _ in ranked]
        others = ended[BEST:]
        sample = self._draw.sample(others, min(self._limit // 2 - BEST, len(others)))
        return sorted(ended[:BEST] + sample + running, key=lambda trial: trial.number)
