"""A sweep: an Experiment that runs on this machine or on a cluster, from its start to its best
model."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from podium.api import experiments
from podium.api.cluster_spec import ClusterSpec
from podium.api.launched import Launched, Session
from podium.api.plots import Plots
from podium.api.space import argument_of, read_value
from podium.api.sweep_list import sweep_row
from podium.api.trials import (
    Best,
    TrialProgress,
    TrialReader,
    failed,
    leaderboard_of,
    model_of,
)
from podium.cluster.base import Cluster
from podium.display.notebook import LiveCell, Log, data_frame, in_notebook, say
from podium.display.terminal import doing
from podium.display.text import plural
from podium.errors import InvalidInput, NotFound, PodiumError, suggestion
from podium.manifests.experiment import (
    Changes,
    Experiment,
    Trial,
    best_trial,
    leaderboard,
    no_best,
    pareto_front,
)
from podium.manifests.experiment.build import tuned_for_numbers
from podium.manifests.experiment.rules import warnings_of
from podium.manifests.names import named
from podium.manifests.options import (
    SweepOptions,
    describe,
    documented,
    ended_by,
    forecast,
    read_settings,
    settings,
)
from podium.storage import absolute
from podium.system.arguments import checked, plain, require_types
from podium.training.standing import Standing, standing

if TYPE_CHECKING:
    from pandas import DataFrame


_SHOWN = 50
"""Rows of the table in a notebook at most; the best are shown."""


@checked
class Sweep(Launched):
    """A sweep: an Experiment that is running or has ended.

    Args:
        cluster: The open cluster if this process has it open; it is opened when needed otherwise.
    """

    def __init__(self, spec: ClusterSpec, name: str, cluster: Cluster | None = None) -> None:
        super().__init__(Session(spec, cluster), "Experiment", name)
        self._news: TrialProgress | None = None

    @property
    def _reader(self) -> TrialReader:
        return TrialReader(self.cluster, self.name)

    @property
    def experiment(self) -> Experiment:
        """The Experiment with its present status."""
        return self.cluster.experiment(self.name)

    @property
    def status(self) -> str:
        """``Created``, ``Running``, ``Stopped``, ``Succeeded`` or ``Failed``."""
        return self.experiment.state.phase

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell, ``podium mcp`` and the page show of it."""
        return sweep_row(self.cluster, self.experiment)

    @property
    def note(self) -> str:
        """A person's note, which can be set: ``sweep.note = "too few epochs"``; empty if there is
        none."""
        return self.cluster.note(self.experiment)

    @note.setter
    def note(self, note: str) -> None:
        self.cluster.write_note("Experiment", self.name, note)

    @property
    def finished(self) -> dict[str, str]:
        """State of each trial that has ended, by its name."""
        return {trial.name: trial.phase for trial in self._reader.ended()}

    @property
    def results(self) -> list[Trial]:
        """The trials, typed, oldest first; a running one has the metrics it printed so far."""
        return self._reader.all(self.experiment)

    def standing(self, ranked: Sequence[Trial]) -> Standing:
        """Return how sure the figures of its trials are, best first."""
        return standing(self.experiment, ranked)

    @property
    def trials(self) -> "DataFrame":
        """The trials, best first: name, state, parameters, metrics, seconds and model; where a
        parameter has one of these names, the column is ``trial_model``, say.

        Raises:
            PodiumError: pandas is not installed.
        """
        experiment, trials = self.experiment, leaderboard(self.results)
        names = {parameter.name: parameter.kind for parameter in experiment.space}
        metrics = experiment.objective.metrics
        sure = standing(experiment, trials)
        interval_names = ("low", "high", "tied") if sure.intervals else ()
        searched = list(dict.fromkeys([*names, *metrics]))
        own = {
            name: f"trial_{name}" if name in searched else name
            for name in ("trial", "state", *interval_names, "seconds", "model")
        }
        rows = [
            {
                own["trial"]: row.name,
                **{name: argument_of(row.parameters.get(name, ""), names[name]) for name in names},
                **{name: read_value(value) for name, value in row.metrics.items()},
                own["state"]: row.state,
                **dict(
                    zip(
                        (own[name] for name in interval_names),
                        (*(row.interval or (None, None)), row.tied),
                        strict=False,
                    )
                ),
                own["seconds"]: row.seconds,
                own["model"]: model_of(trial),
            }
            for trial, row in zip(
                trials, leaderboard_of(trials, experiment, sure=sure).rows, strict=True
            )
        ]
        trial_name, state, *last = own.values()
        return data_frame(rows, [trial_name, state, *searched, *last])

    @property
    def best(self) -> Best:
        """The best trial that ended with a result.

        Raises:
            NotFound: There is none yet.
        """
        return Best.of(self.best_trial, self.experiment)

    @property
    def front(self) -> list[Best]:
        """The Pareto front, best in the first objective first: no other trial is better in one
        objective, and as good in the others. With one objective it is the best trial; empty as long
        as there is no result."""
        experiment = self.experiment
        front = pareto_front(self.cluster.judged_trials(experiment))
        return [Best.of(trial, experiment) for trial in front]

    @property
    def best_trial(self) -> Trial:
        """The best trial, typed.

        Raises:
            NotFound: There is none yet.
        """
        trials = self.cluster.judged_trials(self.experiment)
        best = best_trial(trials)
        if best is None:
            raise NotFound(
                f"no trial of {self.name} {no_best(trials)}",
                "sweep.logs(TRIAL) shows what a trial printed",
            )
        return best

    @property
    def plot(self) -> Plots:
        """Figures: ``plot.history()``, ``plot.importance()``, ``plot.parallel()``,
        ``plot.front()``."""
        return Plots(self._table)

    def _table(self) -> dict[str, Any]:
        from podium.training.trial_table import trial_table

        experiment = self.experiment
        trials = self.cluster.judged_trials(experiment)
        return asdict(trial_table(experiment, trials, best_trial(trials)))

    def logs(self, trial: str | None = None) -> Log:
        """Return the output of a trial.

        Args:
            trial: Name of the trial; the best one if None, or the first failed one of a sweep
                without a result.

        Raises:
            NotFound: There is no such trial.
        """
        if trial is None:
            ended = self._reader.ended()
            shown = best_trial(ended) or next(iter(failed(ended)), None)
            if shown is None:
                raise NotFound(f"no trial of {self.name} has ended", "name one of sweep.trials")
            trial = shown.name
        return Log("\n".join(self.cluster.logs("Trial", self._trial(trial).name)))

    def _trial(self, name: str) -> Trial:
        trials = {trial.name: trial for trial in self.cluster.trials(self.name)}
        if name not in trials:
            raise NotFound(f"{self.name} has no trial {name!r}", suggestion(name, trials))
        return trials[name]

    def report(self, path: str | Path | None = None) -> Path:
        """Write an HTML report that opens anywhere: the best trial, the leaderboard, figures, and
        why trials failed.

        Args:
            path: The file; beside the Experiment on this machine if None, of one on Kubernetes
                below PODIUM_HOME.

        Returns:
            The file.

        Raises:
            PodiumError: It cannot be written.
        """
        from podium.api.sweep_report import write_report

        with doing(f"writing the report of {self.name}"):
            return write_report(self.cluster, self.name, Path(path) if path else None)

    def to_sdk(self) -> Any:
        """Return the Experiment as a ``V1beta1Experiment`` of Katib's SDK."""
        from podium.manifests.sdk import to_sdk

        return to_sdk(self.experiment.manifest)

    def stop(self) -> Self:
        """Stop the running trials; resume continues them. Katib cannot do that: on Kubernetes it is
        refused."""
        return super().stop()

    def stop_trial(self, trial: str) -> Self:
        """End one running trial; it counts as stopped early, with the metrics it has reported.

        Raises:
            NotFound: There is no such trial.
            InvalidInput: It has ended, or Katib or a pool runs it.
        """
        self.cluster.stop("Trial", self._trial(trial).name)
        return self

    def add_trial(
        self,
        values: Mapping[str, object] | None = None,
        *,
        like: str | None = None,
        wait: bool = True,
    ) -> str:
        """Start a trial with values of your own: beside the others, or in a sweep that is resumed
        for it.

        The search learns from it as from its own, and it carries the label ``podium.dev/by-hand``.

        Args:
            values: A value of its space for each parameter: ``{"lr": 0.02, "batch-size": 64}``.
            like: Name of a trial whose values, of those that count in it, it has where none is
                given.
            wait: Whether to return at its end if the sweep does not run and goes on here.

        Returns:
            Its name.

        Raises:
            NotFound: There is no trial to be like.
            InvalidInput: A value is missing or outside of its space, or the sweep has ended for
                good.
        """
        assignments = dict(values or {})
        if like is not None:
            assignments = {**self._trial(like).parameters, **assignments}
        trial, experiment = self.cluster.add_trial(self.name, assignments), self.experiment
        if experiment.state.finished:
            most = experiment.limits.max_trials
            more = (
                None
                if self.status == "Stopped" or most is None
                else max(most, experiment.trial_count) + 1
            )
            self.resume(more, wait=wait)
        return trial

    def resume(
        self,
        trials: int | None = None,
        *,
        parallel: int | None = None,
        failures: int | None = None,
        wait: bool = True,
        **options: Unpack[SweepOptions],
    ) -> Self:
        """Continue after a stop, or with more trials or a higher budget; finished trials are not
        repeated.

        Args:
            trials: New number of trials in all; a finished sweep needs one above the trials there
                are.
            parallel: New number of trials at a time.
            failures: New number of failed trials that end it.
            wait: Whether to return at the end.
            **options: New values of what may be raised, for all trials, those there are included:
                ``max_time``, ``max_cost``, ``price``.

        Raises:
            InvalidInput: It has ended for good, or the numbers break a rule.
            Conflict: Another process runs it.
        """
        reported = self.finished
        limits = {
            "maxTrialCount": trials,
            "parallelTrialCount": parallel,
            "maxFailedTrialCount": failures,
        }
        counts = {key: value for key, value in limits.items() if value is not None}
        for name in options:
            if name in settings() and not settings()[name].is_raised:
                raise InvalidInput(
                    f"a sweep goes on with the {name} that it has", "start a new sweep"
                )
        self.cluster.resume("Experiment", self.name, {**counts, **read_settings(options)})
        self.session.keep_open("Experiment", self.name)
        return self.wait(reported=reported) if wait else self

    def wait(self, *, reported: Mapping[str, str] | None = None) -> Self:
        """Show progress until the sweep has ended: a table in a notebook's cell, lines anywhere
        else.

        Ctrl-C, or the stop button of a notebook, stops the trials on this machine;
        ``podium.open_sweep(name).resume()`` goes on. On Kubernetes they go on by themselves.

        Args:
            reported: Phases by trial that no line is printed for.

        Raises:
            Failed: The sweep failed.
        """
        self._news = TrialProgress(self.cluster, self.name, reported or {})
        super().wait()
        experiment = self.experiment
        if ended_by(experiment):
            say(experiment.state.message)
        if warning := self._reader.warning(logs=f"podium.open_sweep({self.name!r}).logs('TRIAL')"):
            say(warning)
        return self

    def _show(self, cell: LiveCell) -> None:
        if in_notebook():
            cell.show(self._repr_html_())
        elif self._news:
            for line in self._news.lines():
                say(line)

    def _sign_of_life(self) -> str:
        return self._news.state() if self._news and not in_notebook() else ""

    def _say_stopped(self) -> None:
        say(
            f"sweep {self.name} is stopped; continue with: podium.open_sweep({self.name!r}).resume()"
        )

    def check(self) -> None:
        """Raise Failed if the sweep failed."""
        if self.status == "Failed":
            opened = f"podium.open_sweep({self.name!r})"
            raise self._reader.failure(
                trials=f"{opened}.trials",
                logs=f"{opened}.logs('TRIAL')",
                objective='objective="NAME"',
                ask='podium.tune(…, prints="{}", objective="{}")'.format,
            )

    def __repr__(self) -> str:
        trials = self.cluster.judged_trials(self.experiment)
        best = best_trial(trials)
        result = f", best {best.value:g}" if best and best.value is not None else ""
        return f"<Sweep {self.name}: {self.status}, {plural(len(trials), 'trial')}{result}>"

    def _repr_html_(self) -> str:
        experiment, trials = self.experiment, self.results
        asked = "".join(f"; {name}: {text}" for name, text in describe(experiment).items())
        title = f"{self.name}: {self.status}, {plural(len(trials), 'trial')}, {experiment.objective}{asked}"
        ranked = leaderboard(trials)
        sure = standing(experiment, ranked)
        return leaderboard_of(ranked, experiment, sure=sure).html(title=title, most=_SHOWN)


