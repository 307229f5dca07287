"""A job that Kueue holds back shows as waiting, says why, and its time does not run."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from api_server import World
from click.testing import Result

from podium.cluster.kubernetes.api import Waits
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import Failed, InvalidInput
from podium.manifests.resource import Resource
from podium.manifests.typed import typed
from podium.steps import sweep
from podium.training.follow import follow

OPTIONS = ("--cluster", "kubernetes://team")
QUEUED = {"kueue.x-k8s.io/queue-name": "team"}
QUOTA = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 50m more needed"
PLURAL = {"PyTorchJob": "pytorchjobs", "TrainJob": "trainjobs", "Job": "jobs"}
EXPERIMENT = "katib.kubeflow.org/experiment"


def queued(world: World, kind: str = "PyTorchJob", name: str = "mnist") -> None:
    """Store a job as Kueue's webhook leaves it: suspended."""
    spec = {"suspend": True} if kind == "Job" else {"runPolicy": {"suspend": True}}
    metadata = {"name": name, "labels": QUEUED}
    world.put(PLURAL[kind], {"kind": kind, "metadata": metadata, "spec": spec})


def entry(
    world: World,
    job: str,
    *conditions: tuple[str, str, str, str],
    plural: str = "pytorchjobs",
    **spec: Any,
) -> None:
    """Store Kueue's Workload of a job."""
    world.plurals.add("workloads")
    uid = world.objects[plural, job]["metadata"]["uid"]
    names = ("type", "status", "reason", "message")
    status = {"conditions": [dict(zip(names, condition, strict=True)) for condition in conditions]}
    metadata = {"name": f"job-{job}", "labels": {"kueue.x-k8s.io/job-uid": uid}}
    world.put(
        "workloads", {"metadata": metadata, "spec": {"queueName": "team", **spec}, "status": status}
    )


def admit(world: World, name: str = "mnist") -> None:
    """Let a PyTorchJob begin."""
    item, running = world.objects["pytorchjobs", name], {"type": "Running", "status": "True"}
    world.put(
        "pytorchjobs",
        {**item, "spec": {"runPolicy": {"suspend": False}}, "status": {"conditions": [running]}},
    )


def later(seconds: float, *actions: Callable[[], Any]) -> threading.Thread:
    def act() -> None:
        for action in actions:
            time.sleep(seconds)
            action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.fixture
