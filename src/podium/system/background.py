"""Background tasks: failures are logged and counted, the task is restarted later, and health checks
see it."""

import logging
import queue
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("podium")

FIRST_PAUSE, MOST_PAUSE = 1.0, 60.0
"""Seconds before a failed task restarts; each failure in a row doubles them."""

STUCK = 5
"""Failures in a row after which a task is taken for one that does not come back by itself."""


class Tries:
    """Failure count and health of a background task.

    Args:
        name: Name in log messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        """Since the start."""

        self._row = 0

    @property
    def stuck(self) -> bool:
        """Whether beginning again does not help."""
        return self._row >= STUCK

    def well(self) -> None:
        self._row = 0

    def failed(self, error: Exception) -> float:
        """Log and count a failure; return the seconds until the next try."""
        self.failures, self._row = self.failures + 1, self._row + 1
        pause = min(MOST_PAUSE, FIRST_PAUSE * 2.0 ** (min(self._row, 10) - 1))
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"{type(error).__name__} at {where}: {str(error) or 'no word why'}"
        _log.error(
            "%s failed (%d in a row), and restarts in %g s: %.500s",
            self.name,
            self._row,
            pause,
            message,
        )
        return pause

    async def repeat(self, work: Callable[[], Awaitable[None]], every: float) -> None:
        """Do the work every so many seconds for ever, and later each time it fails."""
        import asyncio  # which few commands need

        pause = every
        while True:
            await asyncio.sleep(pause)
            try:
                await work()
            except Exception as error:
                pause = max(every, self.failed(error))
            else:
                self.well()
                pause = every


class Background:
    """A daemon thread that can be joined again after Ctrl-C, and can restart after a failure.

    Before Python 3.13 a Thread whose join was interrupted counts as finished although it still
    runs, so cleanup would not wait for it.

    Args:
        target: The function to run.
        name: Name in log messages.
        again: Whether it restarts after a failure.
    """

    def __init__(self, target: Callable[[], object], name: str, *, again: bool = False) -> None:
        self._target, self._again, self._ended = target, again, threading.Event()
        self.tries = Tries(name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread; return whether it has finished."""
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            while self._again:
                if (pause := self._tried()) is None:
                    return
                time.sleep(pause)
            self._target()
        finally:
            del self._target  # as a Thread does: who started it may be large
            self._ended.set()

    def _tried(self) -> float | None:
        """Run the target once; return the seconds until it has to run again, None if it ended."""
        began = time.monotonic()
        try:
            self._target()
        except Exception as error:
            if time.monotonic() - began > MOST_PAUSE:
                self.tries.well()
            return self.tries.failed(error)
        return None


class DaemonThreads(Executor):
    """Threads that take work in order. Unlike those of a pool they keep no process from ending: a
    store may never answer them.

    Args:
        name: Of the threads.
        count: How many there may be; each of the first works starts one.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._work = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=name, daemon=True) for _ in range(count)
        ]

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if new := next((thread for thread in self._threads if not thread.ident), None):
            new.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the work that they have; nobody waits for them."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while item := self._work.get():
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del item, future, work  # a result may be large
