"""How the processes of a training make a step together; gradients are on their way while the backward pass still runs.

Not DistributedDataParallel: that imports torch._dynamo (3 s a process on 2 cores, longer than a short trial) and
averages over ranks, which is wrong when shares of a batch differ in size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn, optim

from podium.trainer import in_memory, recipe
from podium.trainer.world import World, peers


class Exchange(Protocol):
    """Makes one step of what the processes did, each with its share of a batch."""

    def backward(self, loss: Tensor) -> Tensor:
        """Run the backward pass of this process's share of the loss, and sum gradients over all processes.

        Returns:
            The loss, summed as well.

        Raises:
            PeerLost: Another process is gone; no weight has been changed.
        """

    def update(self) -> None:
        """Change the weights.

        Raises:
            Torn: Another process is gone; some weights have been changed.
        """


def prepare(model: nn.Module, optimizer: optim.Optimizer, world: World, precision: str, batch_size: int) -> Exchange:
    """Choose how processes make a step together.

    Args:
        model: To be trained.
        optimizer: That of its parameters, not used so far.
        world: The processes; all of them have to call this.
        precision: That of the training, fp32 or bf16.
        batch_size: Images a step over all processes, at most.
    """
    if world.size == 1:
        return Alone(optimizer)
    shared = in_memory.share(model, optimizer, world, precision, batch_size)
    return shared or ByMessages(model, optimizer, world, precision, batch_size)


class Alone:
    """One process: its gradients are the sums."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer

    def backward(self, loss: Tensor) -> Tensor:
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        recipe.apply(self.optimizer)


class ByMessages:
    """Sums gradients by messages.

    A large gradient is sent as soon as it is complete; the small ones go together with the loss when the last of them
    is, because a message costs half a millisecond of a core however short it is. In bf16 training the large ones travel
    as bf16: that is what the backward pass computed them in, and halves the bytes.

    The gradient of a dense layer's weights is a product: of what went into the layer and the gradients of what came
    out, summed over images. Where these are smaller than the product (a quarter of it in the tutorial's network) they
    travel instead, and each process computes the product for all images, the very one that a process alone computes.

    Args:
        model: Its parameters' gradients are replaced by their sums.
        optimizer: Changes the weights, in each process all of them.
        world: The processes.
        precision: That of the training, fp32 or bf16.
        batch_size: Images a step over all processes, at most.
    """

    LARGE = 1 << 16  # elements

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, world: World, precision: str, batch_size: int
                 ) -> None:  # fmt: skip
        self.optimizer, self.world = optimizer, world
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

    def update(self) -> None:
        recipe.apply(self.optimizer)

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
