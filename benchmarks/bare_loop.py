"""Lower bound of a training step: the tutorial network and optimizer with data in memory, nothing else.

    python benchmarks/bare_loop.py data/mnist fp32

Prints images per second. benchmarks/trainer.py runs it as the upper limit.
"""

import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F

from podium.data import artifact
from podium.trainer import processor, task
from podium.trainer.config import TrainConfig
from podium.trainer.models import build
from podium.trainer.optimizer import Optimizer
from podium.trainer.world import World

BLOCK = 10  # steps of 64 images between two looks at the clock
WARM = 2  # blocks before the first that counts
BLOCKS = 16


def main(data: Path, precision: str) -> None:
    """Take the steps."""
    processor.keep_memory()
    processor.set_threads(TrainConfig())
    part = artifact.load(data, "train")
    images, labels = torch.tensor(part.inputs["images"]), torch.tensor(part.target).long()
    model = build(TrainConfig(), task.read(TrainConfig(), artifact.describe(data)))
    optimizer = Optimizer(TrainConfig(), model)
    cpu = torch.device("cpu")
    kind = processor.pick_precision(TrainConfig(precision=precision), World())
    seen = []
    for step, batch in enumerate(
        torch.randperm(len(labels)).split(64)[: (WARM + BLOCKS) * BLOCK + 1]
    ):
        if step % BLOCK == 0:
            seen.append(time.perf_counter())
        model.zero_grad(set_to_none=True)
        with processor.autocast(kind, cpu):
            logits = model(images[batch])
        F.cross_entropy(logits.float(), labels[batch]).backward()
        optimizer.step(1.0)
    print(BLOCK * 64 / statistics.median(after - before for before, after in pairwise(seen[WARM:])))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
