"""What goes wrong at a bad moment: a stop in the middle of a start or a suggestion, leftovers of a run that was killed."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_experiment_engine import experiment, run
from test_experiment_resume import finish, points, types

from podium.errors import Conflict, Failed, InvalidInput
from podium.manifests.experiment import Experiment
from podium.manifests.typed import typed
from podium.search.search import JOURNAL
from podium.sweeps.early_stopping import RuleWatch
from podium.sweeps.local import LocalSweeps
from podium.sweeps.local_trial import LocalTrial, _collected
from podium.sweeps.metrics_collector import observe

pytestmark = pytest.mark.whole


def until(holds: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_trial_starting_as_the_engine_ends_has_not_failed(tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        supervise, reached, go_on = cluster.supervise, threading.Event(), threading.Event()

        def late(kind: str, *rest: Any) -> None:
            if kind == "Job":
                reached.set()
                go_on.wait(20)
            supervise(kind, *rest)

        cluster.supervise = late  # type: ignore[method-assign]
        cluster.create(typed(experiment(maxTrialCount=1)))
        assert reached.wait(20)
        closing = threading.Thread(target=cluster.close)
        closing.start()
        until(lambda: cluster._closed)
        go_on.set()
        closing.join(30)
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        assert finish(cluster, "e")["status"]["trialsSucceeded"] == 1


def test_a_trial_ended_by_a_stop_counts_for_the_search(tmp_path: Path) -> None:
    import optuna

    script = "import sys, time; time.sleep(1); print('loss=' + sys.argv[1])"
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment(script, maxTrialCount=2)))
        until(
            lambda: (
                cluster.get("Experiment", "e").manifest.get("status", {}).get("trialsRunning") == 1
            )
        )
        controller = cluster._supervisors["Experiment", "e"]  # type: ignore[attr-defined]
        suggesting = threading.Event()

        def slow() -> None:
            suggesting.set()
            time.sleep(0.6)

        controller._reconcile = slow
        controller._events.put(None)
        assert suggesting.wait(10)
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        assert finish(cluster, "e")["status"]["trialsSucceeded"] == 2
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "experiments/e" / JOURNAL))
    study = optuna.load_study(study_name="e", storage=optuna.storages.JournalStorage(backend))
    assert [trial.state.name for trial in study.get_trials()] == ["COMPLETE", "COMPLETE"]


ENDING = (
    "_reconcile",
    "_suggest",
    "_begin_trial",
    "_run_trial",
    "_take",
    "_learn",
    "_stop_trials",
    "_close_study",
)


@pytest.mark.parametrize("step", ENDING)
def test_whatever_fails_during_a_stop_leaves_it_stopped(step: str, tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        supervise = cluster.supervise

        def sabotaged(kind: str, name: str, controller: Any) -> None:
            if kind == "Experiment":
                whole = getattr(controller, step)

                def failing(*given: Any) -> Any:
                    controller.stop()
                    if (
                        step == "_run_trial"
                    ):  # what runs in it fails; nobody waits for more of it than its event
                        given[1].run = failing_run
                    else:
                        raise RuntimeError("can't start new thread at interpreter shutdown")
                    return whole(*given)

                setattr(controller, step, failing)
            supervise(kind, name, controller)

        def failing_run() -> None:
            raise RuntimeError("can't start new thread at interpreter shutdown")

        cluster.supervise = sabotaged  # type: ignore[method-assign]
        cluster.create(typed(experiment(maxTrialCount=3, parallelTrialCount=1)))
        if step in ("_stop_trials", "_close_study"):
            cluster.stop("Experiment", "e")
        assert cluster.join("Experiment", "e", 30)
        assert types(cluster.get("Experiment", "e").manifest)[-1] == "Stopped=True"
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        assert finish(cluster, "e")["status"]["trialsSucceeded"] == 3


@pytest.mark.parametrize("step", ["_suggest", "_run_trial"])
def test_a_sweep_that_python_leaves_behind_is_stopped(step: str, tmp_path: Path) -> None:
    code = f"""if True:
        import atexit, json, sys, threading, time
        from pathlib import Path
        from concurrent.futures import ThreadPoolExecutor
        from podium.manifests.typed import typed
        from podium.sweeps import controller, local, trials
        reached = threading.Event()
        pool = ThreadPoolExecutor(1)

        def late(*given):
            reached.set()
            while threading.main_thread().is_alive():
                time.sleep(.01)
            pool.submit(print)  # refused, as threads are from Python 3.12 on

        if {step!r} == "_suggest":
            controller.ExperimentController._suggest = late
        else:
            trials.TrialRun.run = late
        cluster = local.LocalSweeps(Path(sys.argv[1]), fork_server=False)
        atexit.register(lambda: (time.sleep(1), cluster.close()))
        cluster.create(typed(json.loads(sys.argv[2])))
        reached.wait(30)
    """
    words = [sys.executable, "-c", code, str(tmp_path), json.dumps(experiment(maxTrialCount=3))]
    subprocess.run(words, check=True, timeout=60)
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        assert types(cluster.get("Experiment", "e").manifest)[-1] == "Stopped=True"
        cluster.resume("Experiment", "e")
        assert finish(cluster, "e")["status"]["trialsSucceeded"] == 3


def test_a_repeated_trial_forgets_its_earlier_run(tmp_path: Path) -> None:
    again = tmp_path / "again"
    script = (
        "import os, sys, time; again = os.path.exists(sys.argv[3]); file = open(sys.argv[2], 'a')\n"
        "print('loss=' + ('0.7' if again else '0.1'), file=file, flush=True); time.sleep(0 if again else 60)"
    )
    collector = {
        "collector": {"kind": "File"},
        "source": {"fileSystemPath": {"path": "/m/x.log", "format": "TEXT"}},
    }
    words = ("${trialParameters.x}", "/m/x.log", str(again))
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(
            typed(experiment(script, words=words, maxTrialCount=1, metricsCollectorSpec=collector))
        )
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("trials/*/metrics/x.log")))
    again.touch()
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        finish(cluster, "e")
        (trial,) = [stored.manifest for stored in cluster.list("Trial")]
    assert trial["status"]["observation"]["metrics"][0]["min"] == "0.7"


def test_a_point_whose_trial_was_never_stored_is_not_lost(tmp_path: Path) -> None:
    whole = {"name": "x", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "3"}}
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        create = cluster.store.create

        def interrupted(manifest: dict[str, Any]) -> dict[str, Any]:
            if manifest["kind"] == "Trial" and [
                stored.manifest for stored in cluster.list("Trial")
            ]:
                cluster._supervisors["Experiment", "e"].stop()
                raise Failed("killed")
            return create(manifest)

        cluster.store.create = interrupted  # type: ignore[method-assign]
        spec = {"algorithm": {"algorithmName": "grid"}, "parameters": [whole], "maxTrialCount": 3}
        cluster.create(typed(experiment(**spec)))
        assert cluster.join("Experiment", "e", 30)
        cluster.store.update("Experiment", "e", _forget_the_failure)
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.resume("Experiment", "e")
        finish(cluster, "e")
        assert sorted(points(cluster, "e")) == ["1", "2", "3"]


def _forget_the_failure(manifest: dict[str, Any]) -> None:
    conditions = manifest["status"]["conditions"]
    manifest["status"]["conditions"] = [
        condition for condition in conditions if condition["type"] == "Created"
    ]


def test_a_job_removed_at_once_is_read_first(tmp_path: Path) -> None:
    manifest = experiment(maxTrialCount=3)
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["ttlSecondsAfterFinished"] = 0
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        assert run(cluster, manifest)[0]["status"]["trialsSucceeded"] == 3


def test_a_suspended_trial_is_refused_for_nobody_would_start_it(tmp_path: Path) -> None:
    manifest = experiment()
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["suspend"] = True
    with (
        LocalSweeps(tmp_path, fork_server=False) as cluster,
        pytest.raises(InvalidInput, match="is suspended"),
    ):
        cluster.create(typed(manifest))


def test_a_carriage_return_ends_no_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.log"
    path.write_bytes(
        b"2026-01-01T00:00:09Z loss=0.5\r2026-01-01T00:00:01Z loss=0.9\n2026-01-01T00:00:05Z loss=0.7\n"
    )
    parsed = Experiment.parse({"spec": {"objective": {"objectiveMetricName": "loss"}}})
    readings = _collected(parsed, [path], list)
    observation, _ = observe(readings, parsed.objective.metrics)
    assert observation["metrics"][0]["latest"] == "0.9", (
        "both values of the first line have its time"
    )


def watch() -> RuleWatch:
    rule = {"name": "loss", "value": "0.5", "comparison": "greater", "startStep": 1}
    return RuleWatch([rule], "loss", maximize=False, formats=None, as_json=True)


def test_a_rule_reads_only_its_metric_of_json_lines() -> None:
    assert watch().sees('{"timestamp": "2026-01-01T00:00:00Z", "note": "loss", "loss": "0.9"}')
    assert not watch().sees('{"note": "loss"}')
    assert not watch().sees('{"loss": 0.9}'), "values are texts there"


@pytest.mark.parametrize("line", ["loss is high", '["loss"]', '"loss"'])
def test_a_line_without_json_object_fails_under_a_rule(line: str) -> None:
    with pytest.raises(Failed, match="not a JSON object"):
        watch().sees(line)


def test_of_two_that_resume_at_once_one_goes_on(tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment("import time; time.sleep(60)", maxTrialCount=1)))
        until(
            lambda: (
                cluster.get("Experiment", "e").manifest.get("status", {}).get("trialsRunning") == 1
            )
        )
    refused: list[Conflict] = []
    together = threading.Barrier(2)

    def go_on(cluster: LocalSweeps) -> None:
        together.wait(10)
        try:
            cluster.resume("Experiment", "e")
        except Conflict as error:
            refused.append(error)

    with (
        LocalSweeps(tmp_path, fork_server=False) as one,
        LocalSweeps(tmp_path, fork_server=False) as other,
    ):
        threads = [threading.Thread(target=go_on, args=(cluster,)) for cluster in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(refused) == 1


ON_A_SMALL_DISK = """
import json, subprocess, sys
from pathlib import Path
from podium.sweeps.local import LocalSweeps
from podium.manifests.typed import typed
with LocalSweeps(Path(sys.argv[1]), fork_server=False) as cluster:
    cluster.create(typed(json.loads(sys.argv[2])))
    assert cluster.join("Experiment", "e", 30), "it waits for ever"
