"""`podium tune` as a user types it, with real processes."""

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podium.cli import main
from podium.cli.live import ExperimentView
from podium.manifests.experiment import Experiment, check
from podium.manifests.rules import RUNNERS
from podium.search.space import Parameter

SCRIPT = """#!/usr/bin/env python
import argparse, os, pathlib
parser = argparse.ArgumentParser()
for name in ("--lr", "--batch-size", "--epochs", "--seed"):
    parser.add_argument(name, type=float, default=0)
parser.add_argument("--data", default="")
given = parser.parse_args()
print(f"accuracy={{1 - given.lr - given.batch_size / 1000}} seconds={{given.seed}}", given.data, given.epochs)
"""


@pytest.fixture
def podium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Type a command beside train.py, which ends with a given exit code."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format())
    script.chmod(0o755)

    def run(words: str, code: int = 0) -> Any:
        monkeypatch.setattr("sys.argv", ["podium", *shlex.split(words)])
        ended: Any = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code
        printed = capsys.readouterr()
        assert (ended or 0) == code, printed
        return printed

    return run


def test_stages_under_the_objectives_name_are_a_warning(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    Path("stages.py").write_text(
        "import sys\nfor stage in sys.argv[2:]: print(stage + ' accuracy=0.9')\n"
    )
    said = podium("tune --lr 0..1 --trials 1 -- python stages.py '--lr=${lr}' train val")
    assert (
        "warning: `train accuracy`, `val accuracy` are all read as accuracy (lines 1, 2" in said.err
    )
    assert "hint: give each its own name" in said.err
    assert (
        "warning"
        not in podium("tune --lr 0..1 --trials 1 -- python stages.py '--lr=${lr}' val").err
    )


@pytest.mark.parametrize(
    ("name", "number", "options", "stored"),
    [
        ("accuracy=", "1,234.5", "", "1"),  # the worst of both then
        ("accuracy=", "1.e-05", "--objective min:accuracy", "1"),
        ("accuracy: ", "1_234", "--prints colon", "1"),
        ("accuracy ", "0,85", "--prints words", "0"),
    ],
)
def test_an_objective_that_was_cut_short_is_a_warning(
    podium: Callable[..., Any], tmp_path: Path, name: str, number: str, options: str, stored: str
) -> None:
    Path("cut.py").write_text(
        f"import sys\nprint('{name}' + ('{number}' if sys.argv[1] == '2' else '950'))\n"
    )
    said = podium(f"tune --n 1,2 --algorithm grid --trials 2 {options} -- python cut.py '${{n}}'")
    assert f"warning: `accuracy={number}` is stored as '{stored}'" in said.err
    assert "hint: print plain decimals" in said.err


def test_flags_no_script_knows_end_the_sweep_soon(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()")
    error = podium("tune train.py --lr 0.0..1.0 --trials 400 --algorithm random", 1).err
    said = re.search(r"error: train was stopped: its first (\d+) trials have no result\n", error)
    assert said
    assert int(said[1]) < 10
    assert ": train.py: error: unrecognized arguments: --lr=0." in error


def test_a_flag_of_some_models_alone_ends_no_sweep() -> None:
    said, stopped = "train.py: error: unrecognized arguments: --depth=3", list[str]()
    models = {"t-1": "flat", "t-2": "flat", "t-3": "flat", "t-4": "deep"}
    failed, space = (
        ["t-1", "t-2", "t-3"],
        [Parameter(name="model", kind="categorical", choices=("deep", "flat"))],
    )
    cluster: Any = SimpleNamespace(
        experiment=lambda name: SimpleNamespace(trials={"Failed": failed}, space=space),
        trial=lambda name: SimpleNamespace(message=said, parameters={"model": models[name]}),
        stop=lambda kind, name: stopped.append(name),
    )
    view = ExperimentView(cluster, "s", {}, patience=20)
    view.output()
    assert not stopped, "deep may know it"
    failed.append("t-4")
    view.output()
    assert stopped == ["s"]


def test_a_sweep_without_any_result_is_stopped(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('no data')")
    error = podium("tune broken.py --lr 0.0..1.0 --trials 400 --algorithm random", 1).err
    assert re.search(
        r"error: broken was stopped: its first \d\d trials have no result\ntrial .*: no data", error
    )
    assert error.endswith("; podium experiment resume broken goes on all the same\n")
    resumed = podium("experiment resume broken --max-failed-trials 30", 1).err
    assert "max failed count has reached" in resumed


def test_a_script_is_tuned_and_its_best_command_runs(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    said = podium("tune train.py --lr 1e-4..1e-1 --batch-size 32,64 --epochs 2 --trials 3 --seed 1")
    assert "maximize accuracy: lr 0.0001 to 0.1 on a log scale; batch-size 32, 64" in said.err
    assert "the same in all trials: epochs 2\n" in said.err, "as --max-trials 3 would be"
    assert said.err.count(" Succeeded accuracy=") == 3
    (command,) = [line for line in said.out.splitlines() if line.startswith("train with them: ")]
    words = shlex.split(command.partition(": ")[2])
    assert words[:3] == ["python", "train.py", "--epochs=2"]
    done = subprocess.run(
        [sys.executable, *words[1:]], capture_output=True, text=True, check=True, timeout=60
    )
    (report,) = [
        line.partition(": ")[2] for line in said.err.splitlines() if line.startswith("report: ")
    ]
    assert shlex.join(words) in (tmp_path / report).read_text()
    best = json.loads(podium("experiment best train --json").out)
    assert float(done.stdout.split()[0].partition("=")[2]) == pytest.approx(best["value"])


def test_a_choice_may_have_an_apostrophe_beside_a_dollar(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nprint(f'accuracy={len(sys.argv[1])}', sys.argv[1])\n"
    )
    said = podium(
        """tune train.py --word "it's so,plain,$HOME" --algorithm grid --trials 3 --save sweep.yaml"""
    )
    assert "warning" not in said.err
    command = said.out.partition("train with them: ")[2].strip()
    assert shlex.split(command) == ["python", "train.py", "--word=it's so"]
    (report,) = [
        line.partition(": ")[2] for line in said.err.splitlines() if line.startswith("report: ")
    ]
    (shown,) = re.findall(
        '<pre tabindex="0">(python train.py .*?)</pre>', (tmp_path / report).read_text()
    )
    assert shlex.split(html.unescape(shown)) == ["python", "train.py", "--word=it's so"]
    assert check(Experiment.load(str(tmp_path / "sweep.yaml")), RUNNERS)


def test_a_command_behind_dashes_keeps_its_own_words(podium: Callable[..., Any]) -> None:
    words = "tune --lr 0..1:0.5 --param seed=3 --algorithm grid --trials 3 --parallel 1 --metric seconds --json"
    best = json.loads(podium(f"{words} -- python train.py --batch-size 100 --data here").out)
    assert best["parameters"] == {"lr": "0.0"}
    assert best["value"] == pytest.approx(0.9)
    assert best["metrics"]["seconds"]["latest"] == "3.0"


def test_a_program_of_its_own_is_tuned(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").rename(tmp_path / "train")
    said = podium(
        "tune train --lr 1,2 --objective min:accuracy --algorithm grid --trials 2 --data ."
    )
    assert f"train with them: ./train --data={tmp_path} --lr=2" in said.out


def test_a_saved_path_of_this_machine_is_named(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    said = podium("tune train.py --lr 0..1 --data rows --save sweep.yaml --no-run").err.splitlines()
    assert (
        said[-2]
        == f"wrote sweep.yaml, with paths of this machine: {tmp_path}/podium-home/trials, {tmp_path}/rows"
    )
    assert (
        said[-1] == "  hint: for another machine name URIs with --storage and --data, or edit them"
    )


def test_the_saved_experiment_is_one_that_katib_takes(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    said = podium(
        "tune train.py --lr 1e-4..1e-1 --storage s3://bucket/tuning --save sweep.yaml --no-run"
    )
    assert said.err.splitlines()[-1] == "wrote sweep.yaml"
    saved = check(Experiment.load(str(tmp_path / "sweep.yaml")), RUNNERS)
    (container,) = [container for _, container in saved.template.primary_containers()]
    assert container.words == ("python", "train.py", "--lr=${trialParameters.lr}")
    assert not (tmp_path / "podium-home").exists()
    assert "sweep.yaml" in podium("doctor sweep.yaml").out


def test_a_failed_sweep_ends_with_its_report(podium: Callable[..., Any], tmp_path: Path) -> None:
    said = podium("tune train.py --lr low,high --trials 2 --report why.html", code=1)
    assert "report: why.html" in said.err
    assert "invalid float value" in (tmp_path / "why.html").read_text()
    said = podium("experiment report train --output again.html --json")
    assert json.loads(said.out) == {"experiment": "train", "report": "again.html"}
    assert "invalid float value" in (tmp_path / "again.html").read_text()


def test_a_failed_sweep_prints_its_best_trial(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nvalue = int(sys.argv[1][4:])\nprint(f'accuracy={1 / (value > 3)}')\n"
    )
    said = podium("tune train.py --x 1..4 --algorithm grid --trials 4 --parallel 4", code=1)
    assert " a result, the best is " in said.err
    assert "  | ZeroDivisionError: " in said.err
    assert "train with them: python train.py --x=4" in said.out


def test_a_sweep_with_a_failed_trial_warns(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nvalue = float(sys.argv[1][4:])\nprint(f'accuracy={1 / value}')\n"
    )
    said = podium("tune train.py --x 0,1,2 --algorithm grid --trials 3")
    assert "warning: 1 of 3 trials failed\ntrial train-" in said.err
    assert "  | ZeroDivisionError: " in said.err
    assert "train with them: python train.py --x=1" in said.out


def test_median_is_an_option(podium: Callable[..., Any], tmp_path: Path) -> None:
    said = podium("tune train.py --lr 0..1 --stop median --save sweep.yaml --no-run")
    assert "after it printed accuracy 3 times" in said.err
    assert "warning" not in said.err
    stopping = Experiment.load(str(tmp_path / "sweep.yaml")).early_stopping
    assert stopping
    assert stopping.name == "medianstop"


def test_asha_is_an_option(podium: Callable[..., Any]) -> None:
    said = podium("tune train.py --lr 0..1 --epochs 1..4 --stop asha --trials 6 --parallel 1")
    assert (
        "all trials start with epochs 1, and the best third continues with three times as many, up to 4"
        in said.err
    )
    assert " epochs=3" in said.err


def test_a_budget_ends_the_sweep(podium: Callable[..., Any], tmp_path: Path) -> None:
    script = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(f"{script}import time\ntime.sleep(0.3)\n")
    said = podium(
        "tune train.py --lr 0.0..1.0 --trials 300 --max-time 3s --max-cost 9 --price 3600 --save sweep.yaml"
    )
    assert "forecast: about " in said.err
    assert "no other trial fits into its budget. Budget used: " in said.err
    assert "train with them: python train.py --lr=" in said.out
    saved = Experiment.load(str(tmp_path / "sweep.yaml"))
    assert saved.asked == {"algorithm": "auto", "max_time": "3s", "max_cost": 9.0, "price": 3600.0}
    said = podium("experiment run sweep.yaml --name again --max-time 2s --max-trials 200")
    assert " of 2 s, a cost of " in said.err


def test_trials_wait_in_the_queue_that_is_named(podium: Callable[..., Any], tmp_path: Path) -> None:
    podium("tune train.py --lr 1,2 --queue team --queue-priority urgent --save sweep.yaml --no-run")
    job = Experiment.load(str(tmp_path / "sweep.yaml")).template.workload
    assert job.queue == "team"
    assert job.labels["kueue.x-k8s.io/priority-class"] == "urgent"
    assert (
        "name the local queue"
        in podium("tune train.py --lr 1,2 --queue-priority urgent", code=2).err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tune", "podium tune takes one script, or the command after --, but got none"),
        ("tune train.py other.py --lr 1..2", "but got train.py other.py"),
        ("tune train.py --lr 1..2 -- python train.py", "but got train.py -- python train.py"),
        (
            "tune train.py --lr 1..2 -- --trials 3",
            "hint: podium tune train.py --lr 1..2 --trials 3",
        ),
        ("tune -m package --lr 1..2", "hint: podium tune --lr 1..2 -- python -m package"),
        ("tune sh -e run --lr 1..2 --trials 3", "podium tune --lr 1..2 --trials 3 -- sh -e run"),
        ("tune train.py --lr", "--lr has no value"),
        ("tune train.py --verbose --lr 1..2", "--verbose has no value"),
        ("tune train.py --set lr=.1..1", "a parameter is an option of its own name"),
        ("tune train.py --lr 1..many", "--lr 1..many is neither a range nor a list"),
        ("tune train.py --lr 1..2 --layer 1 --layer 2", "--layer is given twice"),
        ("tune train.py --lr 1..2 --param lr=3..4", "--lr is given twice"),
        ("tune train.py --lr 2..1", "low <= high"),
        ("tune train.py", "in train.py\nhint: podium tune train.py --lr 1e-4..1e-1\n"),
        ("tune train.py --epochs 3", "there is nothing to search in train.py --epochs 3"),
        ("tune -- python train.py", "podium tune --lr 1e-4..1e-1 -- python train.py"),
        (f"tune train.py --lr 1..2 --name {'n' * 41}", "error: --name must be lower case"),
        ("tune train.py --lr 1..2 --param seed", "--param takes NAME=SPACE, not"),
        ("tune train.py --lr 1..2 --no-run", "--no-run runs nothing"),
        ("tune train.py --lr 0..1 --algorithm hyperband", "hint: --stop asha stops trials early"),
        (
            "tune train.py --lr 1..2 --no-run --save a.yaml --report a.html --json",
            "--no-run runs nothing, whose end --report and --json could report",
        ),
        ("tune train.py --lr 1..2 --trials 0", "`trials >= 1` must hold"),
        (
            "tune train.py --lr 1..2 --from '${podium.data}'",
            "names ${podium.data}, but no data is given",
        ),
        (
            "tune train.py --lr 1..2 --prints tensorflow",
            "'tensorflow' is not one of 'huggingface', 'lightning'",
        ),
        ("tune train.py --lr 1..2 --objective a:b", "an objective is the name of a metric"),
        ("tune train.py --lr 1..2 --objective val/acc", "--prints colon, or prints="),
        ("tune train.py --lr 1..2 --algorithm oracle", "oracle"),
        (
            "tune train.py --lr 1..2 --stop asha",
            "podium tune train.py --lr 1e-4..1e-1 --epochs 1..27 --stop asha",
        ),
        ("tune train.py --lr 1..2 --epochs 9 --stop asha", "but --epochs is 9 in all trials"),
        ("tune train.py --lr 1..2 --stop hyperband", "'hyperband' is not one of 'median', 'asha'"),
        ("tune train.py --lr 1..2 --max-time soon", "max_time is a duration above 0, not 'soon'"),
        ("tune train.py --lr 1..2 --max-cost 3", "--max-cost 20 --price 1.5"),
        ("tune nothing.py --lr 1..2", "there is no script nothing.py"),
        ("tune nothing.py --lr 1..2", "in a shell podium tune --lr 1e-4..1e-1 -- python train.py"),
        ("tune train.py --lr 1..2 --cluster kubernetes://team", "name a storage: s3://"),
        ("tune train.py --lr 1..1e-4", "--lr 1..1e-4: `low < high` must hold"),
        ("tune train.py --depth 8..1", "--depth 8..1: `low <= high` must hold"),
        ("doctor train.py", "hint: podium doctor -- python train.py"),
    ],
)
def test_what_makes_no_sense_is_refused(
    podium: Callable[..., Any], words: str, message: str, tmp_path: Path
) -> None:
    said = podium(words, code=2)
    assert message in said.err
    assert not (tmp_path / "podium-home").exists()


@pytest.mark.parametrize(
    ("text", "mended"),
    [("#!/bin/sh\r\necho accuracy=0.5\r\n", 1), ("echo accuracy=0.5\n", 1), ("#!/bin/sh\n", 0)],
    ids=["from Windows", "without a first line", "fit"],
)
def test_a_shell_script_that_cannot_start_is_mended(
    podium: Callable[..., Any], tmp_path: Path, text: str, mended: int
) -> None:
    script = tmp_path / "my run.sh"
    script.write_bytes(text.encode())
    script.chmod(0o755)
    words = "tune 'my run.sh' --lr 0..1 --save a.yaml --no-run"
    if mended:
        hint = podium(words, code=2).err.partition("hint: ")[2]
        subprocess.run(hint, shell=True, check=True, cwd=tmp_path)
    podium(words)
    assert subprocess.run(script).returncode == 0


def test_a_package_is_named_as_python_runs_it(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "__main__.py").touch()
    assert "-- python -m net" in podium("tune net --lr 0..1", code=2).err


SWITCH = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-a", "--amp", action="store_true")
print("accuracy=0.5", parser.parse_args())
"""
CLICK = """
import click
click.command()(click.option("--amp/--no-amp")(lambda amp: print("accuracy=0.5")))()
"""


@pytest.mark.parametrize(
    ("given", "warns"),
    [("--seed 7", True), ("--seed 7 --param seed=7", False), ("--param seed=7", False)],
)
def test_a_seed_that_the_script_does_not_get_is_told(
    podium: Callable[..., Any], tmp_path: Path, given: str, warns: bool
) -> None:
    (tmp_path / "train.py").write_text("parser.add_argument('--seed', type=int)")
    said = podium(f"tune train.py --lr 0..1 --save a.yaml --no-run {given}").err
    assert ("warning: seed 7 is the search's; train.py has a --seed of its own" in said) is warns
    assert ('hint: --param seed=7, in Python {"seed": 7}, passes it on' in said) is warns


KNOWN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr")
parser.parse_known_args()
"""


@pytest.mark.parametrize(
    ("script", "words", "warning"),
    [
        (KNOWN, "--rate 0..1", "train.py defines no --rate, and passes over flags it does not"),
        (KNOWN, "--lr 0..1", ""),
        (KNOWN.replace("known_", ""), "--rate 0..1", ""),
        (KNOWN.replace("parser.parse", "_, rest = parser.parse"), "--rate 0..1", ""),
        (KNOWN.replace("argparse.A", "HfA"), "--rate 0..1", ""),
        (KNOWN + "Model.add_model_args(parser)", "--rate 0..1", ""),
        (KNOWN + "for name in NAMES: parser.add_argument(f'--{name}')", "--rate 0..1", ""),
        (KNOWN + "for name in NAMES: parser.add_argument('--' + name)", "--rate 0..1", ""),
        ("os.environ.get('LR', 1)", "--as env --lr 0..1", "train.py reads the variable LR, not lr"),
        ("os.environ.get('LR', 1)", "--as env --LR 0..1", ""),
        ("Settings()", "--as env --lr 0..1", ""),
        ("@hydra.main()", "--lr 0..1", "name=value: add --as hydra"),
        ("@hydra.main()", "--as hydra --lr 0..1", ""),
        (
            "conf = OmegaConf.from_cli()",
            "--lr 0..1",
            "as OmegaConf does, name=value: add --as hydra",
        ),
        ("conf = OmegaConf.from_cli()", "--as hydra --lr 0..1", ""),
        ("add_argument('--lr')\nOmegaConf.from_cli(rest)", "--lr 0..1", ""),
        ("@click.option('--lr')\ndef main(lr, rest): OmegaConf.from_cli(rest)", "--lr 0..1", ""),
    ],
)
def test_a_parameter_that_the_script_passes_over_is_told(
    podium: Callable[..., Any], tmp_path: Path, script: str, words: str, warning: str
) -> None:
    (tmp_path / "train.py").write_text(script)
    said = podium(f"tune train.py {words} --save a.yaml --no-run").err
    assert ("warning: " in said) is bool(warning)
    assert warning in said


@pytest.mark.parametrize(
    ("script", "words", "warns"),
    [
        ("parse_known_args()", "--trials 3", True),
        ("parse_known_args()", "--max-time=2h", True),
        ("Options(max_time=3)", "--max-time=2h", False),
        ("parser.add_argument('--trials')", "--trials 3", False),
        ("parse_known_args()", "--seed 3", False),
    ],
)
def test_an_option_behind_the_dashes_is_the_programs(
    podium: Callable[..., Any], tmp_path: Path, script: str, words: str, warns: bool
) -> None:
    (tmp_path / "train.py").write_text(script)
    said = podium(f"tune --lr 0..1 --save a.yaml --no-run -- python train.py {words}").err
    option, _, _ = words.replace("=", " ").partition(" ")
    warning = f"{option} behind -- goes to train.py, which does not mention it"
    assert (warning in said) is warns


def test_hydras_words_in_the_command_are_no_flags(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("@hydra.main()")
    said = podium("tune --lr 0..1 --save a.yaml --no-run -- python train.py 'lr=${lr}'").err
    assert "warning: " not in said


@pytest.mark.parametrize("script", [SWITCH, CLICK])
def test_a_flag_without_a_value_is_proposed(
    podium: Callable[..., Any], tmp_path: Path, script: str
) -> None:
    (tmp_path / "train.py").write_text(script)
    said = podium("tune train.py --amp true,false --trials 1", code=1).err
    assert "hint: --amp/ or --amp/--no-amp in place of --amp and its values" in said


def test_a_word_longer_than_any_file_name_is_passed(podium: Callable[..., Any]) -> None:
    podium(f"tune --x 0..1 --trials 1 -- sh -c 'echo accuracy=1 {'a' * 300}'")


@pytest.mark.parametrize("reader", ["float", "int"])
def test_a_program_that_reads_values_by_position_is_told(
    podium: Callable[..., Any], tmp_path: Path, reader: str
) -> None:
    script = f"import sys; print('accuracy=' + str({reader}(sys.argv[1])))"
    (tmp_path / "train.py").write_text(script)
    for space in ("1..8", "1,2"):  # the second one ends once both have failed
        said = podium(f"tune train.py --width {space} --trials 3", code=1).err
        assert "behind --: python train.py '${width}'; " in said
    podium("tune --width 1..8 --trials 1 -- python train.py '${width}'")


@pytest.mark.parametrize(("script", "warns"), [("print('accuracy=0.9')", True), (None, False)])
def test_values_that_make_no_difference_get_a_warning(
    podium: Callable[..., Any], tmp_path: Path, script: str | None, warns: bool
) -> None:
    if script:
        (tmp_path / "train.py").write_text(script)
    said = podium("tune train.py --lr 0.0..1.0 --algorithm random --trials 3").err
    assert ("warning: all 3 trials have accuracy=0.9, whatever lr is" in said) is warns
    assert ("hint: does the program read it? podium job logs train-" in said) is warns


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1..8", "1 to 8"),
        ("1..9:2", "1 to 9 in steps of 2"),
        ("log:1..64", "1 to 64 on a log scale"),
        ("1e-4..1e-1", "0.0001 to 0.1 on a log scale"),
        ("linear:1e-4..1", "0.0001 to 1"),
        ("-1..1", "-1 to 1"),
        ("0..1:0.25", "0 to 1 in steps of 0.25"),
        ("32,64", "32, 64"),
        ("adam,sgd", "adam, sgd"),
        ("007,1_0", "007, 1_0"),
        ("[64,64],[[1,2],3]", "[64,64], [[1,2],3]"),
        ("(0.9,0.99),{a:1,b:2}", "(0.9,0.99), {a:1,b:2}"),
        ("]1,2[", "]1, 2["),
    ],
)
def test_every_space_of_the_help_is_understood(text: str, shown: str) -> None:
    from podium.api.space import from_text

    assert str(from_text("lr", text)) == shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("adam", "adam"),
        ("../data", "../data"),
        ("1.10", "1.10"),
        ("007", "007"),
        ("2024_01", "2024_01"),
        ("1e-4", "1e-4"),
        ("[64,64]", "[64,64]"),
    ],
)
def test_a_single_word_is_the_same_in_all_trials(text: str, value: Any) -> None:
    from podium.api.space import dimension, from_text

    assert from_text("lr", text) == value
    assert dimension("lr", value) is None


@pytest.mark.parametrize(
    ("printed", "seen", "hint"),
    [
        (
            "Accuracy: 0.95",
            "`Accuracy: 0.95` is not name=value (line 1)",
            "--prints colon --objective Accuracy",
        ),
        (
            "seed: 3\nval_acc: 0.95",
            "no line holds name=number at all",
            "podium tune train.py --lr 1,2 --algorithm grid --trials 2 --prints colon --objective val_acc",
        ),
        ("seed: 3", "no line holds name=number at all", "print accuracy=0.9834 on a line"),
        (
            "val_loss: 0.25\nmax_errors: 5\nbest accuracy at epoch 2: 0.9",
            "no line holds name=number",
            "--prints colon --objective val_loss",
        ),
        (
            "gradient_accumulation_steps: 4\nprevious: 3",
            "no line holds name=number",
            "print accuracy=0.9834",
        ),
        ("loss 0.5 - acc 0.93", "no line holds name=number", "--prints words --objective acc"),
        ("test accuracy is 0.934", "`accuracy is 0.934`", "--prints words --objective accuracy"),
        (
            "epoch=1 val_acc=0.9",
            "name=value was found for epoch, val_acc",
            "--objective val_acc, or print accuracy=",
        ),
        (
            "train_accuracy=0.99 val_acc=0.9",
            "name=value was found for train_accuracy, val_acc",
            "--objective val_acc, or print accuracy=",
        ),
        (
            "val_acc: 0.9\ntrain_acc: 0.99",
            "no line holds name=number",
            "--prints colon --objective val_acc",
        ),
        (
            "loss=0.2",
            "name=value was found for loss",
            "--objective loss, or print accuracy=",
        ),
        (
            "Test: [ 1/20]\tTime 0.1 (0.1)\tAcc@1 97.2 (71.4)\tAcc@5 99 (90)\n * Acc@1 72.4 Acc@5 90.1",
            "no line holds name=number",
            "--prints words --objective Acc@1;",
        ),
        (
            "Test: [20/20]  Time: 0.1 (0.1)  Acc@1: 97.2 (71.4)\n*** Best metric: 72.0 (epoch 2)",
            "no line holds name=number",
            '--prints colon --objective "Best metric";',
        ),
        (
            "seed: 1\n'validation': {'loss': 1.1, 'top1': 70.5, 'top5': 90.0}",
            "no line holds name=number",
            "--prints json --objective top1;",
        ),
        (
            '{"accuracy": 0.9}',
            '`"accuracy": 0.9` is a dict',
            "--prints json --objective accuracy",
        ),
        (
            "9/9 - 2s - accuracy: 0.95 - loss: 0.2",
            "Keras prints accuracy, loss",
            "--prints keras --objective accuracy",
        ),
        ("done", "no line holds name=number at all", "print accuracy=0.9834 on a line"),
    ],
)
def test_a_trial_without_metrics_says_what_it_printed(
    podium: Callable[..., Any], tmp_path: Path, printed: str, seen: str, hint: str
) -> None:
    (tmp_path / "train.py").write_text(f"print({printed!r})")
    said = podium("tune train.py --lr 1,2 --algorithm grid --trials 2", code=1).err
    error, _, reported = said.partition("error: ")[2].partition("hint: ")
    assert seen in error
    assert hint in reported
    assert "Reached expected number of succeeded pods" not in said
    assert "never printed" not in said


XGBOOST = """import sys
rate = float(sys.argv[2].partition("=")[2])
for at in range(3):
    print(f"[{at}]\\ttrain-logloss:{0.1:.5f}\\teval-logloss:{0.5 + rate - at / 10:.5f}")
print(sys.argv[1])
"""


def test_the_hint_for_a_library_is_a_command_that_works(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(XGBOOST)
    words = 'tune train.py --eta 0.1,0.2 --algorithm grid --trials 2 --objective min:logloss --param note="it\'s"'
    hint = podium(words, code=1).err.partition("hint: podium ")[2].partition(";")[0]
    assert hint.endswith("--prints xgboost --objective eval-logloss")
    said = podium(hint)
    assert "minimize eval-logloss" in said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("train with them: ")]
    assert "--eta=0.1" in line


@pytest.mark.parametrize(
    ("prints", "objective", "direction", "printed"),
    [
        ("lightgbm", "valid_0's auc", "maximize", "[1]\tvalid_0's auc: 0.5"),
        ("lightgbm", "valid_0's l2", "minimize", "[1]\tvalid_0's l2: 0.5"),
        ("colon", "Mean squared error", "minimize", "Mean squared error: 0.5"),
        ("colon", "min:Test loss", "minimize", "Test loss: 0.5"),
        ("xgboost", "validation_0-error@0.7", "minimize", "[1]\tvalidation_0-error@0.7:0.5"),
    ],
)
def test_a_librarys_names_may_have_other_characters(
    podium: Callable[..., Any],
    tmp_path: Path,
    prints: str,
    objective: str,
    direction: str,
    printed: str,
) -> None:
    (tmp_path / "train.py").write_text(f"print({printed!r})")
    chosen = shlex.join(["--prints", prints, "--objective", objective])
    said = podium(f"tune train.py --lr 1,2 --algorithm grid --trials 2 {chosen} --save sweep.yaml")
    assert f"{direction} {objective.removeprefix('min:')}" in said.err
    assert json.loads(podium("experiment best train --json").out)["value"] == 0.5
    assert check(Experiment.load(str(tmp_path / "sweep.yaml")), RUNNERS)


def test_a_metric_of_training_data_gets_a_warning(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    said = podium(
        "tune train.py --lr 1,2 --prints keras --objective accuracy --save sweep.yaml --no-run"
    )
    assert (
        "warning: Keras measures accuracy on training data; val_accuracy is one of validation data"
        in said.err
    )
    said = podium(
        "tune train.py --lr 1,2 --prints keras --objective val_accuracy --save sweep.yaml --no-run"
    )
    assert "warning" not in said.err


def test_a_scripts_own_flag_gets_the_place_of_its_model(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import os, pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1].partition('=')[2])\n"
        "assert file.absolute().parent == pathlib.Path(os.environ['PODIUM_OUTPUT'])\n"
        "file.write_text(sys.argv[2])\n"
        "print('accuracy=0.5')\n"
    )
    said = podium(
        "tune train.py --lr 1,2 --model '${podium.output}/weights.txt' --algorithm grid --trials 2"
    )
    command = said.out.partition("train with them: ")[2].partition("\n")[0]
    assert "python train.py --model=output/weights.txt --lr=" in command
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "output/weights.txt").is_file()
    kept = {file.read_text() for file in tmp_path.glob("podium-home/trials/*/weights.txt")}
    assert kept == {"--lr=1", "--lr=2"}


def test_the_best_command_has_the_variables_of_a_trial(
    podium: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "my data").mkdir()
    (tmp_path / "train.py").write_text(
        "import os, pathlib, sys\n"
        "os.chdir('/')\n"
        "output = pathlib.Path(os.environ['PODIUM_OUTPUT'])\n"
        "output.mkdir(exist_ok=True, parents=True)\n"
        "(output / 'x').write_text(os.environ['PODIUM_DATA'])\n"
        "print('accuracy=0.5')\n"
    )
    said = podium("tune train.py --lr 1,2 --data 'my data' --algorithm grid --trials 2")
    command = said.out.partition("train with them: ")[2].partition("\n")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "output/x").read_text() == str(tmp_path / "my data")


def test_a_script_above_the_directory_is_refused_with_a_way(podium: Callable[..., Any]) -> None:
    said = podium("tune ../old/train.py --lr 0..1", code=2).err
    assert "../old/train.py is not below the working directory" in said
    assert "hint: cd ../old, then podium tune train.py" in said


def test_a_misspelt_option_is_named(podium: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('accuracy=0.9')")
    said = podium("tune train.py --lr 1,2 --algorithm grid --trials 2 --objectiv loss --losses 1")
    assert "warning: --objectiv is a flag of the script; did you mean --objective?" in said.err
    assert said.err.count("warning: ") == 1
