"""A model that is a command: ``model.json`` names it, and it writes predictions for inputs.

``python -m podium.steps.predict_command`` is what runs in its job: it fetches model and inputs,
runs the command in the model directory with ``--model DIR --inputs DIR --output FILE``, and stores
what the command wrote.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, Any

import numpy as np

from podium.data.schema import INPUT_NAME
from podium.errors import Failed, InvalidInput, PodiumError
from podium.files.documents import foreign, load_json, parse
from podium.scoring.families import floats
from podium.storage import connect, transfer
from podium.system.supervised import outlived

FILE = "model.json"
ONNX = "model.onnx"
MODELS = (ONNX, FILE)
"""Files that are evaluated: a graph, or a command that predicts."""

_CONTRACT = "a predict command writes an .npy array of numbers to --output, one row for each row of the inputs"
OUTPUT = "predictions.npy"
_END_SECONDS = 10.0
"""A keeper needs to end what it keeps; a moment, unless it is stopped."""

_STDERR = 2
"""File descriptor."""


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Content of ``model.json``."""

    predict: list[str]
    """The command; relative files in it are in the model directory."""

    serve: list[str] = field(default_factory=list)
    """A command that stays while the model is served, started with ``--model DIR``. Each line of
    its stdin is a JSON object with ``inputs`` and ``output``; it prints the path of the output,
    alone on a line, once that is written."""

    uris: bool = False
    """Whether the command itself takes URIs for --model, --inputs and --output: its image needs no
    podium then."""

    @classmethod
    def parse(cls, content: bytes, name: str) -> "PredictCommand":
        """Read model.json.

        Raises:
            InvalidInput: It is not JSON, or a field is missing or of another type.
        """
        command = parse(cls, load_json(content, name), name)
        if not command.predict:
            raise InvalidInput(
                f"the command predict in {name} is empty",
                'write ["python", "predict.py"], for example',
            )
        return command

    def job_words(self, model: str, inputs: str, output: str) -> list[str]:
        """Return the command line of a job that reads and writes at URIs."""
        options = ["--model", model, "--inputs", inputs, "--output", output]
        if self.uris:
            return [*self.predict, *options]
        return ["python", "-m", "podium.steps.predict_command", *options, "--", *self.predict]


def write_inputs(
    inputs: Mapping[str, np.ndarray], folder: Path, order: np.ndarray | None = None
) -> list[Path]:
    """Write ``<input>.npy`` of each input to a folder, in pieces.

    Args:
        order: [n], the position that each row comes from; None leaves the rows where they are.

    Raises:
        InvalidInput: A name, which a client may have given, is not one of a file in the folder, or
            an input has texts or no rows.
    """
    for name, array in inputs.items():
        if not INPUT_NAME.fullmatch(name):
            raise InvalidInput(f"an input cannot be named {name!r:.80}", "letters, digits and _")
        if array.dtype.kind == "O":
            raise InvalidInput(f"input {name} holds texts, and a command takes numbers")
        if not len(array):
            raise InvalidInput(f"input {name} has no rows")
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in inputs.items():
        with (folder / f"{name}.npy").open(
            "wb"
        ) as file:  # not by a map: on a full disk that ends the process
            described = {
                "descr": np.lib.format.dtype_to_descr(array.dtype),
                "fortran_order": False,
                "shape": array.shape,
            }
            np.lib.format.write_array_header_1_0(file, described)
            for at in range(0, len(array), 65536):
                piece = slice(at, at + 65536)
                file.write(
                    np.ascontiguousarray(array[piece if order is None else order[piece]]).data
                )
    return [folder / f"{name}.npy" for name in inputs]


