"""Evaluate a model: exact for any number of ranks."""

import torch
import torch.nn.functional as F
from torch import nn

from podium.trainer import data
from podium.trainer.world import World


def evaluate(model: nn.Module, part: data.Part, batch_size: int, world: World) -> tuple[float, float]:
    """Evaluate a model over all ranks; exact for any number of them and any remainder.

    Computed in fp32 whatever the precision of the training, as the exported model will.

    Args:
        model: Equal in all ranks; left in evaluation mode.
        part: On the device of the world.
        batch_size: Images per step.
        world: Each rank evaluates its share.

    Returns:
        Accuracy and mean cross entropy.
    """
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64, device=world.device)
    with torch.no_grad():
        for piece in data.in_order(len(part), batch_size, world.rank, world.size):
            logits, labels = model(part.images[piece]), part.labels[piece]
            totals[0] += (logits.argmax(1) == labels).sum()
            totals[1] += F.cross_entropy(logits, labels, reduction="sum").double()
    correct, loss = (world.sum(totals) / len(part)).tolist()
    return correct, loss
