"""podium-engine on a cluster: it takes over, goes on after kills, edits and deletions, and says what it refuses."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, World
from engine_place import LEASE_SECONDS, EngineThread, namespace
from sweep_manifests import job, write_experiment
from test_experiment_events import WRITER
from trainjobs import POST, trainjob
from urllib3.exceptions import ProtocolError

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.errors import Conflict, Denied, NotFound
from podium.manifests.experiment import best_trial
from podium.manifests.experiment.optimization_job import as_experiment, experiment_of
from podium.manifests.labels import OPTIMIZATION_JOB, READINGS, SAMPLER
from podium.manifests.options import annotation
from podium.manifests.resource import Resource
from podium.manifests.shell import METRICS_FILE
from podium.manifests.typed import typed
from podium.sweeps.engine import _ApiDocuments, _OptimizationJobs
from podium.sweeps.pod_trial import JobExecutor
from podium.sweeps.records import Records

pytestmark = pytest.mark.whole

PROGRAM = """
import sys, time

rate, wait, steps = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
print(f"loss={0.5 if steps == 1 else rate}", flush=True)
for _ in range(steps):
    time.sleep(wait)
    print(f"loss={rate}", flush=True)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PROGRAM", str(tmp_path / "program.py"))
    with namespace(tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture
def start(server: ApiServer) -> Iterator[Callable[..., EngineThread]]:
    """Starts engines; those that still run are stopped at the end."""
    started: list[EngineThread] = []

    def one(holder: str = "engine-a") -> EngineThread:
        started.append(EngineThread(holder))
        return started[-1]

    yield one
    for engine in started:
        engine.stop()


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[KubernetesCluster]:
    with KubernetesCluster("kubernetes://team") as opened:
        yield opened


def experiment(
    name: str = "sweep",
    *,
    trials: int = 4,
    parallel: int = 2,
    wait: float = 0.0,
    steps: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    """An Experiment whose trials print 0.5 and then their learning rate."""
    container = {
        "name": "main",
        "image": "python",
        "command": [
            "python",
            os.environ["PROGRAM"],
            "${trialParameters.lr}",
            str(wait),
            str(steps),
        ],
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "objective": {
                "type": "minimize",
                "objectiveMetricName": "loss",
                "metricStrategies": [{"name": "loss", "value": "latest"}],
            },
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": trials,
            "parallelTrialCount": parallel,
            "maxFailedTrialCount": 1,
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.1", "max": "0.2"},
                }
            ],
            "trialTemplate": {
                "primaryContainerName": "main",
                "trialParameters": [{"name": "lr", "reference": "lr"}],
                "trialSpec": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "spec": {
                        "backoffLimit": 0,
                        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
                    },
                },
            },
            **spec,
        },
    }


def finished(cluster: KubernetesCluster, name: str = "sweep") -> dict[str, Any]:
    """Wait for the end of an Experiment and return its status."""
    for _ in cluster.watch("Experiment", name, timeout=60):
        pass
    return dict(cluster.experiment(name).status)


