"""Train one model with a PyTorchJob."""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.errors import Failed, PodiumError
from podium.identity import RunIdentity, current_run, object_name
from podium.manifests.experiment.adapt import decided
from podium.manifests.pytorchjob import PyTorchJobSpec, build
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload
from podium.metrics import parse_line
from podium.steps.base import require_at_least, require_seed, say, step
from podium.steps.launch import launched
from podium.steps.origin import Origin
from podium.steps.target import LaunchTarget
from podium.steps.trained import TrainedMetrics

TRAINER = ("python", "-m", "podium.trainer")
DEADLINE = 24 * 3600
"""Deadline of a job in seconds, in case its step cannot end it."""

KEPT = 7 * 24 * 3600
"""Seconds for which a finished job is kept."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What a training job runs; fields are named as in the pipelines."""

    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Flags of the trainer without the dashes, and their values."""

    network: str = ""
    """The trainer's ``--model``; empty leaves it to the hyperparameters."""

    epochs: int = 0
    """The trainer's ``--epochs``; 0 leaves it to the hyperparameters."""

    workers: int = 1
    """Workers besides the master."""

    seed: int = 0
    """The trainer's ``--seed``; 0 leaves it to the hyperparameters."""

    def __post_init__(self) -> None:
        require_at_least(self, epochs=0, workers=0)
        require_seed(self.seed)

    def flags(self, gpus: int) -> dict[str, Any]:
        """Return the trainer's flags for replicas with this many GPUs, without those for data and output."""
        fixed = decided(epochs=self.epochs, network=self.network, seed=self.seed, gpus=gpus)
        return {**self.hyperparameters, **fixed}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Result of a training job."""

    model: str
    """URI of the model directory."""

    metrics: dict[str, float]
    """accuracy, loss and epoch of the weights that were kept, on the validation part."""


@step
def train(data: str, *, task: str, settings: TrainSettings, target: LaunchTarget) -> Trained:
    """Launch a PyTorchJob, stream its log, find its model.

    Args:
        data: URI of the dataset artifact.
        task: Tells this step from the run's others; equal on retry.
        settings: What to run.
        target: Where and with what to run it.

    Raises:
        InvalidInput: A setting breaks a rule; nothing was started.
        Failed: The job failed; the error holds the end of its log.
    """
    run = current_run()
    name = object_name("train", run.id, task)
    output = target.model_url(data, run, name)
    flags = settings.flags(target.gpus_per_worker)
    workers = settings.workers
    job = Workload.parse(build(
        PyTorchJobSpec(
            name=name, image=target.trainer_image, command=TRAINER, workers=workers,
            args=as_arguments({**flags, "data": data, "output": output}),
            gpus_per_worker=target.gpus_per_worker, labels=run.labels, owner=run.owner,
            # The trainer exits with 1 or 2 for good, and with more than 128 where another attempt may succeed.
            restart_policy="ExitCode", active_deadline_seconds=DEADLINE, ttl_seconds_after_finished=KEPT,
        )
    ))  # fmt: skip
    with connect(target.cluster_url()) as cluster, launched(cluster, target.place(job)):
        say(f"PyTorchJob {name}: 1 master, {workers} worker{'' if workers == 1 else 's'}")
        follow(cluster, "PyTorchJob", name)
    return _trained(name, run, output, flags)


def as_arguments(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Write flags as ``--name=value``, or ``--name`` for True and nothing for False."""
    written = {f"--{name.replace('_', '-')}": _whole(value) for name, value in flags.items() if value is not False}
    return tuple(name if value is True else f"{name}={value}" for name, value in written.items())


def _whole(value: Any) -> Any:
    """Undo what KFP does to a dict's numbers: 32 arrives as 32.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def follow(cluster: Cluster, kind: str, name: str) -> None:
    """Show the log of the replica that reports metrics until the job ends.

    Raises:
        Failed: The job failed.
    """
    # The log may never begin (an image that cannot be pulled), so the job's end is watched separately.
    reader = threading.Thread(target=show_log, args=(cluster, kind, name), daemon=True)
    reader.start()
    state = cluster.resource(kind, name).state
    for manifest in cluster.watch(kind, name):
        state = Resource.parse(manifest).state
    reader.join(timeout=10)
    if not state.finished:
        raise Failed(f"somebody deleted {kind} {name} while it ran", "run the step again")
    if not state.succeeded:
        raise cluster.failure(kind, name)


def show_log(cluster: Cluster, kind: str, name: str) -> None:
    """Print the log of the replica that reports metrics as it comes, each epoch as progress."""
    epoch = 0
    try:
        for line in cluster.logs(kind, name, follow=True):
            if parse_line(line, ("accuracy",)):
                epoch += 1
                say(f"epoch {epoch}: {line.partition(' ')[2]}")
            else:
                print(line, flush=True)
    except PodiumError as error:
        # Only the job's state decides whether the step failed.
        print(f"the log of {kind} {name} breaks off: {error.message}", file=sys.stderr, flush=True)


def _trained(name: str, run: RunIdentity, output: str, hyperparameters: dict[str, Any]) -> Trained:
    trained = TrainedMetrics.read(output)
    Origin(kind="training", name=name, run_id=run.id, uri=output, hyperparameters=hyperparameters).write()
    best = {"accuracy": trained.accuracy, "loss": trained.loss, "epoch": trained.epoch}
    return Trained(model=output, metrics=best)
