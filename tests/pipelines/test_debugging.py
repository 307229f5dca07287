"""A shell in place of a step, and a run again with other values."""

import json
import subprocess
from pathlib import Path

import pytest
from test_control_flow import HEAD, run
from test_own_pipelines import written
from test_podium_run import PODIUM, environment, only_run, podium

from podium.runner.record import RunRecord
from podium.system.machine import cores

pytestmark = pytest.mark.whole

TWO = (
    HEAD
    + """
@part
def tell(place: str, n: int, base: int) -> int:
    import os
    open(f"{place}/{len(os.listdir(place))}", "w").write(f"tell {n}")
    return n + base

@part
def base(place: str) -> int:
    import os
    open(f"{place}/{len(os.listdir(place))}", "w").write("base")
    return 10

@dsl.pipeline
def two(place: str, n: int = 1) -> int:
    task = tell(place=place, n=n, base=base(place=place).set_caching_options(False).output)
    task.set_caching_options(False)
    task.set_env_variable("MARK", "7")
    return task.output
"""
)


def test_a_shell_stands_in_the_place_of_a_step(tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    home, file = tmp_path / "home", written(tmp_path, TWO)
    typed = "echo $MARK; ls; sed -i s/base$/base+5/ component.py; ./run; exit"
    done = subprocess.run(
        [PODIUM, "run", file, f"place={tmp_path / 'told'}", "--debug", "tell"],
        input=typed, capture_output=True, text=True, timeout=200,
        env={**environment(home), "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:5] == [
        "7", "component.py", "inputs.json", "packages", "run",
    ]  # fmt: skip
    record = RunRecord.read(only_run(home))
    assert record.state == "stopped"
    assert {name: step.state for name, step in record.steps.items()} == {
        "base": "succeeded",
        "tell": "pending",
    }
    (output,) = record.directory.glob("artifacts/*/tell/executor_output.json")
    assert json.loads(output.read_text())["parameterValues"] == {"Output": 16}
    assert f"continue with: podium run --resume {record.id}" in done.stderr
    again = podium(home, "--resume", "latest", "--json")
    assert json.loads(again.stdout)["outputs"] == {"Output": 11}


ROUNDS = (
    HEAD
    + """
@part
def rest(n: int):
    import time
    time.sleep(600)

@dsl.pipeline
def loops(items: List[int]):
    with dsl.ParallelFor(items) as item:
        with dsl.ParallelFor(items) as other:
            rest(n=other)
"""
)


def test_a_step_to_debug_waits_for_no_round_before_it(tmp_path: Path) -> None:
    last = 4 * max(2, cores())
    done = subprocess.run(
        [PODIUM, "run", written(tmp_path, ROUNDS), f"items={list(range(last + 1))}",
         "--debug", f"rest.{last}.{last}"],
        input="exit", capture_output=True, text=True, timeout=200,
        env={**environment(tmp_path / "home"), "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"rest.{last}.{last}" in done.stderr


def test_a_step_to_debug_must_be_one_of_the_pipelines(tmp_path: Path) -> None:
    done = podium(tmp_path / "home", written(tmp_path, TWO), "place=x", "--debug", "tel")
    assert (
        "the pipeline has no step 'tel': it has base, tell\nhint: did you mean tell?" in done.stderr
    )


def rerun(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PODIUM, "runs", "rerun", "latest", *words, "--json"],
        capture_output=True, text=True, timeout=200, env=environment(home),
    )  # fmt: skip


def test_what_another_value_does_not_affect_is_kept(tmp_path: Path) -> None:
    told, home = tmp_path / "told", tmp_path / "home"
    told.mkdir()
    _, first = run(tmp_path, TWO, f"place={told}")
    done = rerun(home, "n=4")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"Output": 14}
    assert sorted(file.read_text() for file in told.iterdir()) == ["base", "tell 1", "tell 4"]
    record = RunRecord.read(first.directory)
    assert (record.parameters["n"], record.attempt) == (4, 2)
    assert rerun(home, "--from", "base").returncode == 0
    assert sorted(file.read_text() for file in told.iterdir()) == [
        *("base", "base"),
        *("tell 1", "tell 4"),
    ], "its output is the same again"
    refused = rerun(home, "m=4")
    assert "there is no parameter 'm'" in refused.stderr
    assert "neither a value nor a step is named" in rerun(home).stderr
