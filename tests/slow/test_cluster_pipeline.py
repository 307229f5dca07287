"""The whole pipeline on a live Kubeflow: make test-cluster, or pytest --cluster where images and deploy/ are in place."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kfp_server_api import RunServiceApi
from livekubeflow import (
    NAMESPACE,
    Submit,
    cancel,
    client,
    end_of,
    ended_by_cancel,
    has_katib,
    jobs_of,
    podium,
    training,
    until,
)

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.conditions import status_of
from podium.manifests.labels import RUN as RUN_LABEL, RUN_NAMESPACE
from podium.manifests.typed import typed
from podium.storage import connect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("server"),
]


def test_a_run_ends_with_a_champion_in_the_store(
    cluster: KubernetesCluster, submit: Submit, store: str
) -> None:
    assert "unchanged" in podium("upload", "train_and_promote").stdout
    model = f"test-{uuid.uuid4().hex[:8]}"
    run_id = submit(workers=2, model_name=model)
    assert end_of(run_id) == "SUCCEEDED"
    (job,) = jobs_of(cluster, run_id)
    assert status_of(job).phase == "Succeeded"
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert job["metadata"]["ownerReferences"][0]["kind"] == "Workflow"
    champion = podium("models", "show", model, "champion", "--storage", store, "--json")
    assert run_id in champion.stdout
    assert podium("models", "verify", model, "--storage", store).returncode == 0


def test_data_are_prepared_again_only_if_they_changed(submit: Submit, store: str) -> None:
    folder, model = (
        f"{store.removesuffix('podium')}podium-test/{uuid.uuid4().hex[:8]}",
        f"test-{uuid.uuid4().hex[:8]}",
    )

    def run(rows: int) -> tuple[str, set[str], int]:
        lines = [f"{number % 97},{number % 89},{'ny'[number % 97 > 48]}" for number in range(rows)]
        if rows:
            connect(folder).put("day.csv", "\n".join(["a,b,label", *lines]).encode())
        run_id = submit(dataset=f"table:{folder}/day.csv", target="label", source="", limit=0, workers=0,
                        model_name=model)  # fmt: skip
        assert end_of(run_id) == "SUCCEEDED"
        logs = connect(f"{store}/runs/{run_id}/logs/steps")
        kept = {entry.key: logs.get(entry.key).decode() for entry in logs.list()}
        counts = json.loads(
            podium("models", "show", model, run_id, "--storage", store, "--json").stdout
        )["dataset"]["counts"]
        return kept.get("fingerprint-data.log", ""), set(kept), sum(counts.values())

    first, steps, count = run(1000)
    assert ("prepare-data.log" in steps, count) == (True, 1000)
    assert "since run" not in first
    again, steps, count = run(0)
    assert ("prepare-data.log" in steps, count) == (False, 1000)
    assert "data unchanged since run" in again
    changed, steps, count = run(699)
    assert ("prepare-data.log" in steps, count) == (True, 699)
    assert "data changed: 1,000 items before, since run" in changed


def test_a_cancelled_run_leaves_no_job_and_no_pod(
    cluster: KubernetesCluster, submit: Submit
) -> None:
    run_id = submit(epochs=200, workers=1)
    name = training(cluster, run_id)
    cancel(run_id)
    until(lambda: not jobs_of(cluster, run_id), 30)
    until(lambda: not cluster.api.pods(f"training.kubeflow.org/job-name={name}"), 60)
    assert ended_by_cancel(run_id)


def test_without_katib_the_sweep_step_runs_the_trials_itself(
    cluster: KubernetesCluster, submit: Submit
) -> None:
    if has_katib(cluster):
        pytest.skip("this cluster has Katib")
    assert podium("upload", "tune_and_promote").returncode == 0
    run_id = submit("tune-and-promote")
    assert end_of(run_id) == "SUCCEEDED"
    (left,) = jobs_of(cluster, run_id)
    assert left["metadata"]["name"].startswith("train-")


def test_a_sweep_of_pytorchjobs_ends_in_a_champion(
    cluster: KubernetesCluster, katib: None, submit: Submit, store: str
) -> None:
    model = f"test-{uuid.uuid4().hex[:8]}"
    run_id = submit("tune-and-promote", max_trials=2, parallel_trials=1, trial_workers=1, workers=1, model_name=model,
                    rule="better,trial.loss<=100")  # fmt: skip
    assert end_of(run_id) == "SUCCEEDED"
    champion = json.loads(
        podium("models", "show", model, "champion", "--storage", store, "--json").stdout
    )
    assert 0 < champion["trial"]["metrics"]["loss"] <= 100
    (experiment,) = [stored.manifest for stored in cluster.list("Experiment", {RUN_LABEL: run_id})]
    assert status_of(experiment).phase == "Succeeded"
    trials = [
        stored.manifest
        for stored in cluster.list(
            "Trial", {"katib.kubeflow.org/experiment": experiment["metadata"]["name"]}
        )
    ]
    assert [status_of(trial).phase for trial in trials] == ["Succeeded", "Succeeded"]
    until(
        lambda: (
            not cluster.api.pods(f"katib.kubeflow.org/suggestion={experiment['metadata']['name']}")
        ),
        60,
    )


def test_a_cancelled_sweep_leaves_no_experiment_trial_job_or_pod(
    cluster: KubernetesCluster, katib: None, submit: Submit
) -> None:
    run_id = submit(
        "tune-and-promote", max_trials=4, parallel_trials=2, trial_workers=1, trial_epochs=200
    )
    (experiment,) = until(
        lambda: [stored.manifest for stored in cluster.list("Experiment", {RUN_LABEL: run_id})], 300
    )
    name = experiment["metadata"]["name"]
    until(
        lambda: [job for job in jobs_of(cluster, run_id) if status_of(job).phase == "Running"], 300
    )
    cancel(run_id)

    def left() -> list[str]:
        of_run = {RUN_LABEL: run_id}
        objects = [
            launched
            for kind in ("Experiment", "Trial", "PyTorchJob")
            for launched in [stored.manifest for stored in cluster.list(kind, of_run)]
        ]
        pods = cluster.api.pods(f"katib.kubeflow.org/experiment={name}")
        return [stored["metadata"]["name"] for stored in objects] + [
            pod.metadata.name for pod in pods
        ]

    assert left()
    until(lambda: not left(), 90)
    assert ended_by_cancel(run_id)


def test_a_job_without_a_run_is_reaped_within_a_minute(cluster: KubernetesCluster) -> None:
    from podium.manifests.job_kinds import build_pytorchjob

    name, labels = f"orphan-{uuid.uuid4().hex[:8]}", {RUN_LABEL: "a-run-that-never-was"}
    image = os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0")
    manifest = build_pytorchjob(name=name, image=image, command=("sleep", "600"))
    manifest["metadata"] |= {"labels": labels, "annotations": {RUN_NAMESPACE: NAMESPACE}}
    cluster.create(typed(manifest))
    until(lambda: not cluster.list("PyTorchJob", labels), 60)
    selector = f"reason=Reaped,involvedObject.name={name}"
    events = cluster.api.core.list_namespaced_event
    (event, *_) = until(lambda: events(NAMESPACE, field_selector=selector).items, 30)
    assert event.involved_object.kind == "PyTorchJob"


def test_retention_ends_well_as_its_cronjob_runs_it(cluster: KubernetesCluster, store: str) -> None:
    job = f"podium-test-retention-{uuid.uuid4().hex[:6]}"
    kubectl("apply", "-k", str(Path(__file__).parents[2] / "deploy" / "retention"))
    try:
        kubectl("-n", NAMESPACE, "create", "job", job, "--from=cronjob/podium-retention")
        kubectl("-n", NAMESPACE, "wait", "--for=condition=Complete", f"job/{job}", "--timeout=300s")
        said = kubectl("-n", NAMESPACE, "logs", f"job/{job}", "--all-containers")
        assert " deleted\n" in said or "there is nothing to delete\n" in said
        # Logs of two containers come in either order.
        assert "no findings\n" in said
    finally:
        kubectl(
            "-n",
            NAMESPACE,
            "delete",
            f"job/{job}",
            "cronjob/podium-retention",
            "--ignore-not-found",
        )


def kubectl(*words: str) -> str:
    done = subprocess.run(
        ["kubectl", *words], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("victim", ["worker", "master"])
def test_a_lost_replica_leaves_one_job_with_a_clear_end(
    cluster: KubernetesCluster, victim: str, submit: Submit
) -> None:
    run_id = submit(epochs=4, workers=1)
    name = training(cluster, run_id)
    cluster.api.core.delete_namespaced_pod(f"{name}-{victim}-0", NAMESPACE, grace_period_seconds=0)
    ended = end_of(run_id)
    assert ended == "SUCCEEDED" or "failed at train-distributed" in ended
    assert [job["metadata"]["name"] for job in jobs_of(cluster, run_id)] == [name]


def step_pod(cluster: KubernetesCluster, run_id: str) -> str:
    """Name the pod that runs a step now; there is one at a time."""
    pods = cluster.api.pods(f"pipeline/runid={run_id}")
    (step,) = [
        pod.metadata.name
        for pod in pods
        if pod.status.phase == "Running" and "impl" in pod.metadata.name
    ]
    return str(step)


def test_a_lost_launching_pod_leaves_no_second_job(
    cluster: KubernetesCluster, submit: Submit
) -> None:
    run_id = submit(epochs=4, workers=1)
    name = training(cluster, run_id)
    cluster.api.core.delete_namespaced_pod(step_pod(cluster, run_id), NAMESPACE)
    ended = end_of(run_id)  # success if Argo made the pod anew before it saw that one was gone
    assert ended == "SUCCEEDED" or "failed at train-distributed" in ended
    assert {job["metadata"]["name"] for job in jobs_of(cluster, run_id)} <= {name}
    until(lambda: not [job for job in jobs_of(cluster, run_id) if not status_of(job).finished], 120)


FREEZE = """
import os, signal
for number in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{number}/cmdline", "rb") as file:
        if b"executor_main" in file.read() and int(number) not in (1, os.getpid()):
            os.kill(int(number), signal.SIGSTOP)
