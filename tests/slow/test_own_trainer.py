"""A script that knows nothing of podium, as it stands, in a PyTorchJob and in a sweep."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples" / "spirals.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def podium(*words: str) -> str:
    command = [str(Path(sys.executable).with_name("podium")), *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_script_imports_nothing_of_podium_and_is_short() -> None:
    text = SCRIPT.read_text()
    assert "podium" not in text.replace(text.partition("\n")[0], "")
    assert len([line for line in text.splitlines() if line.strip()]) <= 35


def test_it_runs_in_two_processes_of_a_pytorchjob_and_one_of_them_reports(tmp_path: Path) -> None:
    out = podium("job", "run", "examples/spirals-pytorchjob.yaml", "--dir", str(tmp_path))
    assert len([line for line in out.splitlines() if " accuracy=0." in line]) == 8, out


def test_it_is_tuned_by_a_sweep_that_reads_what_it_prints(tmp_path: Path) -> None:
    source, place = "examples/spirals-experiment.yaml", ("--dir", str(tmp_path))
    podium("experiment", "run", source, "--max-trials", "3", *place)
    trials = json.loads(podium("experiment", "trials", "spirals", "--json", *place))
    assert len(trials) == 3
    best = json.loads(podium("experiment", "best", "spirals", "--json", *place))
    text = json.dumps(best)
    assert "accuracy" in text
    assert "hidden" in text