@checked
def sweep(
    experiment: Any,
    *,
    data: Any = None,
    target: str = "",
    cluster: str | Path | ClusterSpec | None = None,
    storage: str | Path | None = None,
    output: str | Path | None = None,
    trials: int | None = None,
    parallel: int | None = None,
    name: str | None = None,
    flags: Mapping[str, object] | None = None,
    queue: str = "",
    queue_priority: str = "",
    images: Mapping[str, str | Path] | None = None,
    config_maps: Sequence[str | Path] = (),
    wait: bool = True,
    detach: bool = False,
    **changes: Unpack[Changes],
) -> Sweep:
    """Run an Experiment, and show its trials as they run.

    Args:
        experiment: A file, the name of a bundled Experiment (``"tpe"``), YAML text, a manifest as a
            dict, an Experiment, or a ``V1beta1Experiment`` of Katib's SDK.
        data: A dataset, its directory or URI, the trainer's ``--data``; or what podium.train takes.
        target: Name of the target column of a DataFrame.
        cluster: ``kubernetes://NAMESPACE``, where Katib runs it, or a directory of this machine;
            the local cluster of PODIUM_HOME if None.
        storage: Directory or URI below which trials put their models, ``<storage>/trials/<trial>``.
        output: The same with the directory of the trials itself, ``<output>/<trial>``.
        trials: spec.maxTrialCount.
        parallel: spec.parallelTrialCount.
        name: metadata.name; the manifest's own if None, with a number appended if that is taken.
        flags: Other flags of the trials' program, ``{"epochs": 2}``.
        queue: Kueue's local queue, in which each trial waits for its turn on a cluster.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        images: Directories that stand for images on this machine.
        config_maps: Files of ConfigMaps that may hold the trial template.
        wait: Whether to return at the end, or at once while the trials run in the background of
            this process.
        detach: Whether to return at once and leave it to the cluster: to whatever runs Experiments
            there, else to a Job of its own.
        **changes: Other changes: ``seed``, ``goal``, ``image``, ``workers``, ``resume_policy``; and
            what else a sweep can be asked, ``max_time="2h"``, ``algorithm="auto"`` …: listed below.

    Returns:
        The sweep: ``.best``, ``.trials``, ``.plot.history()``.

    Raises:
        InvalidInput: The Experiment breaks a rule; nothing was started.
        Failed: The sweep failed.

    Example:
        >>> import podium
        >>> sweep = podium.sweep(experiment, trials=3)
        >>> sweep.best.value
        0.0
    """
    others = {
        name: kind for name, kind in Changes.__annotations__.items() if name not in settings()
    }
    # Each option reads its own settings.
    changes |= require_types("podium.sweep", others, changes)  # type: ignore[typeddict-item]
    possible = {*others, *settings()}
    for change in changes:
        if change not in possible:
            names = {*inspect.signature(sweep).parameters, *possible} - {"experiment", "changes"}
            raise InvalidInput(
                f"a sweep has no setting {change!r}", suggestion(change, sorted(names))
            )
    changes["max_trials"] = _either("trials", trials, "max_trials", changes.get("max_trials"))
    changes["parallel_trials"] = _either(
        "parallel", parallel, "parallel_trials", changes.get("parallel_trials")
    )
    for change in changes:
        changes[change] = plain(changes[change])  # type: ignore[literal-required]
    if storage and output:
        raise InvalidInput(
            f"storage={storage!r:.60} and output={output!r:.60} name two places for the models",
            "give one of them",
        )
    output = output or (f"{absolute(storage)}/trials" if storage else None)
    if data is not None or target:
        from podium.api.prepare import prepared  # which loads numpy and pyarrow

        data = prepared(data, target)
    changed = experiments.changed(
        experiment,
        name=name,
        data=data,
        output=output,
        flags=flags,
        config_maps=[*map(Path, config_maps)],
        queue=queue,
        queue_priority=queue_priority,
        **changes,
    )
    if data is not None and changed.uses_builtin_trainer:
        from podium.data.artifact import describe as describe_data

        with suppress(PodiumError):  # the trainer says what is wrong with the data
            if describe_data(str(data)).kind == "regression":
                changed = tuned_for_numbers(changed)
    begun = SweepPlan(
        experiment=changed,
        spec=ClusterSpec.of(cluster, images=images),
        data=data,
        output=output,
        exact=name is not None,
    ).start(detach=detach)
    return begun.wait() if wait and not detach else begun


