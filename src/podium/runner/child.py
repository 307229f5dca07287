"""The child process of `podium run`: runs a pipeline with kfp.local and reports events.

kfp.local keeps its configuration in the process, writes to the root logger and prints its steps'
output, so it gets a process of its own: ``python -m podium.runner.child``. The child reads an Order
from the first line of stdin, ends when stdin is closed, and writes Events to stdout
(podium.runner.messages).

Every line that a step prints also goes to ``logs/<step>.log``, everything else, such as the inputs
that KFP's executor prints, to ``logs/kfp.log``.
"""

import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from podium.documents import with_whole_numbers
from podium.errors import InvalidInput, PodiumError
from podium.runner.messages import KFP, Event, Order
from podium.settings import CLUSTER, FAILURE, SAFE_PATH, STORAGE
from podium.training.base import PROGRESS

if TYPE_CHECKING:
    from podium.code.bundle import Bundle
    from podium.kfp.definition import Definition

# What kfp.local 2.17 logs, without its colors (kfp: local/task_dispatcher.py, local/orchestrator/task_executor.py).
_STARTED = re.compile(r"Executing task '([\w-]+)'")
_ENDED = re.compile(r"Task '([\w-]+)' finished with status (SUCCESS|FAILURE)")
_CACHED = re.compile(r"Task ([\w-]+) cache hit")
_COLOR = re.compile(r"\x1b\[\d*m")
_EXECUTOR, _INPUTS = "[KFP Executor ", "Got executor_input:"


LONGEST = 1 << 16
"""Characters of a line of a step's output; a longer one is kept as several."""


AGAIN_SECONDS = 1.0
"""After which SIGTERM is sent to a step's process that may not have been there at first."""


class Stopped(BaseException):
    """The run was cancelled between two steps."""


