"""How trials are shown: a live table on a terminal, a line at each change everywhere else."""

from collections.abc import Iterator, Mapping

from podium.api.trials import TrialProgress, leaderboard_of, trials_of
from podium.cli.live import View
from podium.cluster.base import Cluster
from podium.manifests.experiment import Experiment, Trial, best_trial
from podium.manifests.options import forecast
from podium.terminal import Styled, styled
from podium.text import plural

_SHOWN = 24
"""Rows of the live table at most; earlier trials are counted, the best always shown."""

_AROUND = 6
"""Lines of the terminal left for the title, heads, the best trial and the prompt."""


class ExperimentView(View):
    """An Experiment's trials.

    Args:
        reported: Phases of trials that a log need not hear of again.
    """

    def __init__(self, cluster: Cluster, name: str, reported: Mapping[str, str]) -> None:
        super().__init__(cluster)
        self._name, self._news = name, TrialProgress(cluster, name, reported)
        self._seen: tuple[Experiment, list[Trial]] | None = None

    def state(self) -> str:
        """Count the trials by phase."""
        return self._news.state()

    def look(self) -> None:
        """Read all trials."""
        experiment = self.cluster.experiment(self._name)
        self._seen = experiment, trials_of(self.cluster, experiment)

    def news(self) -> Iterator[str]:
        """Describe each change."""
        return self._news.lines()

    def table(self, width: int) -> Styled:
        """Draw the latest trials, the running ones and the best, as many as there is room for."""
        if not self._seen:
            return styled("starting …")
        experiment, trials = self._seen
        best = best_trial(trials)
        said = forecast(experiment, trials)
        most = max(1, min(_SHOWN, (self.height or 100) - _AROUND - (1 if said else 0)))
        hidden = {
            trial.name for trial in trials[:-most] if trial is not best and trial.phase != "Running"
        }
        title = f"{self._name}: {plural(len(trials), 'trial')}, {self.seconds:.0f} s"
        if hidden:
            title += f" ({len(hidden)} earlier ones not shown)"
        if said:
            title += f"; {said}"
        shown = [trial for trial in trials if trial.name not in hidden]
        return leaderboard_of(shown, experiment, trials).text(width=width, title=title)
