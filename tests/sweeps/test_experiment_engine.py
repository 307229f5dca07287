"""The trial loop beyond the golden cases: plain ends where Katib waits, logs that stay, the share of cores, asha."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import SEEDED, job, write_experiment

from podium.errors import Conflict, InvalidInput
from podium.manifests.shell import METRICS_FILE, _plain_argv, join, redirected
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps
from podium.system.machine import cores

LOSS = "import sys; print('loss=' + sys.argv[1])"


def experiment(
    script: str = LOSS, *, words: tuple[str, ...] = ("${trialParameters.x}",), **spec: Any
) -> dict[str, Any]:
    """An Experiment over x from 0 to 1 whose trials run a Python script."""
    quoted = "'" + script.replace("'", "'\"'\"'") + "'"
    return write_experiment(job(["python", "-c", quoted, *words]), **{"algorithm": SEEDED, **spec})


def run(
    cluster: LocalSweeps, manifest: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    cluster.create(typed(manifest))
    for _ in cluster.watch("Experiment", "e", timeout=60):
        pass
    assert cluster.join("Experiment", "e", 30)
    return cluster.get("Experiment", "e").manifest, [
        stored.manifest for stored in cluster.list("Trial", {"katib.kubeflow.org/experiment": "e"})
    ]


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with LocalSweeps(tmp_path, fork_server=False) as opened:
        yield opened


def test_a_job_that_ends_without_either_condition_fails(
    cluster: LocalSweeps,
) -> None:
    template = {
        "successCondition": 'status.conditions.#(type=="Never")#',
        "failureCondition": 'status.x.#(y=="z")',
    }
    found, trials = run(
        cluster, experiment(template=template, maxTrialCount=1, maxFailedTrialCount=1)
    )
    assert found["status"]["conditions"][-1]["type"] == "Failed"
    assert (
        "neither success nor failure condition holds"
        in trials[0]["status"]["conditions"][-1]["message"]
    )


def test_a_trial_says_when_it_began_and_ended(cluster: LocalSweeps) -> None:
    found, (trial,) = run(cluster, experiment("print('loss=1')", maxTrialCount=1))
    times = [
        found["status"]["startTime"],
        *(trial["status"][name] for name in ("startTime", "completionTime")),
    ]
    assert times == sorted(times)


def test_without_times_the_latest_value_is_the_one_printed_last(cluster: LocalSweeps) -> None:
    _, trials = run(
        cluster,
        experiment("print('loss=0.3'); print('loss=0.1'); print('loss=0.2')", maxTrialCount=1),
    )
    assert trials[0]["status"]["observation"]["metrics"] == [
        {"name": "loss", "min": "0.1", "max": "0.3", "latest": "0.2"}
    ]


@pytest.mark.parametrize("words", [(), ("$NOTHING",)], ids=["without a shell", "by a shell"])
def test_what_a_container_printed_before_its_restart_is_no_metric(
    words: tuple[str, ...], cluster: LocalSweeps, tmp_path: Path
) -> None:
    program, seen = tmp_path / "program.py", tmp_path / "seen"
    program.write_text(
        f"import os, sys\nagain = os.path.exists({str(seen)!r})\nopen({str(seen)!r}, 'a')\n"
        "print('loss=' + ('0.7' if again else '0.1'))\nsys.exit(not again)"
    )
    manifest = experiment(maxTrialCount=1)
    job = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]
    job["template"]["spec"]["containers"][0]["command"] = [
        "python",
        str(program),
        "${trialParameters.x}",
        *words,
    ]
    job["template"]["spec"]["restartPolicy"], job["backoffLimit"] = "OnFailure", 3
    _, (trial,) = run(cluster, manifest)
    assert trial["status"]["observation"]["metrics"][0]["min"] == "0.7"


@pytest.mark.parametrize("words", [(), ("$NOTHING",)], ids=["without a shell", "by a shell"])
def test_each_pod_of_a_job_reports_and_keeps_its_log(
    words: tuple[str, ...], cluster: LocalSweeps, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nindex = int(os.environ['JOB_COMPLETION_INDEX'])\n"
        f"first = index and not os.path.exists({str(tmp_path / 'seen')!r})\n"
        f"if first: open({str(tmp_path / 'seen')!r}, 'a')\n"
        "print(f'loss={9 if first else index}'.ljust(100, '.'))\nsys.exit(bool(first))"
    )
    manifest = experiment(maxTrialCount=1)
    job = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]
    job |= {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 3}
    command = ["python", str(program), "${trialParameters.x}", *words]
    job["template"]["spec"]["containers"][0]["command"] = command
    _, (trial,) = run(cluster, manifest)
    (loss,) = trial["status"]["observation"]["metrics"]
    assert (loss["min"], loss["max"]) == ("0", "1"), "of the pods that did not fail"
    logs = cluster.store.path("Trial", trial["metadata"]["name"]) / "logs"
    printed = [(logs / f"pod-{number}.log").read_text().count("loss=") for number in range(3)]
    assert printed == [1, 1, 1]


def test_an_ended_experiments_trials_have_all_ended(
    cluster: LocalSweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the disk is slow, and a second trial ends while the result of the first is written."""
    first, update = tmp_path / "first", cluster.store.update

    def slowly(kind: str, name: str, change: Any) -> Any:
        time.sleep(0.4 if kind == "Trial" else 0)
        return update(kind, name, change)

    monkeypatch.setattr(cluster.store, "update", slowly)
    second = f"os.path.exists({str(first)!r}) and time.sleep(0.2)"
    cluster.create(
        typed(
            experiment(
                f"import os, time; print('loss=1'); {second}; open({str(first)!r}, 'w')",
                maxTrialCount=2,
                parallelTrialCount=2,
            )
        )
    )
    for _ in cluster.watch("Experiment", "e", timeout=30):
        pass
    assert [trial.phase for trial in cluster.trials("e")] == ["Succeeded", "Succeeded"]


