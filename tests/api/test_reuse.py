"""`podium.tune(function, reuse=True)`: trials one after another in kept processes, which are lost alone."""

import atexit
import copy
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import podium
from podium.cluster.local.processes.client import Command, LauncherPool
from podium.errors import InvalidInput
from podium.manifests.typed import typed
from podium.sweeps.kept_trial import _Kept
from podium.sweeps.local import LocalSweeps

pytestmark = pytest.mark.whole

CALLS: list[int] = []


def counted(x: int) -> dict[str, float]:
    CALLS.append(x)
    print("drawn", random.random(), os.environ.get("SPOILED"), Path.cwd().name)
    print("named", os.environ["KATIB_TRIAL_NAME"], sys.argv[2])
    sys.stdout.flush()
    os.system("echo from a program of its own")
    os.environ["SPOILED"] = "yes"
    os.chdir("/")
    return {"score": x, "pid": os.getpid(), "calls": len(CALLS)}


def test_trials_of_a_place_run_in_one_process(home: Path) -> None:
    sweep = podium.tune(
        counted, {"x": range(8)}, objective="score", metrics=["pid", "calls"], trials=8,
        algorithm="grid", reuse=True,
    )  # fmt: skip
    frame = sweep.trials
    assert sorted(frame["score"]) == list(range(8))
    by_process = frame.groupby("pid")["calls"].max()
    assert len(by_process) <= 2
    assert by_process.sum() == 8
    assert not any(Path(f"/proc/{pid:.0f}").exists() for pid in by_process.index)


def test_a_kept_process_begins_each_trial_anew(home: Path) -> None:
    sweep = podium.tune(
        counted, {"x": range(4)}, objective="score", metrics=["pid"], trials=4, parallel=1,
        algorithm="grid", reuse=True,
    )  # fmt: skip
    drawn = set()
    for trial in sweep.results:
        first, second, program, last = sweep.logs(trial.name).splitlines()
        _, value, rest = first.split(maxsplit=2)
        drawn.add(value)
        assert rest == f"None {Path.cwd().name}"
        assert second == f"named {trial.name} --x={trial.assignments['x']}"
        assert program == "from a program of its own"
        assert "score=" in last
    assert sweep.trials["pid"].nunique() == 1
    assert len(drawn) == 4


def mishap(way: str) -> dict[str, float] | None:
    if way == "raises":
        raise RuntimeError("no such thing")
    if way == "exits":
        sys.exit(3)
    if way == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "ends well":
        print("score=7", flush=True)
        sys.exit()
    return {"score": 1}


def test_a_mishap_costs_its_own_trial_alone(home: Path) -> None:
    ways = ["raises", "exits", "is killed", "ends well", *(f"way {n}" for n in range(12))]
    sweep = podium.tune(
        mishap, {"way": ways}, objective="score", trials=16, parallel=1, algorithm="grid", reuse=True,
    )  # fmt: skip
    phases = {
        trial.assignments["way"]: (trial.state.phase, trial.state.message)
        for trial in sweep.cluster.trials(sweep.name)
    }
    failed = {way for way, (phase, _) in phases.items() if phase == "Failed"}
    assert failed == {"raises", "exits", "is killed"}
    assert {phase for way, (phase, _) in phases.items() if way not in failed} == {"Succeeded"}
    assert "RuntimeError: no such thing" in phases["raises"][1]
    assert sweep.best.value == 7


def test_a_process_killed_as_it_waits_takes_no_trial(tmp_path: Path) -> None:
    launchers = LauncherPool()
    words = (sys.executable, "-m", "podium.code.call", "no-file")
    command = Command(argv=words, env={**os.environ}, cwd=tmp_path, log=tmp_path / "log")
    kept = _Kept(launchers, command)
    assert kept.is_free
    os.kill(kept.process.pid, signal.SIGKILL)
    wait_for(lambda: not kept.is_free)
    assert kept.wait()
    launchers.close()


POOL = ThreadPoolExecutor(2)


def leave(x: int) -> dict[str, float] | None:
    atexit.register(Path(f"{x}.saved").touch)
    if x == 0:
        return {"score": sum(POOL.map(float, [x, x]))}
    if x == 1:
        multiprocessing.Process(target=lambda: print("score=1", flush=True)).start()
        return None
    if x == 2:
        threading.Thread(target=lambda: (time.sleep(0.3), print("score=9", flush=True))).start()
    signal.alarm(1)
    return {"score": x}


