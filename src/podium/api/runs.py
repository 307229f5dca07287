"""Pipelines from Python: ``podium.run("tune_and_promote", max_trials=6)``."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.frames import data_frame
from podium.manifests.resource import Resource
from podium.notebook import LiveCell, Log, in_notebook, say, table
from podium.runner.printed import printed
from podium.runner.progress import progress
from podium.runner.run import RunningPipeline, Watcher, follow_elsewhere, resume_run, start_run
from podium.runner.runs import Run as RunRecord
from podium.runner.runs import Runs as RunRecords
from podium.runner.runs import bytes_of, choose_old, read_run
from podium.settings import Settings
from podium.steps.base import SAID
from podium.text import duration, figure, one_line

if TYPE_CHECKING:
    from pandas import DataFrame

    from podium.api.sweep import Sweep


class Run:
    """A run of a pipeline on this machine.

    Args:
        record: What is recorded of it.
        running: It, where this process carries it out.
    """

    def __init__(self, record: RunRecord, running: RunningPipeline | None = None) -> None:
        self._known, self._running = record, running
        self.id, self.pipeline, self.directory = record.id, record.pipeline, record.directory

    @property
    def record(self) -> RunRecord:
        """What is recorded of it by now."""
        if self._running is None and self._known.state == "running":
            self._known = read_run(self.directory)
        return self._known

    @property
    def state(self) -> str:
        """``running``, ``succeeded``, ``failed``, ``stopped`` or ``killed``."""
        return self.record.state

    def wait(self) -> Self:
        """Show its steps until it has ended: a table in a notebook's cell, lines or a live table anywhere else.

        Ctrl-C, or the stop button of a notebook, stops a run of this process; one of another process goes on.

        Raises:
            Failed: A step failed; the message holds its error.
        """
        try:
            with _progress() as watcher:
                if self._running:
                    self._running.follow(watcher)
                else:
                    self._known = follow_elsewhere(self.record, watcher)
        except KeyboardInterrupt as interrupt:
            for note in getattr(interrupt, "__notes__", ()):
                say(note)
            raise
        return self

    def stop(self) -> Self:
        """Stop it, and return when nothing of it runs any more; resume goes on.

        Raises:
            Conflict: Another process runs it.
        """
        if self._running is None and self.state == "running":
            raise Conflict(f"run {self.id} belongs to another process", "press Ctrl-C there, or stop its cell")
        if self._running:
            self._running.stop()
        return self

    @property
    def began(self) -> datetime:
        """Start time, UTC."""
        return datetime.fromisoformat(self.record.began)

    @property
    def seconds(self) -> float:
        """Duration of its steps together; of a running one so far."""
        return self.record.seconds

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that differ from the pipeline's defaults."""
        return dict(self.record.parameters)

    @property
    def steps(self) -> dict[str, str]:
        """State of each step, in the order they run."""
        return {name: step.state for name, step in self.record.steps.items()}

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """All results as ``podium run --json`` prints them.

        Raises:
            PodiumError: It has not succeeded.
        """
        if self.state != "succeeded":
            raise PodiumError(
                f"run {self.id} has no result: it is {self.state}", f"podium.runs()[{self.id!r}].resume()"
            )
        from podium.runner.outcome import outcome_of  # which loads numpy: only for a run that has a result

        return outcome_of(self.record)

    @property
    def outputs(self) -> dict[str, Any]:
        """What the pipeline returned: values, and URIs of artifacts."""
        return dict(self.record.outputs)

    @property
    def metrics(self) -> dict[str, float]:
        """Of the version, on the test part."""
        return dict(self._promoting("test")["metrics"])

    @property
    def version(self) -> str:
        """Id of the version that was stored in the registry."""
        return str(self._promoting("decision")["version"])

    @property
    def promoted(self) -> bool:
        """Whether the version became champion."""
        return bool(self._promoting("decision")["outcome"] == "promoted")

    @property
    def model(self) -> Any:
        """The version in the registry, which predicts."""
        from podium.api.registry import Registry

        decision = self._promoting("decision")
        return Registry(decision["storage"])[decision["model_name"]][decision["version"]]

    @property
    def report(self) -> Path:
        """The HTML report of the whole run.

        Raises:
            PodiumError: It could not be written.
        """
        report = self._promoting("report")
        if not report:
            raise PodiumError(f"run {self.id} has no report: it could not be written", f"ls -l {self.directory}")
        return Path(report)

    def _promoting(self, part: str) -> Any:
        if part not in self.outcome:
            hint = "outputs and logs have its results"
            raise PodiumError(f"{self.pipeline} stores no version in the registry", hint)
        return self.outcome[part]

    def logs(self, what: str | None = None) -> Log:
        """Return what a step, a trial or a job printed; what all steps did if None.

        Raises:
            NotFound: There is none of this name, or it has printed nothing.
        """
        logs = printed(self.record, what)
        heads = ((f"== {log.title}\n" if log.title else "", "\n".join(log.lines)) for log in logs)
        return Log("\n".join(head + text for head, text in heads))

    @property
    def sweep(self) -> "Sweep":
        """Its sweep: ``.best``, ``.trials``, ``.plot.history()``.

        Raises:
            NotFound: It has none, or none on this machine.
        """
        from podium.api.place import Place
        from podium.api.sweep import Sweep

        place = Place.of(self.record.cluster)
        with place.open() as cluster:
            names = [Resource.parse(manifest).name for manifest in cluster.list("Experiment")]
        if not names:
            raise NotFound(f"run {self.id} has no sweep on this machine", "tune_and_promote has one")
        return Sweep(place, names[-1])

    def resume(self, first: str = "", *, wait: bool = True) -> "Run":
        """Go on after a stop, a kill or a failure; finished steps and trials are not repeated.

        Args:
            first: The first step to repeat although it has finished; empty repeats none.
            wait: Whether to return at the end, or at once, as ``podium.run`` does.

        Raises:
            InvalidInput: It has succeeded.
            Conflict: It is running.
            Failed: A step failed.
        """
        settings = Settings.from_environment()
        running = resume_run(RunRecords(settings)[self.id], settings, first)
        resumed = Run(running.run, running)
        return resumed.wait() if wait else resumed

    @property
    def size(self) -> int:
        """Bytes of its directory, and of the candidates it trained that are on this machine."""
        return sum(map(bytes_of, (self.directory, *self.record.candidates)))

    def delete(self) -> None:
        """Remove its directory, logs and candidates; versions in the registry stay.

        Raises:
            Conflict: It is running.
        """
        RunRecords(Settings.from_environment()).delete(self.record)

    @property
    def result(self) -> str:
        """What came of it, in some words: the winner's score and whether it was promoted, or what it put out."""
        if self.state != "succeeded":
            return ""
        try:
            outcome = self.outcome
        except PodiumError:  # its directory is damaged
            return ""
        if "decision" not in outcome:
            return ", ".join(f"{name} {value}" for name, value in self.outputs.items())
        metric = outcome["metric"]["name"]
        return f"{metric} {figure(self.metrics[metric])}, {outcome['decision']['outcome']}"

    def __repr__(self) -> str:
        return one_line(f"<run {self.id} of {self.pipeline}: {', '.join(filter(None, (self.state, self.result)))}>")

    def _repr_html_(self) -> str:
        steps = _steps_table(self.record, {})
        if self.state != "succeeded":
            return steps
        from podium.runner.outcome import show

        return f"{steps}{Log(show(self.outcome))._repr_html_()}"


