"""Train one model with a PyTorchJob or TrainJob, or with the kind of job that the trials were."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.data import artifact
from podium.errors import Denied, InvalidInput, Unavailable
from podium.identity import RunIdentity, current_run, object_name
from podium.interrupts import Terminated
from podium.manifests.experiment.adapt import decided
from podium.manifests.experiment.shell import is_shell
from podium.manifests.experiment.source import QUICKEST, quickest
from podium.manifests.experiment.trainer import DATA, NAME, OUTPUT, is_podium
from podium.manifests.job_kinds import AUTO, Admits, admits_all, check_choice
from podium.manifests.kinds import TRAINJOB
from podium.manifests.workload import Workload
from podium.steps.base import require_at_least, require_seed, say
from podium.steps.follow import follow
from podium.steps.kept_logs import KeptLogs, keep_replicas, only_warned
from podium.steps.launch import launched
from podium.steps.model_directory import require_model
from podium.steps.origin import Origin
from podium.steps.recipe import TRAINER, Recipe
from podium.steps.step import step
from podium.steps.target import LaunchTarget, local_path, say_kind, storage_url
from podium.steps.trained import TrainedMetrics


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What a training job runs; fields are named as in the pipelines."""

    recipe: str = ""
    """How the best trial was trained, as the sweep wrote it; empty runs the command."""

    command: Sequence[str] = ()
    """Command of the trainer where there is no recipe; none is podium's own."""

    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Flags of the command without the dashes, and their values."""

    network: str = ""
    """``--model`` of podium's trainer; empty leaves it to recipe or hyperparameters, else it is the unnamed one."""

    unnamed: str = QUICKEST
    """``--model`` where nobody names one, see with_data."""

    epochs: int = 0
    """``--epochs`` of podium's trainer; 0 leaves it to the hyperparameters."""

    workers: int = -1
    """Workers besides the master; -1 takes 1 for podium's trainer, for another as many as its trials have."""

    seed: int = 0
    """``--seed`` of podium's trainer; 0 leaves it to the hyperparameters."""

    job_kind: str = AUTO
    """What it is launched as: auto, pytorchjob, trainjob or job, see podium.manifests.job_kinds."""

    def __post_init__(self) -> None:
        require_at_least(self, epochs=0, workers=-1)
        check_choice(self.job_kind, self.workers)
        require_seed(self.seed)
        if not all(isinstance(word, str) for word in self.command):
            raise InvalidInput(f"command is a list of words, but got {self.command!r}", '["python", "train.py"]')
        if self.hyperparameters and is_shell(self.command):
            hint = "write them into the command, or train with a sweep"
            raise InvalidInput(f"a shell takes no hyperparameters, but got {dict(self.hyperparameters)}", hint)
        if not self.recipe:
            self.refuse_network(self.command or TRAINER)

    def refuse_network(self, words: Sequence[str]) -> None:
        """Refuse a network for a trainer that is not podium's.

        Raises:
            InvalidInput: A network is given.
        """
        if self.network and not is_podium(words):
            problem = f"network={self.network} is for podium's trainer, but the command is {' '.join(words):.80}"
            raise InvalidInput(problem, "make it a parameter of the Experiment or a word of the command")

    def read_recipe(self) -> Recipe:
        """Return what is trained.

        Raises:
            InvalidInput: The recipe is not readable, or a network is given for a trainer that takes none.
        """
        if not self.recipe:
            return Recipe.of_command(self.command or TRAINER, self.hyperparameters)
        recipe = Recipe.parse(self.recipe)
        self.refuse_network(recipe.command)
        return recipe

    @property
    def names_network(self) -> bool:
        """Whether somebody chose the network."""
        return bool(self.network or self.recipe or self.command or "model" in self.hyperparameters)

    def with_data(self, meaning: str) -> "TrainSettings":
        """Return the settings for data whose input is an image, a table or an array."""
        return replace(self, unnamed=quickest(meaning))

    def fixed(self, gpus: int) -> dict[str, Any]:
        """Return the flags of podium's trainer that the run decides, for replicas with this many GPUs."""
        network = self.network if self.names_network else self.unnamed
        return decided(epochs=self.epochs, network=network, seed=self.seed, gpus=gpus)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Result of a training job."""

    model: str
    """URI of the model directory."""

    metrics: dict[str, float]
    """What the trainer measured on the validation part, with the weights that were kept."""


@step
def train(data: str, *, task: str, settings: TrainSettings, target: LaunchTarget) -> Trained:
    """Launch a job, stream its log, find its model.

    Args:
        data: URI of the dataset artifact.
        task: Tells this step from the run's others; equal on retry.
        target: Where and with what to run it.

    Raises:
        InvalidInput: A setting breaks a rule; nothing was started.
        Failed: The job failed; the error holds the end of its log.
        NotFound: The job left no model.
    """
    run = current_run()
    name = object_name("train", run.id, task)
    if not settings.names_network:
        settings = settings.with_data(artifact.describe(data).meaning)
    with connect(target.cluster_url()) as cluster:
        data = target.data_url(data, run, cluster)
        planned = plan(data, name, settings=settings, target=target, run=run, admits=cluster.admits)
        job, recipe = planned.job, planned.recipe
        say_kind(recipe.workload, job)
        with launched(cluster, job):
            say(_title(job))
            if not recipe.is_podiums:
                say("epochs and seed are not passed on: the command is not podium's trainer")
            with _logs_kept(cluster, job, storage_url(target.storage, data), run):
                epochs = follow(cluster, job.kind, name, recipe.metrics, recipe.formats)
    return planned.result(epochs, target)


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """A training before it is launched."""

    job: Workload
    recipe: Recipe

    output: str
    """URI of the model directory."""

    hyperparameters: dict[str, Any]
    run: RunIdentity

    def result(self, epochs: Sequence[Mapping[str, float]], target: LaunchTarget) -> Trained:
        """Return what the job left, once it has succeeded, and record where it comes from.

        Args:
            epochs: The metrics of each line of its log.
            target: Where and with what it ran.

        Raises:
            NotFound: The job left no model.
        """
        require_model(self.output)
        trained = TrainedMetrics.read(self.output)
        if not trained.metrics and epochs:
            TrainedMetrics.write(self.output, epochs)
            trained = TrainedMetrics.read(self.output)
        image = next(iter(self.job.images), "")
        Origin(kind="training", name=self.job.name, run_id=self.run.id, uri=self.output,
               hyperparameters=self.hyperparameters, image=image, code=target.code,
               install_requirements=target.install_requirements).write()  # fmt: skip
        epoch = {} if trained.epoch is None else {"epoch": float(trained.epoch)}
        return Trained(model=self.output, metrics={**trained.metrics, **epoch})


def plan(
    data: str, name: str, *, settings: TrainSettings, target: LaunchTarget, run: RunIdentity,
    admits: Admits = admits_all,
) -> PlannedTraining:  # fmt: skip
    """Return the job that trains, and what is known of it.

    Args:
        data: URI of the dataset artifact.
        target: Where and with what to run it.
        run: The run it belongs to.

    Raises:
        InvalidInput: A setting breaks a rule.
    """
    output = target.model_url(data, run, name)
    recipe, fixed = settings.read_recipe(), settings.fixed(target.gpus_per_worker)
    values = {DATA: local_path(data), OUTPUT: local_path(output), NAME: name}
    job = recipe.job(
        target, workers=settings.workers, fixed=fixed, values=values, run=run, job_kind=settings.job_kind, admits=admits
    )
    given = {**recipe.hyperparameters, **(fixed if recipe.is_podiums else {})}
    return PlannedTraining(job=job, recipe=recipe, output=output, hyperparameters=given, run=run)


@contextmanager
def _logs_kept(cluster: Cluster, job: Workload, storage: str, run: RunIdentity) -> Iterator[None]:
    """Keep the logs of a job's replicas when it has ended, well or not, unless there is no time or cluster to."""
    reachable = not cluster.traits.keeps_logs
    try:
        yield
    except (Terminated, Unavailable, Denied):
        reachable = False
        raise
    finally:
        if reachable:
            with only_warned("what the training prints"):
                folder = f"train/{run.step or job.name}"
                keep_replicas(cluster, job.kind, job.name, KeptLogs(storage, run.id), folder)


def _title(job: Workload) -> str:
    if job.kind == "Job":
        return f"Job {job.name}"
    if job.kind == TRAINJOB:
        return f"TrainJob {job.name}: {job.nodes} node{'' if job.nodes == 1 else 's'}"
    return f"PyTorchJob {job.name}: 1 master, {job.workers} worker{'' if job.workers == 1 else 's'}"
