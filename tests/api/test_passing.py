"""Programs that take their parameters otherwise than as ``--name=value``, tuned as they are."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import podium
from podium.api.flags_of_script import check_false
from podium.api.passing import MAX_FILE, Passing, settled
from podium.api.space import from_text, split
from podium.api.sweep_report import command_of
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check
from podium.manifests.rules import RUNNERS
from podium.metrics.libraries import COLON
from podium.training.follow import read_metrics

HYDRA = """
import sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
print("accuracy=%s" % (float(given["optimizer.lr"]) + int(given["layers"])))
"""
PAPERMILL = """
import sys
given = dict(zip(sys.argv[2::3], sys.argv[3::3]))
assert set(sys.argv[1::3]) == {"-p"}, sys.argv
print("accuracy=%s" % (float(given["lr"]) + int(given["layers"])))
"""
VARIABLES = """
import os
print("accuracy=%s" % (float(os.environ["LR"]) + int(os.environ["batch_size"])))
"""
SWITCHES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("verb", choices=["fit"])
parser.add_argument("--augment", action=argparse.BooleanOptionalAction)
parser.add_argument("--amp", action="store_true")
given = parser.parse_args()
assert given.augment is not None
print("accuracy=%s" % (given.augment / 2 + given.amp / 4))
"""
CONFIG = """
import json, pathlib, sys, tomllib, yaml
path = pathlib.Path(sys.argv[-1].rpartition("=")[2])
read = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}[path.suffix]
given = read(path.read_text())
assert isinstance(given["lr"], float), given
assert given["text"] == "it's ${HOME} $HOME $(PODIUM_OUTPUT) $$", given
assert path.resolve() != pathlib.Path("conf" + path.suffix).resolve()
print("accuracy=%s" % (given["lr"] + given["layers"]))
"""
CONFIGS = {
    ".yaml": 'lr: ${lr}  # the rate\nlayers: ${layers}\ntext: "it\'s ${HOME} $HOME $(PODIUM_OUTPUT) $$"\n',
    ".json": '{"lr": ${lr}, "layers": ${layers}, "text": "it\'s ${HOME} $HOME $(PODIUM_OUTPUT) $$"}',
    ".toml": 'lr = ${lr}\nlayers = ${layers}\ntext = "it\'s ${HOME} $HOME $(PODIUM_OUTPUT) $$"\n',
}


@pytest.fixture(autouse=True)
def _beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("")


def _values(sweep: podium.Sweep, *names: str) -> list[float]:
    return [sum(float(trial.parameters[name]) for name in names) for trial in sweep.results]


def test_hydra_gets_its_overrides() -> None:
    Path("train.py").write_text(HYDRA)
    space = {"optimizer.lr": (1e-5, 1e-1), "layers": (1, 4)}
    sweep = podium.tune("train.py", space, passing="hydra", trials=3)
    assert [trial.value for trial in sweep.results] == pytest.approx(
        _values(sweep, "optimizer.lr", "layers")
    )


def test_papermill_gets_pairs() -> None:
    Path("train.py").write_text(PAPERMILL)
    space = {"lr": (1e-5, 1e-1), "layers": 2}
    sweep = podium.tune("train.py", space, passing="papermill", trials=2)
    assert [trial.value for trial in sweep.results] == pytest.approx(
        [2 + value for value in _values(sweep, "lr")]
    )


def test_variables_hold_the_parameters() -> None:
    Path("train.py").write_text(VARIABLES)
    space = {"LR": (1e-5, 1e-1), "batch-size": 7}
    sweep = podium.tune("train.py", space, passing="env", trials=2)
    assert [trial.value for trial in sweep.results] == pytest.approx(
        [7 + value for value in _values(sweep, "LR")]
    )


@pytest.mark.parametrize("suffix", CONFIGS)
def test_each_trial_reads_a_configuration_of_its_own(suffix: str, tmp_path: Path) -> None:
    Path("train.py").write_text(CONFIG)
    Path(f"conf{suffix}").write_text(CONFIGS[suffix])
    sweep = podium.tune(
        ["python", "train.py", f"--config=conf{suffix}"],
        {"lr": (1e-7, 1e-5), "layers": (1, 4)},
        passing=f"config:conf{suffix}",
        trials=3,
    )
    assert [trial.value for trial in sweep.results] == pytest.approx(
        _values(sweep, "lr", "layers"), abs=0
    )
    assert Path(f"conf{suffix}").read_text() == CONFIGS[suffix]