def test_what_a_trial_left_running_ends_with_its_process(home: Path) -> None:
    sweep = podium.tune(
        leave, {"x": range(5)}, objective="score", trials=5, parallel=1, algorithm="grid", reuse=True,
    )  # fmt: skip
    values = {trial.assignments["x"]: trial.value for trial in sweep.results}
    assert values == {"0": 0, "1": 1, "2": 9, "3": 3, "4": 4}
    assert {file.stem for file in Path().glob("*.saved")} == set(values)


def slow(x: int) -> dict[str, float]:
    podium.report(score=x)
    Path(f"{x}.pid").write_text(str(os.getpid()))
    while x == 0:
        time.sleep(0.05)
    return {"score": x}


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_a_trial_that_is_stopped_ends_its_process(home: Path) -> None:
    sweep = podium.tune(
        slow, {"x": range(3)}, objective="score", trials=3, parallel=1, algorithm="grid",
        reuse=True, wait=False,
    )  # fmt: skip
    with sweep:
        wait_for(Path("0.pid").exists)
        (trial,) = [each for each in sweep.cluster.trials(sweep.name) if not each.has_ended]
        wait_for(lambda: "score=0" in sweep.logs(trial.name))
        sweep.stop_trial(trial.name)
        sweep.wait()
        states = {
            each.assignments["x"]: each.state.phase for each in sweep.cluster.trials(sweep.name)
        }
    assert states == {"0": "EarlyStopped", "1": "Succeeded", "2": "Succeeded"}
    pids = [Path(f"{x}.pid").read_text() for x in range(3)]
    assert not Path(f"/proc/{pids[0]}").exists()
    assert len({*pids}) == (1 if list(states)[-1] == "0" else 2)


KILLED = """
import os, time
from pathlib import Path
import podium

def train(x):
    with open("calls", "a") as calls:
        print(os.getpid(), file=calls)
    while len(Path("calls").read_text().split()) == 4:
        time.sleep(0.05)
    return {"score": x}

podium.tune(train, {"x": range(5)}, objective="score", trials=5, parallel=1, algorithm="grid", reuse=True, name="e")
"""


def test_nothing_is_lost_on_a_kill_with_kept_processes(home: Path) -> None:
    Path("mine.py").write_text(KILLED)
    calls = Path("calls")
    engine = subprocess.Popen([sys.executable, "mine.py"])
    wait_for(lambda: calls.exists() and len(calls.read_text().split()) == 4)
    engine.kill()
    engine.wait()
    (pid,) = {*calls.read_text().split()}
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    with LocalSweeps(home / "cluster") as cluster:
        wait_for(lambda: not cluster.store.supervision.is_supervised("Experiment", "e"))
        before = {each.name: each.status for each in cluster.trials("e") if each.is_good}
        cluster.resume("Experiment", "e")
        assert cluster.join("Experiment", "e", 60)
        after = {each.name: each for each in cluster.trials("e")}
    assert len(before) == 3
    assert all(after[name].status == status for name, status in before.items())
    assert sorted(each.value or 0 for each in after.values()) == [0, 1, 2, 3, 4]
    assert len(calls.read_text().split()) == 6


def test_reuse_is_for_functions_on_this_machine(home: Path) -> None:
    Path("train.py").write_text("print('score=1')")
    with pytest.raises(InvalidInput, match="not for a script"):
        podium.tune("train.py", {"x": (0, 1)}, reuse=True)
    with pytest.raises(InvalidInput, match="not for kubernetes://n, where each trial has a pod"):
        podium.tune(counted, {"x": (0, 1)}, objective="score", cluster="kubernetes://n", reuse=True)
    assert not home.exists()
    with pytest.raises(InvalidInput, match="that call a function and nothing else"):
        podium.tune(mishap, {"way": ["it's", "first"]}, objective="score", reuse=True)


def test_reuse_refuses_a_job_whose_deadline_nobody_would_keep(home: Path, tmp_path: Path) -> None:
    sweep = podium.tune(counted, {"x": [1]}, objective="score", trials=1, parallel=1, reuse=True)
    manifest = copy.deepcopy(dict(sweep.experiment.manifest))
    manifest["metadata"]["name"] = "again"
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["activeDeadlineSeconds"] = 1
    with (
        LocalSweeps(tmp_path / "other") as cluster,
        pytest.raises(InvalidInput, match="that call a function and nothing else"),
    ):
        cluster.create(typed(manifest))
