"""Train one model with a PyTorchJob."""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.errors import Failed, PodiumError, require
from podium.identity import RunIdentity, current_run, object_name
from podium.manifests.experiment.adapt import decided
from podium.manifests.placement import Pods, place
from podium.manifests.pytorchjob import PyTorchJobSpec, build
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload
from podium.metrics import parse_line
from podium.steps.base import fetch_directory, say, step
from podium.steps.launch import launched
from podium.steps.origin import Origin
from podium.steps.places import cluster_url, model_url, storage_url
from podium.steps.trained import TrainedMetrics

TRAINER = ("python", "-m", "podium.trainer")
DEADLINE = 24 * 3600
"""Seconds after which a job ends by itself, whatever became of its step."""

KEPT = 7 * 24 * 3600
"""Seconds a finished job stays to be looked at."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training left."""

    metrics: dict[str, float]
    """accuracy, loss and epoch of the weights that were kept, on the validation part."""

    metadata: dict[str, Any]
    """What the model artifact says about itself."""


@step
def train(
    data: str,
    target: str | Path,
    *,
    task: str,
    hyperparameters: Mapping[str, Any],
    network: str = "",
    epochs: int = 0,
    workers: int = 1,
    gpus_per_worker: int = 0,
    seed: int = 0,
    storage: str = "",
    cluster: str = "",
    image: str,
    pods: Mapping[str, Any] | None = None,
) -> Trained:
    """Launch a PyTorchJob, stream its log, fetch its model.

    Args:
        data: URI of the dataset artifact.
        target: Directory for the model directory.
        task: Tells this step from others of the run, equal on retry.
        hyperparameters: Flags of the trainer without dashes.
        network: The trainer's ``--model``; empty leaves it to the hyperparameters.
        epochs: The trainer's ``--epochs``; 0 leaves it to the hyperparameters.
        workers: Beside the master.
        gpus_per_worker: Of each replica, master included.
        seed: The trainer's ``--seed``; 0 leaves it to the hyperparameters.
        storage: URL of the storage; empty for the bucket of data.
        cluster: URL of the cluster; empty for the one around this pod.
        image: Of every replica.
        pods: Settings of every replica's pod (podium.manifests.placement).

    Raises:
        InvalidInput: A value breaks a rule; nothing was started.
        Failed: The job failed; the error holds the end of its log.
    """
    require(epochs >= 0, "epochs >= 0", epochs=epochs)
    placement = Pods.read(pods or {})
    run = current_run()
    name = object_name("train", run.id, task)
    output = model_url(storage_url(storage, data), run, name)
    flags = {**hyperparameters, **decided(epochs=epochs, network=network, seed=seed, gpus=gpus_per_worker)}
    job = Workload.parse(build(
        PyTorchJobSpec(
            name=name, image=image, command=TRAINER, args=as_arguments({**flags, "data": data, "output": output}),
            workers=workers, gpus_per_worker=gpus_per_worker, labels=run.labels, owner=run.owner,
            # The trainer ends with 1 or 2 for good and with more than 128 where another attempt may go on.
            restart_policy="ExitCode", active_deadline_seconds=DEADLINE, ttl_seconds_after_finished=KEPT,
        )
    ))  # fmt: skip
    with connect(cluster_url(cluster)) as there, launched(there, place(job, placement)):
        say(f"PyTorchJob {name}: 1 master, {workers} worker{'' if workers == 1 else 's'}")
        follow(there, "PyTorchJob", name)
    fetch_directory(output, Path(target))
    return _trained(Path(target), name, run, output, flags)


def as_arguments(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Write flags as ``--name=value``, or ``--name`` for True and nothing for False."""
    written = {f"--{name.replace('_', '-')}": _whole(value) for name, value in flags.items() if value is not False}
    return tuple(name if value is True else f"{name}={value}" for name, value in written.items())


def _whole(value: Any) -> Any:
    """Undo what KFP does to a dict's numbers: 32 arrives as 32.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def follow(cluster: Cluster, kind: str, name: str) -> None:
    """Show the log of the replica that reports metrics until the job has ended.

    Raises:
        Failed: The job failed.
    """
    # The log may never begin (an image that cannot be pulled), so the end is watched apart from it.
    reader = threading.Thread(target=show_log, args=(cluster, kind, name), daemon=True)
    reader.start()
    state = cluster.resource(kind, name).state
    for manifest in cluster.watch(kind, name):
        state = Resource.parse(manifest).state
    reader.join(timeout=10)
    if not state.finished:
        raise Failed(f"{kind} {name} was deleted while it ran", "somebody else did; run the step again")
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
        # The step is judged by the job's state: a log that cannot be read is no failure.
        print(f"the log of {kind} {name} breaks off: {error.message}", file=sys.stderr, flush=True)


def _trained(target: Path, name: str, run: RunIdentity, output: str, hyperparameters: dict[str, Any]) -> Trained:
    trained = TrainedMetrics.read(target)
    origin = Origin(kind="training", name=name, run_id=run.id, uri=output, hyperparameters=hyperparameters)
    origin.write(target)
    best = {"accuracy": trained.accuracy, "loss": trained.loss, "epoch": trained.epoch}
    return Trained(metrics=best, metadata={"uri": output, "job": name, **best})
