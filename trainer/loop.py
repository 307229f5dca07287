"""The training itself: steps, evaluation, the best weights so far, and resuming from a saved
state."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from podium.display.text import duration
from podium.errors import Failed, PodiumError
from podium.files.onnx_files import require_fits
from podium.metrics import PACE
from podium.trainer import data, models, objective, processor
from podium.trainer.augment import Augmentation
from podium.trainer.config import TrainConfig
from podium.trainer.optimizer import Average, Optimizer, learning_rate
from podium.trainer.world import GradientSum, PeerLost, World

ENOUGH = 3.0
"""Seconds over which the pace is measured."""

_EVALUATED = 1000
"""Items per step of the evaluation; fewer of large ones."""

_SMALL_ITEM = 8 * 28 * 28
"""Most values of an item of which _EVALUATED fit a step."""


class _Stopped(PodiumError):
    """SIGTERM: the step was finished and the state saved."""

    exit_code = 143  # 128..255: restartPolicy ExitCode starts such a replica again


@dataclass(kw_only=True)
class _Progress:
    """Progress of a training; with model, average and optimizer it is all that a checkpoint
    holds."""

    epoch: int = 1
    """The running epoch, from 1."""

    step: int = 0
    """Finished steps of that epoch."""

    losses: list[float] = field(default_factory=list)
    """The loss of each of these steps."""

    seconds: float = 0.0

    history: list[dict[str, float]] = field(default_factory=list)
    """The finished epochs: epoch, the objective's metrics, train_loss, seconds."""

    best: dict[str, float] = field(default_factory=dict)
    """The best of them on the validation part, as the objective has it."""

    kept: dict[str, float] = field(default_factory=dict)
    """The one of them whose weights are kept."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    """Those weights, on the CPU."""

    validated: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Their outputs of the validation part, as TrainingObjective.room keeps them, on the CPU."""


