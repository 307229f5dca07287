"""Train one model: ``podium.train(data, epochs=3, workers=1)``."""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.api.experiments import uri as absolute
from podium.api.frames import data_frame
from podium.api.notebook import LiveCell, Log, in_notebook, say, table
from podium.api.place import Place
from podium.api.watching import follow
from podium.cluster.base import Cluster
from podium.documents import load_yaml, read_text
from podium.errors import InvalidInput, NotFound
from podium.heartbeat import doing
from podium.identity import RunIdentity, new_run_id, object_name
from podium.interrupts import signals_interrupt
from podium.manifests.kinds import JOB_KINDS, or_list
from podium.manifests.workload import Workload
from podium.settings import Settings
from podium.steps.launch import launched
from podium.steps.recipe import Recipe
from podium.steps.target import LaunchTarget
from podium.steps.train import PlannedTraining, Trained, TrainSettings, plan, read_metrics
from podium.terminal import figure

if TYPE_CHECKING:
    from pandas import DataFrame

    from podium.api.predictions import Predictions


class Training:
    """A finished training.

    Args:
        place: Where it ran.
        planned: Its job.
        trained: What it left.
        epochs: The metrics of each line of its log.
    """

    def __init__(
        self, place: Place, planned: PlannedTraining, trained: Trained, epochs: Sequence[Mapping[str, float]]
    ) -> None:
        self._place, self._planned = place, planned
        self.name, self.model, self.metrics = planned.job.name, trained.model, dict(trained.metrics)
        self._epochs = list(epochs)

    @property
    def job(self) -> Workload:
        """The job that trained, typed."""
        return self._planned.job

    @property
    def epochs(self) -> "DataFrame":
        """What it reported while it trained, a row for each epoch."""
        names = dict.fromkeys(name for epoch in self._epochs for name in epoch)
        return data_frame(self._epochs, list(names))

    def logs(self, replica: str | None = None) -> Log:
        """Return what a replica printed: ``master-0``, ``worker-1`` …; the one that reports metrics if None."""
        with self._place.open() as cluster:
            return Log("\n".join(cluster.logs(self.job.kind, self.name, replica)))

    def predict(self, items: Any, *, data: str | Path = "") -> "Predictions":
        """Predict new items, as ``ModelVersion.predict`` does."""
        from podium.api.predictions import open_model

        return open_model(self.model).predict(items, data=data)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {figure(value)}" for name, value in self.metrics.items())
        return f"<training {self.name}: {metrics or 'no metrics'}>"

    def _repr_html_(self) -> str:
        rows = [(name, figure(value)) for name, value in self.metrics.items()]
        return table(("METRIC", ">VALUE"), rows, title=f"{self.name}: {self.model}")


