"""The examples in the docstrings of the API, each run as it stands."""

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import shapes_model

import podium
from podium.models import open_registry


def example_of(name: str, names: dict[str, Any]) -> list[doctest.DocTest]:
    """Return the example in a docstring, as if it were typed into a notebook."""
    finder = doctest.DocTestFinder(recurse=False)
    found = finder.find(getattr(podium, name), name, globs={"__name__": "__main__", **names})
    return [test for test in found if test.examples]


@pytest.fixture
def names(
    parabola: dict[str, Any], tiny_dataset: Path, tmp_path: Path, home: Path
) -> dict[str, Any]:
    """What the examples take as given."""
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 12:16], images[1, :, 12:16] = 200, 200
    model = open_registry(tmp_path / "store").model("digits")
    model.upload(
        {"model.onnx": shapes_model()},
        {"dataset": {"name": "digits", "classes": ["zero", "one"]}},
        "v1",
    )
    model.set_champion("v1", {}, None)
    rows = [f"{at % 7},{'north' if at % 3 else 'south'},{at * 7},{at * 1.5}" for at in range(70)]
    (home.parent / "here/houses.csv").write_text("\n".join(["rooms,side,size,price", *rows]))
    container = {"name": "hello", "image": "any", "command": ["echo", "hello"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "hello"},
        "spec": {"template": template},
    }
    return {
        "manifest": manifest,
        "experiment": parabola,
        "dataset": str(tiny_dataset),
        "images": images,
        "storage": tmp_path / "store",
    }


@pytest.mark.parametrize(
    "name",
    [
        *(
            "jobs",
            "load_dataset",
            "open_job",
            "open_model",
            "open_sweep",
            "prepare_data",
            "registry",
            "run_job",
        ),
        *("report", "runs", "sweep", "tune"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("run", "train")),
    ],
)
def test_the_example_of_a_function_runs(name: str, names: dict[str, Any]) -> None:
    (test,) = example_of(name, names)
    said: list[str] = []
    results = doctest.DocTestRunner().run(test, out=said.append)
    assert results.failed == 0, "".join(said)


def test_every_function_has_an_example() -> None:
    functions = [
        name for name in podium.__all__ if callable(getattr(podium, name)) and name[0].islower()
    ]
    assert [name for name in functions if not example_of(name, {})] == []
