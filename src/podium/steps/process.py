"""The process of a step: signals unwind it, its errors are printed without a traceback, what it
prints is kept with its run.

Kubeflow Pipelines and `podium run` run each step in a process of its own. On a cluster the run id
is the label ``pipeline/runid`` of its pod. Placeholders such as ``PIPELINE_JOB_ID`` do not help:
KFP 2.0.5 passes them to the step unreplaced (observed).
"""

import io
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from podium.cluster.kubernetes.api import api_of
from podium.cluster.kubernetes.store_access import take_access
from podium.errors import NotFound, PodiumError, of_this_machine
from podium.manifests.labels import ARGO_NODE, KFP_RUN
from podium.manifests.resource import Resource
from podium.system.background import Background
from podium.system.interrupts import Terminated, exit_code, signals_interrupt
from podium.system.plugins import blame
from podium.system.pod import POD_NAME, pod_namespace
from podium.system.settings import FAILURE, SAFE_PATH
from podium.training.base import read_settings, say
from podium.training.identity import RUN_ID, RunIdentity, StepContext, storage_url
from podium.training.kept_logs import Excerpt, KeptLogs, only_warned

if TYPE_CHECKING:
    from podium.training.predict_job import PredictJobs


INTERVAL = 20.0
"""Seconds between two writes while the step runs: what it printed until then survives a kill."""


class _Recorder(io.TextIOBase):
    """Collects what is written to it, and keeps it once it knows where."""

    def __init__(self) -> None:
        self._text, self._lock, self._over = Excerpt(), threading.Lock(), threading.Event()
        self._kept: KeptLogs | None = None
        self._name, self._earlier, self._written = "", "", 0
        self._length = 0
        self._error: BaseException | None = None
        self._writer = Background(self._write_now_and_then, "kept-log")

    def write(self, text: str) -> int:
        with self._lock:
            self._text.add(text)
            self._length += len(text)
        return len(text)

    def keep(self, step: StepContext) -> None:
        """Keep the text under ``<storage>/runs/<run id>/logs/steps/`` from now on, after that of
        earlier attempts.

        A failure to do so is a warning. Outside a pod nothing is kept: `podium run` keeps the
        output of its steps itself.
        """
        if os.environ.get(RUN_ID) or not os.environ.get(POD_NAME):
            return
        with only_warned("what this step prints"):
            kept, name = KeptLogs(step.storage, step.run.id), f"steps/{step.run.step}"
            with suppress(NotFound):
                self._earlier = f"{kept.read(name)}[another attempt]\n"
            kept.forget_error(name)
            self._kept, self._name = kept, name
            self._writer.start()

    def fail(self, error: BaseException) -> None:
        self.write(_describe_error(error))
        self._error = error

    def end(self) -> None:
        self._over.set()
        if self._kept:
            self._writer.join(INTERVAL)
            self._put()
            if isinstance(self._error, PodiumError):
                with only_warned("the error of this step"):
                    self._kept.keep_error(self._name, self._error)

    def _write_now_and_then(self) -> None:
        while not self._over.wait(INTERVAL):
            self._put()

    def _put(self) -> None:
        with self._lock:
            length, text = self._length, Excerpt()
            text.add(self._earlier)
            text.add(str(self._text))
        if self._kept and length > self._written:
            with only_warned(f"what step {self._name.removeprefix('steps/')} prints"):
                self._kept.keep(self._name, str(text))
                self._written = length


