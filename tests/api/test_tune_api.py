"""`podium.tune` with functions, scripts and commands, in real processes."""

import importlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuned import (
    boosted,
    divide,
    gain_and_cost,
    length_of,
    of_two,
    only_large,
    only_loss,
    only_plain,
    silent,
)

import podium
from podium.api import space
from podium.api.function_source import returned_names
from podium.api.passing import Passing
from podium.api.program import Program
from podium.api.stopping import Stopping
from podium.api.tune import Goal, TuneSettings, _experiment_of
from podium.errors import Failed, InvalidInput

SCRIPT = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--note", default="")
given = parser.parse_args()
output = pathlib.Path(os.environ["PODIUM_OUTPUT"])
output.mkdir(parents=True)
(output / "note").write_text(given.note + pathlib.Path("data.txt").read_text())
print(f"accuracy={1 - given.lr - given.batch_size / 1000}")
"""

MODULE = """
import math as arithmetic
import podium
from helpers import double

OFFSET = 1

class Shift:
    by = OFFSET

def shifted(x):
    return arithmetic.floor(x) - Shift.by

def train(x, kind, epochs, output):
    print(type(x).__name__, type(kind).__name__, type(epochs).__name__, output.rpartition("/")[2])
    return {"score": double(shifted(x)) ** 2, "epochs": epochs}

if __name__ == "__main__":
    sweep = podium.tune(train, {"x": (0, 3), "kind": [1, True, None, "word"], "epochs": 2}, objective="min:score",
                        metrics=["epochs"], trials=2, algorithm="random", seed=1)
    print(sweep.logs())
    print(sweep.best.metrics["epochs"], sweep.best.value in (0, 4, 16))
"""


def test_a_script_gets_its_values_as_flags(home: Path) -> None:
    Path("train.py").write_text(SCRIPT)
    Path("data.txt").write_text("beside")
    searched = {"lr": (1e-4, 1e-1), "batch-size": [32, 64], "note": "a word's"}
    sweep = podium.tune("train.py", searched, trials=2, seed=3)
    frame, best = sweep.trials, sweep.best
    assert frame["accuracy"].tolist() == [
        pytest.approx(1 - row.lr - row["batch-size"] / 1000) for _, row in frame.iterrows()
    ]
    assert best.model == f"{home}/trials/{best.name}"
    assert Path(best.model, "note").read_text() == "a word'sbeside"
    assert sweep.name == "train"


def test_other_metrics_are_those_that_a_trial_ends_with(home: Path) -> None:
    lines = (
        "accuracy=0.5 loss=2 seconds=1",
        "accuracy=0.9 loss=0.3 seconds=3",
        "accuracy=0.8 loss=0.4 seconds=2",
    )
    Path("train.py").write_text("".join(f"print({line!r})\n" for line in lines))
    sweep = podium.tune(
        "train.py",
        {"lr": [0.5]},
        objective=["accuracy", "min:seconds"],
        metrics=["loss", "seconds"],
        trials=1,
    )
    assert sweep.best.metrics == {"accuracy": 0.9, "loss": 0.4, "seconds": 1.0}


def test_the_objective_may_be_named_among_the_metrics(home: Path) -> None:
    # As the hint reads of a sweep that named its objective --metric alone.
    Path("train.py").write_text("print('accuracy=0.5 loss=0.25')")
    settings = {"objective": "min:loss", "metrics": ["loss", "accuracy", "accuracy"], "trials": 1}
    sweep = podium.tune("train.py", {"lr": [0.5]}, **settings)
    assert sweep.best.metrics == {"loss": 0.25, "accuracy": 0.5}


@pytest.mark.parametrize("name", ["my train.py", "lr=1.py", "it's.py"])
def test_a_script_may_have_any_name(home: Path, name: str) -> None:
    Path(name).write_text("import sys; print('accuracy=' + sys.argv[1].partition('=')[2])")
    assert podium.tune(name, {"lr": [0.5]}, trials=1).best.value == 0.5
    command = ["sh", "-c", 'python "$1" "$2"', "sh", name, "--lr=${lr}"]
    assert podium.tune(command, {"lr": [0.25]}, trials=1).best.value == 0.25


def test_a_command_may_name_its_output(home: Path) -> None:
    command = ["sh", "-c", 'mkdir -p "$PODIUM_OUTPUT" && echo score=${1#--x=}', "sh"]
    sweep = podium.tune(command, {"x": range(1, 4)}, objective="score", algorithm="grid", trials=3)
    assert sweep.best.value == 3


def test_a_script_may_tune_a_function_of_its_own(home: Path) -> None:
    Path("mine.py").write_text(MODULE)
    Path("helpers.py").write_text("def double(x):\n    return 2 * x\n")
    done = subprocess.run(
        [sys.executable, "mine.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    first, _, last = done.stdout.splitlines()
    kind, of_choice, of_fixed, name = first.split()
    assert (kind, of_fixed) == ("int", "int")
    assert of_choice in ("int", "bool", "NoneType", "str")
    assert name.startswith("train-")
    assert last == "2.0 True"


DECORATED = """
from __future__ import annotations
import math
from typing import TYPE_CHECKING
import parts.scale
import podium
from wrapping import doubled
if TYPE_CHECKING:
    import numpy

