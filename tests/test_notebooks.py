"""The notebooks: kept without outputs, in step with the API, and executed as a user would."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import podium

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("examples/**/*.ipynb"))


def code_of(notebook: Path) -> list[Any]:
    """Return the cells of code."""
    import nbformat  # two seconds of CPU

    return [
        cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"
    ]


def test_there_is_a_first_notebook() -> None:
    assert "first-model" in [notebook.stem for notebook in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_valid_and_holds_no_outputs(notebook: Path) -> None:
    import nbformat

    nbformat.validate(nbformat.read(notebook, as_version=4))
    for cell in code_of(notebook):
        assert (cell.outputs, cell.execution_count) == ([], None), (
            f"clear the outputs of {notebook.name}"
        )
    assert [cell.metadata.get("tags") for cell in code_of(notebook)].count(["parameters"]) == 1


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_calls_functions_as_they_are(notebook: Path) -> None:
    tree = ast.parse("\n".join(cell.source for cell in code_of(notebook)), notebook.name)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_podium(node.value)
    }
    assert used <= set(podium.__all__)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    for call in calls:
        if is_podium(call.func.value):
            keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            inspect.signature(getattr(podium, call.func.attr)).bind(*call.args, **keywords)


def is_podium(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "podium"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of this Python, whatever this user has installed, that writes below the test's directory alone."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PODIUM_HOME")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("kernel")
def test_the_first_notebook_ends_with_a_champion(tiny_dataset: Path, tmp_path: Path) -> None:
    import papermill

    given = {"dataset": str(tiny_dataset), "limit": 0, "trials": 3, "epochs": 1}
    executed = papermill.execute_notebook(
        str(ROOT / "examples/first-model.ipynb"), str(tmp_path / "out.ipynb"), given, cwd=str(tmp_path),
        kernel_name="python3", progress_bar=False,
    )  # fmt: skip
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    shown = [data for output in outputs if (data := output.get("data"))]
    assert "data:image/png;base64," in "".join(data.get("text/html", "") for data in shown), (
        "the digits"
    )
    assert sum("application/vnd.plotly.v1+json" in data for data in shown) == 2, (
        "history and parallel coordinates"
    )
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    champion = podium.registry(tmp_path / "podium-work/store")["first-model"].champion
    assert champion.metrics["accuracy"] > 0.9
    answers = champion.predict(podium.load_dataset(tiny_dataset).test.inputs["images"][:8])
    assert all(label in shown[-1]["text/html"] for label in answers)
