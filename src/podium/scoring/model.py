"""Run a ``model.onnx`` on the inputs of a dataset, some rows at a time."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podium.errors import Damaged, Failed, InvalidInput, NotFound, PodiumError, require
from podium.files.arrays import new_map
from podium.files.onnx_files import read_model
from podium.scoring.families import Array, floats
from podium.system.machine import cores

_CONTRACT = (
    "a model.onnx takes inputs named, typed and shaped as the dataset's, their first axis free or fixed, and"
    " returns probabilities or logits [n, classes], or values [n] or [n, k]; see docs/formats.md"
)
_SECONDS = "PODIUM_MODEL_SECONDS"
"""Variable with how many seconds a model may take for a batch of rows."""

_DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(uint8)": "uint8",
    "tensor(int8)": "int8", "tensor(uint16)": "uint16", "tensor(int16)": "int16", "tensor(uint32)": "uint32",
    "tensor(int32)": "int32", "tensor(uint64)": "uint64", "tensor(int64)": "int64", "tensor(bool)": "bool",
    "tensor(string)": "object",
}  # fmt: skip
_FLOATS = ("float32", "float64", "float16")
_BATCH_BYTES = 1 << 20
_LARGEST_BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output of a model."""

    name: str

    dtype: str
    """As numpy calls it; as ONNX does where numpy has no name for it."""

    shape: tuple[int | None, ...]
    """With the first axis; None where any size will do."""

    def __str__(self) -> str:
        axes = ", ".join("n" if size is None else str(size) for size in self.shape)
        dtype = "tensor(string)" if self.dtype == "object" else self.dtype
        return f"{self.name} ({dtype} [{axes}])"


