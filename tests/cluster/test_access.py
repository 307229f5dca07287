"""Pods reach the object store by reference: no manifest holds a key."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from api_server import World
from pytorchjobs import write_pytorchjob

from podium.cluster.kubernetes import store_access as access
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.store_access import (
    Access,
    AccessByReference,
    grant_access,
    take_access,
)
from podium.errors import InvalidInput, PodiumError
from podium.manifests.experiment import Experiment
from podium.manifests.labels import RUN_NAMESPACE
from podium.manifests.workload import Workload
from podium.system import pod
from podium.training.target import launched

STORE = Access(endpoint="http://store:9000", secret="keys")


@pytest.fixture
def in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> World:
    """A pod of namespace team; no credentials of its own."""
    (tmp_path / "namespace").write_text("team")
    monkeypatch.setattr(pod, "SERVICE_ACCOUNT", tmp_path)
    for name in access.OWN_CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    world.plurals.add("configmaps")
    return world


def test_a_step_takes_the_stores_address_and_the_secrets_name(in_pod: World) -> None:
    in_pod.put(
        "configmaps",
        {
            "metadata": {"name": "podium-storage"},
            "data": {"endpoint": "http://store:9000", "secret": "keys"},
        },
    )
    environ: dict[str, str] = {}
    take_access(environ)
    assert environ == {
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "us-east-1",
        "PODIUM_S3_SECRET": "keys",
    }


def test_the_account_of_a_team_brings_its_store_and_namespace(
    in_pod: World, tmp_path: Path
) -> None:
    payload = urlsafe_b64encode(
        json.dumps({"sub": "system:serviceaccount:kubeflow:podium-steps-vision"}).encode()
    )
    (tmp_path / "token").write_text(f"e30.{payload.decode().rstrip('=')}.signature")
    data = {"endpoint": "http://store:9000", "secret": "keys", "storage": "s3://podium/vision"}
    in_pod.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    environ: dict[str, str] = {}
    take_access(environ)
    assert in_pod.requests == ["GET /api/v1/namespaces/vision/configmaps/podium-storage"]
    assert environ == {
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "us-east-1",
        "PODIUM_S3_SECRET": "vision/keys",
        "PODIUM_STORAGE": "s3://podium/vision",
        "PODIUM_CLUSTER": "kubernetes://vision",
    }


def test_any_other_account_has_no_team(in_pod: World, tmp_path: Path) -> None:
    payload = urlsafe_b64encode(
        json.dumps({"sub": "system:serviceaccount:kubeflow:podium-steps"}).encode()
    )
    (tmp_path / "token").write_text(f"e30.{payload.decode().rstrip('=')}.signature")
    assert pod.team_namespace() is None


def test_jobs_in_another_namespace_use_its_own_store(in_pod: World) -> None:
    data = {"endpoint": "http://store.team:9000", "secret": "theirs"}
    in_pod.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    job = Workload.parse(write_pytorchjob(name="mnist", image="trainer", command=("python",)))
    with KubernetesCluster("kubernetes://fenced") as fenced, launched(fenced, job):
        asked = [path for path in in_pod.requests if "configmaps" in path]
    assert asked == ["GET /api/v1/namespaces/fenced/configmaps/podium-storage"]
    env = in_pod.objects["pytorchjobs", "mnist"]["spec"]["pytorchReplicaSpecs"]["Master"][
        "template"
    ]["spec"]
    given = {entry["name"]: entry for entry in env["containers"][0]["env"]}
    assert given["AWS_ENDPOINT_URL"]["value"] == "http://store.team:9000"
    assert given["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "theirs"


def test_jobs_launched_from_a_laptop_reach_the_namespaces_store(world: World) -> None:
    world.plurals.add("configmaps")
    data = {"endpoint": "http://store.team:9000", "secret": "theirs"}
    world.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    for words, reaches in (
        (("train", "--data=s3://bucket/mnist"), True),
        (("train", "--data=/data"), False),
    ):
        job = Workload.parse(write_pytorchjob(name="mnist", image="trainer", command=words))
        with KubernetesCluster("kubernetes://team") as team, launched(team, job):
            master = world.objects["pytorchjobs", "mnist"]["spec"]["pytorchReplicaSpecs"]["Master"][
                "template"
            ]
            env = master["spec"]["containers"][0].get("env", [])
            assert ("AWS_ENDPOINT_URL" in {entry["name"] for entry in env}) is reaches
            team.delete("PyTorchJob", "mnist")


def test_jobs_in_another_namespace_have_no_owner_there(in_pod: World) -> None:
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "run", "uid": "1"}
    job = Workload.parse(
        write_pytorchjob(name="mnist", image="trainer", command=("python",), owner=owner)
    )
    for url in ("kubernetes://fenced", "kubernetes://team"):
        with KubernetesCluster(url) as namespace, launched(namespace, job):
            made = in_pod.objects["pytorchjobs", "mnist"]["metadata"]
            elsewhere = url == "kubernetes://fenced"
            assert ("ownerReferences" in made) is not elsewhere
            assert made["annotations"][RUN_NAMESPACE] == "team"
            namespace.delete("PyTorchJob", "mnist")


def test_credentials_of_ones_own_win(in_pod: World) -> None:
    own = {"AWS_ACCESS_KEY_ID": "mine", "AWS_ENDPOINT_URL_S3": "http://mine:9000"}
    environ = dict(own)
    take_access(environ)
    assert environ == own
    assert not in_pod.requests


def test_credentials_without_an_address_are_used_with_the_clusters(in_pod: World) -> None:
    in_pod.put(
        "configmaps",
        {
            "metadata": {"name": "podium-storage"},
            "data": {"endpoint": "http://store:9000", "secret": "keys"},
        },
    )
    environ = {"AWS_ACCESS_KEY_ID": "mine"}
    take_access(environ)
    assert environ == {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "us-east-1",
    }


@pytest.mark.parametrize("data", [None, {"secret": "keys"}])
def test_a_config_map_without_an_address_is_refused(
    in_pod: World, data: dict[str, str] | None
) -> None:
    in_pod.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    with pytest.raises(InvalidInput, match="podium-storage in namespace team has no endpoint"):
        Access.find()


def test_without_a_secret_the_pods_identity_opens_the_store(in_pod: World) -> None:
    data = {"endpoint": "http://store:9000"}
    in_pod.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    environ: dict[str, str] = {}
    take_access(environ)
    assert environ == {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_REGION": "us-east-1"}
    assert [entry["name"] for entry in Access.find().env()] == [*environ]


def test_without_the_config_map_nothing_is_taken(in_pod: World) -> None:
    assert Access.find() is None


def test_an_unreadable_config_map_is_an_error(in_pod: World) -> None:
    in_pod.refusals = [
        (403, {"kind": "Status", "message": 'configmaps "podium-storage" is forbidden'})
    ]
    with pytest.raises(PodiumError, match="lacks a right"):
        Access.find()


def test_outside_of_a_pod_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pod, "SERVICE_ACCOUNT", tmp_path / "none")
    assert Access.find() is None


def test_every_replica_gets_references_and_no_value() -> None:
    job = write_pytorchjob(name="mnist", image="trainer", command=("python",), workers=2)
    granted = grant_access(Workload.parse(job), STORE).manifest
    for replica in granted["spec"]["pytorchReplicaSpecs"].values():
        env = {
            variable["name"]: variable
            for variable in replica["template"]["spec"]["containers"][0]["env"]
        }
        assert env["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"] == {
            "name": "keys",
            "key": "secretkey",
        }
        assert "value" not in env["AWS_ACCESS_KEY_ID"]
    assert "AWS_ACCESS_KEY_ID" not in json.dumps(job)


def test_trial_templates_get_credentials_and_containers_keep_their_own() -> None:
    own = [{"name": "AWS_ACCESS_KEY_ID", "value": "theirs"}]
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", "env": own}]}}
    trial = {"kind": "Job", "spec": {"template": pod}}
    granted = grant_access(
        Experiment.parse({"spec": {"trialTemplate": {"trialSpec": trial}}}), STORE
    )
    first, second = granted.template.workload.replicas[0].pod.containers
    assert len(first.env) == 4
    assert second.manifest["env"] == own


def test_a_manifest_can_leave_address_and_keys_to_the_namespace() -> None:
    experiment = grant_access(Experiment.load("random"), AccessByReference(secret="keys"))
    for _, container in experiment.template.workload.containers():
        sources = {variable.name: variable.source for variable in container.variables}
        assert sources["AWS_ENDPOINT_URL"]["configMapKeyRef"] == {
            "name": "podium-storage",
            "key": "endpoint",
        }
        assert sources["AWS_SECRET_ACCESS_KEY"]["secretKeyRef"] == {
            "name": "keys",
            "key": "secretkey",
        }


def test_pods_with_a_workload_identity_get_no_keys() -> None:
    names = {entry["name"] for entry in AccessByReference(secret="").env()}
    assert names == {"AWS_ENDPOINT_URL", "AWS_REGION"}


def test_only_commands_that_name_a_bucket_open_the_store() -> None:
    assert Experiment.load("random").opens_store
    local = write_pytorchjob(
        name="a", image="i", command=("python", "train.py"), args=("--data=/data",)
    )
    assert not Workload.parse(local).opens_store
