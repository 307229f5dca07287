"""job_kind=auto in a namespace that enforces Pod Security "restricted"."""

import pytest
from api_server import World

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import InvalidInput
from podium.manifests.pod_security import ENFORCE
from podium.manifests.workload import Workload
from podium.training.identity import RunIdentity, StepContext
from podium.training.settings import SweepSettings, TrainSettings
from podium.training.target import LaunchTarget

RUN = RunIdentity(id="20260102-030405-1a2b")
TARGET, STEP = LaunchTarget(), StepContext.of(RUN, "s3://models")


def training(cluster: KubernetesCluster, workers: int, job_kind: str = "auto") -> Workload:
    settings = TrainSettings(workers=workers, job_kind=job_kind)
    return settings.plan(
        "s3://data", "train-1", target=TARGET, step=STEP, admits=cluster.admits
    ).job


def trials(cluster: KubernetesCluster, workers: int) -> Workload:
    settings = SweepSettings(
        experiment="random", max_trials=2, parallel_trials=1, trial_workers=workers
    )
    return settings.adapt(TARGET, name="sweep-1", run=RUN, admits=cluster.admits).template.workload


@pytest.fixture
def restricted(world: World) -> World:
    world.labels[ENFORCE] = "restricted"
    return world


def test_workers_train_in_a_trainjob_where_restricted(
    restricted: World, cluster: KubernetesCluster
) -> None:
    job = training(cluster, workers=1)
    assert (job.kind, job.nodes) == ("TrainJob", 2)
    assert trials(cluster, workers=1).kind == "TrainJob"
    cluster.create(job)
    assert ("trainjobs", "train-1") in restricted.objects


def test_a_master_alone_stays_a_pytorchjob_where_restricted(
    restricted: World, cluster: KubernetesCluster
) -> None:
    assert training(cluster, workers=0).kind == "PyTorchJob"
    assert trials(cluster, workers=0).kind == "PyTorchJob"


def test_workers_that_no_kind_may_have_are_refused(
    restricted: World, cluster: KubernetesCluster
) -> None:
    restricted.plurals.remove("trainjobs")
    with pytest.raises(
        InvalidInput, match=r'Pod Security "restricted" refuses .* workers=1'
    ) as refused:
        training(cluster, workers=1)
    assert "install Kubeflow Trainer" in str(refused.value.hint)
    assert "job_kind=pytorchjob" in str(refused.value.hint)
    with pytest.raises(InvalidInput, match="workers=2"):
        trials(cluster, workers=2)
    assert not restricted.objects


def test_a_kind_that_is_asked_for_is_launched(
    restricted: World, cluster: KubernetesCluster
) -> None:
    assert training(cluster, workers=1, job_kind="pytorchjob").kind == "PyTorchJob"


@pytest.mark.parametrize("level", ["baseline", "privileged"])
def test_other_levels_take_a_pytorchjobs_workers(
    level: str, world: World, cluster: KubernetesCluster
) -> None:
    world.labels[ENFORCE] = level
    assert training(cluster, workers=1).kind == "PyTorchJob"


def test_a_namespace_that_may_not_be_read_takes_workers(
    restricted: World, cluster: KubernetesCluster
) -> None:
    restricted.forbidden.add("namespaces")
    assert training(cluster, workers=1).kind == "PyTorchJob"
