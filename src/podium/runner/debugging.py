"""`podium run --debug STEP`: a shell in place of a step, with its command, inputs and environment."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium.runner.steps import EXECUTOR

COMMAND, CODE, INPUTS = "run", "component.py", "inputs.json"


def write_for_debugging(folder: Path, command: Sequence[str]) -> None:
    """Write a step's command as a script, its code and its inputs as files that it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    line = shlex.join(command)
    if len(command) > 4 and "ephemeral_component.py" in command[2]:
        (folder / CODE).write_text(command[3])
        words = [shlex.quote(word) for word in command[4:]]
        at = words.index("--executor_input") + 1
        (folder / INPUTS).write_text(command[4 + at])
        words[at] = f'"$(cat {INPUTS})"'
        module = f"python3 -m {EXECUTOR} --component_module_path {CODE}"
        line = f"_KFP_RUNTIME=true exec {module} {' '.join(words)}"
    script = folder / COMMAND
    script.write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{line}\n')
    script.chmod(0o700)


def open_shell(folder: Path, env: Mapping[str, str]) -> int:
    """Give a shell in a step's place; return its exit code.

    Args:
        env: What the step's environment has beyond podium's.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    (folder / "packages").mkdir(exist_ok=True)
    given = {**os.environ, **env}
    if "PIP_TARGET" in env:  # that of the run is gone
        given["PIP_TARGET"] = str(folder / "packages")
        given["PYTHONPATH"] = env["PYTHONPATH"].replace(env["PIP_TARGET"], given["PIP_TARGET"])
    return subprocess.call([shell], cwd=folder, env=given)