def test_a_traceback_is_logged_though_a_shell_caught_it(cluster: LocalSweeps) -> None:
    _, trials = run(cluster, experiment("print(1); raise SystemExit('broken')", maxTrialCount=1))
    assert sorted(cluster.logs("Trial", trials[0]["metadata"]["name"])) == ["1", "broken"]


@pytest.mark.parametrize("retain", [False, True])
def test_a_trials_log_stays_readable_without_its_job(retain: bool, cluster: LocalSweeps) -> None:
    _, trials = run(cluster, experiment(template={"retain": retain}))
    assert len(cluster.list("Job")) == (2 if retain else 0)
    for trial in trials:
        value = trial["spec"]["parameterAssignments"][0]["value"]
        assert list(cluster.logs("Trial", trial["metadata"]["name"])) == [f"loss={value}"]


def test_katibs_shell_reads_the_words_behind_an_entrypoint(tmp_path: Path) -> None:
    manifest = experiment(maxTrialCount=1)
    (container,) = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    del container["command"]
    container["args"] = ["loss=$((40+2))", "${trialParameters.x}"]
    with LocalSweeps(tmp_path, entrypoints={"python": ["echo"]}) as cluster:
        _, (trial,) = run(cluster, manifest)
    assert trial["status"]["observation"]["metrics"][0]["latest"] == "42"


@pytest.mark.parametrize("at_once", [1, 2])
def test_trials_share_the_cores_and_know_their_names(at_once: int, cluster: LocalSweeps) -> None:
    script = "import os, sys; print(os.environ['KATIB_TRIAL_NAME'], os.environ['OMP_NUM_THREADS']); print('loss=1')"
    _, trials = run(cluster, experiment(script, parallelTrialCount=at_once))
    for trial in trials:
        name, threads = next(cluster.logs("Trial", trial["metadata"]["name"])).split()
        assert name == trial["metadata"]["name"]
        assert int(threads) == max(1, cores() // at_once)


def test_asha_is_ours_and_runs_to_its_end(cluster: LocalSweeps) -> None:
    settings = [{"name": "r_l", "value": "9"}, {"name": "resource_name", "value": "epochs"}]
    spec = experiment(
        "import sys; print('loss=' + sys.argv[1])",
        words=("${trialParameters.x}", "${trialParameters.epochs}"),
        algorithm={"algorithmName": "asha", "algorithmSettings": settings},
        maxTrialCount=13,
    )
    spec["spec"]["parameters"].append(
        {"name": "epochs", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "9"}}
    )
    spec["spec"]["trialTemplate"]["trialParameters"].append(
        {"name": "epochs", "reference": "epochs"}
    )
    found, trials = run(cluster, spec)
    assert found["status"]["trialsSucceeded"] == 13
    levels = [trial["spec"]["parameterAssignments"][1]["value"] for trial in trials]
    assert set(levels) == {"1", "3", "9"}