print("frozen")
"""


def test_a_lost_steps_job_is_adopted_or_reaped(cluster: KubernetesCluster, submit: Submit) -> None:
    # As with a node that goes away: no handler runs.
    from kubernetes.stream import stream

    run_id = submit(epochs=20, workers=1)
    name = training(cluster, run_id)
    step = step_pod(cluster, run_id)
    execute = cluster.api.core.connect_get_namespaced_pod_exec
    command = ["python3", "-c", FREEZE]
    answer = stream(
        execute,
        step,
        NAMESPACE,
        container="main",
        command=command,
        stdout=True,
        _preload_content=False,
    )
    answer.run_forever(timeout=30)
    assert "frozen" in answer.read_stdout()
    answer.sock.shutdown()  # close() leaves the socket open once the other side has closed
    cluster.api.core.delete_namespaced_pod(step, NAMESPACE, grace_period_seconds=0)
    ended = end_of(run_id)
    # No second job; on a busy node the first one is reaped before this line.
    assert {job["metadata"]["name"] for job in jobs_of(cluster, run_id)} <= {name}
    if ended == "SUCCEEDED":  # Argo made the pod anew before it saw that one was gone
        return
    assert "failed at train-distributed" in ended
    until(lambda: not [job for job in jobs_of(cluster, run_id) if not status_of(job).finished], 60)


DEAF = """if True:
    import os, signal, time
    from podium.cluster import connect
    from podium.steps.process import current_run
    from podium.manifests.job_kinds import build_pytorchjob
    from podium.manifests.workload import Workload
    from podium.training.target import launched
    run = current_run()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    job = build_pytorchjob(name="{job}", image="{image}", command=("sleep", "600"), workers=1)
    job["metadata"] |= dict(labels=dict(run.labels), ownerReferences=[dict(run.owner)])
    with connect("kubernetes://") as there, launched(there, Workload.parse(job)):
        time.sleep(900)
