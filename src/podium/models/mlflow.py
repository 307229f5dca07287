"""MLflow's model registry: whether an address of it can work, and its alias champion, which follows
podium's."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from podium.errors import InvalidInput, NotFound, PodiumError
from podium.files.documents import foreign
from podium.models.document import command
from podium.models.ledger import CHAMPION
from podium.models.record import Record
from podium.system.pod import POD_NAME

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from podium.models.championship import Championship

_INSTALL = "pip install 'podium-ml[mlflow]', or mlflow-skinny"
VERSION_TAG = "podium.version"
EXPORT_TAG = "podium.export"
"""Tag of a version that MLflow itself can open."""


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
    hint = "http://mlflow:5000 or sqlite:////directory/mlflow.db; MLFLOW_TRACKING_USERNAME and _PASSWORD log in"
    with foreign("not the address of an MLflow server or database", hint=hint, why=False):
        parts = urlsplit(uri)
    shown = uri.replace(f"{parts.username}:{parts.password}@", "…@")
    absolute = parts.scheme == "sqlite" and uri.startswith(
        "sqlite:////"
    )  # steps have another working directory
    if parts.password:
        raise InvalidInput(f"an address of MLflow must not hold a password: {shown!r}", hint)
    if parts.scheme not in ("http", "https") and not absolute:
        raise InvalidInput(f"not the address of an MLflow server or database: {shown!r}", hint)
    if here and find_spec("mlflow") is None:
        raise InvalidInput(f"tracking={uri} needs MLflow", _INSTALL)


def champion_in_mlflow(model: "Championship", moved: Record, tracking: str = "") -> str:
    """Move the alias champion in MLflow's registry after the champion was moved by hand.

    Args:
        tracking: Address of MLflow; that which the version was logged to if empty.

    Returns:
        A sentence on what became of the alias; empty if neither the version nor the one before was
        logged to MLflow.

    Raises:
        InvalidInput: It is not an address of MLflow.
    """
    check_tracking(tracking)
    if not (uri := tracking or _logged_to(model, moved.version, moved.replaced)):
        return ""
    stays = f"warning: MLflow's alias {CHAMPION} at {uri} has not moved"
    try:
        version = _move_champion(uri, moved)
    except NotFound as error:
        return f"{stays}: {error.message}"
    except Exception as error:  # whatever MLflow does, the champion has moved
        again = command(
            f"models promote {moved.name} {moved.version} --tracking URL", model.storage
        )
        return f"{stays}: {reason_of(error)}; `{again}` tries again"
    return f"MLflow's alias {CHAMPION} at {uri} is version {version}"


def _logged_to(model: "Championship", *versions: str | None) -> str:
    """Return the address of MLflow that the first of these versions was logged to, as the history
    says; else empty."""
    logged = {
        record.version: record.grounds.tracking
        for record in model.records()
        if record.grounds.tracking
    }
    return next((logged[version] for version in versions if version in logged), "")


def _move_champion(uri: str, moved: Record) -> str:
    client = client_of(uri, is_awaited=True)
    version = find_version(client, moved.name, moved.version)
    if version is None:
        raise NotFound(f"{moved.name} {moved.version} was not logged there")
    client.set_registered_model_alias(moved.name, CHAMPION, version)
    return version


def reason_of(error: Exception) -> str:
    """Return why something of MLflow failed, for a warning."""
    if not isinstance(error, ImportError):
        return error.message if isinstance(error, PodiumError) else str(error)
    in_pod = bool(os.environ.get(POD_NAME))
    image = 'make images BUILD_ARGS="--build-arg EXTRAS=mlflow-skinny"'
    return (
        f"the steps' image has no MLflow: {image}"
        if in_pod
        else f"MLflow is not installed: {_INSTALL}"
    )


def client_of(uri: str, *, is_awaited: bool = False) -> "MlflowClient":
    """Return a client of an MLflow server or database.

    Args:
        is_awaited: Whether a person waits: its own seven retries take minutes.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at the import
    if is_awaited:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def experiment_of(client: "MlflowClient", name: str) -> str:
    """Return the id of an experiment, which is made where there is none."""
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id) if experiment else client.create_experiment(name)


def find_version(client: "MlflowClient", name: str, version: str) -> str | None:
    """Return the number that MLflow's registry gave a version, preferably as exported; None if it
    does not have it."""
    versions = client.search_model_versions(f"name = '{name}'")
    versions = sorted(versions, key=lambda entry: EXPORT_TAG not in entry.tags)
    return next(
        (str(entry.version) for entry in versions if entry.tags.get(VERSION_TAG) == version), None
    )
