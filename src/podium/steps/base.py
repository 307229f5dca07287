"""What all steps share: progress lines, errors, cancellation, rules of settings."""

import functools
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from podium.cluster.kubernetes.store_access import take_access
from podium.errors import PodiumError, require
from podium.interrupts import Terminated, exit_code, signals_interrupt
from podium.steps.recorder import keep_failure, recorded

SAID = "podium | "
"""Prefix of progress lines; the rest of a step's log is for finding faults."""

P = ParamSpec("P")
T = TypeVar("T")


def say(text: str) -> None:
    """Print one line of progress at once: a step's stdout is a pipe."""
    print(SAID + text, flush=True)


def step(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function a step.

    SIGTERM unwinds it, an uncaught PodiumError is printed without a traceback, and what it prints can be kept with the
    run (keep_output).
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        sys.excepthook = _show
        try:
            with signals_interrupt(), recorded():
                take_access()
                return function(*args, **kwargs)
        except Terminated as signal:
            raise SystemExit(exit_code(signal)) from None

    return run


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, PodiumError):
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)
    keep_failure(error, _storage_of_step)


def _storage_of_step() -> str:
    from podium.steps.executor_input import storage_of_step

    take_access()
    return storage_of_step()


if "--executor_input" in sys.argv:  # Kubeflow Pipelines runs a step here: its settings are checked before it begins
    sys.excepthook = _show


def require_at_least(settings: object, **least: int) -> None:
    """Refuse settings that are too small, as in ``require_at_least(self, max_trials=1)``.

    Raises:
        InvalidInput: "`max_trials >= 1` must hold, but got max_trials=0".
    """
    for name, minimum in least.items():
        value = getattr(settings, name)
        require(value >= minimum, f"{name} >= {minimum}", **{name: value})


def require_seed(seed: int) -> None:
    """Refuse a seed that a random number generator does not take.

    Raises:
        InvalidInput: It is negative or has more than 32 bits.
    """
    require(0 <= seed < 2**32, "0 <= seed < 2**32", seed=seed)
