"""What a new user gets wrong: each time a plain sentence with a hint, and nothing is created."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.api.tune import TuneSettings
from podium.errors import InvalidInput, PodiumError
from podium.system.arguments import checked, plain

_LONG = "kind: " * 1000
"""Longer than the name of a file may be."""

SPACE = {"lr": (1e-4, 1e-1), "layers": range(1, 5)}


def train(lr: float, layers: int) -> float:
    return lr * layers


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a list as space": (
        lambda: podium.tune(train, [1, 2]),
        "podium.tune takes space as a dict with names, but got [1, 2]",
    ),
    "no space": (
        lambda: podium.tune(train, None),
        "podium.tune takes space as a dict with names, but got None",
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
        "podium.tune takes space as a dict with names, but got {1: ",
    ),
    "a name without letters": (
        lambda: podium.tune(train, {"": (0.0, 1.0)}),
        "a parameter is named by a word, but got ''",
    ),
    "text as the ends of a range": (
        lambda: podium.tune(train, SPACE | {"lr": podium.Float("1", "4")}),
        "podium.Float takes low as a number, but got '1'",
    ),
    "an endless range": (
        lambda: podium.tune(train, SPACE | {"lr": (0.0, float("inf"))}),
        "lr: high of a range is a finite number, but got inf",
    ),
    "halves as whole numbers": (
        lambda: podium.Int(1.5, 4),
        "podium.Int takes low as a whole number, but got 1.5",
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
        "podium.sweep takes trials as a whole number, but got '3'",
    ),
    "workers as text": (
        lambda: podium.train(".", workers="2"),
        "podium.train takes workers as a whole number, but got '2'",
    ),
    "a limit as text": (
        lambda: podium.prepare_data("mnist", limit="50"),
        "podium.prepare_data takes limit as a whole number, but got '50'",
    ),
    "a report without names": (
        lambda: podium.report([0.5]),
        "podium.report takes values as a dict with a number or text by name, but got [0.5]",
    ),
    "a report by numbers": (lambda: podium.report({1: 0.5}), "but got {1: 0.5}"),
    "one number of a report": (
        lambda: podium.report({"accuracy": 0.5, "loss": None}),
        "as a dict with a number or text by name, but got {'loss': None}",
    ),
    "a word of a command": (
        lambda: podium.train("nowhere", command=["python", "train.py", "--layers", 3]),
        "podium.train takes command as a list of texts, but got [3]",
    ),
    "the step of a report": (
        lambda: podium.report(loss=1, step="1 loss=0"),
        "podium.report takes step as a number, but got '1 loss=0'",
    ),
    "an object in the space": (
        lambda: podium.tune(train, SPACE | {"lr": b"1"}),
        "nor a list of choices, but b'1'",
    ),
    "a number as function": (
        lambda: podium.tune(3, SPACE),
        "podium.tune takes train as a function, text, a path or a list, but got 3",
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
    "a source in place of a dataset": (
        lambda: podium.train("table:a b.csv"),
        "in the shell podium data prepare 'table:a b.csv'",
    ),
    "a count as text": (
        lambda: podium.tune(train, SPACE, trials="3"),
        "podium.tune takes trials as a whole number, but got '3'",
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
    "no number among choices": (
        lambda: podium.Choice([1.0, float("nan")]),
        "a choice is a word, a number, a boolean or None, but got nan",
    ),
    "a function of C": (
        lambda: podium.tune(max, SPACE, pickle=True),
        "nobody can say which arguments <built-in function max> takes",
    ),
    "a setting of the jobs": (
        lambda: podium.sweep("random", workers="2"),
        "podium.sweep takes workers as a whole number, but got '2'",
    ),
    "an object as a budget": (
        lambda: podium.tune(train, SPACE, max_cost=object()),
        "max_cost is a number, but got <object",
    ),
    "a setting of a server": (
        lambda: podium.deploy("mnist", namespace=5),
        "podium.deploy takes namespace as text, but got 5",
    ),
    "settings that are left out": (
        lambda: podium.deploy("mnist", token_secret=None, canary=None),
        "pods cannot read the models in file://",
    ),
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
    "two places for models": (
        lambda: podium.sweep("random", storage="a", output="b"),
        "storage='a' and output='b' name two places",
    ),
    "a seed twice": (
        lambda: podium.tune(train, SPACE, seed=1, settings={"random_state": 5}),
        "seed and random_state are the same setting",
    ),
    "the seed of a split twice": (
        lambda: podium.prepare_data("mnist", seed=1, split_seed=2),
        "seed and split_seed are the same setting",
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


DOORS: dict[str, Callable[..., Any]] = {
    "tune": lambda **given: podium.tune(**{"train": train, "space": SPACE, **given}),
    "sweep": lambda **given: podium.sweep(**{"experiment": "random", **given}),
    "run_job": lambda **given: podium.run_job(**{"job": "train.yaml", **given}),
    "deploy": lambda **given: podium.deploy(**{"model": "mnist", **given}),
    "train": lambda **given: podium.train(**{"data": "nowhere", **given}),
    "open_sweep": lambda **given: podium.open_sweep(**{"name": "any", **given}),
    "open_job": lambda **given: podium.open_job(**{"name": "any", **given}),
    **{name: getattr(podium, name) for name in ("jobs", "load_dataset", "open_model", "registry")},
}


@pytest.mark.parametrize("name", DOORS)
def test_every_parameter_refuses_another_type(name: str, home: Path) -> None:
    checked = {
        parameter.name
        for parameter in inspect.signature(getattr(podium, name)).parameters.values()
        if parameter.annotation is not Any and parameter.kind is not parameter.VAR_KEYWORD
    } - {"data"}
    for parameter in checked:
        with pytest.raises(InvalidInput) as refused:
            DOORS[name](**{parameter: object()})
        assert refused.value.message.startswith(f"podium.{name} takes {parameter} as ")
        assert refused.value.hint == f"help(podium.{name})"
    assert not home.exists()


METHODS: dict[str, Callable[[], Any]] = {
    "Sweep.logs takes trial as text": lambda: _sweep().logs(5),  # type: ignore[arg-type]
    "Sweep.add_trial takes values as a dict": lambda: _sweep().add_trial([1]),  # type: ignore[arg-type]
    "Sweep.note takes note as text": lambda: setattr(_sweep(), "note", None),
    "Runs.compare takes names as a list of texts": lambda: podium.runs().compare("latest"),
    "Runs.old takes keep as a whole number": lambda: podium.runs().old(keep="5"),  # type: ignore[arg-type]
    "there is no run None": lambda: podium.runs()[None],  # type: ignore[index]
    "Model.version takes ref as text, but": lambda: podium.registry().model("m").version(5),  # type: ignore[arg-type]
    "Model.upload takes files as a dict with a path or bytes by name, but": (
        lambda: podium.registry().model("m").upload({"model.onnx": 5}, {})  # type: ignore[dict-item]
    ),
    "podium.jobs takes cluster as text or a path, but": lambda: podium.jobs(cluster=5),  # type: ignore[arg-type]
    "Model.promote takes rule as text": lambda: podium.registry().model("m").promote("v", rule=5),  # type: ignore[arg-type]
}


def _sweep() -> podium.Sweep:
    return podium.Sweep(ClusterSpec.of(None), "any")


@pytest.mark.parametrize("message", METHODS)
def test_a_method_refuses_another_type(message: str, home: Path) -> None:
    with pytest.raises(PodiumError, match=message):
        METHODS[message]()


@pytest.mark.parametrize("three", [3.0, np.int8(3), np.float32(3)])
def test_a_number_that_loses_nothing_is_taken_as_whole(three: Any) -> None:
    @checked
    def taking(whole: int | None, texts: str | int, number: float = 0) -> list[Any]:
        return [whole, texts, number]

    assert list(map(repr, taking(three, three, three))) == ["3", "3", repr(plain(three))]
    assert podium.Int(1, three) == podium.Int(1, 3)
    assert type(podium.Int(1, three).high) is int
    for wrong in (2.5, "3", float("nan"), float("inf"), True):
        with pytest.raises(InvalidInput, match="taking takes whole as a whole number, but got"):
            taking(wrong, 3)


def test_unknown_and_missing_arguments_stay_pythons_own() -> None:
    with pytest.raises(TypeError, match=r"open_sweep\(\) got an unexpected keyword argument 'nam'"):
        podium.open_sweep(nam="x")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"tune\(\) missing 1 required positional argument: 'space'"
    ):
        podium.tune(train)  # type: ignore[call-arg]


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


def test_none_stands_for_a_default_that_is_empty(home: Path) -> None:
    given: Any = {"target": None, "source": None, "limit": None}
    data = podium.prepare_data(({"a": np.arange(60.0)}, np.arange(60.0)), **given)
    assert data.info.kind == "regression"


def test_a_further_metric_may_be_named_alone() -> None:
    assert TuneSettings.read(["accuracy"], metrics="loss").metrics == ["loss"]
