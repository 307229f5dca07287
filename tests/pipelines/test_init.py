"""`podium init` writes a small project whose files fit each other."""

import py_compile
import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from podium.cli import app
from podium.cli.init import TEMPLATES, _needed
from podium.errors import InvalidInput
from podium.kfp.versions import read_spec
from podium.manifests.experiment import Experiment, check


@pytest.fixture(params=TEMPLATES)
def template(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_project_is_small_and_whole(template: str) -> None:
    done = invoke("init", "mine", "--from", template)
    assert done.exit_code == 0, done.output
    files = {file.name: file.read_text() for file in Path("mine").iterdir()}
    assert {"podium.yaml", "README.md", "experiment.yaml", "make_data.py"} <= files.keys()
    assert len(files) <= 6
    assert sum(len(text.splitlines()) for text in files.values()) < 260, "read in two minutes"
    assert not any("PROJECT_NAME" in text for text in files.values())
    for name in files:
        if name.endswith(".py"):
            py_compile.compile(f"mine/{name}", cfile=f"{name}c", doraise=True)
    check(Experiment.parse(yaml.safe_load(files["experiment.yaml"])))


def test_a_project_says_what_it_trains_with(template: str) -> None:
    invoke("init", "mine", "--from", template)
    expected = {
        "table": ("sklearn", "scikit-learn", " network=trees"),
        "images": ("torch", "torch torchvision", ""),
    }
    found = _needed(Path("mine"), has_torch=False)
    assert found == expected.get(template, found)
    assert template in expected or found[0] in ("torch", "")
    assert _needed(Path("mine"), has_torch=True)[2] == ""


def test_every_command_of_its_readme_parses(template: str) -> None:
    invoke("init", "mine", "--from", template)
    text = Path("mine/README.md").read_text()
    lines = [
        line
        for block in re.findall(r"```\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    commands = [
        part.split("#")[0]
        for line in lines
        for part in line.split("&&")
        if part.strip().startswith("podium")
    ]
    assert len(commands) >= 5
    for command in map(shlex.split, commands):
        group, words = app, command[1:]
        with app.make_context("podium", list(words)) as context:
            name, found, rest = group.resolve_command(context, words)
            assert found is not None
            with found.make_context(str(name), rest):
                pass


def test_a_project_compiles_with_data_in_a_bucket(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("init", "mine", "--from", template)
    monkeypatch.chdir("mine")
    given = yaml.safe_load(Path("podium.yaml").read_text())
    prefix = given["dataset"].partition(":")[0]
    done = invoke("compile", f"dataset={prefix}:s3://bucket/data", f"storage={tmp_path / 'store'}")
    assert done.exit_code == 0, done.exception
    inputs = read_spec(done.stdout)["root"]["inputDefinitions"]["parameters"]
    assert inputs["experiment"]["defaultValue"] == Path("experiment.yaml").read_text()
    assert inputs["model_name"]["defaultValue"] == "mine"


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/train.py").write_text("precious")
    error = invoke("init", "mine").exception
    assert isinstance(error, InvalidInput)
    assert "nothing in it is overwritten" in error.message
    assert [file.read_text() for file in Path("mine").iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mine", "--from", "tabel"], "no template 'tabel'"),
        (["a b"], "project name"),
        (["x/.."], "project name"),
    ],
)
def test_a_wrong_name_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = invoke("init", *words).exception
    assert isinstance(error, InvalidInput)
    assert expected in error.message
    assert list(tmp_path.iterdir()) == []