sweep.__doc__ = documented(sweep.__doc__)


def _either(short: str, value: int | None, name: str, other: int | None) -> int | None:
    if value is not None and other is not None:
        raise InvalidInput(
            f"{short} and {name} are the same setting, but both are set", f"leave out {name}"
        )
    return other if value is None else value


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """A sweep that is about to start."""

    experiment: Experiment
    spec: ClusterSpec
    data: object
    """The user's argument."""

    output: object
    """The user's argument."""

    exact: bool
    """Whether the name must be free; else a number is appended to a name that is taken."""

    def ready(self, cluster: Cluster) -> Experiment:
        """Return the Experiment as the cluster can run it, under a free name.

        Raises:
            BrokenRules: Katib would refuse it or never end it.
            InvalidInput: There is no dataset where it would be.
        """
        experiment = experiments.ready(named(self.experiment), cluster, self.data, self.output)
        if self.exact:
            return experiment
        free = experiments.free_name(cluster, "Experiment", experiment.name)
        return experiment.with_metadata({**experiment.metadata, "name": free})

    def start(self, *, detach: bool = False) -> Sweep:
        """Create the Experiment and return at once.

        Args:
            detach: Whether it has to outlive this process.

        Raises:
            InvalidInput: It breaks a rule, or cannot go on without this process; nothing was
                started.
            Conflict: There is one of this name.
        """
        original_name, advice = self.experiment.name, _look_at_data(self.data, self.experiment)
        cluster, earlier = self.spec.open(), list[Trial]()
        try:
            experiment = self.ready(cluster)
            if original_name and experiment.name != original_name and experiment.asked:
                earlier = list(cluster.trials(original_name))
            if detach and not cluster.outlives_client("Experiment"):
                from podium.sweeps import namespace

                url = namespace.detach(cluster, experiment)
                cluster.close()
                return Sweep(ClusterSpec(url=url), experiment.name)
            created = cluster.create(experiment)
        except BaseException:
            cluster.close()
            raise
        for warning in filter(None, (*warnings_of(experiment), advice)):
            say(warning)
        if earlier and (said := forecast(experiment, earlier)):
            say(f"{said}, as in {original_name}")
        say(f"Experiment {experiment.name}, at {cluster.url}")
        for title, text in describe(created).items():
            say(f"{title}: {text}")
        if created.choice and cluster.outlives_client("Experiment"):
            say(f"Katib itself would run {experiment.algorithm.name}")
        begun = Sweep(self.spec, experiment.name, cluster)
        begun.session.keep_open("Experiment", begun.name)
        return begun


def _look_at_data(data: object, experiment: Experiment) -> str:
    """Refuse folds that the data cannot be divided into; return a hint where folds would help.

    Raises:
        InvalidInput: It says why.
    """
    if data is None:
        return ""
    from podium.data import artifact  # which loads numpy
    from podium.data.folds import few_items

    if folds := experiment.asked.get("folds"):
        artifact.check_folds(str(data), folds)
        return ""
    with suppress(PodiumError):  # the trainer says what is wrong with the data
        return few_items(artifact.describe(str(data)))
    return ""


@checked
def open_sweep(name: str, *, cluster: str | Path | ClusterSpec | None = None) -> Sweep:
    """Return a sweep that is running or has ended, also one of another process.

    Args:
        cluster: Cluster of the sweep, as podium.sweep takes it.

    Raises:
        NotFound: There is none.

    Example:
        >>> import podium
        >>> begun = podium.sweep(experiment, name="again", trials=2)
        >>> podium.open_sweep("again").best.name == begun.best.name
        True
    """
    opened = Sweep(ClusterSpec.of(cluster), name)
    opened.experiment  # noqa: B018  raises NotFound
    return opened
