"""What a job asks for is held against the quotas of its namespace before anything is launched."""

from typing import Any

import pytest
from api_server import World
from pytorchjobs import write_pytorchjob

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.queues import _quota_use, beyond_quotas
from podium.manifests.experiment import Experiment, customize
from podium.manifests.placement import Pods, place
from podium.manifests.workload import Workload


def training(**pods: Any) -> Workload:
    job = Workload.parse(
        write_pytorchjob(name="mnist", image="trainer", command=("python",), workers=2)
    )
    return place(job, Pods.read(pods))


def put_quota(
    world: World, name: str = "podium", used: dict[str, str] | None = None, **spec: Any
) -> None:
    world.plurals.add("resourcequotas")
    world.put(
        "resourcequotas",
        {"metadata": {"name": name}, "spec": spec, "status": {"hard": spec["hard"], "used": used}},
    )


def test_every_replica_counts_with_what_it_asks_for() -> None:
    used = _quota_use(training(cpu="500m", memory="1Gi"))
    assert used["requests.cpu"] == used["cpu"] == 1.5
    assert used["requests.memory"] == 3 * 2**30
    assert used["pods"] == 3
    assert used["count/pytorchjobs.kubeflow.org"] == 1


def test_what_nobody_asks_for_counts_with_podiums_defaults() -> None:
    assert _quota_use(training())["requests.cpu"] == 0.75


def test_trials_count_as_often_as_they_run_at_once() -> None:
    used = _quota_use(customize(Experiment.load("random-job"), parallel_trials=4, max_trials=8))
    assert used["pods"] == used["count/jobs.batch"] == 4
    assert used["requests.cpu"] == 1
    assert used["count/experiments.kubeflow.org"] == 1


@pytest.mark.parametrize(
    ("hard", "used", "said"),
    [
        ({"requests.cpu": "1"}, {}, ["asks for 1.5 of requests.cpu, but quota podium of namespace team has 1, 0 in use"]),
        ({"requests.cpu": "2", "pods": "3"}, {"requests.cpu": "1500m", "pods": "1"}, [
            "asks for 1.5 of requests.cpu, but quota podium of namespace team has 2, 1500m in use",
            "asks for 3 of pods, but quota podium of namespace team has 3, 1 in use",
        ]),
        ({"memory": "2Gi"}, {}, ["asks for 3072Mi of memory, but quota podium of namespace team has 2Gi, 0 in use"]),
        ({"requests.cpu": "1500m", "requests.nvidia.com/gpu": "0"}, {}, []),
        ({"requests.cpu": "1640m"}, {"requests.cpu": "140m"}, []),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(
    world: World, hard: dict[str, str], used: dict[str, str], said: list[str]
) -> None:
    put_quota(world, hard=hard, used=used)
    with KubernetesCluster("kubernetes://team") as team:
        assert list(beyond_quotas(team.api, training(cpu="500m", memory="1Gi"))) == said


def test_a_quota_for_some_pods_only_is_left_out(world: World) -> None:
    put_quota(world, hard={"pods": "0"}, scopes=["BestEffort"])
    with KubernetesCluster("kubernetes://team") as team:
        assert list(beyond_quotas(team.api, training())) == []
