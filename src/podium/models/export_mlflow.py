"""A version as an MLflow model: a directory with MLmodel, and a version in MLflow's registry."""

import json
import os
import platform
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Failed, InvalidInput
from podium.files.yaml_loader import dump
from podium.models.document import command
from podium.models.ledger import CHAMPION
from podium.models.mlflow import (
    EXPORT_TAG,
    VERSION_TAG,
    check_tracking,
    client_of,
    experiment_of,
    reason_of,
)
from podium.models.version import Version
from podium.prediction.command import ONNX

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from podium.scoring.model import OnnxModel, Tensor


def write(version: Version, directory: Path) -> None:
    """Write what ``mlflow.onnx.load_model`` and ``mlflow.pyfunc.load_model`` open; MLflow is not
    needed for it.

    Raises:
        InvalidInput: It is not an ONNX graph.
    """
    graph = graph_of(version, "mlflow")
    content = version.read(ONNX)
    directory.mkdir()
    (directory / ONNX).write_bytes(content)
    (directory / "MLmodel").write_text(dump(_description(version, graph, len(content))))
    packages = [
        "mlflow>=3",
        *(f"{package}=={installed(package)}" for package in ("onnx", "onnxruntime", "numpy")),
    ]
    (directory / "requirements.txt").write_text("\n".join(packages) + "\n")
    python = platform.python_version()
    environment = {
        "python": python,
        "build_dependencies": ["pip"],
        "dependencies": ["-r requirements.txt"],
    }
    (directory / "python_env.yaml").write_text(dump(environment))
    conda = {
        "channels": ["conda-forge"],
        "dependencies": [f"python={python}", "pip", {"pip": packages}],
    }
    (directory / "conda.yaml").write_text(dump(conda | {"name": "mlflow-env"}))


def graph_of(version: Version, form: str) -> "OnnxModel":
    """Return the graph of a version.

    Raises:
        InvalidInput: It is a predict command, or has no model.
    """
    from podium.scoring.model import OnnxModel

    model = None if version.is_command else version.opened.model
    if not isinstance(model, OnnxModel):
        export = f"models export {version.name} {version.version} --to oci -o DIRECTORY"
        raise InvalidInput(
            f"{version.title} predicts by a command, but {form} takes an ONNX graph",
            f"{command(export, version.storage)} holds its files as they are",
        )
    return model


def _description(version: Version, graph: "OnnxModel", size: int) -> dict[str, Any]:
    facts = {
        "podium.model": version.name,
        VERSION_TAG: version.version,
        "podium.run": version.facts.run_id,
        "podium.sha256": version.files[ONNX].sha256,
    }
    environment = {"conda": "conda.yaml", "virtualenv": "python_env.yaml"}
    document: dict[str, Any] = {
        "flavors": {
            "onnx": {
                "code": None,
                "data": ONNX,
                "onnx_session_options": None,
                "onnx_version": installed("onnx"),
                "providers": ["CPUExecutionProvider"],
            },
            "python_function": {
                "data": ONNX,
                "env": environment,
                "loader_module": "mlflow.onnx",
                "python_version": platform.python_version(),
            },
        },
        "metadata": {name: value for name, value in facts.items() if value is not None},
        "model_size_bytes": size,
        "utc_time_created": f"{version.created:%Y-%m-%d %H:%M:%S.%f}",
    }
    tensors = (*graph.inputs, *graph.outputs)
    if all(not tensor.dtype.startswith(("tensor(", "seq(", "map(", "opt")) for tensor in tensors):
        sides = {"inputs": graph.inputs, "outputs": graph.outputs}
        document["signature"] = {
            side: json.dumps(list(map(_tensor, of_it))) for side, of_it in sides.items()
        }
    return document


def _tensor(tensor: "Tensor") -> dict[str, Any]:
    shape = [-1 if size is None else size for size in tensor.shape]
    return {
        "name": tensor.name,
        "type": "tensor",
        "tensor-spec": {"dtype": tensor.dtype, "shape": shape},
    }


def register(version: Version, directory: Path, uri: str, *, champion: bool) -> str:
    """Register an exported directory in MLflow's model registry; a version that is there already
    stays.

    Args:
        uri: Address of MLflow.
        champion: Whether MLflow's alias champion is to point at it.

    Returns:
        The number that MLflow gave it.

    Raises:
        InvalidInput: It is not an address of MLflow, or MLflow is not installed.
        Failed: MLflow does not do it.
    """
    check_tracking(uri, here=True)
    os.environ.setdefault(
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"
    )  # the command's own output goes there
    try:
        client = client_of(uri, is_awaited=True)
        number = _registered(client, version, directory, uri)
        if champion:
            client.set_registered_model_alias(version.name, CHAMPION, number)
    except Exception as error:  # MLflow raises classes of its own, of its stores and of its client
        raise Failed(
            f"{version.title} is in {directory}, but not registered at {uri}: {reason_of(error)}",
            "see that MLflow answers there, and export to another directory",
        ) from error
    return number


def _registered(client: "MlflowClient", version: Version, directory: Path, uri: str) -> str:
    versions = client.search_model_versions(f"name = '{version.name}'")
    for there in versions:
        if (there.tags.get(VERSION_TAG), there.tags.get(EXPORT_TAG)) == (version.version, ONNX):
            return str(there.version)
    if not client.search_registered_models(f"name = '{version.name}'"):
        client.create_registered_model(version.name)
    run, source = None, directory.absolute().as_uri()
    if not uri.startswith("sqlite:"):  # a server refuses a source that it cannot see
        made = client.create_run(
            experiment_of(client, version.name), run_name=f"export {version.version}"
        )
        run = str(made.info.run_id)
        client.log_artifacts(run, str(directory), "export")
        client.set_terminated(run)
        source = f"{client.get_run(run).info.artifact_uri}/export"
    tags = {VERSION_TAG: version.version, EXPORT_TAG: ONNX}
    return str(client.create_model_version(version.name, source, run, tags=tags).version)
