"""What a new user gets wrong: each time a plain sentence with a hint, and nothing is created."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import podium
from podium.api.tune import TuneSettings
from podium.errors import InvalidInput, PodiumError

_LONG = "kind: " * 1000
"""Longer than the name of a file may be."""

SPACE = {"lr": (1e-4, 1e-1), "layers": range(1, 5)}


def train(lr: float, layers: int) -> float:
    return lr * layers


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a list as space": (
        lambda: podium.tune(train, [1, 2]),
        "a space has ranges and choices by name, but got [1, 2]",
    ),
    "no space": (
        lambda: podium.tune(train, None),
        "a space has ranges and choices by name, but got None",
    ),
    "an empty space": (lambda: podium.tune(train, {}), "there is nothing to search in {}"),
    "a falling range": (
        lambda: podium.tune(train, SPACE | {"lr": (1.0, 0.1)}),
        "lr: `low < high` must hold",
    ),
    "a number that is none": (
        lambda: podium.tune(train, SPACE | {"lr": (0.0, float("nan"))}),
        "lr: `low < high`",
    ),
    "a name that is no text": (
        lambda: podium.tune(train, {1: (0.0, 1.0)}),
        "a parameter is named by a word, but got 1",
    ),
    "a name without letters": (
        lambda: podium.tune(train, {"": (0.0, 1.0)}),
        "a parameter is named by a word, but got ''",
    ),
    "text as the ends of a range": (
        lambda: podium.tune(train, SPACE | {"lr": podium.Float("1", "4")}),
        "low of a range is a finite number, but got '1'",
    ),
    "an endless range": (
        lambda: podium.tune(train, SPACE | {"lr": (0.0, float("inf"))}),
        "lr: high of a range is a finite number, but got inf",
    ),
    "halves as whole numbers": (
        lambda: podium.Int(1.5, 4),
        "low of a range is a whole number, but got 1.5",
    ),
    "a word as choices": (
        lambda: podium.Choice("adam"),
        "a choice is a list of values, but got 'adam'",
    ),
    "a number as choices": (
        lambda: podium.Choice(5),
        "a choice is a list of values, but got 5",
    ),
    "trials as text": (
        lambda: podium.sweep("random", trials="3"),
        "`max_trials is a whole number` must hold",
    ),
    "workers as text": (
        lambda: podium.train(".", workers="2"),
        "`workers is a whole number` must hold",
    ),
    "a limit as text": (
        lambda: podium.prepare_data("mnist", limit="50"),
        "`limit is a whole number` must hold",
    ),
    "a report without names": (lambda: podium.report([0.5]), "numbers are reported by name"),
    "a report by numbers": (lambda: podium.report({1: 0.5}), "numbers are reported by name"),
    "an object in the space": (
        lambda: podium.tune(train, SPACE | {"lr": b"1"}),
        "nor a list of choices, but b'1'",
    ),
    "a number as function": (
        lambda: podium.tune(3, SPACE),
        "a script or a command, but got 3",
    ),
    "another signature": (
        lambda: podium.tune(train, {"lr": (0.1, 1.0)}),
        "train(lr: float, layers: int) -> float cannot",
    ),
    "a missing script": (lambda: podium.tune("trian.py", SPACE), "there is no script trian.py"),
    "text too long for a script's path": (
        lambda: podium.tune(_LONG, SPACE),
        "there is no script kind: kind:",
    ),
    "text too long for an Experiment's path": (
        lambda: podium.sweep(_LONG),
        "no file and no bundled experiment is called 'kind: kind:",
    ),
    "text too long for a job's path": (
        lambda: podium.run_job(_LONG),
        "there is no file kind: kind:",
    ),
    "text too long for a path to data": (
        lambda: podium.train(_LONG),
        "there are no data at",
    ),
    "a count as text": (
        lambda: podium.tune(train, SPACE, trials="3"),
        "`trials is a whole number` must hold, but got trials='3'",
    ),
    "no trials": (
        lambda: podium.tune(train, SPACE, parallel=0),
        "`parallel >= 1` must hold, but got parallel=0",
    ),
    "an algorithm": (lambda: podium.tune(train, SPACE, algorithm="tpee"), "did you mean tpe?"),
    "an objective": (
        lambda: podium.tune(train, SPACE, objective="max accuracy"),
        "but got 'max accuracy'",
    ),
    "a cluster": (
        lambda: podium.tune(train, SPACE, cluster="k8s://team"),
        "no cluster has the scheme 'k8s'",
    ),
    "data to tune with": (
        lambda: podium.tune(train, SPACE, data="nowhere"),
        "there are no data at ",
    ),
    "data of a sweep": (lambda: podium.sweep("random", data="nowhere"), "there are no data at "),
    "data to train on": (lambda: podium.train("nowhere"), "there are no data at "),
    "a name of a training": (
        lambda: podium.train("nowhere", name="x"),
        "a training takes no name",
    ),
    "a flag of a training": (lambda: podium.train("nowhere", leaning=3), "--leaning=3"),
    "a setting of a sweep": (lambda: podium.sweep("random", trails=3), "did you mean trials?"),
    "one setting twice": (
        lambda: podium.sweep("random", trials=3, max_trials=4),
        "trials and max_trials are the same setting",
    ),
    "an Experiment": (lambda: podium.sweep("nothing"), "no bundled experiment is called 'nothing'"),
    "a dataset": (lambda: podium.load_dataset("nowhere"), "there is no dataset.json in "),
    "a model": (lambda: podium.open_model("nowhere"), "there is no model under "),
    "a sweep": (lambda: podium.open_sweep("nothing"), "no Experiment nothing in "),
    "a registered model": (lambda: podium.registry()["mnist"], "there is no model mnist in "),
    "the name of a dataset": (lambda: podium.prepare_data("mnistt"), "did you mean mnist?"),
    "the path of a dataset": (
        lambda: podium.prepare_data("houses"),
        "hint: ./houses for a directory",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_refused_with_a_hint(what: str, home: Path) -> None:
    call, message = WRONG[what]
    with pytest.raises(PodiumError) as refused:
        call()
    assert message in str(refused.value)
    assert refused.value.hint or "must hold, but got" in refused.value.message
    assert refused.value.__cause__ is None
    assert not [*home.glob("cluster/*/*"), *home.glob("runs/*")]


def test_a_notebook_shows_the_users_lines_only(home: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        podium.tune(train, SPACE, algorithm="tpee")
    *frames, last = refused.value._render_traceback_()
    assert last.endswith("\nhint: did you mean tpe?")
    assert [Path(__file__).name in frame for frame in frames] == [True]


def two_metrics(lr: float, layers: int) -> dict[str, float]:
    return {"loss": lr, "auc": layers}


FOREIGN: dict[str, tuple[dict[str, Any], str]] = {
    "n_trials": ({"n_trials": 30}, "hint: write trials=30"),
    "direction": ({"direction": "minimize"}, 'hint: the objective has it: objective="min:NAME"'),
    "a typo": ({"paralel": 3}, "did you mean parallel?"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_other_tools_call_it_is_translated(what: str, home: Path) -> None:
    given, message = FOREIGN[what]
    with pytest.raises(InvalidInput) as refused:
        podium.tune(train, SPACE, **given)
    assert message in str(refused.value)
    assert not home.exists()


def test_several_returned_metrics_want_an_objective(home: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r'only one of them can be tuned\nhint: name one: objective="min:loss"'
    ):
        podium.tune(two_metrics, SPACE)


def test_numbers_of_numpy_and_generators_are_taken() -> None:
    assert podium.Choice(np.int64(size) for size in (32, 64)) == podium.Choice([32, 64])  # type: ignore[arg-type]
    assert podium.Int(np.int64(1), np.int64(5)) == podium.Int(1, 5)  # type: ignore[arg-type]
    assert TuneSettings.read(["accuracy"], trials=np.int64(3)).trials == 3


def test_settings_of_data_may_be_numbers_of_numpy_and_tuples(home: Path) -> None:
    table = {"a": np.arange(60.0), "b": np.arange(60.0), "y": ["yes", "no"] * 30}
    share, limit = np.float32(0.25), np.int64(40)
    data = podium.prepare_data(
        table, target="y", validation=share, limit=limit, drop=np.array(["b"])
    )
    assert [column.name for column in data.info.inputs["table"].columns] == ["a"]
    assert data.info.parts["validation"].count == 10


def test_a_further_metric_may_be_named_alone() -> None:
    assert TuneSettings.read(["accuracy"], metrics="loss").metrics == ["loss"]
