"""What steps, trials and trainings printed can be read when their pods are gone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import World
from click.testing import CliRunner
from kfp.dsl import Artifact

from podium.cli import app
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import Failed, InvalidInput, NotFound
from podium.manifests.experiment import Experiment, Trial, load
from podium.manifests.experiment.build import with_pods_retained
from podium.manifests.typed import typed
from podium.manifests.workload import Workload
from podium.runner.record import RunRecord
from podium.steps.process import step_process
from podium.steps.train import _logs_kept
from podium.storage import connect
from podium.system import pod
from podium.training import kept_logs
from podium.training.base import say
from podium.training.identity import RunIdentity, StepContext
from podium.training.kept_logs import (
    Excerpt,
    KeptLogs,
    _StepError,
    trial_logs,
)

pytestmark = pytest.mark.whole

RUN = "8c1d29f0-93b1-4f7a-9d51-1e5a4d2f7c11"
IDENTITY = RunIdentity(id=RUN, step="fit")


@pytest.fixture(params=["files", "moto", "minio"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, new_bucket: Callable[[str], str]
) -> str:
    """URL of an empty storage: a directory, and a bucket of each server."""
    if request.param == "files":
        return f"file://{tmp_path}/store"
    return new_bucket(request.param)


@pytest.fixture
def in_step(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """This process is the step `train` of a run on the cluster of KUBECONFIG."""
    (tmp_path / "namespace").write_text("team")
    monkeypatch.setattr(pod, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KFP_POD_NAME", "tune-xyz-impl-1")
    world.plurals |= {"configmaps", "secrets"}
    world.put("pods", {"metadata": {
        "name": "tune-xyz-impl-1", "labels": {"pipeline/runid": RUN},
        "annotations": {"workflows.argoproj.io/node-name": "tune-xyz.root.train.executor(0)"},
    }})  # fmt: skip
    return world


def printing(storage: str, *lines: str, error: BaseException | None = None) -> None:
    with step_process({"storage": storage}):
        for line in lines:
            say(line)
        print("and a warning", file=sys.stderr)
        if error:
            raise error


def read(storage: str, *words: str) -> str:
    done = CliRunner().invoke(
        app, ["runs", "logs", *words, "--storage", storage], catch_exceptions=False
    )
    return done.stdout


def test_what_a_step_printed_is_kept_with_its_run(
    in_step: World, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printing(storage, "PyTorchJob train-1", "epoch 1")
    in_step.remove("pods", "tune-xyz-impl-1")
    printed = "podium | PyTorchJob train-1\npodium | epoch 1\nand a warning\n"
    assert read(storage, RUN, "train") == printed
    assert read(storage, RUN[:8]) == printed
    assert "podium | epoch 1" in capsys.readouterr().out  # kubectl logs shows it as well


def test_a_failed_step_keeps_its_error_and_earlier_attempts(in_step: World, tmp_path: Path) -> None:
    storage = f"file://{tmp_path}/store"
    with pytest.raises(Failed):
        printing(storage, "first", error=Failed("the job failed", "look"))
    left = KeptLogs(storage, RUN)
    assert left.error("steps/train") == _StepError(error="the job failed", hint="look")
    with pytest.raises(ZeroDivisionError):
        printing(storage, "second", error=ZeroDivisionError("by zero"))
    assert left.error("steps/train") == _StepError()
    kept = read(storage, RUN, "train")
    assert (
        kept.index("podium | first")
        < kept.index("error: the job failed")
        < kept.index("[another attempt]")
    )
    assert kept.index("podium | second") < kept.index("ZeroDivisionError: by zero")


def test_a_running_step_is_written_now_and_then(
    in_step: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.steps.process.INTERVAL", 0.05)
    kept = KeptLogs(f"file://{tmp_path}/store", RUN)
    with step_process({"storage": kept.storage.url}):
        say("half way")
        while not kept.names():
            pass
        left = kept.read("steps/train")
    assert left == "podium | half way\n"  # a kill would lose no more than the interval


def test_a_stopped_step_keeps_what_it_printed(in_step: World, tmp_path: Path) -> None:
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # a trainer that ran in this process has its own handler

    def run() -> None:
        with step_process({"storage": str(tmp_path)}):
            say("launched")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit):
        run()
    assert (
        read(str(tmp_path), RUN, "train") == "podium | launched\nthe step was stopped: signal 15\n"
    )


def executor(tmp_path: Path, step_name: str, **given: object) -> subprocess.CompletedProcess[str]:
    """Run a step of the compiled pipeline as its pod does."""
    golden = Path(__file__).parents[1] / "golden" / "pipelines" / "train_and_promote.yaml"
    compiled = next(yaml.safe_load_all(golden.read_text()))["deploymentSpec"]["executors"]
    (tmp_path / "component.py").write_text(
        compiled[f"exec-{step_name}"]["container"]["command"][-1]
    )
    artifact = [
        {
            "name": "data",
            "type": {"schemaTitle": "system.Dataset"},
            "uri": f"{tmp_path}/data",
            "metadata": {},
        }
    ]
    outputs = {
        "outputFile": f"{tmp_path}/output.json",
        "artifacts": {"metrics": {"artifacts": artifact}},
    }
    inputs = {"artifacts": {"data": {"artifacts": artifact}}, "parameterValues": given}
    program = (
        f"import pathlib, runpy; from podium.system import pod; pod.SERVICE_ACCOUNT = pathlib.Path({str(tmp_path)!r}); "
        "runpy.run_module('kfp.dsl.executor_main', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", program,
         "--component_module_path", f"{tmp_path}/component.py", "--function_to_execute", step_name.replace("-", "_"),
         "--executor_input", json.dumps({"inputs": inputs, "outputs": outputs})],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_a_refused_setting_is_kept_before_its_step_begins(in_step: World, tmp_path: Path) -> None:
    ended = executor(tmp_path, "train-distributed", workers=-3, storage=f"file://{tmp_path}/store")
    assert ended.returncode == 1
    refusal = "error: `workers >= -1` must hold, but got workers=-3\n"
    assert read(f"file://{tmp_path}/store", RUN, "train") == refusal
    assert refusal in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.timeout(120)
def test_a_refusal_is_readable_where_the_store_is_not(in_step: World, tmp_path: Path) -> None:
    in_step.forbidden.add("configmaps")
    ended = executor(tmp_path, "train-distributed", workers=-3, storage=f"file://{tmp_path}/store")
    warning, error = ended.stderr.splitlines()[-2:]
    assert error == "error: `workers >= -1` must hold, but got workers=-3"
    assert warning.startswith("warning: what this step prints is not kept: ")


@pytest.mark.parametrize(
    ("given", "artifact", "storage"),
    [
        ({"storage": "s3://a/b/"}, "minio://c/d", "s3://a/b"),
        ({}, "minio://c/d", "minio://c/podium"),
    ],
)
def test_parameters_tell_where_a_step_keeps(
    given: dict[str, str], artifact: str, storage: str
) -> None:
    with step_process({"report": Artifact(uri=artifact), **given}) as step:
        assert step.storage == storage


def test_a_storage_that_refuses_fails_no_step(
    in_step: World, capsys: pytest.CaptureFixture[str]
) -> None:
    printing("s3://No_Bucket", "done")
    assert "warning: what this step prints is not kept: " in capsys.readouterr().err


def test_no_secret_gets_into_a_kept_log(
    in_step: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("PODIUM_S3_SECRET", "the-secrets-name")
    storage = f"file://{tmp_path}/store"
    printing(
        storage, "key wJalrXUtnFEMI 0123456789abcdef the-secrets-name http://me:hunter22@host/x"
    )
    assert read(storage, RUN, "train").startswith(
        "podium | key ******** ******** the-secrets-name http://me:********@"
    )


def test_credentials_of_the_storage_count_as_secrets(
    endpoint: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint("moto"))
    (tmp_path / "accesskey").write_text("user-1")
    (tmp_path / "secretkey").write_text("from-a-file")
    monkeypatch.setenv("PODIUM_S3_CREDENTIALS_DIR", str(tmp_path))
    connect("s3://bucket", create=True)
    kept = KeptLogs("s3://bucket", RUN)
    kept.keep("steps/train", "a from-a-file b")
    assert kept.read("steps/train") == "a ******** b"


def test_of_a_long_log_both_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "LIMIT", 20)
    excerpt = Excerpt()
    for number in range(100):
        excerpt.add(f"{number:02d} ")
    assert str(excerpt) == "00 01 02 0\n[280 characters are left out here]\n 97 98 99 "


def replica(world: World, job: str, role: str, *lines: str) -> None:
    labels = {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": role,
              "training.kubeflow.org/replica-index": "0"}  # fmt: skip
    status = {"phase": "Succeeded", "containerStatuses": [
        {"name": "pytorch", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
         "state": {"terminated": {"exitCode": 0}}}]}  # fmt: skip
    world.pod(f"{job}-{role}-0", labels, **status)
    world.logs[f"{job}-{role}-0"] = list(lines)


def trained(world: World, cluster: KubernetesCluster, name: str) -> Workload:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {},
    }
    cluster.create(typed(job))
    replica(world, name, "master", f"accuracy of {name}", "done")
    replica(world, name, "worker", f"worker of {name}")
    return Workload.parse(job)


def test_every_replica_of_a_training_keeps_its_log(
    cluster: KubernetesCluster, world: World, storage: str
) -> None:
    job = trained(world, cluster, "train-1")
    with _logs_kept(cluster, job, StepContext.of(IDENTITY, storage)):
        pass
    world.remove("pods", "train-1-master-0")
    assert KeptLogs(storage, RUN).names() == ["train/fit/master-0", "train/fit/worker-0"]
    assert read(storage, RUN, "train/fit/worker-0") == "worker of train-1\n"
    assert read(storage, RUN, "train").splitlines()[:2] == [
        "== train/fit/master-0",
        "accuracy of train-1",
    ]


def test_two_trainings_of_a_run_keep_both_logs(
    cluster: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    for job, step_name in (("train-1", "fit"), ("train-2", "fit-2"), ("train-3", "")):
        launched = trained(world, cluster, job)
        step = StepContext.of(RunIdentity(id=RUN, step=step_name), str(tmp_path))
        with _logs_kept(cluster, launched, step):
            pass
    KeptLogs(str(tmp_path), RUN).keep("steps/fit", "of the step itself\n")
    assert read(str(tmp_path), RUN, "train").count("accuracy of") == 3
    assert read(str(tmp_path), RUN, "train/fit/master-0").splitlines()[0] == "accuracy of train-1"
    assert read(str(tmp_path), RUN, "fit-2").splitlines()[1] == "accuracy of train-2"
    assert (
        read(str(tmp_path), RUN, "train-3").splitlines()[1] == "accuracy of train-3"
    )  # of a run on a laptop
    assert read(str(tmp_path), RUN, "fit") == "of the step itself\n"


def test_a_failed_training_keeps_its_logs_too(
    cluster: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    job = trained(world, cluster, "train-1")
    with pytest.raises(Failed), _logs_kept(cluster, job, StepContext.of(IDENTITY, str(tmp_path))):
        raise Failed("out of memory")
    assert KeptLogs(str(tmp_path), RUN).names() == ["train/fit/master-0", "train/fit/worker-0"]


def trial_of(world: World, cluster: KubernetesCluster, name: str, phase: str) -> Trial:
    trained(world, cluster, name)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}}
    conditions = [{"type": phase, "status": "True", "reason": f"Trial{phase}"}]
    manifest: dict[str, Any] = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": {"name": name},
                                "spec": {"runSpec": job}, "status": {"conditions": conditions}}  # fmt: skip
    return Trial.parse(manifest)


def test_trials_keep_their_logs_before_their_jobs_go(
    cluster: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    phases = {
        "sweep-a": "Succeeded",
        "sweep-b": "Failed",
        "sweep-c": "MetricsUnavailable",
        "sweep-d": "Running",
    }
    trials = [trial_of(world, cluster, name, phase) for name, phase in phases.items()]
    experiment = Experiment.parse(load("random"))
    with trial_logs(cluster, str(tmp_path), RUN, experiment) as logs:
        assert logs
        logs.update(trials)
        logs.update(trials)
        left = [job.name for job in cluster.list("PyTorchJob")]
        assert left == [
            "sweep-b",
            "sweep-c",
            "sweep-d",
        ]  # the failed one's pod still says why it failed
    # Katib would start the job of a trial without metrics again.
    assert [job.name for job in cluster.list("PyTorchJob")] == ["sweep-c", "sweep-d"]
    assert read(str(tmp_path), RUN, "sweep-b").splitlines()[:3] == [
        "== trials/sweep-b/master-0", "accuracy of sweep-b", "done",
    ]  # fmt: skip
    assert len(KeptLogs(str(tmp_path), RUN).names()) == 6


def test_jobs_that_the_author_retains_are_left_alone(
    cluster: KubernetesCluster, world: World, tmp_path: Path
) -> None:
    experiment = with_pods_retained(Experiment.parse(load("random")))
    assert experiment.template.retain
    with trial_logs(cluster, str(tmp_path), RUN, experiment) as logs:
        assert logs
        logs.update([trial_of(world, cluster, "sweep-a", "Succeeded")])
    assert [job.name for job in cluster.list("PyTorchJob")] == ["sweep-a"]


def test_a_job_that_cannot_be_deleted_is_a_warning_once(
    cluster: KubernetesCluster, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = [trial_of(world, cluster, "sweep-a", "Succeeded")]
    world.forbidden.add("pytorchjobs")
    with trial_logs(cluster, str(tmp_path), RUN, Experiment.parse(load("random"))) as logs:
        assert logs
        logs.update(ended)
        logs.update(ended)
    said = [line for line in capsys.readouterr().err.splitlines() if "stays" in line]
    assert len(said) == 1
    assert said[0].startswith("warning: the job of trial sweep-a stays: ")


def test_a_log_that_cannot_be_read_is_a_warning(
    cluster: KubernetesCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    KeptLogs(str(tmp_path), RUN).keep_replicas(cluster, "PyTorchJob", "gone", "train")
    assert "warning: the log of PyTorchJob gone is not kept: " in capsys.readouterr().err


def test_kept_logs_that_are_not_there_are_named(storage: str) -> None:
    with pytest.raises(NotFound, match="there is nothing of a run '8c1d'"):
        read(storage, "8c1d", "train")
    KeptLogs(storage, RUN).keep("steps/train", "x")
    KeptLogs(storage, "8c1d29f0-2").keep("steps/train", "x")
    with pytest.raises(InvalidInput, match="2 runs begin with '8c1d'"):
        read(storage, "8c1d")
    with pytest.raises(NotFound, match="no log of 'trian'") as refused:
        read(storage, RUN, "trian")
    assert refused.value.hint == "did you mean train?"


def test_pruning_a_storage_spares_runs_of_today(storage: str) -> None:
    KeptLogs(storage, RUN).keep("steps/train", "x")
    shown = CliRunner().invoke(app, ["runs", "prune", "--keep", "0", "--storage", storage])
    assert shown.stdout == "there is nothing to delete\n"
    deleted = CliRunner().invoke(app, ["runs", "delete", RUN, "--storage", storage, "--json"])
    assert json.loads(deleted.stdout) == [{"run": RUN, "bytes": 1, "deleted": True}]
    assert KeptLogs(storage, RUN).names() == []


def test_pruning_a_storage_takes_logs_and_candidates(tmp_path: Path) -> None:
    for run, days in (("old", 40), ("older", 50), ("young", 2)):
        KeptLogs(str(tmp_path), run).keep("steps/train", "x")
        connect(tmp_path).put(f"runs/{run}/train-1/model.onnx", b"12345")
        for file in (tmp_path / "runs" / run).rglob("*.*"):
            os.utime(file, (time.time() - days * 86400,) * 2)
    words = ["runs", "prune", "--older-than", "30", "--storage", str(tmp_path)]
    assert CliRunner().invoke(app, [*words, "--dry-run"]).stdout.splitlines() == [
        "would delete older, 0.0 kB", "would delete old, 0.0 kB",
    ]  # fmt: skip
    CliRunner().invoke(app, words)
    assert list(connect(tmp_path).children("runs")) == ["young"]


def test_a_run_here_with_jobs_elsewhere_shows_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    directory, storage = tmp_path / "runs" / "20260101-010101-aaaa", f"file://{tmp_path}/store"
    directory.mkdir(parents=True)
    parameters = {"cluster": "kubernetes://team", "storage": storage}
    run = RunRecord(
        id=directory.name,
        pipeline="train_and_promote",
        directory=directory,
        parameters=parameters,
        state="failed",
    )
    run.save()
    KeptLogs(storage, run.id).keep("trials/sweep-a/master-0", "accuracy=0.5\n")
    assert CliRunner().invoke(app, ["runs", "logs", "latest", "sweep-a"]).stdout == "accuracy=0.5\n"
    CliRunner().invoke(app, ["runs", "delete", "latest"])
    assert KeptLogs(storage, run.id).names() == []
