"""Uploads: a new version only when the content changed, on old and new servers."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kfp_server import KfpServer, KfpWorld

from podium.cli import app
from podium.cli.upload import _doing
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.kfp import runs
from podium.kfp.client import Server
from podium.kfp.compiling import compile_pipeline
from podium.kfp.definition import Definition
from podium.kfp.runs import ServerRuns
from podium.kfp.versions import ServerPipelines
from podium.system import pod
from podium.training.kept_logs import KeptLogs

HELLO = """
components: {}
pipelineInfo: {name: hello-world}
root:
  dag: {tasks: {}}
  inputDefinitions:
    parameters:
      rounds: {parameterType: NUMBER_INTEGER, defaultValue: 3, isOptional: true}
      name: {parameterType: STRING, isOptional: true}
schemaVersion: 2.1.0
"""


def test_the_same_content_makes_no_second_version(server: Server, world: KfpWorld) -> None:
    first, second = ServerPipelines(server).upload(HELLO), ServerPipelines(server).upload(HELLO)
    assert first.new
    assert not second.new
    assert first.id == second.id
    assert first.name == f"v1-{first.digest[:8]}"
    assert sum(request == "POST pipelines/upload_version" for request in world.requests) == 1


def test_comments_and_order_are_no_change(server: Server) -> None:
    ServerPipelines(server).upload(HELLO)
    assert (
        not ServerPipelines(server)
        .upload(
            "# compiled again\nschemaVersion: 2.1.0\n" + HELLO.replace("schemaVersion: 2.1.0", ""),
        )
        .new
    )


def test_changed_content_is_a_new_version_also_when_reverted(server: Server) -> None:
    names = [
        ServerPipelines(server).upload(text).name[:3]
        for text in (HELLO, HELLO.replace("3", "4"), HELLO)
    ]
    assert names == ["v1-", "v2-", "v3-"]
    assert ServerPipelines(server).choose("hello-world", None).name.startswith("v3-")


def test_a_list_of_several_pages_is_read_whole(server: Server) -> None:
    for rounds in range(7):
        ServerPipelines(server).upload(HELLO.replace("3", str(rounds)))
    names = [version.name[:2] for version in ServerPipelines(server).versions("hello-world")]
    assert names == ["v7", "v6", "v5", "v4", "v3", "v2", "v1"]


def test_a_platform_document_counts_as_content(server: Server) -> None:
    with_platform = HELLO + "---\nplatforms: {kubernetes: {}}\n"
    assert ServerPipelines(server).upload(HELLO).new
    assert ServerPipelines(server).upload(with_platform).new
    assert not ServerPipelines(server).upload(with_platform).new


def test_two_uploads_at_once_end_with_one_version(
    server: Server, world: KfpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ServerPipelines(server).upload(HELLO)
    hidden = world.versions[other.pipeline_id]
    real = world.upload

    def late(query: dict[str, str], text: str) -> object:
        world.versions[other.pipeline_id] = hidden
        return real(query, text)

    monkeypatch.setattr(world, "upload", late)
    world.versions[other.pipeline_id] = []
    version = ServerPipelines(server).upload(HELLO)
    assert version.id == other.id
    assert not version.new


def test_a_real_pipeline_is_uploaded_and_its_parameters_come_back(server: Server) -> None:
    assert ServerPipelines(server).upload(compile_pipeline("train_and_promote")).new
    assert not ServerPipelines(server).upload(compile_pipeline("train_and_promote")).new
    found = {
        parameter.name: parameter
        for parameter in ServerPipelines(server).choose("train_and_promote", None).parameters()
    }
    assert found["workers"].type is int
    assert found["hyperparameters"].type is dict
    assert "Workers beside" in found["workers"].description


def test_an_unknown_pipeline_or_version_names_what_there_is(server: Server) -> None:
    with pytest.raises(NotFound, match="no pipeline 'hello'") as nothing:
        ServerPipelines(server).choose("hello", None)
    assert "upload it first" in str(nothing.value.hint)
    name = ServerPipelines(server).upload(HELLO).name
    with pytest.raises(NotFound) as other:
        ServerPipelines(server).choose("hello-wrld", None)
    assert other.value.hint == "did you mean hello-world?"
    with pytest.raises(NotFound, match="no version 'v9'") as version:
        ServerPipelines(server).choose("hello-world", "v9")
    assert name in str(version.value.hint)


def test_links_lead_to_the_servers_own_pages(
    kfp: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Server(kfp.host).link("runs") == f"{kfp.host}/#/runs"
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kfp.host)
    assert Server().link("runs") == f"{kfp.host}/#/runs"
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "pages.example/kfp/")
    assert Server(kfp.host).link("runs") == "http://pages.example/kfp/#/runs"


@pytest.mark.parametrize(("is_shared", "namespace"), [(False, None), (True, "team")])
def test_users_of_a_shared_server_have_their_pods_namespace(
    kfp: KfpServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_shared: bool,
    namespace: str | None,
) -> None:
    (tmp_path / "namespace").write_text("team\n")
    monkeypatch.setattr(pod, "SERVICE_ACCOUNT", tmp_path)
    kfp.world.multi_user = is_shared
    assert Server(kfp.host).namespace == namespace


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, InvalidInput, None),
        (401, PodiumError, "check the token and the namespace"),
        (403, PodiumError, "check the token and the namespace"),
        (404, NotFound, None),
        (409, Conflict, None),
        (500, PodiumError, None),
        (503, PodiumError, None),
    ],
)
def test_a_refusal_of_the_server_says_what_to_check(
    kfp: KfpServer, server: Server, world: KfpWorld, monkeypatch: pytest.MonkeyPatch,
    status: int, kind: type[PodiumError], hint: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(world, "next_state", lambda run: (status, {"message": "for a reason"}))
    with pytest.raises(PodiumError, match="cannot read run x: for a reason") as refused:
        server.call("read run x", server.runs.run_service_get_run, run_id="x")
    assert type(refused.value) is kind
    assert refused.value.hint == hint


def test_a_job_of_vertex_ai_is_read_by_its_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"displayName": "x", "pipelineSpec": yaml.safe_load(HELLO)}))
    assert Definition.load(str(file)).documents == (yaml.safe_load(HELLO),)
    file.write_text(HELLO)
    assert Definition.load(str(file)).documents == (yaml.safe_load(HELLO),)


@pytest.mark.parametrize("text", ["", "a: b", "- 1", "{", "kind: Workflow"])
def test_a_file_that_is_not_a_compiled_pipeline_is_refused(
    server: Server, world: KfpWorld, text: str
) -> None:
    with pytest.raises(InvalidInput):
        ServerPipelines(server).upload(text)
    assert not world.pipelines


def test_nobody_at_the_address_is_said_in_seconds(kfp: KfpServer) -> None:
    with pytest.raises(PodiumError, match="does not answer"):
        Server("http://127.0.0.1:1")
    with pytest.raises(InvalidInput, match="not a host"):
        Server("ftp://somewhere")


@pytest.mark.parametrize("variable", ["", "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"])
def test_an_address_with_a_password_is_refused_without_it(
    kfp: KfpServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://anna:s3cret@127.0.0.1:1/pipeline"
    if variable:
        monkeypatch.setenv(variable, address)
    with pytest.raises(PodiumError) as caught:
        Server("" if variable == "KF_PIPELINES_ENDPOINT" else None if variable else address)
    assert "s3cret" not in str(caught.value)
    assert "http://…@127.0.0.1:1/pipeline" in caught.value.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"detail": "not logged in"}', '{"detail": "not logged in"}'),
        ('{"error": "nobody", "message": ""}', "nobody"),
        ("<html>", "502 Bad Gateway"),
        ("", "502 Bad Gateway"),
    ],
)
def test_what_stands_between_is_quoted_as_it_answers(server: Server, body: str, said: str) -> None:
    from kfp_server_api import ApiException

    def answer() -> None:
        error = ApiException(502, "Bad Gateway")
        error.body = body
        raise error

    with pytest.raises(PodiumError) as caught:
        server.call("list runs", answer)
    assert caught.value.message == f"cannot list runs: {said}"


def test_a_server_that_stopped_answering_is_said() -> None:
    kfp = KfpServer()
    server, tasks = Server(kfp.host), {"prepare": "SUCCEEDED", "train": "RUNNING"}
    assert _doing(server, tasks) == "running: train"
    kfp.stop()
    server.api_client.rest_client.pool_manager.clear()  # its open connection would be served on
    with pytest.raises(PodiumError, match="does not answer"):
        server.call("read run x", server.runs.run_service_get_run, run_id="x")
    assert server.silent_since is not None
    server.silent_since -= 40
    assert (
        _doing(server, tasks) == "the server has not answered for 40 s; before that: running: train"
    )


def test_a_run_takes_checked_parameters(server: Server, world: KfpWorld) -> None:
    version = ServerPipelines(server).upload(HELLO)
    with pytest.raises(InvalidInput, match="no parameter 'round'"):
        ServerRuns(server).submit(version, ["round=5"], group="podium")
    with pytest.raises(InvalidInput, match="rounds is a whole number"):
        ServerRuns(server).submit(version, ["rounds=many"], group="podium")
    assert not world.runs
    run = ServerRuns(server).submit(version, ["rounds=5"], group="podium")
    assert world.runs[run.run_id]["runtime_config"]["parameters"] == {"rounds": 5}
    assert run.link.endswith(f"/#/runs/details/{run.run_id}")


def details(**states: str) -> dict[str, object]:
    """What a server shows: also the workflow itself, its drivers and executors."""
    own = {"root": "RUNNING", "prepare-driver": "SUCCEEDED"}
    named = {**own, "executor": "RUNNING", "executor(0)": "FAILED", **states}
    tasks: list[dict[str, object]] = [
        {"display_name": name, "state": state} for name, state in named.items()
    ]
    workflow = {
        "display_name": "hello-x7k2p",
        "state": "RUNNING",
        "child_tasks": [{"pod_name": "hello-x7k2p-27888"}],
    }
    return {"task_details": [workflow, *tasks]}


def test_the_server_knows_where_a_run_keeps_its_logs(
    kfp: KfpServer, world: KfpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    storage = f"file://{tmp_path}/store"
    began = {"created_at": "2026-11-22T09:16:34Z"}
    named, rooted = {"parameters": {"storage": storage}}, {"pipeline_root": "s3://team/artifacts"}
    world.runs["run-1"] = {"run_id": "run-1", "runtime_config": named, **began}
    world.runs["run-2"] = {"run_id": "run-2", "runtime_config": rooted, **began}
    world.runs["run-3"] = {"run_id": "run-3", **began}
    KeptLogs(storage, "run-1").keep("steps/train", "epoch 1\n")
    shown = CliRunner().invoke(app, ["runs", "logs", "run-1", "train", "--host", kfp.host])
    assert shown.stdout == "epoch 1\n"
    server = Server(kfp.host)
    assert ServerRuns(server)["run-2"].storage == "s3://team/podium"
    assert ServerRuns(server)["run-3"].storage == "minio://mlpipeline/podium"
    refused: Any = CliRunner().invoke(app, ["runs", "logs", "run", "--host", kfp.host]).exception
    assert refused.message == "3 runs begin with 'run'"


def test_bad_values_are_refused_before_a_bundled_pipeline_is_submitted(
    server: Server, world: KfpWorld
) -> None:
    version = ServerPipelines(server).upload(compile_pipeline("tune_and_promote"))
    with pytest.raises(InvalidInput, match="max_trials >= 1"):
        ServerRuns(server).submit(version, ["max_trials=0"], group="podium")
    assert world.runs == {}
    another = ServerPipelines(server).upload(HELLO.replace("rounds", "max_trials"))
    ServerRuns(server).submit(another, ["max_trials=0"], group="podium")


def test_a_run_is_followed_task_by_task(
    server: Server, world: KfpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ServerRuns(server).submit(ServerPipelines(server).upload(HELLO), [], group="podium")
    world.script = [
        {"state": "RUNNING", "run_details": details(prepare="RUNNING")},
        {"state": "RUNNING", "run_details": details(prepare="SUCCEEDED", train="RUNNING")},
        {"state": "SUCCEEDED", "run_details": details(prepare="SUCCEEDED", train="SUCCEEDED")},
    ]
    reported: list[tuple[str, str]] = []
    assert (
        ServerRuns(server).follow(run.run_id, lambda *one: reported.append(one), timeout=20)
        == "SUCCEEDED"
    )
    assert reported == [
        ("prepare", "RUNNING"),
        ("prepare", "SUCCEEDED"),
        ("train", "RUNNING"),
        ("train", "SUCCEEDED"),
    ]


def test_a_failed_or_canceled_run_says_so(
    server: Server, world: KfpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ServerRuns(server).submit(ServerPipelines(server).upload(HELLO), [], group="podium")
    world.script = [
        {"state": "FAILED", "run_details": details(prepare="SUCCEEDED", train="FAILED")}
    ]
    with pytest.raises(PodiumError, match="failed at train") as caught:
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    assert f"kubectl describe workflow -l pipeline/runid={run.run_id}" in str(caught.value.hint)
    world.script = [
        {"state": "FAILED", "state_history": [{"state": "RUNNING"}, {"state": "CANCELING"}]}
    ]
    with pytest.raises(PodiumError, match="was cancelled"):
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    canceling = {
        "state": "CANCELING",
        "state_history": [{"state": "RUNNING"}, {"state": "CANCELING"}],
    }
    world.script = [
        canceling,
        {"state": "FAILED", "state_history": [{"state": "RUNNING"}, {"state": "FAILED"}]},
    ]
    with pytest.raises(PodiumError, match="was cancelled"):
        ServerRuns(server).follow(run.run_id, lambda *_: None)


def stored_run(server: Server, world: KfpWorld, folder: Path) -> tuple[Any, KeptLogs]:
    """Submit a run that keeps its logs in a storage that is in reach."""
    run, storage = (
        ServerRuns(server).submit(ServerPipelines(server).upload(HELLO), [], group="podium"),
        f"file://{folder}/store",
    )
    world.runs[run.run_id]["runtime_config"] = {"parameters": {"storage": storage}}
    return run, KeptLogs(storage, run.run_id)


def test_a_failed_step_is_quoted_where_its_log_is_kept(
    server: Server, world: KfpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = stored_run(server, world, tmp_path)
    kept.keep("steps/prepare", "reading\n")
    kept.keep_error(
        "steps/prepare",
        PodiumError("the table has no column left", "podium data inspect table:x.csv"),
    )
    world.script = [{"state": "FAILED", "run_details": details(prepare="FAILED")}]
    with pytest.raises(
        PodiumError, match="failed at prepare: the table has no column left"
    ) as caught:
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    assert str(caught.value.hint).startswith("podium data inspect table:x.csv; see the steps' logs")


def test_the_last_words_of_a_failed_training_are_repeated(
    server: Server, world: KfpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = stored_run(server, world, tmp_path)
    error = "PyTorchJob train-1 failed\npod train-1-master-0: Error (exit code 1)\n  | error: no column left"
    kept.keep("steps/train", "podium | error: early\nerror: printed\nhint: $(reboot)\n")
    kept.keep_error("steps/train", PodiumError(error))
    world.script = [{"state": "FAILED", "run_details": details(train="FAILED")}]
    with pytest.raises(PodiumError) as caught:
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    assert caught.value.message.endswith(f"failed at train: {error}")
    kept.forget_error("steps/train")
    with pytest.raises(PodiumError) as caught:
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    assert caught.value.message.endswith("failed at train"), (
        "what a program prints is no error of the step"
    )
    assert "reboot" not in str(caught.value.hint)


def test_a_step_that_never_ran_is_not_quoted(
    server: Server, world: KfpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = stored_run(server, world, tmp_path)
    kept.keep("steps/prepare", "prepared\n")
    world.script = [
        {"state": "FAILED", "run_details": details(prepare="SUCCEEDED", train="FAILED")}
    ]
    with pytest.raises(
        PodiumError, match=r"failed at train: .* its inputs could not be read from the store"
    ) as caught:
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    assert f"kubectl describe workflow -l pipeline/runid={run.run_id}" in str(caught.value.hint)


def test_an_exit_handler_hides_no_failure(server: Server, world: KfpWorld) -> None:
    run = ServerRuns(server).submit(ServerPipelines(server).upload(HELLO), [], group="podium")
    tasks = {"exit-handler-1": "FAILED", "train": "FAILED", "finish": "SUCCEEDED"}
    world.script = [{"state": "SUCCEEDED", "run_details": details(**tasks)}]
    with pytest.raises(PodiumError, match="failed at exit-handler-1, train"):
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    world.script = [{"state": "SUCCEEDED", "run_details": details(train="FAILED")}]  # may fail
    assert ServerRuns(server).follow(run.run_id, lambda *_: None) == "SUCCEEDED"


def test_a_failed_task_is_named_though_it_is_written_late(
    server: Server, world: KfpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ServerRuns(server).submit(ServerPipelines(server).upload(HELLO), [], group="podium")
    late = [{"state": "FAILED", "run_details": details(train="RUNNING")}] * 3
    world.script = [*late, {"state": "FAILED", "run_details": details(train="FAILED")}]
    with pytest.raises(PodiumError, match="failed at train"):
        ServerRuns(server).follow(run.run_id, lambda *_: None)
    monkeypatch.setattr(runs, "LATE", 0.05)
    world.script = late
    with pytest.raises(PodiumError, match="failed at no task"):
        ServerRuns(server).follow(run.run_id, lambda *_: None)


OWN = """\
from kfp import dsl
from podium.components.prepare_data import prepare_data

@dsl.pipeline(name="own")
def own(source: str, limit: int = 0):
    prepare_data(source=source, limit=limit)
"""


def test_a_pipelines_file_is_uploaded_once_and_submitted(
    kfp: KfpServer, world: KfpWorld, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    for words in (["upload", str(file)], ["submit", str(file), "source=s3://a/b"]):
        assert (
            CliRunner().invoke(app, [*words, "--host", kfp.host], catch_exceptions=False).exit_code
            == 0
        )
    (run,) = world.runs.values()
    assert run["runtime_config"]["parameters"] == {"source": "s3://a/b"}
    (pipeline,) = world.pipelines.values()
    assert pipeline["display_name"] == "own"
    with pytest.raises(InvalidInput, match="the pipeline needs source"):
        CliRunner().invoke(app, ["submit", str(file), "--host", kfp.host], catch_exceptions=False)