class Reporter:
    """Turns kfp.local's output and log records into events and log files."""

    def __init__(self, logs: Path, events: TextIO) -> None:
        self.logs = logs
        self.events = events
        self.step: str | None = None
        self.code: int | None = None
        self.stopping = self.failed = False
        self.rest = ""
        self._in_inputs = False

    def report(self, kind: str, **more: Any) -> None:
        """Write an event. A broken pipe is ignored: the caller is gone and the run is ending."""
        with suppress(BrokenPipeError):
            self.events.write(Event(kind=kind, **more).to_line())  # kfp.local replaces print
            self.events.flush()

    def stop(self, *_: Any) -> None:
        """Handle SIGTERM. A running step got it too: it cleans up, ends, and kfp.local reports its
        failure. One that was about to start has missed it, so it is sent once more."""
        if self.stopping:
            return
        self.stopping = True
        if self.step is None:
            raise Stopped
        again = threading.Timer(AGAIN_SECONDS, os.killpg, (0, signal.SIGTERM))
        again.daemon = True
        again.start()

    def filter(self, record: logging.LogRecord) -> bool:
        """Report a record of the root logger and write it to kfp.log only."""
        text = _COLOR.sub("", record.getMessage())
        if started := _STARTED.match(text):
            if self.stopping:
                raise Stopped
            self.step, self._in_inputs = started[1], False
            self.report("start", step=self.step)
        elif ended := _ENDED.match(text):
            self.step = None
            self.failed |= ended[2] == "FAILURE"
            self.report(
                ended[2].lower(), step=ended[1], code=None if ended[2] == "SUCCESS" else self.code
            )
        elif cached := _CACHED.match(text):
            self.report("cached", step=cached[1])
        self._log(KFP, text)
        return False

    def write(self, text: str) -> int:
        """Take a piece of a step's output, which kfp.local indents by four spaces."""
        *lines, self.rest = (self.rest + text).split("\n")
        if len(self.rest) > LONGEST:  # who prints no line end is not waited for
            lines, self.rest = [*lines, self.rest], ""
        lines = [line.removeprefix("    ").rstrip("\r") for line in lines]
        for log, group in groupby(lines, self._log_of):
            self._log(log, "\n".join(group))
        for line in lines:
            if self.step and line.startswith(PROGRESS):
                self.report("line", step=self.step, text=line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: each line is written as it ends."""

    def _log_of(self, line: str) -> str:
        """Return the log that a line belongs to; KFP's executor prints its inputs as an indented
        JSON object."""
        if self._in_inputs or line.startswith(_EXECUTOR):
            self._in_inputs = line != "}" if self._in_inputs else line.endswith(_INPUTS)
            return KFP
        return self.step or KFP

    def _log(self, name: str, line: str) -> None:
        with (self.logs / f"{name}.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def main() -> int:
    """Run the pipeline described on stdin; return 0, 1 if a step failed, 2 if the input was
    refused."""
    line = sys.stdin.readline()
    if not line:
        return 1  # the caller was killed before it wrote anything
    order = Order.of_line(line)
    threading.Thread(target=_end_with_caller, args=(os.dup(0),), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as events:
        os.dup2(2, 1)  # a library that bypasses sys.stdout must not write among the events
        reporter = Reporter(Path(order.directory, "logs"), events)
        try:
            _run(order, reporter)
        except PodiumError as error:
            reporter.report("refused", text=error.message, hint=error.hint)
            return error.exit_code
        except (RuntimeError, Stopped) as error:  # kfp.local raises RuntimeError when a step failed
            logging.info(f"{type(error).__name__}: {error}")
            if (
                isinstance(error, RuntimeError) and not reporter.failed
            ):  # before any step: it is not supported
                reporter.report("refused", text=f"kfp.local does not run this pipeline: {error}")
            return 1
    return 0


def _end_with_caller(stdin: int) -> None:
    """Stop the process group when stdin closes, however the caller ended."""
    os.read(stdin, 1)
    os.killpg(0, signal.SIGTERM)


def _run(order: Order, reporter: Reporter) -> None:
    from podium.kfp.code import store_code
    from podium.kfp.definition import load
    from podium.kfp.parameters import with_defaults
    from podium.runner.checks import check_here
    from podium.runner.record import locked

    for variable, name in ((STORAGE, "storage"), (CLUSTER, "cluster")):
        os.environ.setdefault(
            variable, order.defaults[name]
        )  # for components that no parameter reaches
    definition, directory = load(order.pipeline), Path(order.directory)
    values, code, packed = (
        _values(definition, order) if order.resumed is None else (dict(order.resumed), {}, {})
    )
    if definition.ours:
        try:
            check_here(with_defaults(values, definition.parameters), packed.get("code", ""))
        except InvalidInput as error:
            raise _with_project(error, order) from None
    try:
        # Only for the owner, like the objects of its cluster; they are there where a run is resumed.
        directory.mkdir(mode=0o700, parents=True, exist_ok=order.resumed is not None)
        reporter.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"{reporter.logs} cannot be made: {error.strerror}",
            "PODIUM_HOME moves what a run writes",
        ) from None
    store_code(code)
    with locked(directory) as lock:
        lock.write(str(os.getpid()).encode())
        lock.flush()
        _execute(definition.pipeline, values, packed, order, reporter)


def _with_project(error: InvalidInput, order: Order) -> InvalidInput:
    """Return an error that says which of the values it names are the project's."""
    from podium.kfp.parameters import pairs
    from podium.kfp.project import Project

    if not order.project:
        return error
    project, typed = Project.load(Path(order.project)), dict(pairs(order.words))
    named = [name for name in project.values if re.search(rf"\b{name}\b", error.message)]
    theirs = [f"{name}: {project.values[name]}" for name in named if name not in typed]
    if not typed or not theirs:
        return error
    first = theirs[0].partition(":")[0]
    hint = f"{first}=VALUE goes before it, {first}= leaves it out; {error.hint or ''}".rstrip("; ")
    return InvalidInput(f"{error.message}; {project.file.name} has {', '.join(theirs)}", hint)


def _execute(
    pipeline: Any, values: dict[str, Any], packed: dict[str, str], order: Order, reporter: Reporter
) -> None:
    directory, spec = Path(order.directory), pipeline.pipeline_spec
    for name, task in spec.root.dag.tasks.items():
        if _reads_unseen(spec, task):
            task.caching_options.enable_cache = False
        # Under a key of their own the results of steps that are never cached serve this run alone: to resume it. So do
        # those of steps that are repeated.
        attempt = order.attempts.get(name, order.run)
        if not task.caching_options.enable_cache or attempt != order.run:
            task.caching_options.enable_cache, task.caching_options.cache_key = (
                True,
                f"{attempt}/{name}",
            )
    reporter.report("steps", steps=_in_order(spec, spec.root.dag), values=values, packed=packed)
    _configure(directory, Path(order.cache))
    _keep_exit_codes(reporter)
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addFilter(reporter.filter)
    with (reporter.logs / f"{KFP}.log").open("a") as noise, redirect_stdout(cast(TextIO, reporter)):
        os.dup2(noise.fileno(), 1)
        os.dup2(noise.fileno(), 2)
        # Before this, SIGTERM kills: there is nothing to clean up yet, and the imports take seconds.
        signal.signal(signal.SIGTERM, reporter.stop)
        _complete_artifacts(spec, directory / "artifacts")  # of steps before a kill
        try:
            with _scratch():
                reporter.report("outputs", values=_outputs(pipeline(**values)))
        except (RuntimeError, PodiumError):
            raise
        except Exception as error:  # of kfp.local itself; a step's own is in the step's log
            logging.info(traceback.format_exc())
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            _complete_artifacts(spec, directory / "artifacts")


@contextmanager
def _scratch() -> Iterator[None]:
    """Give the steps a temporary directory that is removed with the run: each of KFP's components
    leaves a directory in it."""
    with tempfile.TemporaryDirectory(prefix="podium-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        yield


def _reads_unseen(spec: Any, task: Any) -> bool:
    """Return whether a task prepares data that nothing has checked for changes."""
    takes = spec.components[task.component_ref.name].input_definitions.parameters
    return "fingerprint" in takes and "fingerprint" not in task.inputs.parameters


def _complete_artifacts(spec: Any, artifacts: Path) -> None:
    """Give outputs that are metadata only, such as Metrics, a file.

    kfp.local 2.17 takes a cached result for lost if one of its artifacts has no file (kfp:
    local/cache.py), and would repeat a finished step. Data that were set aside are lost: they are
    prepared again.
    """
    from podium.data.given import DAMAGED

    for name, task in spec.root.dag.tasks.items():
        for directory in artifacts.glob(f"*/{name}"):
            for output in spec.components[task.component_ref.name].output_definitions.artifacts:
                if (
                    not (directory / output).exists()
                    and not (directory / f"{output}{DAMAGED}").exists()
                ):
                    (directory / output).touch()


def _values(
    definition: "Definition", order: Order
) -> "tuple[dict[str, Any], dict[str, Bundle], dict[str, str]]":
    """Return the values of the run, code to store, and by parameter the directory that it was
    packed from.

    Storage and cluster are this machine's unless given.
    """
    from podium.kfp.code import with_code
    from podium.kfp.definition import reaching
    from podium.kfp.parameters import require_all
    from podium.kfp.project import Project, read_given
    from podium.kfp.values import with_experiment_text

    known = definition.parameters
    given = read_given(
        order.words, known, Project.load(Path(order.project)) if order.project else None
    )
    require_all(given, known)
    values = with_experiment_text(given, names=reaching(definition.spec, "experiment"))
    own = {
        **order.defaults,
        "storage": os.environ[STORAGE],
    }  # where podium models and podium serve look, too
    for parameter in known:
        if parameter.name in own:
            values[parameter.name] = (
                given.get(parameter.name) or parameter.default or own[parameter.name]
            )
    if isinstance(values.get("storage"), str):
        values["storage"] = from_here(values["storage"])
    coded, bundles = with_code(values, reaching(definition.spec, "code"))
    packed = {
        name: str(Path(values[name]).absolute())
        for name, uri in coded.items()
        if isinstance(uri, str) and uri in bundles
    }
    return coded, bundles, packed


def _outputs(task: Any) -> dict[str, Any]:
    return {name: getattr(value, "uri", value) for name, value in task.outputs.items()}


def from_here(storage: str) -> str:
    """Make a relative directory absolute: every job has its own working directory. URLs are not
    changed."""
    from podium.storage import is_slip

    return (
        storage
        if not storage or "://" in storage or is_slip(storage)
        else str(Path(storage).absolute())
    )


def _configure(directory: Path, cache: Path) -> None:
    from kfp import local

    # The image is not used here and its name says nothing about what this environment holds.
    warnings.filterwarnings("ignore", message=".*non-Python base image", category=RuntimeWarning)
    # The display name has no effect in kfp.local; it has one in our own progress.
    warnings.filterwarnings("ignore", message=r".*\['display_name'\] have no effect")
    # kfp.local replaces python3 by sys.executable, unquoted, in the whole command, values of parameters included: only
    # the same word changes nothing there, and is found in a path with blanks.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    sys.executable = "python3"
    os.environ[SAFE_PATH] = "1"  # a json.py in the user's directory is none of our business
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(directory / "artifacts"),
        workspace_root=str(directory / "workspace"),
        enable_caching=True,
        cache_root=str(cache),
    )


def _keep_exit_codes(reporter: Reporter) -> None:
    """Let the reporter know how a step's process ended: kfp.local says only that it failed.

    What a step is given has whole numbers as a cluster's steps get them, inside of dicts and lists
    too.
    """
    from kfp.local import subprocess_task_handler as handler

    from podium.runner.record import failure_file

    run = handler.run_local_subprocess

    def keeping(full_command: list[str], *arguments: Any, **more: Any) -> int:
        command = list(full_command)
        at = command.index("--executor_input") + 1
        command[at] = json.dumps(with_whole_numbers(json.loads(command[at])))
        left = failure_file(reporter.logs.parent, str(reporter.step))
        left.unlink(missing_ok=True)
        os.environ[FAILURE] = str(left)
        if reporter.stopping:
            raise Stopped
        reporter.code = run(command, *arguments, **more)
        return reporter.code

    handler.run_local_subprocess = keeping


def _in_order(spec: Any, dag: Any) -> dict[str, str]:
    """Return display names by task name, in the order kfp.local runs them; of a condition, a loop
    or a pipeline inside, its tasks."""
    from kfp.local.graph_utils import topological_sort_tasks

    titles: dict[str, str] = {}
    for name in reversed(topological_sort_tasks(dag.tasks)):
        task = dag.tasks[name]
        component = spec.components[task.component_ref.name]
        inside = component.dag if component.WhichOneof("implementation") == "dag" else None
        titles |= _in_order(spec, inside) if inside else {name: task.task_info.name}
    return titles


if __name__ == "__main__":
    sys.exit(main())
