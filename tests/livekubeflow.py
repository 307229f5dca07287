"""What tests do with a live Kubeflow: run podium's commands, wait, look at what a run launched."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.conditions import status_of
from podium.manifests.labels import RUN as RUN_LABEL

NAMESPACE = os.environ.get("PODIUM_TEST_NAMESPACE", "kubeflow")
Submit = Callable[..., str]


def podium(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    command = [str(Path(sys.executable).with_name("podium")), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)


def client() -> Any:
    """Connect to the server."""
    from podium.kfp.client import Server

    return Server(os.environ["KF_PIPELINES_ENDPOINT"])


def end_of(run_id: str) -> str:
    """Wait for a run; SUCCEEDED or what its failure says."""
    from podium.errors import Failed
    from podium.kfp.client import Server
    from podium.kfp.runs import ServerRuns

    try:
        runs = ServerRuns(Server(os.environ["KF_PIPELINES_ENDPOINT"]))
        return runs.follow(run_id, lambda *_: None, 1200)
    except Failed as error:
        return error.message


def cancel(run_id: str) -> None:
    """Cancel a run."""
    from kfp_server_api import ApiClient, Configuration, RunServiceApi

    server = ApiClient(Configuration(host=os.environ["KF_PIPELINES_ENDPOINT"]))
    RunServiceApi(server).run_service_terminate_run(run_id)


def ended_by_cancel(run_id: str) -> bool:
    """Wait for a cancelled run; true unless it succeeded: a server of 2.16.1 forgot one cancel in four (observed)."""
    ended = end_of(run_id)
    return "was cancelled" in ended or "failed at" in ended


def until(check: Callable[[], Any], seconds: float) -> Any:
    """Return the first true answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := check():
            return answer
        time.sleep(0.5)
    raise AssertionError(f"nothing within {seconds} s")


def has_katib(cluster: KubernetesCluster) -> bool:
    """Tell whether somebody runs Experiments in the namespace: Katib, or an engine."""
    return cluster.runs_experiments


def jobs_of(cluster: KubernetesCluster, run_id: str) -> list[dict[str, Any]]:
    """List the PyTorchJobs of a run, its trials among them."""
    return [stored.manifest for stored in cluster.list("PyTorchJob", {RUN_LABEL: run_id})]


def pods_of(cluster: KubernetesCluster, selector: str) -> list[dict[str, Any]]:
    """List pods as the API server has them."""
    from kubernetes.client import ApiClient

    listed: list[dict[str, Any]] = ApiClient().sanitize_for_serialization(
        cluster.api.pods(selector)
    )
    return listed


def training(cluster: KubernetesCluster, run_id: str) -> str:
    """Wait until the run's job runs; its name."""

    def running() -> str | None:
        found = [job for job in jobs_of(cluster, run_id) if status_of(job).phase == "Running"]
        return str(found[0]["metadata"]["name"]) if found else None

    return str(until(running, 600))
