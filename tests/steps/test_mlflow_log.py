"""A run and its promoted version in MLflow, with the real MLflow where it is installed."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from podium.cli import app
from podium.errors import InvalidInput
from podium.models.mlflow import check_tracking
from podium.steps.evaluate import evaluate
from podium.steps.process import current_run
from podium.steps.promote import promote
from podium.steps.upload_model import upload_model
from podium.training.identity import StepContext
from podium.training.mlflow_log import log_to_mlflow
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

RUN = "20260102-030405-abcd"


@pytest.fixture(
    params=["database", pytest.param("server", marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of an empty MLflow: a database, and a server as its documentation starts one."""
    pytest.importorskip("mlflow", reason="needs MLflow: pip install 'podium-ml[mlflow]'")
    if request.param == "database":
        yield f"sqlite:///{tmp_path}/mlflow.db"
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/mlflow.db",
    ]
    command += ["--port", str(port), "--workers", "1"]
    server = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        while server.poll() is None:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def run_of(data: Path, candidates: dict[str, Path], tmp_path: Path, uri: str) -> str:
    """Evaluate, upload and promote as a pipeline does; return the outcome."""
    step = StepContext(current_run, lambda: f"file://{tmp_path}/store")
    jobs = PredictJobs(step=step, target=LaunchTarget(cluster=f"local://{tmp_path}/cluster"))
    written = (tmp_path / "predictions", tmp_path / "evaluation")
    models = [str(candidates["weak"]), str(candidates["strong"])]
    evaluate(step, data, models, tmp_path / "evaluation", tmp_path / "predictions", jobs=jobs)
    version = upload_model(step, models[1], *written, model_name="tiny")
    return promote(step, data, tmp_path / "evaluation", tmp_path / "decision", tmp_path / "report.html", version=version,
                   model_name="tiny", jobs=jobs, tracking=uri).outcome  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_the_run_and_the_champion(
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
    uri: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from mlflow import MlflowClient

    assert run_of(tiny_dataset, candidates, tmp_path, uri) == "promoted"
    assert run_of(tiny_dataset, candidates, tmp_path, uri) == "promoted"  # a retried step
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    champion = client.get_model_version_by_alias("tiny", "champion")
    assert str(champion.version) == "1"
    if uri.startswith("sqlite:"):
        assert champion.source == f"file://{tmp_path}/store/models/tiny/versions/{RUN}"
    else:
        assert "model/model.onnx" in [
            file.path for file in client.list_artifacts(champion.run_id, "model")
        ]
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["lr"]) == (RUN, "FINISHED", "1.0")
    assert {"test_accuracy", "validation_accuracy", "accuracy"} <= run.data.metrics.keys()
    assert champion.run_id == run.info.run_id
    assert f"MLflow: run {run.info.run_id}, tiny version 1, champion" in capfd.readouterr().out


def models(*words: str) -> Result:
    done = CliRunner().invoke(app, ["models", *words])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.filterwarnings("ignore")
def test_promoting_and_rolling_back_by_hand_move_mlflows_champion(
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlflow import MlflowClient

    client, storage, second = (
        MlflowClient(tracking_uri=uri, registry_uri=uri),
        f"file://{tmp_path}/store",
        f"{RUN}-2",
    )
    assert run_of(tiny_dataset, candidates, tmp_path, uri) == "promoted"
    monkeypatch.setenv("PODIUM_RUN_ID", second)
    assert run_of(tiny_dataset, candidates, tmp_path, uri) == "kept"
    moved = models("promote", "tiny", second, "--storage", storage)
    assert moved.stderr.splitlines()[-1] == f"MLflow's alias champion at {uri} is version 2"
    assert client.get_model_version_by_alias("tiny", "champion").tags["podium.version"] == second
    models("rollback", "tiny", "--storage", storage)
    assert client.get_model_version_by_alias("tiny", "champion").tags["podium.version"] == RUN
    client.set_registered_model_alias("tiny", "champion", "2")
    models(
        "promote", "tiny", RUN, "--storage", storage, "--tracking", uri
    )  # it is champion: only the alias moves
    assert str(client.get_model_version_by_alias("tiny", "champion").version) == "1"
    monkeypatch.setenv("PODIUM_RUN_ID", f"{RUN}-3")
    run_of(tiny_dataset, candidates, tmp_path, "")
    left = models("promote", "tiny", f"{RUN}-3", "--storage", storage)
    stays = f"warning: MLflow's alias champion at {uri} has not moved: tiny {RUN}-3 was not logged there"
    assert left.stderr.splitlines()[-1] == stays


def test_a_rollback_stands_when_mlflow_does_not_follow(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = "http://127.0.0.1:9"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for run, tracking in ((RUN, nobody), (f"{RUN}-2", "")):
        monkeypatch.setenv("PODIUM_RUN_ID", run)
        run_of(tiny_dataset, candidates, tmp_path, tracking)
    storage = f"file://{tmp_path}/store"
    left = models(
        "promote", "tiny", f"{RUN}-2", "--storage", storage
    )  # it was not logged, but the one before was
    assert f"warning: MLflow's alias champion at {nobody} has not moved: " in left.stderr
    back = models("rollback", "tiny", "--storage", storage)
    assert back.stdout == f"champion of tiny: {RUN}, instead of {RUN}-2\n"
    assert f"warning: MLflow's alias champion at {nobody} has not moved: " in back.stderr
    assert f"`podium models promote tiny {RUN} --tracking URL --storage " in back.stderr
    refused = CliRunner().invoke(
        app, ["models", "rollback", "tiny", "--storage", storage, "--tracking", "mlflow:5000"]
    )
    assert isinstance(refused.exception, InvalidInput)
    assert (
        models("list", "tiny", "--storage", storage, "--json").stdout.count(f'"champion": "{RUN}"')
        == 1
    )


def test_a_steps_image_without_mlflow_names_what_to_build(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setenv("KFP_POD_NAME", "promote-1")
    assert run_of(tiny_dataset, candidates, tmp_path, "http://mlflow:5000") == "promoted"
    assert 'make images BUILD_ARGS="--build-arg EXTRAS=mlflow-skinny"' in capfd.readouterr().err


def test_a_promotion_stands_when_mlflow_does_not_answer(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert run_of(tiny_dataset, candidates, tmp_path, "http://127.0.0.1:9") == "promoted"
    assert "warning: the run is not logged to MLflow: " in capfd.readouterr().err


@pytest.mark.parametrize(
    "uri",
    [
        "mlflow:5000",
        "file:///mlruns",
        "sqlite:///mlflow.db",
        "http://me:pass-of-mine@mlflow:5000",
        "http://me:pass-of-mine@[mlflow",
    ],
)
def test_an_address_that_cannot_work_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInput, match=r"address of (an )?MLflow") as refused:
        check_tracking(uri)
    assert "pass-of-mine" not in str(refused.value)


def test_without_mlflow_a_run_here_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.models.mlflow.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match="needs MLflow"):
        check_tracking("http://mlflow:5000", here=True)
    check_tracking("http://mlflow:5000")
    nothing: Any = None
    log_to_mlflow("", nothing, nothing, "")
