"""The processes of one training: who am I, what do we run on, and sums over all of us.

Ranks come from the environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as the PyTorch operator and torchrun set
them; alone without them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from podium.errors import InvalidInput, PodiumError, require
from podium.trainer.config import TrainConfig

TIMEOUT = timedelta(minutes=30)  # for the others to come, and for each message


class PeerLost(PodiumError):
    """Another process of the training went away; starting again resumes from the checkpoint."""

    exit_code = 144  # 128..255: restartPolicy ExitCode starts such a replica again

    @classmethod
    def because(cls, why: str) -> Self:
        """Return the error with what showed that the other one is gone."""
        hint = "start the job again: it resumes from its last checkpoint"
        return cls(f"another process of the training is gone ({why})", hint)


class Torn(PeerLost):
    """It went away while weights were changed: part of them are those after the step, part may be those before."""


@dataclass(kw_only=True)
class World:
    """One process among all of a training."""

    rank: int = 0
    """This process, 0 prints and saves."""

    size: int = 1
    """All processes."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """What this process computes on."""

    def sum(self, values: Tensor) -> Tensor:
        """Add a tensor over all processes, in place."""
        if self.size > 1:
            with peers():
                dist.all_reduce(values)
        return values

    def all(self, true: bool) -> bool:
        """Return whether something is true in all processes."""
        return int(self.sum(torch.tensor(int(true), device=self.device))) == self.size

    def mean_buffers(self, model: nn.Module) -> None:
        """Replace running statistics, which each process took from its own images, by their mean."""
        for buffer in model.buffers():
            if self.size > 1 and buffer.is_floating_point():
                buffer.copy_(self.sum(buffer.clone()) / self.size)  # not in place: what is half a sum may be saved

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Run a function in rank 0 and return its result, or raise its error, in every process."""
        if self.size == 1:
            return make()
        parcel: list[Any] = [None, None]
        if self.rank == 0:
            try:
                parcel[0] = make()
            except PodiumError as error:
                parcel[1] = error
        with peers():
            dist.broadcast_object_list(parcel, src=0, device=self.device if dist.get_backend() == "nccl" else None)
        if parcel[1] is not None:
            raise parcel[1]
        return parcel[0]

    def share_first(self, tensors: list[Tensor]) -> None:
        """Overwrite tensors with those of rank 0."""
        if self.size > 1:
            with peers():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), src=0)


@contextmanager
def peers() -> Iterator[None]:
    """Turn the failure of a collective operation into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if isinstance(error, dist.DistError) or "gloo" in text.lower() or "NCCL" in text:
            raise PeerLost.because(text.splitlines()[0][:200]) from error
        raise


@contextmanager
def join(config: TrainConfig, environ: Mapping[str, str] = os.environ) -> Iterator[World]:
    """Take this process's place among the others, and leave it at the end.

    Raises:
        InvalidInput: The backend cannot work here, or the environment is incomplete.
        PeerLost: The others could not be reached.
    """
    rank, size, local_rank = check_place(config, environ)
    device = pick_device(config, local_rank)
    if size > 1:
        with peers():
            store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=TIMEOUT))
            # torchrun's store outlives a restart: without a name of its own an attempt meets the dead of the last one.
            attempt = dist.PrefixStore(f"attempt-{environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
            dist.init_process_group(config.backend, store=attempt, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield World(rank=rank, size=size, device=device)
    finally:
        if size > 1:
            dist.destroy_process_group()


def check_place(config: TrainConfig, environ: Mapping[str, str]) -> tuple[int, int, int]:
    """Return rank, world size and rank on this machine.

    Raises:
        InvalidInput: The backend cannot work here, or the environment is incomplete.
    """
    try:
        size, rank, local = (int(environ.get(name) or default) for name, default in
                             (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0)))  # fmt: skip
    except ValueError as error:
        raise InvalidInput(
            f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers: {error}", "the PyTorch operator and torchrun set them"
        ) from None
    require(0 <= rank < size, "0 <= RANK < WORLD_SIZE", "the PyTorch operator and torchrun set both",
            RANK=rank, WORLD_SIZE=size)  # fmt: skip
    if size > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            require(bool(environ.get(name)), f"{name} is set when WORLD_SIZE > 1",
                    "the PyTorch operator and torchrun set it", WORLD_SIZE=size)  # fmt: skip
    if config.backend == "nccl":
        cuda = torch.cuda.is_available() and not config.no_cuda
        require(cuda, "--backend nccl has a GPU to work with", "use --backend gloo on processors",
                backend="nccl", cuda=torch.cuda.is_available(), no_cuda=config.no_cuda)  # fmt: skip
    if config.backend == "mpi":
        require(dist.is_mpi_available(), "--backend mpi has a torch built with MPI", "use --backend gloo",
                backend="mpi", mpi=False)  # fmt: skip
    return rank, size, local


def pick_device(config: TrainConfig, local_rank: int) -> torch.device:
    """Return the GPU of this process, or the processor."""
    if config.no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