def test_a_report_holds_a_command_that_trains_again(tmp_path: Path) -> None:
    Path("train.py").write_text(CONFIG)
    Path("conf.toml").write_text(CONFIGS[".toml"])
    words = ["python", "train.py", "conf.toml"]
    space = {"lr": (1e-7, 1e-5), "layers": (1, 4)}
    sweep = podium.tune(words, space, passing="config:conf.toml", trials=1)
    script = command_of(sweep.best_trial, "training")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"accuracy={sweep.best.value}\n", done.stderr


def test_flags_without_a_value_are_there_or_not() -> None:
    Path("train.py").write_text(SWITCHES)
    space = {"augment/--no-augment": None, "amp/": None}
    words = ["python", "train.py", "fit"]
    sweep = podium.tune(words, space, algorithm="grid", trials=4)
    assert sorted(trial.value for trial in sweep.results) == [0, 0.25, 0.5, 0.75]
    assert sweep.best.parameters == {"augment": True, "amp": True}
    assert "python train.py fit --augment --amp" in Path(sweep.report()).read_text()


def test_a_slash_in_a_name_makes_no_flag() -> None:
    searched, _ = split({"dataset/kind": ["cifar", "svhn"], "lr": (1e-3, 1e-1)})
    words = Passing.read("hydra", ["train"], searched, {}).words(
        ["train"], {"dataset/kind": "svhn"}
    )
    assert words == ["train", "dataset/kind=svhn"]
    with pytest.raises(InvalidInput, match="amp/ is a flag without a value"):
        split({"amp/": [1, 2]})


def test_a_command_names_the_places_of_its_values() -> None:
    Path("train.py").write_text("import sys\nprint('accuracy=' + sys.argv[2], sys.argv[1])\n")
    words = ["python", "train.py", "${word}", "${lr}"]
    sweep = podium.tune(words, {"lr": (0.0, 1.0), "word": ["it's", "b c"]}, trials=2)
    assert [trial.value for trial in sweep.results] == pytest.approx(_values(sweep, "lr"))
    logs = "".join(sweep.logs(trial.name) for trial in sweep.results)
    assert [word for word in ("it's", "b c") if word in logs]


@pytest.mark.whole
def test_katib_takes_every_way(tmp_path: Path) -> None:
    Path("conf.yaml").write_text(CONFIGS[".yaml"])
    for number, way in enumerate(("hydra", "papermill", "env", "config:conf.yaml")):
        typed = ["--lr", "1e-7..1e-5", "--layers", "1..4", "--as", way, "--no-run"]
        words = [
            "tune",
            *typed,
            "--save",
            f"{number}.yaml",
            "--",
            "python",
            "train.py",
            "conf.yaml",
        ]
        entry = "import sys; from podium.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", entry, *words], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert check(Experiment.load(f"{number}.yaml"), RUNNERS)


