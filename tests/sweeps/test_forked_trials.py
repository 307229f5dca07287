"""Trials of a sweep run as forks of one warm process, and are as apart as processes are."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, space, write_experiment

from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps
from podium.system.machine import cores

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="fork servers are used on Linux only"
)

PROBE = """
import sys
forked = "csv" in sys.modules
import csv, json, os
found = {"forked": forked, "cwd": os.getcwd(), "name": os.environ["KATIB_TRIAL_NAME"],
         "threads": os.environ["OMP_NUM_THREADS"], "spoiled": hasattr(csv, "spoiled"), "files": os.listdir()}
csv.spoiled = True
open("left-behind", "w").close()
os.environ["KATIB_TRIAL_NAME"] = "changed"
print(json.dumps(found))
print("loss=" + sys.argv[1])
sys.exit(3 if float(sys.argv[1]) > 0.9 else 0)
"""


def sweep(values: list[str], parallel: int) -> dict[str, Any]:
    """An Experiment that runs the probe once for each value."""
    return write_experiment(
        job(["python", "-m", "probe", "${trialParameters.x}"]), algorithm={"algorithmName": "grid"},
        parallelTrialCount=parallel, maxTrialCount=len(values), maxFailedTrialCount=len(values),
        parameters=[space("x", "categorical", list=values)],
    )  # fmt: skip


def run(
    tmp_path: Path, values: list[str], **options: Any
) -> tuple[dict[str, str], list[dict[str, Any]], int]:
    """Return the state of each trial by its value, what the probes printed, and how many fork servers there were."""
    with LocalSweeps(tmp_path / "cluster", **options) as cluster:
        cluster.create(typed(sweep(values, 2)))
        for _ in cluster.watch("Experiment", "e", timeout=60):
            pass
        assert cluster.join("Experiment", "e", 30)
        servers = len(cluster.runtime.launchers._servers)
        states, printed = {}, []
        for trial in [stored.manifest for stored in cluster.list("Trial")]:
            value = trial["spec"]["parameterAssignments"][0]["value"]
            states[value] = trial["status"]["conditions"][-1]["type"]
            printed.append(json.loads(next(cluster.logs("Trial", trial["metadata"]["name"]))))
            assert printed[-1]["name"] == trial["metadata"]["name"]
    return states, printed, servers


@pytest.fixture(autouse=True)
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "probe.py").write_text(PROBE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))


def test_forked_trials_have_their_own_directory_environment_and_output(tmp_path: Path) -> None:
    states, printed, servers = run(tmp_path, ["0.1", "0.5", "0.95"])
    assert states == {"0.1": "Succeeded", "0.5": "Succeeded", "0.95": "Failed"}
    assert all(
        report["forked"] and not report["spoiled"] and report["files"] == [] for report in printed
    )
    assert (
        len({report["cwd"] for report in printed}) == len({entry["name"] for entry in printed}) == 3
    )
    # The one that was warmed up before the first trial was the one they ran in.
    assert servers == 1


def test_parallel_trials_share_the_cores_among_their_threads(tmp_path: Path) -> None:
    _, printed, _ = run(tmp_path, ["0.1", "0.2"])
    assert sum(int(report["threads"]) for report in printed) <= max(cores(), 2)
    assert all(report["threads"] == str(max(1, cores() // 2)) for report in printed)


@pytest.mark.parametrize("switch", ["argument", "environment"])
def test_without_the_fork_server_trials_are_own_interpreters(
    switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch == "environment":
        monkeypatch.setitem(os.environ, "PODIUM_FORK_SERVER", "0")
    states, printed, servers = run(
        tmp_path, ["0.1", "0.2"], **({"fork_server": False} if switch == "argument" else {})
    )
    assert (set(states.values()), servers) == ({"Succeeded"}, 0)
    assert not any(report["forked"] for report in printed)
