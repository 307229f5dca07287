"""A pipeline in a Python file of the user's, put together from podium's components and others."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from click.testing import CliRunner
from kit_trainer import TRAIN
from test_podium_run import PODIUM, environment, only_run, podium, within

from podium.cli import app
from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.kfp.definition import Definition
from podium.kfp.versions import read_spec
from podium.runner.record import RunRecord

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
HEAD = """\
from kfp import dsl
from podium.components.images import STEPS_IMAGE
from podium.components.katib_sweep import katib_sweep
from podium.components.prepare_data import prepare_data
from podium.components.train_distributed import train_distributed
"""
COUNT = f"""\
{HEAD}
print("this is not YAML")

@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def count(model: str, factor: int) -> int:
    from podium.storage import connect
    return factor * len([entry for entry in connect(model).list() if entry.key == "model.onnx"])

@dsl.pipeline(name="train-and-count")
def train_and_count(source: str, factor: int = 1, note: str = "a\\nb: [1", command: list = []) -> int:
    '''Train, then count.

    Args:
        source: Where the data is.
        factor: How often.
        command: Of another trainer.
    '''
    data = prepare_data(dataset=source).outputs["prepared"]
    trained = train_distributed(data=data, trainer_image="any", command=command, workers=0)
    return count(model=trained.outputs["model"], factor=factor).output
"""
SWEEP = f"""\
{HEAD}
@dsl.pipeline(name="inner")
def inner(prepared: dsl.Input[dsl.Dataset], search: str):
    katib_sweep(data=prepared, trainer_image="any", experiment=search)

@dsl.pipeline(name="outer")
def outer(mine: str = "mine/sweep.yaml", experiment: str = "an experiment by name only"):
    data = prepare_data().outputs["prepared"]
    inner(prepared=data, search=mine)
    katib_sweep(data=data, trainer_image="any", experiment="mine/sweep.yaml")
"""

KINDS = f"""
{HEAD}
@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def pass_on(values: dict) -> dict:
    return values

@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def show(values: dict, constant: list) -> str:
    return str(dict(sorted(values.items()))) + str(constant)

@dsl.pipeline
def kinds(values: dict) -> str:
    return show(values=pass_on(values=values).output, constant=[7]).output
