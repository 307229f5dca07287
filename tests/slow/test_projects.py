"""Every template of `podium init`, run whole as its README says, and a second time as a challenger."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podium.cli.init import TEMPLATES
from podium.code.reference import Code
from podium.models import open_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
BIN = Path(sys.executable).parent


def run(folder: Path, program: str, *words: str) -> str:
    env = {**os.environ, "PODIUM_HOME": str(folder / "podium-work"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(BIN / program), *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_runs_from_data_to_a_champion(tmp_path: Path, template: str) -> None:
    run(tmp_path, "podium", "init", "mine", "--from", template)
    project = tmp_path / "mine"
    run(project, "python", "make_data.py")
    if template in ("images", "table"):
        run(project, "podium", "run", "network=linear", "max_trials=1")
    outcome = json.loads(run(project, "podium", "run", "--json"))
    assert (
        outcome["decision"]["outcome"] == "promoted" or template == "table"
    )  # penguins are told apart by lines
    trials = outcome["sweep"]["trials"]
    assert len(trials) == {"table": 8, "text": 6}.get(template, 4)
    if template == "text":
        models = {trial["parameters"]["model"] for trial in trials if trial["value"] > 0.9}
        assert models == {"linear", "transformer"}, "both learn that a word is negated"
    if template == "table":
        assert len(run(project, "podium", "predict", "data.csv").splitlines()) == 900
    model = open_registry(project / "podium-work/store").model("mine")
    champion = model.find_champion()
    assert champion is not None
    if template in ("images", "table"):
        assert champion.metadata["code"] is None
    if template == "images":
        assert "better than the champion with probability" in outcome["decision"]["reasons"][0]
    if template in ("text", "blank"):
        code = Code.parse(champion.metadata["code"]["uri"])
        assert code.digest == champion.metadata["code"]["digest"]
        again = json.loads(run(project, "podium", "run", "--json", "max_trials=1"))
        assert again["decision"]["outcome"] in ("promoted", "kept")
        assert len(model.versions) == 2