class TrainingLoop:
    """One rank's part of a training.

    Args:
        dataset: On the device of the world.
        say: Prints a line of progress; only called in rank 0.
    """

    def __init__(
        self, config: TrainConfig, dataset: data.Dataset, world: World, say: Callable[[str], None]
    ) -> None:
        self.config, self.dataset, self.world, self.say = config, dataset, world, say
        self.model = models.build(config, dataset.task).to(world.device)
        require_fits(sum(weight.nbytes for weight in self.model.parameters()), "the network")
        self.objective = objective.of(config, dataset.task, world.device)
        self.optimizer = Optimizer(config, self.model)
        self.average = Average(self.model, config.average)
        self.precision = processor.pick_precision(config, world)
        self.gradients = GradientSum(self.model, world)
        self.augmentation = Augmentation(config, dataset.task, world.device)
        self.batch_size = config.batch_of(len(dataset.train))
        self.steps = math.ceil(len(dataset.train) / self.batch_size)
        self.progress = _Progress()
        self.stop = False  # set by a signal handler
        self.until = 0  # last epoch, whose weights are kept; 0: as configured
        self.outputs: list[Tensor] | None = None  # of the validation part after each epoch
        self.measured_from: tuple[float, int] | None = None  # time and finished steps

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume from here."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            **vars(self.progress),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.model.load_state_dict(state["model"])
        self.average.model.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = _Progress(**{name: state[name] for name in vars(self.progress)})

    def inherit(self, parent: dict[str, Any]) -> None:
        """Start from the weights of another training, and from its optimizer state if the optimizer
        is the same."""
        self.model.load_state_dict(parent["weights"])
        if parent["optimizer"] == self.config.optimizer:
            self.optimizer.load_state_dict(parent["state"])

    def run(
        self,
        save: Callable[[dict[str, Any]], None],
        track: Callable[[dict[str, float]], None] = lambda record: None,
    ) -> None:
        """Train to the last epoch.

        Args:
            save: Stores a state; called after each epoch, the last one only if its weights are
                inherited, and before stopping early on SIGTERM or because another rank is gone.
                Only called in rank 0.
            track: Takes the record of each finished epoch. Only called in rank 0.

        Raises:
            Failed: A loss is not finite.
            Stopped: `stop` was set.
            PeerLost: Another rank is gone.
        """
        while not self.is_done():
            try:
                self.run_epoch()
            except (_Stopped, PeerLost):
                self.world.leave()
                if self.world.rank == 0:
                    save(self.state())
                raise
            if self.world.rank == 0:
                track(self.progress.history[-1])
                if (
                    not self.is_done() or self.config.inherit
                ):  # else it would inherit its own weights
                    save(self.state())

    def is_done(self) -> bool:
        """Return whether the last epoch is over or patience has run out."""
        last, patience = self.progress.epoch - 1, self.config.patience
        if self.until:
            return last >= self.until
        waited = last - self.progress.best.get("epoch", last)
        return last >= self.config.epochs or (patience > 0 and waited >= patience)

    def run_epoch(self) -> None:
        """Train the rest of the running epoch, evaluate, report."""
        progress, config = self.progress, self.config
        generator, device = data.stream(config.seed, progress.epoch), self.world.device
        batches = data.batches(len(self.dataset.train), self.batch_size, generator, device)
        self.augmentation.begin_epoch(len(self.dataset.train), generator)
        losses = torch.zeros(self.steps, device=device)
        losses[: progress.step] = torch.tensor(progress.losses)
        before = progress.seconds - time.perf_counter()
        self.model.train()
        try:
            for batch in batches[progress.step :]:
                losses[progress.step] = self.step(batch)
                progress.step += 1
                if (progress.step - 1) % config.log_interval == 0:
                    self.report_step(losses)
                if self.stop:
                    raise _Stopped(
                        "stopped by SIGTERM after a finished step", "the same command resumes it"
                    )
        finally:
            progress.losses = losses[: progress.step].tolist()
            progress.seconds = before + time.perf_counter()
        self.end_epoch(losses.cpu())

    def step(self, batch: Tensor) -> Tensor:
        """Take one step.

        Args:
            batch: Indices of the global batch, on the device.

        Returns:
            The mean loss over the global batch, the same in every rank, still on the device.
        """
        progress, config = self.progress, self.config
        mine, weight = data.share(batch, self.world.rank, self.world.size)
        inputs, targets = self.dataset.train.inputs[mine], self.dataset.train.target[mine]
        inputs = self.augmentation.apply(inputs, mine)
        done = (progress.epoch - 1) * self.steps + progress.step
        self.seed_dropout(done)
        self.model.zero_grad(set_to_none=True)
        with processor.autocast(self.precision, self.world.device):
            outputs = self.gradients.forward(inputs)
        loss = self.gradients.backward(weight * self.objective.loss(outputs.float(), targets))
        if self.objective.longest_gradient:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.objective.longest_gradient)
        self.optimizer.step(learning_rate(config, done, self.steps))
        self.average.update(done + 1, last=progress.step + 1 == self.steps)
        return loss

    def seed_dropout(self, done: int) -> None:
        """Seed a step from (seed, step, rank), so that a resumed training draws the same
        dropout."""
        seed = ((self.config.seed * 1_000_003 + done) * 4099 + self.world.rank) % 2**63
        if self.world.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def report_pace(self) -> None:
        """Print once, some seconds after the first line of progress, how fast it is and what is
        left."""
        config, done, now = (
            self.config,
            (self.progress.epoch - 1) * self.steps + self.progress.step,
            time.perf_counter(),
        )
        if self.measured_from is None:
            self.measured_from = (
                now,
                done,
            )  # not at the very first step, which is slower than all others
            return
        start, before = self.measured_from
        if now - start >= ENOUGH:
            self.measured_from = math.inf, 0
            pace = (done - before) / (now - start)
            left = duration((config.epochs * self.steps - done) / pace)
            self.say(
                f"{PACE}{pace * self.batch_size:,.0f} items/s, epoch {self.progress.epoch} of {config.epochs}, "
                f"about {left} left"
            )

    def report_step(self, losses: Tensor) -> None:
        """Check that losses are finite and print a line of progress; nothing else in an epoch waits
        for a GPU."""
        progress, count = self.progress, len(self.dataset.train)
        self.require_finite_steps(losses[: progress.step])
        if self.world.rank == 0:
            seen, loss = (
                (progress.step - 1) * self.batch_size,
                losses[progress.step - 1].item(),
            )
            self.say(
                f"Train Epoch: {progress.epoch} [{seen}/{count} ({seen / count:.0%})]\ttrain_loss={loss:.4f}"
            )
            self.report_pace()

    def end_epoch(self, losses: Tensor) -> None:
        """Evaluate, keep the weights if they are to be kept, report, and move on to the next
        epoch."""
        progress, epoch = self.progress, self.progress.epoch
        self.require_finite_steps(losses)
        for module in dict.fromkeys(
            (self.model, self.average.model)
        ):  # in the same order in all ranks, unlike a set
            self.world.mean_buffers(module)
        validation, outputs = self.dataset.validation, self.dataset.task.outputs
        values = max(1, math.prod(self.dataset.task.info.shape))
        at_once = max(1, min(_EVALUATED, _EVALUATED * _SMALL_ITEM // values))
        kept = self.objective.room(len(validation), outputs, self.world.device)
        metrics = self.objective.evaluate(self.average.model, validation, at_once, self.world, kept)
        self.require_finite(metrics["loss"], f"the validation after epoch {epoch}")
        record = {
            "epoch": epoch,
            **metrics,
            "train_loss": losses.mean().item(),
            "seconds": round(progress.seconds, 3),
        }
        progress.history.append(record)
        if self.objective.is_better(record, progress.best):
            progress.best = record
        if self.outputs is not None:
            self.outputs.append(kept.cpu())
        keeps_last = self.config.keep == "last" and not self.config.patience
        if progress.best is record or keeps_last or self.until:
            progress.kept, progress.validated = record, kept.cpu()
            progress.weights = {
                name: tensor.cpu().clone()
                for name, tensor in self.average.model.state_dict().items()
            }
        if self.world.rank == 0:
            self.say(self.objective.line(metrics))
        progress.epoch, progress.step, progress.losses, progress.seconds = epoch + 1, 0, [], 0.0

    def require_finite_steps(self, losses: Tensor) -> None:
        """Raise Failed with the first step of the epoch whose loss is not finite."""
        bad = (~losses.isfinite()).nonzero().flatten().tolist()
        if bad:
            self.require_finite(
                losses[bad[0]].item(), f"step {bad[0] + 1} of epoch {self.progress.epoch}"
            )

    def require_finite(self, loss: float, where: str) -> None:
        """Raise Failed if a loss is not finite."""
        if not math.isfinite(loss):
            raise Failed(
                f"the loss must be finite, but is {loss} at {where} with --lr {self.config.lr:g}",
                "try a smaller --lr, or --precision fp32",
            )

    def kept_model(self) -> nn.Sequential:
        """Return the network with the kept weights, on the CPU and in evaluation mode."""
        model = self.average.model
        model.load_state_dict(self.progress.weights)
        return model.cpu().eval()
