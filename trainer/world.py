"""The ranks of one training: who takes part, on which device, what they send each other, and the
sum of gradients.

`podium.trainer.ranks` reads from the environment who takes part. What ranks send each other is read
like a checkpoint: no code in it is run.
"""

import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from podium.errors import InvalidInput, PodiumError
from podium.trainer import checkpoint, ranks
from podium.trainer.config import TrainConfig
from podium.trainer.ranks import Ranks

_BEAT_SECONDS = 1.0
"""Between two signs of life."""

LOST_BEATS = 15
"""Rounds without a sign after which a rank is lost; the largest of what a step may hold up Python's
threads."""

GRACE_SECONDS = 5.0
"""In which a rank that waits for another ends by itself, before it is ended: it saves its state
then."""

_OVER = "over"
"""Number in the store that is not 0 once a rank has begun again: the attempt is over for all."""


def _beat(store: dist.Store, rank: int) -> int:
    """Give a sign of life; return how many that rank has given."""
    return int(store.add(f"beat-{rank}", 1))


class PeerLost(PodiumError):
    """Another rank is gone; starting again resumes from the checkpoint."""

    exit_code = 144  # 128..255: restartPolicy ExitCode starts such a replica again

    @classmethod
    def because(cls, reason: str) -> Self:
        """Return it with the reason for which a rank is taken for lost."""
        hint = "start the job again: it resumes from its last checkpoint"
        return cls(f"another process of the training is gone ({reason})", hint)