class OnnxModel:
    """A loaded ``model.onnx``.

    Args:
        model: The file or its bytes.
        threads: CPU threads; None for all this process may use.
        name: What errors call the bytes.

    Raises:
        NotFound: There is no such file.
        Damaged: It is not an ONNX model.
        InvalidInput: Its weights are in another file.
    """

    def __init__(
        self, model: bytes | Path, *, threads: int | None = None, name: str = "the model"
    ) -> None:
        require(threads is None or threads >= 1, "threads >= 1", threads=threads)
        self.name = name if isinstance(model, bytes) else str(model)
        if isinstance(model, Path) and not model.is_file():
            raise NotFound(f"there is no model file {model}")
        self._session = _open(model, self.name, threads or cores())
        self.inputs = tuple(map(_tensor, self._session.get_inputs()))
        self.outputs = tuple(map(_tensor, self._session.get_outputs()))
        sizes = set(map(_fixed_rows, self.inputs)) - {None, 0}
        self.fixed_rows = sizes.pop() if len(sizes) == 1 else None
        """Rows of each run of a graph whose first axis is fixed, as PyTorch exports it unless told
        otherwise; any number of rows is answered all the same. None where it takes any."""

        self._shares = dict[str, bool | None]()
        """Whether an output is a softmax; None where a probe did not tell."""

    def has_rows(self, tensor: Tensor) -> bool:
        """Return whether the first axis of an input or output counts items."""
        return tensor.shape[:1] in ((None,), (self.fixed_rows,))

    def check_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Check that the model takes what a dataset has; it may leave inputs unused.

        Args:
            inputs: The dataset's arrays by name, each ``[n, ...]``.

        Raises:
            InvalidInput: A name, dtype or shape differs; the message says what either side has.
        """
        if not self.inputs:
            raise InvalidInput(f"{self.name} takes no inputs", _CONTRACT)
        for wanted in self.inputs:
            array = inputs.get(wanted.name)
            if array is None or not self._fits(wanted, array):
                listing = ", ".join(
                    f"{name} ({array.dtype} {_shape(array)})" for name, array in inputs.items()
                )
                there = listing or "no inputs"
                other = next(
                    (name for name in inputs if name not in {each.name for each in self.inputs}), ""
                )
                raise InvalidInput(
                    f"{self.name} takes {wanted}, but got {there}",
                    _renamed(wanted.name, other)
                    if array is None and other
                    else _hint(wanted, array),
                )
        if len({len(array) for array in inputs.values()}) > 1:
            counts = ", ".join(f"{name} {len(array)}" for name, array in inputs.items())
            raise InvalidInput(f"the inputs have different numbers of items: {counts}")

    def predict(
        self,
        inputs: Mapping[str, Array],
        *,
        classes: int | None,
        target: Path | None = None,
        until: float = math.inf,
    ) -> Array:
        """Run the model on every row.

        Args:
            inputs: The dataset's arrays by name, each ``[n, ...]``; memory maps are read a batch at
                a time.
            classes: How many classes the dataset has; None for regression.
            target: An ``.npy`` file to write the result to instead of memory.
            until: When nobody waits for the result any more, by time.monotonic().

        Returns:
            Classification: probabilities, float32 or float64 ``[n, classes]``, or the class indices
                ``[n]``
            of a model that gives nothing else. Regression: floats ``[n]`` or ``[n, k]``. With a
            target, its memory map.

        Raises:
            InvalidInput: The inputs or the model's output have another shape or type.
            Failed: The model fails on these inputs, takes longer than ten minutes for a batch (or
                as PODIUM_MODEL_SECONDS says), or a value of its output is not finite.
        """
        self.check_inputs(inputs)
        items = len(next(iter(inputs.values())))
        if not items:
            raise InvalidInput(f"there are no items to run {self.name} on")
        output = self._output(classes)
        rows = _batch_rows([inputs[wanted.name] for wanted in self.inputs])
        rows += -rows % (self.fixed_rows or 1)
        whole: Array | None = None
        for at in range(0, items, rows):
            some = {wanted.name: inputs[wanted.name][at : at + rows] for wanted in self.inputs}
            result = self._convert(
                self._run(some, output, until), output, classes, at, min(rows, items - at)
            )
            if whole is None:
                shape = (items, *result.shape[1:])
                whole = (
                    new_map(target, result.dtype, shape)
                    if target
                    else np.empty(shape, result.dtype)
                )
            whole[at : at + rows] = result
        assert whole is not None
        if isinstance(whole, np.memmap):
            whole.flush()
        return whole

    @staticmethod
    def options() -> Any:
        """Return what ends a run: once its ``terminate`` is true."""
        return _runtime().RunOptions()

    def run(self, inputs: Mapping[str, Array], options: Any = None) -> dict[str, Array]:
        """Run the model once on all rows and return every output as it is, by name; nothing is
        limited or checked.

        Args:
            inputs: By name, each ``[n, ...]``.
            options: As options() returns them.

        Raises:
            InvalidInput: The inputs have other names, types or shapes.
            Failed: The model fails on them.
        """
        self.check_inputs(inputs)
        names = [output.name for output in self.outputs if output.dtype in _DTYPES.values()]
        try:
            results = self._call(
                names, {tensor.name: inputs[tensor.name] for tensor in self.inputs}, options
            )
        except PodiumError:
            raise
        except Exception as error:  # onnxruntime raises classes of its own without a common base
            raise Failed(f"{self.name} failed: {_first_line(error)}", _CONTRACT) from error
        return dict(zip(names, results, strict=True))

    def predicted(self, outputs: Mapping[str, Array], *, classes: int | None) -> Array:
        """Return what `predict` would say, of outputs that `run` returned.

        Raises:
            InvalidInput, Failed: As predict.
        """
        output = self._output(classes)
        return self._convert(outputs[output.name], output, classes, 0, len(outputs[output.name]))

    def _fits(self, wanted: Tensor, array: Array) -> bool:
        axes = list(zip(wanted.shape[1:], array.shape[1:], strict=False))
        sized = len(wanted.shape) == array.ndim and all(
            size in (None, length) for size, length in axes
        )
        return sized and wanted.dtype == str(array.dtype) and self.has_rows(wanted)

    def _output(self, classes: int | None) -> Tensor:
        named = {output.name: output for output in self.outputs}
        floats = [output for output in self.outputs if output.dtype in _FLOATS]
        maps = [output for output in self.outputs if output.dtype.startswith("seq(map(")]
        if classes is not None and maps and not floats:
            hint = 'convert the model with options={"zipmap": False}, which gives a matrix'
            raise InvalidInput(
                f"{self.name} returns its probabilities as a list of maps, {maps[0].name}", hint
            )
        if classes is not None:
            for name in ("probabilities", "logits"):
                if name in named and named[name] in floats:
                    return named[name]
            floats += [
                output
                for output in self.outputs
                if "int" in output.dtype and "(" not in output.dtype
            ]
        if not floats:
            returned = ", ".join(map(str, self.outputs)) or "nothing"
            raise InvalidInput(
                f"{self.name} returns {returned}: none of it holds predictions", _CONTRACT
            )
        return floats[0]

    def _run(self, inputs: Mapping[str, Array], output: Tensor, until: float) -> Array:
        feed = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        rows, limit = len(next(iter(feed.values()))), _seconds()
        limit = min(limit, max(0.0, until - time.monotonic()))
        # In a thread, so that this one hears Ctrl-C and the clock: a graph may hold a loop without
        # end.
        with ThreadPoolExecutor(1) as pool:
            options = _runtime().RunOptions()
            running = pool.submit(self._call, [output.name], feed, options)
            try:
                return running.result(limit)[0]
            except TimeoutError:
                if time.monotonic() >= until:
                    raise Failed(
                        "there was no answer in time", "send fewer items at once"
                    ) from None
                raise Failed(
                    f"{self.name} did not end within {limit:g} s on {rows} rows and was ended",
                    f"to allow more: export {_SECONDS}={2 * limit:g}",
                ) from None
            except PodiumError:
                raise
            except (
                Exception
            ) as error:  # onnxruntime raises classes of its own without a common base
                raise Failed(
                    f"{self.name} failed on {rows} rows: {_first_line(error)}", _CONTRACT
                ) from error
            finally:
                options.terminate = True

    def _call(self, names: list[str], inputs: Mapping[str, Array], options: Any) -> list[Array]:
        """Run the graph; one of fixed_rows as often as it takes, the last time with its last row
        repeated."""
        count, fixed = len(next(iter(inputs.values()))), self.fixed_rows
        if fixed is None or count == fixed:
            return list(map(np.asarray, self._session.run(names, inputs, options)))
        if not count:  # any row tells the axes and types of no rows
            draw = np.random.default_rng(0)
            inputs = {tensor.name: _drawn(draw, tensor, 1) for tensor in self.inputs}
        runs = []
        for at in range(0, max(1, count), fixed):
            taken = np.minimum(np.arange(at, at + fixed), max(1, count) - 1)
            feed = {name: array[taken] for name, array in inputs.items()}
            runs.append(list(map(np.asarray, self._session.run(names, feed, options))))
        for name, array in zip(names, runs[0], strict=True):
            if array.shape[:1] != (fixed,):
                raise InvalidInput(
                    f"{self.name} takes {fixed} rows at a time and returns {name} of"
                    f" {list(array.shape)} for them",
                    _CONTRACT,
                )
        return [np.concatenate(arrays)[:count] for arrays in zip(*runs, strict=True)]

    def _convert(
        self, result: Array, output: Tensor, classes: int | None, at: int, rows: int
    ) -> Array:
        if len(result.shape) not in (1, 2) or len(result) != rows:
            raise InvalidInput(
                f"{self.name} returns {list(result.shape)} for {rows} rows", _CONTRACT
            )
        if classes is None:
            values = floats(result)
            self._check_finite(values, output, at)
            return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if output.dtype not in _FLOATS:
            return self._classes(result.reshape(rows, math.prod(result.shape[1:])), classes, at)
        if result.ndim != 2 or result.shape[1] < 2:
            raise InvalidInput(
                f"{self.name} returns {list(result.shape)} for {rows} rows", _CONTRACT
            )
        if result.shape[1] != classes:
            raise InvalidInput(
                f"{self.name} has {result.shape[1]} classes, but the data has {classes}",
                "was it trained on another dataset?",
            )
        self._check_finite(result, output, at)
        if output.name == "probabilities":
            return self._probabilities(result, at)
        if output.name != "logits" and self._gives_shares(output, result):
            return floats(result)
        return _softmax(result)

    def _gives_shares(self, output: Tensor, result: Array) -> bool:
        """Return whether an output of any name is a softmax, which Keras calls dense_1.

        It is decided once, by rows that no request has a part in: one item alone could be judged
        otherwise than among others. A model that takes none of those is judged by each batch.
        """
        if output.name not in self._shares:
            self._shares[output.name] = self._probe(output, result.shape[1])
        is_softmax = self._shares[output.name]
        return _are_shares(result) if is_softmax is None else is_softmax

    def _probe(self, output: Tensor, width: int) -> bool | None:
        draw, rows = np.random.default_rng(0), 2
        probe = {tensor.name: _drawn(draw, tensor, rows) for tensor in self.inputs}
        rows = min(rows, _batch_rows(list(probe.values())))  # a larger one may be too large
        probe = {name: array[:rows] for name, array in probe.items()}
        try:
            said = self._run(probe, output, math.inf)
        except Failed:
            return None
        fits = said.shape == (rows, width) and np.isfinite(said).all()
        return _are_shares(said) if fits else None

    def _check_finite(self, values: Array, output: Tensor, at: int) -> None:
        bad = np.flatnonzero(~np.isfinite(values).all(tuple(range(1, values.ndim))))
        if len(bad):
            raise Failed(
                f"{self.name} returns {output.name} that are not finite, first for row {at + int(bad[0])}"
            )

    def _classes(self, result: Array, classes: int, at: int) -> Array:
        wrong = np.flatnonzero((result[:, 0] < 0) | (result[:, 0] >= classes))
        if len(wrong) or result.shape[1] != 1:
            row = int(wrong[0]) if len(wrong) else 0
            example = f"{result[row].tolist()} for row {at + row}"
            raise InvalidInput(
                f"{self.name} returns class {example}, but the data has classes 0 to {classes - 1}"
            )
        return result[:, 0].astype(np.int64)

    def _probabilities(self, result: Array, at: int) -> Array:
        sums = result.sum(1, dtype=np.float64)
        wrong = np.flatnonzero((np.abs(sums - 1) > 1e-3) | (result < -1e-6).any(1))
        if len(wrong):
            row = int(wrong[0])
            values = ", ".join(f"{value:.4g}" for value in result[row, :5])
            raise InvalidInput(
                f"{self.name} returns probabilities that are none, first for row {at + row}: {values}",
                "call the output logits if they are scores before the softmax",
            )
        return floats(np.clip(result, 0, 1))


def _batch_rows(arrays: Sequence[Array]) -> int:
    """Return how many rows of some inputs are run at once."""
    size = sum(array[:1].nbytes for array in arrays)
    return max(1, min(_LARGEST_BATCH, _BATCH_BYTES // max(1, size)))


def _are_shares(rows: Array) -> bool:
    """Return whether each row is of numbers from 0 that sum to 1, as far as their dtype tells:
    among logits, one row in a million is."""
    close = 1e-3 if rows.dtype == np.float16 else 1e-5
    sums = rows.sum(1, dtype=np.float64)
    return bool((rows >= 0).all() and (np.abs(sums - 1) <= close).all())


def _drawn(draw: np.random.Generator, tensor: Tensor, rows: int) -> Array:
    """Return rows of an input, from 0 to 1, with axes of 1 where any size will do."""
    shape = (rows, *(size or 1 for size in tensor.shape[1:]))
    if tensor.dtype == "object":
        return np.full(shape, "", object)
    values = draw.random(shape, np.float32)
    return (
        values.astype(tensor.dtype)
        if tensor.dtype in _FLOATS
        else values.round().astype(tensor.dtype)
    )


def _softmax(logits: Array) -> Array:
    """Return the probabilities of each row ``[n, classes]``, float64 if the logits are, else
    float32."""
    powers = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).astype(floats(logits[:0]).dtype)


def _tensor(value: Any) -> Tensor:
    shape = tuple(size if isinstance(size, int) else None for size in value.shape or ())
    return Tensor(name=value.name, dtype=_DTYPES.get(value.type, value.type), shape=shape)


def _fixed_rows(tensor: Tensor) -> int | None:
    """Return the size of a fixed first axis; None where it may not count items: of [5, n, 3] the
    second one does, as recurrent networks of PyTorch have it."""
    rows = tensor.shape[0] if tensor.shape else None
    return None if rows != 1 and tensor.shape[1:2] == (None,) else rows


def _hint(wanted: Tensor, array: Array | None) -> str:
    if (
        array is not None
        and wanted.dtype == str(array.dtype)
        and wanted.shape[:1] not in ((), (None,))
    ):
        return "export the model with the items along the first axis, free or of one size for all inputs"
    return _CONTRACT


def _renamed(name: str, given: str) -> str:
    """Say how an input gets one name in a model and in what is given to it, such as a dataset."""
    return (
        f"give it as {name}, or name the model's input {given} where it is written: "
        f'torch.onnx.export(…, input_names=["{given}"]), keras.Input(…, name="{given}"), '
        f'initial_types=[("{given}", …)] of skl2onnx and onnxmltools'
    )


def _shape(array: Array) -> str:
    return f"[{', '.join(['n', *map(str, array.shape[1:])])}]"


def _runtime() -> Any:
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # read at import; else usage events are sent to the vendor
    import onnxruntime

    return onnxruntime


def _seconds() -> float:
    text = os.environ.get(_SECONDS) or "600"
    if not text.replace(".", "", 1).isdecimal() or float(text) == 0:
        raise InvalidInput(
            f"{_SECONDS} is not a number of seconds: {text!r}", f"export {_SECONDS}=600"
        )
    return float(text)


def _open(model: bytes | Path, name: str, threads: int) -> Any:
    onnxruntime = _runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = (
        threads  # by default onnxruntime pins threads to cores it may not use
    )
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, not printed as well
    options.add_session_config_entry(
        "session.load_model_format", "ONNX"
    )  # read_model checked only this format
    content = read_model(model, name)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own without a common base
        raise Damaged(
            f"{name} is not an ONNX model that onnxruntime can run: {_first_line(error)}", _CONTRACT
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
