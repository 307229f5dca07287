"""PyTorchJobs as processes: restarts, limits, policies and ends as the operator has them. Every process is real."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.errors import InvalidInput
from podium.manifests.conditions import Manifest, State, status_of
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

COUNT = "import os, sys, time; n = len(os.listdir('.')); open(f'run-{n}', 'w'); rank = os.environ['RANK']\n"
"""Numbers its own starts: the working directory of a replica lives as long as the job."""


def manifest(script: str, **changes: Any) -> Manifest:
    given = {"name": "job", "image": "any", "command": ("python", "-S", "-c", script)}
    return write_pytorchjob(**(given | changes))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def run(cluster: LocalSweeps, job: Manifest) -> State:
    cluster.create(typed(job))
    return end(cluster)


def end(cluster: LocalSweeps) -> State:
    *_, last = (stored.manifest for stored in cluster.watch("PyTorchJob", "job", timeout=60))
    return status_of(last)


def log(cluster: LocalSweeps, replica: str = "master-0") -> list[str]:
    return list(cluster.logs("PyTorchJob", "job", replica, follow=True))


def pods(cluster: LocalSweeps) -> dict[str, Any]:
    """Read pods.json, by replica."""
    try:
        found = json.loads((cluster.store.path("PyTorchJob", "job") / "pods.json").read_text())
    except FileNotFoundError:
        return {}
    return {replica["replica"]: replica for replica in found}


def until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_on_failure_restarts_in_place_without_a_restarting_condition(cluster: LocalSweeps) -> None:
    cluster.create(typed(manifest(COUNT + "print('start', n); sys.exit(0 if n == 2 else 1)")))
    phases = [update.state.phase for update in cluster.watch("PyTorchJob", "job", timeout=60)]
    assert list(dict.fromkeys(phases)) == ["Created", "Running", "Succeeded"]
    assert log(cluster) == ["start 0", "start 1", "start 2"]
    assert pods(cluster)["master-0"]["restarts"] == 2


def first_worker_hangs(again: Path) -> str:
    """Return a program whose worker hangs until its second start; the master waits for that."""
    script = COUNT + "print(rank, n, flush=True)\n"
    script += f"if rank == '1' and n == 1: open({str(again)!r}, 'w')\n"
    return script + f"while n == 0 and not os.path.exists({str(again)!r}): time.sleep(0.02)"


def test_a_killed_replica_restarts_alone(cluster: LocalSweeps, tmp_path: Path) -> None:
    cluster.create(typed(manifest(first_worker_hangs(tmp_path / "again"), workers=1)))
    until(lambda: list(cluster.logs("PyTorchJob", "job", "worker-0")))
    os.kill(until(lambda: pods(cluster).get("worker-0", {}).get("pid")), signal.SIGKILL)
    assert end(cluster).phase == "Succeeded"
    assert log(cluster, "worker-0") == ["1 0", "1 1"]
    assert log(cluster) == ["0 0"]


def test_a_killed_replica_is_replaced_under_exit_code(cluster: LocalSweeps, tmp_path: Path) -> None:
    cluster.create(
        typed(
            manifest(first_worker_hangs(tmp_path / "again"), workers=1, restart_policy="ExitCode")
        )
    )
    until(lambda: list(cluster.logs("PyTorchJob", "job", "worker-0")))
    os.kill(until(lambda: pods(cluster).get("worker-0", {}).get("pid")), signal.SIGKILL)
    seen = [update.state for update in cluster.watch("PyTorchJob", "job", timeout=60)]
    messages = [status.message for status in seen if status.phase == "Restarting"]
    assert "PyTorchJob job is restarting because 1 Worker replica(s) failed." in messages
    assert seen[-1].phase == "Succeeded"
    assert log(cluster, "worker-0") == ["1 0", "1 1"]


def test_the_backoff_limit_sums_the_restarts_of_all_replicas(cluster: LocalSweeps) -> None:
    state = run(
        cluster, manifest(COUNT + "time.sleep(0.05); sys.exit(1)", workers=1, backoff_limit=2)
    )
    assert state.message == "Job job has failed because it has reached the specified backoff limit"
    assert sum(pod["restarts"] for pod in pods(cluster).values()) == 2


def test_a_backoff_limit_of_zero_allows_no_restart(cluster: LocalSweeps) -> None:
    state = run(
        cluster, manifest("import sys; sys.exit(1)", backoff_limit=0, restart_policy="Never")
    )
    assert state.phase == "Failed"


def test_the_default_limit_allows_three_restarts_of_every_replica(cluster: LocalSweeps) -> None:
    assert run(cluster, manifest(COUNT + "sys.exit(n < 3)", workers=1)).phase == "Succeeded"


def test_always_restarts_even_what_succeeded(cluster: LocalSweeps) -> None:
    state = run(cluster, manifest("pass", restart_policy="Always", backoff_limit=2))
    assert "backoff limit" in state.message


def test_workers_end_by_themselves_after_a_master_that_succeeded(tmp_path: Path) -> None:
    script = "import os, time; time.sleep(int(os.environ['RANK']))"
    with LocalSweeps(tmp_path / "cluster") as cluster:
        assert run(cluster, manifest(script, workers=1, clean_pod_policy="None")).succeeded
    phases = {replica: pod["phase"] for replica, pod in pods(cluster).items()}
    assert phases == {"master-0": "Succeeded", "worker-0": "Succeeded"}


def test_workers_that_do_not_end_are_stopped_with_the_cluster(tmp_path: Path) -> None:
    script = "import os, time; time.sleep(600 * int(os.environ['RANK']))"
    with LocalSweeps(tmp_path / "cluster") as cluster:
        assert run(cluster, manifest(script, workers=1, clean_pod_policy="None")).succeeded
    assert pods(cluster)["worker-0"]["phase"] == "Stopped"


def test_workers_are_stopped_when_the_master_has_succeeded(cluster: LocalSweeps) -> None:
    script = "import os, time; time.sleep(0.5 if os.environ['RANK'] == '0' else 60)"
    assert (
        run(cluster, manifest(script, workers=2, clean_pod_policy="Running")).phase == "Succeeded"
    )
    until(lambda: all(pod["phase"] != "Running" for pod in pods(cluster).values()))
    assert (
        cluster.get("PyTorchJob", "job").manifest["status"]["replicaStatuses"]["Worker"][
            "succeeded"
        ]
        == 2
    )


def test_clean_pod_policy_none_lets_them_run(cluster: LocalSweeps) -> None:
    script = "import os, time; time.sleep(0.3 if os.environ['RANK'] == '0' else 1); print('done')"
    run(cluster, manifest(script, workers=1, clean_pod_policy="None"))
    assert log(cluster, "worker-0") == ["done"]


def test_without_a_master_all_workers_must_succeed(cluster: LocalSweeps) -> None:
    job = manifest("import os; print('RANK' in os.environ, 'WORLD_SIZE' in os.environ)", workers=2)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    assert run(cluster, job).message == "PyTorchJob default/job successfully completed."
    assert log(cluster, "worker-1") == ["False False"]


def test_a_job_is_removed_after_its_time_to_live(cluster: LocalSweeps) -> None:
    assert run(cluster, manifest("pass", ttl_seconds_after_finished=1)).phase == "Succeeded"
    until(lambda: not cluster.store.exists("PyTorchJob", "job"))


def test_a_suspended_job_starts_nothing(cluster: LocalSweeps) -> None:
    job = manifest("open('started', 'w')")
    job["spec"]["runPolicy"]["suspend"] = True
    cluster.create(typed(job))
    until(lambda: cluster.get("PyTorchJob", "job").state.phase == "Suspended")
    assert not (cluster.store.path("PyTorchJob", "job") / "work").exists()


def test_sigterm_comes_before_sigkill_and_the_grace_period_is_kept(cluster: LocalSweeps) -> None:
    body = (
        "import os, signal, time; signal.signal(signal.SIGTERM, {}); print('ready'); time.sleep(60)"
    )
    polite = manifest(
        body.format("lambda *_: (print('saved'), os._exit(0))"), active_deadline_seconds=1
    )
    stubborn = manifest(body.format("signal.SIG_IGN"), name="stubborn", active_deadline_seconds=1)
    for spec in stubborn["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    for job in (polite, stubborn):
        cluster.create(typed(job))
    assert end(cluster).phase == "Failed"
    assert log(cluster) == ["ready", "saved"]
    begun = time.monotonic()
    cluster.delete("PyTorchJob", "stubborn")
    assert time.monotonic() - begun < 5


def test_close_ends_every_process_and_says_why_the_job_failed(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    with LocalSweeps(tmp_path) as cluster:
        cluster.create(typed(manifest(child + "; time.sleep(60)", workers=1)))
        until(
            lambda: all(
                list(cluster.logs("PyTorchJob", "job", replica))
                for replica in ("master-0", "worker-0")
            )
        )
        pids = [
            int(*cluster.logs("PyTorchJob", "job", replica)) for replica in ("master-0", "worker-0")
        ]
        pids += [pod["pid"] for pod in pods(cluster).values()]
    assert len(pids) == 4
    assert not [pid for pid in pids if alive(pid)]
    assert cluster.get("PyTorchJob", "job").state.message == "PyTorchJob job was stopped."


OTHER = """
import sys, time
from pathlib import Path
from podium.sweeps.local import LocalSweeps
from podium.manifests.typed import typed
import json
with LocalSweeps(Path(sys.argv[1])) as cluster:
    cluster.create(typed(json.loads(sys.argv[2])))
    time.sleep(60)
