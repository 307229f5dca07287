"""TFJobs, XGBoostJobs and JAXJobs as processes: their environment, their ends and what is refused of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import space, write_experiment

from podium.cluster.local.operator_job import _free_ports
from podium.errors import InvalidInput
from podium.manifests.conditions import State, status_of
from podium.manifests.kinds import OPERATOR_KINDS
from podium.manifests.typed import typed
from podium.manifests.workload import Workload
from podium.sweeps.local import LocalSweeps

SHOWN = (
    "TF_CONFIG MASTER_ADDR MASTER_PORT WORLD_SIZE RANK WORKER_PORT WORKER_ADDRS COORDINATOR_ADDRESS COORDINATOR_PORT "
    "NUM_PROCESSES PROCESS_ID PYTHONUNBUFFERED"
)
SHOW = f"import json, os; print(json.dumps({{n: os.environ[n] for n in '{SHOWN}'.split() if n in os.environ}}))"


def job(kind: str, script: str = SHOW, *, policy: str = "Never", **counts: int) -> dict[str, Any]:
    operator = OPERATOR_KINDS[kind]
    container = {
        "name": operator.container,
        "image": "any",
        "command": ["python", "-S", "-c", script],
    }
    pod = {"spec": {"containers": [container]}}
    replicas = {
        role: {"replicas": n, "restartPolicy": policy, "template": pod}
        for role, n in counts.items()
    }
    spec = {operator.replica_specs: replicas}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "job"},
        "spec": spec,
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def run(cluster: LocalSweeps, manifest: dict[str, Any]) -> State:
    cluster.create(typed(manifest))
    *_, last = (stored.manifest for stored in cluster.watch(manifest["kind"], "job", timeout=60))
    return status_of(last)


def environments(
    cluster: LocalSweeps, manifest: dict[str, Any], *replicas: str
) -> list[dict[str, str]]:
    run(cluster, manifest)
    return [
        json.loads(*cluster.logs(manifest["kind"], "job", replica, follow=True))
        for replica in replicas
    ]


def test_processes_of_a_tfjob_know_the_whole_cluster(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", Chief=1, PS=1, Worker=2)
    worker, server = environments(cluster, manifest, "worker-1", "ps-0")
    config = json.loads(worker["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert {role: len(there) for role, there in config["cluster"].items()} == {
        "chief": 1,
        "ps": 1,
        "worker": 2,
    }
    addresses = [address for there in config["cluster"].values() for address in there]
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert json.loads(server["TF_CONFIG"])["cluster"] == config["cluster"]
    assert set(worker) == {"TF_CONFIG"}


def test_no_two_replicas_of_a_job_get_one_port() -> None:
    made = typed(job("TFJob", PS=1, Worker=499))
    assert isinstance(made, Workload)
    assert len({*_free_ports(made).values()}) == 500


def test_a_tfjob_of_one_process_has_no_tf_config(cluster: LocalSweeps) -> None:
    assert environments(cluster, job("TFJob", Worker=1), "worker-0") == [{}]


def test_dynamic_workers_know_themselves_and_the_servers_only(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", PS=1, Worker=2)
    manifest["spec"] |= {"enableDynamicWorker": True, "successPolicy": "AllWorkers"}
    (worker,) = environments(cluster, manifest, "worker-1")
    known = json.loads(worker["TF_CONFIG"])["cluster"]
    assert (list(known["worker"]), len(known["ps"])) == (["1"], 1)


def test_processes_of_an_xgboostjob_find_their_master(cluster: LocalSweeps) -> None:
    master, worker = environments(
        cluster, job("XGBoostJob", Master=1, Worker=2), "master-0", "worker-1"
    )
    assert (master["RANK"], worker["RANK"]) == ("0", "2")
    assert (worker["WORLD_SIZE"], worker["MASTER_ADDR"]) == ("3", "127.0.0.1")
    assert master["MASTER_PORT"] == worker["MASTER_PORT"]
    assert worker["WORKER_ADDRS"] == "127.0.0.1,127.0.0.1"


def test_processes_of_a_jaxjob_find_their_coordinator(cluster: LocalSweeps) -> None:
    first, second = environments(cluster, job("JAXJob", Worker=2), "worker-0", "worker-1")
    assert (first["PROCESS_ID"], second["PROCESS_ID"], first["NUM_PROCESSES"]) == ("0", "1", "2")
    assert second["COORDINATOR_ADDRESS"] == "127.0.0.1"
    assert first["COORDINATOR_PORT"] == second["COORDINATOR_PORT"]


FIRST = "import os, json, sys, time; first = json.loads(os.environ['TF_CONFIG'])['task']['index'] == 0\n"


def test_the_first_worker_of_a_tfjob_decides(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", FIRST + "first or time.sleep(60)", Worker=2)
    manifest["spec"]["runPolicy"] = {"cleanPodPolicy": "Running"}
    state = run(cluster, manifest)
    assert state.message == "TFJob default/job successfully completed."


def test_all_workers_of_a_tfjob_decide_if_asked(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", FIRST + "first or time.sleep(1); first or open('late', 'w')", Worker=2)
    manifest["spec"]["successPolicy"] = "AllWorkers"
    assert run(cluster, manifest).succeeded
    assert (cluster.store.path("TFJob", "job") / "work/worker-1/late").exists()


def test_a_failed_worker_fails_a_jaxjob(cluster: LocalSweeps) -> None:
    state = run(
        cluster, job("JAXJob", "import os, sys; sys.exit(int(os.environ['PROCESS_ID']))", Worker=2)
    )
    assert (state.phase, state.reason) == ("Failed", "JAXJobFailed")
    assert "1 Worker replica(s) failed" in state.message


def test_a_replica_without_a_policy_is_not_restarted(cluster: LocalSweeps) -> None:
    manifest = job("XGBoostJob", "raise SystemExit(3)", policy="", Master=1)
    assert run(cluster, manifest).phase == "Failed"
    assert cluster.replicas("XGBoostJob", "job")[0].restarts == 0


REFUSED: list[tuple[dict[str, Any], str]] = [
    (job("XGBoostJob", Worker=1), "spec.xgbReplicaSpecs.Master: must be given"),
    (job("XGBoostJob", Master=2), "`replicas == 1 for the Master`"),
    (job("JAXJob", Worker=1, Master=1), "spec.jaxReplicaSpecs.Master: must be a Worker"),
    (job("JAXJob"), "spec.jaxReplicaSpecs: must have a Worker"),
    (job("TFJob", Chief=1, Master=1), "must have one of Chief and Master only"),
    (
        {**job("TFJob", Worker=1), "apiVersion": "kubeflow.org/v1alpha1"},
        "apiVersion: must be kubeflow.org/v1",
    ),
    (
        {**job("JAXJob", Worker=1), "kind": "PaddleJob"},
        "kind must be Job, PyTorchJob, TFJob, XGBoostJob, JAXJob, MPIJob, TrainJob or Experiment",
    ),
]


@pytest.mark.parametrize(("manifest", "words"), REFUSED)
def test_what_the_operator_refuses_is_refused(
    cluster: LocalSweeps, manifest: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        cluster.create(typed(manifest))
    assert words in refused.value.message


def test_a_role_may_be_written_in_any_case(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", ps=1, WORKER=1)
    assert environments(cluster, manifest, "ps-0")[0].keys() == {"TF_CONFIG"}


def sweep(manifest: dict[str, Any], **template: Any) -> dict[str, Any]:
    """An Experiment of one trial that runs a job."""
    container = OPERATOR_KINDS[manifest["kind"]].container
    one = [space("x", min="1", max="2")]
    return write_experiment(
        {**manifest, "metadata": {}},
        container=container,
        maxTrialCount=1,
        parameters=one,
        template=template,
    )


def metrics(cluster: LocalSweeps, manifest: dict[str, Any]) -> dict[str, str]:
    cluster.create(typed(manifest))
    *_, last = (stored.manifest for stored in cluster.watch("Experiment", "e", timeout=60))
    assert status_of(last).succeeded, last["status"]
    (trial,) = cluster.trials("e")
    return trial.metrics["loss"]


def command(manifest: dict[str, Any], *words: str) -> None:
    ((_, replica),) = manifest["spec"][OPERATOR_KINDS[manifest["kind"]].replica_specs].items()
    replica["template"]["spec"]["containers"][0]["command"] = list(words)


@pytest.mark.parametrize(
    "words", [("sh", "-c", "echo loss=$PROCESS_ID ${trialParameters.x}"), ("python", "rank.py")]
)
def test_the_first_worker_alone_reports_for_a_trial(
    words: tuple[str, ...], cluster: LocalSweeps, tmp_path: Path
) -> None:
    (tmp_path / "rank.py").write_text("import os; print('loss=' + os.environ['PROCESS_ID'])")
    manifest = job("JAXJob", Worker=2)
    command(
        manifest,
        *(word.replace("rank.py", str(tmp_path / "rank.py")) for word in words),
        "${trialParameters.x}",
    )
    assert metrics(cluster, sweep(manifest)) == {"min": "0", "max": "0", "latest": "0"}


def test_every_pod_with_the_labels_reports_for_a_trial(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", Worker=2)
    command(manifest, "sh", "-c", "echo loss=${HOSTNAME##*-} ${trialParameters.x}")
    labels = {"training.kubeflow.org/replica-type": "worker"}
    manifest["spec"]["successPolicy"] = "AllWorkers"
    values = metrics(cluster, sweep(manifest, primaryPodLabels=labels))
    assert (values["min"], values["max"]) == ("0", "1")


def test_workers_share_a_file_collectors_file(cluster: LocalSweeps) -> None:
    manifest = job("TFJob", Worker=2)
    command(
        manifest, "sh", "-c", "echo loss=${HOSTNAME##*-} ${trialParameters.x} >> /metrics/log.txt"
    )
    manifest["spec"]["successPolicy"] = "AllWorkers"
    experiment = sweep(manifest)
    source = {"fileSystemPath": {"kind": "File", "path": "/metrics/log.txt"}}
    experiment["spec"]["metricsCollectorSpec"] = {"collector": {"kind": "File"}, "source": source}
    values = metrics(cluster, experiment)
    assert (values["min"], values["max"]) == ("0", "1")


def test_a_worker_writes_the_collectors_file_unread(cluster: LocalSweeps) -> None:
    manifest = job("XGBoostJob", Master=1, Worker=1)
    for replica in manifest["spec"]["xgbReplicaSpecs"].values():
        script = "echo loss=$RANK ${trialParameters.x} >> /metrics/log.txt"
        pod = {"name": "xgboost", "image": "any", "command": ["sh", "-c", script]}
        replica["template"] = {"spec": {"containers": [pod]}}
    experiment = sweep(manifest)
    source = {"fileSystemPath": {"kind": "File", "path": "/metrics/log.txt"}}
    experiment["spec"]["metricsCollectorSpec"] = {"collector": {"kind": "File"}, "source": source}
    assert metrics(cluster, experiment)["max"] == "0"


def test_pods_that_report_may_differ_in_needing_a_shell(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    (tmp_path / "rank.py").write_text("import os; print('loss=' + os.environ['RANK'])")
    manifest = job("XGBoostJob", Master=1, Worker=1)
    commands = {
        "Master": ["sh", "-c", "sleep 1; echo loss=$RANK ${trialParameters.x}"],
        "Worker": ["python", f"{tmp_path}/rank.py"],
    }
    for role, words in commands.items():
        pod = {"spec": {"containers": [{"name": "xgboost", "image": "any", "command": words}]}}
        manifest["spec"]["xgbReplicaSpecs"][role]["template"] = {
            "metadata": {"labels": {"reports": "yes"}},
            **pod,
        }
    values = metrics(cluster, sweep(manifest, primaryPodLabels={"reports": "yes"}))
    assert (values["min"], values["max"]) == ("0", "1")