LIFT
with LocalSweeps(Path(sys.argv[1]), fork_server=False) as cluster:
    print(cluster.get("Experiment", "e").manifest["status"]["conditions"][-1])
    cluster.resume("Experiment", "e")
    assert cluster.join("Experiment", "e", 30)
    print(cluster.get("Experiment", "e").manifest["status"]["trialsSucceeded"])
"""
MOUNT = 'mount -t tmpfs -o size=600k none "$0" && exec "$@"'


def in_mount(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        MOUNT,
        str(directory),
        *command,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=100)


FILL = "file = open(PLACE + '/big', 'wb', buffering=0)\nwhile file: file.write(b'x' * 256)"
LOCK = (
    "for words in (['--bind', PLACE, PLACE], ['-o', 'remount,ro,bind', PLACE]):\n"
    "    subprocess.run(['mount', *words], check=True)"
)


@pytest.mark.parametrize(
    ("fault", "lift", "said"),
    [
        (FILL, "Path(sys.argv[1], 'big').unlink()", "No space left"),
        (LOCK, "subprocess.run(['umount', '-l', sys.argv[1]], check=True)", "Read-only"),
    ],
    ids=["full", "read-only"],
)
def test_a_sweep_stopped_by_its_disk_resumes(
    fault: str, lift: str, said: str, tmp_path: Path
) -> None:
    if shutil.which("unshare") is None or in_mount(tmp_path, "true").returncode:
        pytest.skip("this user may not mount a small disk")
    once = "\n".join(
        f"        {line}" for line in fault.replace("PLACE", "sys.argv[3]").split("\n")
    )
    script = (
        "import os, subprocess, sys, time; first = not os.path.exists(sys.argv[2])\n"
        "open(sys.argv[2], 'a').close()\n"
        f"try:\n    if first:\n{once}\n        time.sleep(1)\n"
        "except OSError: time.sleep(1)\n"
        "print('loss=' + sys.argv[1])"
    )
    with tempfile.TemporaryDirectory() as beside:
        manifest = experiment(
            script, words=("${trialParameters.x}", f"{beside}/seen", str(tmp_path)), maxTrialCount=2
        )
        program = ON_A_SMALL_DISK.replace("LIFT", lift)
        ended = in_mount(
            tmp_path, sys.executable, "-c", program, str(tmp_path), json.dumps(manifest)
        )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout or "Lost" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "2"
    assert "Traceback" not in ended.stderr


ON_A_FULL_DISK = """
import json, sys
from pathlib import Path
from podium.sweeps.local import LocalSweeps
from podium.manifests.typed import typed
with LocalSweeps(Path(sys.argv[1]), fork_server=False) as cluster:
    cluster.create(typed(json.loads(sys.argv[2])))
    assert cluster.join("Experiment", "e", 30), "it waits for ever"
    (trial,) = cluster.trials("e")
    print(trial.phase, trial.value, len(list(cluster.logs("Trial", trial.name))))
