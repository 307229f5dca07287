"""`podium migrate`: YAML on stdout, what is lost on stderr, nothing half-written."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from podium.errors import InvalidInput
from podium.manifests.rules import BrokenRules

ROOT = Path(__file__).parent.parent.parent
SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A ConfigMap, a PyTorchJob and an Experiment in one file."""
    file = tmp_path / "source.yaml"
    parts = [
        (ROOT / name).read_text()
        for name in ("examples/spirals-pytorchjob.yaml", "experiments/grid.yaml")
    ]
    file.write_text(SETTINGS + "\n---\n".join(parts))
    return file


def test_every_document_of_a_file_is_written(source: Path, podium: Callable[..., Result]) -> None:
    done = podium("migrate", str(source))
    settings, job, experiment = yaml.safe_load_all(done.stdout)
    assert settings == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"a": "b"},
    }
    assert (job["kind"], job["spec"]["trainer"]["command"][0]) == ("TrainJob", "torchrun")
    assert experiment["spec"]["trialTemplate"]["trialSpec"]["kind"] == "TrainJob"
    assert "ConfigMap settings stays as it is" in done.stderr
    assert "PyTorchJob spirals becomes a TrainJob:" in done.stderr
    assert "Experiment grid: its PyTorchJobs become TrainJobs:" in done.stderr
    assert "spec.runPolicy.backoffLimit: is left out" in done.stderr


def test_a_script_is_written_as_a_block(source: Path, podium: Callable[..., Result]) -> None:
    script = "set -e\npython examples/spirals.py\n"
    (file := source.with_name("script.yaml")).write_text(
        source.read_text().replace(
            "[python, examples/spirals.py, --epochs=8]", f"[sh, -c, {script!r}]".replace("'", '"')
        )
    )
    done = podium("migrate", str(file))
    assert "    - |\n      set -e\n      torchrun examples/spirals.py\n" in done.stdout
    _, job, _ = yaml.safe_load_all(done.stdout)
    assert job["spec"]["trainer"]["command"][2] == script.replace("python", "torchrun")


def test_what_is_a_trainjob_already_stays(
    source: Path, tmp_path: Path, podium: Callable[..., Result]
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    podium("migrate", str(source), "-o", str(first))
    first.write_text(
        (ROOT / "examples/spirals-pytorchjob.yaml").read_text() + "\n---\n" + first.read_text()
    )
    done = podium("migrate", str(first), "-o", str(second))
    assert (
        list(yaml.safe_load_all(second.read_text()))[1:]
        == list(yaml.safe_load_all(first.read_text()))[1:]
    )
    assert "TrainJob spirals stays as it is" in done.stderr
    assert "Experiment grid stays as it is" in done.stderr


def test_another_runtime_is_named(
    source: Path, tmp_path: Path, podium: Callable[..., Result]
) -> None:
    done = podium(
        "migrate", str(source), "--runtime", "team-torch", "-o", str(tmp_path / "out.yaml")
    )
    assert done.stdout == ""
    _, job, _ = yaml.safe_load_all((tmp_path / "out.yaml").read_text())
    assert job["spec"]["runtimeRef"] == {"name": "team-torch"}


def test_a_template_in_the_files_config_map_is_found(
    tmp_path: Path, podium: Callable[..., Result]
) -> None:
    experiment = yaml.safe_load((ROOT / "experiments/grid.yaml").read_text())
    template = experiment["spec"]["trialTemplate"]
    data = {"job.yaml": yaml.safe_dump(template.pop("trialSpec"))}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "templates"},
        "data": data,
    }
    template |= {
        "configMap": {
            "configMapName": "templates",
            "configMapNamespace": "team",
            "templatePath": "job.yaml",
        }
    }
    template |= {"successCondition": "a", "failureCondition": "b"}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump_all([config_map, experiment]))
    (migrated,) = yaml.safe_load_all(podium("migrate", str(file)).stdout)
    assert migrated["spec"]["trialTemplate"]["trialSpec"]["kind"] == "TrainJob"


def test_a_refused_job_leaves_the_output_as_it_was(
    source: Path, tmp_path: Path, podium: Callable[..., Result]
) -> None:
    output = tmp_path / "out.yaml"
    output.write_text("mine")
    source.write_text(source.read_text().replace("replicas: 1", "replicas: 0"))
    done = podium("migrate", str(source), "-o", str(output))
    assert isinstance(done.exception, BrokenRules)
    assert output.read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} <= {"out.yaml", "source.yaml", "podium-home"}


def test_a_file_without_jobs_is_refused(tmp_path: Path, podium: Callable[..., Result]) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    done = podium("migrate", str(file))
    assert isinstance(done.exception, InvalidInput)
    assert "must hold a PyTorchJob, a Job or an Experiment, but holds ConfigMap" in str(
        done.exception
    )
