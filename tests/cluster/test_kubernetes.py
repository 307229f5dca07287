"""kubernetes:// over a real HTTP API: what the server says is what the user reads."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, World
from trainjobs import program
from urllib3.exceptions import ProtocolError

from podium.api.cluster_spec import ClusterSpec
from podium.api.sweep import Sweep
from podium.api.sweep_list import sweep_row
from podium.cluster.kubernetes import logs as kubernetes_logs, pods as kubernetes_pods
from podium.cluster.kubernetes.api import Waits
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import (
    Conflict,
    Denied,
    Failed,
    InvalidInput,
    NotFound,
    PodiumError,
    Unavailable,
    UnknownKind,
)
from podium.manifests.experiment import Experiment
from podium.manifests.options import annotation
from podium.manifests.resource import Resource
from podium.manifests.typed import typed
from podium.manifests.workload import Workload
from podium.training.follow import show_log
from podium.training.target import launched

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist"},
    "spec": {},
}
EXPERIMENT = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "sweep"},
    "spec": {},
}
MASTER = {
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "master",
    "training.kubeflow.org/replica-index": "0",
}


SHORT = Waits(window=1, image_grace=0.1, refused_grace=0.1, pause=0.05)


@pytest.fixture
def impatient(cluster: KubernetesCluster, world: World) -> None:
    """Shorten every wait."""
    world.second = 0.1
    cluster.api.waits = SHORT


def later(seconds: float, *actions: Callable[[], Any]) -> threading.Thread:
    def act() -> None:
        for action in actions:
            time.sleep(seconds)
            action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def states(changes: Iterator[Resource]) -> list[list[str]]:
    return [[condition.type for condition in change.conditions] for change in changes]


def test_what_was_created_is_found_in_its_namespace(
    cluster: KubernetesCluster, world: World
) -> None:
    assert cluster.url == "kubernetes://team"
    assert cluster.create(typed(JOB)).manifest["metadata"]["namespace"] == "team"
    assert cluster.get("PyTorchJob", "mnist").manifest["metadata"]["uid"]
    assert "fieldValidation=Strict" in next(
        request for request in world.requests if request.startswith("POST")
    )


@pytest.mark.parametrize("kind", ["TFJob", "XGBoostJob", "JAXJob"])
def test_every_kind_of_the_operator_is_created_and_stopped(
    cluster: KubernetesCluster, world: World, kind: str
) -> None:
    world.plurals.add(f"{kind.lower()}s")
    cluster.create(typed({**JOB, "kind": kind}))
    cluster.stop(kind, "mnist")
    assert cluster.get(kind, "mnist").manifest["spec"]["runPolicy"]["suspend"] is True
    assert [job.name for job in cluster.list(kind)] == ["mnist"]


def test_a_taken_name_is_a_conflict(cluster: KubernetesCluster) -> None:
    cluster.create(typed(JOB))
    with pytest.raises(Conflict, match=r'pytorchjobs.kubeflow.org "mnist" already exists'):
        cluster.create(typed(JOB))


def test_the_webhooks_own_words_reach_the_user(cluster: KubernetesCluster, world: World) -> None:
    said = 'admission webhook "validator.experiment.katib.kubeflow.org" denied the request: spec.objective is missing'
    world.refusals = [(403, {"kind": "Status", "message": said})]
    with pytest.raises(InvalidInput, match=r"spec.objective is missing"):
        cluster.create(typed(JOB))


def test_a_missing_right_is_no_bad_input(cluster: KubernetesCluster, world: World) -> None:
    said = 'pytorchjobs.kubeflow.org is forbidden: User "x" cannot create resource'
    world.refusals = [(403, {"kind": "Status", "message": said})]
    with pytest.raises(PodiumError, match="lacks a right") as caught:
        cluster.create(typed(JOB))
    assert not isinstance(caught.value, InvalidInput)


def test_an_unknown_credential_is_no_missing_right(
    cluster: KubernetesCluster, world: World
) -> None:
    world.refusals = [(401, {"kind": "Status", "message": "Unauthorized"})]
    with pytest.raises(Denied, match="Unauthorized") as caught:
        cluster.create(typed(JOB))
    assert "does not know who asks" in str(caught.value.hint)
    assert "lacks a right" not in str(caught.value.hint)


def test_a_cluster_without_katib_says_so_before_anything_is_made(
    cluster: KubernetesCluster, world: World
) -> None:
    world.plurals = {"pytorchjobs", "pods"}
    world.labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    with pytest.raises(PodiumError, match="does not know the kind Experiment") as caught:
        cluster.create(typed(EXPERIMENT))
    assert "install Katib" in str(caught.value.hint)
    assert not world.objects


def test_what_failed_is_reported_not_what_hindered_the_clean_up(
    cluster: KubernetesCluster, world: World
) -> None:
    world.labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    world.plurals.discard("experiments")
    with (
        pytest.raises(PodiumError, match="cannot create Experiment sweep"),
        launched(cluster, Experiment.parse(EXPERIMENT)),
    ):
        raise AssertionError("it did not start")


def test_a_namespace_where_katib_collects_nothing_is_refused(
    cluster: KubernetesCluster, world: World
) -> None:
    with pytest.raises(InvalidInput, match="collects no metrics in namespace team") as caught:
        cluster.create(typed(EXPERIMENT))
    label = "kubectl label namespace team katib.kubeflow.org/metrics-collector-injection=enabled"
    assert str(caught.value.hint).startswith(f"{label}; not where Katib itself runs")
    assert not world.objects


def test_a_sweep_katib_cannot_stop_early_is_warned_of(
    cluster: KubernetesCluster, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With the user that podium's pods get, which the Experiment itself does not name."""
    world.labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    cluster.create(Experiment.load("random"))
    assert "its collector's user" not in caplog.text
    cluster.create(Experiment.load("medianstop"))
    assert "Katib stops only trials that run as its collector's user" in caplog.text
    assert "set runAsUser in the securityContext of the trial's pod" in caplog.text
    caplog.clear()
    # There deploy/katib gives the collector the trial's user.
    world.labels["pod-security.kubernetes.io/enforce"] = "restricted"
    cluster.create(Experiment.load("medianstop").with_metadata({"name": "again"}))
    assert not caplog.text


