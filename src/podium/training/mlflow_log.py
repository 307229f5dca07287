"""Log a pipeline's run to MLflow: its figures as a run, its version in MLflow's model registry, alias champion.

The files stay where podium's registry has them, and MLflow's version names that place as its source. Only an MLflow
server gets a copy of files on this machine: it refuses a source that it cannot see.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from podium.errors import InvalidInput, NotFound, PodiumError, require
from podium.identity import POD_NAME
from podium.storage import path_of
from podium.training.base import say

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from podium.models import Model, Record
    from podium.training.handover import Evaluation

CHAMPION = "champion"
INSTALL = "pip install 'podium-ml[mlflow]', or mlflow-skinny"
RUN_TAG, VERSION_TAG = "podium.run", "podium.version"


def check_tracking(uri: str, *, here: bool = False) -> None:
    """Refuse an address of MLflow that cannot work.

    Args:
        uri: ``http://host:5000``, ``https://…`` or ``sqlite:///file.db``; empty logs nothing.
        here: Whether the steps run in this Python, which then has MLflow.

    Raises:
        InvalidInput: It is another address, has credentials in it, or MLflow is not installed.
    """
    if not uri:
        return
    parts = urlsplit(uri)
    hint = "http://mlflow:5000 or sqlite:////directory/mlflow.db; MLFLOW_TRACKING_USERNAME and _PASSWORD log in"
    shown = uri.replace(f"{parts.username}:{parts.password}@", "…@")
    absolute = parts.scheme == "sqlite" and uri.startswith("sqlite:////")  # steps have another working directory
    fits = (parts.scheme in ("http", "https") or absolute) and not parts.password
    require(fits, "tracking is the address of an MLflow server or database, without a password", hint, tracking=shown)
    if here and find_spec("mlflow") is None:
        raise InvalidInput(f"tracking={uri} needs MLflow", INSTALL)


def log_to_mlflow(uri: str, measured: "Evaluation", result: Mapping[str, Any], source: str) -> None:
    """Log a run and its version; what goes wrong is a warning, for podium's registry has decided already.

    Logging the same run again changes nothing but the alias.

    Args:
        uri: Address of MLflow, see check_tracking; empty logs nothing.
        result: The decision, as promote writes it.
        source: URL of the version's files.
    """
    if not uri:
        return
    try:
        run, version = _log(uri, measured, result, source)
    except Exception as error:  # whatever MLflow does, the promotion stands
        print(f"warning: the run is not logged to MLflow: {_reason(error)}", file=sys.stderr, flush=True)
        return
    say(f"MLflow: run {run}, {result['model_name']} version {version}, {_standing(result)}")


def champion_in_mlflow(model: "Model", moved: "Record", tracking: str = "") -> str:
    """Move the alias champion in MLflow's registry after the champion was moved by hand.

    Args:
        tracking: Address of MLflow; that which the version was logged to if empty.

    Returns:
        A sentence on what became of the alias; empty if neither the version nor the one before was logged to MLflow.

    Raises:
        InvalidInput: It is not an address of MLflow.
    """
    check_tracking(tracking)
    if not (uri := tracking or logged_to(model, moved.version, moved.replaced)):
        return ""
    stays = f"warning: MLflow's alias {CHAMPION} at {uri} has not moved"
    try:
        version = _move_champion(uri, moved)
    except NotFound as error:
        return f"{stays}: {error.message}"
    except Exception as error:  # whatever MLflow does, the champion has moved
        again = f"podium models promote {moved.name} {moved.version} --tracking URL"
        return f"{stays}: {_reason(error)}; `{again}` tries again"
    return f"MLflow's alias {CHAMPION} at {uri} is version {version}"


def logged_to(model: "Model", *versions: str | None) -> str:
    """Return the address of MLflow that the first of these versions was logged to, as the history says; else empty."""
    logged = {record.version: record.grounds.tracking for record in model.history() if record.grounds.tracking}
    return next((logged[version] for version in versions if version in logged), "")


def _move_champion(uri: str, moved: "Record") -> str:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # somebody waits: its own seven take minutes
    client = _client(uri)
    version = _find_version(client, moved.name, moved.version)
    if version is None:
        raise NotFound(f"{moved.name} {moved.version} was not logged there")
    client.set_registered_model_alias(moved.name, CHAMPION, version)
    return version


def _reason(error: Exception) -> str:
    if not isinstance(error, ImportError):
        return error.message if isinstance(error, PodiumError) else str(error)
    in_pod = bool(os.environ.get(POD_NAME))
    image = 'make images BUILD_ARGS="--build-arg EXTRAS=mlflow-skinny"'
    return f"the steps' image has no MLflow: {image}" if in_pod else f"MLflow is not installed: {INSTALL}"


def _client(uri: str) -> "MlflowClient":
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at the import
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _standing(result: Mapping[str, Any]) -> str:
    return CHAMPION if result["outcome"] == "promoted" else "not champion"


def _log(uri: str, measured: "Evaluation", result: Mapping[str, Any], source: str) -> tuple[str, str]:
    client = _client(uri)
    run = _run(client, measured, result)
    version = _version(client, run, result, lambda: _locate(client, uri, run, source))
    if result["outcome"] == "promoted":
        client.set_registered_model_alias(result["model_name"], CHAMPION, version)
    return run, version


def _run(client: "MlflowClient", measured: "Evaluation", result: Mapping[str, Any]) -> str:
    """Return the id of the run; create it unless an earlier attempt did."""
    from mlflow.entities import Metric, Param

    name, run_id = str(result["model_name"]), measured.run_id
    experiment = client.get_experiment_by_name(name)
    experiment_id = str(experiment.experiment_id) if experiment else client.create_experiment(name)
    known = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}' and attributes.status = 'FINISHED'")
    if known:
        return str(known[0].info.run_id)
    tags = {RUN_TAG: run_id, "podium.outcome": str(result["outcome"]), "podium.dataset": measured.dataset.digest}
    made = str(client.create_run(experiment_id, tags=tags, run_name=run_id).info.run_id)
    now = int(time.time() * 1000)
    metrics = [Metric(key, value, now, step) for key, value, step in _metrics(measured)]
    params = [Param(key, str(value)) for key, value in measured.winner.hyperparameters.items()]
    client.log_batch(made, metrics=metrics, params=[*params, Param("dataset", measured.dataset.name)])
    client.set_terminated(made)
    return made


def _metrics(measured: "Evaluation") -> Iterator[tuple[str, float, int]]:
    """Yield name, value and epoch of all that is known of the winner: its epochs, validation and test part."""
    for number, epoch in enumerate(measured.chosen.epochs, 1):
        yield from ((name, value, number) for name, value in epoch.items() if name != "epoch")
    yield from ((f"validation_{name}", value, 0) for name, value in measured.chosen.validation.metrics.items())
    yield from ((f"test_{name}", value, 0) for name, value in measured.test.metrics.items())


def _version(client: "MlflowClient", run: str, result: Mapping[str, Any], locate: Callable[[], str]) -> str:
    """Return the number of the version in MLflow's registry; create it unless an earlier attempt did."""
    from mlflow.exceptions import MlflowException

    name, version = str(result["model_name"]), str(result["version"])
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    return _find_version(client, name, version) or str(
        client.create_model_version(name, locate(), run, tags={VERSION_TAG: version}).version
    )


def _find_version(client: "MlflowClient", name: str, version: str) -> str | None:
    """Return the number that MLflow's registry gave a version; None if it does not have it."""
    versions = client.search_model_versions(f"name = '{name}'")
    return next((str(known.version) for known in versions if known.tags.get(VERSION_TAG) == version), None)


def _locate(client: "MlflowClient", uri: str, run: str, source: str) -> str:
    """Return where MLflow finds a version's files; those on this machine become artifacts of the run on a server."""
    if source.startswith(("s3://", "minio://")):
        return source.replace("minio://", "s3://", 1)  # MLflow knows the store by its protocol
    if uri.startswith("sqlite:"):
        return source
    client.log_artifacts(run, path_of(source), "model")
    return f"{client.get_run(run).info.artifact_uri}/model"
