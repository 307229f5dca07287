"""Check of a ``model.onnx`` before anything runs it: that it holds all its weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podium.errors import Damaged, InvalidInput

LARGEST = 2**31
"""Bytes: protobuf, which ONNX is written in, has no larger messages."""


def require_fits(size: int, name: str) -> None:
    """Refuse a model of more bytes than an ONNX file holds.

    Raises:
        InvalidInput: It is one.
    """
    if size > LARGEST:
        raise InvalidInput(
            f"{name} takes {size:,} bytes, and an ONNX model holds at most {LARGEST:,}",
            'weights of 16 bits, or a predict command: kit.save_model(directory, predict=["python", "predict.py"])',
        )


def read_model(model: bytes | Path, name: str) -> bytes:
    """Return the bytes of a model that keeps its weights in itself.

    ONNX may name files beside the model, or addresses in memory, that hold tensors. No checksum
    covers those, and for bytes without a directory onnxruntime looks for them in the working
    directory.

    Raises:
        Damaged: It is not an ONNX model.
        InvalidInput: A tensor of it is elsewhere, or it is larger than an ONNX model can be.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    require_fits(model.stat().st_size if isinstance(model, Path) else len(model), name)
    content = model.read_bytes() if isinstance(model, Path) else model
    try:
        parsed = ModelProto.FromString(content)
    except DecodeError as error:
        raise Damaged(f"{name} is not an ONNX model: {error}") from None
    for tensor in _tensors(parsed):
        if tensor.data_location != tensor.DEFAULT or tensor.external_data:
            where = next(
                (entry.value for entry in tensor.external_data if entry.key == "location"),
                "another place",
            )
            raise InvalidInput(
                f"{name} keeps its tensor {tensor.name!r} in {where[:200]!r}, which no checksum covers",
                "save the model in one file: onnx.save(onnx.load(FILE), NEW_FILE)",
            )
    return content


def _tensors(message: Any) -> Iterator[Any]:
    """Yield each TensorProto in a message: initializers, sparse ones, attributes, subgraphs and
    functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else (value,):
            if field.message_type.name == "TensorProto":
                yield part
            else:
                yield from _tensors(part)