def test_a_missing_object_is_distinguished_from_a_missing_kind(cluster: KubernetesCluster) -> None:
    with pytest.raises(NotFound):
        cluster.get("PyTorchJob", "nothing")
    with pytest.raises(InvalidInput, match="does not launch a PaddleJob"):
        cluster.get("PaddleJob", "nothing")


def test_a_cluster_without_trainer_is_named_with_what_to_install(
    cluster: KubernetesCluster, world: World
) -> None:
    assert cluster.admits("TrainJob")
    world.plurals.discard("trainjobs")
    assert not cluster.admits("TrainJob")
    assert cluster.admits("PyTorchJob")
    with pytest.raises(UnknownKind, match="does not know the kind TrainJob") as raised:
        cluster.create(typed(program("pass")))
    assert "Trainer 2.2" in (raised.value.hint or "")


def test_nobody_at_the_address_is_said_in_seconds(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.stop()
    started = time.monotonic()
    with pytest.raises(PodiumError, match=r"http://127.0.0.1:\d+ does not answer"):
        cluster.list("PyTorchJob")
    assert time.monotonic() - started < 5
    server.start()


def test_no_kubeconfig_is_an_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(PodiumError, match="no cluster is configured"):
        KubernetesCluster("kubernetes://team")


@pytest.mark.parametrize(
    "url",
    [
        "kubernetes://team/more",
        "kubernetes://team?wait=3",
        "kubernetes://team?grace=soon",
        "kubernetes://team?grace=²",
        "kubernetes://[team",
    ],
)
def test_a_url_with_parts_that_mean_nothing_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"not the URL of a cluster|grace is not a number"):
        KubernetesCluster(url)


def test_a_request_to_slow_down_is_followed(cluster: KubernetesCluster, world: World) -> None:
    world.refusals = [(429, {"kind": "Status", "message": "too many requests"})] * 2
    assert cluster.create(typed(JOB)).name == "mnist"


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@pytest.mark.parametrize("verb", ["create", "get", "list", "delete"])
def test_errors_of_the_server_itself_are_waited_out(
    cluster: KubernetesCluster, world: World, verb: str, code: int
) -> None:
    said = 'Internal error occurred: failed calling webhook "v.x": Post "https://x.svc:443": connect: connection refused'
    if verb != "create":
        cluster.create(typed(JOB))
    world.refusals = [(code, {"kind": "Status", "reason": "InternalError", "message": said})]
    act = {
        "create": lambda: cluster.create(typed(JOB)),
        "get": lambda: cluster.get("PyTorchJob", "mnist"),
        "list": lambda: cluster.list("PyTorchJob"),
        "delete": lambda: cluster.delete("PyTorchJob", "mnist"),
    }
    act[verb]()
    assert not world.refusals
    assert (("pytorchjobs", "mnist") in world.objects) == (verb != "delete")


def test_a_missing_webhook_is_reported_in_the_servers_words(
    cluster: KubernetesCluster, world: World
) -> None:
    cluster.api.waits = Waits(patience=0.5)
    said = 'Internal error occurred: failed calling webhook "v.x"'
    world.refusals = [(500, {"kind": "Status", "reason": "InternalError", "message": said})] * 9
    with pytest.raises(Unavailable, match=r'failed calling webhook "v.x"'):
        cluster.create(typed(JOB))


