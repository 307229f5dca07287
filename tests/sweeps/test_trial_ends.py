"""Ends of one trial: early for the first reason, and as its engine stops."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_manifests import job, write_experiment

from podium.cluster.local import controller
from podium.manifests.experiment import Experiment
from podium.manifests.experiment.status import new_trial
from podium.manifests.typed import typed
from podium.manifests.workload import Workload
from podium.sweeps.base import RunningTrial
from podium.sweeps.local import LocalSweeps
from podium.sweeps.local_trial import ProcessExecutor

PROGRAM = """
import pathlib, sys, time
print("loss=0.5", flush=True)
pathlib.Path(sys.argv[1], "printed").touch()
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def trial_of(
    cluster: LocalSweeps,
    folder: Path,
    seconds: float,
    code: int = 0,
    stopping: threading.Event | None = None,
) -> RunningTrial:
    """A trial that prints a loss, waits and exits; it runs once it is asked to."""
    (folder / "program.py").write_text(PROGRAM)
    command = ["python", str(folder / "program.py"), str(folder), str(seconds), str(code)]
    experiment = typed(write_experiment(job(command)))
    assert isinstance(experiment, Experiment)
    work = experiment.render("e-1", {"x": "0.5"})
    trial = new_trial(experiment, "e-1", {"x": "0.5"}, work, [], {})
    return ProcessExecutor(cluster, experiment).run(
        experiment, trial, lambda trial, readings=(): None, stopping or threading.Event()
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as opened:
        yield opened


def test_a_trial_ends_early_for_the_first_reason(cluster: LocalSweeps, tmp_path: Path) -> None:
    run = trial_of(cluster, tmp_path, seconds=90)
    run.end_early("too soon: it has no job")
    thread = threading.Thread(target=run.run)
    thread.start()
    while not (tmp_path / "printed").exists():
        time.sleep(0.05)
    run.end_early("the budget is spent")
    run.end_early("by hand")
    thread.join()
    assert (run.trial.phase, run.trial.message) == ("EarlyStopped", "the budget is spent")
    assert run.trial.value == 0.5


def test_a_trial_whose_job_is_deleted_ends_in_a_sentence(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    run = trial_of(cluster, tmp_path, seconds=90)
    thread = threading.Thread(target=run.run)
    thread.start()
    while not (tmp_path / "printed").exists():
        time.sleep(0.05)
    cluster.delete("Job", "e-1")
    thread.join()
    assert "its job ended" in run.trial.message


@pytest.mark.parametrize(
    ("ask", "phase"), [("end_early", "MetricsUnavailable"), ("stop", "Running")]
)
def test_a_trial_that_is_stopped_as_its_job_begins_ends(
    ask: str, phase: str, cluster: LocalSweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, create = threading.Event(), cluster.create
    run = trial_of(cluster, tmp_path, seconds=90, stopping=stopping)

    def create_late(work: Workload) -> Workload:
        if ask == "stop":
            stopping.set()
            run.stop()
        else:
            run.end_early("by hand")
        return create(work)

    monkeypatch.setattr(cluster, "create", create_late)
    thread = threading.Thread(target=run.run, daemon=True)
    thread.start()
    thread.join(timeout=45)
    assert not thread.is_alive()
    assert run.trial.phase == phase


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Running")])
def test_only_success_counts_as_the_engine_stops(
    code: int, phase: str, cluster: LocalSweeps, tmp_path: Path
) -> None:
    stopping = threading.Event()
    stopping.set()
    run = trial_of(cluster, tmp_path, seconds=0, code=code, stopping=stopping)
    run.run()
    assert (run.trial.phase, run.trial.value) == (phase, None if code else 0.5)


@pytest.mark.parametrize("tries", [0, 11])
def test_what_a_shell_printed_is_in_its_pods_log(
    tries: int, cluster: LocalSweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "BACKOFF", 0.0)
    count = f'echo >> {tmp_path}/count; test "$(wc -l < {tmp_path}/count)" -gt {tries}'
    work = job(["sh", "-c", f"{{ echo loss=0.5 ${{trialParameters.x}}; {count}; }}"])
    pod = work["spec"]["template"]["spec"]
    setup = {**pod["containers"][0], "name": "setup", "command": ["true"]}
    if not tries:
        pod["initContainers"] = [setup]
    work["spec"]["backoffLimit"] = tries
    cluster.create(typed(write_experiment(work, maxTrialCount=1, parallelTrialCount=1)))
    (*_, ended) = cluster.watch("Experiment", "e")
    assert ended.state.succeeded
    (trial,) = cluster.trials("e")
    assert trial.value == 0.5
    assert [line[:8] for line in cluster.logs("Trial", trial.name)] == ["loss=0.5"]