def plain(x):
    return x

same = plain

@doubled
def train(x: numpy.ndarray, data="digits") -> float:
    return math.floor(same(x)) * parts.scale.TEN + len(data)

sweep = podium.tune(train, {"x": [2]}, objective="score", algorithm="grid", trials=1)
print(sweep.best.value)
try:
    podium.tune(doubled(plain), {"x": [2]}, objective="score")
except podium.errors.InvalidInput as error:
    print(error.message)

def needs(x, data):
    return x

try:
    podium.tune(needs, {"x": [2]}, objective="score")
except podium.errors.InvalidInput as error:
    print(error.message)

square = lambda x: x * x

def squared(x):
    return square(x)

try:
    podium.tune(squared, {"x": [2]}, objective="score")
except podium.errors.InvalidInput as error:
    print(error.message)
"""

WRAPPING = """
import functools

def doubled(function):
    @functools.wraps(function)
    def wrapper(**given):
        return 2 * function(**given)
    return wrapper
"""


def test_a_trial_calls_the_decorated_function_or_none(home: Path) -> None:
    Path("mine.py").write_text(DECORATED)
    Path("wrapping.py").write_text(WRAPPING)
    Path("parts").mkdir()
    Path("parts/scale.py").write_text("TEN = 10\n")
    done = subprocess.run(
        [sys.executable, "mine.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "52.0",
        "__main__.plain is another function than the given one",
        "needs(x, data) cannot be called with x: missing a required argument: 'data'",
        "squared uses square of type function, which only this process has",
    ]


ASUNDER = """
import sys
sys.path.insert(0, "elsewhere")
import helpers, others, podium

def train(x):
    return {"score": helpers.double(x) + others.ONE}

