"""Runs and sweeps in processes of their own, which outlive the page or the server that started
them.

Each is one of ``BEGINNERS`` in ``python -m podium.runner.detached``.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.api.space import from_text
from podium.api.tune import TuneSettings, plan
from podium.errors import Failed, InvalidInput, PodiumError
from podium.kfp.parameters import written
from podium.kfp.project import choose
from podium.manifests.options import ended_by
from podium.runner.process import check_run
from podium.runner.record import RunRecord
from podium.runner.run import Run, begin as begin_run
from podium.system.interrupts import signals_interrupt
from podium.system.settings import Settings

Begun = tuple[dict[str, Any], Callable[[], object]]
"""Fields to print about the started process, and a function that waits for its end."""


def begin(action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run or sweep in a process of its own; return its names, and of a new one all that it
    does.

    Args:
        action: One of BEGINNERS.
        arguments: Plain values.

    Raises:
        PodiumError: It was refused, or broke off; the message says why.
    """
    command = [sys.executable, "-P", "-m", "podium.runner.detached", action]
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            start_new_session=True,
        )
        assert process.stdin
        assert process.stdout
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(arguments).encode())
            process.stdin.close()
            answer = process.stdout.readline()
        if not answer:
            process.wait()
            printed.seek(0)
            raise Failed(
                f"{action} broke off: {printed.read().decode(errors='replace').strip()[-2000:]}"
            )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
    said = json.loads(answer)
    if "error" in said:
        kind = InvalidInput if said["code"] == InvalidInput.exit_code else PodiumError
        raise kind(said["error"], said["hint"])
    return dict(said)


def _run(*, pipeline: str, parameters: Mapping[str, Any], dry_run: bool = False) -> Begun:
    words = [
        *([pipeline] if pipeline else []),
        *written(parameters),
    ]
    chosen, arguments, project = choose(words[0] if words else "", words[1:])
    file = project.file if project else None
    typed = {"command": shlex.join(["podium", "run", *words]), "directory": os.getcwd()}
    if dry_run:
        record = check_run(chosen, arguments, Settings.from_environment(), file)
        return typed | _begins(record), lambda: None
    run = begin_run(chosen, arguments, file)
    return {"run": run.id, "state": run.state} | typed | _begins(run.record), run.wait


def _begins(run: RunRecord) -> dict[str, Any]:
    return {
        "pipeline": run.pipeline,
        "parameters": Run(run).parameters,
        "steps": [step.title for step in run.steps.values()],
    }


def _resume_run(*, run: str) -> Begun:
    resumed = podium.runs()[run].resume(wait=False)
    return {"run": resumed.id, "state": resumed.state}, resumed.wait


def _tune(
    *,
    program: list[str],
    space: Mapping[str, Any],
    objectives: Sequence[str],
    cluster: str,
    settings: Mapping[str, Any],
    dry_run: bool = False,
) -> Begun:
    read = {
        name: from_text(name, value) if isinstance(value, str) else value
        for name, value in space.items()
    }
    places = {name: settings.get(name) for name in ("data", "storage", "name")}
    others = {name: value for name, value in settings.items() if name not in places}
    planned = plan(
        program[0] if len(program) == 1 else program,
        read,
        TuneSettings.read(objectives, **others),
        spec=ClusterSpec.of(cluster),
        **places,
    )
    if dry_run:
        return {"sweep": planned.checked_name(), **planned.summary()}, lambda: None
    begun, wait = _begun(planned.start())
    return {**begun, **planned.summary()}, wait


def _resume_sweep(*, name: str, cluster: str) -> Begun:
    sweep = podium.open_sweep(name, cluster=cluster)
    state = sweep.experiment.state
    if state.finished and not sweep.experiment.is_resumable:
        sweep.wait()  # which says why it failed
        raise InvalidInput(f"sweep {name} has ended: {state.message}", _way_on(sweep))
    return _begun(sweep.resume(wait=False))


def _way_on(sweep: "podium.Sweep") -> str:
    resume = f"podium experiment resume {sweep.name}"
    if full := ended_by(sweep.experiment):
        return f"{resume}, with {full.raised}"
    if sweep.experiment.is_restartable:
        return f"{resume} --max-trials {sweep.experiment.trial_count + 1}"
    return "start a new sweep; it can start warm from this one's trials"


def _add_trial(*, name: str, cluster: str, values: Mapping[str, str]) -> Begun:
    sweep = podium.open_sweep(name, cluster=cluster)
    sweep.add_trial(values, wait=False)
    return _begun(sweep)


def _begun(sweep: "podium.Sweep") -> Begun:
    return {"sweep": sweep.name, "state": sweep.status.lower()}, sweep.wait


BEGINNERS: Mapping[str, Callable[..., Begun]] = {
    "run": _run,
    "resume_run": _resume_run,
    "tune": _tune,
    "resume_sweep": _resume_sweep,
    "add_trial": _add_trial,
}


def _main() -> int:
    """Start the kind that the command line names with the arguments on stdin, print its names, and
    wait for its end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may reach the answers
    with signals_interrupt(), answers:
        try:
            told, wait = BEGINNERS[sys.argv[1]](**json.load(sys.stdin))
        except PodiumError as error:
            refused = {"error": error.message, "hint": error.hint, "code": error.exit_code}
            answers.write(json.dumps(refused) + "\n")
            return error.exit_code
        answers.write(json.dumps(told) + "\n")
        answers.close()
        try:
            wait()
        except PodiumError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