def test_a_creation_whose_answer_was_lost_is_ours(cluster: KubernetesCluster, world: World) -> None:
    world.lost_answers = 1
    assert cluster.create(typed(JOB)).name == "mnist"
    with pytest.raises(Conflict):
        cluster.create(typed(JOB))


def test_only_objects_with_all_labels_are_listed_oldest_first(cluster: KubernetesCluster) -> None:
    for name, labels in (
        ("b", {"run": "1", "x": "y"}),
        ("a", {"run": "1", "x": "y"}),
        ("c", {"run": "1"}),
    ):
        cluster.create(typed({**JOB, "metadata": {"name": name, "labels": labels}}))
    found = [stored.manifest for stored in cluster.list("PyTorchJob", {"run": "1", "x": "y"})]
    assert [manifest["metadata"]["name"] for manifest in found] == ["b", "a"]
    assert {launched["kind"] for launched in found} == {"PyTorchJob"}


def test_a_watch_ends_within_a_second_of_the_last_state(
    cluster: KubernetesCluster, world: World
) -> None:
    cluster.create(typed(JOB))
    done: list[float] = []

    def succeed() -> None:
        world.status("pytorchjobs", "mnist", "Succeeded")
        done.append(time.monotonic())

    steps = [
        lambda: world.status("pytorchjobs", "mnist", "Created", "Running"),
        succeed,
    ]
    thread = later(0.3, *steps)
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [
        [],
        ["Created", "Running"],
        ["Succeeded"],
    ]
    assert time.monotonic() - done[0] < 5
    thread.join()


def test_a_change_outside_the_status_is_not_reported(
    cluster: KubernetesCluster, world: World
) -> None:
    cluster.create(typed(JOB))
    touch = {**JOB, "metadata": {"name": "mnist", "labels": {"touched": "yes"}}}
    thread = later(
        0.2,
        lambda: world.put("pytorchjobs", touch),
        lambda: world.status("pytorchjobs", "mnist", "Failed"),
    )
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Failed"]]
    thread.join()


