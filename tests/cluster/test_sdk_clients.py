"""Kubeflow's own Python clients take podium's objects, and podium takes theirs."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer
from pytorchjobs import write_pytorchjob

from podium.errors import InvalidInput
from podium.manifests.experiment.source import load
from podium.manifests.sdk import from_sdk, to_sdk

EXPERIMENTS = sorted(
    path.stem
    for path in (Path(__file__).parents[2] / "experiments").glob("*.yaml")
    if path.stem != "trainjob"  # the SDKs have no model of it
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def pytorchjob() -> dict[str, Any]:
    return write_pytorchjob(
        name="train",
        image="podium-trainer",
        command=("python", "-m", "podium.trainer"),
        args=("--epochs", "1"),
        workers=2,
        processes_per_worker=2,
        env={"PLAIN": "1"},
        secret_env={"KEY": ("minio", "secretkey")},
        resources={"cpu": "2"},
        gpus_per_worker=1,
        owner={
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "name": "run",
            "uid": "u-1",
        },
        active_deadline_seconds=60,
        service_account="trainer",
        image_pull_policy="Always",
    )


def stored(manifest: dict[str, Any]) -> dict[str, Any]:
    """Drop what the server adds."""
    added = {"uid", "creationTimestamp", "resourceVersion"}
    return manifest | {
        "metadata": {key: value for key, value in manifest["metadata"].items() if key not in added}
    }


def test_the_katib_client_creates_and_reads_an_experiment(server: ApiServer) -> None:
    from kubeflow.katib import KatibClient

    manifest = load("random") | {"metadata": {"name": "sweep", "labels": {"team": "a"}}}
    client = KatibClient(os.environ["KUBECONFIG"], namespace="team")
    client.create_experiment(to_sdk(manifest))
    assert stored(server.world.objects["experiments", "sweep"]) == manifest
    assert stored(from_sdk(client.get_experiment("sweep"))) == manifest


def test_the_training_client_creates_and_reads_a_pytorchjob(server: ApiServer) -> None:
    from kubeflow.training import TrainingClient

    client = TrainingClient(os.environ["KUBECONFIG"], namespace="team")
    client.create_job(to_sdk(pytorchjob()))
    assert stored(server.world.objects["pytorchjobs", "train"]) == pytorchjob()
    assert stored(from_sdk(client.get_job("train", job_kind="PyTorchJob"))) == pytorchjob()


def test_an_experiment_written_with_the_sdk_becomes_a_manifest() -> None:
    from kubeflow import katib
    from kubernetes.client import V1ObjectMeta

    experiment = katib.V1beta1Experiment(
        api_version="kubeflow.org/v1beta1",
        kind="Experiment",
        metadata=V1ObjectMeta(name="sweep"),
        spec=katib.V1beta1ExperimentSpec(
            max_trial_count=4,
            objective=katib.V1beta1ObjectiveSpec(type="maximize", objective_metric_name="accuracy"),
            algorithm=katib.V1beta1AlgorithmSpec(algorithm_name="random"),
            parameters=[
                katib.V1beta1ParameterSpec(
                    name="lr",
                    parameter_type="double",
                    feasible_space=katib.V1beta1FeasibleSpace(min="0.1", max="1"),
                )
            ],
            trial_template=katib.V1beta1TrialTemplate(
                primary_container_name="pytorch",
                trial_parameters=[katib.V1beta1TrialParameterSpec(name="lr", reference="lr")],
                trial_spec=to_sdk(pytorchjob()),
            ),
        ),
    )
    manifest = from_sdk(experiment)
    assert load(yaml.safe_dump(manifest)) == manifest
    assert manifest["spec"]["parameters"] == [
        {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "1"}}
    ]
    assert manifest["spec"]["trialTemplate"]["trialSpec"] == pytorchjob()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_file_in_experiments_survives_the_sdk(name: str) -> None:
    text = (Path(__file__).parents[2] / "experiments" / f"{name}.yaml").read_text()
    manifest = yaml.safe_load(text)
    assert from_sdk(to_sdk(manifest)) == manifest


def test_fields_that_the_sdk_would_drop_are_reported() -> None:
    job = pytorchjob()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["gpu"] = 1
    with pytest.raises(
        InvalidInput,
        match=r"spec\.pytorchReplicaSpecs\.Worker\.template\.spec\.containers\[0\]\.gpu",
    ):
        to_sdk(job)


def test_a_kind_without_an_sdk_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no model for Pod \(v1\)"):
        to_sdk({"apiVersion": "v1", "kind": "Pod"})


def test_an_object_that_is_not_of_an_sdk_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dict is not an SDK object"):
        from_sdk({"kind": "Experiment"})
