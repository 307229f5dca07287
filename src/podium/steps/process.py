"""The process of a step: signals unwind it, its errors are printed without a traceback, what it
prints is kept with its run.

Kubeflow Pipelines and kfp.local run each step in a process of its own. On a cluster the run id is
the label ``pipeline/runid`` of its pod. Placeholders such as ``PIPELINE_JOB_ID`` do not help: KFP
2.0.5 passes them to the step unreplaced (observed).
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from podium.cluster.kubernetes.api import api_of
from podium.cluster.kubernetes.store_access import take_access
from podium.errors import PodiumError
from podium.identity import RUN_ID, RunIdentity
from podium.interrupts import Terminated, exit_code, signals_interrupt
from podium.manifests.labels import ARGO_NODE, KFP_RUN
from podium.manifests.resource import Resource
from podium.plugins import blame
from podium.pod import POD_NAME, pod_namespace
from podium.settings import FAILURE, SAFE_PATH
from podium.steps.recorder import recorded
from podium.training.base import read_settings, say
from podium.training.context import StepContext, storage_url

if TYPE_CHECKING:
    from podium.training.predict_job import PredictJobs

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
        with signals_interrupt(), recorded() as recorder, _data_talks():
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
    if not isinstance(error, PodiumError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr, flush=True)
    if failure:
        Path(failure).write_text(json.dumps({"error": str(error), "fix": dict(error.fix)}))
