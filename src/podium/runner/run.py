"""Pipelines on this machine: ``podium.run("tune_and_promote", max_trials=6)``."""

import inspect
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from podium.cluster import connect
from podium.cluster.local.supplies import ENVIRONMENT
from podium.data.sources.known import DATASETS
from podium.display.notebook import Log, say
from podium.display.text import figure, one_line
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError, suggestion
from podium.kfp.parameters import written
from podium.kfp.project import from_folder
from podium.kfp.values import PIPELINES, with_experiment_text
from podium.manifests.kinds import JOB_KINDS
from podium.runner.messages import KFP, Event
from podium.runner.process import (
    RunningPipeline,
    follow_elsewhere,
    go_on,
    start,
    stop_elsewhere,
)
from podium.runner.progress import progress, steps_as_html
from podium.runner.record import Annotations, RunRecord, StepRecord, check_step
from podium.storage import absolute, local_path
from podium.system.arguments import checked
from podium.system.settings import Settings
from podium.training.identity import new_run_id

if TYPE_CHECKING:
    from podium.api.sweep import Sweep


_PLACES = ("volume", "secret", "config_map", "image_dir")

Places = Annotated[Mapping[str, Mapping[str, str | os.PathLike[str]]], "refused by _as_text"]
"""Places by name of each of _PLACES. A wrong one may be a Secret's value, so no error shows it."""

_PLACES_HINT = (
    f"places={{'secret': {{'NAME': 'FILE'}}}}; besides secret there are {', '.join(_PLACES)}"
)


