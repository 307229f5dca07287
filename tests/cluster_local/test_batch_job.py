"""batch/v1 Jobs as processes, with the counts and conditions Kubernetes writes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.conditions import Manifest, status_of
from podium.manifests.job_editor import DISRUPTED
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def job(script: str, restart: str = "Never", **spec: Any) -> Manifest:
    containers = [{"name": "main", "image": "any", "command": ["sh", "-c", script]}]
    template = {"spec": {"restartPolicy": restart, "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": template} | spec,
    }


def run(cluster: LocalSweeps, manifest: Manifest) -> Manifest:
    cluster.create(typed(manifest))
    *_, last = (stored.manifest for stored in cluster.watch("Job", "job", timeout=60))
    return last


def reasons(last: Manifest) -> list[tuple[str, str, str]]:
    return [
        (condition["type"], condition["reason"], condition["message"])
        for condition in last["status"]["conditions"]
    ]


def test_another_process_deletes_an_ended_job_at_once(cluster: LocalSweeps) -> None:
    run(cluster, job("true"))
    assert cluster.join("Job", "job", 30)
    began = time.monotonic()
    with LocalSweeps(cluster.store.directory) as elsewhere:
        elsewhere.delete("Job", "job")
    assert time.monotonic() - began < 10
    assert cluster.list("Job") == []


def logs(cluster: LocalSweeps, count: int) -> list[str]:
    return [
        line for n in range(count) for line in cluster.logs("Job", "job", f"pod-{n}", follow=True)
    ]


def test_a_completed_job_says_it_in_two_conditions(cluster: LocalSweeps) -> None:
    last = run(cluster, job("true"))
    message = "Reached expected number of succeeded pods"
    assert reasons(last) == [
        ("SuccessCriteriaMet", "CompletionsReached", message),
        ("Complete", "CompletionsReached", message),
    ]
    assert (last["status"]["succeeded"], last["status"]["ready"]) == (1, 0)
    assert "active" not in last["status"]
    assert last["status"]["completionTime"]


def test_who_follows_a_job_sees_its_next_pod(cluster: LocalSweeps, tmp_path: Path) -> None:
    script = f"echo $HOSTNAME; while [ ! -e {tmp_path}/seen ]; do sleep 0.1; done; exit 1"
    cluster.create(typed(job(script, backoffLimit=1)))
    lines = cluster.logs("Job", "job", follow=True)
    assert next(lines) == "job-pod-0"
    (tmp_path / "seen").touch()
    assert list(lines) == ["job-pod-1"]


def test_each_try_under_never_is_a_pod_of_its_own(cluster: LocalSweeps) -> None:
    last = run(cluster, job("pwd; exit 1", backoffLimit=1))
    message = "Job has reached the specified backoff limit"
    assert reasons(last)[-1] == ("Failed", "BackoffLimitExceeded", message)
    assert last["status"]["failed"] == 2
    assert len(set(logs(cluster, 2))) == 2


def test_a_failed_job_names_the_signal_that_killed_it(cluster: LocalSweeps) -> None:
    run(cluster, job("echo loss=1; kill -KILL $$$$", backoffLimit=0))
    said = cluster.failure("Job", "job").message.splitlines()
    assert said[1:] == [
        "pod-0 was killed by SIGKILL, by hand or as the memory was used up",
        "  | loss=1",
    ]


def test_a_rule_about_evictions_changes_nothing_here(cluster: LocalSweeps) -> None:
    last = run(cluster, job("exit 1", backoffLimit=0, podFailurePolicy={"rules": [DISRUPTED]}))
    assert status_of(last).reason == "BackoffLimitExceeded"


def test_on_failure_restarts_the_same_pod_until_the_limit(cluster: LocalSweeps) -> None:
    last = run(cluster, job("echo try; exit 1", restart="OnFailure", backoffLimit=2))
    assert status_of(last).reason == "BackoffLimitExceeded"
    assert last["status"]["failed"] == 1
    assert 2 <= len(logs(cluster, 1)) <= 3


def test_a_second_try_may_succeed(cluster: LocalSweeps) -> None:
    last = run(cluster, job("test -e done && exit 0; touch done; exit 1", restart="OnFailure"))
    assert status_of(last).succeeded


def test_a_deadline_fails_the_job_and_stops_its_pod(cluster: LocalSweeps) -> None:
    last = run(cluster, job("sleep 60", activeDeadlineSeconds=1))
    assert reasons(last)[-1] == (
        "Failed",
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )
    assert last["status"]["failed"] == 1


def test_indexed_completions_each_run_once_with_their_index(cluster: LocalSweeps) -> None:
    script = "echo $JOB_COMPLETION_INDEX"
    last = run(cluster, job(script, completions=3, parallelism=2, completionMode="Indexed"))
    assert last["status"]["succeeded"] == 3
    assert sorted(logs(cluster, 3)) == ["0", "1", "2"]


def test_no_more_pods_run_at_once_than_parallelism_says(cluster: LocalSweeps) -> None:
    script = "mkdir ../../one || exit 3; sleep 0.1; rmdir ../../one"
    assert (
        run(cluster, job(script, completions=3, parallelism=1, backoffLimit=0))["status"][
            "succeeded"
        ]
        == 3
    )


def test_without_completions_the_first_success_ends_the_queue(cluster: LocalSweeps) -> None:
    assert run(cluster, job("true", parallelism=2))["status"]["succeeded"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restart": "Always"}, "must be one of Never, OnFailure"),
        ({"backoffLimit": -1}, "backoffLimit >= 0"),
        ({"backoffLimit": "two"}, "an integer"),
        ({"completionMode": "Indexed", "parallelism": 2}, "spec.completions: must be given"),
        (
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {}}]}},
            r"rules\[0\]: .* cannot honor it",
        ),
    ],
)
def test_what_breaks_a_rule_or_cannot_be_honored_is_refused(
    cluster: LocalSweeps, change: Any, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        cluster.create(typed(job("true", **change)))
    assert not cluster.list("Job")
