"""The time that a step or a pipeline may take."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL, as a kubelet gives a pod."""


@contextmanager
def time_limit(seconds: int, end: Callable[[], None]) -> Iterator[threading.Event]:
    """Call a function once the time is up, in a thread of its own; the event is set before.

    Args:
        seconds: 0 for no limit.
        end: Ends what takes too long.
    """
    is_over = threading.Event()

    def expire() -> None:
        is_over.set()
        end()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def end(processes: Iterable[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
    """End supervised processes: SIGTERM, and after the grace what they still run is killed."""
    processes, deadline = list(processes), time.monotonic() + grace
    for process in processes:
        process.terminate()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()  # its supervisor kills then
