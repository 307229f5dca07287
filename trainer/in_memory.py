"""Steps of processes on one machine: what a message takes half a millisecond for, a look at shared memory does."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim

from podium.trainer import recipe, shared_memory
from podium.trainer.shared_memory import SharedMemory
from podium.trainer.world import PeerLost, Torn, World

MOST = 8
"""Processes that share memory, at most: each of them reads the gradients of all."""

LARGE = 1 << 16
"""Weights of a dense layer that are worth dividing."""


class InMemory:
    """Sums gradients in memory that all processes see, and divides the work of large dense layers.

    Every process lays a gradient there as soon as it is complete. When all are in place each adds all of them up, in
    the same order, and changes the weights; no one begins with the next step before all are done with this one.
    """

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, world: World, memory: SharedMemory,
                 layers: list["DividedLayer"]) -> None:  # fmt: skip
        self.optimizer, self.memory, self.layers = optimizer, memory, layers
        divided = {id(layer.weight) for layer in layers}
        self.parameters = [parameter for parameter in model.parameters() if id(parameter) not in divided]
        count = 1 + sum(parameter.numel() for parameter in self.parameters)  # and the loss
        self.places = memory.take(world.size * count).view(world.size, count)
        self.sums = torch.empty(count)
        self.summed, self.mine = self._views(self.sums), self._views(self.places[world.rank])
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._lay_down, index))
        self.loss = self.places[world.rank, -1]
        memory.meet()  # nobody changes weights before all have come to share them

    def backward(self, loss: Tensor) -> Tensor:
        self.loss.copy_(loss.detach())
        loss.backward()
        self.memory.meet()
        torch.sum(self.places, 0, out=self.sums)
        for parameter, gradient in zip(self.parameters, self.summed, strict=True):
            parameter.grad = gradient
        for layer in self.layers:
            layer.multiply()
        return self.sums[-1].clone()

    def update(self) -> None:
        recipe.apply(self.optimizer)
        for layer in self.layers:
            layer.move_memories()
        try:
            self.memory.meet()
        except PeerLost as error:
            raise Torn(f"{error.message}, while weights were changed", error.hint) from error

    def _lay_down(self, index: int, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.mine[index].copy_(parameter.grad)

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Return the parts of a flat tensor in the shapes and the memory layouts of the parameters."""
        parts = flat[:-1].split([parameter.numel() for parameter in self.parameters])
        return [part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
                for part, parameter in zip(parts, self.parameters, strict=True)]  # fmt: skip