"""


def written(folder: Path, text: str, name: str = "own.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def refused(file: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        Definition.load(file)
    return caught.value


def test_a_pipeline_of_ones_own_runs_on_this_machine(tmp_path: Path, tiny_dataset: Path) -> None:
    home = tmp_path / "home"
    command = f"command={json.dumps(['python', written(tmp_path, TRAIN, 'train.py')])}"
    done = podium(
        home, written(tmp_path, COUNT), f"source={tiny_dataset}", "factor=5", command, "--json"
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["outputs"] == {"Output": 5}
    assert list(outcome["steps"]) == ["prepare-data", "train-distributed", "count"]
    assert outcome["step_outputs"]["count"] == {"Output": 5}
    shown = (
        CliRunner().invoke(app, ["runs", "show", "latest"], env={"PODIUM_HOME": str(home)}).stdout
    )
    assert [line.split() for line in shown.splitlines() if "Output" in line] == [
        ["count", "Output", "5"],
        ["Output", "5"],
    ]
    listed = CliRunner().invoke(app, ["runs", "list"], env={"PODIUM_HOME": str(home)}).stdout
    assert listed.splitlines()[1].endswith("Output 5")
    assert "own.py" in json.loads((only_run(home) / "run.json").read_text())["pipeline"]
    assert next((home / "store/runs").glob("*/train*/model.onnx")), "in the storage of this machine"


def test_its_parameters_are_those_of_its_signature(tmp_path: Path) -> None:
    file = written(tmp_path, COUNT)
    shown = CliRunner().invoke(app, ["run", "--list", file]).stdout.splitlines()
    assert shown[0].split(maxsplit=1) == ["source", "Where the data is."]
    assert shown[1].split(maxsplit=1) == ["factor=1", "How often."]
    with pytest.raises(InvalidInput, match="no parameter 'faktor'") as caught:
        compile_pipeline(file, ["faktor=2"])
    assert caught.value.hint == "did you mean factor?"
    with pytest.raises(InvalidInput, match="factor is a whole number"):
        compile_pipeline(file, ["factor=two"])


def test_whole_numbers_stay_whole_between_steps(tmp_path: Path) -> None:
    file = written(tmp_path, KINDS)
    done = podium(tmp_path / "home", file, 'values={"n": 3, "x": 0.5, "many": [1, 2.5]}', "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {
        "Output": "{'many': [1, 2.5], 'n': 3, 'x': 0.5}[7]"
    }


def test_a_run_without_a_needed_parameter_is_refused(tmp_path: Path) -> None:
    done = podium(tmp_path / "home", written(tmp_path, COUNT))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "error: the pipeline needs source\nhint: for example source=VALUE\n"
    )
    assert not (tmp_path / "home").exists()


def test_text_over_several_lines_survives_compiling(tmp_path: Path) -> None:
    compiled = CliRunner().invoke(app, ["compile", written(tmp_path, COUNT), "source=a\nb"]).stdout
    inputs = read_spec(compiled)["root"]["inputDefinitions"]["parameters"]
    assert (inputs["note"]["defaultValue"], inputs["source"]["defaultValue"]) == (
        "a\nb: [1",
        "a\nb",
    )


def test_every_experiment_of_a_file_is_compiled_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    text = (ROOT / "experiments/sobol.yaml").read_text()
    (tmp_path / "mine/sweep.yaml").write_text(text)
    file = written(tmp_path, SWEEP)
    spec = yaml.safe_load(compile_pipeline(f"{file}:outer"))
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    assert inputs["mine"]["defaultValue"] == text
    assert inputs["experiment"]["defaultValue"] == "an experiment by name only", (
        "it reaches no sweep"
    )
    sweep = spec["root"]["dag"]["tasks"]["katib-sweep"]["inputs"]["parameters"]["experiment"]
    assert sweep["runtimeValue"]["constant"] == text
    (tmp_path / "mine/sweep.yaml").unlink()
    with pytest.raises(InvalidInput, match=r"no file mine/sweep\.yaml"):
        compile_pipeline(f"{file}:outer")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import json\nimport nothing_here\n",
            "own.py, line 2: ModuleNotFoundError: No module named 'nothing_here'",
        ),
        ("a = 1\ndef x(:\n", "own.py, line 2: SyntaxError: invalid syntax"),
        ("def f():\n    raise ValueError('no\\nway')\nf()\n", "own.py, line 2: ValueError: no"),
        ("import sys\nsys.exit(3)\n", "own.py, line 2: SystemExit: 3"),
        ("\nexec('1 / 0')\n", "own.py, line 2: ZeroDivisionError: division by zero"),
        (f"{HEAD}\nx = prepare_data\n", "own.py has no pipeline"),
    ],
)
def test_a_file_that_defines_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(written(tmp_path, text))
    assert error.message.endswith(expected)
    assert "\n" not in error.message


@pytest.mark.parametrize("named", ["", ":part"])
def test_a_component_is_no_pipeline(tmp_path: Path, named: str) -> None:
    text = "from kfp import dsl\n\n@dsl.component(base_image='any')\ndef part() -> int:\n    return 1\n"
    file = written(tmp_path, text)
    error = refused(file + named)
    assert error.message == (
        f"{file} has no pipeline 'part'" if named else f"{file} has no pipeline"
    )
    assert (
        error.hint
        == f"part is a component: call it in a function with @kfp.dsl.pipeline, and name that, {file}:FUNCTION"
    )


def test_a_file_without_its_ending_is_answered_with_it(tmp_path: Path) -> None:
    file = written(tmp_path, COUNT)
    stem = file.removesuffix(".py")
    assert refused(stem).hint == f"did you mean {file}?"
    assert refused(f"{stem}:count").hint == f"did you mean {file}:count?"


def test_another_function_is_answered_with_the_pipelines(tmp_path: Path) -> None:
    file = written(tmp_path, f"{SWEEP}\ndef plain(): ...\n")
    assert refused(f"{file}:plain").hint == "one of inner, outer"


def test_one_of_several_pipelines_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, SWEEP)
    assert Definition.load(file).pipeline.name == "outer", "inner is a part of it"
    two = written(tmp_path, f"{SWEEP}\n@dsl.pipeline\ndef other():\n    prepare_data()\n", "two.py")
    error = refused(two)
    assert (error.message, error.hint) == (
        f"{two} has 2 pipelines: outer, other",
        f"name one: {two}:outer",
    )
    assert Definition.load(f"{file}:inner").pipeline.name == "inner"
    assert refused(f"{file}:outr").hint == "did you mean outer?"
    assert "there is no file" in refused(str(tmp_path / "nowhere.py")).message


def test_an_imported_pipeline_is_no_second_one(tmp_path: Path) -> None:
    written(tmp_path, COUNT, "parts.py")
    own = "from parts import train_and_count\nfrom kfp import dsl\n@dsl.pipeline(name='whole')\ndef whole():\n    train_and_count(source='x')\n"
    assert Definition.load(written(tmp_path, own)).pipeline.name == "whole"


def test_a_directory_stands_in_for_an_image(tmp_path: Path) -> None:
    text = dedent("""\
        from kfp import dsl
        @dsl.container_component
        def boat():
            return dsl.ContainerSpec(image="alpine", command=["echo", "hi"])
        @dsl.pipeline(name="trip")
        def trip():
            boat()
        """)
    assert (
        podium(tmp_path / "home", written(tmp_path, text), "--image-dir", "alpine=.").returncode
        == 0
    )


SLEEPER = """\
from kfp import dsl

