"""What outlives a sweep: the best trials' weights, every trial's record, and what the next sweep learns from it."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_experiment_engine import experiment, run

from podium.errors import InvalidInput, NotFound
from podium.manifests.options import annotation
from podium.manifests.typed import typed
from podium.sweeps.file_documents import FileDocuments
from podium.sweeps.local import LocalSweeps
from podium.training.retention import Retention

TRAINER = """
import json, sys
from pathlib import Path
place = Path(sys.argv[2].partition("=")[2])
(place / "more").mkdir(parents=True)
for name in ("metrics.json", "hyperparameters.json", "environment.json"):
    (place / name).write_text("{}")
for name in ("model.onnx", "more/checkpoint.pt"):
    (place / name).write_bytes(b"w" * 1000)
print("loss=" + sys.argv[1])
raise SystemExit(float(sys.argv[1]) > 0.9)
"""
RECORD = {"environment.json", "hyperparameters.json", "metrics.json"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as opened:
        yield opened


def sweep(output: str | None, **spec: Any) -> dict[str, Any]:
    words = (
        "${trialParameters.x}",
        *([f"'--output={output}/${{trialParameters.name}}'"] if output else []),
    )
    template = {"trialParameters": [{"name": "x", "reference": "x"}]}
    if output:
        template["trialParameters"].append({"name": "name", "reference": "${trialSpec.Name}"})
    return experiment(
        TRAINER, words=words, template=template, maxTrialCount=4, parallelTrialCount=2, **spec
    )


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def test_only_the_best_keep_their_weights_and_every_record_stays(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    models = tmp_path / "my models"
    _, trials = run(cluster, sweep(str(models)))
    ranked = sorted(
        trials, key=lambda trial: float(trial["spec"]["parameterAssignments"][0]["value"])
    )
    names = [trial["metadata"]["name"] for trial in ranked]
    found = Retention.plan(cluster, "e", best=2)
    assert found.kept == tuple(names[:2])
    weights = (("model.onnx", "more/checkpoint.pt"), 2000)
    assert {
        removed.trial: (removed.keys, removed.size) for removed in found.removed
    } == dict.fromkeys(names[2:], weights)
    assert all((models / name / "model.onnx").exists() for name in names), "a plan removes nothing"
    before = [stored.manifest for stored in cluster.list("Trial")]
    found.remove()
    for name in names[:2]:
        assert files(models / name) == RECORD | {"model.onnx", "more/checkpoint.pt"}
    for name in names[2:]:
        assert files(models / name) == RECORD
    assert [stored.manifest for stored in cluster.list("Trial")] == before
    assert Retention.plan(cluster, "e", best=2).removed == (), (
        "the second time there is nothing to do"
    )


def test_failed_trials_lose_their_weights_and_running_ones_not(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    spec = sweep(str(tmp_path / "models"))
    spec["spec"]["parameters"][0]["feasibleSpace"] = {"min": "0.5", "max": "1.5"}
    run(cluster, spec)
    trials = [stored.manifest for stored in cluster.list("Trial")]
    states = {
        trial["metadata"]["name"]: trial["status"]["conditions"][-1]["type"] for trial in trials
    }
    assert set(states.values()) == {"Succeeded", "Failed"}
    found = Retention.plan(cluster, "e", best=4)
    assert {removed.trial for removed in found.removed} == {
        name for name, state in states.items() if state == "Failed"
    }
    for name in states:  # as while it runs
        status = {
            "conditions": [
                {"type": "Running", "status": "True", "reason": "TrialRunning", "message": ""}
            ]
        }
        cluster.store.update(
            "Trial", name, lambda trial, status=status: trial.update(status=status)
        )
    assert Retention.plan(cluster, "e", best=1).removed == ()
    cluster.close()
    with LocalSweeps(
        cluster.store.directory, fork_server=False
    ) as other:  # as after a kill: they will run again
        assert Retention.plan(other, "e", best=1).removed == ()


@pytest.mark.parametrize("output", [None, "relative/models"])
def test_nothing_is_removed_where_trials_share_an_output(
    output: str | None, cluster: LocalSweeps
) -> None:
    spec = sweep(output) if output else experiment()
    run(cluster, spec)
    with pytest.raises(InvalidInput, match="--output") as caught:
        Retention.plan(cluster, "e", best=1)
    assert "trialSpec.Name" in str(caught.value.hint)


def test_a_full_disk_leaves_no_half_of_the_readings(cluster: LocalSweeps) -> None:
    _, trials = run(cluster, experiment(maxTrialCount=1))
    documents, trial = FileDocuments(cluster, "e"), cluster.trial(trials[0]["metadata"]["name"])
    before = documents.readings(trial)
    before_that = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9999, before_that[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            documents.write(trial, [*before] * 999)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before_that)
    assert before
    assert documents.readings(trial) == before


def test_keeping_needs_one_trial_and_an_existing_sweep(cluster: LocalSweeps) -> None:
    with pytest.raises(InvalidInput, match="best >= 1"):
        Retention.plan(cluster, "e", best=0)
    with pytest.raises(NotFound):
        Retention.plan(cluster, "nobody", best=1)


def test_optuna_finds_the_trials_of_a_sweep_in_its_journal(cluster: LocalSweeps) -> None:
    import optuna

    _, trials = run(cluster, experiment(maxTrialCount=3))
    journal = cluster.store.path("Experiment", "e") / "optuna.journal"
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(journal))
    )
    (summary,) = optuna.get_all_study_summaries(storage)
    study = optuna.load_study(study_name=summary.study_name, storage=storage)
    values = {
        trial["metadata"]["name"]: float(trial["spec"]["parameterAssignments"][0]["value"])
        for trial in trials
    }
    assert {
        trial.user_attrs["trial"]: (trial.params["x"], trial.value) for trial in study.trials
    } == {name: (value, value) for name, value in values.items()}


@pytest.mark.parametrize("ended", ["by its last trial", "by its goal"])
def test_no_trial_of_an_ended_study_is_left_running(ended: str, tmp_path: Path) -> None:
    reached, slow = (
        ended == "by its goal",
        "import os, sys, time; time.sleep(30 * os.path.exists(sys.argv[2]))\n",
    )
    script = slow + "open(sys.argv[2], 'x'); print('loss=0')" if reached else "print('loss=1')"
    manifest = experiment(
        script, words=("${trialParameters.x}", str(tmp_path / "done")), maxTrialCount=2
    )
    manifest["spec"]["objective"]["goal"] = 0
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as cluster:
        cluster.create(
            typed(manifest | {"spec": manifest["spec"] | {"parallelTrialCount": 1 + reached}})
        )
        for _ in cluster.watch("Experiment", "e", timeout=60):
            pass  # and as a pipeline's sweep does, close the cluster as soon as it has ended
    found = [trial.state.name for trial in study_of(cluster).trials]
    assert found.count("COMPLETE") == 2 - reached
    assert "RUNNING" not in found


def earlier(cluster: LocalSweeps, name: str, count: int) -> list[float]:
    """Run a random sweep that ends with these many trials; return their values."""
    manifest = experiment(maxTrialCount=count)
    manifest["metadata"]["name"] = name
    cluster.create(typed(manifest))
    assert cluster.join("Experiment", name, 60)
    trials = [
        stored.manifest for stored in cluster.list("Trial", {"katib.kubeflow.org/experiment": name})
    ]
    return [float(trial["spec"]["parameterAssignments"][0]["value"]) for trial in trials]


def warm(algorithm: str = "tpe", names: str = "first", **spec: Any) -> dict[str, Any]:
    settings = [] if algorithm == "cmaes" else [{"name": "random_state", "value": "1"}]
    manifest = experiment(
        algorithm={"algorithmName": algorithm, "algorithmSettings": settings}, **spec
    )
    manifest["metadata"]["annotations"] = annotation({"warm_start": names})
    return manifest


def study_of(cluster: LocalSweeps) -> Any:
    import optuna

    journal = cluster.store.path("Experiment", "e") / "optuna.journal"
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    return optuna.load_study(study_name="e", storage=optuna.storages.JournalStorage(backend))


def test_a_warm_sweep_knows_the_earlier_trials_without_counting_them(cluster: LocalSweeps) -> None:
    values = earlier(cluster, "first", 2) + earlier(cluster, "second", 1)
    found, trials = run(cluster, warm(names="first, second", maxTrialCount=1))
    assert (len(trials), found["status"]["trials"]) == (1, 1)
    assert "warm from 3 trials" in found["status"]["conditions"][0]["message"]
    known = study_of(cluster).trials
    assert sorted(trial.value for trial in known[:3]) == sorted(values)
    assert {trial.user_attrs["from"][:5] for trial in known[:3]} == {"first", "secon"}


def test_a_warm_sweep_goes_on_without_its_sources(cluster: LocalSweeps) -> None:
    earlier(cluster, "first", 2)
    run(cluster, warm(resumePolicy="LongRunning", maxTrialCount=1))
    cluster.delete("Experiment", "first")
    cluster.resume("Experiment", "e", {"maxTrialCount": 2})
    assert cluster.join("Experiment", "e", 60)
    assert len(study_of(cluster).trials) == 2 + 2


def test_a_warm_start_moves_the_first_point_toward_good_ones(tmp_path: Path) -> None:
    from podium.search.algorithm import PastTrial
    from podium.search.search import Search
    from podium.search.space import Parameter

    space = [
        Parameter(name="x", kind="double", low=0.0, high=1.0),
        Parameter(name="y", kind="double", low=0.0, high=1.0),
        Parameter(name="word", kind="categorical", choices=("a", "b")),
    ]
    known = [
        PastTrial(
            trial=f"t{i}",
            point={"x": repr(i / 20), "y": "0.2", "word": "a"},
            value=abs(i / 20 - 0.8),
        )
        for i in range(20)
    ]
    for algorithm in ("tpe", "multivariate-tpe", "bayesianoptimization", "cmaes"):
        far = []
        for seed in range(1 if algorithm == "bayesianoptimization" else 5):
            settings = (
                {"random_state": seed, "n_startup_trials": 0}
                if "multi" in algorithm
                else {"random_state": seed}
            )
            place = tmp_path / f"{algorithm}{seed}"
            search = Search(
                space, algorithm, settings, maximize=False, directory=place, name="s", earlier=known
            )
            point = search.ask("new")
            assert point
            far.append(abs(float(point["x"]) - 0.8))
        assert sorted(far)[len(far) // 2] < 0.2, (algorithm, far)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"algorithm": "random"},
            "random does not learn from earlier trials, which warm_start asks for",
        ),
        ({"objective": {"type": "maximize", "objectiveMetricName": "loss"}}, "the same objective"),
        (
            {"parameters": "narrow"},
            "needs at least 1 finished trials of first within the search space",
        ),
        (
            {"parameters": "other"},
            "needs at least 1 finished trials of first within the search space",
        ),
        ({"algorithm": "cmaes", "parameters": "two"}, "at least 10 finished trials"),
        ({"names": "nobody"}, "no Experiment nobody"),
    ],
)
def test_an_impossible_warm_start_is_refused_before_storing(
    change: dict[str, Any], message: str, cluster: LocalSweeps
) -> None:
    earlier(cluster, "first", 1)
    spaces = {
        "narrow": [("x", "5", "6")],
        "other": [("x", "0", "1"), ("z", "0", "1")],
        "two": [("x", "0", "1"), ("z", "0", "1")],
    }
    wanted = spaces.get(str(change.pop("parameters", "")))
    manifest = warm(**change)
    if wanted:
        spec = manifest["spec"]
        spec["parameters"] = [
            {"name": name, "parameterType": "double", "feasibleSpace": {"min": low, "max": high}}
            for name, low, high in wanted
        ]
        spec["trialTemplate"]["trialParameters"] = [
            {"name": name, "reference": name} for name, _, _ in wanted
        ]
        pod = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
        pod["containers"][0]["args"] = [f"${{trialParameters.{name}}}" for name, _, _ in wanted]
    with pytest.raises((InvalidInput, NotFound)) as caught:
        cluster.create(typed(manifest))
    assert message in caught.value.message
    assert caught.value.hint
    assert [experiment.name for experiment in cluster.list("Experiment")] == ["first"]
