"""Which rank this process is and where the ranks meet, as its launcher says in the environment.

torchrun and the training operator set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Kubeflow
Trainer v2 sets options of torchrun alone: PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE,
PET_MASTER_ADDR and PET_MASTER_PORT (trainer v2.3.0: pkg/runtime/framework/plugins/torch/torch.go).
A process that it starts without torchrun is the only one of its node.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from podium.errors import InvalidInput, require

ONE_PROCESS = ("", "1", "auto", "cpu")
"""Values of PET_NPROC_PER_NODE that a node of one process fits; auto and cpu leave the number to
torchrun."""

_HINT = "the PyTorch operator, Kubeflow Trainer and torchrun set them"


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among all processes of a training."""

    rank: int = 0
    """Rank 0 prints and saves."""

    size: int = 1
    """Number of ranks."""

    local: int = 0
    """Rank on this machine."""

    address: str = ""
    """Host of rank 0; empty if there is one rank only."""

    port: int = 0
    """Port of rank 0 that the others connect to."""

    @property
    def url(self) -> str:
        """``tcp://address:port``, as ``torch.distributed.init_process_group(init_method=…)`` takes
        it."""
        return f"tcp://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"


def read(environ: Mapping[str, str]) -> Ranks:
    """Read the environment of a process; one that names no ranks has a single one.

    Raises:
        InvalidInput: A number is missing or not a number, or several processes of a node need
            torchrun.
    """
    is_node = bool(environ.get("PET_NODE_RANK")) and not environ.get(
        "RANK"
    )  # Kubeflow Trainer: a node is a rank
    rank, size, master = (
        ("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_")
        if is_node
        else ("RANK", "WORLD_SIZE", "MASTER_")
    )
    processes = environ.get("PET_NPROC_PER_NODE", "")
    if is_node and processes not in ONE_PROCESS:
        raise InvalidInput(
            f"PET_NPROC_PER_NODE={processes} asks for that many processes on each node, but this process was started "
            "without torchrun",
            "start it with torchrun (`torchrun -m podium.trainer` in place of `python -m podium.trainer`), or set the "
            "TrainJob's spec.trainer.numProcPerNode to 1",
        )
    own, count = _number(environ, rank, 0), _number(environ, size, 1)
    local = 0 if is_node else _number(environ, "LOCAL_RANK", 0)
    require(0 <= own < count, f"0 <= {rank} < {size}", _HINT, **{rank: own, size: count})
    if count == 1:
        return Ranks(local=local)
    for name in (f"{master}ADDR", f"{master}PORT"):
        if not environ.get(name):
            raise InvalidInput(f"{size} is {count}, but {name} is not set", _HINT)
    return Ranks(
        rank=own,
        size=count,
        local=local,
        address=environ[f"{master}ADDR"],
        port=_number(environ, f"{master}PORT", 0),
    )


def is_first(environ: Mapping[str, str]) -> bool:
    """Return whether this is rank 0, the one that prints and saves."""
    return (environ.get("RANK") or environ.get("PET_NODE_RANK") or "0") == "0"


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    given = environ.get(name) or str(default)
    try:
        return int(given)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, but is {given!r}", _HINT) from None