@dsl.component
def sleeper(seconds: int):
    import tempfile, time
    tempfile.mkdtemp()
    print("sleeping", flush=True)
    time.sleep(seconds)

@dsl.pipeline(name="sleep")
def sleep(seconds: int = 0):
    sleeper(seconds=seconds)
"""


@pytest.mark.parametrize(
    "number", [0, signal.SIGINT, signal.SIGKILL], ids=["ends", "interrupted", "killed"]
)
def test_nothing_is_left_in_the_temporary_directory(tmp_path: Path, number: int) -> None:
    (tmp_path / "sleep.py").write_text(SLEEPER)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {**environment(tmp_path / "home"), "TMPDIR": str(scratch)}
    command = [PODIUM, "run", "sleep.py", f"seconds={60 if number else 0}"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL, text=True
    ) as process:
        if number:
            logs = "home/runs/*/logs/sleeper.log"
            assert within(
                60, lambda: any("sleeping" in log.read_text() for log in tmp_path.glob(logs))
            )
            assert list(scratch.iterdir())
            process.send_signal(number)
        process.wait(60)
    assert within(20, lambda: not list(scratch.iterdir())), list(scratch.rglob("*"))


def test_a_step_of_a_condition_is_counted_like_the_others(tmp_path: Path) -> None:
    text = dedent("""\
        from kfp import dsl
        @dsl.component(install_kfp_package=False)
        def number(x: int) -> int:
            print("x is", x)
            return x
        @dsl.pipeline(name="fork")
        def fork():
            first = number(x=1)
            with dsl.If(first.output == 1):
                number(x=2)
        """)
    home = tmp_path / "home"
    done = podium(home, written(tmp_path, text))
    assert re.findall(r"\[./.\] \S+$", done.stderr, re.MULTILINE) == [
        "[1/2] number",
        "[2/2] number-2",
    ]
    record = RunRecord.read(only_run(home))
    assert {step.state for step in record.steps.values()} == {"succeeded"}
    assert record.log("number").read_text().split() == ["x", "is", "1"]
    assert "Got executor_input:" in record.log("kfp").read_text()


def test_a_file_imports_from_its_repositorys_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeflow").mkdir()
    written(tmp_path / "kubeflow", "", "__init__.py")
    written(tmp_path / "kubeflow", COUNT, "parts_of_it.py")
    own = "from kubeflow.parts_of_it import train_and_count\nfrom kfp import dsl\n@dsl.pipeline(name='whole')\ndef whole():\n    train_and_count(source='x')\n"
    file = written(tmp_path / "kubeflow", own, "pipeline.py")
    monkeypatch.chdir(tmp_path)
    for name in {"kubeflow", *(known for known in sys.modules if known.startswith("kubeflow."))}:
        monkeypatch.setitem(sys.modules, name, sys)  # so that it is afterwards as it is now
        monkeypatch.delitem(sys.modules, name)
    assert Definition.load(file).pipeline.name == "whole"


@pytest.mark.parametrize("place", ["src/shelf/load.py", "src/shelf/load/__init__.py"])
def test_a_module_above_the_file_is_named_with_its_place(tmp_path: Path, place: str) -> None:
    module = tmp_path / place
    module.parent.mkdir(parents=True)
    module.write_text("")
    (tmp_path / "src/flows").mkdir()
    file = written(tmp_path / "src/flows", "import shelf.load\n")
    assert refused(file).hint == f"put PYTHONPATH={tmp_path}/src before the command"
    own = written(tmp_path / "src/flows", "from shelf import load\nimport shelf.save\n")
    assert refused(own).hint == f"put PYTHONPATH={tmp_path}/src before the command"
    assert refused(written(tmp_path, "import nothing_here\n")).hint == (
        "install it in this environment"
    )


def test_a_file_that_submits_itself_runs_here(tmp_path: Path) -> None:
    text = dedent("""\
        from kfp import client, dsl

        @dsl.component(base_image="python:3.11", install_kfp_package=False)
        def hello() -> str:
            return "hello"

        @dsl.pipeline
        def greet() -> str:
            return hello().output

        client.Client(host="http://127.0.0.1:1").create_run_from_pipeline_package("greet.yaml")
        """)
    done = podium(tmp_path / "home", written(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"Output": "hello"}
    assert re.search(r"warning: .*own\.py, line 11: .*; its pipeline runs here", done.stderr)


@pytest.mark.parametrize("is_package", [False, True])
def test_a_file_imports_its_neighbors_relatively(tmp_path: Path, is_package: bool) -> None:
    folder = tmp_path / "outer/flows"
    folder.mkdir(parents=True)
    (folder / "names.py").write_text("NAME = 'whole'\n")
    text = "from .names import NAME\nfrom kfp import dsl\n"
    if is_package:
        (tmp_path / "outer/__init__.py").write_text("")
        (folder / "__init__.py").write_text("")
        (tmp_path / "outer/part.py").write_text("")
        text += "from .. import part\n"
    text += "@dsl.pipeline(name=NAME)\ndef whole():\n    dsl.importer(artifact_uri='x', artifact_class=dsl.Dataset)\n"
    assert Definition.load(written(folder, text)).pipeline.name == "whole"
    broken = written(folder, "from .nothing import NAME\n", "broken.py")
    assert "broken.py, line 1: ModuleNotFoundError" in refused(broken).message


SAME_NAMES = """\
from kfp import dsl

