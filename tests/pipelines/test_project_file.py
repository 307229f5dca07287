"""``podium.yaml`` gives values to the parameters of a pipeline, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from test_experiment_files import default_of

from podium.cli import app
from podium.errors import InvalidInput
from podium.kfp.parameters import Parameter
from podium.kfp.project import Project, choose, read_given
from podium.kfp.schedule_files import default_path, load
from podium.runner.child import _with_project
from podium.runner.messages import Order

ROOT = Path(__file__).parents[2]
TEXT = """\
dataset: table:s3://data/bikes.csv
experiment: sweep.yaml
max_trials: 6
model_name: bikes
schedule: {name: nightly, cron: "@daily"}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a podium.yaml and the Experiment it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.yaml").write_text((ROOT / "experiments/sobol.yaml").read_text())
    (tmp_path / "podium.yaml").write_text(TEXT)
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_values_of_the_file_become_the_pipelines(project: Path) -> None:
    compiled = invoke("compile").stdout
    assert default_of(compiled, "dataset") == "table:s3://data/bikes.csv"
    assert default_of(compiled, "max_trials") == "6.0"
    assert default_of(compiled) == (project / "sweep.yaml").read_text()


def test_a_compiled_project_has_its_own_name(project: Path) -> None:
    assert named_in(invoke("compile").stdout) == "bikes"
    assert named_in(invoke("compile", "--name", "mine").stdout) == "mine"
    (project / "podium.yaml").write_text("name: cycles\n" + TEXT)
    assert named_in(invoke("compile").stdout) == "cycles"
    (project / "podium.yaml").write_text("max_trials: 6\n")
    assert named_in(invoke("compile").stdout) == project.name


def named_in(compiled: str) -> str:
    return str(yaml.safe_load(compiled)["pipelineInfo"]["name"])


def test_the_command_line_comes_before_the_file(project: Path) -> None:
    compiled = invoke("compile", "max_trials=9", "--model-name", "other").stdout
    assert default_of(compiled, "max_trials") == "9.0"
    assert default_of(compiled, "model_name") == "other"


def test_an_error_of_the_files_value_names_the_file(project: Path) -> None:
    order = {"run": "a", "pipeline": "tune_and_promote"} | dict.fromkeys(
        ("began", "directory", "cache", "environments"), ""
    )
    asked = Order(**order, defaults={}, project="podium.yaml", words=["dataset=mnist"])
    error = _with_project(InvalidInput("mnist has no max_trials", "none"), asked)
    assert error.message == "mnist has no max_trials; podium.yaml has max_trials: 6"
    assert error.hint == "max_trials=VALUE goes before it, max_trials= leaves it out; none"
    other = InvalidInput("rmse measures regression, but the dataset is classification", "accuracy")
    assert _with_project(other, replace(asked, words=["metric=rmse"])) is other
    typed = replace(asked, words=["max_trials=3"])
    assert _with_project(InvalidInput("no max_trials"), typed).message == "no max_trials"


def test_a_projects_own_pipeline_may_be_named(project: Path) -> None:
    for name in ("tune_and_promote", "tune-and-promote"):
        assert default_of(invoke("compile", name).stdout, "model_name") == "bikes"


def test_another_pipeline_leaves_the_file_alone_and_says_so(project: Path) -> None:
    done = invoke("compile", "train_and_promote")
    assert default_of(done.stdout, "model_name") == ""
    assert "podium.yaml is not read: it is for tune_and_promote" in done.stderr
    (project / "podium.yaml").write_text("pipeline: train_and_promote\nepochs: 7\n")
    assert default_of(invoke("compile").stdout, "epochs") == "7.0"
    (project / "podium.yaml").unlink()
    assert Project.find() is None
    assert choose("max_trials=1", ["b=2"]) == ("tune_and_promote", ["max_trials=1", "b=2"], None)