def read_predictions(file: Path, *, items: int, classes: int | None, name: str) -> np.ndarray:
    """Read what a predict command wrote.

    Args:
        file: The array; never a pickle, which could run any code.
        items: How many rows the inputs have.
        classes: How many classes the dataset has; None for regression.

    Returns:
        Classification: probabilities, float32 or float64 ``[n, classes]``, or class indices
            ``[n]``.
        Regression: floats ``[n]`` or ``[n, k]``.

    Raises:
        InvalidInput: It is not an array of numbers, or has another shape.
        Failed: A value is not finite.
    """
    if file.is_symlink() or not file.is_file():  # a FIFO would be waited for
        left = "something else than a file" if os.path.lexists(file) else "no file"
        raise InvalidInput(f"{name} left {left} as its predictions", _CONTRACT)
    with foreign(f"{name} left no array of predictions", hint=_CONTRACT):
        # A map is never larger than the file, whatever the header claims.
        array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    if (
        not isinstance(array, np.ndarray)
        or array.dtype.kind not in "iuf"
        or array.ndim not in (1, 2)
    ):
        raise InvalidInput(f"{name} predicts something else than numbers [n] or [n, k]", _CONTRACT)
    if len(array) != items:
        raise InvalidInput(f"{name} made {len(array)} predictions for {items} rows", _CONTRACT)
    if classes is not None and array.ndim == 2 and array.shape[1] != classes:
        raise InvalidInput(f"{name} predicts {array.shape[1]} classes, but the data has {classes}")
    array = np.array(array)
    bad = np.flatnonzero(~np.isfinite(array.reshape(items, -1)).all(1))
    if len(bad):
        raise Failed(f"{name} predicts a value that is not finite, first for row {int(bad[0])}")
    if classes is None:
        return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    return _classified(array, classes, name)


def _classified(array: np.ndarray, classes: int, name: str) -> np.ndarray:
    if array.ndim == 1:
        whole = array.astype(np.int64)
        wrong = np.flatnonzero((whole != array) | (whole < 0) | (whole >= classes))
        if len(wrong):
            row = int(wrong[0])
            raise InvalidInput(
                f"{name} predicts {array[row]} for row {row}, but classes are 0 to {classes - 1}"
            )
        return whole
    wrong = np.flatnonzero((np.abs(array.sum(1, dtype=np.float64) - 1) > 1e-3) | (array < 0).any(1))
    if len(wrong):
        raise InvalidInput(
            f"{name} predicts probabilities that do not sum to 1, first for row {int(wrong[0])}"
        )
    return floats(array)


