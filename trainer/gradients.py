"""Sums of gradients over the processes of a training, begun while the backward pass is still running.

Not DistributedDataParallel: that imports torch._dynamo (3 s a process on 2 cores, longer than a short trial) and
averages over ranks, which is wrong when shares of a batch differ in size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from podium.trainer import shared_memory
from podium.trainer.world import World, peers


class GradientSum(Protocol):
    """Runs a step's backward pass and leaves the sum of all processes' gradients in the parameters."""

    def backward(self, loss: Tensor) -> Tensor:
        """Run the backward pass of this process's share of the loss; return the loss, summed like the gradients.

        Raises:
            PeerLost: Another process is gone; no weight has been changed.
        """


def prepare(model: nn.Module, world: World, precision: str, batch_size: int) -> GradientSum:
    """Choose how gradients are summed.

    Args:
        model: Its parameters' gradients are replaced by their sums.
        world: The processes; all of them have to call this.
        precision: That of the training, fp32 or bf16.
        batch_size: Images a step over all processes, at most.
    """
    if world.size == 1:
        return Alone()
    if world.all(world.device.type == "cpu") and world.size <= InMemory.MOST:
        count = sum(parameter.numel() for parameter in model.parameters())
        if (memory := shared_memory.allocate(world, 2 * world.size * count)) is not None:
            return InMemory(model, world, memory)
    return ByMessages(model, world, precision, batch_size)


class Alone:
    """One process: its gradients are the sums."""

    def backward(self, loss: Tensor) -> Tensor:
        loss.backward()
        return loss.detach()


class InMemory:
    """Sums in memory that all processes see: on one machine a message costs many times a look.

    Every process lays a gradient there as soon as it is complete. When all losses have been summed, all gradients are
    in place, and each process adds all of them up, in the same order. There are two places for each gradient, used in
    turn: nobody begins with the step after the next before all have summed the losses of the next, that is, have read
    the gradients of this one.

    Args:
        model: Its parameters' gradients are replaced by their sums.
        world: The processes.
        memory: float32 [2 * processes * elements of all parameters], seen by all of them.
    """

    MOST = 8  # processes: each of them reads the gradients of all

    def __init__(self, model: nn.Module, world: World, memory: Tensor) -> None:
        self.parameters = list(model.parameters())
        self.places = memory.view(2, world.size, -1)
        self.sums = torch.empty(self.places.shape[-1])
        self.summed = self._views(self.sums)
        self.mine = [self._views(places[world.rank]) for places in self.places]
        self.turn = 0
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._lay_down, index))

    def backward(self, loss: Tensor) -> Tensor:
        total = loss.detach()
        self.turn = 1 - self.turn
        with peers():
            loss.backward()
            dist.all_reduce(total)
        torch.sum(self.places[self.turn], 0, out=self.sums)
        for parameter, gradient in zip(self.parameters, self.summed, strict=True):
            parameter.grad = gradient
        return total

    def _lay_down(self, index: int, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.mine[self.turn][index].copy_(parameter.grad)

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Return the parts of a flat tensor in the shapes and the memory layouts of the parameters."""
        parts = flat.split([parameter.numel() for parameter in self.parameters])
        return [part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
                for part, parameter in zip(parts, self.parameters, strict=True)]  # fmt: skip


class ByMessages:
    """Sums by messages.

    A large gradient is sent as soon as it is complete; the small ones go together with the loss when the last of them
    is, because a message costs half a millisecond of a core however short it is. In bf16 training the large ones travel
    as bf16: that is what the backward pass computed them in, and halves the bytes.

    The gradient of a dense layer's weights is a product: of what went into the layer and the gradients of what came
    out, summed over images. Where these are smaller than the product (a quarter of it in the tutorial's network) they
    travel instead, and each process computes the product for all images, the very one that a process alone computes.

    Args:
        model: Its parameters' gradients are replaced by their sums.
        world: The processes.
        precision: That of the training, fp32 or bf16.
        batch_size: Images a step over all processes, at most.
    """

    LARGE = 1 << 16  # elements

    def __init__(self, model: nn.Module, world: World, precision: str, batch_size: int) -> None:
        self.world = world
        self.rows = -(-batch_size // world.size)  # images of the largest share
        self.kind = torch.bfloat16 if precision == "bf16" else torch.float32
        self.pending: list[tuple[Any, Callable[[], None]]] = []
        self.complete: list[Tensor] = []
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and layer.weight.numel() > batch_size * sum(layer.weight.shape):
                layer.weight.requires_grad_(False)  # not by autograd
                layer.register_forward_hook(self._watch)
        summed = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.small = sum(parameter.numel() < self.LARGE for parameter in summed)
        for parameter in summed:
            parameter.register_post_accumulate_grad_hook(self._take)

    def backward(self, loss: Tensor) -> Tensor:
        total = loss.detach()
        self.complete = [total]
        with peers():
            loss.backward()
            for work, finish in self.pending:
                work.wait()
                finish()
        self.pending.clear()
        return total

    def _take(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        if parameter.numel() >= self.LARGE:
            self._send([parameter.grad], self.kind)
            return
        self.complete.append(parameter.grad)
        if len(self.complete) == self.small + 1:
            self._send(self.complete, torch.float32)

    def _send(self, tensors: list[Tensor], kind: torch.dtype) -> None:
        flat = [tensor.reshape(-1) for tensor in tensors]
        message = (torch.cat(flat) if len(flat) > 1 else flat[0]).to(kind)
        self.pending.append((dist.all_reduce(message, async_op=True), partial(_replace, tensors, message)))

    def _watch(self, layer: nn.Linear, inputs: tuple[Tensor], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self._gather, layer, inputs[0].detach()))

    def _gather(self, layer: nn.Linear, inputs: Tensor, gradients: Tensor) -> None:
        mine = torch.cat([inputs.to(gradients.dtype), gradients], 1)
        mine = F.pad(mine, (0, 0, 0, self.rows - len(mine)))  # shares differ by an image: a row of zeros adds nothing
        everyones = mine.new_empty(self.world.size * self.rows, mine.shape[1])
        work = dist.all_gather_into_tensor(everyones, mine, async_op=True)
        self.pending.append((work, partial(_multiply, layer, everyones)))


def _replace(tensors: list[Tensor], message: Tensor) -> None:
    """Put the parts of a message back where they came from."""
    for tensor, total in zip(tensors, message.split([tensor.numel() for tensor in tensors]), strict=True):
        if total.data_ptr() != tensor.data_ptr():
            tensor.copy_(total.view(tensor.shape))


def _multiply(layer: nn.Linear, rows: Tensor) -> None:
    """Set the gradient of a dense layer's weights from inputs and gradients of outputs, an image a row."""
    inputs, gradients = rows.split([layer.in_features, layer.out_features], 1)
    layer.weight.grad = (gradients.t() @ inputs).to(layer.weight.dtype)