@pytest.mark.parametrize(
    ("way", "command", "said"),
    [
        ("hidra", "python train.py", "passed as flags, hydra, papermill, env or config:FILE"),
        ("config", "python train.py", "not 'config'"),
        ("hydra:x", "python train.py", "not 'hydra:x'"),
        ("config:no.yaml", "python train.py no.yaml", "no.yaml is no file"),
        ("config:big.txt", "python train.py big.txt", "big.txt is larger than"),
        ("config:bad.txt", "python train.py bad.txt", "bad.txt is no text in UTF-8"),
        ("config:lr.json", "python train.py", "the command does not name lr.json"),
        ("config:empty.json", "python train.py empty.json", "empty.json has no place for lr"),
        ("config:lr.json", "python train.py lr.json", "lr.json cannot be read with its first values"),
    ],
)  # fmt: skip
def test_parameters_that_would_not_arrive_are_refused(way: str, command: str, said: str) -> None:
    Path("empty.json").write_text("{}")
    Path("lr.json").write_text('{"lr": ${lr}')
    Path("big.txt").write_text("x" * (MAX_FILE + 1))
    Path("bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=re.escape(said)):
        podium.tune(shlex.split(command), {"lr": (1e-3, 1e-1)}, passing=way)
    assert not Path("home").exists()


def test_a_variable_needs_a_name_that_shells_take() -> None:
    with pytest.raises(InvalidInput, match=r"a variable cannot be named optimizer\.lr"):
        podium.tune("train.py", {"optimizer.lr": (1e-3, 1e-1)}, passing="env")


def test_a_function_gets_arguments_alone() -> None:
    with pytest.raises(InvalidInput, match="a function gets its parameters as arguments"):
        podium.tune(lambda lr: lr, {"lr": (1e-3, 1e-1)}, passing="hydra", pickle=True)


def test_floats_of_yaml_stay_floats() -> None:
    Path("c.yaml").write_text("a: ${lr}\nb: [${lr}, 1]\nc: {d: ${lr} }\ne: x${lr}\nf: '${lr}'\n")
    searched, _ = split({"lr": from_text("lr", "1e-5..1e-1")})
    passing = Passing.read("config:c.yaml", ["c.yaml"], searched, {})
    read = yaml.safe_load(passing.variables({"lr": "1e-05"})["PODIUM_CONFIG"])
    assert read == {"a": 1e-5, "b": [1e-5, 1], "c": {"d": 1e-5}, "e": "x1e-05", "f": "1e-05"}


def test_floats_of_yaml_stay_floats_in_a_list_and_alone() -> None:
    Path("c.yaml").write_text(
        "lr: ${lr}\ndecay: ${decay}\nlayers: ${layers}\nversion: ${version}\n"
    )
    searched, fixed = split(
        {name: from_text(name, text) for name, text in (("lr", "1e-5,1"), ("layers", "1,2"))}
        | {"decay": from_text("decay", "1e-6"), "version": "1e5b"}
    )
    passing = Passing.read("config:c.yaml", ["c.yaml"], searched, fixed)
    given = {"lr": "1e-05", "layers": "1", "decay": "1e-6", "version": "1e5b"}
    read = yaml.safe_load(passing.variables(given)["PODIUM_CONFIG"])
    assert read == {"lr": 1e-5, "layers": 1, "decay": 1e-6, "version": "1e5b"}


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("epoch 0 val_loss: 0.25", {"val_loss": 0.25}),
        ("Epoch 3/10 val_loss: 0.25 Test accuracy: 0.5", {"val_loss": 0.25, "Test accuracy": 0.5}),
        ("[epoch 3] val_loss = 0.25", {"val_loss": 0.25}),
        ("INFO step 100 val_loss: 0.25", {"val_loss": 0.25}),
        ("INFO epoch 0 - val_loss: 0.25 - accuracy: 5%", {"val_loss": 0.25, "accuracy": 5}),
        ("12:00:01,2 INFO val_loss: 0.25", {"val_loss": 0.25}),
        ("12:00:01 - my.train - INFO - val_loss: 0.25", {"val_loss": 0.25}),
        ("Train - val_loss: 0.5", {}),
        ("ERRORS val_loss: 0.5", {}),
        ("top 5 accuracy: 0.5", {"top 5 accuracy": 0.5}),
        ("Test accuracy: 0.5", {"Test accuracy": 0.5}),
    ],
)
def test_a_counter_is_no_part_of_a_name(line: str, metrics: dict[str, float]) -> None:
    wanted = ["val_loss", "Test accuracy", "top 5 accuracy", "accuracy"]
    assert read_metrics(line, wanted, list(COLON.patterns)) == metrics


