"""Evaluate a model: exact for any number of ranks."""

import torch
from torch import nn

from podium.trainer import data
from podium.trainer.objective import Objective, Record
from podium.trainer.world import World

PIXELS = 8 * 28 * 28
"""Values of an item in a step of --test-batch-size; items of more take steps of fewer."""


def evaluate(model: nn.Module, part: data.Part, batch_size: int, world: World, objective: Objective) -> Record:
    """Evaluate a model over all ranks; exact for any number of them and any remainder.

    Computed in fp32 whatever the precision of the training, as the exported model will.

    Args:
        model: Equal in all ranks; left in evaluation mode.
        part: On the device of the world.
        batch_size: Items per step.
        world: Each rank evaluates its share.
        objective: Says what is measured.
    """
    model.eval()
    totals = objective.no_totals(world.device)
    with torch.no_grad():
        for piece in data.in_order(len(part), batch_size, world.rank, world.size):
            totals += objective.totals(model(part.inputs[piece]), part.target[piece])
    return objective.summarize(world.sum(totals), len(part))


def batch_size_for(values: int, batch_size: int) -> int:
    """Return how many items of a number of values are evaluated at once."""
    return max(1, min(batch_size, batch_size * PIXELS // max(values, 1)))
