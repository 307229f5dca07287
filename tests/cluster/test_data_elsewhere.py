"""Launched jobs find the dataset, wherever they run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from api_server import World

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.data.artifact import describe, test_uri as home_of_test_part
from podium.errors import PodiumError
from podium.storage import connect
from podium.training.identity import RunIdentity, StepContext
from podium.training.target import data_url

RUN = RunIdentity(id="20260102-030405-1a2b")


@pytest.fixture
def bucket(new_bucket: Callable[[str], str]) -> str:
    return new_bucket("moto")


@pytest.fixture
def team(world: World) -> KubernetesCluster:
    return KubernetesCluster("kubernetes://team")


def test_pods_read_a_copy_of_this_machines_data(
    bucket: str, team: KubernetesCluster, tiny_dataset: Path
) -> None:
    step = StepContext.of(RUN, bucket)
    copied = data_url(str(tiny_dataset), step, team)
    assert copied == f"{bucket}/runs/{RUN.id}/data"
    assert describe(copied).digest == describe(tiny_dataset).digest
    test_part = list(connect(home_of_test_part(copied)).list())
    assert not test_part, "who trains does not need it"
    assert data_url(str(tiny_dataset), step, team) == copied  # as a resumed run asks again
    assert data_url(copied, step, team) == copied


def test_pods_cannot_use_a_storage_of_this_machine(
    team: KubernetesCluster, tiny_dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        PodiumError, match=r"the pods of kubernetes://team cannot read .* on this machine"
    ) as refused:
        data_url(str(tiny_dataset), StepContext.of(RUN, f"file://{tmp_path}/store"), team)
    assert refused.value.hint.startswith("storage=s3://")
    assert not (tmp_path / "store").exists()