def impatient(world: World) -> None:
    """Look again after a tenth of a second."""
    world.second = 0.1


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job"])
def test_a_job_without_quota_waits_and_says_why(
    cluster: KubernetesCluster, world: World, kind: str
) -> None:
    queued(world, kind)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA), plural=PLURAL[kind])
    state = cluster.workload(kind, "mnist").state
    assert (state.phase, state.reason, state.message) == (
        "Waiting",
        "Pending",
        f"Queue team: {QUOTA}",
    )
    assert not state.finished
    (listed,) = [stored.manifest for stored in cluster.list(kind)]
    assert Resource.parse(listed).state == state


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], "not looked at yet"),
        ([("QuotaReserved", "False", "Inadmissible", "LocalQueue team doesn't exist")], "LocalQueue team doesn't exist"),
        ([("QuotaReserved", "True", "QuotaReserved", "reserved"), ("Admitted", "False", "NoChecks", "no node yet")], "no node yet"),
        ([("QuotaReserved", "True", "QuotaReserved", "reserved")], "quota is reserved; its admission checks are not ready"),
        ([("QuotaReserved", "True", "", ""), ("Admitted", "True", "Admitted", "admitted")], "admitted, about to start"),
        ([("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""), ("Evicted", "True", "Preempted", "make room")], "make room"),
    ],
)  # fmt: skip
def test_each_stage_of_admission_has_its_words(
    cluster: KubernetesCluster, world: World, conditions: list[tuple[str, str, str, str]], said: str
) -> None:
    queued(world)
    entry(world, "mnist", *conditions)
    state = cluster.workload("PyTorchJob", "mnist").state
    assert (state.phase, state.message) == ("Waiting", f"Queue team: {said}")


def test_an_older_kueue_is_understood(cluster: KubernetesCluster, world: World) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    world.missing_versions.add("kueue.x-k8s.io/v1beta2")
    assert QUOTA in cluster.workload("PyTorchJob", "mnist").state.message
    assert any("/apis/kueue.x-k8s.io/v1beta1/" in request for request in world.requests)


def test_without_the_right_to_look_the_jobs_own_condition_speaks(
    cluster: KubernetesCluster, world: World
) -> None:
    queued(world)
    world.status("pytorchjobs", "mnist", "Created", "Suspended")
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    world.forbidden.add("workloads")
    state = cluster.workload("PyTorchJob", "mnist").state
    assert state.phase == "Waiting"
    assert "mnist is Suspended" in state.message
    assert "deploy/" in state.message


def test_a_job_that_somebody_suspended_is_no_waiting_one(
    cluster: KubernetesCluster, world: World
) -> None:
    world.put(
        "pytorchjobs",
        {
            "kind": "PyTorchJob",
            "metadata": {"name": "mnist"},
            "spec": {"runPolicy": {"suspend": True}},
        },
    )
    world.status("pytorchjobs", "mnist", "Created", "Suspended")
    assert cluster.workload("PyTorchJob", "mnist").state.phase == "Suspended"
    assert not [request for request in world.requests if "kueue" in request]


def test_a_job_that_kueue_gave_up_is_suspended_not_waiting(
    cluster: KubernetesCluster, world: World
) -> None:
    queued(world)
    gave_up = "The workload is deactivated: it was evicted too often"
    entry(world, "mnist", ("Evicted", "True", "Deactivated", gave_up), active=False)
    state = cluster.workload("PyTorchJob", "mnist").state
    assert (state.phase, state.reason) == ("Suspended", "Deactivated")
    assert gave_up in state.message


@pytest.mark.parametrize("kind", PLURAL)
def test_an_admitted_job_is_suspended_no_longer(
    cluster: KubernetesCluster, world: World, kind: str
) -> None:
    spec = {"suspend": False} if kind in ("Job", "TrainJob") else {"runPolicy": {"suspend": False}}
    world.put(
        PLURAL[kind], {"kind": kind, "metadata": {"name": "mnist", "labels": QUEUED}, "spec": spec}
    )
    world.status(
        PLURAL[kind], "mnist", "Suspended"
    )  # as long as the controller has not looked at it
    state = cluster.workload(kind, "mnist").state
    assert (state.phase, state.message) == ("Created", "about to start")


def test_a_running_job_in_a_queue_costs_no_look(cluster: KubernetesCluster, world: World) -> None:
    queued(world)
    admit(world)
    assert cluster.workload("PyTorchJob", "mnist").state.phase == "Running"
    assert not [request for request in world.requests if "kueue" in request]


def test_waiting_does_not_count_against_a_timeout(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    done = later(1.0, lambda: admit(world))
    started = time.monotonic()
    with pytest.raises(Failed, match=r"did not end within 0.5 s"):
        list(cluster.watch("PyTorchJob", "mnist", timeout=0.5))
    assert 1.2 <= time.monotonic() - started < 8
    done.join()


def test_a_job_that_somebody_stopped_uses_up_its_timeout(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    queued(world)
    entry(world, "mnist", active=False)
    with pytest.raises(Failed, match=r"did not end within 0.5 s"):
        list(cluster.watch("PyTorchJob", "mnist", timeout=0.5))


def test_a_watch_reports_each_new_reason(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    other = ("QuotaReserved", "False", "Pending", "Preempted to accommodate a workload")
    thread = later(0.3, lambda: entry(world, "mnist", other), lambda: admit(world),
                   lambda: world.status("pytorchjobs", "mnist", "Succeeded"))  # fmt: skip
    states = [change.state for change in cluster.watch("PyTorchJob", "mnist", timeout=20)]
    thread.join()
    assert [state.phase for state in states][-2:] == ["Running", "Succeeded"]
    assert states[0].message.endswith(QUOTA)
    assert all(state.phase == "Waiting" for state in states[:-2])


def test_a_waiting_job_has_no_refused_pods(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    queued(world)
    world.event(
        "pytorchjobs",
        "mnist",
        "FailedCreatePod",
        "exceeded quota: of the time before it was evicted",
    )
    finish = later(
        0.3, lambda: admit(world), lambda: world.status("pytorchjobs", "mnist", "Succeeded")
    )
    changes = list(cluster.watch("PyTorchJob", "mnist", timeout=20))
    finish.join()
    assert changes[-1].state.succeeded


def test_a_step_says_that_its_job_waits(
    cluster: KubernetesCluster, world: World, impatient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    thread = later(
        0.4, lambda: admit(world), lambda: world.status("pytorchjobs", "mnist", "Succeeded")
    )
    follow(cluster, "PyTorchJob", "mnist")
    thread.join()
    said = capsys.readouterr().out
    assert said.count("waits") == 1
    assert f"PyTorchJob mnist waits. Queue team: {QUOTA}" in said
    assert "PyTorchJob mnist is admitted" in said


def test_status_and_list_show_a_waiting_job(
    cluster: KubernetesCluster, world: World, podium: Callable[..., Result]
) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))

    assert (
        podium("job", "status", "mnist").stdout.splitlines()[0]
        == f"PyTorchJob mnist: Waiting. Queue team: {QUOTA}"
    )
    assert json.loads(podium("job", "status", "mnist", "--json").stdout)["state"] == "Waiting"
    assert "Waiting" in podium("job", "list").stdout


@pytest.fixture
def waiting_sweep(world: World) -> World:
    """An Experiment with one trial that runs and one whose job waits."""
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"labels": QUEUED},
        "spec": {},
    }
    spec = {
        "trialTemplate": {"trialSpec": job},
        "objective": {"objectiveMetricName": "accuracy", "type": "maximize"},
    }
    world.put("experiments", {"kind": "Experiment", "metadata": {"name": "sweep"}, "spec": spec})
    world.status(
        "experiments",
        "sweep",
        "Running",
        trials=2,
        trialsRunning=2,
        runningTrialList=["one", "two"],
    )
    for name in ("one", "two"):
        named = {"name": name, "labels": {EXPERIMENT: "sweep"}}
        world.put("trials", {"kind": "Trial", "metadata": named, "spec": {"runSpec": job}})
        world.status("trials", name, "Created", "Running")
        queued(world, name=name)  # Katib puts no label of its own on a job
    admit(world, "one")
    entry(world, "two", ("QuotaReserved", "False", "Pending", QUOTA))
    return world


def test_a_trial_whose_job_waits_is_waiting(
    cluster: KubernetesCluster, waiting_sweep: World
) -> None:
    assert [trial.phase for trial in cluster.trials("sweep")] == ["Running", "Waiting"]
    assert cluster.trial("two").message == f"Queue team: {QUOTA}"
    assert cluster.experiment("sweep").trials == {"Running": ("one",), "Waiting": ("two",)}
    admit(waiting_sweep, "two")
    assert cluster.experiment("sweep").trials == {"Running": ("one", "two")}


def test_experiment_commands_show_waiting_trials(
    cluster: KubernetesCluster, waiting_sweep: World, podium: Callable[..., Result]
) -> None:
    assert podium("experiment", "status", "sweep").stdout.splitlines() == [
        "sweep: Running, 2 trials (1 running, 1 waiting)", "sweep is Running", f"two waits. Queue team: {QUOTA}",
    ]  # fmt: skip
    assert "Waiting" in podium("experiment", "trials", "sweep").stdout


def test_a_step_says_which_trial_waits(
    cluster: KubernetesCluster, waiting_sweep: World, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, str] = {}
    sweep._say_news(cluster.trials("sweep"), seen, None)
    admit(waiting_sweep, "two")
    sweep._say_news(cluster.trials("sweep"), seen, None)
    lines = [line.split("podium | ")[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "trial one started: ",
        f"trial two waits. Queue team: {QUOTA}",
        "trial two started: ",
    ]


def test_a_sweep_whose_trials_all_wait_uses_no_time(
    cluster: KubernetesCluster, waiting_sweep: World, impatient: None
) -> None:
    waiting_sweep.status(
        "experiments", "sweep", "Running", trials=1, trialsRunning=1, runningTrialList=["two"]
    )
    waiting_sweep.status("trials", "one", "Succeeded")
    thread = later(1.0, lambda: admit(waiting_sweep, "two"))
    started = time.monotonic()
    with pytest.raises(Failed, match=r"did not end within 0.5 s"):
        list(cluster.watch("Experiment", "sweep", timeout=0.5))
    assert time.monotonic() - started >= 1.2
    thread.join()


def test_stopping_a_queued_job_takes_it_out_of_its_queue(
    cluster: KubernetesCluster, world: World
) -> None:
    # Kueue would start an admitted job again whose suspend is set by somebody else.
    queued(world)
    admit(world)
    entry(world, "mnist", ("Admitted", "True", "Admitted", "admitted"))
    cluster.stop("PyTorchJob", "mnist")
    assert world.objects["workloads", "job-mnist"]["spec"]["active"] is False
    assert world.objects["pytorchjobs", "mnist"]["spec"]["runPolicy"]["suspend"] is False
    queued(world)  # Kueue answers by suspending it
    cluster.resume("PyTorchJob", "mnist")
    assert world.objects["workloads", "job-mnist"]["spec"]["active"] is True


def test_a_waiting_job_is_not_resumed_past_its_queue(
    cluster: KubernetesCluster, world: World
) -> None:
    queued(world)
    entry(world, "mnist", ("QuotaReserved", "False", "Pending", QUOTA))
    with pytest.raises(InvalidInput, match="PyTorchJob mnist waits in queue team"):
        cluster.resume("PyTorchJob", "mnist")
    assert world.objects["pytorchjobs", "mnist"]["spec"]["runPolicy"]["suspend"] is True


def test_a_queue_that_nobody_serves_is_reported(
    cluster: KubernetesCluster, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}}
    cluster.create(typed({**job, "metadata": {"name": "free"}}))
    assert not caplog.records
    cluster.create(typed({**job, "metadata": {"name": "mnist", "labels": QUEUED}}))
    assert "nothing holds PyTorchJob mnist back for queue team" in caplog.text


def test_a_queue_given_by_an_option_is_on_the_job(
    world: World, tmp_path: Any, podium: Callable[..., Result]
) -> None:

    def refuse(body: dict[str, Any]) -> None:
        world.put("seen", body)
        raise InvalidInput("not now")

    world.admit = refuse
    file = tmp_path / "job.yaml"
    file.write_text("{kind: Job, metadata: {name: x}, spec: {suspend: true}}")
    queue = ["--queue", "team", "--queue-priority", "urgent"]
    podium("job", "run", str(file), *queue)
    labels = world.objects["seen", "x"]["metadata"]["labels"]
    assert labels == {**QUEUED, "kueue.x-k8s.io/priority-class": "urgent"}


def test_a_trainjob_that_lost_its_patches_is_given_up(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.api.waits = Waits(refused_grace=0.1)
    world.plurals.add("trainjobs")
    world.put(
        "trainjobs",
        {
            "kind": "TrainJob",
            "metadata": {"name": "tj", "labels": QUEUED},
            "spec": {"suspend": False},
        },
    )
    said = 'JobSet.jobset.x-k8s.io "tj" is invalid: spec.replicatedJobs: Invalid value: [{"name":"node"'
    world.event("trainjobs", "tj", "TrainJobResourcesCreationFailed", said)
    with pytest.raises(
        Failed, match=r"tj cannot start: .*replicatedJobs: Invalid value\)"
    ) as caught:
        list(cluster.watch("TrainJob", "tj", timeout=20))
    assert "drops runtimePatches" in str(caught.value.hint)
