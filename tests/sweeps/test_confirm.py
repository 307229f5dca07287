"""The best trials run again with fresh seeds, and the best mean is chosen; trials are processes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import SEEDED, job, space, write_experiment

import podium
from podium.api.trials import TrialReader
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, Trial, check, leaderboard
from podium.manifests.experiment.trainer import set_seed
from podium.manifests.labels import REPEATS, SEED
from podium.manifests.options import annotation, describe, forecast, read_settings
from podium.manifests.options.budget import Budget, Spending
from podium.manifests.options.confirm import Confirm
from podium.sweeps.local import LocalSweeps

LUCKY = """
import os, sys
x, seed = sys.argv[1], os.environ.get("PODIUM_SEED", "")
values = {"a": "0.1" if not seed else "0.9", "b": "0.2", "c": "0.3", "d": "0.8"}
print(f"loss={values[x]}")
"""
"""``a`` is the best once, by luck: with a fresh seed it is the worst."""


def lucky(folder: Path, program: str = LUCKY, words: tuple[str, ...] = (), **spec: Any) -> dict:
    (folder / "program.py").write_text(program)
    command = ["python", str(folder / "program.py"), "${trialParameters.x}", *words]
    given = {
        "algorithm": {"algorithmName": "grid"},
        "parameters": [space("x", "categorical", list=["a", "b", "c", "d"])],
        "maxTrialCount": 4,
        "parallelTrialCount": 2,
        "resumePolicy": "LongRunning",
    }
    return write_experiment(job(command), name="sweep", **{**given, **spec})


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., podium.Sweep]:
    """Runs a sweep of LUCKY with what it is asked."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))

    def run(spec: dict[str, Any] | None = None, **asked: Any) -> podium.Sweep:
        return podium.sweep(lucky(tmp_path, **(spec or {})), **asked)

    return run


def test_a_lucky_trial_is_not_the_best(sweep: Callable[..., podium.Sweep]) -> None:
    begun = sweep(confirm="3x2")
    experiment, trials = begun.experiment, begun.results
    found = {trial.assignments["x"]: trial for trial in trials if not trial.repeats}
    again = [trial for trial in trials if trial.repeats]
    assert sorted(trial.assignments["x"] for trial in again) == ["a", "a", "b", "b", "c", "c"]
    assert begun.best.name == found["b"].name
    assert begun.best.value == pytest.approx(0.2)
    assert experiment.optimal_trial == found["b"].name
    assert experiment.trial_count == 4, "the fresh runs are not trials of the search"
    assert experiment.status["trialsSucceeded"] == 4
    ranked = leaderboard(trials)
    assert [trial.assignments["x"] for trial in ranked[:4]] == ["b", "c", "a", "d"]
    assert ranked[2].value == pytest.approx(0.9), "the figure it was chosen by is not reported"
    assert ranked[2].note == "mean 0.9000 of 2 fresh runs, 0.9000 to 0.9000; 0.1000 when found"
    assert f"{found['b'].name} is the best of 3 by its fresh runs: loss 0.2000" in (
        experiment.state.message
    )


def test_of_equal_means_the_better_trial_is_chosen(
    sweep: Callable[..., podium.Sweep], tmp_path: Path
) -> None:
    program = LUCKY.replace('"0.9"', '"0.5"').replace(
        '"b": "0.2"', '"b": "0.2" if not seed else "0.5"'
    )
    begun = podium.sweep(lucky(tmp_path, program), confirm="2x2")
    assert begun.best.parameters == {"x": "a"}
    assert begun.experiment.optimal_trial == begun.best.name


def test_a_mean_stays_as_near_as_its_runs_are(sweep: Callable[..., podium.Sweep]) -> None:
    unsteady = LUCKY.replace('"0.9"', '"%.1f" % (0.5 + int(seed) % 7 / 10)').replace("0.2", "0.4")
    best = sweep({"program": unsteady}, confirm="3x3").best
    assert (best.parameters, best.value) == ({"x": "c"}, pytest.approx(0.3))


def test_no_confirmed_trial_has_a_better_figure_than_the_best(
    sweep: Callable[..., podium.Sweep],
) -> None:
    unsteady = LUCKY.replace('"0.9"', '"%.3f" % (int(seed) % 7 / 14)').replace(
        '"b": "0.2"', '"b": "0.2" if not seed else "%.1f" % (int(seed) % 7 * 0.4 - 0.7)'
    )
    begun = sweep({"program": unsteady}, confirm="3x3")
    ranked = leaderboard(begun.results)[:3]
    assert [trial.assignments["x"] for trial in ranked] == ["c", "a", "b"]
    figures = [trial.value for trial in ranked]
    assert figures == sorted(figures), "a's runs have a lower mean, but lie far apart"
    assert (begun.best.value, begun.experiment.optimal_trial) == (figures[0], begun.best.name)


def test_without_it_the_luckiest_is_the_best(sweep: Callable[..., podium.Sweep]) -> None:
    assert sweep().best.parameters == {"x": "a"}


