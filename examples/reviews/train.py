"""Train a small transformer on sentences and write it as ONNX with two inputs, `tokens` and `mask`.

podium tells it where the data is and where the model goes (--data, --output); the other flags are its hyperparameters.
"""

import argparse
import io
import math
import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from podium.trainer import kit


class Block(nn.Module):
    """Attention among the words of a sentence, then two layers for each word."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.words = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Take and return [n, length, width]; mask [n, length] is 0 where there is no word."""
        n, length, width = x.shape
        parts = (
            self.project(self.before(x))
            .view(n, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = parts[0], parts[1], parts[2]
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        weights = (scores + (mask[:, None, None, :] - 1) * 1e4).softmax(-1)
        x = x + self.join((weights @ value).transpose(1, 2).reshape(n, length, width))
        return x + self.words(self.between(x))


class Transformer(nn.Module):
    """Words and their places, some blocks, the mean over the words, and the classes."""

    def __init__(
        self, vocabulary: int, length: int, classes: int, args: argparse.Namespace
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, args.width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(length, args.width))
        self.blocks = nn.ModuleList(
            Block(args.width, args.heads, args.dropout) for _ in range(args.blocks)
        )
        self.head = nn.Sequential(nn.LayerNorm(args.width), nn.Linear(args.width, classes))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Take tokens int64 [n, length] and mask float32 [n, length], return logits [n, classes]."""
        x = self.embedding(tokens) + self.places
        for block in self.blocks:
            x = block(x, mask)
        return self.head((x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))


def load(part: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, mask and target of a part."""
    data = kit.load(part)
    return (torch.tensor(data.inputs["tokens"]), torch.tensor(data.inputs["mask"]),
            torch.tensor(np.asarray(data.target, np.int64)))  # fmt: skip


@torch.no_grad()
def measure(model: Transformer, tokens: Tensor, mask: Tensor, target: Tensor) -> dict[str, float]:
    """Return accuracy and mean cross-entropy."""
    model.eval()
    logits = torch.cat(
        [model(*some) for some in zip(tokens.split(500), mask.split(500), strict=True)]
    )
    return {
        "accuracy": (logits.argmax(1) == target).float().mean().item(),
        "loss": cross_entropy(logits, target).item(),
    }


def export(model: Transformer, tokens: Tensor, mask: Tensor) -> bytes:
    """Return the model as ONNX, for any number of sentences."""
    buffer, free = io.BytesIO(), {0: "n"}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # this exporter is the old one; the new one needs onnxscript
        torch.onnx.export(
            model.eval(), (tokens[:2], mask[:2]), buffer, input_names=["tokens", "mask"], output_names=["logits"],
            dynamic_axes={"tokens": free, "mask": free, "logits": free}, opset_version=18, dynamo=False,
        )  # fmt: skip
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="read by podium.trainer.kit")
    parser.add_argument("--output", help="read by podium.trainer.kit")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(1)
    info, train, validation = kit.dataset(), load("train"), load("validation")
    vocabulary = len(info.preprocessing["vocabulary"])
    model = Transformer(vocabulary, train[0].shape[1], len(info.classes), args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * math.ceil(len(train[0]) / 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    for _ in range(args.epochs):
        model.train()
        for chosen in torch.randperm(len(train[0])).split(64):
            optimizer.zero_grad()
            cross_entropy(model(train[0][chosen], train[1][chosen]), train[2][chosen]).backward()
            optimizer.step()
            schedule.step()
        kit.report(**measure(model, *validation))
    kit.save_onnx(export(model, *train[:2]))


if __name__ == "__main__":
    main()
