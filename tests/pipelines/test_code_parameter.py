"""``code=DIR`` in the commands: packed and stored once, given to the pipeline as a URI."""

from pathlib import Path
from textwrap import dedent

import pytest
from test_experiment_files import default_of

from podium.code.bundle import pack
from podium.code.reference import Code
from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.manifests.experiment.trainer import DATA, NAME, OUTPUT
from podium.storage import connect
from podium.training.identity import RunIdentity
from podium.training.recipe import Recipe
from podium.training.settings import SweepSettings
from podium.training.target import LaunchTarget

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of code, at src."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('accuracy=1')\n")
    return tmp_path


def stored(storage: Path) -> list[str]:
    return [entry.key for entry in connect(storage).list()]


def test_a_compiled_pipeline_names_stored_code(project: Path) -> None:
    compiled = compile_pipeline("tune_and_promote", ["code=src", f"storage={project}/store"])
    code = Code.parse(default_of(compiled, "code"))
    assert code.digest == pack(project / "src").digest
    assert stored(project / "store") == [code.key]
    assert (
        default_of(compile_pipeline("train_and_promote", [f"code={code.uri}"]), "code") == code.uri
    )


def test_the_environment_may_name_the_storage(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="code=src needs a storage to be put into") as caught:
        compile_pipeline("tune_and_promote", ["code=src"])
    assert "storage=s3://" in str(caught.value.hint)
    monkeypatch.setenv("PODIUM_STORAGE", str(project / "store"))
    compile_pipeline("tune_and_promote", ["code=src"])
    assert len(stored(project / "store")) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("code=nowhere", "there is no directory nowhere"),
        ("code=src max_trials=0", "max_trials >= 1"),
        ("code=s3://bucket/x.tar.gz", "code is <storage>/code/<sha256>.tar.gz"),
        ("install_requirements=true", "install_requirements needs code"),
    ],
)
def test_what_is_refused_stores_nothing(project: Path, words: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        compile_pipeline("tune_and_promote", [*words.split(), f"storage={project}/store"])
    assert not (project / "store").exists()


def test_a_pipeline_of_ones_own_gets_code_where_it_leads(project: Path) -> None:
    (project / "own.py").write_text(
        dedent("""\
        from kfp import dsl
        from podium.components.prepare_data import prepare_data
        from podium.components.train_distributed import train_distributed

        @dsl.pipeline(name="own")
        def own(mine: str = "src", code: str = "of the other name", storage: str = ""):
            train_distributed(data=prepare_data().outputs["prepared"], code=mine, storage=storage)
        """)
    )
    compiled = compile_pipeline("own.py", [f"storage={project}/store"])
    assert Code.parse(default_of(compiled, "mine")).digest == pack(project / "src").digest
    assert default_of(compiled, "code") == "of the other name", "it reaches no step"


def test_sweep_and_training_run_in_the_code() -> None:
    code = Code(storage="s3://bucket/team", digest="ab" * 32)
    target = LaunchTarget(code=code.uri, install_requirements=True)
    text = (ROOT / "examples/spirals-experiment.yaml").read_text()
    settings = SweepSettings(experiment=text, max_trials=1, parallel_trials=1)
    run = RunIdentity(id="r")
    adapted = settings.adapt(target, name="sweep", run=run)
    placed = target.place(adapted, adapted.template.primary_container)
    for _, container in placed.template.primary_containers():
        assert ["python", "-m", "podium.code", code.uri] == list(container.words)[:4]
        assert "--install-requirements" in container.words
    recipe = Recipe.of_command(["python", "train.py"], {"lr": 1})
    job = recipe.job(
        target, workers=0, fixed={}, values={DATA: "d", OUTPUT: "o", NAME: "train-1"}, run=run
    )
    (words,) = [list(container.words) for _, container in job.containers()]
    assert words[:4] == ["python", "-m", "podium.code", code.uri]
    assert words[words.index("--") + 1 :][:3] == ["python", "train.py", "--lr=1"]
