"""Which rank this process is and where the ranks meet, as its launcher says in the environment.

torchrun and the training operator set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Kubeflow
Trainer v2 sets options of torchrun alone: PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE,
PET_MASTER_ADDR and PET_MASTER_PORT (trainer v2.3.0: pkg/runtime/framework/plugins/torch/torch.go).
A process that it starts without torchrun is the only one of its node.

mpirun and srun set names of their own, and no place to meet: Open MPI 4 and 5 OMPI_COMM_WORLD_*,
MPICH and Intel MPI PMI_* (their launcher, Hydra), Slurm's srun SLURM_PROCID and SLURM_STEP_*. On
one machine the ranks meet at its loopback address; MASTER_ADDR and MASTER_PORT say otherwise. On
several, rank 0 of Open MPI tells the others its address.
"""

import ctypes
import os
import socket
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from podium.errors import InvalidInput, require

_ONE_PROCESS = ("", "1", "auto", "cpu")
"""Values of PET_NPROC_PER_NODE that a node of one process fits; auto and cpu leave the number to
torchrun."""

_PORTS = 15_000
"""Number of ports from 15000 on, below those that Linux gives to connections (32768 and up)."""

_HINT = "the PyTorch operator, Kubeflow Trainer and torchrun set them"

_OPEN_MPI = "libmpi.so.40"
"""Of Open MPI 4 and 5."""

_MPIRUN = "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 …, where HOST runs rank 0"


@dataclass(frozen=True, kw_only=True)
class _Launcher:
    """Variables of a launcher that is no torchrun."""

    rank: str
    size: str
    local: str
    here: str
    """Number of ranks on this machine."""

    job: tuple[str, ...] = ()
    """Names of this start, the same in all ranks."""


_LAUNCHERS = (
    _Launcher(
        rank="OMPI_COMM_WORLD_RANK",
        size="OMPI_COMM_WORLD_SIZE",
        local="OMPI_COMM_WORLD_LOCAL_RANK",
        here="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher(rank="PMI_RANK", size="PMI_SIZE", local="MPI_LOCALRANKID", here="MPI_LOCALNRANKS"),
    _Launcher(
        rank="SLURM_PROCID",
        # Of a step alone: a script of sbatch has the others, too, and is one process.
        size="SLURM_STEP_NUM_TASKS",
        local="SLURM_LOCALID",
        here="SLURM_STEP_TASKS_PER_NODE",
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among all processes of a training."""

    rank: int = 0
    """Rank 0 prints and saves."""

    size: int = 1

    local: int = 0

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
    if launcher := _launcher_of(environ):
        return _of_launcher(launcher, environ)
    is_node = bool(environ.get("PET_NODE_RANK")) and not environ.get(
        "RANK"
    )  # Kubeflow Trainer: a node is a rank
    rank, size, master = (
        ("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_")
        if is_node
        else ("RANK", "WORLD_SIZE", "MASTER_")
    )
    processes = environ.get("PET_NPROC_PER_NODE", "")
    if is_node and processes not in _ONE_PROCESS:
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
    if launcher := _launcher_of(environ):
        return environ[launcher.rank] == "0"
    return (environ.get("RANK") or environ.get("PET_NODE_RANK") or "0") == "0"


def _launcher_of(environ: Mapping[str, str]) -> _Launcher | None:
    """Return the launcher that started this process, unless a torchrun or an operator did, whose
    names count first."""
    if environ.get("RANK") or environ.get("PET_NODE_RANK"):
        return None
    matching = (
        launcher
        for launcher in _LAUNCHERS
        if environ.get(launcher.rank) and environ.get(launcher.size)
    )
    return next(matching, None)


def _of_launcher(launcher: _Launcher, environ: Mapping[str, str]) -> Ranks:
    """Read the variables of a launcher.

    Raises:
        InvalidInput: One is not a number, or nothing says where ranks on several machines meet.
    """
    own, count = _number(environ, launcher.rank, 0), _number(environ, launcher.size, 1)
    names = {launcher.rank: own, launcher.size: count}
    require(
        0 <= own < count,
        f"0 <= {launcher.rank} < {launcher.size}",
        "the launcher sets them",
        **names,
    )
    local = _number(environ, launcher.local, own)
    if count == 1:
        return Ranks(local=local)
    here = environ.get(launcher.here, str(count)).partition("(")[0]  # Slurm: 2(x4)
    address = environ.get("MASTER_ADDR") or ("127.0.0.1" if here == str(count) else "")
    if not address and launcher == _LAUNCHERS[0] and environ is os.environ:
        address = _address_of_first(own)
    if not address:
        raise InvalidInput(
            f"{launcher.size} is {count}, {here} of them here, but MASTER_ADDR is not set",
            _MPIRUN,
        )
    started = "-".join(environ.get(name, "") for name in launcher.job)
    port = _number(environ, "MASTER_PORT", _PORTS + zlib.crc32(started.encode()) % _PORTS)
    return Ranks(rank=own, size=count, local=local, address=address, port=port)


@cache
def _address_of_first(rank: int) -> str:
    """Return the address of rank 0, as Open MPI tells it to all ranks where machines have no names,
    as the pods of an MPIJob; each rank has to ask.

    Empty if the library is not there, or rank 0 knows no address but loopback.
    """
    try:
        library = ctypes.CDLL(_OPEN_MPI, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return ""
    own = ""
    with suppress(OSError):  # the others wait for what it says, also where its name has no address
        own = socket.gethostbyname(socket.gethostname()) if rank == 0 else ""
    told = ctypes.create_string_buffer(b"" if own.startswith("127.") else own.encode(), 16)
    char, world = (
        ctypes.byref(ctypes.c_char.in_dll(library, f"ompi_mpi_{name}"))
        for name in ("char", "comm_world")
    )
    library.MPI_Init(None, None)
    library.MPI_Bcast(told, len(told), char, 0, world)
    library.MPI_Finalize()
    return told.value.decode()


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, but is {text!r}", _HINT) from None
