"""Early stopping in one word, in real processes: median for what prints as it trains, asha over a range of epochs."""

from pathlib import Path
from typing import Any

import pytest

import podium
from podium.api.trials import TrialReader
from podium.api.tune import Goal, TuneSettings
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check
from podium.manifests.rules import RUNNERS

pytestmark = pytest.mark.whole

SCRIPT = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--level", type=float)
level = parser.parse_args().level
for epoch in range(1, 5):
    print(f"accuracy={level}")
if level < 0:
    time.sleep(60)
"""


def descend(level: float) -> None:
    import time

    for epoch in range(1, 5):
        podium.report({"val-loss": level}, step=epoch)
    if level > 1:
        time.sleep(60)


def climb(lr: float, epochs: int) -> None:
    for epoch in range(1, epochs + 1):
        podium.report(accuracy=lr * epoch / 27, step=epoch)


def lucky(lr: float, epochs: int) -> None:
    podium.report(accuracy=lr / epochs)


def test_median_stops_a_script_that_flushes_nothing(home: Path) -> None:
    Path("train.py").write_text(SCRIPT)
    sweep = podium.tune("train.py", {"level": (-0.0009, 1.0)}, trials=3, seed=1, stop="median")
    bad = sweep.add_trial({"level": -0.0005})
    assert {
        trial.name: trial.value for trial in sweep.results if trial.phase == "EarlyStopped"
    } == {bad: -0.0005}
    assert len(sweep.finished) == 4


def test_median_stops_a_function_by_what_it_reports(home: Path) -> None:
    space = {"level": (0.0, 1.001)}
    sweep = podium.tune(descend, space, objective="min:val-loss", trials=3, seed=1, stop="median")
    bad = sweep.add_trial({"level": 1.0005})
    assert [trial.name for trial in sweep.results if trial.phase == "EarlyStopped"] == [bad]


def test_asha_gives_the_best_more_epochs(home: Path) -> None:
    space = {"lr": (0.1, 1.0), "epochs": (1, 9)}
    sweep = podium.tune(climb, space, trials=6, parallel=1, seed=1, stop="asha")
    given = [int(trial.assignments["epochs"]) for trial in sweep.results]
    assert set(given) == {1, 3}
    assert given.count(1) > given.count(3)
    assert sweep.experiment.algorithm.settings["r_l"] == 9


def perfect(lr: float, epochs: int) -> None:
    podium.report(accuracy=1.0)


def test_a_best_trial_of_fewer_epochs_is_said(home: Path) -> None:
    space = {"lr": (0.1, 1.0), "epochs": (1, 9)}
    for function, is_said in ((lucky, True), (climb, False), (perfect, False)):
        sweep = podium.tune(function, space, trials=6, parallel=1, seed=1, stop="asha")
        said = TrialReader(sweep.cluster, sweep.name).warning(logs="")
        longer = f"ran with epochs={sweep.best.parameters['epochs']}; of those with epochs=3 "
        assert (longer in said) is is_said


@pytest.mark.parametrize(
    ("space", "given", "message", "hint"),
    [
        (
            {"lr": (0.1, 1.0)},
            {"stop": "asha"},
            "--epochs is missing",
            "--epochs 1..27 --stop asha, in Python {'epochs'",
        ),
        (
            {"lr": (0.1, 1.0), "steps": 9},
            {"stop": "asha"},
            "--steps is 9 in all trials",
            "--steps 1..9 --stop asha",
        ),
        (
            {"lr": (0.1, 1.0), "epochs": 2},
            {"stop": "asha"},
            "--epochs is 2 in all trials",
            "--epochs 1..2 --stop asha",
        ),
        (
            {"lr": (0.1, 1.0), "epochs": 1},
            {"stop": "asha"},
            "--epochs is 1 in all trials",
            "--epochs 1..27 --stop asha",
        ),
        (
            {"epochs": [1, 2]},
            {"stop": "asha"},
            "a range of whole numbers from 1 on",
            "--epochs 1..27",
        ),
        (
            {"epochs": (0, 9)},
            {"stop": "asha"},
            "a range of whole numbers from 1 on",
            "--epochs 1..27",
        ),
        (
            {"epochs": (1, 9), "steps": (1, 9)},
            {"stop": "asha"},
            "epochs, steps may be it",
            "search --epochs alone",
        ),
        (
            {"epochs": (1, 9)},
            {"stop": "asha", "algorithm": "grid"},
            "but grid is named too",
            "leave --algorithm out",
        ),
        (
            {"epochs": (1, 9)},
            {"stop": "median", "algorithm": "asha"},
            "train equally long",
            "asha needs no --stop",
        ),
        ({"lr": (0.1, 1.0)}, {"stop": "medain"}, "but got 'medain'", "did you mean median?"),
    ],
)
def test_what_cannot_stop_early_is_refused(
    home: Path, space: dict[str, Any], given: dict[str, Any], message: str, hint: str
) -> None:
    Path("train.py").write_text(SCRIPT)
    with pytest.raises(InvalidInput) as refused:
        podium.tune("train.py", space, **given)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")
    assert not home.exists()


def test_katib_takes_an_experiment_with_median(home: Path) -> None:
    from podium.api.cluster_spec import ClusterSpec
    from podium.api.tune import plan

    Path("train.py").write_text(SCRIPT)
    settings = TuneSettings(goal=Goal.read("accuracy"), stop="median")
    planned = plan(
        "train.py", {"level": (0.1, 1.0)}, settings, spec=ClusterSpec.of(None)
    ).experiment
    assert check(Experiment.parse(planned.manifest), RUNNERS).template.retain
    (container,) = [container for _, container in planned.template.primary_containers()]
    assert container.env["PYTHONUNBUFFERED"].value == "1"