class _Tee:
    """A stream whose text goes to a recorder too."""

    def __init__(self, stream: Any, recorder: _Recorder) -> None:
        self._stream, self._recorder = stream, recorder

    def write(self, text: str) -> int:
        self._recorder.write(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _recorded() -> Iterator[_Recorder]:
    """Collect what this process prints until the context ends, and how it ends; Recorder.keep says
    where to keep it."""
    recorder, streams = _Recorder(), (sys.stdout, sys.stderr)
    handler = logging.StreamHandler(recorder)
    logged = bool(
        logging.root.handlers
    )  # those hold the streams as they were; without any, sys.stderr is asked for
    sys.stdout, sys.stderr = _Tee(sys.stdout, recorder), _Tee(sys.stderr, recorder)
    if logged:
        logging.root.addHandler(handler)
    try:
        yield recorder
    except BaseException as error:
        recorder.fail(error)  # it is printed only when this process ends
        raise
    finally:
        sys.stdout, sys.stderr = streams
        logging.root.removeHandler(handler)
        recorder.end()


def _describe_error(error: BaseException) -> str:
    if isinstance(error, Terminated):
        return f"the step was stopped: {error}\n"
    if isinstance(error, PodiumError):
        return f"error: {error}\n"
    return "".join(traceback.format_exception(error))


__all__ = ["current_run", "predict_jobs", "read_settings", "step_process"]


@contextmanager
def step_process(parameters: Mapping[str, Any]) -> Iterator[StepContext]:
    """Make this process that of a step until the context ends, in its main thread.

    Args:
        parameters: The component's, its artifacts among them: ``storage``, else the bucket of an
            artifact, is where the run's models and logs are kept.
    """
    step = StepContext(current_run, lambda: _storage(parameters))
    if threading.current_thread() is not threading.main_thread():
        yield step
        return
    # Both are for this process alone: jobs that it starts do not see them.
    failure = os.environ.pop(FAILURE, "")
    os.environ.pop(SAFE_PATH, None)
    try:
        with signals_interrupt(), _recorded() as recorder, _data_talks():
            # A refused setting is said even though the store is out of reach.
            with suppress(PodiumError):
                _ = step.storage
            recorder.keep(step)
            yield step
    except Terminated as signal:
        raise SystemExit(exit_code(signal)) from None
    except Exception:
        sys.excepthook = lambda kind, error, trace: _show(kind, error, trace, failure)
        raise


def predict_jobs(step: StepContext, parameters: Mapping[str, Any]) -> "PredictJobs":
    """Return where models that are commands predict."""
    from podium.training.predict_job import PredictJobs
    from podium.training.target import LaunchTarget

    return PredictJobs(step=step, target=read_settings(LaunchTarget, parameters))


def _storage(parameters: Mapping[str, Any]) -> str:
    take_access()
    artifacts = (value.uri for value in parameters.values() if hasattr(value, "uri"))
    return storage_url(str(parameters.get("storage") or ""), next(artifacts, ""))


def current_run(environ: Mapping[str, str] | None = None) -> RunIdentity:
    """Return the run this process belongs to.

    Args:
        environ: The environment; the process's own if None.

    Returns:
        The run of PODIUM_RUN_ID (`podium run` sets it), else that of the pod KFP_POD_NAME.

    Raises:
        InvalidInput: The id cannot be part of a key or a label.
        PodiumError: Neither is set, or the pod cannot be read.
    """
    env = os.environ if environ is None else environ
    if env.get(RUN_ID):
        return RunIdentity(id=env[RUN_ID])
    pod, namespace = env.get(POD_NAME), pod_namespace()
    if not pod or namespace is None:
        hint = f"run it with `podium run` or as a step of a Kubeflow pipeline, or set {RUN_ID}"
        raise PodiumError("this process belongs to no run", hint)
    own = _read_pod(pod, namespace)
    owners = [owner for owner in own.owners if owner["kind"] == "Workflow"]
    keys = ("apiVersion", "kind", "name", "uid")
    owner = {key: owners[0][key] for key in keys} if owners else None
    return RunIdentity(
        id=own.labels.get(KFP_RUN, ""), owner=owner, namespace=namespace, step=_step_of(own)
    )


def _step_of(pod: Resource) -> str:
    """Return the task of a step's pod, ``train`` of ``<workflow>.root.train.executor`` (observed on
    2.0.5 and 2.16.1).

    A loop puts its own names before it; a retry appends its number: ``executor(1)``.
    """
    node = pod.annotations.get(ARGO_NODE, "").partition(".root.")[2]
    return re.sub(r"\.executor(\(\d+\))?$", "", node) or pod.name


def _read_pod(pod: str, namespace: str) -> Resource:
    with closing(api_of(f"kubernetes://{namespace}")) as api:
        doing = f"read pod {pod} in namespace {namespace}"
        answer = api.call(doing, api.core.read_namespaced_pod, pod, namespace)
        return Resource.parse(api.client.sanitize_for_serialization(answer))


class _Saying(logging.Handler):
    """Says what the data room warns of, as a step says its progress."""

    def emit(self, record: logging.LogRecord) -> None:
        say(
            f"warning: {record.getMessage()}"
            if record.levelno >= logging.WARNING
            else record.getMessage()
        )


@contextmanager
def _data_talks() -> Iterator[None]:
    """Print warnings about the data and the data summary in the step's log."""
    logger, summary = logging.getLogger("podium.data"), logging.getLogger("podium.data.summary")
    before = logger.handlers, logger.propagate, summary.level
    logger.handlers, logger.propagate = [_Saying()], False
    summary.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate, summary.level = before


def _show(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, failure: str
) -> None:
    """Print the error that ends this process, and write it to a file for `podium run`, if there is
    one."""
    if not isinstance(error, PodiumError) and (words := blame(error)):
        error = PodiumError(words)
    error = of_this_machine(error) or error
    if not isinstance(error, PodiumError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr, flush=True)
    if failure:
        Path(failure).write_text(json.dumps({"error": str(error), "fix": dict(error.fix)}))
