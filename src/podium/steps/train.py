"""Train one model with a PyTorchJob or TrainJob, or with the kind of job that the trials were."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.data import artifact
from podium.data.given import GivenData
from podium.display.text import plural
from podium.errors import Denied, Failed, Unavailable
from podium.manifests.kinds import TRAINJOB
from podium.manifests.workload import Workload
from podium.system.interrupts import Terminated
from podium.training.base import say
from podium.training.follow import follow
from podium.training.identity import StepContext, object_name
from podium.training.kept_logs import KeptLogs, only_warned
from podium.training.settings import TrainingResult, TrainSettings
from podium.training.target import LaunchTarget, data_url, launched, say_kind

__all__ = ["LaunchTarget", "TrainSettings", "train"]


def train(
    step: StepContext, data: str, *, task: str, settings: TrainSettings, target: LaunchTarget
) -> TrainingResult:
    """Launch a job, stream its log, find its model.

    Args:
        data: URI of the dataset artifact.
        task: Tells this step from the run's others; equal on retry.
        target: Where and with what to run it.

    Raises:
        InvalidInput: A setting breaks a rule; nothing was started.
        Failed: The job failed, and the error holds the end of its log; or it wrote into the data it
            was given.
        NotFound: The job left no model.
    """
    run = step.run
    name = object_name("train", run.id, task)
    info = artifact.describe(data)
    settings = replace(settings, data_meaning=info.meaning)
    given_data = GivenData(data, run.resumed_as)
    with connect(target.cluster_url()) as cluster:
        data = data_url(data, step, cluster)
        planned = settings.plan(data, name, target=target, step=step, admits=cluster.admits)
        job, recipe = planned.job, planned.recipe
        if not target.code and planned.repeats_trial(info.digest):
            say(
                "the best trial was trained in the same way: its model is taken, and nothing is trained again"
            )
            return TrainingResult.of(recipe.model)
        say_kind(recipe.workload, job)
        with launched(cluster, job):
            say(_title(job))
            if not recipe.uses_builtin_trainer:
                say("epochs and seed are not passed on: the command is not podium's trainer")
            with _logs_kept(cluster, job, step):
                try:
                    epochs = follow(cluster, job.kind, name, recipe.metrics, recipe.formats)
                except Failed:
                    given_data.check(f"{job.kind} {name}")  # which may be why
                    raise
            given_data.check(f"{job.kind} {name}")
    return planned.result(epochs, target)


@contextmanager
def _logs_kept(cluster: Cluster, job: Workload, step: StepContext) -> Iterator[None]:
    """Keep the logs of a job's replicas when it has ended, well or not, unless there is no time or
    cluster to."""
    reachable = not cluster.traits.keeps_logs
    try:
        yield
    except (Terminated, Unavailable, Denied):
        reachable = False
        raise
    finally:
        if reachable:
            with only_warned("what the training prints"):
                folder = f"train/{step.run.step or job.name}"
                kept = KeptLogs(step.storage, step.run.id)
                kept.keep_replicas(cluster, job.kind, job.name, folder)


def _title(job: Workload) -> str:
    if job.kind == "Job":
        return f"Job {job.name}"
    if job.kind == TRAINJOB:
        return f"TrainJob {job.name}: {plural(job.nodes, 'node')}"
    return f"PyTorchJob {job.name}: 1 master, {plural(job.workers, 'worker')}"
