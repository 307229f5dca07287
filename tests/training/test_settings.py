"""Settings of the launching steps: checked when they are made, before anything starts."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput, PodiumError
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.build import locate
from podium.manifests.experiment.rules import check
from podium.steps.sweep import SweepSettings, _first_failure, _time_left, _to_be_shown
from podium.training.dataset import DataSettings
from podium.training.identity import RunIdentity, StepContext, storage_url
from podium.training.recipe import TRAINER, Recipe
from podium.training.settings import PlannedTraining, TrainSettings
from podium.training.target import LaunchTarget

RUN = RunIdentity(id="run-1")


def sweep(**settings: Any) -> SweepSettings:
    return SweepSettings(
        **{"experiment": "random", "max_trials": 4, "parallel_trials": 2, **settings}
    )


def target(**settings: Any) -> LaunchTarget:
    return LaunchTarget(**{"trainer_image": "trainer:1", **settings})


def recipe(**hyperparameters: Any) -> str:
    return Recipe.of_command(TRAINER, hyperparameters).to_text()


def planned(settings: TrainSettings, tmp_path: Path) -> PlannedTraining:
    step = StepContext.of(RUN, str(tmp_path))
    return settings.plan("s3://b/data", "train-1", target=target(trainer_image=""), step=step)


def adapted(settings: SweepSettings, **target_settings: Any) -> Experiment:
    launched = target(**target_settings)
    experiment = settings.adapt(launched, name="sweep-1", run=RUN)
    return launched.place(locate(experiment, data="s3://b/data", root="s3://b/trials"))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: sweep(max_trials=0), "max_trials >= 1"),
        (lambda: sweep(parallel_trials=0), "parallel_trials >= 1"),
        (lambda: sweep(trial_epochs=-2), "trial_epochs >= -1"),
        (lambda: sweep(trial_workers=-1), "trial_workers >= 0"),
        (lambda: sweep(seed=-1), "0 <= seed"),
        (lambda: sweep(confirm="three"), "the number of trials and of seeds, but got 'three'"),
        (lambda: TrainSettings(epochs=-2), "epochs >= -1"),
        (lambda: TrainSettings(workers=-2), "workers >= -1"),
        (lambda: TrainSettings(seed=2**32), "0 <= seed"),
        (lambda: target(gpus_per_worker=-1), "gpus_per_worker >= 0"),
        (
            lambda: TrainSettings(command=["sh", "-c", "x"], hyperparameters={"lr": 1}),
            "a shell takes no hyperparam",
        ),
        (
            lambda: TrainSettings(command=["python", "train.py"], network="fast"),
            "network=fast is for podium's trainer",
        ),
        (lambda: TrainSettings(command="python train.py"), "command is a list of words"),
        (lambda: target(predict="python predict.py"), "predict is a list of words"),
        (lambda: target(cluster="cloud://nine"), "use kubernetes://namespace"),
        (lambda: target(pods={"gpu": 1}), "GPUs are gpus_per_worker"),
        (lambda: DataSettings(limit=19), "limit >= 20"),
        (lambda: DataSettings(dataset="mnits"), "did you mean mnist"),
        (lambda: DataSettings(dataset="tabel:houses.csv"), "no source is called 'tabel'"),
        (
            lambda: DataSettings(dataset="table:houses.csv", source="x"),
            "source is for mnist and fashion-mnist",
        ),
        (lambda: DataSettings(data_options={"grup": "city"}), "data_options has no 'grup'"),
        (lambda: DataSettings(dataset="table:x", data_options={"test": 1.5}), "0 < test < 1"),
        (
            lambda: DataSettings(dataset="table:x", data_options={"gap": 3}),
            "a gap of 3 needs a time",
        ),
        (lambda: DataSettings(data_options={"split_seed": -1}), "0 <= split_seed"),
        (lambda: DataSettings(dataset="s3://data/prepared", limit=50), "taken as it is"),
    ],
)
def test_settings_that_break_a_rule_cannot_be_made(make: Callable[[], Any], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        make()


def test_an_adapted_experiment_carries_settings_and_target() -> None:
    experiment = adapted(sweep(parallel_trials=9, trial_workers=1), pods={"queue": "team"})
    assert (experiment.limits.max_trials, experiment.limits.parallel) == (4, 4)
    assert {replica.role: replica.count for replica in experiment.template.workload.replicas} == {
        "Master": 1, "Worker": 1,
    }  # fmt: skip
    check(experiment)


@pytest.mark.parametrize(("seed", "state"), [(7, "7"), (0, "1")])
def test_the_seed_also_seeds_the_search(seed: int, state: str) -> None:
    algorithm = adapted(sweep(seed=seed)).manifest["spec"]["algorithm"]
    assert algorithm["algorithmSettings"] == [{"name": "random_state", "value": state}]


def test_a_sweep_of_a_run_may_confirm_its_best_trials() -> None:
    assert adapted(sweep(confirm="2x3")).asked == {"confirm": "2x3"}
    assert adapted(sweep()).asked == {}


def test_an_unknown_algorithm_gets_no_seed() -> None:
    text = Experiment.load("random").changed(
        lambda manifest: manifest["spec"].update(algorithm={"algorithmName": "own"})
    )
    algorithm = adapted(sweep(experiment=json.dumps(text.manifest), seed=7)).manifest["spec"][
        "algorithm"
    ]
    assert algorithm == {"algorithmName": "own"}


def test_models_go_beside_the_data_unless_a_storage_is_given() -> None:
    assert storage_url("", "minio://bucket/data") == "minio://bucket/podium"
    assert storage_url("file:///m/", "s3://b/d") == "file:///m"
    assert StepContext.of(RUN, "file:///m/").url("train-1") == "file:///m/runs/run-1/train-1"
    with pytest.raises(PodiumError, match="is not in a bucket"):
        storage_url("", "/tmp/data")


def test_a_launch_outside_a_pod_needs_a_cluster() -> None:
    assert target(cluster="local:///here").cluster_url() == "local:///here"
    with pytest.raises(PodiumError, match="no cluster is given"):
        target().cluster_url()


def test_a_bundled_experiment_takes_the_quickest_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken = [adapted(sweep(network=network)).template.workload for network in ("", "tutorial")]
    words = [workload.replicas[0].pod.containers[0].words for workload in taken]
    assert "--model=fast" in words[0]
    assert "--model=tutorial" in words[1]
    own = Path("random")
    own.write_text(json.dumps(Experiment.load("random").manifest))
    assert not [
        word
        for word in adapted(sweep()).template.workload.replicas[0].pod.containers[0].words
        if "model" in word
    ]


@pytest.mark.parametrize(
    ("meaning", "trained", "swept", "auto"),
    [
        ("image", "fast", "fast", "fast"),
        ("table", "trees", "mlp", ""),
        ("array", "mlp", "mlp", "mlp"),
    ],
)
def test_the_network_that_nobody_names_follows_the_data(
    meaning: str, trained: str, swept: str, auto: str
) -> None:
    assert replace(TrainSettings(), data_meaning=meaning).fixed(gpus=0)["model"] == trained
    assert (
        replace(TrainSettings(network="best"), data_meaning=meaning).fixed(gpus=0)["model"]
        == "best"
    )
    assert replace(sweep(), data_meaning=meaning).model == swept
    assert replace(sweep(experiment="auto"), data_meaning=meaning).model == auto
    assert replace(sweep(network="best"), data_meaning=meaning).model == "best"


@pytest.mark.parametrize(
    ("meaning", "network", "name"),
    [
        ("image", "", "random"),
        ("table", "", "tables"),
        ("table", "mlp", "tables"),
        ("array", "", "random"),
        ("array", "trees", "tables"),
    ],
)
def test_auto_is_the_experiment_that_suits_the_data(meaning: str, network: str, name: str) -> None:
    settings = replace(sweep(experiment="auto", network=network), data_meaning=meaning)
    experiment = adapted(settings)
    assert settings.source == name
    searched = {parameter.name for parameter in experiment.space}
    assert ("model" in searched) == (name == "tables" and not network)
    assert ("tree-lr" in searched) == (name == "tables" and network != "mlp")
    assert ("lr" in searched) == (network != "trees")


def test_epochs_of_another_trainer_are_its_own() -> None:
    other = Recipe.of_command(["python", "train.py"], {"epochs": "short"}).to_text()
    assert "epochs" not in TrainSettings(recipe=other).fixed(gpus=0)


@pytest.mark.parametrize(
    ("trial", "asked", "trained"),
    [
        ({"model": "mlp", "epochs": "3"}, -1, 20),  # the network's usual number is more
        ({"model": "mlp", "epochs": "30"}, -1, None),  # the trial's own
        ({"model": "fast", "epochs": "1"}, -1, 2),
        ({"model": "mlp", "epochs": "3"}, 0, None),
        ({"model": "mlp", "epochs": "3"}, 4, 4),
        ({"model": "mlp"}, -1, None),  # the trainer knows it
    ],
)
def test_a_training_is_no_shorter_than_the_best_trial(
    trial: dict[str, str], asked: int, trained: int | None
) -> None:
    settings = TrainSettings(recipe=recipe(**trial), epochs=asked)
    assert settings.fixed(gpus=0).get("epochs") == trained


@pytest.mark.parametrize(
    ("meaning", "workers", "pods"),
    [("image", -1, 2), ("table", -1, 1), ("tokens", -1, 1), ("table", 2, 3)],
)
def test_a_table_is_trained_by_one_process_unless_asked(
    meaning: str, workers: int, pods: int, tmp_path: Path
) -> None:
    settings = replace(
        TrainSettings(recipe=recipe(model="mlp"), workers=workers), data_meaning=meaning
    )
    job = planned(settings, tmp_path).job
    assert sum(replica.count for replica in job.replicas) == pods


def test_weights_in_a_folder_with_blanks_stay_one_word(tmp_path: Path) -> None:
    settings = TrainSettings(recipe=recipe(model="mlp"), weights="/my weights")
    (_, container), *_ = planned(settings, tmp_path).job.containers()
    assert "--weights=/my weights" in container.words


@pytest.mark.parametrize(
    ("command", "asked", "repeats"),
    [
        (TRAINER, {}, True),
        (TRAINER, {"workers": 0, "epochs": 20, "seed": 5}, True),
        (TRAINER, {"epochs": 30}, False),
        (TRAINER, {"seed": 6}, False),
        (TRAINER, {"workers": 1}, False),
        (("python", "train.py"), {}, False),  # whose seed nobody knows
    ],
)
def test_the_best_trials_training_is_not_done_again(
    command: tuple[str, ...], asked: dict[str, Any], repeats: bool, tmp_path: Path
) -> None:
    trial = Recipe.of_command(command, {"lr": "0.1", "model": "mlp", "epochs": "20", "seed": "5"})
    best = tmp_path / "best"
    best.mkdir()
    (best / "metrics.json").write_text('{"accuracy": 0.9, "dataset": "d1"}')
    text = replace(trial, model=str(best)).to_text()
    training = planned(replace(TrainSettings(recipe=text, **asked), data_meaning="table"), tmp_path)
    assert training.repeats_trial("d1") == repeats
    assert not training.repeats_trial("d2"), "on other data"
    unknown = replace(TrainSettings(recipe=trial.to_text(), **asked), data_meaning="table")
    assert not planned(unknown, tmp_path).repeats_trial("d1")


@pytest.mark.parametrize(
    ("chosen", "meaning", "epochs"),
    [("auto", "image", "1"), ("auto", "table", "20"), ("medianstop", "image", "5")],
)
def test_an_experiment_keeps_its_epochs_unless_podium_chose_it(
    chosen: str, meaning: str, epochs: str
) -> None:
    experiment = adapted(replace(sweep(experiment=chosen), data_meaning=meaning))
    words = experiment.template.workload.replicas[0].pod.containers[0].words
    assert [word for word in words if word.startswith("--epochs")] == [f"--epochs={epochs}"]


def test_searched_epochs_are_searched_in_a_run() -> None:
    assert "epochs" in {parameter.name for parameter in adapted(sweep()).space}


def test_a_training_names_a_network_unless_another_did() -> None:
    assert TrainSettings().fixed(gpus=0)["model"] == "fast"
    assert TrainSettings(network="best").fixed(gpus=0)["model"] == "best"
    for decided in (
        {"recipe": recipe()},
        {"command": ["python", "t.py"]},
        {"hyperparameters": {"model": "best"}},
    ):
        assert "model" not in TrainSettings(**decided).fixed(gpus=0)


def trial(number: int, *, phase: str, seconds: float) -> Trial:
    start = datetime.now(UTC) - timedelta(seconds=seconds)
    conditions = [
        {"type": phase, "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
    ]
    status = {"conditions": conditions, "startTime": start.isoformat()}
    if phase != "Running":
        status["completionTime"] = datetime.now(UTC).isoformat()
    return Trial(manifest={"kind": "Trial", "metadata": {"name": f"t-{number}"}, "status": status})


def test_what_is_left_follows_from_the_trials_that_ended() -> None:
    experiment = adapted(sweep(max_trials=9, parallel_trials=2))
    running = [trial(1, phase="Running", seconds=10)]
    assert _time_left(experiment, running) == ""
    ended = [trial(2, phase="Succeeded", seconds=20)]
    assert _time_left(experiment, [*ended, *running]) == "8 of 9 trials left, about 75.0 s"
    assert _time_left(experiment, [trial(n, phase="Succeeded", seconds=20) for n in range(9)]) == ""
    assert (
        _time_left(experiment, [trial(n, phase="Succeeded", seconds=2) for n in range(2)]) == ""
    ), "a few seconds"
    other = adapted(sweep(experiment="hyperband", max_trials=9))
    assert _time_left(other, [*ended, *running]) == ""


def test_first_slow_and_last_trials_are_shown_learning() -> None:
    first, second = (trial(number, phase="Running", seconds=90) for number in (1, 2))
    assert _to_be_shown([first, second], 9, set()) == first
    assert _to_be_shown([first, second], 9, {"t-1"}) is None, "nothing ended that it could outlast"
    quick = [trial(number, phase="Succeeded", seconds=40) for number in (3, 4)]
    assert _to_be_shown([*quick, second], 9, {"t-1"}) == second
    assert _to_be_shown([*quick, second], 9, {"t-1", "t-2"}) is None
    usual = trial(5, phase="Running", seconds=70)
    assert _to_be_shown([*quick, usual], 9, {"t-1"}) is None
    assert _to_be_shown([*quick, usual], 3, {"t-1"}) == usual, "nothing else will be said"
    instant = trial(3, phase="Succeeded", seconds=0.1)
    assert _to_be_shown([instant, trial(5, phase="Running", seconds=9)], 9, {"t-1"}) is None


def test_a_sweep_fails_by_the_trial_that_failed_first() -> None:
    first, second = (
        trial(1, phase="Failed", seconds=9),
        trial(2, phase="MetricsUnavailable", seconds=9),
    )
    good = trial(3, phase="Succeeded", seconds=9)
    assert _first_failure([good, second, first]) is first
    assert _first_failure([good]) is None


@pytest.mark.parametrize("name", ["random", "tpe", "medianstop", "random-job"])
def test_numbers_are_tuned_for_their_error(name: str) -> None:
    experiment = adapted(
        replace(sweep(experiment=name), data_meaning="table", data_kind="regression")
    )
    assert (experiment.objective.metric, experiment.objective.maximize) == ("rmse", False)
    check(experiment)
    classes = adapted(
        replace(sweep(experiment=name), data_meaning="table", data_kind="classification")
    )
    assert classes.objective.metric == "accuracy"


def test_sentences_are_learned_by_the_linear_model() -> None:
    chosen = replace(sweep(experiment="auto"), data_meaning="tokens", data_kind="classification")
    experiment = adapted(chosen)
    assert [parameter.name for parameter in experiment.space] == ["weight-decay"]
    assert "--model=linear" in str(experiment.template.workload.manifest)
    assert replace(TrainSettings(), data_meaning="tokens").fixed(gpus=0)["model"] == "linear"


def test_trials_and_training_start_from_the_weights() -> None:
    experiment = adapted(sweep(network="resnet18", weights="/w/resnet18.pth"))
    assert "--weights=/w/resnet18.pth" in str(experiment.template.workload.manifest)
    assert TrainSettings(weights="/w/a.pth").fixed(gpus=0)["weights"] == "/w/a.pth"