class Runs(Mapping[str, Run]):
    """The runs on this machine by their id, the oldest first; also by the beginning of an id, and by ``latest``."""

    def __init__(self) -> None:
        self._records = RunRecords(Settings.from_environment())

    def __getitem__(self, name: str) -> Run:
        """Return a run.

        Raises:
            NotFound: There is none of this name.
        """
        return Run(self._records[name])

    def __iter__(self) -> Iterator[str]:
        return (run.id for run in self.all)

    @property
    def all(self) -> list[Run]:
        """Every run, the oldest first; ``values()`` would read each record twice."""
        return [Run(record) for record in self._records]

    def old(self, *, keep: int | None = None, older_than: int | None = None) -> list[Run]:
        """Return old runs, the oldest first: ``for run in podium.runs().old(keep=5): run.delete()``.

        Args:
            keep: How many of the newest runs are not among them.
            older_than: Days since they began, at least.

        Raises:
            InvalidInput: Neither is given, or one is out of range.
        """
        ended = (run for run in self.all if run.state != "running")
        return choose_old(ended, lambda run: run.began, keep=keep, older_than=older_than)

    @property
    def frame(self) -> "DataFrame":
        """A row for each run: its id, pipeline, state, seconds and the parameters that differ from the defaults.

        Raises:
            PodiumError: pandas is not installed.
        """
        rows = [
            {"run": run.id, "pipeline": run.pipeline, "state": run.state, "seconds": run.seconds, **run.parameters}
            for run in self.all
        ]
        names = dict.fromkeys(["run", "pipeline", "state", "seconds", *(name for row in rows for name in row)])
        return data_frame(rows, list(names))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"<{len(self)} runs in {self._records.directory}>"

    def _repr_html_(self) -> str:
        rows = [(run.id, run.pipeline, run.state, duration(run.seconds)) for run in self.all]
        return table(("RUN", "PIPELINE", "STATE", ">TOOK"), rows, title=str(self._records.directory))


