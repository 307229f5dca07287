"""A predict command behind a pool of processes, for a server that asks it again and again."""

import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any

from numpy.typing import NDArray

from podium.errors import Failed
from podium.prediction.command import (
    FILE,
    OUTPUT,
    CommandModel,
    LastLines,
    PredictCommand,
    end,
    read_predictions,
    run_here,
    supervised,
    write_inputs,
)
from podium.system.machine import cores


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Settings of a predict command that is served."""

    count: int = min(4, cores())
    """Processes at once; each has a copy of the model directory."""

    seconds: float = 60.0
    """For a call; a process that takes longer is ended."""


class _Worker:
    """Runs a predict command for one batch after the other, in a copy of the model directory that
    it keeps.

    A command that stays (``serve`` in model.json) is started once, and again after it has ended.

    Args:
        model: The command.
        seconds: For a call.
        stopped: Set before stop is called.

    Raises:
        InvalidInput: model.json is not a predict command.
        Failed: The command cannot be started.
    """

    def __init__(self, model: CommandModel, seconds: float, stopped: Event) -> None:
        self._name, self._seconds, self._stopped = model.name, seconds, stopped
        self._scratch = tempfile.TemporaryDirectory(prefix="podium-worker-")
        self._directory = Path(self._scratch.name, "model")
        # systemd-tmpfiles removes what nobody has used for ten days, unless the directory is
        # locked.
        self._lock = os.open(self._scratch.name, os.O_RDONLY)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            model.fetch(self._directory)
            content = (self._directory / FILE).read_bytes()
            self._command = PredictCommand.parse(content, f"{self._name} {FILE}")
            if self._command.serve:
                self._start()
        except BaseException:
            self.close()
            raise

    def predict(
        self, inputs: "Mapping[str, NDArray[Any]]", *, classes: int | None
    ) -> "NDArray[Any]":
        """Return predictions, as CommandModel.predict does.

        Raises:
            InvalidInput: The predictions do not fit.
            Failed: The command fails, with the last lines that it printed.
        """
        if self._stopped.is_set():
            raise Failed(f"{self._name} is being stopped")
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            folder, output = Path(scratch, "inputs"), Path(scratch, OUTPUT)
            write_inputs(inputs, folder)
            if self._command.serve:
                self._ask(folder, output)
            else:
                try:
                    run_here(
                        self._command.predict,
                        self._directory,
                        folder,
                        output,
                        stdout=subprocess.PIPE,
                        seconds=self._seconds,
                        on_start=self._hold,
                    )
                finally:
                    self._process = None
            items = len(next(iter(inputs.values())))
            return read_predictions(output, items=items, classes=classes, name=self._name)

    def stop(self) -> None:
        """End its process; called by another thread than the one whose call then fails."""
        if process := self._process:
            end(process)

    def close(self) -> None:
        """End its process, and remove its copy."""
        self._end()
        self._scratch.cleanup()
        os.close(self._lock)

    def _hold(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        if self._stopped.is_set():  # since it was looked at
            end(process)

    def _start(self) -> "subprocess.Popen[bytes]":
        process = supervised(
            [*self._command.serve, "--model", str(self._directory)],
            self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            reads=True,
        )
        assert process.stderr is not None
        self._said = LastLines(process.stderr)
        self._hold(process)
        return process

    def _end(self) -> str:
        """End the process if there is one; return its exit code and the last lines that it printed
        to stderr."""
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdout is not None
        code = end(process)
        process.stdout.close()
        return f"{code}:\n{self._said}"

    def _ask(self, inputs: Path, output: Path) -> None:
        process = self._process or self._start()
        if process.poll() is not None:  # it ended while nobody asked
            self._end()
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        command, until = " ".join(self._command.serve), time.monotonic() + self._seconds
        call = json.dumps({"inputs": str(inputs), "output": str(output)}) + "\n"
        with suppress(BrokenPipeError, ValueError):  # it ended, or was stopped
            process.stdin.write(call.encode())
            process.stdin.flush()
        printed = b""
        while f"\n{output}\n".encode() not in b"\n" + printed:
            if not select.select(
                [process.stdout], [], [], max(0.0, min(1.0, until - time.monotonic()))
            )[0]:
                if process.poll() is not None:  # a daemon of it keeps the pipe open
                    raise Failed(
                        f"the command {command} exited with {self._end()}",
                        "the next call starts it again",
                    )
                if time.monotonic() < until:
                    continue
                self._end()
                raise Failed(
                    f"the command {command} did not answer within {self._seconds:g} s and was ended",
                    "podium serve --timeout allows more",
                )
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                raise Failed(
                    f"the command {command} exited with {self._end()}",
                    "the next call starts it again",
                )
            printed = (printed + piece)[-65536:]


@dataclass(frozen=True, kw_only=True)
class CommandPool(CommandModel):
    """A command model whose calls are made by a few workers; a call waits for one that is free.

    Raises:
        InvalidInput: model.json is not a predict command.
        Failed: The command cannot be started.
    """

    processes: Processes
    _workers: list[_Worker] = field(default_factory=list, init=False)
    _free: SimpleQueue[_Worker | None] = field(default_factory=SimpleQueue, init=False)
    """None once it is closed."""

    _stopped: Event = field(default_factory=Event, init=False)
    _closing: Lock = field(default_factory=Lock, init=False)

    def __post_init__(self) -> None:
        try:
            for _ in range(self.processes.count):
                self._free.put(self._add())
        except BaseException:
            for worker in self._workers:
                worker.close()
            raise

    def _add(self) -> _Worker:
        worker = _Worker(self, self.processes.seconds, self._stopped)
        self._workers.append(worker)
        return worker

    def predict(
        self, inputs: "Mapping[str, NDArray[Any]]", *, classes: int | None
    ) -> "NDArray[Any]":
        """Run the command on all rows, as CommandModel.predict does."""
        worker = self._free.get()
        if worker is None:  # another version has taken over while the request came
            self._free.put(None)
            worker = self._add()
            try:
                return worker.predict(inputs, classes=classes)
            finally:
                worker.close()
                self._workers.remove(worker)
        try:
            return worker.predict(inputs, classes=classes)
        finally:
            self._free.put(worker)

    def stop(self) -> None:
        """End the processes now, and refuse further calls: nobody waits for an answer."""
        self._stopped.set()
        for worker in [*self._workers]:
            worker.stop()

    def close(self) -> None:
        """End the processes once their calls are answered; what is closed already stays so."""
        with self._closing:
            for _ in range(self.processes.count):
                if (worker := self._free.get()) is None:
                    break
                worker.close()
            self._free.put(None)
