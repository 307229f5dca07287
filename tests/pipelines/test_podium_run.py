"""`podium run` as a user meets it: a real process, real steps, real jobs, on a small dataset."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from kit_trainer import TRAIN

from podium.cluster.local.store import Store
from podium.errors import PodiumError
from podium.manifests.conditions import status_of
from podium.models import open_registry
from podium.runner.child import _from_here
from podium.runner.record import RunRecord
from podium.runner.run import run
from podium.steps.promote import promote
from podium.training.identity import RunIdentity, StepContext
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

pytestmark = pytest.mark.whole

LINUX = sys.platform == "linux"
ROOT = Path(__file__).parents[2]
PODIUM = str(Path(sys.executable).with_name("podium"))
MODEL = "churn-python3.11-python3"  # which stays as it is, though commands begin with python3


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with blanks in its path: people have those."""
    return tmp_path / "my models"


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PODIUM_HOME": str(home), "OMP_NUM_THREADS": "1"}


def podium(home: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command, env = [PODIUM, "run", *words], environment(home)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=env, umask=0, cwd=cwd
    )


def processes_of(home: Path) -> list[str]:
    return list(of_home(home).values())


def of_home(home: Path) -> dict[int, str]:
    """Return the command lines of all processes that know this home: by environment, arguments or working directory."""
    marker = str(home).encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            place = os.fsencode((entry / "cwd").readlink())
            if marker in command or marker in place or marker in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def only_run(home: Path) -> Path:
    (directory,) = (home / "runs").iterdir()
    return directory


@pytest.fixture(scope="module")
def finished(
    tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, subprocess.CompletedProcess[str]]:
    """A home, an experiment's file, and a run with it that has ended; whoever changes it mends it."""
    place = tmp_path_factory.mktemp("finished")
    home, sweep = place / "my models", place / "sweep.yaml"
    text = (ROOT / "experiments/random.yaml").read_text()
    text = text.replace("algorithmName: random", "algorithmName: tpe").replace(
        '["32", "64", "128"]', '["32"]'
    )
    sweep.write_text(f"# the team's own: 'größer' \"better\" \u2028# \n---\n{text}\n# end")
    done = podium(home, f"experiment={sweep}", f"dataset={tiny_dataset}", "max_trials=1", "trial_epochs=1", "epochs=2",
                  "workers=0", "trial_workers=0", "network=fast", f"model_name={MODEL}", "--json")  # fmt: skip
    return home, sweep.read_text(), done


def test_a_run_of_an_experiments_file_ends_with_a_champion(
    finished: tuple[Path, str, subprocess.CompletedProcess[str]],
) -> None:
    home, sweep, done = finished
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["sweep"]["algorithm"] == "tpe"
    assert outcome["decision"]["outcome"] == "promoted"
    champion = open_registry(home / "store").model(MODEL).find_champion()
    assert champion is not None
    assert champion.version == outcome["run"]
    assert str(champion.metadata["hyperparameters"]["batch-size"]) == "32"
    run = only_run(home)
    assert run.stat().st_mode & 0o777 == 0o700, (
        "for its owner alone, though the umask allows everything"
    )
    assert {file.name for file in run.iterdir()} >= {
        "run.json",
        "logs",
        "artifacts",
        "cluster",
        "report.html",
    }
    record = json.loads((run / "run.json").read_text())
    assert record["state"] == "succeeded"
    assert record["parameters"]["experiment"] == sweep
    assert {step["state"] for step in record["steps"].values()} == {"succeeded"}
    assert {f"{name}.log" for name in record["steps"]} < {
        file.name for file in (run / "logs").iterdir()
    }
    assert "[4/7] Train with the best hyperparameters: succeeded" in done.stderr
    assert "epoch 2: accuracy=" in done.stderr
    if LINUX:
        assert processes_of(home) == []