podium.tune(train, {"x": (0, 3)}, objective="score")
"""


def test_modules_of_a_function_lie_in_one_directory(home: Path) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/others.py").write_text("ONE = 1\n")
    Path("helpers.py").write_text("def double(x):\n    return 2 * x\n")
    Path("mine.py").write_text(ASUNDER)
    done = subprocess.run(
        [sys.executable, "mine.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert "train imports modules of its own from 2: " in done.stderr
    assert not home.exists()


def test_a_function_gets_choices_with_apostrophes_as_written(home: Path) -> None:
    sweep = podium.tune(
        length_of, {"word": ["it's", "$HOME or not", "a"]}, algorithm="grid", trials=3
    )
    assert sorted(sweep.trials["accuracy"]) == [1, 4, 12]
    assert sweep.best.parameters == {"word": "$HOME or not"}


def test_a_nested_space_is_answered_with_flat_names() -> None:
    with pytest.raises(InvalidInput) as caught:
        podium.tune(only_loss, {"optimizer": {"lr": (0.1, 0.2)}})
    assert str(caught.value.hint).startswith('"optimizer_lr" as a name of its own')
    assert '"optimizer.lr" for a script' in str(caught.value.hint)


def test_the_best_parameters_are_the_arguments(home: Path) -> None:
    choices = {"amp": [True, False], "penalty": [None, "l1"], "name": ["007", "1_0"]}
    sweep = podium.tune(only_plain, choices, algorithm="grid", trials=8)
    assert sweep.best.value == only_plain(**sweep.best.parameters) == 1
    assert {*sweep.trials["amp"]} == {True, False}
    assert {*sweep.trials["name"]} == {"007", "1_0"}


def test_a_function_of_a_module_may_return_a_number(home: Path) -> None:
    sweep = podium.tune(
        of_two, {"x": [1.0, 2.5], "y": 0.5}, objective="gain", algorithm="grid", trials=2
    )
    assert sweep.best.parameters == {"x": 2.5}
    assert sweep.best.value == 2.0


def test_a_function_that_raises_shows_its_error(home: Path) -> None:
    with pytest.raises(Failed, match="ZeroDivisionError"):
        podium.tune(divide, {"x": [0]}, objective="score", trials=1)


def needs_more(x: float, y: float) -> float:
    return x + y


def test_a_closure_is_tuned_as_cloudpickle_writes_it(home: Path) -> None:
    values = np.array([0.25, 0.5])

    def gain(x: float) -> dict[str, float]:
        return {"gain": float(values @ [x, 1.0])}

    for train in (gain, lambda x: float(values @ [x, 1.0])):
        sweep = podium.tune(
            train, {"x": [1.0, 2.0]}, objective="gain", algorithm="grid", trials=2, pickle=True
        )
        assert (sweep.best.parameters, sweep.best.value) == ({"x": 2.0}, 1.0)


def test_what_cannot_be_pickled_is_named(home: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(
        InvalidInput, match=r"uses something that cannot be pickled: TypeError: .*lock"
    ) as caught:
        podium.tune(lambda x: x * lock.locked(), {"x": (0.0, 1.0)}, pickle=True)
    assert caught.value.hint == "make it inside the function"


@pytest.mark.parametrize(
    ("train", "searched", "message"),
    [
        (lambda x: x, {"x": (0, 1)}, "is not a plain function"),
        (needs_more, {"x": (0, 1)}, "missing a required argument: 'y'"),
        (of_two, {"z": (0, 1), "x": 1}, "unexpected keyword argument 'z'"),
        (of_two, {"x": 1}, "nothing to search"),
        (of_two, {"x": (1, 2, 3)}, "between two numbers"),
        (of_two, {"x": [object()]}, "a choice is a word, a number"),
        (of_two, {"x": ['a "b"']}, "cannot be a choice: values are put into JSON text"),
        (of_two, {"x": (1, 0)}, "low <= high"),
        ("nothing.py", {"x": (0, 1)}, "there is no script nothing.py"),
        ([], {"x": (0, 1)}, "the command has no words"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    train: Any, searched: Any, message: str, home: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        podium.tune(train, searched)
    assert not home.exists()


def test_a_sweep_without_an_objective_is_refused(home: Path) -> None:
    with pytest.raises(InvalidInput, match="an objective is the name of a metric, but got ''"):
        podium.tune(of_two, {"x": (0, 1)}, objective=[])


def test_a_front_is_drawn_by_two_objectives_of_a_trial(home: Path) -> None:
    sweep = podium.tune(
        gain_and_cost,
        {"x": [2.0]},
        objective=["max:gain", "min:cost", "max:mood"],
        algorithm="grid",
        trials=1,
    )
    for pair, point in (((), (6.0, 2.0)), (("gain", "mood"), (-2.0, 2.0))):
        figure = sweep.plot.front(*pair)
        assert [(*line.x, *line.y) for line in figure.data if line.x] == [point]
    known = r"a front is drawn by two of the objectives \(gain, cost, mood\), not by "
    for pair, named in ((("gain", "x"), "gain, x"), (("gain", "gain"), "gain, gain")):
        with pytest.raises(InvalidInput, match=known + named):
            sweep.plot.front(*pair)


def test_ranges_over_decades_are_searched_on_a_log_scale() -> None:
    given = {
        "a": (1e-4, 1e-1),
        "b": (0.5, 2.0),
        "c": podium.Float(1.0, 2.0, log=True),
        "d": podium.Float(1e-4, 1.0, log=False),
    }
    searched, _ = space.split(given)
    assert [
        name
        for name, dimension in searched.items()
        if dimension.feasible()[1].get("distribution") == "logUniform"
    ] == [
        "a",
        "c",
    ]
    assert str(searched["a"]) == "0.0001 to 0.1 on a log scale"


def test_every_way_to_write_a_space_becomes_a_parameter() -> None:
    given = {
        "a": (1, 9),
        "b": range(2, 10, 3),
        "c": [8, 16],
        "d": ["x", "y"],
        "e": podium.Int(1, 64, log=True),
        "f": 3,
    }
    searched, fixed = space.split(given)
    assert {name: dimension.feasible() for name, dimension in searched.items()} == {
        "a": ("int", {"min": "1", "max": "9"}),
        "b": ("int", {"min": "2", "max": "8", "step": "3"}),
        "c": ("discrete", {"list": ["8", "16"]}),
        "d": ("categorical", {"list": ["x", "y"]}),
        "e": ("int", {"min": "1", "max": "64", "distribution": "logUniform"}),
    }
    assert fixed == {"f": 3}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("accuracy", "maximize accuracy"),
        ("val_loss", "minimize val_loss"),
        ("max:loss", "maximize loss"),
        ("min:score", "minimize score"),
        ("rmse", "minimize rmse"),
        ("eval-logloss", "minimize eval-logloss"),
        ("cell2", "maximize cell2"),
    ],
)
def test_the_name_of_an_objective_says_its_direction(text: str, shown: str) -> None:
    assert str(Goal.read(text)) == shown


def test_importing_podium_loads_nothing_heavy() -> None:
    code = "import sys, podium; dir(podium); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {
        "kfp",
        "torch",
        "kubernetes",
        "pandas",
        "optuna",
        "numpy",
        "plotly",
        "yaml",
        "click",
        "minio",
    }
    assert {name for name in done.stdout.split() if name.startswith("podium")} == {"podium"}


def test_every_public_name_can_be_imported() -> None:
    assert {name for name in podium.__all__ if not hasattr(podium, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        podium.nothing  # noqa: B018


def test_who_logs_as_elsewhere_is_shown_how_to_report() -> None:
    for name in ("log", "log_metric"):
        with pytest.raises(AttributeError, match=r"reported with podium.report\(loss=0.3\)"):
            getattr(podium, name)


def test_packed_code_runs_where_its_files_are_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("model.py").write_text(
        "from helpers import double\n\ndef train(x, output):\n    return double(x)\n"
    )
    Path("helpers.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    train = importlib.import_module("model").train
    searched, fixed = space.split({"x": [1, 3]})
    packed = Program.of(train, searched, fixed, "gain").packed(str(tmp_path / "store"))
    settings = TuneSettings(goal=Goal.read("gain"), algorithm="grid", trials=2)
    experiment = _experiment_of(
        packed,
        searched,
        settings,
        passing=Passing(),
        fixed={},
        stops=Stopping(algorithm="grid", settings={}),
        name=None,
        data=None,
        output=str(tmp_path / "trials"),
    )
    shutil.rmtree(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    assert podium.sweep(experiment).best.value == 6
    assert str(tmp_path / "project") not in str(experiment.manifest)


def test_a_failed_sweep_returns_its_good_trials(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = podium.tune(
        only_large, {"x": (0.1, 1.0)}, objective="score", trials=5, parallel=1, seed=1
    )
    assert (sweep.status, sweep.best.value) == ("Failed", 1.0)
    said = capsys.readouterr().err
    assert "warning: 3 of 4 trials failed, which ends the sweep: " in said
    assert "  | ValueError: too small" in said
    with pytest.raises(
        Failed, match=r"1 of 4 trials has a result, the best is \S+: 1\.0 with x=0\.8"
    ) as caught:
        sweep.check()
    assert "podium.open_sweep('only-large').trials shows them all" in (caught.value.hint or "")


def test_a_sweep_that_succeeds_names_its_failed_trials(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = podium.tune(
        only_large,
        {"x": [0.1, 0.8, 0.9]},
        objective="score",
        algorithm="grid",
        trials=3,
        parallel=1,
    )
    assert (sweep.status, sweep.best.value) == ("Succeeded", 1.0)
    said = capsys.readouterr().err
    assert "warning: 1 of 3 trials failed\ntrial only-large-" in said
    assert (
        "  | ValueError: too small\n  hint: podium.open_sweep('only-large').logs('only-large-"
        in said
    )


def test_a_functions_metrics_are_read_as_a_library_prints_them(home: Path) -> None:
    with pytest.raises(Failed) as caught:
        podium.tune(boosted, {"x": [0.25, 0.5]}, objective="auc", algorithm="grid", trials=2)
    hint = (caught.value.hint or "").partition(";")[0]
    assert hint == 'podium.tune(…, prints="xgboost", objective="eval-auc")'
    sweep = podium.tune(
        boosted,
        {"x": [0.25, 0.5]},
        objective="eval-auc",
        prints="xgboost",
        algorithm="grid",
        trials=2,
    )
    assert sweep.best.value == 0.5
    with pytest.raises(InvalidInput, match=r"prints is one of huggingface, .*, not 'xgbost'"):
        podium.tune(boosted, {"x": [0.25, 0.5]}, prints="xgbost")


def test_a_function_without_metrics_says_what_it_returned(home: Path) -> None:
    with pytest.raises(
        Failed,
        match=r"not found as score=NUMBER\nthe function returned nothing.*\nits last lines\n  \| nothing to see",
    ) as caught:
        podium.tune(silent, {"x": (0.0, 1.0)}, objective="score", trials=1)
    assert (caught.value.hint or "").startswith('return {"score": 0.98}; ')


def test_the_only_returned_name_is_the_objective(home: Path) -> None:
    sweep = podium.tune(only_loss, {"lr": np.array([0.25, 0.5]), "width": np.int64(2)}, trials=2)
    assert (sweep.experiment.objective.metric, sweep.experiment.objective.maximize) == (
        "loss",
        False,
    )
    assert (sweep.best.value, sweep.best.parameters["lr"]) == (0.0, 0.5)


def test_two_whole_numbers_are_said_to_be_two(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    podium.tune(only_loss, {"lr": (0, 1), "width": 1}, trials=2)
    assert "lr 0 or 1, as whole numbers (0.0 to 1.0 has all between)" in "".join(
        capsys.readouterr()
    )


def with_a_helper(lr: float) -> dict[str, float]:
    def settings() -> dict[str, float]:
        return {"width": 2.0}

    return {"loss": lr * settings()["width"]}


def test_what_a_helper_inside_returns_is_no_metric() -> None:
    assert returned_names(with_a_helper) == ["loss"]


@pytest.mark.parametrize("train", ["train.py", ["python", "-m", "mine.train"]])
def test_code_of_the_working_directory_is_packed(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("train.py", "mine/train.py"):
        (tmp_path / name).write_text("")
    packed = Program.of(train, {}, {}, "accuracy").packed(str(tmp_path / "store"))
    assert packed.code
    assert packed.code.uri.startswith("file://") or str(tmp_path) in packed.code.uri


def test_a_command_without_code_here_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["python", "-c", "mine.train"]
    assert Program.of(words, {}, {}, "accuracy").packed(str(tmp_path / "store")).code is None
    assert not (tmp_path / "store").exists()


def test_a_parameter_may_have_the_name_of_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("print('accuracy=0.5')\n")
    space = {"model": ["trees", "linear"], "state": (0.0, 1.0), "trial": [1, 2]}
    frame = podium.tune("train.py", space, trials=2).trials
    assert frame.columns.is_unique
    assert set(frame["model"]) <= {"trees", "linear"}
    assert set(frame["trial_state"]) == {"Succeeded"}
    assert frame["trial_trial"].str.startswith("train-").all()
