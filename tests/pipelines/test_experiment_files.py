"""An Experiment of the user's own: its text travels with the pipeline, for no pod has the file."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.kfp.versions import read_spec
from podium.manifests.experiment import load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A file with what compiled YAML may choke on: comments, quotes, document marks, other alphabets, no last break."""
    text = (ROOT / "experiments/random.yaml").read_text()
    file = tmp_path / "sweep.yaml"
    file.write_text(f"# the team's own: 'größer' \"better\" \u2028# \n---\n{text}\n# end")
    return file


def default_of(text: str, name: str = "experiment") -> str:
    return str(read_spec(text)["root"]["inputDefinitions"]["parameters"][name]["defaultValue"])


@pytest.mark.parametrize("as_text", [False, True])
def test_a_compiled_pipeline_holds_the_experiment_itself(sweep: Path, as_text: bool) -> None:
    compiled = compile_pipeline(
        "tune_and_promote", [f"experiment={sweep.read_text() if as_text else sweep}"]
    )
    assert default_of(compiled) == sweep.read_text()
    assert load(default_of(compiled)) == load("random")


def test_the_header_of_a_compiled_pipeline_stays_a_comment(sweep: Path) -> None:
    compiled = compile_pipeline("tune_and_promote", [f"experiment={sweep}"])
    head, _, body = compiled.partition("\ncomponents:")
    assert all(line.startswith("#") for line in head.splitlines())
    assert "experiment: str" in head
    assert list(yaml.safe_load_all(f"components:{body}")) == list(yaml.safe_load_all(compiled))


def test_a_value_with_control_characters_compiles(tmp_path: Path) -> None:
    assert default_of(
        compile_pipeline("train_and_promote", ["source=/a\x1b[31m\tb\r\nc\x85"]), "source"
    ) == ("/a\x1b[31m\tb\r\nc\x85")


def test_a_bundled_experiment_stays_a_name() -> None:
    assert default_of(compile_pipeline("tune_and_promote", ["experiment=grid"])) == "grid"


@pytest.mark.parametrize("words", [["compile", "-o", "out.yaml"], ["run"]], ids=["compile", "run"])
def test_a_missing_experiment_file_is_refused(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.cli import app

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, [words[0], "tune_and_promote", "experiment=swep.yaml", *words[1:]]
    )
    assert isinstance(done.exception, InvalidInput)
    assert "swep.yaml" in done.exception.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pipeline", "word"),
    [
        ("tune_and_promote", f"experiment={'a' * 300}"),
        ("tune_and_promote", f"code={'a' * 300}"),
        ("a" * 300 + ".py", ""),
        ("a" * 300 + ".yaml", ""),
    ],
)
def test_a_name_too_long_for_a_file_names_none(pipeline: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=r"no file|no directory"):
        compile_pipeline(pipeline, [word, "storage=s3://bucket"] if word else [])


def test_a_wrong_experiment_file_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("a: [1,\n")
    with pytest.raises(InvalidInput, match=r"wrong\.yaml"):
        compile_pipeline("tune_and_promote", [f"experiment={wrong}"])
    wrong.write_bytes(b"kind: \xff\n")
    with pytest.raises(InvalidInput, match=r"wrong\.yaml"):
        compile_pipeline("tune_and_promote", [f"experiment={wrong}"])