class DividedLayer:
    """A dense layer whose weights are divided among the processes by rows, that is, by what comes out.

    The gradient of its weights is a product, of what went in and the gradients of what came out, summed over images.
    Every process lays down both for its own images, computes for all images the gradient of its rows alone, and changes
    those: nobody computes, adds up or changes as many numbers as the layer has weights.

    Weights and what the optimizer remembers of them lie whole in shared memory: rank 0 has all to save, also when
    another process is gone.

    Args:
        layer: Its weights move to shared memory, and no gradient is computed for them.
        optimizer: Gets this process's rows in the place of the weights; its state dict has all rows, as ever.
        world: The processes.
        kind: Of which inputs and gradients are.
        images: Of a step, at most, in each process.
        memory: Gives what it needs.
    """

    def __init__(self, layer: nn.Linear, optimizer: optim.Optimizer, world: World, kind: torch.dtype, images: int,
                 memory: SharedMemory) -> None:  # fmt: skip
        self.optimizer, self.weight, self.rank = optimizer, layer.weight, world.rank
        count, shape = layer.weight.numel(), layer.weight.shape
        shared, *self.memories = (memory.take(count).view(shape) for _ in range(3))
        if world.rank == 0:
            shared.copy_(layer.weight.data)
        layer.weight.data = shared
        layer.weight.requires_grad_(False)  # not by autograd
        self.rows = slice(shape[0] * world.rank // world.size, shape[0] * (world.rank + 1) // world.size)
        self.mine = nn.Parameter(shared[self.rows])
        self.are_moved = False
        self.inputs, self.gradients = (
            memory.take(world.size * images * size, kind).view(world.size, images, size)
            for size in (layer.in_features, layer.out_features)
        )
        layer.register_forward_hook(self._watch)
        self._take_place()

    @staticmethod
    def count(layer: nn.Linear, world: World, images: int) -> int:
        """Return the numbers of shared memory it takes: weights, two of the optimizer for each, inputs, gradients."""
        return 3 * layer.weight.numel() + world.size * images * (layer.in_features + layer.out_features)

    def multiply(self) -> None:
        """Set the gradient of this process's rows."""
        gradients, inputs = self.gradients.flatten(0, 1)[:, self.rows], self.inputs.flatten(0, 1)
        self.mine.grad = (gradients.t() @ inputs).float()

    def move_memories(self) -> None:
        """Move what the optimizer remembers, which it begins with its first step, to the shared memory."""
        if self.are_moved:
            return
        state = self.optimizer.state[self.mine]
        for name, memory in self._memories(state):
            (memory if state[name].shape == memory.shape else memory[self.rows]).copy_(state[name])
            state[name] = memory[self.rows]
        self.are_moved = True

    def _memories(self, state: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Return what the optimizer remembers of each weight, and where all processes see it."""
        names = sorted(name for name, value in state.items() if isinstance(value, Tensor) and value.ndim)
        return zip(names, self.memories[: len(names)], strict=True)

    def _take_place(self) -> None:
        """Put this process's rows where the optimizer has the weights."""
        index = 0
        for group in self.optimizer.param_groups:
            for place, parameter in enumerate(group["params"]):
                if parameter is self.weight:
                    group["params"][place] = self.mine
                    self.optimizer.register_state_dict_post_hook(partial(self._show_all, index))
                index += 1
        self.optimizer.register_load_state_dict_post_hook(self._load)

    def _show_all(self, index: int, optimizer: optim.Optimizer, shown: dict[str, Any]) -> None:
        if state := shown["state"].get(index):
            shown["state"][index] = {**state, **dict(self._memories(state))}

    def _load(self, optimizer: optim.Optimizer) -> None:
        self.are_moved = False
        if optimizer.state.get(self.mine):
            self.move_memories()

    def _watch(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if output.requires_grad:
            self._lay_down(self.inputs, inputs[0].detach())
            output.register_hook(partial(self._lay_down, self.gradients))

    def _lay_down(self, places: Tensor, values: Tensor) -> None:
        mine = places[self.rank]
        mine[: len(values)].copy_(values)
        mine[len(values) :].zero_()  # shares differ: a row of zeros adds nothing


def worth_dividing(model: nn.Module, world: World, batch_size: int) -> list[nn.Linear]:
    """Return the large dense layers; not those for which a batch is much more to lay down and read than the weights."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)
            and layer.weight.numel() >= LARGE and layer.out_features >= world.size
            and batch_size * (layer.in_features + layer.out_features) <= 4 * layer.weight.numel()]  # fmt: skip


def share(
    model: nn.Module, optimizer: optim.Optimizer, world: World, precision: str, batch_size: int
) -> InMemory | None:
    """Return the steps of processes that share memory, or None in all of them if they cannot; see exchange.prepare."""
    if not world.all(world.device.type == "cpu") or world.size > MOST:
        return None
    images = -(-batch_size // world.size)
    large = worth_dividing(model, world, batch_size)
    small = sum(parameter.numel() for parameter in model.parameters()) - sum(layer.weight.numel() for layer in large)
    count = sum(DividedLayer.count(layer, world, images) for layer in large) + world.size * (1 + small)
    memory = shared_memory.allocate(world, count)
    if memory is None:
        return None
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    layers = [DividedLayer(layer, optimizer, world, kind, images, memory) for layer in large]
    return InMemory(model, optimizer, world, memory, layers)
