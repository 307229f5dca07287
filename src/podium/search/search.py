"""Suggestions for trials: a search space, an algorithm, and an Optuna study on disk.

The study is a journal file, ``<dir>/optuna.journal``; give optuna-dashboard a copy, for it writes
into what it opens. Its trials carry the trial's name as user attribute ``trial``, those of earlier
sweeps as ``from``.
"""

import contextlib
import json
import os
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.search.algorithm import Algorithm, PastTrial, Plan
from podium.search.algorithms import ALGORITHMS
from podium.search.bayesian import BEST
from podium.search.distributions import Columns
from podium.search.in_order import InOrder, Sampled
from podium.search.pareto import Value, fronts, tell
from podium.search.space import Parameter

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


JOURNAL = "optuna.journal"
"""File name of the study in an Experiment's directory."""


def _open_journal(path: Path) -> Any:
    """Return the backend of a journal that this process alone writes; half a line at its end is cut
    off."""
    from optuna.storages.journal import BaseJournalBackend

    class Journal(BaseJournalBackend):
        """Optuna's own waits for the disk, takes a lock and opens the file again and again for each
        of a trial's entries; the engine writes alone, so it reads the file once."""

        def __init__(self) -> None:
            _cut_partial_line(path)
            path.touch()
            with path.open("rb") as file:
                self._unread = [json.loads(line) for line in file]

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            lines = [json.dumps(log, separators=(",", ":")) for log in logs]
            with path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            self._unread += map(json.loads, lines)

        def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
            # The storage reads each entry once, in order.
            unread, self._unread = self._unread, []
            return unread

    return Journal()


def _open_study(directory: Path, name: str, maximize: Sequence[bool]) -> "Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    directory.mkdir(parents=True, exist_ok=True)
    with _quiet():
        storage = optuna.storages.JournalStorage(_open_journal(directory / JOURNAL))
        return optuna.create_study(
            storage=storage,
            study_name=name,
            directions=["maximize" if more else "minimize" for more in maximize],
            load_if_exists=True,
        )


def _cut_partial_line(path: Path) -> None:
    # A full disk or a crash of the machine leaves half a line; the next one would continue it.
    if path.exists():
        written = path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(path, whole)