def test_a_watch_outlives_an_expired_version(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    thread = later(0.2, world.forget_history)
    other = later(0.8, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    assert sum("watch=True" in request for request in world.requests) >= 2
    thread.join()
    other.join()


def test_a_quiet_job_is_watched_on_after_its_version_expired(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    # As after a restart of the server: the versions before it, the object's own among them, are gone for good.
    cluster.api.waits = replace(SHORT, outage=0.2)
    cluster.create(typed(JOB))
    thread = later(0.2, world.forget_history)
    other = later(1.0, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    thread.join()
    other.join()


def test_lists_alone_show_changes_where_watches_never_work(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.api.waits = replace(SHORT, outage=0.2)
    world.watches = False
    cluster.create(typed(JOB))
    thread = later(0.8, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    thread.join()


def test_a_watch_keeps_its_timeout_while_nobody_answers(
    server: ApiServer, cluster: KubernetesCluster, impatient: None
) -> None:
    cluster.create(typed(JOB))
    thread = later(0.2, server.stop)
    started = time.monotonic()
    with pytest.raises(Failed, match=r"did not end within 0.5 s"):
        list(cluster.watch("PyTorchJob", "mnist", timeout=0.5))
    assert time.monotonic() - started < 10
    thread.join()
    server.start()


def test_a_look_at_pods_never_waits_for_the_server(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    job = cluster.create(Workload.parse(JOB))
    watchman = kubernetes_pods.Watchman(cluster.api)
    watchman.look(job)
    server.stop()
    started = time.monotonic()
    with pytest.raises(Unavailable):
        watchman.look(job)
    assert time.monotonic() - started < 10


def test_an_outage_is_no_reason_to_delete_a_job(
    server: ApiServer, cluster: KubernetesCluster, world: World
) -> None:
    cluster.api.waits = Waits(outage=0.5, patience=0.5)

    def lose_the_server_for_good() -> None:
        with launched(cluster, Workload.parse(JOB)):
            server.stop()
            try:
                list(cluster.watch("PyTorchJob", "mnist"))
            finally:
                server.start()

    with pytest.raises(Unavailable, match="does not answer"):
        lose_the_server_for_good()
    assert ("pytorchjobs", "mnist") in world.objects
    assert not [request for request in world.requests if request.startswith("DELETE")]


def test_a_watch_outlives_a_restart_of_the_server(
    server: ApiServer, cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    thread = later(
        0.3, server.stop, lambda: world.status("pytorchjobs", "mnist", "Succeeded"), server.start
    )
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=30)) == [[], ["Succeeded"]]
    thread.join()


def test_a_watch_outlives_429_and_a_cut_connection(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    busy = (429, {"kind": "Status", "message": "slow down"})
    thread = later(0.2, world.cut, lambda: world.refusals.extend([busy] * 3))
    other = later(1.0, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    thread.join()
    other.join()


def test_a_server_that_knows_no_roles_yet_ends_no_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    said = {
        "kind": "Status",
        "reason": "Forbidden",
        "message": 'pytorchjobs.kubeflow.org is forbidden: User "x"',
    }
    thread = later(0.2, lambda: world.refusals.extend([(403, said)] * 3), world.cut)
    other = later(1.5, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    assert not world.refusals
    thread.join()
    other.join()


def test_rights_that_stay_away_delete_no_job(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.api.waits = replace(SHORT, patience=0.5)
    said = {
        "kind": "Status",
        "reason": "Forbidden",
        "message": 'pytorchjobs.kubeflow.org is forbidden: User "x"',
    }

    def lose_all_rights() -> None:
        with launched(cluster, Workload.parse(JOB)):
            try:
                for _ in cluster.watch("PyTorchJob", "mnist", timeout=20):
                    world.refusals = [(403, said)] * 50
            finally:
                world.refusals = []

    with pytest.raises(Denied, match="is forbidden"):
        lose_all_rights()
    assert ("pytorchjobs", "mnist") in world.objects


def test_a_deleted_object_ends_its_watch(cluster: KubernetesCluster, world: World) -> None:
    cluster.create(typed(JOB))
    thread = later(0.3, lambda: world.remove("pytorchjobs", "mnist"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[]]
    thread.join()


def test_a_watch_has_its_timeout(cluster: KubernetesCluster, impatient: None) -> None:
    cluster.create(typed(JOB))
    with pytest.raises(Failed, match=r"did not end within 0.5 s"):
        list(cluster.watch("PyTorchJob", "mnist", timeout=0.5))


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    one = {
        "name": "pytorch",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"phase": "Pending", "containerStatuses": [one]}


def test_an_unpullable_image_ends_the_watch_before_the_timeout(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    world.pod(
        "mnist-master-0",
        MASTER,
        **waiting("ImagePullBackOff", 'Back-off pulling image "nowhere/x:1"'),
    )
    started = time.monotonic()
    with pytest.raises(Failed, match=r"mnist-master-0: ImagePullBackOff .*nowhere/x:1") as caught:
        list(cluster.watch("PyTorchJob", "mnist", timeout=60))
    assert "registry" in str(caught.value.hint)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "message",
    [
        'container has runAsNonRoot and image will run as root (pod: "m_team(1)", container: pytorch)',
        "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root",
    ],
)
def test_a_root_image_names_the_settings_that_help(
    cluster: KubernetesCluster, world: World, impatient: None, message: str
) -> None:
    cluster.create(typed(JOB))
    world.pod("mnist-master-0", MASTER, **waiting("CreateContainerConfigError", message))
    with pytest.raises(Failed, match="runAsNonRoot") as caught:
        list(cluster.watch("PyTorchJob", "mnist", timeout=60))
    for setting in (
        'pods={"run_as_user": 1000}',
        'pods={"security": "baseline"}',
        "securityContext.runAsUser",
    ):
        assert setting in str(caught.value.hint)


def test_an_unschedulable_pod_ends_the_watch_after_its_grace(
    server: ApiServer, impatient: None
) -> None:
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    with KubernetesCluster("kubernetes://team?grace=0.5") as cluster:
        cluster.create(typed(JOB))
        server.world.pod("mnist-master-0", MASTER, phase="Pending", conditions=[condition])
        with pytest.raises(Failed, match=r"Insufficient nvidia.com/gpu"):
            list(cluster.watch("PyTorchJob", "mnist", timeout=60))


QUOTA = 'Error creating: pods "mnist-worker-0" is forbidden: exceeded quota: team, requested: pods=1, limited: pods=1'
TWO = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}


@pytest.mark.parametrize("reason", ["FailedCreatePod", "FailedCreate"])
def test_refused_pods_end_the_watch_with_the_quotas_words(
    cluster: KubernetesCluster, world: World, impatient: None, reason: str
) -> None:
    cluster.create(typed({**JOB, "spec": TWO}))
    world.pod("mnist-master-0", MASTER, phase="Running")
    world.event("pytorchjobs", "mnist", reason, QUOTA)
    with pytest.raises(
        Failed, match=r"mnist cannot start: .*exceeded quota: team, requested: pods=1"
    ) as caught:
        list(cluster.watch("PyTorchJob", "mnist", timeout=20))
    assert "quota" in str(caught.value.hint)


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_refused_pod_of_an_mpijob_ends_the_watch(
    cluster: KubernetesCluster, world: World, impatient: None, role: str
) -> None:
    world.plurals = {*world.plurals, "mpijobs"}
    template = {"spec": {"containers": [{"name": "mpi", "image": "trainer"}]}}
    roles = {one: {"replicas": 1, "template": template} for one in ("Launcher", "Worker")}
    job = {**JOB, "kind": "MPIJob", "spec": {"mpiReplicaSpecs": roles}}
    cluster.create(typed(job))
    world.event("mpijobs", "mnist", "MPIJobFailed", f"{role} pod created failed: {QUOTA}")
    world.event("mpijobs", "mnist", "FailedCreatePod", "Created worker pod: ")
    with pytest.raises(Failed, match=rf"MPIJob mnist cannot start: .*{role} .*exceeded quota"):
        list(cluster.watch("MPIJob", "mnist", timeout=20))


def test_refused_nodes_of_a_trainjob_end_the_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(program("pass", 2, "mnist")))
    world.put("jobs", {"kind": "Job", "metadata": {"name": "mnist-node-0"}})
    world.event("jobs", "mnist-node-0", "FailedCreate", QUOTA)
    with pytest.raises(Failed, match=r"TrainJob mnist cannot start: .*exceeded quota"):
        list(cluster.watch("TrainJob", "mnist", timeout=20))


def test_a_refused_init_container_names_the_operators_template(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    refusal = (
        'Error creating: pods "mnist-worker-0" is forbidden: violates PodSecurity "restricted:latest": '
        'allowPrivilegeEscalation != false (container "init-pytorch" must set …)'
    )
    cluster.create(typed({**JOB, "spec": TWO}))
    world.event("pytorchjobs", "mnist", "FailedCreatePod", refusal)
    with pytest.raises(Failed, match="init-pytorch") as caught:
        list(cluster.watch("PyTorchJob", "mnist", timeout=20))
    assert "deploy/training-operator" in str(caught.value.hint)


def test_refused_pods_of_a_trial_end_the_sweeps_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    world.labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    cluster.create(typed({**EXPERIMENT, "spec": {"trialTemplate": {"trialSpec": {"spec": TWO}}}}))
    trial = {
        "kind": "Trial",
        "metadata": {"name": "sweep-1", "labels": {"katib.kubeflow.org/experiment": "sweep"}},
    }
    world.put("trials", {**trial, "spec": {}})
    world.put("pytorchjobs", {**JOB, "metadata": {"name": "sweep-1"}})
    world.event("pytorchjobs", "sweep-1", "FailedCreatePod", QUOTA)
    with pytest.raises(Failed, match=r"Experiment sweep cannot start: .*exceeded quota"):
        list(cluster.watch("Experiment", "sweep", timeout=20))


def test_trials_of_katib_are_judged_by_the_sweeps_constraints(
    cluster: KubernetesCluster, world: World
) -> None:
    """Katib's trials carry none, and its own optimum breaks one."""
    bound = annotation({"constraints": ["ms<=20"]})
    metadata = {"name": "sweep", "annotations": bound}
    objective = {"type": "maximize", "objectiveMetricName": "score"}
    world.put("experiments", {**EXPERIMENT, "metadata": metadata, "spec": {"objective": objective}})
    for name, score, ms in (("sweep-1", 0.9, 50), ("sweep-2", 0.8, 10)):
        measured = {"score": score, "ms": ms}
        metrics = [
            {"name": key, **dict.fromkeys(("min", "max", "latest"), str(value))}
            for key, value in measured.items()
        ]
        labels = {"katib.kubeflow.org/experiment": "sweep"}
        ended = {
            "observation": {"metrics": metrics},
            "conditions": [{"type": "Succeeded", "status": "True"}],
        }
        trial = {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Trial",
            "spec": {"objective": objective},
            "status": ended,
        }
        world.put("trials", {**trial, "metadata": {"name": name, "labels": labels}})
    sweep = Sweep(ClusterSpec(url=cluster.url), "sweep", cluster)
    assert (sweep.best.name, [each.name for each in sweep.front]) == ("sweep-2", ["sweep-2"])
    assert [trial.infeasible != [] for trial in sweep.results] == [True, False]
    row = sweep_row(cluster, sweep.experiment)
    assert (row["best"], row["best_trial"]) == (0.8, "sweep-2")


def test_an_experiment_that_nobody_takes_up_ends_its_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    world.katib = False
    cluster.api.waits = replace(SHORT, taken_up_grace=0.3)
    cluster.create(typed(EXPERIMENT))
    with pytest.raises(Failed, match="nobody runs Experiments in namespace team") as caught:
        list(cluster.watch("Experiment", "sweep", timeout=20))
    assert "?engine=here" in str(caught.value.hint)


def test_an_experiment_taken_up_late_is_followed(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    world.katib = False
    cluster.api.waits = replace(SHORT, taken_up_grace=2.0)
    cluster.create(typed(EXPERIMENT))
    ending = later(0.5, lambda: world.status("experiments", "sweep", "Created"))
    with pytest.raises(Failed, match="within"):
        list(cluster.watch("Experiment", "sweep", timeout=3))
    ending.join()


def test_a_refused_suggestion_service_ends_the_sweeps_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    world.labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    replicas = {"metadata": {"name": "sweep-random-66d49ff798"}, "kind": "ReplicaSet"}
    refusal = 'pods "sweep-random-66d4-x" is forbidden: violates PodSecurity "restricted:latest": (container "suggestion")'
    world.put("replicasets", replicas)
    world.event(
        "replicasets",
        "sweep-random-66d49ff798",
        "FailedCreate",
        "of an earlier one of the same name",
    )
    cluster.create(typed(EXPERIMENT))
    assert (
        next(stored.manifest for stored in cluster.watch("Experiment", "sweep", timeout=20))["kind"]
        == "Experiment"
    )
    with pytest.raises(Failed, match="within"):
        list(cluster.watch("Experiment", "sweep", timeout=0.5))
    world.event("replicasets", "sweep-random-66d49ff798", "FailedCreate", refusal)
    with pytest.raises(Failed, match=r'sweep cannot start: .*container "suggestion"') as caught:
        list(cluster.watch("Experiment", "sweep", timeout=20))
    assert "katib-config" in str(caught.value.hint)


def test_a_webhook_briefly_away_refuses_no_pod(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    said = 'Error creating: Internal error occurred: failed calling webhook "x": connect: connection refused'
    world.event("pytorchjobs", "mnist", "FailedCreatePod", said)
    thread = later(0.8, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    thread.join()


def test_a_refusal_long_overcome_ends_no_watch(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    world.event("pytorchjobs", "mnist", "FailedCreatePod", QUOTA)
    world.pod("mnist-master-0", MASTER, phase="Running")
    lost = later(0.2, lambda: world.remove("pods", "mnist-master-0"))
    thread = later(1.0, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    thread.join()
    lost.join()


def test_events_that_may_not_be_read_end_no_watch(
    cluster: KubernetesCluster, world: World, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    world.plurals.discard("events")
    cluster.create(typed(JOB))
    thread = later(0.8, lambda: world.status("pytorchjobs", "mnist", "Succeeded"))
    assert states(cluster.watch("PyTorchJob", "mnist", timeout=20)) == [[], ["Succeeded"]]
    assert len(caplog.records) == 1
    thread.join()


def terminated(code: int, reason: str, finished: str = "2026-01-01T00:00:09Z") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": finished}}
    one = {
        "name": "pytorch",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"phase": "Failed", "containerStatuses": [one]}


def test_a_failed_job_names_the_pod_that_failed_first(
    cluster: KubernetesCluster, world: World
) -> None:
    cluster.create(typed(JOB))
    worker = {**MASTER, "training.kubeflow.org/replica-type": "worker"}
    world.pod("mnist-master-0", MASTER, **terminated(1, "Error", "2026-01-01T00:00:12Z"))
    world.pod("mnist-worker-0", worker, **terminated(137, "OOMKilled"))
    world.logs = {
        "mnist-worker-0": [f"line {n}" for n in range(40)],
        "mnist-master-0": ["connection closed by peer"],
    }
    world.status("pytorchjobs", "mnist", "Failed")
    error = cluster.failure("PyTorchJob", "mnist")
    assert "pod mnist-worker-0: OOMKilled (container pytorch, exit code 137)" in error.message
    assert "  | line 39" in error.message
    assert "memory limit" in str(error.hint)


def test_the_log_is_followed_to_its_end(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    steps = [
        lambda: world.pod("mnist-master-0", MASTER, phase="Pending"),
        lambda: world.logs.update({"mnist-master-0": ["one"]}),
        lambda: world.pod("mnist-master-0", MASTER, **running),
        lambda: world.logs["mnist-master-0"].append("accuracy=0.9"),
        lambda: world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"}),
    ]
    thread = later(0.15, *steps)
    assert list(cluster.logs("PyTorchJob", "mnist", follow=True)) == ["one", "accuracy=0.9"]
    thread.join()


def test_a_worker_starting_after_the_jobs_end_is_followed(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    world.status("pytorchjobs", "mnist", "Succeeded")
    worker = MASTER | {"training.kubeflow.org/replica-type": "worker"}
    world.pod("mnist-worker-0", worker, phase="Pending")
    world.logs["mnist-worker-0"] = ["late"]
    ended = terminated(0, "Completed") | {"phase": "Succeeded"}
    thread = later(0.3, lambda: world.pod("mnist-worker-0", worker, **ended))
    assert list(cluster.logs("PyTorchJob", "mnist", "worker-0", follow=True)) == ["late"]
    thread.join()
    world.pod("mnist-worker-0", worker, **waiting("ImagePullBackOff", "no such image"))
    assert list(cluster.logs("PyTorchJob", "mnist", "worker-0", follow=True)) == []


def test_a_cut_connection_loses_and_repeats_no_line(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    world.logs = {"mnist-master-0": ["one", "two"]}
    world.pod("mnist-master-0", MASTER, **running)
    steps = [
        world.cut,
        lambda: world.logs["mnist-master-0"].append("three"),
        lambda: world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"}),
    ]
    thread = later(0.2, *steps)
    assert list(cluster.logs("PyTorchJob", "mnist", follow=True)) == ["one", "two", "three"]
    thread.join()


def test_a_long_bar_goes_on_where_its_log_broke(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    bar = "\r".join(f"{number} [{'#' * 99}]" for number in range(80_000))
    world.logs = {"mnist-master-0": [bar, "end"]}
    world.pod("mnist-master-0", MASTER, **running)
    lines = cluster.logs("PyTorchJob", "mnist", follow=True)
    begun = [next(lines), next(lines)]
    world.cut()
    world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"})
    assert "".join([*begun, *lines]) == f"{bar}end"


def test_a_log_that_often_broke_is_read_to_its_end(
    cluster: KubernetesCluster, world: World, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(typed(JOB))
    world.logs = {"mnist-master-0": ["one"]}
    world.pod("mnist-master-0", MASTER, **terminated(0, "Completed") | {"phase": "Failed"})
    read, broken = cluster.api.core.read_namespaced_pod_log, list[int]()

    def read_later(*args: Any, **options: Any) -> Any:
        if (
            len(broken) < 7
        ):  # six quiet minutes while it runs, and a broken connection after its end
            broken.append(len(broken))
            raise ProtocolError("connection reset")
        return read(*args, **options)

    monkeypatch.setattr(cluster.api.core, "read_namespaced_pod_log", read_later)
    is_over = lambda: len(broken) >= 6  # noqa: E731
    lines = kubernetes_logs.logs(cluster.api, "PyTorchJob", "mnist", None, True, is_over)
    assert list(lines) == ["one"]


def test_a_kubelets_own_words_do_not_end_a_log(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    world.logs = {"mnist-master-0": ["one"]}
    said = "unable to retrieve container logs for containerd://f00"
    world.kubelet_says = [said] * 3
    world.pod("mnist-master-0", MASTER, **terminated(0, "Completed") | {"phase": "Failed"})
    lines = kubernetes_logs.logs(
        cluster.api, "PyTorchJob", "mnist", None, True, lambda: not world.kubelet_says
    )
    assert list(lines) == [said, "one"]


@pytest.mark.parametrize(
    "stamps",
    [
        ["2026-10-25T02:59:59.900000000+02:00", "2026-10-25T02:00:01.100000000+01:00"],
        ["2099-01-01T00:00:00.000000001Z", "2099-01-01T00:00:00.000000002Z"],
    ],
    ids=["winter", "nanoseconds"],
)
def test_a_nodes_clock_loses_no_line_of_a_broken_log(
    stamps: list[str], cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    world.logs, world.stamp = {"mnist-master-0": ["one"]}, lambda number: stamps[number]
    world.pod("mnist-master-0", MASTER, **running)
    lines = cluster.logs("PyTorchJob", "mnist", follow=True)
    assert next(lines) == "one"
    world.cut()
    world.logs["mnist-master-0"].append("two")
    world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"})
    assert list(lines) == ["two"]


def test_a_log_is_read_again_since_its_last_line(
    cluster: KubernetesCluster, world: World, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    world.logs, world.stamp = {"mnist-master-0": ["one"]}, lambda _: "2099-01-01T00:00:00Z"
    world.pod("mnist-master-0", MASTER, **running)
    lines = cluster.logs("PyTorchJob", "mnist", follow=True)
    assert next(lines) == "one"
    world.cut()
    world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"})
    now = time.monotonic  # the node's clock is ahead, and the line was read an hour ago
    monkeypatch.setattr(kubernetes_logs.time, "monotonic", lambda: now() + 3600)
    assert list(lines) == []
    (since,) = {
        part for each in world.requests for part in each.split("&") if "sinceSeconds" in part
    }
    assert int(since.partition("=")[2]) >= 3660


def test_a_log_goes_on_while_a_server_loads_its_roles(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    cluster.create(typed(JOB))
    running = terminated(0, "Completed") | {"phase": "Running"}
    world.logs = {"mnist-master-0": ["one"]}
    world.pod("mnist-master-0", MASTER, **running)
    said = {"kind": "Status", "reason": "Forbidden", "message": 'pods is forbidden: User "x"'}
    steps = [
        lambda: world.refusals.extend([(403, said)] * 2),
        world.cut,
        lambda: world.logs["mnist-master-0"].append("two"),
        lambda: world.pod("mnist-master-0", MASTER, **{**running, "phase": "Succeeded"}),
    ]
    thread = later(0.2, *steps)
    assert list(cluster.logs("PyTorchJob", "mnist", follow=True)) == ["one", "two"]
    thread.join()


def test_a_broken_log_is_reported_and_fails_nothing(
    cluster: KubernetesCluster, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create(typed(JOB))
    world.logs = {"mnist-master-0": ["one"]}
    world.pod("mnist-master-0", MASTER, **terminated(0, "Completed"))
    world.refusals = [(403, "no")] * 9
    show_log(cluster, "PyTorchJob", "mnist", ("accuracy",), (), [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the log of PyTorchJob mnist breaks off: ")


def test_notices_pace_and_epochs_of_a_log_become_progress(
    cluster: KubernetesCluster, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create(typed(JOB))
    world.logs = {
        "mnist-master-0": [
            "notice: 2 steps",
            "pace: 90 items/s, epoch 1 of 2, about 9 s left",
            "loss",
            "accuracy=0.5",
        ]
    }
    world.pod("mnist-master-0", MASTER, **terminated(0, "Completed") | {"phase": "Succeeded"})
    show_log(cluster, "PyTorchJob", "mnist", ("accuracy",), (), [], whose="trial a, ")
    assert capsys.readouterr().out.splitlines() == [
        "podium | trial a, notice: 2 steps",
        "podium | trial a, 90 items/s, epoch 1 of 2, about 9 s left", "loss", "podium | trial a, epoch 1: accuracy=0.5"
    ]  # fmt: skip


def test_an_unknown_replica_is_not_found(cluster: KubernetesCluster, world: World) -> None:
    cluster.create(typed(JOB))
    world.pod("mnist-master-0", MASTER, phase="Pending")
    with pytest.raises(NotFound, match="no pod of replica worker-3"):
        list(cluster.logs("PyTorchJob", "mnist", replica="worker-3"))
    with pytest.raises(NotFound):
        list(cluster.logs("PyTorchJob", "nothing"))


def test_the_log_of_a_trial_not_retained_names_retain(
    cluster: KubernetesCluster, world: World
) -> None:
    """Katib removes such a trial's job, and its pods, once it has its metrics."""
    world.put("trials", {"kind": "Trial", "metadata": {"name": "sweep-1"}, "spec": {}})
    with pytest.raises(NotFound, match="no pod of replica") as caught:
        list(cluster.logs("Trial", "sweep-1"))
    assert "`retain: true`, which podium experiment render writes" in str(caught.value.hint)


def test_delete_returns_when_the_pods_are_gone(cluster: KubernetesCluster, world: World) -> None:
    cluster.create(typed(JOB))
    world.pod("mnist-master-0", MASTER, phase="Running")
    thread = later(0.4, lambda: world.remove("pods", "mnist-master-0"))
    cluster.delete("PyTorchJob", "mnist")
    assert not [key for key in world.objects if key[0] == "pods"]
    cluster.delete("PyTorchJob", "mnist")
    thread.join()


def test_abandon_is_one_request(cluster: KubernetesCluster, world: World) -> None:
    cluster.create(typed(JOB))
    world.pod("mnist-master-0", MASTER, phase="Running")
    world.requests.clear()
    cluster.abandon("PyTorchJob", "mnist")
    cluster.abandon("PyTorchJob", "mnist")
    assert [request.split()[0] for request in world.requests] == ["DELETE", "DELETE"]
    assert ("pytorchjobs", "mnist") not in world.objects


def test_a_restart_during_a_call_is_waited_out(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    cluster.create(typed(JOB))
    server.stop()
    thread = later(0.4, server.start)
    assert cluster.get("PyTorchJob", "mnist").manifest["metadata"]["name"] == "mnist"
    thread.join()
    assert Waits().patience > 10


def test_a_pod_in_place_of_another_begins_anew(
    cluster: KubernetesCluster, world: World, impatient: None
) -> None:
    world.put("jobs", {"kind": "Job", "metadata": {"name": "trial"}, "spec": {}})
    for number, (phase, rate) in enumerate((("Failed", "0.9"), ("Succeeded", "0.1"))):
        ended = {
            "name": "pytorch",
            "image": "any",
            "imageID": "any",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 1 - number}},
        }
        world.logs[f"trial-{number}"] = [f"loss={rate}"]
        world.pod(f"trial-{number}", {"job-name": "trial"}, phase=phase, containerStatuses=[ended])
        if number == 0:
            read: list[str] = []
            lines = kubernetes_logs.logs(
                cluster.api, "Job", "trial", None, True, lambda: False, read.clear
            )
            read.append(next(lines))
    for line in lines:
        read.append(line)
    assert read == ["loss=0.1"]
