"""Sweeps on a namespace that serves no Experiments: this process runs the loop, and the jobs are the namespace's."""

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer
from engine_place import LEASE_SECONDS, namespace
from test_engine import PROGRAM, experiment, until

import podium
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.local.store import _Supervision
from podium.errors import Conflict, Denied, InvalidInput
from podium.manifests.experiment import Experiment
from podium.manifests.labels import RUN, RUN_NAMESPACE
from podium.manifests.options import annotation
from podium.manifests.typed import typed
from podium.steps.sweep import _announce
from podium.storage import connect as open_storage
from podium.sweeps import connect
from podium.sweeps.file_documents import StateCopy
from podium.sweeps.namespace import NamespaceSweeps

pytestmark = pytest.mark.whole


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PROGRAM", str(tmp_path / "program.py"))
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    with namespace(tmp_path, monkeypatch) as running:
        running.world.plurals -= {"experiments", "trials"}
        yield running


@pytest.fixture
def sweeps(server: ApiServer) -> Iterator[Callable[..., NamespaceSweeps]]:
    opened: list[NamespaceSweeps] = []

    def one(state: str = "") -> NamespaceSweeps:
        opened.append(NamespaceSweeps("kubernetes://team", state, LEASE_SECONDS))
        return opened[-1]

    yield one
    for cluster in opened:
        cluster.close()


def end_of(cluster: KubernetesCluster, name: str = "sweep") -> dict[str, Any]:
    for _ in cluster.watch("Experiment", name, timeout=60):
        pass
    cluster.join("Experiment", name)
    return dict(cluster.experiment(name).status)


def check_whole(cluster: KubernetesCluster, server: ApiServer, trials: int) -> None:
    """Each trial ran once, has its metric, and its job is gone."""
    ended = cluster.trials("sweep")
    assert [(trial.phase, trial.value) for trial in ended] == [
        ("Succeeded", float(trial.assignments["lr"])) for trial in ended
    ]
    created = [event for event in server.world.history if (event[1], event[2]) == ("ADDED", "jobs")]
    assert len(ended) == len(created) == trials
    until(lambda: not cluster.list("Job"))
    assert ("leases", "podium-sweep-sweep") not in server.world.objects


