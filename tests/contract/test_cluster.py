"""What every cluster does, whatever its URL: run over this machine, over an API server in memory whose operator runs
pods as processes, and with --cluster over a live Kubernetes.

PODIUM_TEST_IMAGE names an image with python3 and sh that does not run as root (podium-steps:0.1.0).
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer
from job_operator import JobOperator
from pytorchjobs import write_pytorchjob
from trainjobs import program

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.errors import Conflict, Failed, InvalidInput, NotFound, UnknownKind
from podium.manifests.conditions import Manifest, status_of
from podium.manifests.typed import typed

IMAGE = os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0")
RUN = uuid.uuid4().hex[:8]
WAIT = 240


@pytest.fixture
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a namespace of an API server in memory."""
    server = ApiServer()
    server.start()
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with JobOperator(server.world, tmp_path / "operator"):
        yield "kubernetes://team"
    server.stop()


@pytest.fixture(
    params=["local", "in-memory", pytest.param("kubernetes", marks=pytest.mark.cluster)]
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """An implementation; what a test created is deleted."""
    url = {"local": f"local://{tmp_path}/cluster", "kubernetes": "kubernetes://"}.get(request.param)
    with connect(url or request.getfixturevalue("in_memory")) as there:
        yield there
        for kind in ("PyTorchJob", "Job", "TrainJob"):
            with suppress(UnknownKind):
                for launched in there.list(kind, {"podium.dev/test": RUN}):
                    there.abandon(kind, launched.name)  # does not wait


@pytest.fixture
def with_trainer(cluster: Cluster) -> Cluster:
    """The implementation, unless it is a live cluster without Kubeflow Trainer."""
    try:
        cluster.list("TrainJob")
    except UnknownKind:
        pytest.skip("this cluster has no Kubeflow Trainer 2")
    return cluster


def is_quick(cluster: Cluster) -> bool:
    """Tell whether pods start at once: no node, no operator that looks every few seconds."""
    return cluster.traits.shares_files or cluster.url == "kubernetes://team"


def name() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


def training(script: str, **changes: Any) -> Manifest:
    """Write a PyTorchJob that runs a line of Python."""
    given = {
        "name": name(),
        "image": IMAGE,
        "command": ("python3", "-u", "-c", script),
        "restart_policy": "Never",
    }
    labels = {"podium.dev/test": RUN}
    return write_pytorchjob(
        **({"labels": labels, "active_deadline_seconds": 300} | given | changes)
    )


def job(script: str, **changes: Any) -> Manifest:
    """Write a batch Job that runs a line of shell."""
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name(), "labels": {"podium.dev/test": RUN}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": 300, "template": template} | changes,
    }


def nodes(script: str, count: int = 1, **spec: Any) -> Manifest:
    """Write a TrainJob whose nodes run a line of Python."""
    manifest = program(script, count, name(), **{"activeDeadlineSeconds": 300} | spec)
    manifest["spec"]["trainer"]["image"] = IMAGE
    manifest["metadata"]["labels"] = {"podium.dev/test": RUN}
    return manifest


def launch(cluster: Cluster, manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], cluster.create(typed(manifest)).name


def end(cluster: Cluster, kind: str, name: str) -> Manifest:
    """Wait for the last state."""
    *_, last = (stored.manifest for stored in cluster.watch(kind, name, timeout=WAIT))
    return last


def test_ranks_have_the_operators_environment_and_a_log_each(cluster: Cluster) -> None:
    script = (
        "import os; e = os.environ\n"
        "print(e['RANK'], e['WORLD_SIZE'], e['PYTHONUNBUFFERED'], e['PET_NNODES'], e['PET_NPROC_PER_NODE'],"
        " e['PET_NODE_RANK'], bool(e['MASTER_ADDR']), int(e['MASTER_PORT']) > 1024)"
    )
    # A worker's pod waits for the name of a master that runs, so that a master must not end before it.
    script += "" if is_quick(cluster) else "\nimport time; time.sleep(15 * (e['RANK'] == '0'))"
    where = launch(cluster, training(script, workers=2, clean_pod_policy="None"))
    last = end(cluster, *where)
    assert status_of(last).phase == "Succeeded"
    assert list(cluster.logs(*where)) == ["0 3 1 3 auto 0 True True"]
    assert list(cluster.logs(*where, replica="worker-1", follow=True)) == [
        "2 3 1 3 auto 2 True True"
    ]


