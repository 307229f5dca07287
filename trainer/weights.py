"""Weights from a file or URI to start from, as torchvision and this trainer store them."""

import io
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from podium.errors import InvalidInput, NotFound, PodiumError
from podium.storage import connect
from podium.trainer.seen import split

_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
"""Parts of GoogLeNet and Inception that only serve their own training and are not built here."""

_OLD_DENSE = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)")
"""Names in the files of DenseNets that torchvision publishes; its networks have no second dot."""


def read(uri: str) -> dict[str, Tensor]:
    """Read a state_dict: safetensors by the name's ending, else what torch.save wrote. No code in
    it is run.

    Args:
        uri: A file, or a URI of a storage.

    Raises:
        InvalidInput: There is no such file, or it holds something else.
    """
    folder, name = split(uri)
    hint = "a .safetensors file, or a state_dict that torch.save wrote"
    try:
        blob = connect(folder).get(name)
    except NotFound:
        raise InvalidInput(f"there is no file --weights {uri}", hint) from None
    except PodiumError as error:
        raise InvalidInput(f"--weights {uri}: {error.message}", error.hint or hint) from error
    try:
        state = _decode(blob, name)
        return {key.removeprefix("module."): value.detach() for key, value in state.items() if key}
    except Exception as error:  # torch and safetensors raise anything on damaged bytes
        raise InvalidInput(
            f"--weights {uri} does not hold weights ({type(error).__name__})", hint
        ) from None


def _decode(blob: bytes, name: str) -> Mapping[str, Tensor]:
    if name.endswith(".safetensors"):
        from safetensors.torch import load

        return load(blob)
    content = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    for key in ("state_dict", "model"):
        content = content.get(key, content) if isinstance(content.get(key), dict) else content
    return dict(content)


def fill(model: nn.Module, state: Mapping[str, Tensor], uri: str) -> bool:
    """Copy weights into a network.

    They may be those of the whole network or of the torchvision network inside it. A last layer for
    another number of outputs is left as it is, with its new weights.

    Returns:
        Whether the last layer was filled, too.

    Raises:
        InvalidInput: Weights are missing, have other shapes, or belong to another network.
    """
    own, state = model.state_dict(), {_OLD_DENSE.sub(r"\1\2", key): state[key] for key in state}
    names = [name for name, _ in model.named_modules()]
    starts = [f"{name}." if name else "" for name in names]
    prefix = max(starts, key=lambda start: sum(start + key in own for key in state))
    weights = {
        prefix + key: value for key, value in state.items() if not key.startswith(_AUXILIARY)
    }
    layers = [
        name for name, each in model.named_modules() if isinstance(each, nn.Linear | nn.Conv2d)
    ]
    other_head = [
        key
        for key, value in weights.items()
        if key.startswith(f"{layers[-1]}.")
        and key in own
        and value.shape[1:] == own[key].shape[1:]
        and len(value) != len(own[key])
    ]
    for key in other_head:
        del weights[key]
    problems = [
        f"{key.removeprefix(prefix)} is missing"
        for key in own
        if key not in weights and key not in other_head and not key.endswith("num_batches_tracked")
    ]
    problems += [
        f"{key.removeprefix(prefix)} belongs to another network"
        for key in weights
        if key not in own
    ]
    problems += [
        f"{key.removeprefix(prefix)} has the shape {list(value.shape)}, not {list(own[key].shape)}"
        for key, value in weights.items()
        if key in own and value.shape != own[key].shape
    ]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise InvalidInput(
            f"--weights {uri} do not fit this network: {problems[0]}{more}",
            "name the network they are of with --model",
        )
    model.load_state_dict({**own, **weights})
    return not other_head
