"""SIGTERM and SIGHUP end a command or a step as Ctrl-C does: an exception unwinds the stack, and
cleanup runs once.

Two modules handle SIGTERM differently, because they finish something first: the trainer its
training step, and ``podium.runner.child`` the pipeline step that got the signal too.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_ASKS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal other than SIGINT asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Terminated once: a second one (KFP often sends two) must not
    interrupt cleanup.

    An ignored signal (nohup) stays ignored. Python handles signals in the main thread only; in
    other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ASKS}
    caught = {number: handler for number, handler in before.items() if handler == signal.SIG_DFL}
    try:
        for number in caught:
            signal.signal(number, _terminate)
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)


@contextmanager
def hangup_terminates() -> Iterator[None]:
    """Let SIGHUP, of a terminal that is closed, do what SIGTERM does, which alone a server of HTTP
    takes to answer first what is under way. An ignored one stays ignored; only the main thread may
    set a handler."""
    before = signal.getsignal(signal.SIGHUP)
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of an interrupt as a shell reports it: 128 plus the signal's number."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def _terminate(number: int, _: Any) -> NoReturn:
    for ask in _ASKS:
        if signal.getsignal(ask) is _terminate:
            signal.signal(ask, signal.SIG_IGN)
    raise Terminated(number)