@pytest.mark.parametrize(
    ("text", "expected", "hint"),
    [
        (
            "traget: species\n",
            "podium.yaml: there is no parameter 'traget'",
            "did you mean target?",
        ),
        (
            "max_trials: many\n",
            "podium.yaml: max_trials is a whole number, not 'many'",
            "Trials",
        ),
        ("model_name: 3\n", "podium.yaml: model_name is text, not 3", "Name"),
        ("- a\n- b\n", "podium.yaml does not hold names and values", "model_name"),
        ("a: [1\n", "podium.yaml", None),
        ("pipeline: tune\n", "there is no pipeline 'tune'", "did you mean tune_and_promote?"),
        ("pipeline: [a]\n", "pipeline a name or a file", "nightly"),
        ("name: 3\n", "name is text", "nightly"),
    ],
)
def test_a_wrong_file_is_refused(project: Path, text: str, expected: str, hint: str | None) -> None:
    (project / "podium.yaml").write_text(text)
    error = invoke("compile").exception
    assert isinstance(error, InvalidInput)
    assert expected in error.message
    assert hint is None or hint in str(error.hint)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("dataset: table:bikes.csv\ntarget: rides\n", "bikes.csv"),
        ("weights: my.pt\n", "my.pt"),
        ("source: idx\n", "idx"),
    ],
)
def test_data_of_this_machine_are_not_compiled(project: Path, text: str, file: str) -> None:
    (project / "podium.yaml").write_text(text)
    error = invoke("compile").exception
    assert isinstance(error, InvalidInput)
    assert "no pod has it" in error.message
    assert f"podium storage put {file} s3://BUCKET/{file}" in str(error.hint)


def test_paths_start_from_the_files_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from podium.kfp.definition import Definition

    (project / "podium.yaml").write_text(TEXT.replace("s3://data/bikes.csv", "bikes.csv"))
    monkeypatch.chdir("/")
    given = read_given(
        [], Definition.load("tune_and_promote").parameters, Project.load(project / "podium.yaml")
    )
    assert given["dataset"] == f"table:{project}/bikes.csv"
    assert given["experiment"] == str(project / "sweep.yaml")
    (project / "podium.yaml").write_text("experiment: random\nmodel_name: sweep\n")
    (project / "sweep").touch()
    given = read_given(
        [], Definition.load("tune_and_promote").parameters, Project.load(project / "podium.yaml")
    )
    assert (given["experiment"], given["model_name"]) == ("random", "sweep"), "no files of these"


def test_a_projects_own_file_may_be_named_by_any_path(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "podium.yaml").write_text("pipeline: own.py:train\n")
    for first in ("own.py:train", "./own.py:train", f"{project}/own.py:train"):
        pipeline, words, chosen = choose(first, ["a=1"])
        assert (pipeline, words) == ("own.py:train", ["a=1"])
        assert chosen
    assert capsys.readouterr().err == ""
    assert choose("other.py:train", []) == ("other.py:train", [], None)
    assert "it is for own.py:train" in capsys.readouterr().err


def test_a_schedule_of_the_file_is_one_like_any_other(project: Path) -> None:
    assert default_path() == Path("podium.yaml")
    (schedule,) = load([default_path()])
    assert (schedule.name, schedule.pipeline, schedule.cron) == ("nightly", "bikes", "@daily")
    assert schedule.parameters["model_name"] == "bikes"
    text = (project / "podium.yaml").read_text()
    nightly = text.replace('cron: "@daily"', 'cron: "@daily", parameters: {max_trials: 9}')
    (project / "podium.yaml").write_text(nightly)
    (schedule,) = load([default_path()])
    assert schedule.parameters["max_trials"] == 9, "its own come before the file's"
    (project / "podium.yaml").write_text("model_name: bikes\n")
    with pytest.raises(InvalidInput, match=r"podium\.yaml has no schedule"):
        load([default_path()])
    (project / "schedules").mkdir()
    assert default_path() == Path("schedules")


def test_a_word_that_yaml_takes_for_false_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "podium.yaml").write_text("target: no\n")
    with pytest.raises(InvalidInput, match="target is text, not False") as refused:
        Project.load(tmp_path / "podium.yaml").parameters(
            [Parameter(name="target", type=str, default="", description="")]
        )
    assert refused.value.hint == 'a text such as "no" stands in quotes'