@checked
class Run:
    """A run of a pipeline on this machine.

    Args:
        record: The record at the time.
        running: The running pipeline, if it belongs to this process.
    """

    def __init__(self, record: RunRecord, running: RunningPipeline | None = None) -> None:
        self._known, self._running = record, running
        self.id, self.pipeline, self.directory = record.id, record.pipeline, record.directory

    @property
    def record(self) -> RunRecord:
        """The current record."""
        if self._running is None and self._known.state == "running":
            self._known = RunRecord.read(self.directory)
        return self._known

    @property
    def state(self) -> str:
        """``running``, ``succeeded``, ``failed``, ``stopped`` or ``killed``."""
        return self.record.state

    def wait(self) -> Self:
        """Show its steps until it has ended: a table in a notebook's cell, lines or a live table
        anywhere else.

        Ctrl-C, or the stop button of a notebook, stops a run of this process; one of another
        process goes on.

        Raises:
            Failed: A step failed; the message holds its error.
        """
        try:
            with progress() as watcher:
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
        """Stop it, whichever process runs it, and return when all its processes have ended; resume
        continues it.

        Raises:
            Conflict: It belongs to another user, or does not end.
        """
        if self._running:
            self._running.stop()
        elif self.state == "running":
            stop_elsewhere(self.record)
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
        """Parameters that differ from the pipeline's defaults; a cluster of its own is not one."""
        run = self.record
        own = f"local://{run.cluster}"
        return {name: value for name, value in run.parameters.items() if value != own}

    @property
    def note(self) -> str:
        """A user's note, which can be set: ``run.note = "warmup was too short"``; empty if there is
        none."""
        return Annotations.read(self.directory).note

    @note.setter
    def note(self, note: str) -> None:
        Annotations.edit(self.directory, lambda written: written.noted(note))

    @property
    def tags(self) -> tuple[str, ...]:
        """Names that a user gave it: ``run.tags = ["baseline"]``; also ``run.tags +=
        ("baseline",)``."""
        return Annotations.read(self.directory).tags

    @tags.setter
    def tags(self, tags: str | Iterable[str]) -> None:
        Annotations.edit(self.directory, lambda written: replace(written, tags=()).tagged(tags))

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
                f"run {self.id} has no result: it is {self.state}",
                f"podium.runs()[{self.id!r}].resume()",
            )
        from podium.runner.outcome import (
            outcome_of,
        )  # which loads numpy: only for a run that has a result

        return outcome_of(self.record)

    @property
    def outputs(self) -> dict[str, Any]:
        """Return values of the pipeline: values, and URIs of artifacts."""
        return dict(self.record.outputs)

    @property
    def metrics(self) -> dict[str, float]:
        """The version's metrics on the test part."""
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
        from podium.models import open_registry

        decision = self._promoting("decision")
        return open_registry(decision["storage"])[decision["model_name"]][decision["version"]]

    @property
    def report(self) -> Path:
        """The HTML report of the whole run.

        Raises:
            PodiumError: It could not be written.
        """
        report = self._promoting("report")
        if not report:
            raise PodiumError(
                f"run {self.id} has no report: it could not be written", f"ls -l {self.directory}"
            )
        return Path(report)

    def _promoting(self, part: str) -> Any:
        if part not in self.outcome:
            hint = "outputs and logs have its results"
            raise PodiumError(f"{self.pipeline} stores no version in the registry", hint)
        return self.outcome[part]

    def logs(self, source: str | None = None) -> Log:
        """Return the output of a step, a trial or a job; of all steps if None.

        Raises:
            NotFound: There is none of this name, or it has printed nothing.
        """
        return Log("\n".join(self.printed(source)))

    def printed(self, source: str | None = None) -> Iterator[str]:
        """Yield the lines that logs returns, as they are read.

        Raises:
            NotFound: As logs.
        """
        record = self.record
        if source is None:
            for step in (step for step in record.steps if record.log(step).is_file()):
                yield f"== {step}"
                yield from _lines(record.log(step))
        elif source not in record.steps and source != KFP:
            yield from self._printed_by_job(source)
        elif not record.log(source).is_file():
            hint = f"it is {record.steps[source].state}" if source in record.steps else None
            raise NotFound(f"step {source} of run {self.id} has printed nothing", hint)
        else:
            yield from _lines(record.log(source))

    def _printed_by_job(self, name: str) -> Iterator[str]:
        with connect(f"local://{self.record.cluster}") as cluster:
            for kind in ("Trial", *JOB_KINDS):
                with suppress(NotFound):
                    yield from list(cluster.logs(kind, name))
                    return
            if kept := self.record.kept_logs:
                yield from kept.lines(name)
                return
            names = [*self.record.steps, *(trial.name for trial in cluster.list("Trial"))]
        raise NotFound(f"run {self.id} has no step, trial or job {name!r}", suggestion(name, names))

    @property
    def sweep(self) -> "Sweep":
        """Its sweep: ``.best``, ``.trials``, ``.plot.history()``.

        Raises:
            NotFound: It has none, or none on this machine.
        """
        from podium.api.cluster_spec import ClusterSpec
        from podium.api.sweep import Sweep

        spec = ClusterSpec.of(self.record.cluster)
        with spec.open() as cluster:
            names = [experiment.name for experiment in cluster.experiments()]
        if not names:
            raise NotFound(
                f"run {self.id} has no sweep on this machine", "tune_and_promote has one"
            )
        return Sweep(spec, names[-1])

    def resume(
        self,
        first: str = "",
        *,
        wait: bool = True,
        code: str | Mapping[str, str] = "",
        places: Places | None = None,
        debug: str = "",
    ) -> "Run":
        """Continue after a stop, a kill or a failure; finished steps and trials are not repeated.

        The steps that are left take the code of today: where it has changed, the first of them
        begins anew.

        Args:
            first: The first step to repeat although it has finished; empty repeats none.
            wait: Whether to return at the end, or at once, as ``podium.run`` does.
            code: Directory to take the code from, in place of the one that was packed; by
                parameter, if there are more.
            places: Further places that stand in for volumes, Secrets, ConfigMaps and images.
            debug: Step to stop before; empty for none.

        Raises:
            InvalidInput: It has succeeded, or has no such code.
            Conflict: It is running.
            Failed: A step failed.
        """
        from podium.runner.today import take_today  # which loads what packs code

        record, further = RunRecord.read(self.directory), _as_text(places)
        named = dict(code) if not isinstance(code, str) else {"code": code} if code else {}
        if others := named.keys() - {"code", *record.packed}:
            problem = (
                f"a run is resumed with its own parameters, but got {', '.join(sorted(others))}"
            )
            raise InvalidInput(
                problem, "leave them out, or start a new run; code=DIRECTORY takes other code"
            )
        if first:
            check_step(record, first)
        if record.state != "running":
            first, said = take_today(record, first, named)
            for sentence in said:
                say(sentence)
        for option, named_places in further.items():
            record.places[option] = {**record.places.get(option, {}), **named_places}
        if first:
            record.repeat(first)
        elif record.state == "succeeded":
            hint = f"--from STEP repeats a step and all after it: {', '.join(record.steps)}"
            raise InvalidInput(f"run {self.id} has succeeded: nothing is left to do", hint)
        running = go_on(record, Settings.from_environment(), debug=debug)
        resumed = Run(running.run, running)
        return resumed.wait() if wait else resumed

    def rerun(self, words: Sequence[str], first: str = "") -> "Run":
        """Begin it again with other values, in this run: what they do not affect is kept.

        Args:
            words: Values as ``name=value``.
            first: A step to repeat in any case; empty for none.

        Raises:
            InvalidInput: There is no such parameter or step, or a value breaks a rule.
            Conflict: It is running.
        """
        from podium.kfp.definition import Definition, reaching

        record = RunRecord.read(self.directory)
        if not words and not first:
            hint = f"podium runs rerun {self.id} NAME=VALUE, or --from STEP"
            raise InvalidInput("neither a value nor a step is named", hint)
        file = os.path.join(record.folder, record.pipeline)
        definition = Definition.load(
            file if os.path.isfile(file.partition(":")[0]) else record.pipeline
        )
        changed = definition.parameters.read(words)
        if code := changed.keys() & reaching(definition.spec, "code"):
            hint = f"{record.resume_command} {min(code)}=DIR"
            raise InvalidInput(f"{min(code)} is code, which a run takes when it is resumed", hint)
        if definition.ours and Path.cwd() != Path(record.folder):
            changed = {name: _from_here(name, value) for name, value in changed.items()}
        texts = with_experiment_text(changed, names=reaching(definition.spec, "experiment"))
        if first:
            check_step(record, first)
        record.attempt += 1
        record.parameters = {**record.parameters, **texts}
        if first:
            record.steps[first] = StepRecord(
                title=record.steps[first].title, attempt=record.attempt
            )
        running = go_on(record, Settings.from_environment())
        running.run.words = [*record.words, *words]
        return Run(running.run, running)

    @property
    def debugged(self) -> Event | None:
        """The step that it stopped before, where ``--debug`` names one and it was reached."""
        return self._running.debugged if self._running else None

    @property
    def size(self) -> int:
        """Bytes of its directory, and of the candidates it trained that are on this machine."""
        return sum(map(_bytes_of, (self.directory, *self.record.candidates)))

    def require_deletable(self) -> RunRecord:
        """Return its record as it is now, or raise as delete does where it could not be deleted."""
        record = RunRecord.read(self.directory)
        if record.state == "running":
            raise Conflict(f"run {self.id} is running", f"podium runs stop {self.id}")
        if self.directory.is_symlink():
            problem = f"{self.directory} is a link to {self.directory.resolve()}, and nothing is removed there"
            raise InvalidInput(problem, f"rm {shlex.quote(str(self.directory))} removes the link")
        for directory in (self.directory, *record.candidates):
            for folder in (str(directory.parent), *_folders(directory)):
                if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                    problem = f"run {self.id} cannot be deleted: {folder} may not be changed"
                    raise PodiumError(problem, f"`ls -ld {shlex.quote(folder)}` shows whose it is")
        return record

    def delete(self) -> None:
        """Remove its directory, logs and candidates; versions in the registry stay.

        Raises:
            Conflict: It is running.
            NotFound: It was deleted.
            InvalidInput: Its directory is a link.
            PodiumError: It is another user's, or the storage of its logs refused; nothing was
                removed on this machine.
        """
        record = self.require_deletable()
        if kept := record.kept_logs:
            kept.delete()
        for candidates in record.candidates:
            shutil.rmtree(candidates, ignore_errors=True)
        shutil.rmtree(self.directory)

    @property
    def subject(self) -> str:
        """The model and the data it is about; of a pipeline of the user's own its name."""
        if self.pipeline.replace("_", "-") not in PIPELINES:
            return self.pipeline
        values = {"model_name": "", "dataset": "mnist", **self.record.parameters}
        model, data = str(values["model_name"]), str(values["dataset"]).rstrip("/")
        data = data.rpartition("/")[2].rpartition(":")[2]
        return data if model in ("", data) else f"{model} from {data}"

    @property
    def result(self) -> str:
        """One line about the result: the winner's score and whether it was promoted, or the
        outputs; of a run that failed, why."""
        if self.state == "running":
            return ""
        with suppress(OSError):  # it may have been deleted
            return _result(self.directory, (self.directory / "run.json").stat().st_mtime_ns)
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell, ``podium mcp`` and the page show of it."""
        record = self.record
        return {
            "kind": "run",
            "run": self.id,
            "pipeline": self.pipeline,
            "subject": self.subject,
            "state": record.state,
            "began": record.began,
            "seconds": round(record.seconds, 3),
            "result": self.result,
            "note": record.note,
            "tags": record.tags,
            "parameters": record.parameters,
            "steps": {name: step.to_json() for name, step in record.steps.items()},
            "outputs": record.outputs,
            "directory": str(self.directory),
        }

    def __repr__(self) -> str:
        return one_line(
            f"<run {self.id} of {self.pipeline}: {', '.join(filter(None, (self.state, self.result)))}>"
        )

    def _repr_html_(self) -> str:
        steps = steps_as_html(self.record, {})
        if self.state != "succeeded":
            return steps
        from podium.runner.outcome import show

        return f"{steps}{Log(show(self.outcome))._repr_html_()}"


def _from_here(name: str, value: Any) -> Any:
    """Return a parameter of podium's own pipelines for a process that works in another folder."""
    if name == "data_options" and isinstance(value, Mapping) and isinstance(value.get("test"), str):
        return {**value, "test": absolute(value["test"])}
    is_path = name in ("source", "storage", "weights") or (
        name == "dataset" and os.path.isfile(f"{value}/dataset.json") and value not in DATASETS
    )
    if is_path and value and local_path(value):
        return absolute(value)
    return from_folder(Path.cwd(), name, value)


