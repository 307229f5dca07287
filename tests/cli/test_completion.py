"""Completion, tried in a real bash."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podium.runner.record import RunRecord

pytestmark = pytest.mark.whole

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
def test_bash_completes_commands_options_runs_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "runs" / "20260101-010101-aaaa"
    directory.mkdir(parents=True)
    RunRecord(
        id=directory.name, pipeline="tune_and_promote", directory=directory, state="stopped"
    ).save()
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    done = subprocess.run(
        ["bash", "-c", SCRIPT], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
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


@contextmanager
def bash_at_work() -> Iterator[int]:
    """Start an interactive bash that completes podium; yield its terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(
            "bash",
            ["bash", "--norc", "--noprofile", "-i"],
            {**os.environ, "PS1": "$ ", "TERM": "dumb"},
        )
    try:
        os.write(terminal, b'eval "$(_PODIUM_COMPLETE=bash_source podium)"; echo rea""dy\n')
        seen(terminal, "ready\r\n$ ")
        yield terminal
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def seen(terminal: int, last: str) -> str:
    """Return what a terminal shows up to some text, which has to come."""
    shown, until = "", time.monotonic() + 60
    while not shown.endswith(last):
        assert time.monotonic() < until, f"{last!r} is not the end of {shown!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536).decode()
    return shown


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_typing_user_gets_parameters_and_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    (tmp_path / "flowers.csv").write_text("a,b\n")
    (tmp_path / "own.py").write_text(
        "import nothing_there\nfrom kfp import dsl\n\n@dsl.pipeline(name='own')\ndef own(number: float, sure: bool = True): ...\n"
    )
    with bash_at_work() as terminal:
        for typed, completed in (
            ("podium run tune_and_promote net\t", "network="),
            ("podium run tune_and_promote network=f\t.", "network=fast ."),
            ("podium run tune_and_promote network = b\t.", "b\x07."),
            ("podium run tune_and_promote --network=b\t.", "--network=b\x07."),
            ("podium run rule=lik\t.", "rule=likely ."),
            ("podium run metric=bal\t.", "metric=balanced_accuracy ."),
            ("podium run network=mlp ru\t", "rule="),
            ("podium run train_and_promote net=1 network=fast netw\t.", "netw\x07."),
            ("podium submit tune-and-promote dataset=fa\t.", "dataset=fashion-mnist ."),
            (
                "podium compile train_and_promote dataset=table:flo\t.",
                "dataset=table:flowers.csv .",
            ),
            ("podium run tune_and_promote experiment=hyper\t.", "experiment=hyperband ."),
            (
                "podium run tune_and_promote install_requirements=t\t.",
                "install_requirements=true .",
            ),
            ("podium run own.py su\t", "sure="),
            ("podium run own.py:own sure=f\t.", "sure=false ."),
            ("podium run nothing.py su\t.", "su\x07."),
            ("podium experiment run --resume-policy=Lo\t.", "--resume-policy=LongRunning ."),
        ):
            os.write(terminal, typed.encode())
            line = seen(terminal, completed)
            assert line == typed.rpartition(" ")[0] + " " + completed, typed
            os.write(terminal, b"\x15\n")  # without the line
            seen(terminal, "\n$ ")


def test_a_project_decides_whose_parameters_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed("podium", "run", "epo") == ["epochs="]
    assert completed("podium", "run", "max_t") == ["max_trials="]
    (tmp_path / "podium.yaml").write_text("pipeline: train_and_promote\n")
    assert completed("podium", "run", "max_t") == [""]  # files
    assert completed("podium", "run", "epo") == ["epochs="]
    assert completed("podium", "run", "tune_and_promote", "max-t") == ["max_trials="]
    (tmp_path / "podium.yaml").write_text("[")
    assert completed("podium", "run", "epo") == ["epochs="]


def completed(*words: str) -> list[str]:
    environment = {
        **os.environ,
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_PODIUM_COMPLETE": "bash_complete",
    }
    program = [
        sys.executable,
        "-P",
        "-c",
        "import sys; sys.argv[0] = 'podium'; from podium.cli import main; main()",
    ]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return [line.removeprefix("plain,") if line.startswith("plain,") else "" for line in lines]


def test_every_offered_value_is_one_the_pipeline_takes() -> None:
    from podium.cli.completion import _values_of
    from podium.kfp.definition import Definition
    from podium.kfp.project import parameters_of
    from podium.kfp.values import check_values

    for pipeline in ("tune_and_promote", "train_and_promote"):
        known = {
            parameter.name: parameter.type.__name__
            for parameter in Definition.load(pipeline).parameters
        }
        assert parameters_of(pipeline) == known
        for name, kind in known.items():
            for value in _values_of(name, kind):
                given = {
                    "code": f"file:///code/{'0' * 64}.tar.gz",
                    name: json.loads(value) if kind == "bool" else value,
                }
                if value.endswith(":"):
                    given |= {name: f"{value}x.csv", "target": "y"}
                if name == "metric":  # of either kind
                    given |= {"dataset": "table:x.csv", "target": "y"}
                check_values(given)


def test_completion_loads_nothing_heavy() -> None:
    script = """if True:
        import os, sys
        os.environ |= {"_PODIUM_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
        os.environ["COMP_WORDS"] = "podium run tune_and_promote " + sys.argv[1]
        sys.argv = ["podium"]
        from podium.cli import main
        try:
            main()
        finally:
            print(*sys.modules, file=sys.stderr)
    """
    for word in ("net", "network=f", "rule=b", "dataset=m", "job_kind=a"):
        done = subprocess.run(
            [sys.executable, "-c", script, word],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        loaded = {name.split(".")[0] for name in done.stderr.split()}
        assert done.stdout.startswith("plain,"), word
        assert not loaded & {
            "torch",
            "torchvision",
            "kfp",
            "numpy",
            "optuna",
            "kubernetes",
            "scipy",
            "onnx",
        }, word