class _Pulse:
    """The signs of life of one rank, and its look at those of others.

    Args:
        own: This rank.
        store: A connection of its own: what blocks another one must not silence this rank.
    """

    def __init__(self, own: Ranks, store: dist.Store) -> None:
        watched = range(1, own.size) if own.rank == 0 else range(1)
        self.lost = ""
        """Why the attempt is over; empty while nobody is missed."""

        self.needs_others = True
        """False for one that goes on alone: it gives signs of life and misses nobody."""

        self._own, self._store, self._ended = own, store, threading.Event()
        self._beats, self._silence = dict.fromkeys(watched, 0), dict.fromkeys(watched, 0)
        self._unanswered, self._said = 0, ""

    def __enter__(self) -> Self:
        for work in (self._beat, self._watch):
            threading.Thread(target=work, name="podium-pulse", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Watch no longer: nothing waits for another rank any more."""
        self._ended.set()

    def _beat(self) -> None:
        try:
            while True:
                self._exchange()
                if self._ended.wait(_BEAT_SECONDS):
                    return
        except RuntimeError:  # all that torch raises where a connection ends
            self._said = "rank 0 and its store are away"

    def _exchange(self) -> None:
        _beat(self._store, self._own.rank)
        for rank, before in self._beats.items():
            beats = self._store.add(f"beat-{rank}", 0)
            if beats != before:
                self._beats[rank], self._silence[rank] = beats, 0
        self._unanswered = 0
        if self._store.add(_OVER, 0):
            self._said = "a rank was started again"

    def _watch(self) -> None:
        while not self.lost:
            if self._ended.wait(_BEAT_SECONDS):
                return
            self.lost = (self._said or self._missed()) if self.needs_others else ""
        if not self._ended.wait(GRACE_SECONDS):
            print(f"error: {PeerLost.because(self.lost)}", file=sys.stderr, flush=True)
            os._exit(PeerLost.exit_code)

    def _missed(self) -> str:
        self._unanswered += 1
        if self._unanswered >= LOST_BEATS:
            return "the store of rank 0 does not answer"
        for rank, beats in self._beats.items():
            self._silence[rank] += beats > 0  # one that was never heard of has not come yet
            if self._silence[rank] >= LOST_BEATS:
                return f"nothing is heard of rank {rank}"
        return ""


TIMEOUT = timedelta(minutes=30)  # for all ranks to connect, and for each collective operation

LOOK = timedelta(seconds=1)  # of one that waits, whether all ranks still live


@dataclass(kw_only=True)
class World:
    """One rank among all ranks of a training."""

    rank: int = 0
    """Rank 0 prints and saves."""

    size: int = 1

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    pulse: _Pulse | None = None
    """Knows whether the others live."""

    def leave(self) -> None:
        """Wait for no other rank any more, nor miss one."""
        if self.pulse:
            self.pulse.end()

    @contextmanager
    def last_work(self) -> Iterator[None]:
        """Let rank 0 do what is left, alone, and all leave when it is done.

        The others wait for it: if it is killed meanwhile, it needs them once more. It does not need
        them to finish.

        Raises:
            PeerLost: Rank 0 is gone, for any other rank.
        """
        if self.pulse and self.rank == 0:
            self.pulse.needs_others = False
        yield
        if self.pulse and self.rank == 0:
            self.pulse.needs_others = True
        with suppress(PeerLost) if self.rank == 0 else nullcontext():
            self.all(True)
        self.leave()

    def sum(self, values: Tensor) -> Tensor:
        """Add a tensor over all ranks, in place."""
        if self.size > 1:
            with _peers():
                self._finish(dist.all_reduce(values, async_op=True))
        return values

    def all(self, value: bool) -> bool:
        """Return whether a value is true in every rank."""
        return int(self.sum(torch.tensor(int(value), device=self.device))) == self.size

    def mean_buffers(self, model: nn.Module) -> None:
        """Average running statistics, which each rank collected from its own items."""
        state = model.state_dict()  # other buffers are constants
        for name, buffer in model.named_buffers():
            if self.size > 1 and name in state and buffer.is_floating_point():
                buffer.copy_(
                    self.sum(buffer.clone()) / self.size
                )  # not in place: a failed sum may be half done

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Run a function in rank 0 and return its result, or raise its error, in every rank.

        Args:
            make: Returns what a checkpoint can hold: numbers, texts, tensors, and lists and dicts
                of them.
        """
        if self.size == 1:
            return make()
        message: dict[str, Any] = {}
        if self.rank == 0:
            try:
                message = {"value": make()}
            except PodiumError as error:
                message = {"error": [error.message, error.hint], "exit_code": error.exit_code}
        received = checkpoint.from_bytes(self._broadcast_bytes(checkpoint.to_bytes(message)))
        if "error" in received:
            failure = PodiumError(*received["error"])
            failure.exit_code = received["exit_code"]
            raise failure
        return received["value"]

    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        """Overwrite tensors with those of rank 0."""
        if self.size > 1:
            with _peers():
                for tensor in tensors:
                    self._finish(dist.broadcast(tensor.detach(), src=0, async_op=True))

    def _finish(self, work: dist.Work | None) -> None:
        """Wait for an operation, but not for a rank that is gone: gloo does not always notice
        that."""
        assert work is not None  # it is for processes outside of the group
        if (
            dist.get_backend() != "gloo"
        ):  # nccl's waiting with a limit would hold up the GPU; see Pulse
            work.wait()
            return
        while True:
            try:
                work.wait(LOOK)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises why, unless it came just in time
                    return
                if self.pulse and self.pulse.lost:
                    raise RuntimeError(self.pulse.lost) from None

    def _broadcast_bytes(self, data: bytes) -> bytes:
        count = torch.tensor(len(data), device=self.device)
        self.broadcast_tensors([count])
        content = torch.frombuffer(
            bytearray(data if self.rank == 0 else int(count)), dtype=torch.uint8
        ).to(self.device)
        self.broadcast_tensors([content])
        return content.cpu().numpy().tobytes()


@contextmanager
def _peers(failure: type[RuntimeError] = RuntimeError) -> Iterator[None]:
    """Turn the failure of a collective operation into PeerLost.

    Args:
        failure: What the operation raises; gloo has no type of its own for it but RuntimeError
            itself, nccl has dist.DistError.
    """
    try:
        yield
    except failure as error:
        if type(error) is not RuntimeError and not isinstance(error, dist.DistError):
            raise  # of this rank itself, for example OutOfMemoryError or AcceleratorError: it would come again
        raise PeerLost.because(str(error).partition("\n")[0][:200]) from error


class GradientSum:
    """Runs forward and backward pass of a model so that every rank ends up with the summed
    gradients.

    With nccl DistributedDataParallel does it while the backward pass runs. Everywhere else one flat
    all-reduce follows the backward pass: several processes on CPUs are a rehearsal of a cluster,
    not a way to be fast.

    Args:
        model: The same architecture in every rank.
        world: The ranks; all of them have to construct this.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.world, self.parameters = world, list(model.parameters())
        self.forward = model
        self.is_ddp = world.size > 1 and dist.get_backend() == "nccl"
        if self.is_ddp:
            from torch.nn.parallel import DistributedDataParallel

            self.forward = DistributedDataParallel(
                model, device_ids=[world.device], broadcast_buffers=False
            )

    def backward(self, loss: Tensor) -> Tensor:
        """Run the backward pass and sum the gradients.

        Args:
            loss: This rank's share of the loss; the shares add up to the mean over the global
                batch.

        Returns:
            The loss of the global batch, the same in every rank.

        Raises:
            PeerLost: Another rank is gone; no weight has been changed.
        """
        if self.is_ddp:
            with _peers(dist.DistError):
                (loss * self.world.size).backward()  # DDP divides by the number of ranks
            return self.world.sum(loss.detach().clone())
        loss.backward()
        if self.world.size == 1:
            return loss.detach()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        flat = torch.cat(
            [*(gradient.flatten() for gradient in gradients), loss.detach().reshape(1)]
        )
        parts = self.world.sum(flat).split([*(gradient.numel() for gradient in gradients), 1])
        for gradient, part in zip(gradients, parts, strict=False):
            gradient.copy_(part.view_as(gradient))
        return flat[-1]


@contextmanager
def join(config: TrainConfig, environ: Mapping[str, str] = os.environ) -> Iterator[World]:
    """Connect to the other ranks, and disconnect at the end.

    Raises:
        InvalidInput: The backend cannot work here, or the environment is incomplete.
        PeerLost: The others could not be reached.
    """
    own = ranks.read(environ)
    _check_backend(config)
    device = _pick_device(config, own.local)
    if own.size == 1:
        yield World(device=device)
        return
    # torchrun's store outlives a restart: without a prefix an attempt would meet the keys of the
    # one before.
    attempt = f"attempt-{environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    with _peers():
        store = _meet(own, environ, attempt)
        second = dist.TCPStore(own.address, own.port, wait_for_workers=False, timeout=TIMEOUT)
    with _Pulse(own, dist.PrefixStore(attempt, second)) as pulse:
        with _peers():
            dist.init_process_group(
                config.backend, store=store, rank=own.rank, world_size=own.size, timeout=TIMEOUT
            )
        world = World(rank=own.rank, size=own.size, pulse=pulse)
        try:
            if config.backend != "nccl" and not world.all(device.type == "cuda"):
                device = torch.device("cpu")  # a GPU in some ranks only: all compute the same way
            yield replace(world, device=device)
        finally:
            if not pulse.lost:  # else gloo would wait here for what it began with that rank
                dist.destroy_process_group()


def _meet(own: Ranks, environ: Mapping[str, str], attempt: str) -> dist.Store:
    """Return the store of this attempt, one where this rank has not been before.

    A rank that is restarted early reaches the store of the attempt before: there it would wait for
    processes that are gone, and they for it. So it says that this attempt is over, and looks again
    until that store is away.

    Raises:
        PeerLost: Rank 0 cannot listen, or the store of the attempt before stays.
    """
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while True:
        try:
            store = dist.PrefixStore(attempt, _open_store(own, environ))
            if _beat(store, own.rank) == 1:
                return store
            store.add(_OVER, 1)
        except dist.DistNetworkError:  # it went away at this moment
            if own.rank == 0 or time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise PeerLost(
                f"rank 0 at {own.address}:{own.port} still serves an attempt that is over",
                "stop the rest of the job, then start it again",
            )
        time.sleep(0.2)


def _open_store(own: Ranks, environ: Mapping[str, str]) -> dist.Store:
    """Return the store that ranks find each other through.

    It has no password and torch lets it listen on every interface. Where all ranks are on this
    machine (the address of rank 0 is a loopback address) store and gloo listen on the loopback
    interface alone.

    Raises:
        PeerLost: Rank 0 cannot listen there, for example because the attempt before has not quite
            ended.
    """
    address, port = own.address, own.port
    if _is_loopback(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        is_served_by_torchrun = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if own.rank == 0 and not is_served_by_torchrun:
            try:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                listener = socket.create_server((address, port), family=family)
            except OSError as error:
                hint = "choose another port (MASTER_PORT), or start the job again when that one is free"
                raise PeerLost(
                    f"rank 0 cannot listen on {address}:{port}: {error.strerror}", hint
                ) from None
            return dist.TCPStore(
                address,
                port,
                own.size,
                is_master=True,
                timeout=TIMEOUT,
                master_listen_fd=listener.detach(),
            )
    store: dist.Store = next(dist.rendezvous(own.url, own.rank, own.size, timeout=TIMEOUT))[0]
    return store


def _is_loopback(address: str) -> bool:
    """Return whether an address can only mean this machine; names other than localhost are not
    resolved."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _check_backend(config: TrainConfig) -> None:
    """Refuse a backend that cannot work here.

    Raises:
        InvalidInput: nccl without a GPU, or mpi without a torch that has it.
    """
    if config.backend == "nccl" and (config.no_cuda or not torch.cuda.is_available()):
        reason = "--no-cuda leaves it none" if config.no_cuda else "there is none here"
        raise InvalidInput(
            f"--backend nccl needs a GPU, but {reason}", "use --backend gloo on CPUs"
        )
    if config.backend == "mpi" and not dist.is_mpi_available():
        raise InvalidInput(
            "--backend mpi needs a torch that is built with MPI, and those of PyPI are not",
            "use --backend gloo, which mpirun's ranks take as well; or build torch with USE_MPI=1",
        )


def _pick_device(config: TrainConfig, local_rank: int) -> torch.device:
    if config.no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
