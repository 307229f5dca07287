"""Sweeps and their trials as pages."""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

from podium.api.sweep_report import command_of
from podium.api.trials import TrialReader, leaderboard_of, measured
from podium.cluster.base import Cluster
from podium.errors import NotFound
from podium.manifests.experiment import (
    Experiment,
    Trial,
    best_trial,
    leaderboard,
    why_none,
)
from podium.manifests.labels import BY_HAND
from podium.manifests.options import describe
from podium.reports import plots
from podium.reports.leaderboard import Leaderboard
from podium.training.standing import UNKNOWN, Standing, standing
from podium.training.trial_table import trial_table
from podium.ui.view import LINES, View

SWEEPS = ("/sweeps/{name}", "/runs/{run}/sweeps/{name}")
"""Paths of a sweep: of the cluster that is shown, and of a run."""

_MOST_ROWS = 100
"""Trials of a leaderboard of which not all are asked for."""

_MOST_CURVES = 30
"""Trials whose curves are drawn: those that run, and the best."""

_GROWTH = 1.1
"""Importance is computed again when the number of results has grown by this factor."""

_MANY = 50
"""Trials that are read one by one before all are read at once."""


class FollowedSweep:
    """A sweep that is polled: nothing is read twice about a trial that has ended.

    Args:
        cluster: Open.
        name: Name of the Experiment.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.trials = TrialReader(cluster, name)
        self._begin("")

    def _begin(self, uid: str) -> None:
        """Know nothing yet of the Experiment with a uid."""
        self._uid = uid
        self._ended: dict[str, Trial] = {}
        self._curves: dict[str, list[dict[str, float]]] = {}
        self._whole: set[str] = set()  # trials whose curve will not grow
        self._figures: tuple[int, dict[str, str]] = (-1, {})
        self._importance: tuple[int, dict[str, str]] = (0, {})
        self._standing: tuple[int, Standing] = (0, UNKNOWN)

    def read(self) -> tuple[Experiment, list[Trial]]:
        """Return the Experiment and its trials, oldest first, as they are now.

        Raises:
            NotFound: There is no such Experiment.
        """
        experiment = self.cluster.experiment(self.name)
        if experiment.uid != self._uid:  # the one before was deleted
            self._begin(experiment.uid)
        listed = {name for names in experiment.trials.values() for name in names}
        unread = [name for name in listed if name not in self._ended]
        if len(unread) > _MANY or not self._ended:
            trials = self.trials.all(experiment)
        else:
            # A copy: other pages of this sweep are looked at meanwhile.
            trials = [trial for name, trial in [*self._ended.items()] if name in listed]
            trials += [trial for name in unread for trial in self._find(name, experiment)]
        self._ended |= {trial.name: trial for trial in trials if trial.has_ended}
        return experiment, sorted(trials, key=lambda trial: (trial.created, trial.uid))

    def _find(self, name: str, experiment: Experiment) -> list[Trial]:
        with suppress(NotFound):
            return [self.trials.updated(self.cluster.trial(name), experiment)]
        return []

    def view(self, path: str, *, every: bool = False, picked: Sequence[str] = ()) -> View:
        """Return its page.

        Args:
            path: Path of the page.
            every: Whether the leaderboard has all trials.
            picked: Numbers of trials that it shows whatever their rank.

        Raises:
            NotFound: There is no such Experiment.
        """
        experiment, trials = self.read()
        ranked, best = leaderboard(trials), best_trial(trials)
        numbers = {trial.name: number for number, trial in enumerate(trials, 1)}
        chosen = {name for name, number in numbers.items() if str(number) in picked}
        shown = [
            trial
            for at, trial in enumerate(ranked)
            if every or at < _MOST_ROWS or not trial.has_ended or trial.name in chosen
        ]
        sure = self._standing_of(experiment, ranked)
        board = replace(
            leaderboard_of(shown, experiment, trials, sure, numbers),
            parameters=[parameter.name for parameter in experiment.space],  # before any trial too
        )
        counts = {phase: len(names) for phase, names in experiment.trials.items()}
        return View(
            template="sweep.html.jinja",
            title=self.name,
            over=experiment.state.finished,
            figures=self._drawn(experiment, trials, ranked, best, chosen),
            shown={
                "experiment": experiment,
                "note": self.cluster.note(experiment),
                "state": experiment.outcome,
                "counts": counts,
                "board": board,
                "order": _order(board),
                "cause": "" if best else why_none(trials),
                "best": best,
                "path": path,
                "count": len(trials),
                "hidden": len(ranked) - len(shown),
                "every": every,
                "asked": describe(experiment),
                "front_note": plots.FRONT_NOTE,
                "metrics": {} if best is None else measured(best, experiment),
                "command": command_of(best, experiment.template.primary_container) if best else "",
                "rank": {
                    trial.name: at
                    for at, trial in enumerate(ranked, 1)
                    if trial.value is not None and not trial.infeasible and not trial.repeats
                },
            },
        )

    def _standing_of(self, experiment: Experiment, ranked: Sequence[Trial]) -> Standing:
        """Return how sure the figures are; read again by tenths of the trials, and at the end."""
        results = sum(trial.is_good for trial in ranked)
        is_last = experiment.state.finished and results != self._standing[0]
        if is_last or results > _GROWTH * self._standing[0]:
            self._standing = results, standing(experiment, ranked)
        return self._standing[1]

    def _drawn(
        self,
        experiment: Experiment,
        trials: Sequence[Trial],
        ranked: Sequence[Trial],
        best: Trial | None,
        chosen: Container[str],
    ) -> dict[str, str]:
        """Return the figures; those of all trials only when there are other results than last time.

        Importance takes seconds to load: it is not in the first view, and follows by tenths of the
        trials.
        """
        results = [trial for trial in trials if trial.value is not None and trial.has_ended]
        before, figures = self._figures
        if before != len(results) or len(results) > _GROWTH * self._importance[0]:
            table = asdict(trial_table(experiment, trials, best))
            with_result = {trial.name for trial in results}
            table["trials"] = [row for row in table["trials"] if row["name"] in with_result]
            figures = plots.as_json(plots.of_trials(table) if len(results) > 1 else {})
            if before >= 0 and len(results) > _GROWTH * self._importance[0]:
                self._importance = len(results), plots.as_json(plots.of_importance(table))
            self._figures = len(results), figures
        return {
            **figures,
            **self._importance[1],
            **self._curves_of(experiment, trials, ranked, best, chosen),
        }

    def curves(self, further: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the figure of learning curves, with those of what trained beside its trials.

        Args:
            further: Each with its ``name`` and ``epochs``; they stand out.
        """
        experiment, trials = self.read()
        ranked, best = leaderboard(trials), best_trial(trials)
        return self._curves_of(experiment, trials, ranked, best, (), further)

    def _curves_of(
        self,
        experiment: Experiment,
        trials: Sequence[Trial],
        ranked: Sequence[Trial],
        best: Trial | None,
        chosen: Container[str],
        further: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, str]:
        running = [trial for trial in trials if trial.phase == "Running"]
        ended = [trial for trial in ranked if trial.has_ended and trial.is_good]
        others = [
            trial for at, trial in enumerate(ended) if at < _MOST_CURVES or trial.name in chosen
        ]
        drawn = [*reversed(others), *running]  # what is drawn last lies above the rest
        drawn.sort(key=lambda trial: best is not None and trial.name == best.name)
        numbers = {trial.name: number for number, trial in enumerate(trials, 1)}
        rows = [
            {
                "name": trial.name,
                "number": numbers[trial.name],
                "epochs": self._curve(trial, experiment),
            }
            for trial in drawn
        ]
        named = [*([best.name] if best else []), *(trial.name for trial in running)]
        curves = plots.learning_curves(
            [*(row for row in rows if row["epochs"]), *further],
            {experiment.objective.metric: experiment.objective.maximize},
            [*named, *(row["name"] for row in further)],
            best.name if best else "",
        )
        return plots.as_json(curves)

    def _curve(self, trial: Trial, experiment: Experiment) -> list[dict[str, float]]:
        """Return a trial's curve as printed; for a trial whose pod is gone, the last one that was
        read."""
        if trial.name not in self._whole:
            epochs = self.trials.epochs(trial.name, experiment)
            self._curves[trial.name] = epochs or self._curves.get(trial.name, [])
            if trial.has_ended:
                self._whole.add(trial.name)
        return self._curves[trial.name]

    def trial_view(self, name: str, path: str) -> View:
        """Return the page of a trial.

        Raises:
            NotFound: There is no such trial.
        """
        experiment, trial = self.cluster.experiment(self.name), self.cluster.trial(name)
        if trial.experiment != self.name:
            raise NotFound(f"{self.name} has no trial {name!r}")
        lines = self.trials.last_lines(name)
        trial = self.trials.updated(trial, experiment)
        curves = plots.learning_curves(
            [{"name": name, "epochs": self.trials.epochs(name, experiment, lines)}],
            {experiment.objective.metric: experiment.objective.maximize},
            [name],
            name,
        )
        return View(
            template="trial.html.jinja",
            title=name,
            figures=plots.as_json(curves),
            over=trial.has_ended,
            shown={
                "trial": trial,
                "note": self.cluster.note(trial),
                "by_hand": BY_HAND in trial.labels,
                "experiment": experiment,
                "path": path,
                "metrics": measured(trial, experiment),
                "lines": lines[-LINES:],
                "cut": max(0, len(lines) - LINES),
                "command": command_of(trial, experiment.template.primary_container),
            },
        )


def _order(board: Leaderboard) -> list[int]:
    """Return the columns of a leaderboard, what matters first: a phone shows only the first few."""
    heads = board.heads
    state = heads.index("STATE")
    metrics = range(state + 1 + len(board.parameters), len(heads) - 1)
    first = [*(at for at in range(state) if heads[at] != ">STARTED"), *metrics, state]
    others = [at for at in range(len(heads)) if at not in first]
    return [*first, *sorted(others, key=lambda at: heads[at] == ">STARTED")]


def load_figures() -> None:
    """Import the computation of importance, which takes seconds, before it is needed."""
    with suppress(ImportError):
        import_module("optuna.importance").get_param_importances  # noqa: B018  optuna loads it when it is looked at