def test_a_flag_that_is_off_is_left_out() -> None:
    searched, _ = split({"lr": (1e-3, 1e-1), "amp/": None})
    passing = Passing.read("", ["train", "${lr}"], searched, {})
    assert passing.shown(["train", "${lr}"], {"lr": "0.1", "amp": "False"}) == "train 0.1"


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("fit $(test True = True && echo --amp) -v", "fit --amp -v"),
        ("fit $(test False = True && echo --amp) -v", "fit  -v"),
        ("fit $(test True = True && echo --aug || echo --no-aug)", "fit --aug"),
        ("fit $(test False = True && echo --aug || echo --no-aug)", "fit --no-aug"),
    ],
)
def test_a_command_is_shown_with_its_flags_settled(script: str, shown: str) -> None:
    assert settled(script) == shown


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-a", "--use_amp", type=bool, default=False)
parser.add_argument("--lr", type=float)
"""


@pytest.mark.parametrize(
    ("text", "space", "message"),
    [
        (ARGPARSE, {"use-amp": ["true", "false"]}, "type=bool, to which 'false' is true"),
        (ARGPARSE, {"use_amp": [True, False]}, "type=bool, to which 'False' is true"),
        (ARGPARSE, {"use_amp": (0, 1)}, "type=bool, to which '0' is true"),
        (ARGPARSE, {"use_amp": 0, "lr": (1e-3, 1e-1)}, "type=bool, to which '0' is true"),
        ("import fire", {"amp": ["true", "false"]}, "fire, which takes amp=false for the word"),
    ],
)
def test_a_false_that_the_script_takes_for_true_is_refused(
    text: str, space: dict[str, Any], message: str
) -> None:
    Path("train.py").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        podium.tune("train.py", space, trials=1)


@pytest.mark.parametrize(
    ("text", "space"),
    [
        (ARGPARSE, {"use_amp": True, "lr": [0.1, 0.0]}),
        (ARGPARSE, {"amp": ["true", "false"]}),
        ("import fire", {"amp": [True, False]}),
        ("import argparse", {"amp": ["true", "false"]}),
        ("not Python", {"amp": ["true", "false"]}),
    ],
)
def test_other_falses_are_let_pass(text: str, space: dict[str, Any]) -> None:
    Path("train.py").write_text(text)
    searched, fixed = split(space)
    check_false(["python", "train.py"], {**searched, **fixed})


def notebook(*cells: str, tags: tuple[str, ...] = ()) -> list[str]:
    written = [
        {"cell_type": "code", "source": [text], "metadata": {"tags": list(tags)}} for text in cells
    ]
    Path("a.ipynb").write_text(json.dumps({"cells": written}))
    return ["papermill", "a.ipynb", "out.ipynb"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("batch_size = 3",), "no cell of a.ipynb mentions batch-size"),
        (("x = 1", "print(x)"), "no cell of a.ipynb mentions lr"),
        (("lr = 0.1 if x else 2", "batch-size"), "a.ipynb sets lr itself, and no cell has the tag"),
        (("lr: float = 0.1",), "a.ipynb sets lr itself, and no cell has the tag parameters"),
    ],
)
def test_a_parameter_that_a_notebook_loses_is_refused(cells: tuple[str, ...], message: str) -> None:
    name = "batch-size" if "batch_size" in cells[0] else "lr"
    searched, _ = split({name: [0.1, 0.2]})
    with pytest.raises(InvalidInput, match=message):
        Passing.read("", notebook(*cells), searched, {})


@pytest.mark.parametrize(
    "cell",
    ["lr = float(lr)", "%run train.py", "from settings import *", "train(**globals())"],
)
def test_a_notebook_may_use_a_parameter_in_many_ways(cell: str) -> None:
    searched, _ = split({"lr": [0.1, 0.2]})
    assert Passing.read("", notebook(cell), searched, {}).way == "papermill"


def test_a_text_of_a_notebook_stays_text() -> None:
    cell = "token = '[PAD]'\neps: str = 'small'\nlayers = ''"
    command = notebook(cell, tags=("parameters",))
    searched, fixed = split({"token": ["[CLS]", "true"], "eps": "1e-05", "layers": "[64, 64]"})
    passing = Passing.read("", command, searched, fixed)
    words = passing.words(command, {"token": "[CLS]", "eps": "1e-05", "layers": "[64, 64]"})
    assert words[3:] == ["-r", "token", "[CLS]", "-r", "eps", "1e-05", "-y", "layers: [64, 64]"]


def test_a_notebook_gets_lists_and_booleans() -> None:
    command = notebook("lr = 1\namp = 0\nlayers = []", tags=("parameters",))
    searched, fixed = split({"lr": [0.1, 1], "amp": ["true", "false"], "layers": "[64, 64]"})
    passing = Passing.read("", command, searched, fixed)
    words = passing.words(command, {"lr": "0.1", "amp": "false", "layers": "[64, 64]"})
    assert words[3:] == ["-p", "lr", "0.1", "-y", "amp: false", "-y", "layers: [64, 64]"]
    Passing.read("", notebook("print(lr == 3, amp, layers)"), searched, fixed)