def until(holds: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return value


def check_whole(cluster: KubernetesCluster, world: World, trials: int) -> None:
    """Each trial ran once, has its metric, and its job is gone."""
    all_trials = cluster.trials("sweep")
    assert len(all_trials) == trials
    ends = {trial.name: (trial.state.message, trial.value) for trial in all_trials}
    whole = {
        trial.name: (trial.state.message, float(trial.assignments["lr"]))
        for trial in all_trials
        if trial.phase == "Succeeded"
    }
    assert ends == whole
    created = [
        request
        for request in world.requests
        if request.startswith("POST") and request.endswith("/jobs?fieldValidation=Strict")
    ]
    assert len(created) >= trials
    until(lambda: not cluster.list("Job"))


def test_an_experiment_runs_without_katib(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    start()
    cluster.create(typed(experiment()))
    status = finished(cluster)
    assert status["conditions"][-1]["reason"] == "ExperimentMaxTrialsReached"
    best = min(cluster.trials("sweep"), key=lambda trial: trial.value)
    assert status["currentOptimalTrial"]["bestTrialName"] == best.name
    check_whole(cluster, server.world, 4)


def test_the_engine_confirms_the_best_trials(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    manifest = experiment()
    manifest["metadata"]["annotations"] = {"podium.dev/sweep": "confirm: {top: 2, seeds: 2}"}
    cluster.create(typed(manifest))
    status, trials = finished(cluster), cluster.trials("sweep")
    assert status["trials"] == 4
    assert len(trials) == 8
    best = best_trial(trials)
    assert best
    assert status["currentOptimalTrial"]["bestTrialName"] == best.name
    assert best.note.startswith("mean ")


def test_fewer_at_a_time_begin_no_more_fresh_runs(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    manifest = experiment(trials=4, parallel=4, wait=1.0)
    manifest["metadata"]["annotations"] = {"podium.dev/sweep": "confirm: {top: 3, seeds: 4}"}
    cluster.create(typed(manifest))

    def running() -> int:
        return sum(bool(trial.repeats) and not trial.has_ended for trial in cluster.trials("sweep"))

    until(lambda: running() == 4)
    cluster.api.patch("Experiment", "sweep", {"spec": {"parallelTrialCount": 1}})
    counts = list[int]()
    until(lambda: counts.append(running()) or cluster.experiment("sweep").state.finished, 60)
    assert max(counts) == 4


def test_trials_go_on_while_no_engine_runs(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    first = start("engine-a")
    cluster.create(typed(experiment(trials=4, parallel=2, wait=1.5)))
    until(lambda: len(cluster.list("Job")) == 2)
    begun = {job.uid for job in cluster.list("Job")}
    first.stop()
    assert {job.uid for job in cluster.list("Job")} == begun
    start("engine-b")
    finished(cluster)
    check_whole(cluster, server.world, 4)


def test_the_last_trial_of_a_failed_sweep_is_followed(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, tmp_path: Path
) -> None:
    fails_once = f"""
import os
try:
    os.mkdir({str(tmp_path / "first")!r})
    raise SystemExit(1)
except FileExistsError:
    pass
"""
    (tmp_path / "program.py").write_text(fails_once + PROGRAM)
    first = start("engine-a")
    cluster.create(typed(experiment(wait=9.0, maxFailedTrialCount=0)))
    until(lambda: cluster.experiment("sweep").state.phase == "Failed", 60)
    assert any(not trial.has_ended for trial in cluster.trials("sweep"))
    first.stop()
    start("engine-b")
    until(lambda: all(trial.has_ended for trial in cluster.trials("sweep")), 60)
    until(lambda: not cluster.experiment("sweep").status.get("trialsRunning"))
    assert cluster.experiment("sweep").state.phase == "Failed"


def test_another_optuna_waits_for_the_one_that_began(
    server: ApiServer, start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    manifest = experiment(trials=3, parallel=1, maxFailedTrialCount=3)
    manifest["metadata"]["annotations"] = annotation({"deterministic": 1})
    first = start("engine-a")
    cluster.create(typed(manifest))
    until(lambda: cluster.trials("sweep"))
    first.stop()
    trial = server.world.objects["trials", cluster.trials("sweep")[0].name]
    own = trial["metadata"]["labels"][SAMPLER]
    trial["metadata"]["labels"][SAMPLER] = "optuna-4.9.0"
    second = start("engine-b")
    waiting = until(lambda: cluster.experiment("sweep").condition("Waiting"))
    assert "was suggested by optuna-4.9.0" in waiting.message
    assert "go on with optuna==4.9.0" in waiting.message
    assert cluster.experiment("sweep").state.phase == "Waiting"
    second.stop()
    trial = server.world.objects["trials", trial["metadata"]["name"]]
    trial["metadata"]["labels"][SAMPLER] = own
    start("engine-c")
    types = [condition["type"] for condition in finished(cluster)["conditions"]]
    assert "Succeeded" in types
    assert "Waiting" not in types


def cut_off(*_: Any, **__: Any) -> None:
    raise ProtocolError("connection reset")


def test_a_cut_off_engine_is_followed_without_a_double_trial(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    first = start("engine-a")
    until(lambda: "leads" in " ".join(first.said))
    second = start("engine-b")
    cluster.create(typed(experiment(trials=5, parallel=2, wait=0.7)))
    until(lambda: len(cluster.trials("sweep")) >= 2)
    first.cluster.api.coordination.read_namespaced_lease = (
        cut_off  # it renews no more, but goes on otherwise
    )
    until(lambda: "leads" in " ".join(second.said), 5 * LEASE_SECONDS)
    finished(cluster)
    check_whole(cluster, server.world, 5)


def test_the_api_server_may_be_away(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    start()
    cluster.create(typed(experiment(trials=4, parallel=2, wait=1.0)))
    until(lambda: len(cluster.list("Job")) == 2)
    server.stop()
    time.sleep(LEASE_SECONDS + 1)
    server.start()
    finished(cluster)
    check_whole(cluster, server.world, 4)


def test_what_an_earlier_engine_wrote_late_is_put_right(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment(trials=2)))
    assert finished(cluster)["trialsSucceeded"] == 2
    late = {"trialsPending": 1, "pendingTrialList": ["sweep-late"]}
    cluster.api.patch_status("Experiment", "sweep", late)
    until(lambda: not cluster.experiment("sweep").status.get("trialsPending"))
    assert "pendingTrialList" not in cluster.experiment("sweep").status


def test_more_trials_may_be_asked_for(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment(trials=2, resumePolicy="LongRunning")))
    finished(cluster)
    cluster.resume("Experiment", "sweep", {"maxTrialCount": 4})
    until(lambda: cluster.experiment("sweep").trial_count == 4)
    status = finished(cluster)
    assert status["trialsSucceeded"] == 4
    assert [
        condition["type"] for condition in status["conditions"] if condition["status"] == "True"
    ][-1] == "Succeeded"


def test_more_trials_may_be_asked_for_while_some_run(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment(trials=2, parallel=1, wait=1.5)))
    until(lambda: cluster.list("Job"))
    cluster.api.patch("Experiment", "sweep", {"spec": {"maxTrialCount": 3}})
    assert finished(cluster)["trialsSucceeded"] == 3


def test_a_limit_that_is_taken_away_limits_no_more(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment(trials=2, parallel=1, wait=1.5)))
    until(lambda: cluster.list("Job"))
    cluster.api.patch("Experiment", "sweep", {"spec": {"maxTrialCount": None}})
    until(lambda: cluster.experiment("sweep").trial_count > 2)
    cluster.delete("Experiment", "sweep")


def test_a_deleted_experiment_starts_nothing_more(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    engine = start()
    cluster.create(typed(experiment(trials=6, wait=0.5)))
    until(lambda: len(cluster.list("Job")) == 2)
    server.world.remove("experiments", "sweep")
    until(lambda: "Experiment sweep: deleted" in engine.said)
    trials = len(cluster.list("Trial"))
    time.sleep(1.5)
    assert len(cluster.list("Trial")) == trials


def test_what_cannot_run_fails_with_the_rules_sentence(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    unused = experiment()
    unused["spec"]["trialTemplate"]["trialParameters"] = [{"name": "lr", "reference": "rate"}]
    cluster.api.create("Experiment", unused)
    status = finished(cluster)
    assert status["conditions"][-1]["type"] == "Failed"
    assert "trialParameters[0].reference" in status["conditions"][-1]["message"]
    assert cluster.list("Trial") == []


def test_a_spec_of_wrong_types_is_refused_once(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    broken = experiment()
    (container,) = broken["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    container["env"] = [{"name": "GPUS", "value": 1}]  # which no API server sees in a trialSpec
    cluster.api.create("Experiment", broken)
    engine = start()
    until(lambda: server.world.objects["experiments", "sweep"].get("status"))
    cluster.api.patch("Experiment", "sweep", {"metadata": {"labels": {"seen": "true"}}})
    cluster.create(typed(experiment("next", trials=1, parallel=1)))
    finished(cluster, "next")
    assert engine.failure is None
    assert engine.engine.refused == 1
    said = server.world.objects["experiments", "sweep"]["status"]["conditions"][-1]["message"]
    assert "env[0].value: must be text" in said
    assert [each.name for each in cluster.experiments()] == ["next"]


def test_an_edit_of_wrong_types_leaves_the_sweep_running(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    engine = start()
    cluster.create(typed(experiment(trials=3, parallel=1, wait=3.0)))
    until(lambda: cluster.list("Job"))
    cluster.api.patch("Experiment", "sweep", {"spec": {"maxTrialCount": "four"}})
    until(lambda: any("spec.maxTrialCount: must be" in said for said in engine.said))
    cluster.api.patch("Experiment", "sweep", {"spec": {"maxTrialCount": 3}})
    assert finished(cluster)["trialsSucceeded"] == 3
    assert sum("spec.maxTrialCount: must be" in said for said in engine.said) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"algorithm": {"algorithmName": "pbt", "algorithmSettings": [
                {"name": "suggestion_trial_dir", "value": "/pbt"}, {"name": "n_population", "value": "5"},
                {"name": "truncation_threshold", "value": "0.2"}]},
             "parameters": [{"name": "lr", "parameterType": "double",
                             "feasibleSpace": {"min": "0.1", "max": "0.2", "step": "0.1"}}],
             "resumePolicy": "FromVolume"},
            "does not run pbt but in a pool",
        ),
    ],
)  # fmt: skip
def test_what_pods_lack_is_refused(
    change: dict[str, Any],
    sentence: str,
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
) -> None:
    start()
    cluster.api.create("Experiment", experiment(**change))
    status = finished(cluster)
    assert sentence in status["conditions"][-1]["message"]
    assert cluster.list("Trial") == []


def test_scalars_of_event_files_are_metrics(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    start()
    manifest = experiment(
        trials=1,
        parallel=1,
        metricsCollectorSpec={
            "collector": {"kind": "TensorFlowEvent"},
            "source": {"fileSystemPath": {"kind": "Directory", "path": "/events"}},
        },
    )
    (tmp_path / "writer.py").write_text(WRITER)
    job = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    job["command"] = ["python", str(tmp_path / "writer.py"), "${trialParameters.lr}", "/events"]
    cluster.create(typed(manifest))
    finished(cluster)
    (trial,) = cluster.trials("sweep")
    rate = float(trial.assignments["lr"])
    (metrics,) = trial.status["observation"]["metrics"]
    assert [float(metrics[fold]) for fold in ("min", "max", "latest")] == pytest.approx(
        [rate, 0.5, rate]
    )


def test_what_katib_held_can_be_deleted(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    left = experiment("left")
    left["metadata"]["finalizers"] = ["update-prometheus-metrics", "example.com/other"]
    left["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    server.world.put("experiments", left)
    start()
    until(
        lambda: (
            server.world.objects["experiments", "left"]["metadata"]["finalizers"]
            == ["example.com/other"]
        )
    )


def test_a_trial_whose_job_is_deleted_by_hand_fails(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment(trials=1, parallel=1, wait=5.0)))
    job = until(lambda: cluster.list("Job"))[0]
    cluster.api.delete("Job", job.name)
    status = finished(cluster)
    assert status["trialsFailed"] == 1
    assert "deleted" in cluster.trials("sweep")[0].message


def test_early_stopping_acts_while_trials_run(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, server: ApiServer
) -> None:
    start()
    stopping = {
        "algorithmName": "medianstop",
        "algorithmSettings": [
            {"name": "min_trials_required", "value": "2"},
            {"name": "start_step", "value": "2"},
        ],
    }
    sweep = experiment(
        trials=6,
        parallel=1,
        wait=0.1,
        steps=20,
        earlyStopping=stopping,
        algorithm={
            "algorithmName": "random",
            "algorithmSettings": [{"name": "random_state", "value": "3"}],
        },
    )
    cluster.create(typed(sweep))
    status = finished(cluster)
    stopped = [trial for trial in cluster.trials("sweep") if trial.phase == "EarlyStopped"]
    assert status["trialsEarlyStopped"] == len(stopped) >= 1
    complete = {
        item["metadata"]["name"]
        for *_, plural, item in server.world.history
        if plural == "jobs" and "Complete" in str(item.get("status"))
    }
    assert not complete & {trial.name for trial in stopped}
    kept = [trial for trial in cluster.trials("sweep") if trial.phase == "Succeeded"]
    assert all(READINGS in trial.annotations for trial in kept)


def test_as_many_readings_are_kept_as_a_rule_needs(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    steps = [{"name": "start_step", "value": "150"}]
    stopping = {"algorithmName": "medianstop", "algorithmSettings": steps}
    cluster.create(typed(experiment(trials=1, parallel=1, steps=200, earlyStopping=stopping)))
    finished(cluster)
    (trial,) = cluster.trials("sweep")
    assert len(json.loads(trial.annotations[READINGS])) == 150


def warm(name: str) -> dict[str, Any]:
    """A sweep that learns from another one first."""
    made = experiment("second", trials=1, parallel=1, algorithm={"algorithmName": "tpe"})
    made["metadata"]["annotations"] = annotation({"warm_start": name})
    return made


def test_a_warm_sweep_of_an_engine_learns_from_earlier_trials(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(experiment("first", trials=2)))
    finished(cluster, "first")
    cluster.create(typed(warm("first")))
    conditions = finished(cluster, "second")["conditions"]
    assert conditions[0]["message"] == "Experiment is created; it starts warm from 2 trials"


def test_a_warm_sweep_without_its_source_is_refused(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(warm("nowhere")))
    (condition,) = finished(cluster, "second")["conditions"]
    assert (condition["type"], "nowhere" in condition["message"]) == ("Failed", True)


def test_an_engine_beside_katib_refuses_to_start(
    server: ApiServer, start: Callable[..., EngineThread]
) -> None:
    server.world.katib = True
    engine = start()
    engine.thread.join(10)
    assert isinstance(engine.failure, Conflict)
    assert "Katib is installed" in engine.failure.message


def test_katib_installed_later_ends_the_engine(
    server: ApiServer, start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    engine = start()
    cluster.create(typed(experiment("first", trials=2, wait=3.0)))
    until(lambda: len(cluster.list("Job")) == 2)
    server.world.katib = True
    server.world.put("experiments", experiment("second"), "ADDED")
    engine.thread.join(15)
    assert isinstance(engine.failure, Conflict)
    assert "Experiment second: begun" not in engine.said
    assert len(cluster.list("Job")) == 2, "trials that run go on"


def test_an_engine_without_rights_names_its_own(
    server: ApiServer, start: Callable[..., EngineThread]
) -> None:
    server.world.forbidden.add("leases")
    engine = start()
    engine.thread.join(10)
    assert isinstance(engine.failure, Denied)
    assert "Role podium-engine" in str(engine.failure.hint)
    assert "podium-steps" not in str(engine.failure.hint)


def leave(server: ApiServer, plural: str, name: str) -> None:
    """Delete an object that a finalizer of somebody else holds."""
    item = server.world.objects[plural, name]
    metadata = {
        **item["metadata"],
        "finalizers": ["foregroundDeletion"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    server.world.put(plural, {**item, "metadata": metadata})


def test_an_experiment_being_deleted_begins_no_more_trials(
    server: ApiServer, start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    engine = start()
    cluster.create(typed(experiment(trials=6, wait=0.5)))
    until(lambda: len(cluster.list("Job")) == 2)
    leave(server, "experiments", "sweep")
    until(lambda: "Experiment sweep: deleted" in engine.said)
    trials = len(cluster.list("Trial"))
    time.sleep(1.5)
    assert len(cluster.list("Trial")) == trials
    assert not cluster.list("Job")


def test_a_new_leader_leaves_what_is_being_deleted_alone(
    server: ApiServer, start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    cluster.create(typed(experiment(trials=2, parallel=1)))
    leave(server, "experiments", "sweep")
    engine = start()
    until(lambda: "leads" in " ".join(engine.said))
    time.sleep(1.0)
    assert not cluster.list("Trial")
    assert engine.engine.begun == 0


def test_what_is_deleted_or_made_anew_meanwhile_is_not_begun(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    cluster.create(typed(experiment()))
    stored = cluster.experiment("sweep")
    leadership = Leadership(cluster.api, "podium-test", "tester")
    documents, executor = _ApiDocuments(cluster, leadership), JobExecutor(cluster, leadership, "")
    before = stored.with_metadata({**stored.metadata, "uid": "of-the-one-before"})
    ours, theirs = (
        Records(cluster, seen, documents, executor, leadership=leadership, served=True)
        for seen in (stored, before)
    )
    assert ours.experiment().uid == stored.uid
    with pytest.raises(NotFound, match="Experiment sweep is deleted"):
        theirs.experiment()
    leave(server, "experiments", "sweep")
    with pytest.raises(NotFound, match="Experiment sweep is deleted"):
        ours.experiment()


def failing(program: str, **how: Any) -> dict[str, Any]:
    """An Experiment whose trials run a program that fails."""
    path = Path(os.environ["PROGRAM"]).with_name("failing.py")
    path.write_text(program)
    made = experiment(**how)
    container = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    container["command"] = ["python", str(path), "${trialParameters.lr}"]
    return made


def test_a_failed_trial_says_why_until_the_experiment_ends(
    server: ApiServer, start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    program = "import sys, time; print('begun'); time.sleep(1.0); sys.exit('no dataset at s3://raw/mnist')"
    cluster.create(typed(failing(program, trials=2, parallel=1, maxFailedTrialCount=2)))
    failed = until(lambda: [trial for trial in cluster.trials("sweep") if trial.phase == "Failed"])[
        0
    ]
    assert "no dataset at s3://raw/mnist" in failed.message
    assert list(cluster.logs("Job", failed.name))[-1] == "no dataset at s3://raw/mnist"
    finished(cluster)
    assert all("no dataset at s3://raw/mnist" in trial.message for trial in cluster.trials("sweep"))
    until(lambda: not cluster.list("Job"))


def test_a_failed_trials_last_words_are_bounded(
    start: Callable[..., EngineThread], cluster: KubernetesCluster
) -> None:
    start()
    cluster.create(typed(failing("raise SystemExit('x' * 100_000)", trials=1, parallel=1)))
    finished(cluster)
    (trial,) = cluster.trials("sweep")
    assert "xxx" in trial.message
    assert len(trial.message) < 4_000


class LogsOfRunningPods(dict[str, list[str]]):
    """Logs that go as their container ends."""

    def __init__(self, world: World) -> None:
        super().__init__(world.logs)
        self.world, self.has_been_read = world, False

    def get(self, pod: str, default: Any = None) -> Any:
        status = self.world.objects.get(("pods", pod), {}).get("status", {})
        lines = default if status.get("phase") == "Failed" else super().get(pod, default)
        self.has_been_read |= bool(lines)
        return lines


def test_last_words_outlive_the_log_of_their_pod(
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
    server: ApiServer,
    tmp_path: Path,
) -> None:
    logs = server.world.logs = LogsOfRunningPods(server.world)
    start()
    program = f"""
import pathlib, sys, time
print("no dataset at s3://raw/mnist", flush=True)
while not pathlib.Path({str(tmp_path / "read")!r}).exists():
    time.sleep(0.1)
sys.exit(3)
"""
    cluster.create(typed(failing(program, trials=1, parallel=1)))
    until(lambda: logs.has_been_read)
    (tmp_path / "read").touch()
    finished(cluster)
    assert "no dataset at s3://raw/mnist" in cluster.trials("sweep")[0].message


def test_a_trainjob_that_prints_nothing_is_judged_by_its_status(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(POST + "post(10, loss=3)\npost(100, loss=0.25)\n")
    command = ["python", str(tmp_path / "train.py"), "${trialParameters.x}"]
    trial = {**trainjob(numNodes=1, command=command, args=[]), "metadata": {}}
    start()
    cluster.create(typed(write_experiment(trial, name="sweep", container="node", maxTrialCount=1)))
    best = finished(cluster)["currentOptimalTrial"]
    assert best["observation"]["metrics"][0]["latest"] == "0.25"


REPORT = """
import sys
import kubeflow.katib as katib
for loss in (3, float(sys.argv[1])):
    katib.report_metrics({"loss": loss, "timestamp": loss})
"""


def test_katibs_sdk_reports_to_a_sidecar_of_its_pod(
    server: ApiServer,
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
    tmp_path: Path,
) -> None:
    pytest.importorskip("kubeflow.katib")
    (tmp_path / "train.py").write_text(REPORT)
    words = ["python", str(tmp_path / "train.py"), "${trialParameters.x}"]
    # The pods of this test share the machine's network, and have no /etc/hosts and no mounts.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = [{"name": "PODIUM_DB_MANAGER", "value": f"127.0.0.1:{port}"}]
    trial = job(words, env=[*here, {"name": "MOUNTED", "value": METRICS_FILE}])
    manifest = write_experiment(
        trial,
        name="sweep",
        maxTrialCount=1,
        metricsCollectorSpec={"collector": {"kind": "Push"}},
        objective={
            "type": "minimize",
            "objectiveMetricName": "loss",
            "additionalMetricNames": ["timestamp"],
        },
    )
    pods: list[Any] = []
    admit = server.world.admit

    def see(item: Any) -> Any:
        if item.get("kind") == "Job":
            pods.append(item["spec"]["template"]["spec"])
            pods[-1]["initContainers"][0]["env"] = here
        return admit(item)

    server.world.admit = see
    start()
    cluster.create(typed(manifest))
    best = finished(cluster)["currentOptimalTrial"]
    aliases = [{"ip": "127.0.0.1", "hostnames": ["katib-db-manager.kubeflow"]}]
    assert [pod["hostAliases"] for pod in pods] == [aliases]
    (given,) = best["parameterAssignments"]
    assert [(metric["max"], metric["latest"]) for metric in best["observation"]["metrics"]] == [
        ("3", given["value"])
    ] * 2


@pytest.fixture
def optimization_job(server: ApiServer, tmp_path: Path) -> dict[str, Any]:
    """An OptimizationJob, whose kind the cluster serves."""
    server.world.plurals.add("optimizationjobs")
    server.world.with_status.add("optimizationjobs")
    script = POST + "import os\npost(100, loss=os.environ['KUBEFLOW_TRAINER_OPT_LR'])\n"
    (tmp_path / "train.py").write_text(script)
    command = ["python", str(tmp_path / "train.py")]
    job = trainjob(numNodes=1, command=command, args=[])
    spec = {
        "objectives": [{"metric": "loss"}],
        "parameters": [{"name": "lr", "searchSpace": {"uniform": {"min": "0", "max": "1"}}}],
        "trainJobTemplate": {"spec": job["spec"]},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "OptimizationJob",
        "metadata": {"name": "sweep"},
        "spec": spec,
    }


FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "Experiment has failed"}]}


def status_of_job(cluster: KubernetesCluster, name: str = "sweep") -> dict[str, Any]:
    """Wait for the end of an OptimizationJob and return its status."""
    ended = ("Complete", "Failed")

    def last() -> Any:
        status = cluster.api.get("OptimizationJob", name).get("status") or {}
        return status if any(c["type"] in ended for c in status.get("conditions", ())) else None

    return dict(until(last, 60))


def test_an_optimizationjob_is_run_as_its_experiment(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    cluster.create(typed(as_experiment(optimization_job)))
    start()
    best = finished(cluster)["currentOptimalTrial"]
    (assigned,), (metric,) = best["parameterAssignments"], best["observation"]["metrics"]
    assert metric["latest"] == assigned["value"]


def test_the_engine_runs_optimizationjobs_and_writes_their_status(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    start()
    stored = cluster.api.create("OptimizationJob", optimization_job)
    status = status_of_job(cluster)
    made = cluster.experiment("sweep")
    assert made.owners[0]["uid"] == stored["metadata"]["uid"]
    types = {condition["type"]: condition for condition in status["conditions"]}
    assert list(types) == ["Created", "Complete"]
    assert types["Complete"]["reason"] == "MaxTrialsReached"
    assert set(types["Complete"]) == {"type", "status", "reason", "message", "lastTransitionTime"}
    best = made.status["currentOptimalTrial"]
    assert status["result"] == {
        "trainJobName": best["bestTrialName"],
        "parameters": best["parameterAssignments"],
    }


def test_an_optimizationjob_that_has_ended_stays_as_it_is(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    start()
    cluster.api.create("OptimizationJob", optimization_job)
    ended = status_of_job(cluster)
    cluster.delete("Experiment", "sweep")
    cluster.create(typed(experiment(trials=1, parallel=1)))  # a stranger's, of the same name
    assert finished(cluster)["trialsSucceeded"] == 1
    cluster.api.create("OptimizationJob", {**optimization_job, "metadata": {"name": "other"}})
    status_of_job(cluster, "other")
    assert status_of_job(cluster) == ended


def test_an_optimizationjob_that_cannot_run_says_why(
    start: Callable[..., EngineThread], cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    (parameter,) = optimization_job["spec"]["parameters"]
    optimization_job["spec"]["parameters"] = [
        {**parameter, "name": "a-b"},
        {**parameter, "name": "a_b"},
    ]
    start()
    cluster.api.create("OptimizationJob", optimization_job)
    (failed,) = status_of_job(cluster)["conditions"]
    assert "must have a variable of its own" in failed["message"]
    assert "rename one of the two" in failed["message"]


@pytest.mark.parametrize("says_the_same", [False, True])
def test_an_experiment_of_somebody_else_is_not_taken(
    says_the_same: bool,
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
    optimization_job: dict[str, Any],
) -> None:
    theirs = as_experiment(optimization_job) if says_the_same else experiment(trials=1, parallel=1)
    cluster.create(typed(theirs))
    cluster.api.create("OptimizationJob", optimization_job)
    start()
    (failed,) = status_of_job(cluster)["conditions"]
    assert "was not made for it" in failed["message"]


def test_an_optimizationjob_with_a_controller_is_left_to_it(
    server: ApiServer,
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
    optimization_job: dict[str, Any],
) -> None:
    cluster.api.create("OptimizationJob", optimization_job)
    server.world.status("optimizationjobs", "sweep", "Created")
    start()
    cluster.api.create("OptimizationJob", {**optimization_job, "metadata": {"name": "other"}})
    until(lambda: ("experiments", "other") in server.world.objects, 60)
    assert ("experiments", "sweep") not in server.world.objects


def test_an_edited_experiment_of_an_optimizationjob_runs_on(
    server: ApiServer,
    start: Callable[..., EngineThread],
    cluster: KubernetesCluster,
    optimization_job: dict[str, Any],
) -> None:
    def edit(item: Any) -> Any:
        if item.get("kind") == "Experiment":
            item["metadata"]["annotations"][OPTIMIZATION_JOB] = "oops"
        return item

    server.world.admit = edit
    engine = start()
    cluster.api.create("OptimizationJob", optimization_job)
    assert status_of_job(cluster)["conditions"][-1]["type"] == "Complete"
    assert engine.failure is None


def test_an_experiment_of_the_engine_before_is_followed(
    cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    jobs = _OptimizationJobs(cluster.api, print)
    stored = Resource.parse(cluster.api.create("OptimizationJob", optimization_job))
    cluster.api.create("Experiment", experiment_of(stored).manifest)
    jobs.look({})  # nobody has seen it yet
    assert not cluster.api.get("OptimizationJob", "sweep").get("status")
    cluster.api.patch_status("Experiment", "sweep", FAILED)
    jobs.look({"sweep": cluster.get("Experiment", "sweep")})
    assert status_of_job(cluster)["conditions"][-1]["message"] == "OptimizationJob has failed"


def test_a_refused_right_keeps_no_other_optimizationjob_from_its_turn(
    server: ApiServer, cluster: KubernetesCluster, optimization_job: dict[str, Any]
) -> None:
    said: list[str] = []
    jobs = _OptimizationJobs(cluster.api, said.append)
    for name in ("one", "other"):
        cluster.api.create("OptimizationJob", {**optimization_job, "metadata": {"name": name}})
    server.world.forbidden.add("experiments")
    jobs.look({})
    jobs.look({})
    assert [line.partition(": cannot create")[0] for line in said] == [
        "OptimizationJob one",
        "OptimizationJob other",
    ]
    server.world.forbidden.clear()
    jobs.look({})
    assert {made.name for made in cluster.list("Experiment")} == {"one", "other"}