"""


def test_another_process_may_look_follow_and_delete(tmp_path: Path) -> None:
    job = manifest("import time; print('hello', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path), json.dumps(job)]) as other:
        cluster = LocalSweeps(tmp_path)
        until(lambda: cluster.store.exists("PyTorchJob", "job"))
        until(lambda: list(cluster.logs("PyTorchJob", "job")) == ["hello"])
        pid = until(lambda: pods(cluster).get("master-0", {}).get("pid"))
        cluster.delete("PyTorchJob", "job")
        assert not cluster.list("PyTorchJob")
        assert not alive(pid)
        other.kill()


def test_a_job_with_a_killed_owner_fails_without_leftovers(tmp_path: Path) -> None:
    job = manifest("import time; print('hello', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path), json.dumps(job)]) as other:
        cluster = LocalSweeps(tmp_path)
        until(lambda: cluster.store.exists("PyTorchJob", "job"))
        until(lambda: list(cluster.logs("PyTorchJob", "job")) == ["hello"])
        pid = until(lambda: pods(cluster).get("master-0", {}).get("pid"))
        watching = (stored.manifest for stored in cluster.watch("PyTorchJob", "job", timeout=30))
        until(lambda: status_of(next(watching)).phase == "Running")
        other.kill()
    *_, last = watching
    assert status_of(last).reason == "PyTorchJobSupervisorLost"
    until(lambda: not alive(pid))
    cluster.delete("PyTorchJob", "job")
    assert not cluster.list("PyTorchJob")


def test_two_jobs_at_once_have_two_ports(cluster: LocalSweeps) -> None:
    for name in ("one", "two"):
        cluster.create(typed(manifest("import os; print(os.environ['MASTER_PORT'])", name=name)))
    ports = [list(cluster.logs("PyTorchJob", name, follow=True)) for name in ("one", "two")]
    assert ports[0] != ports[1]


def test_fields_without_a_meaning_here_are_named(cluster: LocalSweeps) -> None:
    job = manifest(
        "pass", resources={"cpu": "1"}, service_account="runner", image_pull_policy="Always"
    )
    stored = cluster.create(typed(job))
    named = stored.annotations["podium.dev/ignored-fields"]
    assert named == "containers.imagePullPolicy, containers.resources, serviceAccountName"


def test_what_is_refused_leaves_nothing_behind(cluster: LocalSweeps, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not no-such-program"):
        cluster.create(typed(manifest("pass", command=("no-such-program",))))
    assert not (tmp_path / "cluster").exists()