@lru_cache(maxsize=4096)
def _result(directory: Path, written: int) -> str:
    """Return the result of a run that has ended, which takes several files to read.

    Args:
        written: When its record was, so that it is read once and again after a change.
    """
    ended = Run(RunRecord.read(directory))
    if ended.state != "succeeded":
        return ended.record.cause
    try:
        outcome = ended.outcome
    except PodiumError:  # its directory is damaged
        return ""
    if "decision" not in outcome:
        return ", ".join(f"{name} {value}" for name, value in ended.outputs.items())
    metric = outcome["metric"]["name"]
    value = ended.metrics.get(metric, math.nan)
    return f"{metric} {figure(value)}, {_against(outcome['decision'])}"


@checked
def run(
    pipeline: str | Path | Callable[..., Any] = "tune_and_promote",
    *,
    wait: bool = True,
    places: Places | None = None,
    **parameters: Any,
) -> Run:
    """Run a pipeline on this machine, and show its steps as they run.

    Ctrl-C stops it; ``podium.runs()["latest"].resume()`` continues without repeating finished steps
    and trials.

    Args:
        pipeline: ``tune_and_promote``, ``train_and_promote``, ``FILE.py`` with a KFP pipeline, such
            a pipeline, or a compiled one, ``FILE.yaml``.
        wait: Whether to return at the end, or as soon as the parameters are checked while the run
            goes on in the background: ``.state``, ``.steps``, ``.wait()`` and ``.stop()`` watch it.
            It is stopped when this process ends, and can be resumed then.
        places: Directories and files that stand in for the ``volume``, ``secret``, ``config_map``
            and ``image_dir`` that the pipeline takes from a cluster, each by its name there:
            ``{"secret": {"hf": "keys.env"}, "volume": {"rows": "data"}}``.
        **parameters: Parameters of the pipeline; the others, and None, keep their defaults.
            ``dataset`` also takes a DataFrame, ``(X, y)``, columns or arrays by name.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, or a value breaks a rule; nothing was
            created.
        Failed: A step failed; the message holds its error.

    Example:
        >>> import podium
        >>> run = podium.run("train_and_promote", dataset=dataset, epochs=1, workers=0, network="fast")
        >>> run.promoted, sorted(run.metrics)[:1]
        (True, ['accuracy'])
    """
    name = (
        pipeline
        if isinstance(pipeline, str)
        else str(pipeline)
        if isinstance(pipeline, Path)
        else _file_of(pipeline)
    )
    if "dataset" in parameters and name.replace("_", "-") in PIPELINES:
        from podium.data.in_memory import located

        location, target = located(parameters["dataset"], str(parameters.get("target", "")))
        parameters |= {"dataset": location, **({"target": target} if target else {})}
    words = written(parameters)
    begun = begin(name, words, places=places)
    return begun.wait() if wait else begun