def run(pipeline: str | Path | Callable[..., Any] = "tune_and_promote", *, wait: bool = True, **parameters: Any) -> Run:
    """Run a pipeline on this machine, and show its steps as they run.

    Ctrl-C stops it; ``podium.runs()["latest"].resume()`` goes on without repeating finished steps and trials.

    Args:
        pipeline: ``tune_and_promote``, ``train_and_promote``, ``FILE.py`` with a KFP pipeline, or such a pipeline.
        wait: Whether to return at the end, or as soon as the parameters are checked while the run goes on in the
            background: ``.state``, ``.steps``, ``.wait()`` and ``.stop()`` watch it. It is stopped when this process
            ends, and can be resumed then.
        **parameters: Of the pipeline; the others keep their defaults.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, or a value breaks a rule; nothing was created.
        Failed: A step failed; the message holds its error.

    Example:
        >>> import podium
        >>> run = podium.run("train_and_promote", dataset=dataset, epochs=1, workers=0, network="fast")
        >>> run.promoted, sorted(run.metrics)[:1]
        (True, ['accuracy'])
    """
    name = (
        pipeline if isinstance(pipeline, str) else str(pipeline) if isinstance(pipeline, Path) else _file_of(pipeline)
    )
    begun = begin(name, [f"{key}={_word(value)}" for key, value in parameters.items()])
    return begun.wait() if wait else begun


def begin(pipeline: str, words: Sequence[str], project: Path | None = None) -> Run:
    """Begin a run as the command line names it, and return as soon as its parameters are checked.

    Args:
        pipeline: Its name, ``FILE.py`` or ``FILE.py:function``.
        words: Parameters as ``name=value``.
        project: A ``podium.yaml`` that gives the parameters that are not among the words.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, or a value breaks a rule; nothing was created.
    """
    running = start_run(pipeline, words, Settings.from_environment(), project)
    return Run(running.run, running)


def runs() -> Runs:
    """Return the runs on this machine.

    Example:
        >>> import podium
        >>> len(podium.runs())
        0
    """
    return Runs()


def _word(value: Any) -> str:
    """Write a value as the command line has it."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float | dict | list | None) else str(value)


def _file_of(pipeline: Callable[..., Any]) -> str:
    """Return ``FILE.py:function`` of a KFP pipeline.

    Raises:
        InvalidInput: It is not one, or it is not in a file.
    """
    function = getattr(pipeline, "pipeline_func", None)
    if function is None:
        named = getattr(pipeline, "__name__", repr(pipeline))
        raise InvalidInput(
            f"{named} is not a pipeline", "decorate it with kfp.dsl.pipeline; podium.tune runs functions"
        )
    file = inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        hint = "write it into a file of its own, and pass FILE.py"
        raise InvalidInput(f"the pipeline {function.__name__} is not in a file", hint)
    return f"{file}:{function.__name__}"


@contextmanager
def _progress() -> Iterator[Watcher]:
    """Show a run in a notebook's cell, or as the command line does."""
    if not in_notebook():
        with progress() as watcher:
            yield watcher
        return
    said: dict[str, list[str]] = {}

    def update(record: RunRecord, name: str, text: str) -> None:
        if text.startswith(SAID):
            said.setdefault(name, []).append(text.removeprefix(SAID))
        cell.show(_steps_table(record, said))

    with LiveCell() as cell:
        yield update


def _steps_table(record: RunRecord, said: Mapping[str, Sequence[str]]) -> str:
    rows = [
        (step.title, step.state, duration(step.elapsed), (said.get(name) or [""])[-1])
        for name, step in record.steps.items()
    ]
    title = f"run {record.id} of {record.pipeline}: {record.state}"
    return table(("STEP", "STATE", ">TOOK", "SAID LAST"), rows, title=title)
