"""What the pipelines compile to: kept as golden files and held against the rules old and new servers set."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.pipelines import NAMES, load
from podium.runner.compiled import in_order

GOLDEN = Path(__file__).parent.parent / "golden" / "pipelines"
ORDER = {
    "tune_and_promote": [
        "fingerprint-data",
        "prepare-data",
        "katib-sweep",
        "train-distributed",
        "evaluate",
        "upload-model",
        "promote-best",
    ],
    "train_and_promote": [
        "fingerprint-data",
        "prepare-data",
        "train-distributed",
        "evaluate",
        "upload-model",
        "promote-best",
    ],
}


@pytest.fixture(scope="module", params=NAMES)
def compiled(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, compile_pipeline(request.param)


def tasks_of(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)["root"]["dag"]["tasks"]


def test_each_pipeline_compiles_to_its_golden_file(compiled: tuple[str, str]) -> None:
    """After a wanted change: make golden, then look at the difference."""
    name, text = compiled
    assert text == (GOLDEN / f"{name}.yaml").read_text()


def test_steps_follow_the_order_of_the_docstring(compiled: tuple[str, str]) -> None:
    name, text = compiled
    order = [task for task, _, _ in in_order(tasks_of(text))]
    assert order == ORDER[name]
    numbered = re.findall(r"^ *\d\. ", load(name).pipeline_func.__doc__, re.MULTILINE)
    assert len(numbered) == len(order)


def test_only_the_data_is_ever_taken_from_the_cache(compiled: tuple[str, str]) -> None:
    cached = {
        task: entry["cachingOptions"].get("enableCache", False)
        for task, entry in tasks_of(compiled[1]).items()
    }
    assert {task for task, on in cached.items() if on} == {"prepare-data"}


def test_the_default_yaml_asks_for_nothing_old_servers_cannot_do(compiled: tuple[str, str]) -> None:
    text = compiled[1]
    assert len(list(yaml.safe_load_all(text))) == 1, (
        "a platform document fails in the driver of 2.0.5"
    )
    for literal in (
        "pipeline_job_uuid",
        "pipeline_job_name",
        "pipeline_task_uuid",
        "pipelinechannel",
        "oneof",
    ):
        assert literal not in text.lower()
    spec = yaml.safe_load(text)
    assert "outputDefinitions" not in spec["root"]
    assert all("executorLabel" in component for component in spec["components"].values()), (
        "no nested pipelines"
    )


def test_no_step_installs_anything_or_holds_a_secret(compiled: tuple[str, str]) -> None:
    text = compiled[1]
    assert "pip install" not in text
    assert not re.search(r"secret|password|access.?key|token", text, re.IGNORECASE)
    executors = yaml.safe_load(text)["deploymentSpec"]["executors"]
    assert all("env" not in executor["container"] for executor in executors.values())


def test_steps_ask_for_little_and_keep_their_own_requests(
    compiled: tuple[str, str], tmp_path: Path
) -> None:
    executors = yaml.safe_load(compiled[1])["deploymentSpec"]["executors"]
    assert all(
        executor["container"]["resources"]
        == {
            "cpuRequest": 0.1,
            "resourceCpuRequest": "100m",
            "memoryRequest": 0.268435456,
            "resourceMemoryRequest": "256Mi",
        }
        for executor in executors.values()
    )
    (tmp_path / "own.py").write_text(OWN)
    (executor,) = yaml.safe_load(compile_pipeline(str(tmp_path / "own.py")))["deploymentSpec"][
        "executors"
    ].values()
    assert executor["container"]["resources"] == {"memoryLimit": 4.0, "resourceMemoryLimit": "4G"}


OWN = """
from kfp import dsl


@dsl.component(base_image="podium-steps:0.1.0")
def count() -> int:
    return 1


@dsl.pipeline(name="own")
def own():
    count().set_memory_limit("4G")