def test_a_run_without_its_report_has_still_succeeded(
    finished: tuple[Path, str, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, _, _ = finished
    run = only_run(home)
    written = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    again = podium(home, "--resume", run.name, "--from", "promote-best", "--json")
    (run / "report.html").rmdir()
    (run / "report.html").write_bytes(written)
    assert again.returncode == 0, again.stderr
    assert (
        f"warning: run {run.name} succeeded, but {run}/report.html cannot be written: Is a directory"
        in again.stderr
    )
    outcome = json.loads(again.stdout)
    assert (outcome["decision"]["outcome"], outcome["report"]) == ("promoted", "")
    (evaluation,) = run.glob("artifacts/*/evaluate/evaluation")
    (test,) = run.glob("artifacts/*/prepare-data/prepared_test")
    monkeypatch.setenv("PODIUM_HOME", str(home))  # where the key of the test part is
    step = StepContext.of(RunIdentity(id=run.name), str(home / "store"))
    promotion = promote(
        step,
        test,
        evaluation,
        tmp_path / "decision",
        tmp_path,
        version=run.name,
        model_name=MODEL,
        jobs=PredictJobs(step=step, target=LaunchTarget()),
    )
    assert promotion.outcome == "promoted"


def test_what_is_refused_leaves_nothing_behind(home: Path) -> None:
    done = podium(home, "max_trails=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-2:] == [
        "error: there is no parameter 'max_trails'",
        "hint: did you mean max_trials?",
    ]
    assert not home.exists()


def test_what_a_later_step_would_refuse_is_refused_at_once(home: Path) -> None:
    done = podium(home, "rule=beter")  # tests/pipelines/test_values.py tries all of them
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean better?; one of likely, better, not-worse" in done.stderr
    assert not home.exists()


def test_a_relative_storage_lies_below_the_users_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _from_here("models/mine") == str(tmp_path / "models/mine")
    for url in ("s3://bucket/models", "file:///models", "/models", ""):
        assert _from_here(url) == url


def test_a_failing_step_is_named_with_error_and_log(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a working directory with modules that must not be imported, and with a storage that the environment names."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "registry"))
    for name in ("json", "random", "kfp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "nowhere").mkdir()
    done = podium(home, "train_and_promote", f"source={tmp_path / 'nowhere'}", cwd=tmp_path)
    assert "the wrong one" not in done.stderr
    assert (done.returncode, done.stdout) == (1, "")
    assert 'error: step "Prepare the data" failed' in done.stderr
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    log = only_run(home) / "logs" / "prepare-data.log"
    assert f"hint: its log: {log}" in done.stderr
    assert "Traceback" not in log.read_text()
    record = json.loads((only_run(home) / "run.json").read_text())
    assert record["state"] == "failed"
    assert record["parameters"]["storage"] == str(tmp_path / "registry")


def test_a_failing_job_shows_its_own_last_words(home: Path, tiny_dataset: Path) -> None:
    command = json.dumps(["sh", "-c", "echo 'error: the batch is too large'; exit 2", "sh"])
    done = podium(
        home, "train_and_promote", f"dataset={tiny_dataset}", "workers=0", f"command={command}"
    )
    assert done.returncode == 1
    assert 'step "Train the model" failed' in done.stderr
    assert "error: the batch is too large" in done.stderr
    assert "Traceback" not in done.stderr


SWEEP = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: nearest}
spec:
  objective: {type: minimize, objectiveMetricName: log_loss}
  algorithm: {algorithmName: grid}
  parallelTrialCount: 1
  maxTrialCount: 2
  parameters:
    - {name: sharpness, parameterType: double, feasibleSpace: {min: "0.1", max: "1", step: "0.9"}}
  trialTemplate:
    primaryContainerName: training
    trialParameters: [{name: sharpness, reference: sharpness}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
              - {name: training, image: any, command: [python, PROGRAM, "--sharpness=${trialParameters.sharpness}"]}
"""


SLEEP = "import time; print('log_loss=1', flush=True); time.sleep(600)"


@pytest.fixture
def running(
    home: Path, tiny_dataset: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[str]]:
    """A run in the midst of its sweep: trials are running, of a script or, with the parameter True, of the trainer."""
    (tmp_path / "train.py").write_text(SLEEP)
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("PROGRAM", str(tmp_path / "train.py")))
    words = [f"dataset={tiny_dataset}", "max_trials=2", "parallel_trials=2"]
    words += (
        ["trial_epochs=500"]
        if getattr(request, "param", False)
        else [f"experiment={tmp_path / 'sweep.yaml'}"]
    )
    process = subprocess.Popen(
        [PODIUM, "run", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(home), start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "trial" in line and "started" in line:
                break
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "running"),
    [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, False)],
    ids=lambda value: getattr(value, "name", ""),
    indirect=["running"],
)
def test_nothing_is_left_of_a_run_that_is_stopped(
    home: Path, running: subprocess.Popen[str], number: int
) -> None:
    # podium, its child, the step and its shell, and what runs the trials
    assert within(90, lambda: len(processes_of(home)) >= 6)
    running.send_signal(number)
    running.wait(timeout=60)
    assert within(30, lambda: not processes_of(home)), processes_of(home)
    (sweep,) = Store(only_run(home) / "cluster").list("Experiment")
    assert status_of(sweep).phase == "Stopped"
    if number != signal.SIGKILL:
        assert running.returncode == 128 + number
        reported = json.loads((only_run(home) / "run.json").read_text())
        assert reported["state"] == "stopped"
        assert reported["steps"]["katib-sweep"]["state"] == "stopped"
    if number == signal.SIGTERM:
        (said,) = (
            line for line in running.communicate()[1].splitlines() if "continue with: " in line
        )
        assert said.endswith(f"podium run --resume {only_run(home).name}")


def test_a_resumed_run_repeats_no_finished_step_or_trial(
    home: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("PROGRAM", str(tmp_path / "train.py")))
    words = [
        f"experiment={tmp_path / 'sweep.yaml'}",
        f"dataset={tiny_dataset}",
        "max_trials=2",
        "parallel_trials=1",
    ]
    process = subprocess.Popen(
        [PODIUM, "run", *words], stderr=subprocess.PIPE, text=True, env=environment(home)
    )
    assert process.stderr is not None
    trials = [line for line in takewhile_running(process.stderr) if "succeeded in" in line]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    first = trials[0].split()[1]
    record = only_run(home) / "cluster" / "trials" / first / "object.json"
    finished = record.read_bytes()
    done = podium(home, "--resume", "latest", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["run"] == only_run(home).name
    assert first in {trial["name"] for trial in outcome["sweep"]["trials"]}
    assert len(outcome["sweep"]["trials"]) == 2
    assert record.read_bytes() == finished
    assert "Prepare the data: succeeded" in done.stderr
    again = podium(home, "--resume", "latest")
    assert (again.returncode, "has succeeded" in again.stderr) == (2, True)
    repeated = podium(home, "--resume", "latest", "--from", "upload-model", "--json")
    assert repeated.returncode == 0, repeated.stderr
    begun = [
        line.partition("] ")[2]
        for line in repeated.stderr.splitlines()
        if line.startswith("[") and ":" not in line
    ]
    assert begun == ["Upload the model", "Promote it if it is better"]
    assert record.read_bytes() == finished
    versions = {path.name for path in (home / "store" / "models" / "tiny" / "versions").iterdir()}
    assert versions == {
        only_run(home).name
    }  # the same evaluated model uploaded twice is one version


def takewhile_running(lines: Iterable[str]) -> Iterator[str]:
    """Yield a run's lines until its first trial has succeeded."""
    for line in lines:
        yield line
        if "succeeded in" in line:
            return


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
def test_a_killed_step_says_which_signal_and_what_to_do(
    home: Path, running: subprocess.Popen[str]
) -> None:
    step = min(
        pid
        for pid, command in of_home(home).items()
        if "executor_main" in command and "sh -ec" not in command
    )
    os.kill(step, signal.SIGKILL)
    said = running.communicate(timeout=60)[1].splitlines()
    assert running.returncode == 1
    error, hint = said[-2:]
    assert error.startswith('error: step "Sweep hyperparameters" was killed by SIGKILL')
    assert hint.endswith(f"continue with: podium run --resume {only_run(home).name}")


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["as it starts", "while it imports"])
def test_a_run_stopped_during_its_imports_never_begins(
    home: Path, tmp_path: Path, moment: str, number: int
) -> None:
    command = [PODIUM, "run", f"source={tmp_path / 'nowhere'}"]
    process = subprocess.Popen(
        command, env=environment(home), stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        (child,) = child_of(home)
        if moment == "while it imports":
            assert within(
                60, lambda: "/google/" in Path(f"/proc/{child}/maps").read_text()
            )  # protobuf, of kfp
        process.send_signal(number)
        process.wait(timeout=60)
        assert within(30, lambda: not processes_of(home)), processes_of(home)
        assert not home.exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
def test_a_run_whose_child_is_killed_at_once_says_so(home: Path) -> None:
    process = subprocess.Popen(
        [PODIUM, "run"], env=environment(home), stderr=subprocess.PIPE, text=True
    )
    (child,) = child_of(home)
    os.kill(child, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "error: run was killed by SIGKILL" in said
    assert "hint: start it again" in said
    assert not home.exists()


def test_a_child_that_reads_no_order_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(home))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    long = "x" * (1 << 20)  # more than a pipe holds
    with pytest.raises(PodiumError, match=r"broke off \(exit code 1\)\nhint: run it again"):
        run("train_and_promote", model_name=long)


def child_of(home: Path) -> list[int]:
    """Return the process of a run's pipeline as soon as it is to be seen, and from then on."""
    found: list[int] = []

    def look() -> bool:
        found.extend(
            pid for pid, command in of_home(home).items() if "podium.runner.child" in command
        )
        return bool(found)

    assert within(60, look)
    return found


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def test_data_refused_while_preparing_name_the_command_to_type(home: Path, tmp_path: Path) -> None:
    rows = (f"{at},{at % 60},{'yes' if at % 2 else 'no'}{' ' * 80}" for at in range(60_000))
    (tmp_path / "big one.csv").write_text("\n".join(["id,age,left", *rows]))
    words = ["--dataset", "table:big one.csv", "target=left", "network=mlp", "metric=rmse"]
    done = podium(home, "train_and_promote", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "rmse measures regression, but the dataset is classification" in done.stderr
    assert "--resume" not in done.stderr
    _, _, command = done.stderr.splitlines()[-1].partition("this command changes that: ")
    reported = shlex.split(command)
    assert reported == ["podium", "run", "train_and_promote", "dataset=table:big one.csv", "target=left", "network=mlp",
                    "metric=accuracy"]  # fmt: skip


def test_a_mistyped_column_leaves_no_run(home: Path, tmp_path: Path) -> None:
    (tmp_path / "churn.csv").write_text(
        "age,left\n" + "".join(f"{at},{at % 2}\n" for at in range(600))
    )
    done = podium(home, "dataset=table:churn.csv", "target=lefft", "network=mlp", cwd=tmp_path)
    assert (done.returncode, (home / "runs").exists()) == (2, False)
    assert "hint: did you mean left?" in done.stderr


def test_a_sweep_without_metrics_says_why_and_where(
    home: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('Accuracy: 0.95')")
    space = {"name": "lr", "parameterType": "discrete", "feasibleSpace": {"list": ["1", "2"]}}
    container = {
        "name": "training",
        "image": "own",
        "command": ["python", "train.py", "--lr=${trialParameters.lr}"],
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    spec = {
        "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
        "algorithm": {"algorithmName": "grid"}, "parameters": [space],
        "trialTemplate": {"primaryContainerName": "training", "trialSpec": job,
                          "trialParameters": [{"name": "lr", "reference": "lr"}]},
    }  # fmt: skip
    manifest = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "own"},
        "spec": spec,
    }
    (tmp_path / "own.yaml").write_text(json.dumps(manifest))
    done = podium(
        home, "experiment=own.yaml", f"dataset={tiny_dataset}", "max_trials=2", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "`Accuracy: 0.95` is not name=value (line 1)" in done.stderr
    assert "| Accuracy: 0.95" in done.stderr
    log = Path(done.stderr.partition("its whole log: ")[2].partition("\n")[0])
    assert log.read_text().endswith("Accuracy: 0.95\n")
    record = RunRecord.read(only_run(home))
    assert record.cause == 'Accuracy: 0.95, in "Sweep hyperparameters"'