class Search:
    """Asks an algorithm for points and tells it the results.

    Args:
        algorithm: A name in ALGORITHMS.
        settings: The algorithm's, checked.
        maximize: Whether more is better.
        further: The same of further objectives; the algorithm must be one that takes several.
        directory: Directory of the journal; an existing study is continued.
        earlier: Finished trials of other sweeps, in this space; a continued study has them already.
        begun: The trials there are; those that the study lacks are added to it. A point that was
            asked for before a crash, but never became one of them, is given back. None: all became
            one.
        first: Points that the algorithm does not suggest: the first trials have them.
        lag: Maximum number of trials at a time if points are to be reproducible, see in_order;
            None: each point follows from all results there are.
    """

    def __init__(
        self,
        space: Sequence[Parameter],
        algorithm: str,
        settings: Mapping[str, Any],
        *,
        maximize: bool,
        further: Sequence[bool] = (),
        directory: Path,
        name: str,
        earlier: Sequence[PastTrial] = (),
        begun: Sequence[PastTrial] | None = None,
        first: Sequence[Mapping[str, str]] = (),
        lag: int | None = None,
    ) -> None:
        chosen = ALGORITHMS[algorithm]
        self._space = [chosen.explored(parameter, settings) for parameter in space]
        self._columns = Columns(self._space)
        if any(parameter.when for parameter in self._space):
            settings = {**settings, "group": True}  # for a joint model of what counts together
        self._study = _open_study(directory, name, (maximize, *further))
        stored = [trial.user_attrs for trial in self._study.get_trials(deepcopy=False)]
        had, named = ({attrs.get(key) for attrs in stored} for key in ("from", "trial"))
        for known_trial in earlier:
            if known_trial.trial not in had:
                self._add({"from": known_trial.trial}, known_trial)
        for past in begun or ():
            if past.trial not in named:
                self._add_past(past)
        trials = self._give_back(None if begun is None else {past.trial for past in begun})
        self._count = len(self._study.get_trials(deepcopy=False))
        self._numbers = {
            trial.user_attrs["trial"]: trial.number
            for trial in trials
            if "trial" in trial.user_attrs
        }
        # Trials whose end the plan is not told: it has not suggested them, or recalls their end.
        self._untold = {
            trial.user_attrs["trial"] for trial in trials if trial.user_attrs.get("by hand")
        }
        by_hand = [trial.params for trial in trials if trial.user_attrs.get("by hand")]
        self._first = [point for point in first if self._columns.encode(point) not in by_hand]
        self._history: _History | None = None
        warm = [trial for trial in trials if "from" in trial.user_attrs]
        recalled = self._past(trials)
        if lag and begun is not None:
            recalled = [past for past in begun if not past.by_hand]
        with _quiet():
            self._plan = self._make_plan(chosen, space, settings, warm, lag)
            if self._plan:
                self._plan.recall(recalled)
                self._untold |= {past.trial for past in recalled if not past.running}
            elif chosen.sampler:
                self._sample(
                    chosen,
                    partial(chosen.sampler, settings, warm),
                    settings.get("random_state"),
                    len(trials),
                )

    def _make_plan(
        self,
        chosen: Algorithm,
        space: Sequence[Parameter],
        settings: Mapping[str, Any],
        warm: "Sequence[FrozenTrial]",
        lag: int | None,
    ) -> Plan | None:
        """Return the algorithm's plan, None if it samples; with a lag always one, whose points do
        not depend on which trial ends first."""
        maximize = self._study.directions[0].name == "MAXIMIZE"
        settings = {"random_state": 0, **settings} if lag else settings
        plan = chosen.plan(space, settings, maximize) if chosen.plan else None
        if not lag:
            return plan
        if not plan:
            assert chosen.sampler
            make = partial(chosen.sampler, settings, warm)
            plan = Sampled(
                self._space,
                settings,
                maximize,
                earlier=warm,
                directions=self._study.directions,
                keeps=chosen.history is None,
                sampler=lambda seed: make(seed, 0),
            )
        return InOrder(plan, lag)

    def _sample(
        self,
        chosen: Algorithm,
        make: "Callable[[int, int], BaseSampler]",
        seed: int | None,
        count: int,
    ) -> None:
        # A resumed search must not draw its first points again.
        draw = random.Random(None if seed is None else f"{seed}/{count}")
        if chosen.history:
            self._history = _History(self._study, chosen.history, self._columns, draw, make)
        else:
            self._study.sampler = make(draw.getrandbits(31), 0)

    def ask(self, trial: str) -> dict[str, str] | None:
        """Return values for a new trial, as text; None if the algorithm has no more, or none
        now."""
        with _quiet():
            if self._plan:
                if (point := self._plan.next(trial)) is None:
                    return None
                values = self._columns.encode(point)
            elif self._history:
                values = self._history.ask(self._count)
            else:
                asked = self._columns.suggest(self._study)
                asked.set_user_attr("trial", trial)
                values = asked.params
        if self._plan or self._history:
            tags = self.tags(trial)
            attributes = {"trial": trial, **({"tags": tags} if tags else {})}
            self._columns.add(self._study, values, running=True, attributes=attributes)
        self._numbers[trial] = self._count
        self._count += 1
        return self._columns.decode(values)

    @property
    def first(self) -> Mapping[str, str] | None:
        """The next point that a user wants to be tried first, until it is given."""
        return self._first[0] if self._first else None

    def give(self, trial: str, point: Mapping[str, str]) -> None:
        """Add a running trial with values chosen by a user.

        Args:
            point: A value of the space for each parameter.
        """
        values = self._columns.encode(point)
        self._first = [each for each in self._first if self._columns.encode(each) != values]
        attributes = {"trial": trial, "by hand": True}
        self._columns.add(self._study, values, running=True, attributes=attributes)
        if self._history:
            self._history.give(self._count, values)
        self._untold.add(trial)
        self._numbers[trial] = self._count
        self._count += 1

    def tags(self, trial: str) -> dict[str, str]:
        """Return data to store with a suggested trial, beside its values."""
        return self._plan.tags(trial) if self._plan else {}

    def tell(self, trial: str, value: float | None) -> None:
        """Report the end of a trial.

        Args:
            value: The objective, a Value if there is more to it; None if it failed or reported no
                number.
        """
        number = self._numbers.get(trial)
        if number is None:
            return
        if self._plan and trial not in self._untold:
            self._plan.tell(trial, value)
        if self._history:
            self._history.tell(number, value)
        tell(self._study, number, value)

    def _past(self, trials: "Sequence[FrozenTrial]") -> list[PastTrial]:
        return [
            PastTrial(
                trial=trial.user_attrs["trial"],
                point=self._columns.decode(trial.params),
                value=Value.read(trial),
                running=not trial.state.is_finished(),
                tags=trial.user_attrs.get("tags", {}),
            )
            for trial in trials
            if "trial" in trial.user_attrs and not trial.user_attrs.get("by hand")
        ]

    def _give_back(self, begun: Collection[str] | None) -> "list[FrozenTrial]":
        from optuna.trial import TrialState

        kept = []
        for trial in self._study.get_trials(deepcopy=False):
            result = trial.state == TrialState.COMPLETE
            if result or begun is None or trial.user_attrs.get("trial") in begun:
                kept.append(trial)
            elif not trial.state.is_finished():  # else it was given back before
                self._study.tell(trial.number, state=TrialState.FAIL)
        return kept

    def _add_past(self, past: PastTrial) -> None:
        """Add a trial of an engine whose study is lost: where trials are kept elsewhere, they are
        all that is left."""
        own = {"trial": past.trial, "tags": past.tags, "by hand": past.by_hand}
        self._add({name: value for name, value in own.items() if value}, past)

    def _add(self, attributes: dict[str, Any], past: PastTrial) -> None:
        columns, running = self._columns.encode(past.point), past.running
        self._columns.add(self._study, columns, past.value, running=running, attributes=attributes)


class _History:
    """A study in memory, that a sampler is asked on: all trials up to a limit, then half as many
    and the newest.

    That half is the best trials and a sample of the others, drawn anew from the whole record each
    time the limit is reached: a suggestion costs the same after ten thousand trials as after a few.
    The record on disk stays whole. Trials are known by their numbers in it.

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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # What Optuna calls experimental is what was asked for.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
