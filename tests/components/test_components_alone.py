"""Each component compiles on its own into YAML that any other pipeline can load and use."""

import ast
import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components, dsl
from kfp.compiler import Compiler
from kfp.dsl.executor import Executor

from podium.training.target import LaunchTarget

NAMES = [
    "evaluate",
    "fingerprint_data",
    "katib_sweep",
    "prepare_data",
    "promote_best",
    "train_distributed",
    "upload_model",
]
STEPS = {"katib_sweep": "sweep", "promote_best": "promote", "train_distributed": "train"}
FOLDER = Path(__file__).parent.parent.parent / "components"


def component(name: str) -> Any:
    return getattr(import_module(f"podium.components.{name}"), name)


@pytest.fixture
def loaded(tmp_path: Path) -> dict[str, Any]:
    """Every component, compiled to a file of its own and loaded from there as another project would."""
    for name in NAMES:
        Compiler().compile(component(name), str(tmp_path / f"{name}.yaml"))
    return {
        name: components.load_component_from_file(str(tmp_path / f"{name}.yaml")) for name in NAMES
    }


def test_every_file_holds_one_component_of_its_own_name() -> None:
    files = {file.stem for file in FOLDER.glob("*.py")} - {"__init__", "images"}
    assert files == set(NAMES)


def test_another_pipeline_can_load_and_wire_each_component(
    loaded: dict[str, Any], tmp_path: Path
) -> None:
    @dsl.component(base_image="other/image")
    def rate(model: str) -> float:
        return 1.0

    @dsl.pipeline(name="somebody-elses")
    def theirs(image: str = "their/trainer:1", target: str = "s3://bucket/models") -> None:
        found = loaded["fingerprint_data"](dataset="fashion-mnist")
        prepared = loaded["prepare_data"](
            dataset="fashion-mnist", fingerprint=found.outputs["Output"]
        )
        data, test = prepared.outputs["prepared"], prepared.outputs["prepared_test"]
        swept = loaded["katib_sweep"](data=data, trainer_image=image, max_trials=20, storage=target)
        trained = loaded["train_distributed"](
            data=data,
            trainer_image=image,
            recipe=swept.outputs["recipe"],
            workers=3,
            storage=target,
        )
        rate(model=trained.outputs["model"])
        chosen = loaded["evaluate"](
            data=data,
            test=test,
            trained=trained.outputs["model"],
            best_model=swept.outputs["best_model"],
        )
        kept = loaded["upload_model"](
            model=chosen.outputs["winner"], predictions=chosen.outputs["predictions"],
            evaluation=chosen.outputs["evaluation"], storage=target,
        )  # fmt: skip
        loaded["promote_best"](
            test=test,
            evaluation=chosen.outputs["evaluation"],
            version=kept.output,
            rule="likely",
            storage=target,
        )

    Compiler().compile(theirs, str(tmp_path / "theirs.yaml"))
    tasks = yaml.safe_load((tmp_path / "theirs.yaml").read_text())["root"]["dag"]["tasks"]
    assert set(tasks) == {name.replace("_", "-") for name in NAMES} | {"rate"}


def test_a_component_file_says_what_it_makes_and_takes(tmp_path: Path) -> None:
    Compiler().compile(component("train_distributed"), str(tmp_path / "train.yaml"))
    inputs = yaml.safe_load((tmp_path / "train.yaml").read_text())["root"]["inputDefinitions"]
    assert inputs["parameters"]["workers"]["description"].startswith("Workers besides the master")
    assert inputs["artifacts"]["data"]["artifactType"]["schemaTitle"] == "system.Dataset"


@pytest.mark.parametrize("name", NAMES)
def test_a_component_is_a_signature_and_one_call(name: str) -> None:
    tree = ast.parse(inspect.getsource(component(name).python_func))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:]
    imports = [node for node in body if isinstance(node, ast.ImportFrom | ast.Import)]
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    names = {node.module: {alias.name for alias in node.names} for node in imports}
    step = f"podium.steps.{STEPS.get(name, name)}"
    assert names.keys() == {step, "podium.steps.process"}
    assert [call.func.id for call in calls].count(step.rpartition(".")[2]) == 1
    assert len(body) <= 8, "the parameters, two imports, the call, the outputs"
    assert not any(
        isinstance(node, ast.If | ast.For | ast.While | ast.Try) for node in ast.walk(function)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_step_gets_inputs_from_a_server_without_types(name: str, tmp_path: Path) -> None:
    # Kubeflow Pipelines 2.0.5 hands a step its input artifacts without schemaTitle (observed).
    step = component(name)
    wanted = {
        key: described.type.split("@")[0]
        for key, described in step.component_spec.inputs.items()
        if "@" in str(described.type)
    }
    given = {
        key: {"artifacts": [{"type": {}, "uri": f"minio://bucket/{key}", "metadata": {"n": 1}}]}
        for key in wanted
    }
    message = {
        "inputs": {"artifacts": given},
        "outputs": {"outputFile": str(tmp_path / "output.json")},
    }
    there = Executor(message, step).input_artifacts
    assert {key: artifact.schema_title for key, artifact in there.items()} == wanted
    assert {artifact.uri for artifact in there.values()} == {
        f"minio://bucket/{key}" for key in wanted
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_component_is_used(name: str) -> None:
    tree = ast.parse(inspect.getsource(component(name).python_func)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    module = import_module(f"podium.steps.{STEPS.get(name, name)}")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    read = {field.name for kind in names & vars(module).keys() if is_dataclass(vars(module)[kind])
            for field in fields(vars(module)[kind])}  # fmt: skip
    if "predict_jobs" in names:
        read |= {field.name for field in fields(LaunchTarget)}
    assert {argument.arg for argument in tree.args.args} <= names | read | {"storage"}
