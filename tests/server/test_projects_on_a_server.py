"""Projects share a server without taking each other's pipelines: names, what submit says, what it refuses."""

from pathlib import Path

import pytest
from api_server import ApiServer
from click.testing import CliRunner, Result
from kfp_server import KfpServer, KfpWorld

from podium.cli import app
from podium.errors import InvalidInput
from podium.kfp.client import Server
from podium.kfp.compiling import compile_pipeline
from podium.kfp.schedule_files import Schedule
from podium.kfp.schedules import Schedules
from podium.kfp.versions import ServerPipelines

pytestmark = pytest.mark.whole


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a project."""
    monkeypatch.chdir(tmp_path)
    text = "dataset: table:s3://data/churn.csv\ntarget: left\nmodel_name: churn\nstorage: s3://data/podium\n"
    (tmp_path / "podium.yaml").write_text(text)
    return tmp_path


def invoke(kfp: KfpServer, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--host", kfp.host])


def test_a_projects_upload_leaves_the_shared_pipeline_alone(
    kfp: KfpServer, world: KfpWorld, project: Path
) -> None:
    assert invoke(kfp, "upload").exit_code == 0
    assert [pipeline["display_name"] for pipeline in world.pipelines.values()] == ["churn"]
    (project / "podium.yaml").unlink()
    assert invoke(kfp, "upload", "tune_and_promote").exit_code == 0
    assert ServerPipelines(Server(kfp.host)).choose("tune_and_promote", None).changes({}) == {}
    assert ServerPipelines(Server(kfp.host)).choose("churn", None).ours


def test_submit_runs_the_projects_pipeline_and_says_so(
    kfp: KfpServer, world: KfpWorld, project: Path
) -> None:
    invoke(kfp, "upload")
    done = invoke(kfp, "submit", "max_trials=7")
    version = ServerPipelines(Server(kfp.host)).choose("churn", None).name
    reported = f"pipeline churn {version}, dataset table:s3://data/churn.csv, model churn, "
    assert done.stderr.startswith(reported)
    assert "target=left" in done.stderr
    assert "max_trials=7" in done.stderr
    (run,) = world.runs.values()
    assert run["runtime_config"]["parameters"]["model_name"] == "churn"


def test_a_teams_account_images_and_root_stand_in_the_project(
    kfp: KfpServer, world: KfpWorld, project: Path
) -> None:
    text = (project / "podium.yaml").read_text() + "schedule: {name: nightly, cron: '@daily'}\n"
    settings = "{service_account: podium-steps-vision, pipeline_root: 'minio://podium/vision/kfp', steps_image: host/s:1}"
    (project / "podium.yaml").write_text(f"{text}server: {settings}\n")
    for command in (["upload"], ["submit"], ["schedule", "apply"]):
        assert invoke(kfp, *command).exit_code == 0
    spec = ServerPipelines(Server(kfp.host)).choose("churn", None).spec
    executors = spec["deploymentSpec"]["executors"].values()
    assert {executor["container"]["image"] for executor in executors} == {"host/s:1"}
    (run,) = world.runs.values()
    (nightly,) = Schedules(Server(kfp.host)).all()
    assert run["service_account"] == nightly["service_account"] == "podium-steps-vision"
    root = "minio://podium/vision/kfp"
    assert run["runtime_config"]["pipeline_root"] == nightly["pipeline_root"] == root
    assert invoke(kfp, "schedule", "plan").output.startswith("keep ")


@pytest.mark.parametrize(("settings", "hint"), [
    ("{service_acount: team}", "did you mean service_account?"), ("podium-steps", "for example server: "),
])  # fmt: skip
def test_server_settings_that_do_not_exist_are_refused(
    kfp: KfpServer, project: Path, settings: str, hint: str
) -> None:
    (project / "podium.yaml").write_text(f"model_name: churn\nserver: {settings}\n")
    error = invoke(kfp, "submit").exception
    assert isinstance(error, InvalidInput)
    assert hint in str(error.hint)


def test_submit_by_name_says_podiums_defaults_plainly(
    kfp: KfpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke(kfp, "upload", "train_and_promote")
    done = invoke(kfp, "submit", "train_and_promote")
    version = ServerPipelines(Server(kfp.host)).choose("train_and_promote", None).name
    assert f"pipeline train-and-promote {version}, dataset mnist\n" in done.stderr


def test_a_shared_name_that_holds_a_project_is_refused(
    kfp: KfpServer, world: KfpWorld, project: Path
) -> None:
    ServerPipelines(Server(kfp.host)).upload(
        compile_pipeline("tune_and_promote", ["model_name=churn"])
    )
    (project / "podium.yaml").unlink()
    error = invoke(kfp, "submit", "tune_and_promote").exception
    version = ServerPipelines(Server(kfp.host)).choose("tune_and_promote", None).name
    assert isinstance(error, InvalidInput)
    assert f"{version} was uploaded for another model, churn" in error.message
    assert f"--version {version}" in str(error.hint)
    assert world.runs == {}
    for reported in (["--version", version], ["model_name=churn"]):
        assert invoke(kfp, "submit", "tune_and_promote", *reported).exit_code == 0
    assert len(world.runs) == 2


def test_a_schedule_of_the_latest_takes_no_project_unasked(server: Server) -> None:
    ServerPipelines(server).upload(compile_pipeline("tune_and_promote", ["model_name=churn"]))
    nightly = Schedule(name="nightly", pipeline="tune-and-promote", cron="@daily")
    with pytest.raises(InvalidInput, match="uploaded for another model"):
        Schedules(server).plan([nightly])
    (change,) = Schedules(server).plan([Schedule(name="nightly", pipeline="tune-and-promote", cron="@daily",
                                                 parameters={"model_name": "churn"})])  # fmt: skip
    assert change.action == "create"


def test_submit_says_what_a_quota_has_no_room_for(
    kfp: KfpServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ApiServer()
    cluster.start()
    try:
        cluster.world.plurals.add("resourcequotas")
        cluster.world.put(
            "resourcequotas", {"metadata": {"name": "gpus"}, "spec": {"hard": {"pods": "1"}}}
        )
        (project / "kubeconfig").write_text(cluster.kubeconfig())
        with (project / "podium.yaml").open("a") as file:
            file.write(
                "pipeline: train_and_promote\nworkers: 1\nserver: {service_account: podium-steps-vision}\n"
            )
        invoke(kfp, "upload")
        monkeypatch.setenv("KUBECONFIG", str(project / "kubeconfig"))
        done = invoke(kfp, "submit")
        reported = "warning: the training asks for 2 of pods, but quota gpus of namespace vision has 1, 0 in use ("
        assert (done.exit_code, done.stderr.count(reported)) == (0, 1)
    finally:
        cluster.stop()
    done = invoke(kfp, "submit")
    assert (done.exit_code, "warning" in done.stderr) == (0, False)
