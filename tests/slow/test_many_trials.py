"""A thousand trials: the engine's cost a trial and its memory do not grow with their number."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import job, write_experiment

from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

pytestmark = pytest.mark.slow

COUNT = 1000


def thousand() -> dict[str, Any]:
    """Trials that print a number, two at a time."""
    command = ["python", "-m", "trivial", "${trialParameters.x}"]
    return write_experiment(job(command), name="many", parallelTrialCount=2, maxTrialCount=COUNT)


def resident() -> int:
    """Return this process's memory in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_thousandth_trial_costs_as_much_as_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trivial.py").write_text("import sys\nprint('loss=' + sys.argv[1])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    marks: dict[int, tuple[float, float, int]] = {}
    with LocalSweeps(tmp_path / "cluster") as cluster:
        cluster.create(typed(thousand()))
        for found in (
            stored.manifest for stored in cluster.watch("Experiment", "many", timeout=900)
        ):
            done = found.get("status", {}).get("trialsSucceeded", 0)
            reached = [
                mark for mark in (100, 200, 900, COUNT) if done >= mark and mark not in marks
            ]
            marks |= dict.fromkeys(reached, (time.monotonic(), time.process_time(), resident()))
        assert cluster.join("Experiment", "many", 60)
        others = [
            trial.status["conditions"][-1]
            for trial in cluster.trials("many")
            if trial.phase != "Succeeded"
        ]
        assert others == []
        assert cluster.get("Experiment", "many").manifest["status"]["trialsSucceeded"] == COUNT
    seconds = {mark: at for mark, (_, at, _) in marks.items()}
    # Of the engine's own processor time: the machine may be busy with other things.
    assert seconds[COUNT] - seconds[900] < 2 * (seconds[200] - seconds[100]) + 1
    # Optuna and the counts remember each trial: some kB, never its manifest, threads or files.
    assert marks[COUNT][2] - marks[100][2] < 20 * (COUNT - 100)
