"""Log a pipeline's run to MLflow: its figures as a run, its version in MLflow's model registry,
alias champion.

The files stay where podium's registry has them, and MLflow's version names that place as its
source. Only an MLflow server gets a copy of files on this machine: it refuses a source that it
cannot see.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from podium.models.ledger import CHAMPION
from podium.models.mlflow import VERSION_TAG, client_of, experiment_of, find_version, reason_of
from podium.storage import path_of
from podium.training.base import say

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from podium.training.handover import Evaluation

_RUN_TAG = "podium.run"


def log_to_mlflow(uri: str, measured: "Evaluation", result: Mapping[str, Any], source: str) -> None:
    """Log a run and its version; what goes wrong is a warning, for podium's registry has decided
    already.

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
        print(
            f"warning: the run is not logged to MLflow: {reason_of(error)}",
            file=sys.stderr,
            flush=True,
        )
        return
    standing = CHAMPION if result["outcome"] == "promoted" else "not champion"
    say(f"MLflow: run {run}, {result['model_name']} version {version}, {standing}")


def _log(
    uri: str, measured: "Evaluation", result: Mapping[str, Any], source: str
) -> tuple[str, str]:
    client = client_of(uri)
    run = _run(client, measured, result)
    version = _version(client, run, result, lambda: _locate(client, uri, run, source))
    if result["outcome"] == "promoted":
        client.set_registered_model_alias(result["model_name"], CHAMPION, version)
    return run, version


def _run(client: "MlflowClient", measured: "Evaluation", result: Mapping[str, Any]) -> str:
    from mlflow.entities import Metric, Param

    name, run_id = str(result["model_name"]), measured.run_id
    experiment_id = experiment_of(client, name)
    runs = client.search_runs(
        [experiment_id], f"tags.`{_RUN_TAG}` = '{run_id}' and attributes.status = 'FINISHED'"
    )
    if runs:
        return str(runs[0].info.run_id)
    tags = {
        _RUN_TAG: run_id,
        "podium.outcome": str(result["outcome"]),
        "podium.dataset": measured.dataset.digest,
    }
    made = str(client.create_run(experiment_id, tags=tags, run_name=run_id).info.run_id)
    now = int(time.time() * 1000)
    metrics = [Metric(key, value, now, step) for key, value, step in _metrics(measured)]
    params = [Param(key, str(value)) for key, value in measured.winner.hyperparameters.items()]
    client.log_batch(
        made, metrics=metrics, params=[*params, Param("dataset", measured.dataset.name)]
    )
    client.set_terminated(made)
    return made


def _metrics(measured: "Evaluation") -> Iterator[tuple[str, float, int]]:
    for number, epoch in enumerate(measured.chosen.epochs, 1):
        yield from ((name, value, number) for name, value in epoch.items() if name != "epoch")
    yield from (
        (f"validation_{name}", value, 0)
        for name, value in measured.chosen.validation.metrics.items()
    )
    yield from ((f"test_{name}", value, 0) for name, value in measured.test.metrics.items())


def _version(
    client: "MlflowClient", run: str, result: Mapping[str, Any], locate: Callable[[], str]
) -> str:
    from mlflow.exceptions import MlflowException

    name, version = str(result["model_name"]), str(result["version"])
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    return find_version(client, name, version) or str(
        client.create_model_version(name, locate(), run, tags={VERSION_TAG: version}).version
    )


def _locate(client: "MlflowClient", uri: str, run: str, source: str) -> str:
    """Return where MLflow finds a version's files; those on this machine become artifacts of the
    run on a server."""
    if source.startswith(("s3://", "minio://")):
        return source.replace("minio://", "s3://", 1)  # MLflow knows the store by its protocol
    if uri.startswith("sqlite:"):
        return source
    client.log_artifacts(run, path_of(source), "model")
    return f"{client.get_run(run).info.artifact_uri}/model"
