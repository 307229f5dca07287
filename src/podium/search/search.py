"""Suggestions for trials: a search space, an algorithm, and an Optuna study on disk.

The study is a journal file, ``<dir>/optuna.journal``; give optuna-dashboard a copy, for it writes into what it opens.
Its trials carry the trial's name as user attribute ``trial``, those of earlier sweeps as ``from``.
"""

import contextlib
import math
import random
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.search.distributions import column, decode, distribution, encode
from podium.search.journal import JOURNAL, open_journal
from podium.search.plans import budget
from podium.search.population import loosen
from podium.search.samplers import plan
from podium.search.space import Parameter
from podium.search.warm_start import Earlier

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


class Search:
    """Asks an algorithm for points and tells it what became of them.

    Args:
        space: What is searched.
        algorithm: A name of Katib's, or asha.
        settings: The algorithm's, checked.
        maximize: Whether more is better.
        directory: Holds the journal; an existing study is continued.
        name: Of the study.
        earlier: Finished trials of other sweeps, in this space; a continued study has them already.
        begun: The trials there are. A point that was asked for before a crash, but never became one of them, is given
            back. None: all became one.
    """

    def __init__(
        self,
        space: Sequence[Parameter],
        algorithm: str,
        settings: Mapping[str, Any],
        *,
        maximize: bool,
        directory: Path,
        name: str,
        earlier: Sequence[Earlier] = (),
        begun: Collection[str] | None = None,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if algorithm in ("hyperband", "asha"):
            most = max(settings["r_l"], settings.get("r_min", 1.0))
            space = [budget(each, most) if each.name == settings["resource_name"] else each for each in space]
        self._space = [loosen(parameter) for parameter in space] if algorithm == "pbt" else list(space)
        self._distributions = {column(parameter): distribution(parameter) for parameter in self._space}
        directory.mkdir(parents=True, exist_ok=True)
        with _quiet():
            storage = optuna.storages.JournalStorage(open_journal(directory / JOURNAL))
            self._study = optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize" if maximize else "minimize",
                load_if_exists=True,
            )
        had = {trial.user_attrs.get("from") for trial in self._study.get_trials(deepcopy=False)}
        for known_trial in earlier:
            if known_trial.trial not in had:
                self._add(known_trial)
        known = self._give_back(begun)
        self._numbers = {trial.user_attrs["trial"]: trial.number for trial in known if "trial" in trial.user_attrs}
        seed = settings.get("random_state")
        # A resumed search must not draw its first points again.
        self._random = random.Random(None if seed is None else f"{seed}/{len(known)}")
        self._plan = plan(algorithm, space, settings, maximize=maximize, seen=known)
        self._points = _point_sampler() if self._plan else None
        with _quiet():
            warm = [trial for trial in known if "from" in trial.user_attrs]
            self._study.sampler = self._points or _sampler(algorithm, settings, self._random.getrandbits(31), warm)

    def ask(self, trial: str) -> dict[str, str] | None:
        """Return values for a new trial, as text; None if the algorithm has no more, or none now."""
        if self._plan and self._points:
            point = self._plan.next(trial)
            if point is None:
                return None
            self._points.point = {
                column(parameter): encode(parameter, point[parameter.name]) for parameter in self._space
            }
        with _quiet():
            asked = self._study.ask(fixed_distributions=self._distributions)
        asked.set_user_attr("trial", trial)
        if tags := self.tags(trial):
            asked.set_user_attr("tags", tags)
        self._numbers[trial] = asked.number
        values = asked.params
        return {parameter.name: decode(parameter, values[column(parameter)]) for parameter in self._space}

    def tags(self, trial: str) -> dict[str, str]:
        """Return what a trial that was asked for has to remember, beside its values."""
        return self._plan.tags(trial) if self._plan else {}

    @property
    def finished(self) -> bool:
        """Whether no further point will ever come."""
        return self._plan is not None and self._plan.finished

    def tell(self, trial: str, value: float | None) -> None:
        """Report the end of a trial.

        Args:
            value: The objective; None if it failed or reported no number.
        """
        import optuna

        number = self._numbers.get(trial)
        if number is None:
            return
        if self._plan:
            self._plan.tell(trial, value)
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        self._study.tell(number, value, state=state, skip_if_finished=True)

    def _give_back(self, begun: Collection[str] | None) -> "list[FrozenTrial]":
        from optuna.trial import TrialState

        kept = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished() or begun is None or trial.user_attrs.get("trial") in begun:
                kept.append(trial)
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)
        return kept

    def _add(self, earlier: Earlier) -> None:
        import optuna

        params = {
            column(parameter): encode(parameter, earlier.assignments[parameter.name]) for parameter in self._space
        }
        attributes = {"from": earlier.trial}
        self._study.add_trial(
            optuna.trial.create_trial(
                params=params, distributions=self._distributions, value=earlier.value, user_attrs=attributes
            )
        )


def _sampler(
    algorithm: str, settings: Mapping[str, Any], seed: int, warm: "Sequence[FrozenTrial]"
) -> "optuna.samplers.BaseSampler":
    import optuna

    if algorithm == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if algorithm in ("tpe", "multivariate-tpe"):
        given = {
            "prior_weight": settings.get("prior_weight"),
            "n_ei_candidates": settings.get("n_ei_candidates", settings.get("n_EI_candidates")),
            "n_startup_trials": settings.get("n_startup_trials"),
        }
        if "gamma" in settings:  # hyperopt's rule, which Katib's tpe runs
            share = settings["gamma"]
            given["gamma"] = lambda count: min(math.ceil(share * math.sqrt(count)), 25)
        given = {name: value for name, value in given.items() if value is not None}
        return optuna.samplers.TPESampler(seed=seed, multivariate=algorithm == "multivariate-tpe", **given)
    if algorithm == "cmaes":
        # Optuna begins either with a given width or with the one that earlier trials suggest.
        start = {"source_trials": _continuous(warm)} if warm else {"sigma0": settings.get("sigma")}
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False, **start)
    startup = settings.get("n_initial_points", 10)
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)


def _continuous(trials: "Sequence[FrozenTrial]") -> "list[FrozenTrial]":
    """Return trials without the columns that CMA-ES leaves to chance: it takes only those with exactly its own."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import create_trial

    shown = []
    for trial in trials:
        kept = {
            name: kind
            for name, kind in trial.distributions.items()
            if not isinstance(kind, CategoricalDistribution) and not kind.single()
        }
        params = {name: trial.params[name] for name in kept}
        shown.append(create_trial(params=params, distributions=kept, value=trial.value))
    return shown


def _point_sampler() -> Any:
    import optuna

    class Points(optuna.samplers.BaseSampler):
        """Returns the point it was given, so that a plan's trials are in the study like any others."""

        point: dict[str, Any]

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self.point[param_name]

    return Points()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # What Optuna calls experimental is what was asked for.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