part = dsl.component(base_image="python:3.11", install_kfp_package=False)

@part
def evaluate() -> float:
    return 0.5

@part
def promote_best(score: float) -> str:
    return f"promoted at {score}"

@dsl.pipeline
def judge() -> str:
    return promote_best(score=evaluate().output).output
"""


def test_steps_may_have_the_names_of_podiums_own(tmp_path: Path) -> None:
    done = podium(tmp_path / "home", written(tmp_path, SAME_NAMES))
    assert done.returncode == 0, done.stderr
    assert "Output                promoted at 0.5" in done.stdout


WITH_CODE = f"""\
{HEAD}
@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def refuse() -> str:
    raise SystemExit("not yet")

@dsl.pipeline
def with_code(code: str):
    data = prepare_data(dataset=refuse().output).outputs["prepared"]
    train_distributed(data=data, command=["python", "train.py"], code=code)
"""


def test_code_that_cannot_be_stored_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "home/store").mkdir(parents=True)
    (tmp_path / "home/store/code").touch()  # where its directory would be
    done = podium(tmp_path / "home", written(tmp_path, WITH_CODE), f"code={tmp_path / 'src'}")
    assert done.returncode != 0
    assert "error: cannot write code/" in done.stderr
    assert not (tmp_path / "home/runs").exists()


def test_changed_code_is_resumed_without_a_storage_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    home, file = tmp_path / "home", written(tmp_path, WITH_CODE)
    assert "not yet" in podium(home, file, f"code={tmp_path / 'src'}").stderr
    (tmp_path / "src/train.py").write_text("changed = True")
    again = podium(home, "--resume", "latest")
    assert f"code={tmp_path / 'src'} has changed (train.py): refuse begins anew" in again.stderr
    assert "not yet" in again.stderr
    assert len(list((home / "store/code").iterdir())) == 2


FROM_FILE = f"""\
{HEAD}
@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def refuse(data: dsl.Input[dsl.Dataset]) -> str:
    import os
    if not os.environ.get("READY"):
        raise SystemExit("not yet")
    return "read"

