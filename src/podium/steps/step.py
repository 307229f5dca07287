"""A step: signals unwind it, its errors are printed without a traceback, what it prints is kept
with its run.

Kubeflow Pipelines and kfp.local run each step in a process of its own, ``python -m
kfp.dsl.executor_main``.
"""

import functools
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from podium.cluster.kubernetes.store_access import take_access
from podium.errors import PodiumError
from podium.interrupts import Terminated, exit_code, signals_interrupt
from podium.plugins import blame
from podium.settings import FAILURE, SAFE_PATH
from podium.steps.recorder import recorded
from podium.training.base import say
from podium.training.target import storage_url

FLAG = "--executor_input"
"""Stands before a JSON object on the command line of a step's process (kfp 2.17)."""

_FAILURE_FILE = os.environ.pop(
    FAILURE, ""
)  # of `podium run`: jobs that a step starts do not see it

P = ParamSpec("P")
T = TypeVar("T")


def step(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function a step, in the main thread of its process."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        sys.excepthook = _show
        try:
            with signals_interrupt(), recorded() as recorder:
                os.environ.pop(
                    SAFE_PATH, None
                )  # of `podium run`, for this process alone, not for jobs of people's own
                _let_data_talk()
                take_access()
                recorder.keep(storage_of_step)
                return function(*args, **kwargs)
        except Terminated as signal:
            raise SystemExit(exit_code(signal)) from None

    return run


class _Saying(logging.Handler):
    """Says what the data room warns of, as a step says its progress."""

    def emit(self, record: logging.LogRecord) -> None:
        say(
            f"warning: {record.getMessage()}"
            if record.levelno >= logging.WARNING
            else record.getMessage()
        )


def _let_data_talk() -> None:
    """Print warnings about the data and the data summary in the step's log."""
    if FLAG not in sys.argv:
        return
    logger = logging.getLogger("podium.data")
    logger.handlers, logger.propagate = [_Saying()], False
    logging.getLogger("podium.data.summary").setLevel(logging.INFO)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, PodiumError) and (words := blame(error)):
        error = PodiumError(words)
    if isinstance(error, PodiumError):
        print(f"error: {error}", file=sys.stderr, flush=True)
        if _FAILURE_FILE:
            Path(_FAILURE_FILE).write_text(
                json.dumps({"error": str(error), "fix": dict(error.fix)})
            )
    else:
        sys.__excepthook__(kind, error, trace)


def _refuse(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show and record an error before the step began, such as a refused setting."""
    _show(kind, error, trace)
    with recorded() as recorder:
        recorder.fail(error)
        recorder.keep(_storage_in_reach)


def _storage_in_reach() -> str:
    take_access()
    return storage_of_step()


def storage_of_step() -> str:
    """Return the storage that keeps a step's models and logs: its parameter ``storage``, else its
    artifacts' bucket.

    Raises:
        PodiumError: It names no storage, and no artifact of it is in a bucket; or this process is
            not a step's.
    """
    if FLAG not in sys.argv:
        raise PodiumError(
            f"this process was started without {FLAG}, which names the storage of a step"
        )
    given = json.loads(sys.argv[sys.argv.index(FLAG) + 1])
    values = given.get("inputs", {}).get("parameterValues", {})
    return storage_url(str(values.get("storage", "")), next(_artifacts(given), ""))


def _artifacts(given: dict[str, Any]) -> Iterator[str]:
    for side in ("inputs", "outputs"):
        for listed in given.get(side, {}).get("artifacts", {}).values():
            yield from (str(artifact["uri"]) for artifact in listed["artifacts"])


if FLAG in sys.argv:
    sys.excepthook = _refuse