def lead(server: ApiServer) -> None:
    """Let an engine of the namespace have renewed its Lease just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "engine-a", "leaseDurationSeconds": 15, "renewTime": now}
    server.world.put("leases", {"metadata": {"name": "podium-engine"}, "spec": spec})


def test_a_sweep_that_no_engine_would_run_runs_here(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], caplog: pytest.LogCaptureFixture
) -> None:
    server.world.plurals |= {"experiments", "trials"}
    cluster = sweeps()
    cluster.create(typed(experiment(trials=2)))
    assert "nobody runs Experiments in namespace team" in caplog.text
    assert end_of(cluster)["trialsSucceeded"] == 2
    assert not [key for key in server.world.objects if key[0] == "experiments"]


def test_an_engine_asked_for_by_name_must_be_there(server: ApiServer) -> None:
    server.world.plurals |= {"experiments", "trials"}
    with pytest.raises(InvalidInput, match="nobody runs Experiments in namespace team") as caught:
        NamespaceSweeps("kubernetes://team?engine=cluster").create(typed(experiment()))
    assert "deploy/engine" in str(caught.value.hint)
    assert not [key for key in server.world.objects if key[0] == "experiments"]


def test_what_the_cluster_has_is_seen_while_no_engine_leads(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    server.world.plurals |= {"experiments", "trials"}
    server.world.put("experiments", {**experiment("applied"), "status": {"conditions": []}})
    cluster = sweeps()
    assert [found.name for found in cluster.experiments()] == ["applied"]
    with pytest.raises(Conflict):
        cluster.create(typed(experiment("applied")))
    cluster.delete("Experiment", "applied")
    assert not cluster.experiments()


def test_a_namespace_without_experiments_runs_a_sweep(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster = sweeps()
    cluster.create(typed(experiment(trials=4)))
    status = end_of(cluster)
    assert status["conditions"][-1]["reason"] == "ExperimentMaxTrialsReached"
    best = min(cluster.trials("sweep"), key=lambda trial: trial.value or 0)
    assert status["currentOptimalTrial"]["bestTrialName"] == best.name
    check_whole(cluster, server, 4)
    with connect("kubernetes://team") as later:
        assert [experiment.name for experiment in later.experiments()] == ["sweep"]
        later.delete("Experiment", "sweep")
        assert later.experiments() == []
        assert later.list("Trial") == []


def test_a_trials_log_is_that_of_its_own_pod(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster, asked = sweeps(), experiment(trials=1, parallel=1)
    asked["spec"]["trialTemplate"]["retain"] = True
    cluster.create(typed(asked))
    end_of(cluster)
    (trial,) = cluster.trials("sweep")
    assert list(cluster.logs("Trial", trial.name)) == [
        "loss=0.5",
        f"loss={trial.assignments['lr']}",
    ]


def test_a_failed_trial_here_says_why(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster, asked = sweeps(), experiment(trials=1, parallel=1, wait="quick")
    asked["spec"]["trialTemplate"]["retain"] = True
    cluster.create(typed(asked))
    assert end_of(cluster)["conditions"][-1]["type"] == "Failed"
    (trial,) = cluster.trials("sweep")
    why = "ValueError: could not convert string to float: 'quick'"
    assert list(cluster.logs("Trial", trial.name, follow=True))[-1] == why
    assert why in str(cluster.failure("Trial", trial.name))
    assert why not in str(cluster.failure("Experiment", "sweep"))


def test_a_budget_is_kept_where_the_loop_runs_here(server: ApiServer) -> None:
    sweep = podium.sweep(experiment(trials=3), cluster="kubernetes://team", max_time="1h")
    assert sweep.experiment.state.reason == "ExperimentMaxTrialsReached"
    with pytest.raises(InvalidInput, match="only podium's own engine keeps within a budget"):
        podium.sweep(
            experiment(trials=3), cluster="kubernetes://team?engine=cluster", max_time="1h"
        )


def test_a_step_says_what_an_engine_elsewhere_may_not_keep(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made = experiment(trials=2)
    made["metadata"]["annotations"] = annotation({"max_time": "1h"})
    _announce(NamespaceSweeps("kubernetes://team"), Experiment.parse(made))
    assert "only podium" not in capsys.readouterr().out
    server.world.plurals |= {"experiments", "trials"}
    lead(server)
    _announce(NamespaceSweeps("kubernetes://team"), Experiment.parse(made))
    assert (
        "only podium's own engine keeps within a budget (max_time: 1h)" in capsys.readouterr().out
    )


def test_who_runs_experiments_follows_from_the_url_or_the_server(server: ApiServer) -> None:
    assert NamespaceSweeps("kubernetes://team").loops
    assert not NamespaceSweeps("kubernetes://team?engine=cluster").loops
    server.world.plurals |= {"experiments", "trials"}
    assert NamespaceSweeps("kubernetes://team").loops, (
        "nobody leads: that the kinds are known means nothing"
    )
    lead(server)
    assert not NamespaceSweeps("kubernetes://team").loops
    assert NamespaceSweeps("kubernetes://team?engine=here").loops
    with pytest.raises(
        InvalidInput, match="engine must be auto, cluster or here, but got 'her'"
    ) as caught:
        connect("kubernetes://team?engine=her")
    assert "here" in str(caught.value.hint)


def test_a_retry_on_another_machine_adopts_the_trials(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    state = f"file://{tmp_path / 'state'}"
    first = sweeps(state)
    first.create(typed(experiment(trials=4, parallel=2, wait=1.5)))
    until(lambda: len(first.list("Job")) == 2)
    first.api.coordination.read_namespaced_lease = lost  # as a pod whose node is gone
    first.api.custom.patch_namespaced_custom_object = lost
    first.api.custom.create_namespaced_custom_object = lost
    second = sweeps(state)
    with pytest.raises(Conflict):
        second.create(typed(experiment(trials=4, parallel=2, wait=1.5)))
    lost_state = second.experiment("sweep").state
    assert lost_state.reason == "ExperimentSupervisorLost"
    assert lost_state.message.endswith("podium experiment resume sweep --cluster kubernetes://team")
    second.resume("Experiment", "sweep")
    end_of(second)
    check_whole(second, server, 4)
    keys = {entry.key for entry in open_storage(state).list()}
    assert len([key for key in keys if key.endswith("readings.json")]) == 4
    second.delete("Experiment", "sweep")
    assert not list(open_storage(state).list())


def lost(*_: Any, **__: Any) -> None:
    from urllib3.exceptions import ProtocolError

    raise ProtocolError("connection reset")


SCRIPT = """
import sys, yaml
from podium.manifests.typed import typed
from podium.sweeps.namespace import NamespaceSweeps

