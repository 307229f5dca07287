"""An Experiment goes on: after a raise of maxTrialCount, after a stop, after its engine was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import SEEDED, job, space, write_experiment

from podium.errors import Conflict, InvalidInput
from podium.manifests.experiment import Experiment
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

PROGRAM = "import sys, time; time.sleep(float(sys.argv[2])); print('loss=' + sys.argv[1])"


def experiment(
    name: str, *, policy: str = "Never", most: int = 2, seconds: float = 0, **spec: Any
) -> dict[str, Any]:
    command = ["sh", "-c", f'python -c "{PROGRAM}" ${{trialParameters.lr}} {seconds}']
    given = {"algorithm": SEEDED, "parallelTrialCount": min(2, most), "maxTrialCount": most, **spec}
    given |= {"parameters": [space("lr", min="0.1", max="1")], "resumePolicy": policy}
    return write_experiment(job(command), name=name, **given)


def finish(cluster: LocalSweeps, name: str) -> dict[str, Any]:
    for _ in cluster.watch("Experiment", name, timeout=60):
        pass
    assert cluster.join("Experiment", name, 30)
    return cluster.get("Experiment", name).manifest


def types(found: dict[str, Any]) -> list[str]:
    return [
        f"{condition['type']}={condition['status']}" for condition in found["status"]["conditions"]
    ]


def points(cluster: LocalSweeps, name: str) -> list[str]:
    trials = [
        stored.manifest for stored in cluster.list("Trial", {"katib.kubeflow.org/experiment": name})
    ]
    return [trial["spec"]["parameterAssignments"][0]["value"] for trial in trials]


@pytest.mark.parametrize("policy", ["LongRunning", "FromVolume"])
def test_more_trials_restart_a_finished_experiment_as_in_katib(policy: str, tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("e", policy=policy)))
        assert types(finish(cluster, "e")) == ["Created=True", "Running=False", "Succeeded=True"]
    with LocalSweeps(
        tmp_path, fork_server=False
    ) as cluster:  # another process, as far as the files know
        cluster.resume("Experiment", "e", {"maxTrialCount": 4})
        found = finish(cluster, "e")
        assert types(found) == [
            "Created=True",
            "Restarting=True",
            "Running=False",
            "Succeeded=True",
        ]
        assert (found["status"]["trials"], found["status"]["trialsSucceeded"]) == (4, 4)
        assert len(set(points(cluster, "e"))) == 4, "a seeded search does not begin again"


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        ("Never", {"maxTrialCount": 4}, "is resumed only if"),
        (
            "LongRunning",
            {"maxTrialCount": 2, "parallelTrialCount": 1},
            "maxTrialCount must be above",
        ),
        ("LongRunning", {"parallelTrialCount": 1}, "maxTrialCount must be above"),
        ("LongRunning", {"maxFailedTrialCount": 1}, "maxTrialCount must be above"),
        (
            "LongRunning",
            {"maxTrialCount": 4, "parallelTrialCount": 9},
            "parallelTrialCount <= maxTrialCount",
        ),
    ],
)
def test_edits_that_katib_refuses_are_refused(
    policy: str, changes: dict[str, int], message: str, tmp_path: Path
) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("e", policy=policy)))
        before = finish(cluster, "e")
        with pytest.raises(InvalidInput, match=message):
            cluster.resume("Experiment", "e", changes)
        assert cluster.get("Experiment", "e").manifest == before


def test_a_stopped_experiment_goes_on_with_its_unfinished_trials(tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("e", most=3, seconds=0.6)))
        for found in (stored.manifest for stored in cluster.watch("Experiment", "e", timeout=30)):
            if found.get("status", {}).get("trialsRunning") == 2:
                break
        cluster.stop("Experiment", "e")
        assert cluster.join("Experiment", "e", 30)
        assert cluster.experiment("e").state.phase == "Stopped"
        assert cluster.list("Job") == [] or all(
            "conditions" in job["status"]
            for job in [stored.manifest for stored in cluster.list("Job")]
        )
        begun = points(cluster, "e")
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        found = finish(cluster, "e")
        assert Experiment.parse(found).state.phase != "Stopped"
        assert types(found)[-1] == "Succeeded=True"
        assert found["status"]["trialsSucceeded"] == 3
        assert points(cluster, "e")[: len(begun)] == begun


def test_a_stopped_experiment_goes_on_with_other_counts(tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("e", most=4, seconds=0.5)))
        while not cluster.experiment("e").trial_count:
            time.sleep(0.05)
        cluster.stop("Experiment", "e")
        for _ in cluster.watch("Experiment", "e", timeout=60):
            pass
        assert cluster.join("Experiment", "e", 30)
        count = cluster.experiment("e").trial_count
        with pytest.raises(
            InvalidInput, match=f"maxTrialCount must be at least .* maxTrialCount={count - 1}"
        ):
            cluster.resume("Experiment", "e", {"maxTrialCount": count - 1})
        cluster.resume("Experiment", "e", {"maxTrialCount": 3})
        found = finish(cluster, "e")
    assert "Restarting=True" not in types(found)
    assert (found["status"]["trials"], found["status"]["trialsSucceeded"]) == (3, 3)


def test_what_a_stopped_trial_printed_is_not_read_again(tmp_path: Path) -> None:
    again = tmp_path / "again"
    program = "print('loss=0.1', flush=True); import time; time.sleep(60)"
    # The output of a script's last command is collected, and the second time the script does not come to it.
    container = job(
        ["sh", "-c", f'test -e {again} && exit 0; python -c "{program}" ${{trialParameters.lr}}']
    )
    given = {
        "parallelTrialCount": 1,
        "maxTrialCount": 1,
        "maxFailedTrialCount": 1,
        "algorithm": SEEDED,
    }
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(
            typed(
                write_experiment(container, parameters=[space("lr", min="0.1", max="1")], **given)
            )
        )
        while not any("loss=0.1" in path.read_text() for path in tmp_path.rglob("metrics.log")):
            time.sleep(0.05)
        cluster.stop("Experiment", "e")
        assert cluster.join("Experiment", "e", 30)
    again.touch()
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        finish(cluster, "e")
        (trial,) = [stored.manifest for stored in cluster.list("Trial")]
    assert types(trial)[-1] == "MetricsUnavailable=True"
    assert "0.1" not in json.dumps(trial["status"].get("observation"))


def test_another_engine_goes_on_after_a_kill(tmp_path: Path) -> None:
    manifest = json.dumps(experiment("e", most=4, seconds=0.5))
    script = (
        "import json, sys, time; from pathlib import Path; from podium.sweeps.local import LocalSweeps\n"
        "from podium.manifests.typed import typed\n"
        "cluster = LocalSweeps(Path(sys.argv[1]), fork_server=False); cluster.create(typed(json.loads(sys.argv[2])))\n"
        "time.sleep(60)"
    )
    engine = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), manifest])
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = [stored.manifest for stored in cluster.list("Experiment")]
            if found and found[0].get("status", {}).get("trialsSucceeded", 0) >= 1:
                break
            time.sleep(0.05)
        with pytest.raises(Conflict, match="another process"):
            cluster.resume("Experiment", "e")
        os.kill(engine.pid, signal.SIGKILL)
        engine.wait()
        done = list(found[0]["status"]["succeededTrialList"])
        deadline = time.monotonic() + 10
        while (
            cluster.store.supervision.is_supervised("Experiment", "e")
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert cluster.get("Experiment", "e").state.message.endswith(
            f"podium experiment resume e --dir {tmp_path}"
        )
        cluster.resume("Experiment", "e")
        found_now = finish(cluster, "e")
        assert types(found_now) == ["Created=True", "Running=False", "Succeeded=True"]
        assert found_now["status"]["trialsSucceeded"] == 4
        assert set(done) <= set(found_now["status"]["succeededTrialList"])


def test_another_process_deletes_what_has_ended_at_once(tmp_path: Path) -> None:
    with (
        LocalSweeps(tmp_path, fork_server=False) as cluster,
        LocalSweeps(tmp_path, fork_server=False) as elsewhere,
    ):
        cluster.create(typed(experiment("e", most=1)))
        finish(cluster, "e")
        assert cluster.join("Experiment", "e", 30)
        began = time.monotonic()
        elsewhere.delete("Experiment", "e")
        assert time.monotonic() - began < 10
        assert [
            [stored.manifest for stored in cluster.list(kind)]
            for kind in ("Experiment", "Trial", "Job")
        ] == [
            [],
            [],
            [],
        ]


def test_deleting_an_experiment_takes_its_trials_and_jobs_with_it(tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("e", seconds=20)))
        for found in (stored.manifest for stored in cluster.watch("Experiment", "e", timeout=30)):
            if found.get("status", {}).get("trialsRunning") == 2:
                break
        cluster.delete("Experiment", "e")
        assert [
            [stored.manifest for stored in cluster.list(kind)]
            for kind in ("Experiment", "Trial", "Job")
        ] == [
            [],
            [],
            [],
        ]