"""
HOG = "import os, time; [os.fork() for _ in range(3)]; end = time.time() + 240\nwhile time.time() < end: pass"


@contextmanager
def starved(cluster: KubernetesCluster) -> Iterator[None]:
    """Keep the node's CPU busy: 32 processes in four pods, which ask for nothing, as Kubeflow's controllers do."""
    image = os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0")
    hog = {"name": "hog", "image": image, "command": ["python3", "-c", HOG]}
    spec = {"containers": [hog], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    names, core = [f"podium-test-hog-{uuid.uuid4().hex[:6]}" for _ in range(4)], cluster.api.core
    try:
        for name in names:
            core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        for name in names:
            until(
                lambda of=name: core.read_namespaced_pod(of, NAMESPACE).status.phase == "Running",
                120,
            )
        yield
    finally:
        for name in names:
            core.delete_namespaced_pod(name, NAMESPACE)


def test_a_killed_steps_job_goes_within_a_minute(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    # The step dies without a call, and the node has no CPU to spare: only the reaper is left.
    name, image = (
        f"test-{uuid.uuid4().hex[:8]}",
        os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0"),
    )
    steps = os.environ.get("PODIUM_TEST_STEPS_IMAGE", "podium-steps:0.1.0")
    upload(tmp_path, name, steps, ["python3", "-c", DEAF.format(job=name, image=image)])
    run_id = json.loads(
        podium("submit", name, "--service-account", "podium-steps", "--json").stdout
    )["run_id"]
    argo = ("argoproj.io", "v1alpha1", NAMESPACE, "workflows")

    def ended() -> bool:
        found = cluster.api.custom.list_namespaced_custom_object(
            *argo, label_selector=f"pipeline/runid={run_id}"
        )
        return all(item["status"]["phase"] in ("Failed", "Error") for item in found["items"])

    assert training(cluster, run_id) == name
    with starved(cluster):
        cancel(run_id)
        until(ended, 200)
        end = time.monotonic()
        until(lambda: not jobs_of(cluster, run_id), 60)
        gone = time.monotonic() - end
        until(lambda: not cluster.api.pods(f"training.kubeflow.org/job-name={name}"), 60)
        seconds = time.monotonic() - end
    print(f"after the workflow's end: no job {gone:.1f} s, no pod {seconds:.1f} s")
    assert seconds <= 60
    (reaper,) = cluster.api.pods("app.kubernetes.io/name=podium-reaper")
    said = cluster.api.core.read_namespaced_pod_log(reaper.metadata.name, NAMESPACE)
    assert f"deleted PyTorchJob {name}" in said


HELLO = """
from kfp import compiler, dsl