cluster = NamespaceSweeps("kubernetes://team", lease_seconds=3.0)
cluster.create(typed(yaml.safe_load(sys.stdin)))
print("begun", flush=True)
for _ in cluster.watch("Experiment", "sweep"):
    pass
"""


def test_a_killed_process_is_followed_by_resume(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    import yaml

    text = yaml.safe_dump(experiment(trials=4, parallel=2, wait=1.5))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, env=os.environ, text=True
    )
    assert process.stdin
    process.stdin.write(text)
    process.stdin.close()
    cluster = sweeps()
    until(lambda: len(cluster.list("Job")) == 2, 60)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert cluster.experiment("sweep").state.reason == "ExperimentSupervisorLost"
    assert {trial.phase for trial in cluster.trials("sweep")} == {"Running"}
    cluster.resume("Experiment", "sweep")
    end_of(cluster)
    check_whole(cluster, server, 4)


def test_of_two_processes_one_runs_an_experiment(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    first, second = sweeps(f"file://{tmp_path / 'a'}"), sweeps(f"file://{tmp_path / 'b'}")
    first.create(typed(experiment(trials=2, wait=LEASE_SECONDS + 8.0)))
    with pytest.raises(Conflict, match="another process runs Experiment sweep"):
        second.create(typed(experiment(trials=2)))
    assert not second.experiments()
    first.stop("Experiment", "sweep")
    assert end_of(first)["conditions"][-1]["type"] == "Stopped"
    assert not first.list("Job")


def test_a_stopped_sweep_goes_on_later(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster = sweeps()
    cluster.create(typed(experiment(trials=3, parallel=1, wait=1.0)))
    until(lambda: any(trial.phase == "Succeeded" for trial in cluster.trials("sweep")))
    cluster.stop("Experiment", "sweep")
    cluster.join("Experiment", "sweep")
    until(lambda: not cluster.list("Job"))
    cluster.resume("Experiment", "sweep")
    assert end_of(cluster)["trialsSucceeded"] == 3


@pytest.mark.parametrize(
    ("owner", "method"),
    [(StateCopy, "read"), (_Supervision, "claim"), (NamespaceSweeps, "supervise")],
)
def test_a_resume_that_fails_leaves_no_lease(
    server: ApiServer,
    sweeps: Callable[..., NamespaceSweeps],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
) -> None:
    cluster = sweeps(f"file://{tmp_path / 'state'}")
    cluster.create(typed(experiment(trials=2, parallel=1, wait=20.0)))
    until(lambda: cluster.list("Job"))
    cluster.stop("Experiment", "sweep")
    cluster.join("Experiment", "sweep")
    assert cluster.loops is not None

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(type(cluster.loops) if owner is NamespaceSweeps else owner, method, fails)
        with pytest.raises(OSError, match="No space left"):
            cluster.resume("Experiment", "sweep")
    lease = server.world.objects.get(("leases", "podium-sweep-sweep"))
    assert not (lease and lease["spec"].get("holderIdentity"))


def test_a_running_sweep_keeps_its_lease_whoever_asks(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster, other = sweeps(), sweeps()
    cluster.create(typed(experiment(trials=1, parallel=1, wait=20.0)))
    until(lambda: cluster.list("Job"))
    with pytest.raises(Conflict, match="Experiment sweep runs in another process"):
        cluster.resume("Experiment", "sweep")
    for again in (cluster, other):
        with pytest.raises(Conflict, match="Experiment sweep exists"):
            again.create(typed(experiment(trials=1, parallel=1)))
    with pytest.raises(Conflict):
        other.resume("Experiment", "sweep")
    leases = [lease for _, _, plural, lease in server.world.history if plural == "leases"]
    assert len({lease["spec"].get("holderIdentity") for lease in leases}) == 1
    cluster.stop("Experiment", "sweep")
    assert end_of(cluster)["conditions"][-1]["type"] == "Stopped"


def test_a_process_that_ends_in_peace_stops_its_trials(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster, later = sweeps(), sweeps()
    cluster.create(typed(experiment(trials=2, wait=20.0)))
    until(lambda: len(later.list("Job")) == 2)
    cluster.close()
    assert later.experiment("sweep").state.phase == "Stopped"
    assert {trial.state.reason for trial in later.trials("sweep")} == {"TrialSupervisorLost"}
    until(lambda: not later.list("Job"))
    assert ("leases", "podium-sweep-sweep") not in server.world.objects


def test_the_api_server_may_be_away(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster = sweeps()
    cluster.create(typed(experiment(trials=4, parallel=2, wait=1.0)))
    until(lambda: len(cluster.list("Job")) == 2)
    server.stop()
    time.sleep(LEASE_SECONDS + 1)
    server.start()
    end_of(cluster)
    check_whole(cluster, server, 4)


def test_the_storage_may_be_away(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    # The disk is a link, so that it goes and comes back in one step: a directory that is only
    # moved away is made again by the next write.
    disk = tmp_path / "disk"
    (tmp_path / "real").mkdir()
    disk.symlink_to(tmp_path / "real")
    cluster = sweeps(f"file://{disk}/state")
    cluster.create(typed(experiment(trials=4, parallel=2, wait=0.5)))
    until(lambda: len(cluster.list("Job")) == 2)
    (tmp_path / "nothing").write_text("no directory")
    (tmp_path / "nothing").replace(disk)
    time.sleep(2)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "link").replace(disk)
    end_of(cluster)
    check_whole(cluster, server, 4)


def test_without_rights_to_leases_nothing_begins(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    server.world.forbidden.add("leases")
    cluster = sweeps()
    with pytest.raises(Denied, match="leases is forbidden") as caught:
        cluster.create(typed(experiment()))
    assert "the account needs create, get, update and delete of leases" in str(caught.value.hint)
    assert not cluster.experiments()
    assert not cluster.list("Job")


def test_jobs_of_a_step_are_known_to_the_reaper(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster = sweeps()
    manifest = experiment(trials=1, parallel=1, wait=2.0)
    manifest["metadata"] |= {
        "labels": {RUN: "run-1"},
        "annotations": {RUN_NAMESPACE: "team"},
        "ownerReferences": [
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u"}
        ],
    }
    cluster.create(typed(manifest))
    (job,) = until(lambda: cluster.list("Job"))
    assert (job.labels[RUN], job.annotations[RUN_NAMESPACE]) == ("run-1", "team")
    assert [owner["kind"] for owner in job.owners] == ["Workflow"]
    end_of(cluster)


def pooled(pods: int, **how: Any) -> dict[str, Any]:
    made = experiment(parallel=pods, **how)
    made["metadata"]["annotations"] = annotation({"pool": pods})
    return made


def test_a_pool_runs_the_trials_of_a_step(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    cluster = sweeps(f"file://{tmp_path}/state")
    cluster.create(typed(pooled(2, trials=12)))
    assert end_of(cluster)["trialsSucceeded"] == 12
    trials = cluster.trials("sweep")
    assert [trial.value for trial in trials] == [float(trial.assignments["lr"]) for trial in trials]
    assert list(cluster.logs("Trial", trials[0].name))[-1] == f"loss={trials[0].assignments['lr']}"
    created = [
        seen[3]["metadata"]["name"]
        for seen in server.world.history
        if (seen[1], seen[2]) == ("ADDED", "jobs")
    ]
    assert created == ["sweep-pool"]
    until(lambda: not cluster.list("Job"))


def test_a_stopped_sweep_goes_on_with_new_workers(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps], tmp_path: Path
) -> None:
    cluster = sweeps(f"file://{tmp_path}/state")
    cluster.create(typed(pooled(2, trials=6, wait=0.5)))
    until(lambda: cluster.experiment("sweep").status.get("trialsSucceeded", 0) >= 1)
    cluster.stop("Experiment", "sweep")
    cluster.join("Experiment", "sweep")
    until(lambda: not cluster.list("Job"))
    cluster.resume("Experiment", "sweep")
    assert end_of(cluster)["trialsSucceeded"] == 6
    assert len(cluster.trials("sweep")) == 6


def test_a_pool_needs_a_storage_that_pods_can_read(
    server: ApiServer, sweeps: Callable[..., NamespaceSweeps]
) -> None:
    cluster = sweeps()
    with pytest.raises(InvalidInput, match="the pods of a pool cannot read"):
        cluster.create(typed(pooled(2)))
    assert not cluster.list("Job")
    assert not cluster.experiments()


def test_a_detached_sweep_is_run_by_a_job(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, new_bucket: Callable[[str], str]
) -> None:
    monkeypatch.setenv("PODIUM_STORAGE", new_bucket("moto") + "/c++&100%25")
    begun = podium.sweep(experiment(trials=3, wait=1.0), cluster="kubernetes://team", detach=True)
    job = begun.cluster.workload("Job", "sweep-loop")
    assert job.replicas[0].pod.spec["serviceAccountName"] == "podium-steps"
    states = list[str]()

    def has_ended() -> bool:
        states.append(podium.open_sweep("sweep", cluster=begun.cluster.url).status)
        return states[-1] == "Succeeded"

    until(has_ended, 60)
    assert "Running" in states
    assert "Failed" not in states, "it runs elsewhere, from before its pod begins up to its end"
    until(lambda: begun.cluster.workload("Job", "sweep-loop").state.succeeded)
    best = podium.open_sweep("sweep", cluster=begun.cluster.url).best
    assert best.value == float(best.parameters["lr"])


def test_of_two_who_detach_a_sweep_the_first_keeps_it(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, new_bucket: Callable[[str], str]
) -> None:
    monkeypatch.setenv("PODIUM_STORAGE", new_bucket("moto"))
    made = experiment(trials=1, parallel=1)
    begun = podium.sweep(made, cluster="kubernetes://team", detach=True)
    with monkeypatch.context() as at_once:
        at_once.setattr(StateCopy, "read", lambda *_: None)  # each looked before the other wrote
        with pytest.raises(Conflict, match="Experiment sweep exists in s3://"):
            podium.sweep(made, cluster="kubernetes://team", detach=True)
    url = begun.cluster.url
    until(lambda: podium.open_sweep("sweep", cluster=url).status == "Succeeded", 60)


def test_who_stays_at_a_detached_sweep_sees_it_go_on(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, new_bucket: Callable[[str], str]
) -> None:
    monkeypatch.setenv("PODIUM_STORAGE", new_bucket("moto"))
    begun = podium.sweep(experiment(trials=3, wait=3.0), cluster="kubernetes://team", detach=True)
    stays = podium.open_sweep("sweep", cluster=begun.cluster.url)
    seen: list[tuple[str, int]] = []

    def has_ended() -> bool:
        seen.append((stays.status, len(stays.results)))
        return stays.status == "Succeeded"

    until(has_ended, 90)
    assert {("Running", 1), ("Running", 2)} & set(seen), "trials show while the sweep runs"
    stays.close()


def test_a_detached_sweep_is_stopped_with_its_job(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, new_bucket: Callable[[str], str]
) -> None:
    monkeypatch.setenv("PODIUM_STORAGE", new_bucket("moto"))
    begun = podium.sweep(experiment(trials=3, wait=30.0), cluster="kubernetes://team", detach=True)
    url = begun.cluster.url
    until(lambda: podium.open_sweep("sweep", cluster=url).status == "Running", 60)
    with pytest.raises(InvalidInput, match="which accepts no trials by hand"):
        podium.open_sweep("sweep", cluster=url).add_trial({"lr": 0.1})
    podium.open_sweep("sweep", cluster=url).stop()
    until(lambda: podium.open_sweep("sweep", cluster=url).status == "Stopped", 60)


def test_a_sweep_that_is_only_looked_at_leaves_no_files(
    server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    new_bucket: Callable[[str], str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PODIUM_STORAGE", new_bucket("moto"))
    begun = podium.sweep(experiment(trials=2, wait=0.1), cluster="kubernetes://team", detach=True)
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    looked = podium.open_sweep("sweep", cluster=begun.cluster.url)
    assert looked.name == "sweep"
    assert list(scratch.iterdir())
    del looked
    gc.collect()
    assert not list(scratch.iterdir())
    until(lambda: podium.open_sweep("sweep", cluster=begun.cluster.url).status == "Succeeded", 60)


def test_a_sweep_cannot_be_detached_from_this_machine(server: ApiServer, tmp_path: Path) -> None:
    for cluster, problem in (
        (tmp_path / "cluster", "a sweep on this machine ends with its command"),
        ("kubernetes://team", "cannot keep its trials in"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            podium.sweep(experiment(), cluster=cluster, detach=True)
    assert not [key for key in server.world.objects if key[0] == "jobs"]
