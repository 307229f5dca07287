"""Completion, tried in a real bash."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podium.runner.record import RunRecord

SCRIPT = """
eval "$(_PODIUM_COMPLETE=bash_source podium)"
tab() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _podium_completion "$1" "${!#}"
  echo "${COMPREPLY[*]}"
}
tab podium ru
tab podium experiment re
tab podium run --res
tab podium run tune
tab podium runs show 2026
tab podium experiment list --run la
tab podium experiment run hyper
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_runs_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "runs" / "20260101-010101-aaaa"
    directory.mkdir(parents=True)
    RunRecord(id=directory.name, pipeline="tune_and_promote", directory=directory, state="stopped").save()
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    done = subprocess.run(["bash", "-c", SCRIPT], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "run runs", "render report resume", "--resume", "tune_and_promote", "20260101-010101-aaaa", "latest", "hyperband",
    ]  # fmt: skip
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell: str) -> None:
    program = Path(sys.executable).parent / "podium"
    done = subprocess.run([program], env={"_PODIUM_COMPLETE": f"{shell}_source", "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    assert "_podium_completion" in done.stdout