def test_a_job_is_created_then_runs_then_has_succeeded(cluster: Cluster) -> None:
    # An operator that looks later than that never sees the job run.
    seconds = 0.5 if is_quick(cluster) else 5
    where = launch(cluster, training(f"import time; time.sleep({seconds})"))
    phases = [update.state.phase for update in cluster.watch(*where, timeout=WAIT)]
    assert list(dict.fromkeys(phases)) == ["Created", "Running", "Succeeded"]
    status = cluster.get(*where).manifest["status"]
    assert [
        (condition["type"], condition["status"], condition["reason"])
        for condition in status["conditions"]
    ] == [
        ("Created", "True", "PyTorchJobCreated"),
        ("Running", "False", "PyTorchJobRunning"),
        ("Succeeded", "True", "PyTorchJobSucceeded"),
    ]
    assert status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert status["startTime"] <= status["completionTime"]


def test_a_rank_that_fails_for_good_fails_the_job(cluster: Cluster) -> None:
    manifest = training(
        "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(3); time.sleep(60)", workers=1
    )
    where = launch(cluster, manifest)
    state = status_of(end(cluster, *where))
    assert (state.phase, state.reason) == ("Failed", "PyTorchJobFailed")
    assert state.message == f"PyTorchJob {where[1]} is failed because 1 Worker replica(s) failed."


def test_the_failure_shows_the_last_lines_of_the_log(cluster: Cluster) -> None:
    where = launch(cluster, training("print('step 1'); raise ValueError('no such optimizer')"))
    end(cluster, *where)
    assert "ValueError: no such optimizer" in str(cluster.failure(*where))


def test_a_deadline_ends_a_job_that_does_nothing_any_more(cluster: Cluster) -> None:
    where = launch(cluster, training("import time; time.sleep(200)", active_deadline_seconds=1))
    started = time.monotonic()
    state = status_of(end(cluster, *where))
    assert time.monotonic() - started < 60
    assert state.phase == "Failed"
    assert (
        state.message
        == f"Job {where[1]} has failed because it was active longer than specified deadline"
    )


def test_exit_codes_of_128_and_more_are_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    if is_quick(cluster):
        script = f"""
import os, sys
try:
    os.mkdir({str(tmp_path / "tried")!r})
except FileExistsError:
    sys.exit(0)
sys.exit(137)
"""
    else:  # the clock is all that a new pod shares with the one before
        script = f"import sys, time; sys.exit(137 if time.time() < {time.time() + 15} else 0)"
    where = launch(cluster, training(script, restart_policy="ExitCode", backoff_limit=100))
    seen = [update.state for update in cluster.watch(*where, timeout=WAIT)]
    assert seen[-1].phase == "Succeeded"
    if is_quick(cluster):  # the phase Restarting may be over before somebody looks
        assert (tmp_path / "tried").is_dir()
    else:
        assert "Restarting" in [status.phase for status in seen]


def test_exit_codes_below_128_are_final(cluster: Cluster) -> None:
    where = launch(cluster, training("import sys; sys.exit(2)", restart_policy="ExitCode"))
    state = status_of(end(cluster, *where))
    assert (state.phase, state.message) == (
        "Failed",
        f'job "{where[1]}" is failing because "Master" replica(s) failed.',
    )


def test_a_batch_job_completes_as_kubernetes_says_it(cluster: Cluster) -> None:
    where = launch(cluster, job("echo hello; echo $((6 * 7))"))
    last = end(cluster, *where)
    assert status_of(last).phase == "Succeeded"
    assert last["status"]["succeeded"] == 1
    assert list(cluster.logs(*where)) == ["hello", "42"]


def test_a_batch_job_fails_after_its_last_try(cluster: Cluster) -> None:
    where = launch(cluster, job("exit 1", backoffLimit=1))
    last = end(cluster, *where)
    assert status_of(last)[:2] == ("Failed", "BackoffLimitExceeded")
    assert last["status"]["failed"] == 2


def test_a_log_is_followed_to_its_end(cluster: Cluster) -> None:
    where = launch(
        cluster, training("import time\nfor i in range(5): print('line', i); time.sleep(0.1)")
    )
    assert list(cluster.logs(*where, follow=True)) == [f"line {i}" for i in range(5)]


def test_objects_are_found_by_label(cluster: Cluster) -> None:
    one, other = (
        launch(cluster, training("pass", labels={"podium.dev/test": RUN, "n": n})) for n in "12"
    )
    assert [
        found.name for found in cluster.list("PyTorchJob", {"podium.dev/test": RUN, "n": "1"})
    ] == [one[1]]
    names = [found.name for found in cluster.list("PyTorchJob", {"podium.dev/test": RUN})]
    assert {one[1], other[1]} <= set(names)


def test_a_name_can_be_taken_once(cluster: Cluster) -> None:
    manifest = training("import time; time.sleep(5)")
    cluster.create(typed(manifest))
    with pytest.raises(Conflict):
        cluster.create(typed(manifest))


