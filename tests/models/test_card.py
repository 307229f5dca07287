"""The model card of a version: facts of its registry, and beside the files of every export."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import shapes_model

from podium.models import Model, open_registry
from podium.models.card import card
from podium.models.export import FORMS, export

MEASURED = {
    "run_id": "20261127-010000-aaaa",
    "metric": {"name": "accuracy", "maximize": True},
    "metrics": {"accuracy": 0.8, "validation_accuracy": 0.85},
    "constant": {"guess": "always 'tall'", "value": 0.5},
    "dataset": {
        "name": "shapes",
        "kind": "classification",
        "digest": "ab12",
        "test_digest": "cd34",
        "classes": ["tall", "wide"],
        "counts": {"train": 800, "test": 100},
        "source": "images:/data/shapes",
    },
    "origin": {"kind": "trial", "name": "s-1", "experiment": "s|1"},
    "hyperparameters": {"lr": 0.1},
}


@pytest.fixture
def model(home: Path) -> Model:
    """A champion with the predictions that give its accuracy: 80 of 100."""
    target = np.arange(100) % 2
    predicted = np.where(np.arange(100) < 80, target, 1 - target)
    files: dict[str, Path | bytes] = {"model.onnx": shapes_model()}
    for name, array in (("predictions.npy", predicted), ("target.npy", target)):
        written = io.BytesIO()
        np.save(written, array)
        files[name] = written.getvalue()
    kept = open_registry(None).model("shapes")
    kept.upload(files, MEASURED, version="v1")
    kept.set_champion("v1", {"rule": "likely=0.8", "reasons": ["ok: accuracy 0.8000"]}, expect=None)
    return kept


def test_a_card_holds_what_the_registry_knows(model: Model) -> None:
    text = card(model.champion)
    for line in (
        "# shapes v1",
        "A classification model, trained on shapes.",
        "| **accuracy** | 0.8000 | 0.7104 to 0.8674 | 0.8500 |",  # Agresti and Coull's of 80 of 100
        "A constant guess (always 'tall'): 0.5000.",
        "| data | shapes 800 train, 100 test |",
        "| source | images:/data/shapes |",
        "| digest | ab12 |",
        "| sweep | s\\|1 |",
        "| trial | s-1 |",
        "| lr | 0.1 |",
        "promotion by the rule `likely=0.8`",
        "  - ok: accuracy 0.8000",
        "podium serve shapes@v1 --storage",
        f"`{model.champion.files['model.onnx'].sha256}`",
    ):
        assert line in text, line


def test_figures_without_stored_predictions_have_no_interval(model: Model) -> None:
    metadata = {"metrics": {"accuracy": 0.8}, "dataset": "ab12"}
    model.upload({"model.onnx": shapes_model()}, metadata, version="v2")
    text = card(model.version("v2"))
    assert "| accuracy | 0.8000 | – | – |" in text
    assert "Nobody has compared or promoted it yet." in text
    assert "Not the champion." in text


@pytest.mark.parametrize(
    "dataset", [{"counts": [800]}, {"counts": {"train": "many"}}, {"warnings": 5}]
)
def test_metadata_of_other_forms_break_no_card(model: Model, dataset: dict[str, Any]) -> None:
    model.upload({"model.onnx": shapes_model()}, {"dataset": dataset}, version="v2")
    assert card(model.version("v2")).startswith("# shapes v2")


@pytest.mark.parametrize("form", [None, "mlflow", "triton", "oci"])
def test_every_exporter_leaves_the_card(model: Model, tmp_path: Path, form: str | None) -> None:
    assert {None, *FORMS} >= {form}
    directory = export(model.champion, form, tmp_path / "out")
    assert (directory / "MODEL_CARD.md").read_text() == card(model.champion)


def test_the_shell_prints_the_card(model: Model, typed: Callable[..., Any]) -> None:
    done = typed("models", "card", "shapes")
    assert done.stdout == card(model.champion)
    assert typed("models", "card", "shapes", "v9").returncode == 1


def test_a_card_says_that_the_version_before_was_deleted(home: Path) -> None:
    model = open_registry(home).model("shapes")
    for before, name in ((None, "good"), ("good", "better"), ("better", "best")):
        model.upload({"model.onnx": shapes_model()}, MEASURED, version=name)
        model.set_champion(name, {"rule": "likely", "champion": before}, expect=before)
    model.delete("good")
    text = card(model.version("better"))
    assert "promotion by the rule `likely`, beside good, deleted since" in text
    assert "good~" not in text