def run_here(
    command: Sequence[str],
    model: Path,
    inputs: Path,
    output: Path,
    *,
    stdout: int | None = None,
    seconds: float | None = None,
    on_start: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> None:
    """Run a predict command in its model directory, in this process's environment; nothing that it
    starts outlives it.

    Args:
        stdout: File descriptor for what it prints; None for this process's own stdout.
            ``subprocess.PIPE``: it goes to this process's stderr, and the last lines are in the
            error.
        seconds: When it is ended; None waits.
        on_start: Called with its process, which another thread may end.

    Raises:
        Failed: It cannot be started, exits with another code than 0, or takes too long.
    """
    words = [*command, "--model", str(model), "--inputs", str(inputs), "--output", str(output)]
    process = supervised(words, model, stdout=stdout)
    said = LastLines(process.stdout) if process.stdout else None
    try:
        on_start(process)
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise Failed(
            f"the predict command {' '.join(command)} did not end within {seconds:g} s and was ended",
            "podium serve --timeout allows more",
        ) from None
    finally:
        end(process)
        last = f":\n{said}" if said else ""
    if code:
        raise Failed(
            f"the predict command {' '.join(command)} exited with {code}{last}",
            "its output says why",
        )


def supervised(
    words: Sequence[str],
    model: Path,
    *,
    stdout: int | None,
    stderr: int | None = None,
    reads: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a command in its model directory; it ends, with all that it started, when stdin is
    closed.

    Args:
        words: The command and its options.
        stdout: As run_here takes it; if it is ``subprocess.PIPE`` and no stderr is given, stderr
            goes there too.
        reads: Whether what is written to stdin is for the command.

    Raises:
        Failed: There is no such program.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    program = str(model / words[0]) if "/" in words[0] else words[0]
    if shutil.which(program, path=environment["PATH"]) is None:
        raise Failed(
            f"the predict command {words[0]!r} cannot be started: there is no such program",
            "model.json names it: is it in the model directory, or installed here?",
        )
    keeper = [sys.executable, "-P", "-m", "podium.system.supervised"]
    if stdout == subprocess.PIPE and stderr is None:
        stderr = subprocess.STDOUT
    return outlived(
        subprocess.Popen(
            [*keeper, *(["--stdin"] if reads else []), *words],
            cwd=model,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    )


def end(process: subprocess.Popen[bytes]) -> int:
    """End a supervised process with all that it started; return its exit code.

    Should its keeper be stuck or killed, what has begun a session of its own may survive it, and is
    not waited for.
    """
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class LastLines:
    """Passes on to stderr what a process prints, and keeps the last lines, which are what it is as
    text.

    Args:
        stream: What it prints.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._lines = stream, deque[str](maxlen=8)
        self._thread = Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with (
            self._stream
        ):  # closed here and nowhere else: closing waits for a read, which a survivor keeps open
            for line in iter(partial(self._stream.readline, 4096), b""):
                text = line.decode(errors="replace")
                self._lines.append(text.rstrip()[:500])
                with suppress(
                    OSError, ValueError
                ):  # nobody listens, but the pipe has to be emptied
                    sys.stderr.write(text)

    def __str__(self) -> str:
        self._thread.join(2)  # it has ended when the process and all it started has
        return "\n".join(line for line in self._lines if line)


@dataclass(frozen=True, kw_only=True)
class CommandModel:
    """A model that predicts by a command on this machine, in a temporary copy of its directory that
    each call makes."""

    name: str

    fetch: Callable[[Path], object]
    """Writes its files to a directory that does not exist yet."""

    seconds: float | None = None
    """For a call, after which it is ended; None waits."""

    def predict(self, inputs: Mapping[str, np.ndarray], *, classes: int | None) -> np.ndarray:
        """Run the command once, on all rows; see read_predictions for the result.

        What the command prints goes to stderr: stdout is podium's own.

        Args:
            inputs: By name, each ``[n, ...]``.
            classes: How many there are; None for regression.

        Raises:
            InvalidInput: model.json is not a predict command, or the predictions do not fit.
            Failed: The command fails, or a value is not finite.
        """
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            model, folder, output = (Path(scratch, of) for of in ("model", "inputs", OUTPUT))
            self.fetch(model)
            command = PredictCommand.parse((model / FILE).read_bytes(), f"{self.name} {FILE}")
            write_inputs(inputs, folder)
            run_here(command.predict, model, folder, output, stdout=_STDERR, seconds=self.seconds)
            items = len(next(iter(inputs.values())))
            return read_predictions(output, items=items, classes=classes, name=self.name)


def main(words: Sequence[str] | None = None) -> int:
    """Fetch model and inputs, run the command after ``--``, store its predictions; return the exit
    code."""
    parser = argparse.ArgumentParser(
        prog="python -m podium.steps.predict_command", description=__doc__
    )
    for flag, text in (
        ("model", "model directory"),
        ("inputs", "folder of inputs"),
        ("output", "file to write"),
    ):
        parser.add_argument(f"--{flag}", required=True, metavar="URI", help=text)
    parser.add_argument("command", nargs="+", help="the predict command")
    arguments: Any = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            folders = {name: Path(scratch, name) for name in ("model", "inputs")}
            for name, folder in folders.items():
                transfer.get(connect(getattr(arguments, name)), folder)
            run_here(arguments.command, folders["model"], folders["inputs"], Path(scratch, OUTPUT))
            uri, _, file = arguments.output.rpartition("/")
            if not Path(scratch, OUTPUT).is_file():
                raise InvalidInput("the predict command wrote nothing to its --output", _CONTRACT)
            connect(uri).put(file, Path(scratch, OUTPUT))
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0
