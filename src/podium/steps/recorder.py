"""Log of a step, stored with its run while the step runs and at its end, however it ends."""

import io
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from podium.background import Background
from podium.errors import NotFound, PodiumError
from podium.identity import RUN_ID
from podium.interrupts import Terminated
from podium.pod import POD_NAME
from podium.training.context import StepContext
from podium.training.kept_logs import Excerpt, KeptLogs, only_warned

INTERVAL = 20.0
"""Seconds between two writes while the step runs: what it printed until then survives a kill."""


class Recorder(io.TextIOBase):
    """Collects what is written to it, and keeps it once it knows where."""

    def __init__(self) -> None:
        self._text, self._lock, self._over = Excerpt(), threading.Lock(), threading.Event()
        self._kept: KeptLogs | None = None
        self._name, self._earlier, self._written = "", "", 0
        self._length = 0
        self._error: BaseException | None = None
        self._writer = Background(self._write_now_and_then, "kept-log")

    def write(self, text: str) -> int:
        """Add text."""
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
        """Note how the step ended."""
        self.write(_describe_error(error))
        self._error = error

    def end(self) -> None:
        """Write what is left."""
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

    def __init__(self, stream: Any, recorder: Recorder) -> None:
        self._stream, self._recorder = stream, recorder

    def write(self, text: str) -> int:
        self._recorder.write(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Collect what this process prints until the context ends, and how it ends; Recorder.keep says
    where to keep it."""
    recorder, streams = Recorder(), (sys.stdout, sys.stderr)
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
    """Return what a kept log says of an error that ended its step."""
    if isinstance(error, Terminated):
        return f"the step was stopped: {error}\n"
    if isinstance(error, PodiumError):
        return f"error: {error}\n"
    return "".join(traceback.format_exception(error))
