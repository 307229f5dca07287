"""Trial templates in ConfigMaps: beside the Experiment, or in files of their own."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check, load
from podium.manifests.experiment.source import each_of

RANDOM = load("random-job")
JOB = RANDOM["spec"]["trialTemplate"]["trialSpec"]
CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'
CONDITIONS = {
    "successCondition": CONDITION.format("Complete"),
    "failureCondition": CONDITION.format("Failed"),
}


def experiment(**template: Any) -> dict[str, Any]:
    manifest = copy.deepcopy(RANDOM)
    given = manifest["spec"]["trialTemplate"]
    del given["trialSpec"]
    given["configMap"] = {
        "configMapName": "templates",
        "configMapNamespace": "team",
        "templatePath": "job.yaml",
    }
    given |= CONDITIONS | template
    return manifest


def config_map(text: str | None = None, **metadata: str) -> dict[str, Any]:
    data = {"job.yaml": yaml.safe_dump(JOB) if text is None else text}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "templates", **metadata},
        "data": data,
    }


def text_of(*manifests: dict[str, Any]) -> str:
    return yaml.safe_dump_all(manifests)


@pytest.mark.parametrize("order", [1, -1])
def test_a_template_beside_its_experiment_is_taken(order: int) -> None:
    loaded = load(text_of(*[experiment(), config_map(namespace="team")][::order]))
    assert loaded["spec"]["trialTemplate"]["trialSpec"] == JOB
    assert "configMap" not in loaded["spec"]["trialTemplate"]
    assert check(Experiment.parse(loaded)).template.workload.kind == "Job"


def test_a_list_of_kubectl_is_read_by_its_items(tmp_path: Path) -> None:
    items = [experiment(), config_map()]
    path = tmp_path / "sweeps.yaml"
    path.write_text(text_of({"apiVersion": "v1", "kind": "List", "items": items}))
    assert load(str(path))["spec"]["trialTemplate"]["trialSpec"] == JOB
    twice = {"apiVersion": "v1", "kind": "List", "items": [RANDOM, *items]}
    path.write_text(text_of(twice))
    assert len(each_of(str(path))) == 2


def test_a_template_in_a_file_of_its_own_is_taken(tmp_path: Path) -> None:
    (tmp_path / "templates.yaml").write_text(text_of(config_map()))
    (tmp_path / "sweep.yaml").write_text(text_of(experiment()))
    loaded = load(str(tmp_path / "sweep.yaml"), config_maps=[tmp_path / "templates.yaml"])
    assert loaded["spec"]["trialTemplate"]["trialSpec"] == JOB


@pytest.mark.parametrize("metadata", [{"name": "others"}, {"namespace": "theirs"}])
def test_another_config_map_is_not_taken(metadata: dict[str, str]) -> None:
    loaded = load(text_of(experiment(), config_map(**metadata)))
    assert loaded == experiment()
    with pytest.raises(InvalidInput, match="not from ConfigMap templates in a cluster") as refused:
        check(Experiment.parse(loaded))
    assert "--template" in str(refused.value.hint)


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no such template": (
        [experiment(configMap={"configMapName": "templates", "templatePath": "x"}), config_map()],
        "ConfigMap templates has no template 'x'",
    ),
    "two objects": (
        [experiment(), config_map("a: 1\n---\nb: 2")],
        "job.yaml of ConfigMap templates must hold one",
    ),
    "no YAML": ([experiment(), config_map("{")], "job.yaml of ConfigMap templates"),
    "no conditions": (
        [experiment(successCondition=""), config_map()],
        "must have successCondition and failureCondition",
    ),
    "two Experiments": ([experiment(), experiment(), config_map()], "holds 2: Experiment "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_template_is_refused(name: str) -> None:
    manifests, words = REFUSED[name]
    with pytest.raises(InvalidInput) as refused:
        load(text_of(*manifests))
    assert words in refused.value.message


@pytest.mark.parametrize("text", ["kind: Job", "", "- 1"])
def test_a_file_named_as_a_config_map_holds_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "templates.yaml").write_text(text)
    with pytest.raises(InvalidInput, match="must hold ConfigMaps and nothing else"):
        load("random", config_maps=[tmp_path / "templates.yaml"])


def test_a_missing_file_of_a_config_map_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere.yaml cannot be read: No such file"):
        load("random", config_maps=[tmp_path / "nowhere.yaml"])
