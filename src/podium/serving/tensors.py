"""Tensors of the Open Inference Protocol v2, as JSON and as bytes behind it.

Source: https://github.com/kserve/open-inference-protocol (required_api) and Triton's extension for
binary data.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import mul
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from podium.errors import InvalidInput, suggestion
from podium.files.documents import load_json
from podium.scoring.families import Array

_DATATYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
    "BYTES": "object",
}  # fmt: skip
"""numpy's name by the protocol's; BYTES are texts."""

NAMES = {dtype: name for name, dtype in _DATATYPES.items()}

_TYPES = {name: np.dtype(dtype) for name, dtype in _DATATYPES.items()}
_KINDS: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float, bool},
    "O": {str},
}
"""Types of JSON elements that each kind of array accepts."""

_NAMES = {dtype: name for name, dtype in _TYPES.items()}  # a dtype's name takes microseconds
_LITTLE = {dtype: dtype.newbyteorder("<") for dtype in _NAMES}

MOST_JSON = 8 << 20
"""Bytes of JSON: parsing takes ten times as much memory, and no other thread runs meanwhile."""

MOST_NAME = 1000
"""Letters of a name or an id."""

_MOST_ROWS = 1 << 20
"""Rows of a request."""

_MOST_AXES = 32
"""Axes of a tensor."""

_MOST_BYTES = 1 << 40
"""Bytes of a tensor, far beyond what a body can hold: sizes are multiplied up to there."""


@dataclass(frozen=True, kw_only=True)
class InferRequest:
    """Inference request of a client."""

    id: str
    """The client's; empty if it gave none."""

    inputs: dict[str, Array]
    """By name, each ``[n, ...]``."""

    outputs: dict[str, bool] = field(default_factory=dict)
    """Outputs that are asked for, and whether as bytes; empty asks for all."""

    binary: bool = False
    """Whether outputs that nothing is said of come as bytes."""

    @classmethod
    def read(cls, body: bytes, header: bytes | None) -> Self:
        """Read an inference request.

        Args:
            body: JSON, perhaps with bytes behind it.
            header: ``Inference-Header-Content-Length``, the length of the JSON; None if all of it
                is JSON.

        Raises:
            InvalidInput: It is not one, or a tensor does not fit its shape and datatype.
        """
        size = len(body) if header is None else _size(header, len(body))
        if size > MOST_JSON:
            raise InvalidInput(
                f"a request has at most {MOST_JSON} bytes of JSON, not {size}",
                "send binary tensors",
            )
        document = _load(body[:size])
        if not isinstance(document, dict):
            raise InvalidInput(f"the request is a JSON object, not {type(document).__name__}")
        tensors = document.get("inputs")
        if not isinstance(tensors, list) or not tensors:
            raise InvalidInput(f"inputs is a list of tensors, but got {_brief(tensors)}")
        inputs, rest = {}, memoryview(body)[size:]
        for number, tensor in enumerate(tensors):
            name, array, used = _tensor(tensor, f"inputs[{number}]", rest)
            if name in inputs:
                raise InvalidInput(f"input {name!r} is given twice")
            inputs[name], rest = array, rest[used:]
        if rest:
            raise InvalidInput(
                f"{len(rest)} bytes are left after the last tensor",
                "check binary_data_size of each",
            )
        asked, called = document.get("outputs") or [], document.get("id") or ""
        if not isinstance(asked, list):
            raise InvalidInput(f"outputs is a list of objects with a name, but got {_brief(asked)}")
        outputs = {}
        for number, wanted in enumerate(asked):
            if not isinstance(wanted, dict) or not _is_name(wanted.get("name")):
                raise InvalidInput(f"outputs[{number}] needs a name, but got {_brief(wanted)}")
            asked_for = f"binary_data of output {wanted['name']!r}"
            outputs[wanted["name"]] = _switch(wanted, "binary_data", asked_for)
        if type(called) is not str or len(called) > MOST_NAME:
            raise InvalidInput(
                f"id is a string of at most {MOST_NAME} letters, but got {_brief(called)}"
            )
        binary = _switch(document, "binary_data_output", "binary_data_output")
        return cls(id=called, inputs=inputs, outputs=outputs, binary=binary)

    def check_outputs(self, outputs: Mapping[str, Array]) -> None:
        """Refuse a request for an output that the model does not have.

        Raises:
            InvalidInput: It does not.
        """
        for name in self.outputs:
            if name not in outputs:
                raise InvalidInput(f"the model has no output {name!r}", suggestion(name, outputs))

    def answer(
        self, head: Mapping[str, Any], outputs: Mapping[str, Array]
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Write the answer; return the body and its headers.

        Args:
            head: Members beside ``outputs``.
            outputs: What the model returned, by name.

        Raises:
            InvalidInput: An output is asked for that the model does not have, or as JSON where a
                number is not finite.
        """
        self.check_outputs(outputs)
        tensors, pieces = [], list[bytes]()
        for name in self.outputs or outputs:
            array = outputs[name]
            tensor: dict[str, Any] = {
                "name": name,
                "shape": list(array.shape),
                "datatype": _NAMES[array.dtype],
            }
            if self.outputs.get(name, self.binary):
                pieces.append(to_bytes(array))
                tensor["parameters"] = {"binary_data_size": len(pieces[-1])}
            else:
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise InvalidInput(
                        f"output {name!r} is not finite, which JSON cannot express",
                        'ask for bytes: {"inputs": […], "parameters": {"binary_data_output": true}}',
                    )
                flat = np.ascontiguousarray(array).reshape(-1)
                tensor["data"] = flat.tolist() if array.dtype.kind == "O" else flat
            tensors.append(tensor)
        text = orjson.dumps({**head, "outputs": tensors}, option=orjson.OPT_SERIALIZE_NUMPY)
        if not pieces:
            return text, [(b"content-type", b"application/json")]
        return b"".join([text, *pieces]), [
            (b"content-type", b"application/octet-stream"),
            (b"inference-header-content-length", b"%d" % len(text)),
        ]


def _load(text: bytes) -> Any:
    """Parse JSON; the slower parser accepts NaN too, and reports errors as a sentence."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return load_json(text, "the request", limit=MOST_JSON)


def _size(header: bytes, most: int) -> int:
    if not header.isdigit() or len(header) > 20 or int(header) > most:
        shown = header[:40].decode("latin-1")
        raise InvalidInput(
            f"Inference-Header-Content-Length is {shown!r}, but the body has {most} bytes"
        )
    return int(header)


def _is_name(value: Any) -> bool:
    return type(value) is str and len(value) <= MOST_NAME


def _brief(value: Any) -> str:
    """Return the beginning of an unknown value; repr would follow it to any depth."""
    return f"{reprlib.repr(value):.80}"


def _parameters(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = holder.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"parameters is a JSON object, but got {_brief(parameters)}")
    return parameters


def _switch(holder: Mapping[str, Any], name: str, called: str) -> bool:
    """Return a parameter that is true or false; a text such as "false" counts as neither."""
    value = _parameters(holder).get(name)
    if value is not None and type(value) is not bool:
        raise InvalidInput(f"{called} is true or false, but got {_brief(value)}")
    return bool(value)


def _tensor(tensor: Any, where: str, binary: memoryview) -> tuple[str, Array, int]:
    """Return name, array, and how many of the bytes behind the JSON it has."""
    if not isinstance(tensor, dict) or not _is_name(tensor.get("name")):
        raise InvalidInput(f"{where} is a tensor with a name, but got {_brief(tensor)}")
    name = tensor["name"]
    form = TensorForm.read(name, tensor.get("datatype"), tensor.get("shape"))
    size = _parameters(tensor).get("binary_data_size")
    if size is None:
        return name, form.from_json(tensor.get("data")), 0
    if type(size) is not int or not 0 <= size <= len(binary):
        raise InvalidInput(
            f"binary_data_size of input {name!r} is {_brief(size)}, but {len(binary)} bytes are there"
        )
    return name, form.from_bytes(binary[:size]), size


@dataclass(slots=True)
class TensorForm:
    """Datatype and shape of an input, which its elements have to fit."""

    name: str
    dtype: "np.dtype[Any]"
    shape: list[int]
    count: int

    @classmethod
    def read(cls, name: str, datatype: Any, shape: Any) -> Self:
        """Read what a client says of an input; nothing is multiplied that no body could hold.

        Raises:
            InvalidInput: There is no such datatype or shape.
        """
        if type(datatype) is not str or datatype not in _DATATYPES:
            hint = suggestion(str(datatype)[:20], _DATATYPES) if type(datatype) is str else None
            raise InvalidInput(f"datatype of input {name!r} cannot be {_brief(datatype)}", hint)
        dtype = _TYPES[datatype]
        if not isinstance(shape, list) or not 0 < len(shape) <= _MOST_AXES:
            raise InvalidInput(
                f"shape of input {name!r} is a list of sizes, but got {_brief(shape)}"
            )
        whole = dtype.itemsize
        for size in shape:
            if type(size) is not int or size < 0:
                raise InvalidInput(
                    f"shape of input {name!r} is a list of sizes, but got {_brief(shape)}"
                )
            # An axis of 0 must not hide the others: a model may give one back without it.
            whole *= size or 1
            if whole > _MOST_BYTES:
                raise InvalidInput(
                    f"input {name!r} of shape {_brief(shape)} is larger than any request"
                )
        if shape[0] > _MOST_ROWS:
            raise InvalidInput(
                f"input {name!r} has {shape[0]} rows, but a request has at most {_MOST_ROWS}",
                "send them in several requests",
            )
        return cls(name, dtype, shape, math.prod(shape))

    def from_bytes(self, content: bytes | memoryview) -> Array:
        """Return the array that an input's bytes are.

        Args:
            content: The elements, little endian; of BYTES each behind its length in four bytes.

        Raises:
            InvalidInput: They are more or fewer than the shape says, or no UTF-8.
        """
        if self.dtype.kind == "O":
            return self.from_elements(self._texts(memoryview(content)))
        if len(content) != self.count * self.dtype.itemsize:
            raise InvalidInput(
                f"input {self.name!r} of shape {self.shape} and datatype {NAMES[str(self.dtype)]} "
                f"has {self.count * self.dtype.itemsize} bytes, but {len(content)} came"
            )
        flat = np.frombuffer(content, _LITTLE[self.dtype]).astype(self.dtype, copy=False)
        if self.dtype.kind == "b" and flat.view(np.uint8).max(initial=0) > 1:
            raise InvalidInput(f"BOOL of input {self.name!r} are bytes of 0 or 1")
        return flat.reshape(self.shape)

    def _texts(self, view: memoryview) -> list[str]:
        texts, at = list[str](), 0
        while at < len(view) and len(texts) <= self.count:
            start = at + 4
            at = start + int.from_bytes(view[at:start], "little")
            if start > len(view) or at > len(view):
                raise InvalidInput(f"BYTES of input {self.name!r} end within an element")
            texts.append(self.text(view[start:at]))
        return texts

    def text(self, content: bytes | memoryview) -> str:
        """Return an element of BYTES as text.

        Raises:
            InvalidInput: It is no UTF-8.
        """
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"BYTES of input {self.name!r} are not UTF-8: {error.reason}"
            ) from None

    def from_elements(self, flat: Sequence[Any]) -> Array:
        """Return the array that an input's elements are.

        Raises:
            InvalidInput: They are more or fewer than the shape says, or the dtype does not hold
                one.
        """
        if len(flat) != self.count:
            raise InvalidInput(
                f"input {self.name!r} of shape {self.shape} has {self.count} elements, "
                f"but data has {len(flat)}"
            )
        array: NDArray[Any]
        try:
            with np.errstate(all="ignore", over="raise"):
                array = np.array(flat, self.dtype)
        except (OverflowError, ValueError, FloatingPointError):
            raise InvalidInput(
                f"data of input {self.name!r} do not fit {NAMES[str(self.dtype)]}"
            ) from None
        return array.reshape(self.shape)

    def from_json(self, data: Any) -> Array:
        """Return the array that lists of lists are; errors as of from_elements."""
        if not isinstance(data, list):
            raise InvalidInput(f"input {self.name!r} has neither data nor binary_data_size")
        flat, kinds, lists = _flat(data, self.name)
        if lists and len(flat) == self.count > 0:
            ends = {1, *accumulate(reversed(self.shape), mul)}
            if not {self.count // number for number in lists} <= ends:
                raise InvalidInput(
                    f"the lists in data of input {self.name!r} are not of its shape {self.shape}"
                )
        if len(flat) == self.count and not kinds <= _KINDS[self.dtype.kind]:
            raise InvalidInput(
                f"data of input {self.name!r} are no {NAMES[str(self.dtype)]}: {_brief(data)}"
            )
        return self.from_elements(flat)


def _flat(data: list[Any], name: str) -> tuple[list[Any], set[type], list[int]]:
    """Return the elements of lists in lists, their types, and how many lists each level has; no
    array is built of what may be anything."""
    lists = list[int]()
    for _ in range(_MOST_AXES):
        kinds = set(map(type, data))
        if list not in kinds:
            return data, kinds, lists
        if len(kinds) > 1 or len(set(map(len, data))) > 1:
            raise InvalidInput(f"data of input {name!r} are lists of unequal lengths")
        lists.append(len(data))
        data = list(chain.from_iterable(data))
    raise InvalidInput(f"data of input {name!r} are nested more than {_MOST_AXES} deep")


def to_bytes(array: Array) -> bytes:
    """Return an array as TensorForm.from_bytes reads it."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array, _LITTLE[array.dtype]).tobytes()
    texts = [str(text).encode() for text in array.reshape(-1).tolist()]
    return b"".join([len(text).to_bytes(4, "little") + text for text in texts])
