"""A predict command behind a pool of processes, for a server that asks it again and again."""

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

    Raises:
        InvalidInput: model.json is not a predict command.
        Failed: The command cannot be started.
    """

    def __init__(self, model: CommandModel, seconds: float) -> None:
        self._name, self._seconds = model.name, seconds
        self._scratch = tempfile.TemporaryDirectory(prefix="podium-worker-")
        self._directory = Path(self._scratch.name, "model")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            model.fetch(self._directory)
            content = (self._directory / FILE).read_bytes()
            self._command = PredictCommand.parse(content, f"{self._name} {FILE}")
            if self._command.serve:
                self._start()
        except BaseException:
            self._scratch.cleanup()
            raise

    def predict(
        self, inputs: "Mapping[str, NDArray[Any]]", *, classes: int | None
    ) -> "NDArray[Any]":
        """Return predictions, as CommandModel.predict does.

        Raises:
            InvalidInput: The predictions do not fit.
            Failed: The command fails, with the last lines that it printed.
        """
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            folder, output = Path(scratch, "inputs"), Path(scratch, OUTPUT)
            write_inputs(inputs, folder)
            if self._command.serve:
                self._ask(folder, output)
            else:
                run_here(
                    self._command.predict,
                    self._directory,
                    folder,
                    output,
                    stdout=subprocess.PIPE,
                    seconds=self._seconds,
                )
            items = len(next(iter(inputs.values())))
            return read_predictions(output, items=items, classes=classes, name=self._name)

    def close(self) -> None:
        """End its process, and remove its copy."""
        self._end()
        self._scratch.cleanup()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._process = supervised(
            [*self._command.serve, "--model", str(self._directory)],
            self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            reads=True,
        )
        assert self._process.stderr is not None
        self._said = LastLines(self._process.stderr)
        return self._process

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
        with suppress(BrokenPipeError):  # what it printed is read below
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
    _free: SimpleQueue[_Worker | None] = field(default_factory=SimpleQueue, init=False)
    """None once it is closed."""

    def __post_init__(self) -> None:
        try:
            for _ in range(self.processes.count):
                self._free.put(_Worker(self, self.processes.seconds))
        except BaseException:
            while not self._free.empty():
                if worker := self._free.get():
                    worker.close()
            raise

    def predict(
        self, inputs: "Mapping[str, NDArray[Any]]", *, classes: int | None
    ) -> "NDArray[Any]":
        """Run the command on all rows, as CommandModel.predict does."""
        worker = self._free.get()
        if worker is None:  # another version has taken over while the request came
            self._free.put(None)
            return super().predict(inputs, classes=classes)
        try:
            return worker.predict(inputs, classes=classes)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End the processes once their calls are answered."""
        for _ in range(self.processes.count):
            if worker := self._free.get():
                worker.close()
        self._free.put(None)