def test_each_of_the_best_gets_the_same_recorded_seeds(
    sweep: Callable[..., podium.Sweep],
) -> None:
    begun = sweep(confirm={"top": 2, "seeds": 3})
    seeds = list(map(str, Confirm(top=2, seeds=3).fresh_seeds(begun.experiment)))
    runs = [trial for trial in begun.results if trial.repeats]
    for name in {trial.repeats for trial in runs}:
        assert [run.labels[SEED] for run in runs if run.repeats == name] == seeds
    for run in runs:
        env = run.workload.manifest["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "PODIUM_SEED", "value": run.labels[SEED]} in env


def test_a_flag_of_the_command_gets_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    manifest = lucky(tmp_path, words=("--seed", "1"), maxTrialCount=1, parallelTrialCount=1)
    begun = podium.sweep(manifest, confirm="1x1")
    [run] = [trial for trial in begun.results if trial.repeats]
    command = run.workload.manifest["spec"]["template"]["spec"]["containers"][0]
    words = [*command["command"], *command["args"]]
    assert words[-1] == f"--seed={run.labels[SEED]}"
    assert "1" not in words


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (["seed=1"], ["seed={}"]),
        (["++trainer.seed=1"], ["++trainer.seed={}"]),
        (["--random_state", "1"], ["--random_state", "{}"]),
        (["--manual-seed=1", "x"], ["--manual-seed={}", "x"]),
        (["--seed_everything", "true"], ["--seed_everything", "true"]),
        (["--seeds=1", "reseed=1", "state=1"], ["--seeds=1", "reseed=1", "state=1"]),
        (["data.seed=1", "--cfg.split.seed", "1"], ["data.seed=1", "--cfg.split.seed", "1"]),
        (["cv.seed=1", "--k_fold.seed", "1"], ["cv.seed=1", "--k_fold.seed", "1"]),
        (["cvae.seed=1", "--crossformer.seed=1"], ["cvae.seed={}", "--crossformer.seed={}"]),
    ],
)
def test_a_word_that_names_the_seed_gets_it(given: list[str], written: list[str]) -> None:
    container: dict[str, Any] = {"command": ["python", "train.py"], "args": given}
    set_seed(container, "77", quoted=False)
    assert container["args"] == [word.format("77") for word in written]


@pytest.mark.parametrize(("program", "warns"), [(LUCKY, False), ("print('loss=1')", True)])
def test_fresh_runs_that_repeat_the_result_get_a_warning(
    sweep: Callable[..., podium.Sweep], program: str, warns: bool
) -> None:
    begun = sweep({"program": program}, confirm="2x2")
    said = TrialReader(begun.cluster, begun.name).warning(logs="")
    assert ("of sweep-" in said and "whatever the seed" in said) is warns


FAILING = LUCKY.replace("print", 'if x == "b" and seed: sys.exit(1)\nprint')


def test_a_trial_whose_fresh_run_fails_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    begun = podium.sweep(
        lucky(tmp_path, FAILING, maxFailedTrialCount=1, parallelTrialCount=1), confirm="3x2"
    )
    assert begun.experiment.state.succeeded, "fresh runs that fail do not fail the sweep"
    assert begun.best.parameters == {"x": "c"}


def test_when_all_fresh_runs_fail_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    begun = podium.sweep(
        lucky(tmp_path, LUCKY.replace("print", "if seed: sys.exit(1)\nprint")), confirm="1x1"
    )
    assert begun.best.parameters == {"x": "a"}
    assert "the best trial is not confirmed: none of the best" in begun.experiment.state.message


SLOW = (
    LUCKY
    + """
print("ms=" + ("21" if seed and x in "ab" else "19"))
"""
)


def test_a_bound_broken_in_fresh_runs_disqualifies(
    sweep: Callable[..., podium.Sweep], tmp_path: Path
) -> None:
    begun = podium.sweep(lucky(tmp_path, SLOW), confirm="2x2", constraints=["ms<=20"])
    ranked = leaderboard(begun.results)
    assert begun.best.parameters == ranked[0].parameters == {"x": "c"}
    assert begun.experiment.optimal_trial == begun.best.name
    assert begun.experiment.state.message.endswith(
        "; the best trial is not confirmed: in its fresh runs "
        f"{ranked[2].name} is infeasible: ms 21 breaks ms<=20"
    )


KILLED = """
import json, sys
from pathlib import Path
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

with LocalSweeps(Path(sys.argv[1]), fork_server=False) as cluster:
    cluster.create(typed(json.loads(sys.argv[2])))
    for _ in cluster.watch("Experiment", "sweep", timeout=120):
        pass
"""

BLOCKING = LUCKY.replace(
    "print",
    """
import pathlib, time
here = pathlib.Path(__file__).parent
if seed and x == "c":
    (here / "blocked").touch()
    while not (here / "go").exists():
        time.sleep(0.05)
print""",
)