def begin(
    pipeline: str,
    words: Sequence[str],
    project: Path | None = None,
    places: Places | None = None,
    debug: str = "",
) -> Run:
    """Begin a run as the command line names it, and return as soon as its parameters are checked.

    Args:
        pipeline: Name of a pipeline, ``FILE.py``, ``FILE.py:function`` or a compiled ``FILE.yaml``.
        words: Parameters as ``name=value``.
        project: A ``podium.yaml`` that gives the parameters that are not among the words.
        places: Places that stand in for volumes, Secrets, ConfigMaps and images.
        debug: Step to stop before; empty for none.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, a value breaks a rule, or this machine
            cannot run it; nothing was created.
    """
    settings = Settings.from_environment()
    record = RunRecord(id=new_run_id(), pipeline=pipeline, directory=Path(), words=list(words))
    record.places, record.folder = _as_text(places), os.getcwd()
    record.directory = settings.runs / record.id
    fields = {"words": list(words), "project": str(project or ""), "debug": debug}
    running = start(record, settings, **fields)
    return Run(running.run, running)


def _as_text(places: Places | None) -> dict[str, dict[str, str]]:
    """Return places as a run's record keeps them.

    Raises:
        InvalidInput: They are not paths by name of each of _PLACES.
    """
    by_kind = _by_name("places", {} if places is None else places)
    if others := [kind for kind in by_kind if kind not in _PLACES]:
        raise InvalidInput(f"no {others[0]!r} has a place on this machine", ", ".join(_PLACES))
    return {
        kind: {
            name: _path(f"{kind} {name}", place) for name, place in _by_name(kind, named).items()
        }
        for kind, named in by_kind.items()
    }