@dsl.container_component
def hello():
    return dsl.ContainerSpec(image={image!r}, command={command!r})

@dsl.pipeline(name={name!r})
def pipeline():
    hello()

compiler.Compiler().compile(pipeline, {file!r})
"""


def upload(folder: Path, name: str, image: str, command: list[str]) -> None:
    """Upload a pipeline of one container."""
    compiled = str(folder / f"{name}.yaml")
    script = HELLO.format(image=image, command=command, name=name, file=compiled)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _in_a_file(folder, script)], check=True, timeout=120
    )
    assert podium("upload", compiled).returncode == 0


def test_a_schedule_fires_and_is_paused(tmp_path: Path) -> None:
    upload(
        tmp_path,
        "podium-test-hello",
        os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0"),
        ["echo", "hello"],
    )
    schedule = tmp_path / "often.yaml"
    schedule.write_text(
        "name: podium-test-often\npipeline: podium-test-hello\ncron: '*/20 * * * * *'\n"
    )
    try:
        assert "create" in podium("schedule", "apply", str(schedule)).stdout
        assert "keep" in podium("schedule", "apply", str(schedule)).stdout
        runs_of = RunServiceApi(client().api_client)

        def fired() -> list[str]:
            runs = runs_of.run_service_list_runs(page_size=50, sort_by="created_at desc").runs or []
            return [run.run_id for run in runs if run.display_name.startswith("podium-test-often")]

        until(fired, 120)
        assert podium("schedule", "pause", "podium-test-often").returncode == 0
        time.sleep(5)
        count = len(fired())
        time.sleep(45)
        assert len(fired()) == count
    finally:
        assert podium("schedule", "delete", "podium-test-often").returncode == 0


def test_a_schedules_run_in_flight_ends_only_when_asked(tmp_path: Path) -> None:
    name, file = f"podium-test-{uuid.uuid4().hex[:6]}", tmp_path / "often.yaml"
    upload(
        tmp_path, name, os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0"), ["sleep", "120"]
    )
    text = f"name: {name}\npipeline: {name}\ncron: '*/20 * * * * *'\n"
    file.write_text(text)
    runs_of = RunServiceApi(client().api_client)

    def runs() -> list[Any]:
        listed = runs_of.run_service_list_runs(page_size=50, sort_by="created_at desc").runs or []
        return [version for version in listed if version.display_name.startswith(name)]

    try:
        assert podium("schedule", "apply", str(file)).returncode == 0
        (run, *_) = until(lambda: [run for run in runs() if run.state == "RUNNING"], 120)
        file.write_text(text.replace("*/20 * *", "0 0 3"))
        for words in (["apply", str(file)], ["delete", name]):
            refused = podium("schedule", *words)
            assert refused.returncode != 0
            assert f"schedule {name} has a run in flight, {run.run_id}" in refused.stderr
            assert "--now" in refused.stderr
        assert (
            next(execution for execution in runs() if execution.run_id == run.run_id).state
            == "RUNNING"
        )
        assert podium("schedule", "apply", str(file), "--now").returncode == 0
        until(
            lambda: (
                next(execution for execution in runs() if execution.run_id == run.run_id).state
                != "RUNNING"
            ),
            60,
        )
        assert "0 0 3 * * *" in podium("schedule", "list").stdout
    finally:
        assert podium("schedule", "delete", name, "--now").returncode == 0


def _in_a_file(folder: Path, script: str) -> str:
    """Return a program that runs a script from a file: the KFP compiler reads the source of components."""
    file = folder / "hello.py"
    file.write_text(script)
    return f"import runpy; runpy.run_path({str(file)!r})"
