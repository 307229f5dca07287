"""The files of docs/recipes.md: what is rendered and migrated from them, and two jobs that run on a small dataset."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from recipes import PAGE, RECIPES, copy_recipes, small_data

pytestmark = pytest.mark.whole

GPU = "nvidia.com/gpu"

Podium = Callable[..., Result]


def resources(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the resources of every container, and of the nodes of TrainJobs, wherever they are."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("resources", "resourcesPerNode") if key in value)
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from resources(inner)


def test_the_trainjob_is_what_migrate_writes(podium: Podium) -> None:
    done = podium("migrate", str(RECIPES / "two/pytorchjob.yaml"))
    assert done.exit_code == 0, done.output
    assert done.stdout == (RECIPES / "two/trainjob.yaml").read_text()


def test_gpu_requests_of_rendered_trials_equal_their_limits(podium: Podium, tmp_path: Path) -> None:
    given = ("--data", "s3://podium/datasets/mnist", "--output", "s3://podium/trials")
    rendered = podium("experiment", "render", str(RECIPES / "tracked/experiment.yaml"), *given)
    assert rendered.exit_code == 0, rendered.output
    (file := tmp_path / "rendered.yaml").write_text(rendered.stdout)
    migrated = podium("migrate", str(file))
    assert migrated.exit_code == 0, migrated.output
    for text, containers in (
        (rendered.stdout, 2),
        (migrated.stdout, 1),
    ):  # master and worker; the one kind of nodes
        asked = list(resources(yaml.safe_load(text)))
        assert [(each["requests"][GPU], each["limits"][GPU]) for each in asked] == [
            ("1", "1")
        ] * containers


def test_the_compiled_pipeline_asks_for_the_gpus(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECIPES / "tracked")
    done = podium("compile", "gpus_per_worker=2")
    assert done.exit_code == 0, done.output
    compiled = yaml.safe_load(done.stdout)
    parameters = compiled["root"]["inputDefinitions"]["parameters"]
    assert parameters["gpus_per_worker"]["defaultValue"] == 2
    asked = list(resources(yaml.safe_load(parameters["experiment"]["defaultValue"])))
    assert [each["requests"] == each["limits"] == {GPU: "1"} for each in asked] == [True, True]


def test_each_gpu_given_by_number_is_request_and_limit() -> None:
    from podium.manifests.experiment.build import give_gpus
    from podium.manifests.workload import Workload

    job = Workload.parse(yaml.safe_load((RECIPES / "volume/train.yaml").read_text()))
    changed = job.changed_job(lambda editor: give_gpus(editor, "pytorch", 2))
    asked = list(resources(changed.manifest))
    assert asked == [{"requests": {GPU: "2"}, "limits": {GPU: "2"}}] * 2


def test_the_claim_stands_in_one_line_of_each_job() -> None:
    command = re.search(r"sed 's\|(.*)\|(.*)\|' examples/recipes/volume/", PAGE.read_text())
    assert command is not None
    claim = yaml.safe_load((RECIPES / "volume/claim.yaml").read_text())["metadata"]["name"]
    for file in ("prepare.yaml", "train.yaml"):
        text, changed = re.subn(command[1], command[2], (RECIPES / "volume" / file).read_text())
        assert changed == 1, "master and workers share one template"
        spec = yaml.safe_load(text)["spec"]
        pods = [
            replica["template"] for replica in spec.get("pytorchReplicaSpecs", {"": spec}).values()
        ]
        volumes = [pod["spec"]["volumes"] for pod in pods]
        assert volumes == [
            [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}]
        ] * len(pods)


def test_four_processes_train_from_a_shared_volume(
    podium: Podium, tiny_dataset: Path, tmp_path: Path
) -> None:
    (shared := tmp_path / "shared").mkdir()
    recipes = copy_recipes(tmp_path, small_data(tiny_dataset, shared))
    cluster = ("--dir", str(tmp_path / "cluster"))
    for file in ("prepare.yaml", "train.yaml"):
        done = podium("job", "run", str(recipes / "volume" / file), *cluster)
        assert done.exit_code == 0, done.output
    assert {"dataset.json", "train-images.npy"} <= {
        file.name for file in (shared / "mnist").iterdir()
    }
    assert {"model.onnx", "model.safetensors", "metrics.json"} <= {
        file.name for file in (shared / "model").iterdir()
    }
    assert len(re.findall(r" accuracy=\S+ loss=", done.output)) == 2, (
        "one line an epoch, from rank 0 alone"
    )
    status = podium("job", "status", "shared", "--json", *cluster)
    replicas = yaml.safe_load(status.stdout)["replicas"]
    assert {replica["replica"]: replica["phase"] for replica in replicas} == dict.fromkeys(
        ("master-0", "worker-0", "worker-1", "worker-2"), "Succeeded"
    )