def test_a_deleted_job_is_gone_and_its_name_free_again(cluster: Cluster) -> None:
    manifest = training("import time; time.sleep(120)")
    where = launch(cluster, manifest)
    next(
        update for update in cluster.watch(*where, timeout=WAIT) if update.state.phase == "Running"
    )
    cluster.delete(*where)
    with pytest.raises(NotFound):
        cluster.get(*where)
    cluster.delete(*where)
    assert cluster.create(typed(manifest)).name == where[1]


def test_a_watch_ends_when_the_object_is_deleted(cluster: Cluster) -> None:
    where = launch(cluster, training("import time; time.sleep(120)"))
    phases = []
    for update in cluster.watch(*where, timeout=WAIT):
        phases.append(update.state.phase)
        if phases[-1] == "Running":
            cluster.abandon(*where)
    assert phases[0] == "Created"
    assert "Succeeded" not in phases


def test_a_watch_gives_up_after_its_timeout(cluster: Cluster) -> None:
    where = launch(cluster, training("import time; time.sleep(120)"))
    with pytest.raises(Failed, match=where[1]):
        list(cluster.watch(*where, timeout=0.5))


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def phases(cluster: Cluster, where: tuple[str, str]) -> list[str]:
    return [replica.phase for replica in cluster.replicas(*where)]


def test_the_replicas_of_a_running_job_are_named_and_dated(cluster: Cluster) -> None:
    where = launch(cluster, training("import time; time.sleep(120)", workers=1))
    wait_for(lambda: phases(cluster, where) == ["Running", "Running"])
    replicas = cluster.replicas(*where)
    assert [replica.name for replica in replicas] == ["master-0", "worker-0"]
    assert [(replica.restarts, replica.exit_code) for replica in replicas] == [(0, None), (0, None)]
    assert all(replica.started >= cluster.get(*where).created for replica in replicas)
    assert all(
        bool(replica.node) == (replica.pid is None) == cluster.traits.outlives_client
        for replica in replicas
    )


def test_a_replica_that_ended_has_its_exit_code(cluster: Cluster) -> None:
    where = launch(cluster, job("exit 3"))
    end(cluster, *where)
    wait_for(lambda: phases(cluster, where) == ["Failed"])
    (replica,) = cluster.replicas(*where)
    assert (replica.name, replica.exit_code, replica.pid) == ("pod-0", 3, None)
    assert not any(list(cluster.logs(*where, replica="pod-0")))


@pytest.mark.parametrize(
    "write", [job, lambda _: training("import time; time.sleep(120)", workers=1)]
)
def test_a_stopped_job_stays_without_processes(
    cluster: Cluster, write: Callable[[str], Manifest]
) -> None:
    where = launch(cluster, write("sleep 120"))
    wait_for(lambda: "Running" in phases(cluster, where))
    cluster.stop(*where)
    wait_for(lambda: not {"Running", "Pending"} & set(phases(cluster, where)))
    wait_for(
        lambda: (
            cluster.get(*where).state.phase
            == ("Suspended" if cluster.traits.outlives_client else "Failed")
        )
    )


def test_a_stopped_job_goes_on_or_says_that_it_cannot(cluster: Cluster) -> None:
    where = launch(cluster, job("sleep 120"))
    wait_for(lambda: phases(cluster, where) == ["Running"])
    cluster.stop(*where)
    wait_for(lambda: "Running" not in phases(cluster, where))
    if cluster.traits.outlives_client:
        cluster.resume(*where)
        wait_for(lambda: phases(cluster, where) == ["Running"])
    else:
        with pytest.raises(InvalidInput, match="run its YAML again"):
            cluster.resume(*where)


def test_what_has_ended_cannot_be_stopped_or_resumed(cluster: Cluster) -> None:
    where = launch(cluster, job("true"))
    end(cluster, *where)
    for ask in (cluster.stop, cluster.resume):
        with pytest.raises(InvalidInput, match=where[1]):
            ask(*where)


def test_a_note_is_kept_until_it_is_emptied(cluster: Cluster) -> None:
    where = launch(cluster, job("true"))
    cluster.write_note(*where, "warmup was\ntoo short ")
    assert cluster.note(cluster.get(*where)) == "warmup was\ntoo short"
    cluster.write_note(*where, "")
    assert cluster.note(cluster.get(*where)) == ""
    with pytest.raises(NotFound):
        cluster.write_note("Job", "no-such-job", "text")


def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    verbs = (cluster.get, cluster.replicas, cluster.stop, cluster.resume)
    for ask in (*verbs, lambda *it: list(cluster.watch(*it)), lambda *it: list(cluster.logs(*it))):
        with pytest.raises(NotFound):
            ask("PyTorchJob", "no-such-job")
    where = launch(cluster, training("pass"))
    with pytest.raises(NotFound):
        list(cluster.logs(*where, replica="worker-7"))


