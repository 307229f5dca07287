"""The kind of job that something runs as: chosen, and the same container in each kind."""

from typing import Any

import pytest
from pytorchjobs import write_pytorchjob
from trainjobs import trainjob

from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.source import bundled
from podium.manifests.job_kinds import (
    CHOICES,
    as_kind,
    choose_kind,
    job_manifest,
    trials_as,
    with_workers,
)
from podium.manifests.workload import Workload

COMMAND = ("python", "-m", "podium.trainer", "--lr=0.1")


def a_job(kind: str) -> tuple[Workload, str]:
    """Return a job of one pod of each kind, and its container."""
    if kind == "TrainJob":
        spec: Any = {"name": "a", "numNodes": 1, "image": "i", "command": list(COMMAND), "args": []}
        return Workload.parse(trainjob(**spec)), "node"
    if kind == "PyTorchJob":
        return Workload.parse(write_pytorchjob(name="a", image="i", command=COMMAND)), "pytorch"
    named: Any = {
        "labels": {},
        "owner": None,
        "active_deadline_seconds": 60,
        "ttl_seconds_after_finished": 60,
    }
    return Workload.parse(job_manifest("a", image="i", command=COMMAND, **named)), "main"


@pytest.mark.parametrize("own", CHOICES.values())
@pytest.mark.parametrize("kind", CHOICES.values())
def test_each_kind_runs_the_same_container_as_each_other(own: str, kind: str) -> None:
    job, container = as_kind(*a_job(own), kind)
    assert job.kind == kind
    ((replica, body),) = job.containers()
    assert (body.name, body.image, body.words, replica.count) == (container, "i", COMMAND, 1)
    assert job.name == "a"
    admit(job.manifest)


@pytest.mark.parametrize(
    ("own", "kind"), [("PyTorchJob", "TrainJob"), ("TrainJob", "PyTorchJob"), ("Job", "TrainJob")]
)
def test_workers_stay_with_the_kind(own: str, kind: str) -> None:
    job, container = as_kind(*with_workers(*a_job(own), 2), kind)
    assert (job.workers, job.pod_count, container) == (
        2,
        3,
        {"TrainJob": "node", "PyTorchJob": "pytorch"}[kind],
    )
    admit(job.manifest)


def test_podiums_trainer_needs_no_torchrun_and_others_do() -> None:
    def words(command: tuple[str, ...]) -> tuple[str, ...]:
        job = Workload.parse(write_pytorchjob(name="a", image="i", command=command, workers=1))
        rewritten, _ = as_kind(job, "pytorch", "TrainJob")
        assert rewritten.processes_per_replica == 1
        return next(container.words for _, container in rewritten.containers())

    assert words(COMMAND) == COMMAND
    assert words(("python", "train.py")) == ("torchrun", "train.py")


def test_a_job_with_workers_cannot_be_a_job() -> None:
    with pytest.raises(InvalidInput, match="a Job has no workers"):
        as_kind(*with_workers(*a_job("PyTorchJob"), 1), "Job")


def test_a_job_of_several_pods_loses_none_of_them() -> None:
    job, container = a_job("Job")
    several = {"parallelism": 3, "completions": 3, "completionMode": "Indexed"}
    indexed = Workload.parse({**job.manifest, "spec": {**job.spec, **several}})
    assert as_kind(indexed, container, "TrainJob")[0].pod_count == 3
    with pytest.raises(InvalidInput, match="has 3 pods"):
        as_kind(indexed, container, "PyTorchJob")


def test_another_kind_runs_as_itself_only() -> None:
    tfjob = Workload.parse({"kind": "TFJob", "spec": {}})
    assert as_kind(tfjob, "tensorflow", "TFJob") == (tfjob, "tensorflow")
    with pytest.raises(InvalidInput, match="a TFJob cannot run as a TrainJob"):
        as_kind(tfjob, "tensorflow", "TrainJob")


@pytest.mark.parametrize(
    ("own", "workers", "served", "kind"),
    [
        ("PyTorchJob", 1, {"PyTorchJob", "TrainJob"}, "PyTorchJob"),
        ("TrainJob", 0, {"PyTorchJob", "TrainJob"}, "TrainJob"),
        ("TrainJob", 1, {"PyTorchJob"}, "PyTorchJob"),
        ("PyTorchJob", 0, {"TrainJob"}, "TrainJob"),
        ("Job", 0, {"TrainJob"}, "Job"),
        ("Job", 1, {"TrainJob"}, "TrainJob"),
        ("Job", 1, {"PyTorchJob", "TrainJob"}, "PyTorchJob"),
        ("PyTorchJob", 1, set(), "TrainJob"),
    ],
)
def test_auto_takes_the_own_kind_where_it_is_served(
    own: str, workers: int, served: set[str], kind: str
) -> None:
    assert choose_kind(own, "auto", workers, lambda asked, _: asked in served) == kind


@pytest.mark.parametrize("name", bundled())
@pytest.mark.parametrize("kind", CHOICES.values())
def test_trials_of_every_bundled_experiment_run_as_each_kind(name: str, kind: str) -> None:
    experiment = Experiment.load(name)
    changed = trials_as(experiment, kind, 0)
    check(changed)
    assert changed.template.workload.kind == kind
    _, before = experiment.template.primary_containers()[0]
    replica, container = changed.template.primary_containers()[0]
    assert (container.words, container.image) == (before.words, before.image)
    assert changed.template.is_primary(replica)
    assert len(changed.wrapped_containers()) == 1


def test_an_experiment_of_another_kind_stays_as_it_is() -> None:
    experiment = Experiment.load("random")
    assert trials_as(experiment, "PyTorchJob", 0) is experiment
