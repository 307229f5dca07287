"""A trial that is asked to end early: by the first reason, and only once it runs."""

import threading
import time
from pathlib import Path

from sweep_manifests import job, write_experiment

from podium.manifests.experiment import Experiment
from podium.manifests.experiment.status import new_trial
from podium.manifests.experiment.trial import Trial
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps
from podium.sweeps.local_trial import ProcessExecutor

PROGRAM = """
import pathlib, sys, time
print("loss=0.5", flush=True)
pathlib.Path(sys.argv[1], "printed").touch()
time.sleep(90)
"""


def test_a_trial_ends_early_for_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["python", str(tmp_path / "program.py"), str(tmp_path)]
    experiment = typed(write_experiment(job(command)))
    assert isinstance(experiment, Experiment)
    saved: list[Trial] = []
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        work = experiment.render("e-1", {"x": "0.5"})
        trial = new_trial(experiment, "e-1", {"x": "0.5"}, work, [], {})
        run = ProcessExecutor(cluster, experiment).run(
            experiment, trial, lambda trial, readings=(): saved.append(trial), threading.Event()
        )
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