def test_a_grid_without_a_limit_ends_when_it_is_exhausted(cluster: LocalSweeps) -> None:
    spec = experiment(algorithm={"algorithmName": "grid"}, maxTrialCount=None)
    spec["spec"]["parameters"][0]["feasibleSpace"]["step"] = "0.5"
    found, trials = run(cluster, spec)
    assert found["status"]["conditions"][-1]["reason"] == "ExperimentSuggestionEndReached"
    assert sorted(trial["spec"]["parameterAssignments"][0]["value"] for trial in trials) == [
        "0.0",
        "0.5",
        "1.0",
    ]


def test_every_value_a_trial_reported_is_kept_beside_it(cluster: LocalSweeps) -> None:
    _, trials = run(
        cluster, experiment("print('2026-01-01T00:00:00Z loss=0.5'); print('loss=0.4')")
    )
    place = cluster.store.path("Trial", trials[0]["metadata"]["name"])
    rows = json.loads((place / "readings.json").read_text())
    assert rows == [
        ["loss", "0.5", "2026-01-01T00:00:00+00:00"],
        ["loss", "0.4", "0001-01-01T00:00:00+00:00"],
    ]


def test_a_template_this_machine_cannot_run_is_refused(cluster: LocalSweeps) -> None:
    spec = experiment()
    pod = spec["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/data"}]
    with pytest.raises(InvalidInput):
        cluster.create(typed(spec))
    assert cluster.list("Experiment") == []


def test_more_trials_at_once_than_a_machine_runs_are_refused(cluster: LocalSweeps) -> None:
    spec = experiment(maxTrialCount=1001, parallelTrialCount=1001)
    with pytest.raises(InvalidInput, match="parallelTrialCount <= 1000 on one machine"):
        cluster.create(typed(spec))
    assert cluster.list("Experiment") == []


def test_a_name_that_is_taken_is_a_conflict(cluster: LocalSweeps) -> None:
    run(cluster, experiment(maxTrialCount=1))
    with pytest.raises(Conflict):
        cluster.create(typed(experiment(maxTrialCount=1)))


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("python -m podium.trainer --lr=0.1", ["python", "-m", "podium.trainer", "--lr=0.1"]),
        ("python  a.py\t'two words' it='s'", ["python", "a.py", "two words", "it=s"]),
        ("/usr/bin/env python ümlaut", ["/usr/bin/env", "python", "ümlaut"]),
        ("python a.py $HOME", None),
        ("python a.py a*b", None),
        ("python a.py; echo", None),
        ("python a.py > log", None),
        ('python a.py "x"', None),
        ("python a.py it's", None),
        ("python a.py a\nb", None),
        ("python a.py ~", None),
        ("A=1 python a.py", None),
        ("exec python a.py", None),
        ("", None),
    ],
)
def test_a_command_is_only_split_where_a_shell_would(line: str, argv: list[str] | None) -> None:
    assert _plain_argv(line) == argv


def test_the_wrapped_line_is_katibs() -> None:
    assert join(["python", "a.py", "--x", "a b"]) == (("sh", "-c"), "python a.py --x a b")
    assert join(["bash", "-c", "a && b"]) == (("bash", "-c"), "a && b")
    assert (
        redirected("python a.py", METRICS_FILE) == "python a.py 1>/var/log/katib/metrics.log 2>&1"
    )


@pytest.mark.parametrize("words", [(), ("$NOTHING",)], ids=["without a shell", "by a shell"])
def test_a_failed_trial_says_its_exception(words: tuple[str, ...], cluster: LocalSweeps) -> None:
    manifest = experiment(
        "print('loss=1', flush=True); raise ValueError('no such city: Ulm')", maxTrialCount=1
    )
    job = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]
    job["template"]["spec"]["containers"][0]["command"] += words
    cluster.create(typed(manifest))
    for _ in cluster.watch("Experiment", "e", timeout=60):
        pass
    (trial,) = cluster.trials("e")
    assert trial.phase == "Failed"
    assert trial.message == "ValueError: no such city: Ulm"
    assert trial.state.message.startswith(f"Trial has failed: {trial.message}. Job message: ")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("print(1, flush=True); os.kill(os.getpid(), 9)", "used up; its last line: 1"),
        ("os._exit(3)", "exit code 3"),
        ("print(1); sys.exit(144)", "Trial has failed: 1"),
        ("print('epoch 1 loss=0.5'); sys.exit(3)", "exit code 3; its last line: epoch 1 loss=0.5"),
    ],
)
def test_a_trial_without_last_words_says_how_it_ended(
    ends: str, said: str, cluster: LocalSweeps
) -> None:
    _, (trial,) = run(cluster, experiment(f"import os, sys; {ends}", maxTrialCount=1))
    (failed,) = (each for each in trial["status"]["conditions"] if each["type"] == "Failed")
    assert said in failed["message"]