def _by_name(subject: str, value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return value
    problem = f"{subject}: must be a dict with names, but got {type(value).__name__}"
    raise InvalidInput(problem, _PLACES_HINT)


def _path(subject: str, place: object) -> str:
    if isinstance(place, str | os.PathLike):
        path = os.fsdecode(place)
        return path if path == ENVIRONMENT else os.path.abspath(path)  # it may be resumed elsewhere
    # A value in place of a Secret's file is not to be printed.
    raise InvalidInput(f"{subject}: must be a path, but got {type(place).__name__}", _PLACES_HINT)


def _against(decision: Mapping[str, Any]) -> str:
    outcome, other = decision["outcome"], decision.get("champion_value")
    beside = "" if other is None else f" ({figure(other)})"
    if outcome == "kept":
        return f"champion stays{beside}"
    if outcome == "promoted":
        return f"promoted over the champion{beside}" if beside else "first champion"
    return f"{outcome}{beside}"


def _file_of(pipeline: Callable[..., Any]) -> str:
    """Return ``FILE.py:function`` of a KFP pipeline.

    Raises:
        InvalidInput: It is not one, or it is not in a file.
    """
    function = getattr(pipeline, "pipeline_func", None)
    if function is None:
        named = getattr(pipeline, "__name__", repr(pipeline))
        raise InvalidInput(
            f"{named} is not a pipeline",
            "decorate it with kfp.dsl.pipeline; podium.tune runs functions",
        )
    file = inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        hint = "write it into a file of its own, and pass FILE.py"
        raise InvalidInput(f"the pipeline {function.__name__} is not in a file", hint)
    return f"{file}:{function.__name__}"


def _lines(log: Path) -> Iterator[str]:
    with log.open(errors="replace") as lines:
        for line in lines:
            yield line.rstrip("\n")


def _folders(directory: Path) -> Iterator[str]:
    """Yield a directory and those below it, also one that may not be read, but no links."""
    yield str(directory)
    for folder, names, _ in os.walk(directory):
        paths = (os.path.join(folder, name) for name in names)
        yield from (path for path in paths if not os.path.islink(path))


def _bytes_of(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total