@dsl.pipeline
def from_file(dataset: str) -> str:
    return refuse(data=prepare_data(dataset=dataset, target="target").outputs["prepared"]).output
"""


def test_a_run_goes_on_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, there, elsewhere = tmp_path / "home", tmp_path / "there", tmp_path / "elsewhere"
    for folder in (there, elsewhere):
        folder.mkdir()
    written(there, FROM_FILE)
    rows = "".join(f"{row},{'ab'[row % 2]}\n" for row in range(100))
    (there / "rows.csv").write_text(f"x,target\n{rows}")
    assert "not yet" in podium(home, "own.py", "dataset=table:rows.csv", cwd=there).stderr
    monkeypatch.setenv("READY", "1")
    done = podium(home, "--resume", "latest", "--from", "prepare-data", cwd=elsewhere)
    assert (done.returncode, "have changed" in done.stderr) == (0, False), done.stderr
    (there / "rows.csv").write_text(f"x,target\n{rows}7,a\n")
    again = [PODIUM, "runs", "rerun", "latest", "--from", "refuse"]
    subprocess.run(again, cwd=elsewhere, env=environment(home), check=True)


INSIDE = """\
from kfp import dsl

@dsl.component(base_image="python:3.11", install_kfp_package=False)
def one() -> int:
    return 1

@dsl.pipeline
def inner() -> int:
    return one().output

@dsl.pipeline
def outer():
    inner()

@dsl.pipeline
def plain():
    one().after(dsl.importer(artifact_uri="s3://bucket/x", artifact_class=dsl.Dataset))
"""


def test_platform_settings_reach_every_step_or_none(tmp_path: Path) -> None:
    file, settings = written(tmp_path, INSIDE), ["secret=store"]
    with pytest.raises(InvalidInput, match="does not reach the steps of inner, a pipeline inside"):
        compile_pipeline(f"{file}:outer", platform=settings)
    spec = read_spec(compile_pipeline(f"{file}:plain", platform=settings))
    executors = spec["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors.keys() == {"exec-one"}


CONFIGURED = """
from kfp import dsl

@dsl.component(base_image="python:3.11", install_kfp_package=False)
def double(n: int) -> int:
    return 2 * n

@dsl.pipeline(
    display_name="Twice", pipeline_root="s3://bucket/root",
    pipeline_config=dsl.PipelineConfig(active_deadline_seconds=77))
def twice(n: int = 1) -> int:
    return double(n=n).output
"""


def test_platform_settings_take_nothing_from_a_pipeline(tmp_path: Path) -> None:
    file = written(tmp_path, CONFIGURED)
    plain, more = yaml.safe_load_all(compile_pipeline(file))
    with_settings, further = yaml.safe_load_all(compile_pipeline(file, platform=["timeout=60"]))
    assert with_settings == plain
    assert plain["pipelineInfo"]["displayName"] == "Twice"
    kept = further["platforms"]["kubernetes"]["pipelineConfig"]
    assert kept == more["platforms"]["kubernetes"]["pipelineConfig"]