"""
PRINTS_AND_FILLS = """
import os, sys
print("loss=0.5", flush=True)
print("x" * 150_000, flush=True)
with open(sys.argv[1] + "/big", "wb", buffering=0) as file:
    while os.statvfs(sys.argv[1]).f_bfree > 25:
        file.write(b"x" * 4096)
"""


def test_a_log_without_room_costs_no_trial_its_result(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or in_mount(tmp_path, "true").returncode:
        pytest.skip("this user may not mount a small disk")
    with tempfile.TemporaryDirectory() as beside:
        Path(beside, "fills.py").write_text(PRINTS_AND_FILLS)
        manifest = experiment(maxTrialCount=1)
        (container,) = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
            "containers"
        ]
        words = [f"{beside}/fills.py", str(tmp_path), "${trialParameters.x}", "$NOTHING"]
        container["command"] = ["python", *words]
        ended = in_mount(
            tmp_path, sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path), json.dumps(manifest)
        )
    assert ended.stdout == "Succeeded 0.5 0\n", ended.stderr
    assert "No space left" in ended.stderr


def test_a_full_disk_stops_the_sweep_and_fails_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room again as the end of the trial is written."""

    def full(trial: LocalTrial) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(LocalTrial, "settle", full)
            found, _ = run(cluster, experiment(maxTrialCount=2))
        last = found["status"]["conditions"][-1]
        assert (last["type"], found["status"].get("trialsFailed")) == ("Stopped", None)
        assert "No space left on device; resume it with" in last["message"]
        cluster.resume("Experiment", "e")
        assert finish(cluster, "e")["status"]["trialsSucceeded"] == 2
