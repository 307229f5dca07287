"""Sum gradients over the ranks of a training.

With nccl DistributedDataParallel does it while the backward pass runs. Everywhere else one flat all-reduce follows the
backward pass: several processes on CPUs are a rehearsal of a cluster, not a way to be fast.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from podium.trainer.world import World, peers


class GradientSum:
    """Runs forward and backward pass of a model so that every rank ends up with the summed gradients.

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

            self.forward = DistributedDataParallel(model, device_ids=[world.device], broadcast_buffers=False)

    def backward(self, loss: Tensor) -> Tensor:
        """Run the backward pass and sum the gradients.

        Args:
            loss: This rank's share of the loss; the shares add up to the mean over the global batch.

        Returns:
            The loss of the global batch, the same in every rank.

        Raises:
            PeerLost: Another rank is gone; no weight has been changed.
        """
        if self.is_ddp:
            with peers(dist.DistError):
                (loss * self.world.size).backward()  # DDP divides by the number of ranks
            return self.world.sum(loss.detach().clone())
        loss.backward()
        if self.world.size == 1:
            return loss.detach()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach().reshape(1)])
        parts = self.world.sum(flat).split([*(gradient.numel() for gradient in gradients), 1])
        for gradient, part in zip(gradients, parts, strict=False):
            gradient.copy_(part.view_as(gradient))
        return flat[-1]
