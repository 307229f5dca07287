"""Programs that push their metrics: Trainer's status server and Katib's database, on this machine."""

import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sweep_manifests import SEEDED, job, write_experiment
from trainjobs import POST, program, trainjob

import podium
from podium.cluster.local.pushed import _credentials, reachable
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

SDK = """
import sys
from kubeflow.trainer import update_trainjob_status
for epoch in range(3):
    sent = update_trainjob_status(progress_percent=50 * epoch, metrics={"loss": float(sys.argv[1]) + 2 - epoch})
    assert sent, "throttled"
"""
REPORT = """
import os, sys
import grpc
import kubeflow.katib as katib
from kubeflow.katib import katib_api_pb2, katib_api_pb2_grpc
x = float(sys.argv[1])
for epoch in range(3):
    katib.report_metrics({"loss": x + 2 - epoch, "timestamp": epoch / 2})
database = katib_api_pb2_grpc.DBManagerStub(grpc.insecure_channel(os.environ["PODIUM_DB_MANAGER"]))
asked = katib_api_pb2.GetObservationLogRequest(
    trial_name=os.environ["KATIB_TRIAL_NAME"], metric_name="loss", start_time="2026-01-01T00:00:00Z"
)
logs = database.GetObservationLog(asked).observation_log.metric_logs
assert [float(log.metric.value) for log in logs] == [x + 2 - epoch for epoch in range(3)], logs
"""