@pytest.mark.whole
def test_fresh_runs_go_on_after_a_kill(tmp_path: Path) -> None:
    manifest = lucky(tmp_path, BLOCKING, parallelTrialCount=1)
    manifest["metadata"]["annotations"] = annotation(read_settings({"confirm": "3x2"}))
    words = [sys.executable, "-c", KILLED, str(tmp_path / "cluster"), json.dumps(manifest)]
    process = subprocess.Popen(words, start_new_session=True)
    while not (tmp_path / "blocked").exists():
        assert process.poll() is None
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as cluster:
        before = {trial.name for trial in cluster.trials("sweep") if trial.repeats}
        assert before
        cluster.resume("Experiment", "sweep")
        for _ in cluster.watch("Experiment", "sweep", timeout=300):
            pass
        trials = [trial for trial in cluster.trials("sweep") if trial.repeats]
    assert before < {trial.name for trial in trials}
    pairs = [(trial.labels[REPEATS], trial.labels[SEED]) for trial in trials]
    assert len(pairs) == len(set(pairs)) == 6, "each runs once"


def test_more_trials_are_confirmed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    begun = podium.sweep(
        lucky(
            tmp_path,
            LUCKY.replace("[x]", "['abcd'[int(10 * float(x)) % 4]]"),
            algorithm=SEEDED,
            parameters=[space("x", min="0", max="1")],
            maxTrialCount=2,
        ),
        confirm="2x2",
    )
    first = {trial.name for trial in begun.results if trial.repeats}
    begun.resume(trials=6)
    assert begun.experiment.trial_count == 6
    assert first <= {trial.name for trial in begun.results if trial.repeats}
    assert begun.best_trial.name == begun.experiment.optimal_trial


def test_a_deterministic_sweep_confirms_the_same(sweep: Callable[..., podium.Sweep]) -> None:
    spec = {"algorithm": {"algorithmName": "random"}}
    chosen = []
    for name in ("one", "two"):
        begun = sweep(spec, confirm="2x2", deterministic=4, name=name)
        runs = [trial for trial in begun.results if trial.repeats]
        chosen.append(
            (begun.best.parameters, sorted((r.assignments["x"], r.labels[SEED]) for r in runs))
        )
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    ("asked", "spec", "message"),
    [
        ({"confirm": "3"}, {}, "the number of trials and of seeds, but got '3'"),
        ({"confirm": "0x3"}, {}, "the number of trials and of seeds, but got '0x3'"),
        ({"confirm": {"top": 3}}, {}, "the number of trials and of seeds"),
        ({"confirm": "5x3"}, {}, "takes the best 5 of 4 trials"),
        ({"confirm": "3x1"}, {}, "would report the one run that each is chosen by"),
        ({"confirm": "2x2", "objectives": ["min:size"]}, {}, "there are several"),
    ],
)
def test_what_cannot_be_confirmed_is_refused(
    asked: dict[str, Any],
    spec: dict[str, Any],
    message: str,
    sweep: Callable[..., podium.Sweep],
) -> None:
    with pytest.raises(InvalidInput, match=message):
        sweep(spec, **asked)


def test_trials_that_inherit_weights_are_refused(tmp_path: Path) -> None:
    settings = {"suggestion_trial_dir": "/d", "n_population": "5", "truncation_threshold": "0.4"}
    listed = [{"name": name, "value": value} for name, value in settings.items()]
    manifest = lucky(
        tmp_path,
        algorithm={"algorithmName": "pbt", "algorithmSettings": listed},
        parameters=[space("x", min="0", max="1")],
        maxTrialCount=10,
    )
    manifest["metadata"]["annotations"] = annotation({"confirm": "2x2"})
    with pytest.raises(InvalidInput, match="continues from the weights of another"):
        check(Experiment.parse(manifest))


def test_its_share_is_said_before(tmp_path: Path) -> None:
    manifest = lucky(tmp_path, maxTrialCount=21)
    manifest["metadata"]["annotations"] = annotation({"confirm": "3x3", "max_time": "100s"})
    experiment = Experiment.parse(manifest)
    assert describe(experiment)["confirm"] == (
        "the best 3 run again with 3 fresh seeds each, 30% of all runs; the best mean wins"
    )
    ended = [_trial("one", 0, 10)]
    assert "about 11 of 21 trials and 9 runs of the best again fit" in forecast(experiment, ended)


def test_a_budget_leaves_room_for_the_fresh_runs() -> None:
    now = [0.0]
    budget = Budget.of({"max_time": "100s"})
    assert budget
    spending = Spending(budget, lambda: now[0], reserved=4, parallel=2)
    begun = _trial("one", 0, 10)
    spending.begin([begun])
    now[0] = 0.0
    assert spending.has_room()
    spending.begin([_trial(f"t{at}", 10 * at, 10 * at + 10) for at in range(1, 8)])
    assert not spending.has_room(), "80 s are used, and two rounds of 10 s are reserved"


def _trial(name: str, start: float, end: float) -> Trial:
    from datetime import UTC, datetime

    stamps = [datetime.fromtimestamp(at, UTC).isoformat() for at in (start, end)]
    return Trial(
        manifest={
            "kind": "Trial",
            "metadata": {"name": name},
            "spec": {
                "objective": {"type": "minimize", "objectiveMetricName": "loss"},
                "runSpec": job(["true"]),
            },
            "status": {
                "startTime": stamps[0],
                "completionTime": stamps[1],
                "conditions": [{"type": "Succeeded", "status": "True"}],
            },
        }
    )
