"""Checkpoints: one after every epoch, resumed by the same command; and the weights that a later
training inherits.

Random numbers are not saved: the order of the images and the dropout of a step follow from (seed,
epoch, step, rank).
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from podium.errors import InvalidInput, NotFound
from podium.storage import Storage, connect
from podium.trainer.config import TrainConfig

KEY = "checkpoint.pt"
_INHERIT_KEY = "inherit.pt"  # in the directory of --inherit


def load(storage: Storage, config: TrainConfig, digest: str) -> dict[str, Any] | None:
    """Return the state to resume from, or None to start at the beginning.

    Raises:
        InvalidInput: The checkpoint belongs to another training.
    """
    try:
        blob = storage.get(KEY)
    except NotFound:
        return None
    try:
        state = from_bytes(blob)
        theirs, hyperparameters = state["fingerprint"], dict(state["config"])
    except Exception as error:  # torch.load raises anything on damaged bytes
        print(
            f"notice: {storage.join(KEY)} cannot be read ({type(error).__name__}): starting anew",
            file=sys.stderr,
        )
        return None
    if theirs != config.fingerprint(digest):
        config.refuse(hyperparameters, storage.url)
    return state


def save_for_child(config: TrainConfig, weights: dict[str, Any], optimizer_state: Any) -> None:
    """Leave weights and optimizer state under --inherit, for the training that inherits from this
    one."""
    content = {"weights": weights, "optimizer": config.optimizer, "state": optimizer_state}
    connect(config.inherit).put(_INHERIT_KEY, to_bytes(content))


def inherited(config: TrainConfig) -> str:
    """Return the file under --inherit that a training begins with, if there is one; empty without
    --inherit."""
    return f"{config.inherit.rstrip('/')}/{_INHERIT_KEY}" if config.inherit else ""


def load_parent(config: TrainConfig) -> dict[str, Any] | None:
    """Return what another training left under --inherit, or None.

    Raises:
        InvalidInput: It cannot be read.
    """
    if not config.inherit:
        return None
    try:
        return from_bytes(connect(config.inherit).get(_INHERIT_KEY))
    except NotFound:
        return None
    except InvalidInput:
        raise
    except Exception as error:  # torch.load raises anything on damaged bytes
        reason = type(error).__name__
        raise InvalidInput(
            f"--inherit {config.inherit}: {_INHERIT_KEY} cannot be read ({reason})", "remove it"
        ) from None


@contextmanager
def fitting(message: str, hint: str) -> Iterator[None]:
    """Turn errors about missing names, wrong types and wrong shapes in a loaded file into
    InvalidInput."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        raise InvalidInput(message, hint) from None


def to_bytes(content: dict[str, Any]) -> bytes:
    """Return numbers, texts, tensors, and lists and dicts of them as bytes for `from_bytes`."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def from_bytes(blob: bytes) -> dict[str, Any]:
    """Return the content of `to_bytes`; weights_only, because a pickle from elsewhere could run any
    code."""
    content: dict[str, Any] = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    return content