PUSH = {"collector": {"kind": "Push"}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as there:
        yield there


def sweep(
    cluster: LocalSweeps,
    folder: Path,
    script: str,
    trial: Any = None,
    container: str = "training",
    **spec: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run an Experiment of trials that run a script with their x, and return it and its trials."""
    path = folder / "train.py"
    path.write_text(script)
    words = [sys.executable, str(path), "${trialParameters.x}"]
    manifest = write_experiment(
        trial or job(words), container=container, **{"algorithm": SEEDED, **spec}
    )
    cluster.create(typed(manifest))
    *_, last = cluster.watch("Experiment", "e", timeout=120)
    assert cluster.join("Experiment", "e", 30)
    trials = cluster.list("Trial", {"katib.kubeflow.org/experiment": "e"})
    return last.manifest, [stored.manifest for stored in trials]


def observed(trial: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return min, max and latest of each metric of a trial."""
    return {
        metric["name"]: tuple(float(metric[how]) for how in ("min", "max", "latest"))
        for metric in trial["status"]["observation"]["metrics"]
    }


def assigned(trial: dict[str, Any]) -> float:
    return float(trial["spec"]["parameterAssignments"][0]["value"])


def test_a_trial_that_posts_its_metrics_needs_no_line(cluster: LocalSweeps, tmp_path: Path) -> None:
    script = (
        POST
        + "x = float(sys.argv[1])\nfor value in (3, 2, x): assert post(10, loss=value) == 200\n"
    )
    found, trials = sweep(cluster, tmp_path, script, metricsCollectorSpec=PUSH)
    assert found["status"]["trialsSucceeded"] == 2
    assert [observed(trial) for trial in trials] == [
        {"loss": (assigned(trial), 3.0, assigned(trial))} for trial in trials
    ]


def test_a_posted_metric_may_be_called_timestamp(cluster: LocalSweeps, tmp_path: Path) -> None:
    script = POST + "for value in (3, 2): assert post(10, timestamp=value) == 200\n"
    objective = {"type": "minimize", "objectiveMetricName": "timestamp"}
    _, (trial,) = sweep(
        cluster, tmp_path, script, objective=objective, metricsCollectorSpec=PUSH, maxTrialCount=1
    )
    assert observed(trial) == {"timestamp": (2, 3, 2)}


def test_what_a_program_prints_counts_before_what_it_posts(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    script = POST + "post(10, loss=7, accuracy=0.5)\nprint('loss=1')\n"
    objective = {
        "type": "minimize",
        "objectiveMetricName": "loss",
        "additionalMetricNames": ["accuracy"],
    }
    words = ["python3", str(tmp_path / "train.py"), "${trialParameters.x}"]
    trial = {**trainjob(numNodes=1, command=words, args=[]), "metadata": {}}
    _, (trial,) = sweep(
        cluster, tmp_path, script, trial, "node", objective=objective, maxTrialCount=1
    )
    assert observed(trial) == {"loss": (1, 1, 1), "accuracy": (0.5, 0.5, 0.5)}


def test_a_post_is_nothing_to_a_collector_of_lines(cluster: LocalSweeps, tmp_path: Path) -> None:
    # As with Katib: else a wrong metricsFormat would be noticed on a cluster only.
    script = POST + "post(10, loss=1)\nprint('loss=1')\n"
    wrong = {"source": {"filter": {"metricsFormat": ["([a-z]+):([0-9.]+)"]}}}
    _, (trial,) = sweep(cluster, tmp_path, script, metricsCollectorSpec=wrong, maxTrialCount=1)
    last = trial["status"]["conditions"][-1]
    assert last["type"] == "MetricsUnavailable"
    assert "use the collector Push, or TrainJobs" in last["message"]


def test_a_program_that_posts_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = POST + "print(post(10, loss=float(sys.argv[1].partition('=')[2])))\n"
    (tmp_path / "train.py").write_text(script)
    command = ["python", str(tmp_path / "train.py")]
    best = podium.tune(command, {"x": (0.0, 1.0)}, objective="min:loss", trials=1).best
    assert best.value == pytest.approx(best.parameters["x"])


def test_a_trainjob_has_the_status_it_posted(cluster: LocalSweeps) -> None:
    cluster.create(typed(program(POST + "post(10, loss=3)\npost(100, loss=0.25)\n")))
    *_, last = cluster.watch("TrainJob", "job", timeout=60)
    status = last.manifest["status"]["trainerStatus"]
    assert (status["progressPercentage"], status["metrics"]) == (
        100,
        [{"name": "loss", "value": "0.25"}],
    )


def test_early_stopping_follows_posts(cluster: LocalSweeps, tmp_path: Path) -> None:
    # The fourth trial is worse than the three before it, and waits to be stopped.
    script = POST + (
        "import pathlib, time\n"
        f"ended = pathlib.Path({str(tmp_path / 'ended')!r})\n"
        "bad = ended.exists() and len(ended.read_text()) == 3\n"
        "for epoch in range(4): post(10, loss=(9 if bad else 1) - epoch / 10)\n"
        "while bad: time.sleep(0.1)\n"
        "ended.open('a').write('x')\n"
    )
    stopping = {"algorithmName": "medianstop"}
    found, _ = sweep(
        cluster,
        tmp_path,
        script,
        maxTrialCount=4,
        earlyStopping=stopping,
        metricsCollectorSpec=PUSH,
    )
    assert found["status"]["trialsEarlyStopped"] == 1


def test_an_epoch_that_is_printed_and_posted_counts_once(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    # The second trial is the better one, from the fourth epoch on.
    script = (
        "import pathlib\n"
        "from podium.trainer.trainjob_status import StatusReporter\n"
        f"first = pathlib.Path({str(tmp_path / 'first')!r})\n"
        "losses = [9, 8, 7, 1, 1, 1] if first.exists() else [5] * 6\n"
        "first.touch()\n"
        "for epoch, loss in enumerate(losses, 1):\n"
        "    print(f'loss={loss}', flush=True)\n"
        "    reporter = StatusReporter()\n"
        "    reporter.report(epoch, 6, {'loss': loss})\n"
        "    reporter.close()\n"
    )
    stopping = {
        "algorithmName": "medianstop",
        "algorithmSettings": [
            {"name": "min_trials_required", "value": "1"},
            {"name": "start_step", "value": "4"},
        ],
    }
    _, trials = sweep(cluster, tmp_path, script, earlyStopping=stopping)
    assert [trial["status"]["conditions"][-1]["type"] for trial in trials] == ["Succeeded"] * 2


@pytest.mark.whole
def test_kubeflows_sdk_loses_no_value_of_short_epochs(cluster: LocalSweeps, tmp_path: Path) -> None:
    pytest.importorskip("kubeflow.trainer")
    _, (trial,) = sweep(cluster, tmp_path, SDK, maxTrialCount=1, metricsCollectorSpec=PUSH)
    x = assigned(trial)
    assert observed(trial)["loss"] == pytest.approx((x, x + 2, x))


@pytest.mark.whole
def test_katibs_sdk_reports_to_a_collector_that_is_pushed_to(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    pytest.importorskip("kubeflow.katib")
    objective = {
        "type": "minimize",
        "objectiveMetricName": "loss",
        "additionalMetricNames": ["timestamp"],
    }
    _, trials = sweep(cluster, tmp_path, REPORT, metricsCollectorSpec=PUSH, objective=objective)
    assert [observed(trial)["loss"] for trial in trials] == [
        pytest.approx((x, x + 2, x)) for x in map(assigned, trials)
    ]
    assert [observed(trial)["timestamp"] for trial in trials] == [(0, 1, 1)] * 2


def test_a_trial_in_a_fork_reports_to_katib_too(tmp_path: Path) -> None:
    pytest.importorskip("kubeflow.katib")
    (tmp_path / "train.py").write_text(REPORT)
    beside = [{"name": "PYTHONPATH", "value": str(tmp_path)}]
    trial = job([sys.executable, "-m", "train", "${trialParameters.x}"], env=beside)
    with LocalSweeps(tmp_path / "cluster") as forking:
        _, (ended,) = sweep(
            forking, tmp_path, REPORT, trial, metricsCollectorSpec=PUSH, maxTrialCount=1
        )
    assert observed(ended)["loss"][2] == pytest.approx(assigned(ended))


def test_a_printed_line_is_nothing_to_a_pushed_collector(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    script = "print('loss=1')\n"
    _, (trial,) = sweep(cluster, tmp_path, script, metricsCollectorSpec=PUSH, maxTrialCount=1)
    assert trial["status"]["conditions"][-1]["type"] == "MetricsUnavailable"


MISREPORT = """
import os, stat, sys
import grpc
from kubeflow.katib import katib_api_pb2 as api, katib_api_pb2_grpc
address = os.environ["PODIUM_DB_MANAGER"]
folder = os.path.dirname(address.removeprefix("unix:"))
assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
database = katib_api_pb2_grpc.DBManagerStub(grpc.insecure_channel(address))
trial = os.environ["KATIB_TRIAL_NAME"]
def report(time):
    metric = api.Metric(name="loss", value=sys.argv[1])
    log = api.ObservationLog(metric_logs=[api.MetricLog(time_stamp=time, metric=metric)])
    database.ReportObservationLog(api.ReportObservationLogRequest(trial_name=trial, observation_log=log))
def ask(start=""):
    asked = api.GetObservationLogRequest(trial_name=trial, start_time=start)
    return len(database.GetObservationLog(asked).observation_log.metric_logs)
for call, time in ((report, "junk"), (report, ""), (report, "2026-01-01T00:00:00"), (ask, "junk")):
    try:
        call(time)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    else:
        sys.exit(f"{time!r} was taken")
report("2026-01-01T00:00:00.5Z")
assert ask("2026-01-01T00:00:00Z") == 1
"""


def test_a_report_with_a_bad_time_is_refused(cluster: LocalSweeps, tmp_path: Path) -> None:
    pytest.importorskip("kubeflow.katib")
    _, (trial,) = sweep(cluster, tmp_path, MISREPORT, metricsCollectorSpec=PUSH, maxTrialCount=1)
    last = trial["status"]["conditions"][-1]
    assert last["type"] == "Succeeded", last["message"]


def test_reports_are_taken_under_a_long_temporary_directory(
    cluster: LocalSweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    cluster.take_reports()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"token": "other"}, 403),
        ({"path": "/apis/other"}, 403),
        ({"body": b"{"}, 422),
        ({"body": b'{"trainerStatus": {"metrics": []}}'}, 422),
        ({"body": b'{"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}'}, 422),
        ({"body": b'{"trainerStatus": {"metrics": [{"name": "a", "value": 1}], "lastUpdatedTime": "2026-01-02T03:04:05Z"}}'}, 422),
        ({"body": b'{"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05"}}'}, 422),
        ({"body": b" " * (1 << 17)}, 413),
        ({"body": b"{}"}, 200),
        ({"body": b'{"a": 1, "a": 2}'}, 200),
    ],
)  # fmt: skip
def test_posts_are_refused_as_trainer_refuses_them(
    change: dict[str, Any], code: int, cluster: LocalSweeps
) -> None:
    wait = "import os, sys, time\nprint(os.environ['KUBEFLOW_TRAINER_SERVER_URL'], flush=True)\ntime.sleep(60)\n"
    cluster.create(typed(program(wait)))
    url = next(iter(cluster.logs("TrainJob", "job", follow=True)))
    assert url.endswith(
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/job/status"
    )
    folder = _credentials(cluster.store.directory)
    token = change.get("token") or (folder / "token").read_text()
    where = url.partition("/apis")[0] + change["path"] if "path" in change else url
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    answer = httpx.post(
        where,
        content=change.get("body", b"{}"),
        headers={"Authorization": f"Bearer {token}"},
        verify=context,
    )
    assert answer.status_code == code
    assert answer.json().get("code", 200) == code


def test_a_forked_process_does_not_hold_up_the_end(cluster: LocalSweeps) -> None:
    cluster.create(typed(program("print('here', flush=True); import time; time.sleep(60)")))
    next(iter(cluster.logs("TrainJob", "job", follow=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        closing = threading.Thread(target=cluster.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_credentials_that_lack_a_file_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "cache"))
    made = _credentials(tmp_path)
    assert made == tmp_path / "cache/push"
    assert _credentials(tmp_path) == made
    (made / "token").unlink()
    assert (_credentials(tmp_path) / "token").read_text()
    (tmp_path / "cache").rename(tmp_path / "gone")
    (tmp_path / "cache").write_text("")
    assert _credentials(tmp_path) == tmp_path / "push"


def test_who_goes_past_every_proxy_still_does() -> None:
    assert reachable({"no_proxy": "*"})["no_proxy"] == "*"
    assert reachable({"NO_PROXY": "a.b"})["no_proxy"] == "a.b,127.0.0.1"


def test_a_broken_file_of_the_users_own_is_still_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import nothing_there\n")
    env = reachable({"PYTHONPATH": str(tmp_path)})
    done = subprocess.run([sys.executable, "-c", "1"], env=env, capture_output=True, text=True)
    assert "No module named 'nothing_there'" in done.stderr