@pytest.mark.parametrize("broken", ["name", "container", "master", "command type"])
def test_a_broken_rule_is_refused_and_nothing_starts(cluster: Cluster, broken: str) -> None:
    manifest = training("pass", workers=1)
    master = manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    if broken == "name":
        manifest["metadata"]["name"] = "Not_A_Name"
    elif broken == "container":
        master["template"]["spec"]["containers"][0]["name"] = "main"
    elif broken == "master":
        master["replicas"] = 2
    else:
        master["template"]["spec"]["containers"][0]["args"] = [1]
    with pytest.raises(InvalidInput):
        cluster.create(typed(manifest))
    assert manifest["metadata"]["name"] not in [job.name for job in cluster.list("PyTorchJob")]


def test_nodes_have_the_trainers_environment_and_a_log_each(with_trainer: Cluster) -> None:
    script = (
        "import os; e = os.environ\n"
        "print(e['PET_NNODES'], e['PET_NPROC_PER_NODE'], e['PET_NODE_RANK'], e['JOB_COMPLETION_INDEX'],"
        " bool(e['PET_MASTER_ADDR']), int(e['PET_MASTER_PORT']) > 1024, 'RANK' in e, 'WORLD_SIZE' in e)"
    )
    where = launch(with_trainer, nodes(script, 2))
    last = end(with_trainer, *where)
    assert status_of(last)[:2] == ("Succeeded", "AllJobsCompleted")
    assert list(with_trainer.logs(*where)) == ["2 1 0 0 True True False False"]
    assert list(with_trainer.logs(*where, replica="node-1", follow=True)) == [
        "2 1 1 1 True True False False"
    ]


def test_a_trainjob_runs_then_has_succeeded(with_trainer: Cluster) -> None:
    seconds = 0.5 if is_quick(with_trainer) else 5
    where = launch(with_trainer, nodes(f"import time; time.sleep({seconds})"))
    phases = [update.state.phase for update in with_trainer.watch(*where, timeout=WAIT)]
    assert [phase for phase in dict.fromkeys(phases) if phase != "Created"] == [
        "Running",
        "Succeeded",
    ]


def test_a_deadline_ends_a_trainjob(with_trainer: Cluster) -> None:
    where = launch(with_trainer, nodes("import time; time.sleep(200)", activeDeadlineSeconds=1))
    state = status_of(end(with_trainer, *where))
    assert state == ("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline")


def test_the_nodes_of_a_trainjob_are_named_and_dated(with_trainer: Cluster) -> None:
    where = launch(with_trainer, nodes("import time; time.sleep(120)", 2))
    wait_for(lambda: phases(with_trainer, where) == ["Running", "Running"])
    replicas = with_trainer.replicas(*where)
    assert [replica.name for replica in replicas] == ["node-0", "node-1"]
    assert all(replica.started >= with_trainer.get(*where).created for replica in replicas)


def test_a_stopped_trainjob_stays_and_goes_on(with_trainer: Cluster) -> None:
    where = launch(with_trainer, nodes("import time; time.sleep(120)", 2))
    wait_for(lambda: "Running" in phases(with_trainer, where))
    with_trainer.stop(*where)
    wait_for(lambda: not {"Running", "Pending"} & set(phases(with_trainer, where)))
    ended = "Suspended" if with_trainer.traits.outlives_client else "Failed"
    wait_for(lambda: with_trainer.get(*where).state.phase == ended)
    if with_trainer.traits.outlives_client:
        with_trainer.resume(*where)
        wait_for(lambda: phases(with_trainer, where) == ["Running", "Running"])
    else:
        with pytest.raises(InvalidInput, match="run its YAML again"):
            with_trainer.resume(*where)


def test_a_deleted_trainjob_is_gone_with_its_pods(with_trainer: Cluster) -> None:
    manifest = nodes("import time; time.sleep(120)", 2)
    where = launch(with_trainer, manifest)
    wait_for(lambda: "Running" in phases(with_trainer, where))
    with_trainer.delete(*where)
    with pytest.raises(NotFound):
        with_trainer.get(*where)
    assert with_trainer.create(typed(manifest)).name == where[1]


def test_variables_of_trainer_are_refused_in_a_trainjob(with_trainer: Cluster) -> None:
    manifest = nodes("pass")
    manifest["spec"]["trainer"]["env"] = [{"name": "PET_NNODES", "value": "2"}]
    with pytest.raises(InvalidInput, match="PET_NNODES"):
        with_trainer.create(typed(manifest))
