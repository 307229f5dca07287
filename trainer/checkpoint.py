"""Nothing is lost: a checkpoint after every epoch, found again by the same command.

Random numbers need no saving: order of the images and dropout of every step follow from (seed, epoch, step, rank).
"""

import hashlib
import io
import json
import sys
from typing import Any

import torch

from podium.errors import InvalidInput, NotFound
from podium.storage import Storage, connect
from podium.trainer.config import TrainConfig

KEY = "checkpoint.pt"
LEGACY = "inherit.pt"  # in the directory of --inherit


def fingerprint(config: TrainConfig, digest: str) -> str:
    """Return what two trainings must share to end with the same weights."""
    text = json.dumps({**config.decisive, "digest": digest}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def save(storage: Storage, state: dict[str, Any]) -> None:
    """Write a checkpoint; it appears whole or not at all."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    storage.put(KEY, buffer.getvalue())


def load(storage: Storage, config: TrainConfig, digest: str) -> dict[str, Any] | None:
    """Return the state to go on from, or None to start at the beginning.

    Raises:
        InvalidInput: The checkpoint belongs to another training.
    """
    try:
        blob = storage.get(KEY)
    except NotFound:
        return None
    try:
        state = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
        theirs, told = state["fingerprint"], state["config"]
    except Exception as error:  # torch.load raises anything on damaged bytes
        print(f"notice: {storage.join(KEY)} cannot be read ({type(error).__name__}): starting anew", file=sys.stderr)
        return None
    if theirs != fingerprint(config, digest):
        refuse(storage, told, config)
    return state


def bequeath(config: TrainConfig, weights: dict[str, Any], optimizer: dict[str, Any]) -> None:
    """Leave weights and the optimizer's memory of each to whoever inherits from here."""
    buffer = io.BytesIO()
    torch.save({"weights": weights, "optimizer": config.optimizer, "state": optimizer["state"]}, buffer)
    connect(config.inherit).put(LEGACY, buffer.getvalue())


def legacy(config: TrainConfig) -> dict[str, Any] | None:
    """Return what there is to inherit, or None.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        blob = connect(config.inherit).get(LEGACY) if config.inherit else b""
        if not blob:
            return None
        found: dict[str, Any] = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    except NotFound:
        return None
    except Exception as error:  # torch.load raises anything on damaged bytes
        raise InvalidInput(f"--inherit {config.inherit}: {LEGACY} cannot be read ({error})", "remove it") from None
    return found


def refuse(storage: Storage, told: dict[str, Any], config: TrainConfig) -> None:
    """Raise InvalidInput that names what differs between a stored training and this one."""
    pairs = {name: (told.get(name), value) for name, value in config.decisive.items() if told.get(name) != value}
    changes = ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in pairs.items()) or "the dataset's digest"
    is_ours = all(name in told for name in pairs)  # else no flag can say what was never told
    hint = "choose another --output, delete that one" + (", or repeat its flags to resume it" if is_ours else "")
    raise InvalidInput(f"--output {storage.url} holds another training: {changes}", hint)