"""


def test_texts_like_numbers_or_flags_stay_texts(tmp_path: Path) -> None:
    program = OWN.replace("count() ->", "count(word: str) ->").replace(
        "count().", "count(word='1e3'); count(word='y'); count(word='08')."
    )
    (tmp_path / "own.py").write_text(program)
    text = compile_pipeline(str(tmp_path / "own.py"))
    words = re.findall(r"constant: (.+)", text)
    assert sorted(words) == ["'08'", "'1e3'", "'y'"]


def test_every_step_has_a_name_a_person_would_say(compiled: tuple[str, str]) -> None:
    tasks = load(compiled[0]).pipeline_spec.root.dag.tasks.values()
    assert all(" " in task.task_info.name and task.task_info.name[0].isupper() for task in tasks)


def test_compiled_tasks_are_named_by_their_keys_for_old_servers(compiled: tuple[str, str]) -> None:
    assert all(task["taskInfo"]["name"] == key for key, task in tasks_of(compiled[1]).items())


def test_every_parameter_reaches_a_task_of_the_same_name(compiled: tuple[str, str]) -> None:
    given = {
        (name, source.get("componentInputParameter"))
        for task in tasks_of(compiled[1]).values()
        for name, source in task.get("inputs", {}).get("parameters", {}).items()
    }
    parameters = yaml.safe_load(compiled[1])["root"]["inputDefinitions"]["parameters"]
    assert {name for name, parameter in given if name == parameter} == parameters.keys()


def test_every_parameter_has_a_default_and_a_description(compiled: tuple[str, str]) -> None:
    inputs = yaml.safe_load(compiled[1])["root"]["inputDefinitions"]["parameters"]
    assert all(
        described.get("isOptional") and described.get("description")
        for described in inputs.values()
    )


def test_images_and_parameters_can_be_chosen_when_compiling() -> None:
    trainer = f"host:5000/trainer@sha256:{'0' * 64}"
    text = compile_pipeline(
        "tune_and_promote", ["max_trials=9"], steps_image="host:5000/steps:2", trainer_image=trainer
    )
    spec = yaml.safe_load(text)
    images = {
        name: executor["container"]["image"]
        for name, executor in spec["deploymentSpec"]["executors"].items()
    }
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    assert set(images.values()) == {"host:5000/steps:2"}
    assert inputs["trainer_image"]["defaultValue"] == ""
    launching = [
        tasks_of(text)[name]["inputs"]["parameters"]
        for name in ("katib-sweep", "train-distributed")
    ]
    assert [given["podium_image"]["runtimeValue"]["constant"] for given in launching] == [
        trainer
    ] * 2
    assert inputs["max_trials"]["defaultValue"] == 9


def test_a_text_that_go_reads_as_another_type_is_quoted() -> None:
    assert "defaultValue: 'y'\n" in compile_pipeline("train_and_promote", ["model_name=y"])


def test_an_unknown_parameter_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="no parameter 'max_trails'") as caught:
        compile_pipeline("tune_and_promote", ["max_trails=3"])
    assert caught.value.hint == "did you mean max_trials?"


def test_an_unknown_pipeline_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="no pipeline 'tune'") as caught:
        compile_pipeline("tune")
    assert caught.value.hint == "did you mean tune_and_promote?"


def test_something_that_is_no_image_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not the name of an image"):
        compile_pipeline("train_and_promote", steps_image="two words")


SETTINGS = ("secret=podium-storage", "timeout=7200", "retries=2", "pull_policy=Always", "non_root=true",
            'tolerations=[{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]')  # fmt: skip


def test_platform_settings_reach_every_step_in_a_second_document(compiled: tuple[str, str]) -> None:
    name, plain = compiled
    spec, platform = yaml.safe_load_all(compile_pipeline(name, platform=SETTINGS))
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors.keys() == spec["deploymentSpec"]["executors"].keys()
    for executor in executors.values():
        assert executor["activeDeadlineSeconds"] == "7200"
        assert executor["imagePullPolicy"] == "Always"
        assert executor["securityContext"] == {"runAsNonRoot": True}
        assert executor["tolerations"] == [
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        ]
        (secret,) = executor["secretAsEnv"]
        assert secret["secretName"] == "podium-storage"
        assert {item["envVar"] for item in secret["keyToEnv"]} == {
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        }
    for task in spec["root"]["dag"]["tasks"].values():
        assert task.pop("retryPolicy")["maxRetryCount"] == 2
    assert spec == yaml.safe_load(plain), "nothing else differs"


def test_settings_change_nothing_for_later_compilations(compiled: tuple[str, str]) -> None:
    name, plain = compiled
    compile_pipeline(name, platform=SETTINGS)
    assert compile_pipeline(name) == plain


@pytest.mark.parametrize(
    ("word", "rule"),
    [("timeout=0", "timeout >= 1"), ("pull_policy=Sometimes", "no pull_policy is called"), ("retrys=2", "retrys"),
     ('tolerations=["spot"]', "not a toleration"), ("secret", "secret")],
)  # fmt: skip
def test_a_platform_setting_that_cannot_be_meant_is_refused(word: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        compile_pipeline("train_and_promote", platform=[word])
