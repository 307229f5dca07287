"""Lightning's Trainer, as people use it; --results gets what the library's own objects hold."""

import argparse
import json
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--checkpoint", default="model.ckpt")
parser.add_argument("--results", default="results.json")
parser.add_argument("--bar", default="rich")
args = parser.parse_args()
lightning.seed_everything(1)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: list[torch.Tensor], at: int) -> torch.Tensor:
        loss = cross_entropy(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], at: int) -> None:
        out = self.layer(batch[0])
        self.log("val_loss", cross_entropy(out, batch[1]), prog_bar=True)
        self.log("val_acc", (out.argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), args.lr)


class Kept(Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_validation_epoch_end(
        self, trainer: lightning.Trainer, module: lightning.LightningModule
    ) -> None:
        if not trainer.sanity_checking:
            self.values.append(float(trainer.callback_metrics["val_acc"]))


x = torch.randn(320, 4)
y = (x[:, 0] > 0).long()
train, validation = (
    DataLoader(TensorDataset(x[part], y[part]), 32) for part in (slice(256), slice(256, None))
)
kept = Kept()
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    callbacks=[kept, *([TQDMProgressBar()] if args.bar == "tqdm" else [])],
)
model = Classifier()
trainer.fit(model, train, validation)
trainer.validate(model, validation)
trainer.save_checkpoint(args.checkpoint)
Path(args.results).write_text(json.dumps({"val_acc": kept.values}))