def train(
    data: str | Path | Any,
    *,
    command: Sequence[str] = (),
    job: str | Path | Mapping[str, Any] | None = None,
    workers: int = 0,
    gpus: int = 0,
    cluster: str | Path | None = None,
    storage: str | Path | None = None,
    image: str = "",
    **hyperparameters: Any,
) -> Training:
    """Train one model, also distributed over several processes or pods, and show its epochs as they come.

    Args:
        data: A dataset, or its directory or URI.
        command: The trainer; podium's own if empty. It gets ``--data``, ``--output`` and the hyperparameters.
        job: A Job, PyTorchJob or TrainJob instead: a file, or a manifest as a dict. Its command may hold
            ``${podium.data}`` and ``${podium.output}``, or read PODIUM_DATA and PODIUM_OUTPUT.
        workers: Processes beside the master; -1 leaves it to the job.
        gpus: Of each process; 0 trains on the CPU.
        cluster: ``kubernetes://NAMESPACE`` or a directory of this machine; the local cluster of PODIUM_HOME if None.
        storage: Directory or URI that keeps the model; ``$PODIUM_HOME/store`` on this machine if None.
        image: Of the pods, on Kubernetes.
        **hyperparameters: Flags of the trainer, for podium's own ``epochs=3, lr=0.5, model="fast"``.

    Raises:
        InvalidInput: A setting breaks a rule; nothing was started.
        Failed: The training failed.
        NotFound: It left no model.

    Example:
        >>> import podium
        >>> training = podium.train(dataset, epochs=1, model="fast", seed=1)
        >>> sorted(training.metrics)
        ['accuracy', 'epoch', 'loss']
    """
    place, run = Place.of(cluster), RunIdentity(id=new_run_id())
    kept = absolute(storage) if storage else "" if place.url.startswith("kubernetes:") else None
    target = LaunchTarget(
        trainer_image=image, cluster=place.url, gpus_per_worker=gpus,
        storage=Settings.from_environment().storage if kept is None else kept,
    )  # fmt: skip
    recipe = _recipe_of(job, hyperparameters) if job is not None else None
    settings = TrainSettings(
        recipe=recipe.to_text() if recipe else "", command=command, workers=workers,
        hyperparameters={} if recipe else hyperparameters,
    )  # fmt: skip
    uri = absolute(str(data))
    name = object_name("train", run.id, "train")
    with signals_interrupt(), place.open() as opened:
        uri = target.data_url(uri, run, opened)
        planned = plan(uri, name, settings=settings, target=target, run=run, admits=opened.admits)
        with launched(opened, planned.job):
            say(f"{planned.job.kind} {planned.job.name}, at {opened.url}")
            epochs = _follow(opened, planned)
    return Training(place, planned, planned.result(epochs, target), epochs)


def _recipe_of(job: str | Path | Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> Recipe:
    """Read a job's manifest.

    Raises:
        InvalidInput: It is not one job, or there are hyperparameters, which would have no place in it.
    """
    if isinstance(job, Mapping):
        documents: list[Any] = [dict(job)]
    elif Path(job).is_file():
        documents = load_yaml(read_text(Path(job)), str(job))
    else:
        raise InvalidInput(f"there is no file {job}", "the YAML of a job, or a manifest as a dict")
    kinds = [document.get("kind") if isinstance(document, Mapping) else None for document in documents]
    if len(documents) != 1 or kinds[0] not in JOB_KINDS:
        raise InvalidInput(
            f"a training is one {or_list([*JOB_KINDS])}, but got {kinds}", "podium.sweep runs Experiments"
        )
    if hyperparameters:
        given = ", ".join(hyperparameters)
        raise InvalidInput(f"a job has its hyperparameters in its command, but got {given}", "write them there")
    return Recipe.of_job(documents[0])


def _follow(cluster: Cluster, planned: PlannedTraining) -> list[dict[str, float]]:
    """Show each epoch until the job ends; return the metrics of all."""
    job, epochs = planned.job, list[dict[str, float]]()

    def look() -> None:
        lines: deque[str] = deque()
        with suppress(NotFound):
            lines.extend(cluster.logs(job.kind, job.name))
        seen = [
            values for line in lines if (values := read_metrics(line, planned.recipe.metrics, planned.recipe.formats))
        ]
        for number, values in enumerate(seen[len(epochs) :], len(epochs) + 1):
            epochs.append(values)
            if not in_notebook():
                say(f"epoch {number}: {' '.join(f'{name}={value:g}' for name, value in values.items())}")
        if in_notebook():
            cell.show(_table(job.name, epochs))

    with LiveCell() as cell, doing(lambda: f"{job.kind} {job.name}: {len(epochs)} epochs"):
        follow(cluster, [(job.kind, job.name)], look)
    if not cluster.resource(job.kind, job.name).state.succeeded:
        raise cluster.failure(job.kind, job.name)
    return epochs


def _table(name: str, epochs: Sequence[Mapping[str, float]]) -> str:
    metrics = list(dict.fromkeys(metric for epoch in epochs for metric in epoch))
    rows = [
        [str(number), *(figure(epoch[metric]) if metric in epoch else "" for metric in metrics)]
        for number, epoch in enumerate(epochs, 1)
    ]
    return table([">EPOCH", *(f">{metric}" for metric in metrics)], rows, title=name)
