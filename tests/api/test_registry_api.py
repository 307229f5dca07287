"""`podium.registry` and what it holds, with models written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from handmade import SHAPES, TABLE, rows_model, shapes_model
from PIL import Image

import podium
from podium.errors import Failed, InvalidInput, NotFound
from podium.models import open_registry


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A registry with two versions of shapes, the first champion, and one of rows."""
    registry = open_registry(tmp_path / "store")
    for model, version, content, preprocessing in (
        ("shapes", "first", shapes_model(), SHAPES),
        ("shapes", "second", shapes_model(), {}),
        ("rows", "only", rows_model(), TABLE),
    ):
        metadata: dict[str, Any] = {
            "metric": {"name": "accuracy", "maximize": True},
            "metrics": {"accuracy": 0.5},
        }
        metadata["hyperparameters"] = {"lr": 0.1, "of": version}
        classes = ["wide", "tall"] if model == "shapes" else ["low", "high"]
        files: dict[str, Path | bytes] = {
            "model.onnx": content,
            "preprocessing.json": json.dumps(preprocessing).encode(),
        }
        registry.model(model).upload(
            files, {**metadata, "dataset": {"name": model, "classes": classes}}, version
        )
        if version != "second":
            registry.model(model).set_champion(version, {}, None)
    return tmp_path / "store"


@pytest.fixture
def bars() -> Any:
    """A wide and a tall bar, uint8 [2, 28, 28]."""
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 12:16], images[1, :, 12:16] = 200, 200
    return images


def test_the_champion_predicts_arrays_as_they_are(storage: Path, bars: Any) -> None:
    champion = podium.registry(storage)["shapes"].champion
    predictions = champion.predict(bars)
    assert list(predictions) == ["wide", "tall"]
    assert predictions.indices is not None
    assert predictions.indices.tolist() == [0, 1]
    assert predictions.probabilities is not None
    assert predictions.probabilities.sum(1) == pytest.approx([1, 1])
    assert list(champion.predict({"images": bars})) == list(predictions)
    assert np.asarray(predictions).tolist() == ["wide", "tall"]


def test_a_version_predicts_files_as_the_command_line_does(
    storage: Path, bars: Any, tmp_path: Path
) -> None:
    Image.fromarray(255 - np.repeat(np.repeat(bars[1], 4, 0), 4, 1)).save(tmp_path / "tall.png")
    frame = podium.registry(storage)["shapes"].champion.predict(tmp_path / "tall.png").frame
    assert list(frame.columns) == ["picture", "prediction", "probability_wide", "probability_tall"]
    assert frame["prediction"].tolist() == ["tall"]


def test_a_table_without_rows_has_no_predictions(storage: Path) -> None:
    predictions = podium.registry(storage)["rows"].champion.predict(
        pd.DataFrame({"color": [], "x": []})
    )
    assert (len(predictions), predictions.values.tolist(), repr(predictions)) == (
        0,
        [],
        "<0 predictions: >",
    )
    assert predictions.probabilities is not None
    assert predictions.probabilities.shape == (0, 2)


def test_a_data_frame_is_predicted_row_by_row(storage: Path) -> None:
    rows = pd.DataFrame({"color": ["red", "green", None], "x": [-3.0, -3.0, None]})
    predictions = podium.registry(storage)["rows"].champion.predict(rows)
    assert list(predictions) == ["low", "high", "high"]
    assert predictions.frame["row"].tolist() == [1, 2, 3]
    with pytest.raises(InvalidInput, match=r"^rows\.parquet has no column 'color'"):
        podium.registry(storage)["rows"].champion.predict(rows[["x"]])


def test_rows_that_cannot_be_read_are_named(storage: Path) -> None:
    predictions = podium.registry(storage)["rows"].champion.predict(
        pd.DataFrame({"color": ["red", "red"], "x": ["1", "much"]})
    )
    assert list(predictions) == ["high"]
    assert [problem.where for problem in predictions.problems] == ["rows.parquet, row 2, column x"]
    assert [(problem.row, problem.reason) for problem in predictions.problems] == [
        (2, "'much' is not a number that float32 can hold")
    ]


def test_promotion_and_rollback_move_the_champion(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = podium.registry(storage)["shapes"]
    assert (moved := model.promote("second", reason="for the test")).replaced == "first"
    assert moved.version == model.champion.version == "second"
    assert model.rollback().version == "first"
    assert model.history["event"].tolist() == ["promotion", "promotion", "rollback"]
    assert "MLflow" not in capsys.readouterr().err


def write_bars(target: Path, bars: Any) -> None:
    """Write pictures of bars as a dataset."""
    from podium.data import artifact, artifact_files

    part = artifact.Split(
        inputs={"images": np.tile(bars, (4, 1, 1))}, target=np.tile(np.array([0, 1], np.uint8), 4)
    )
    artifact_files.write(
        target, dict.fromkeys(("train", "validation", "test"), part), name="bars", kind="classification",
        classes=("wide", "tall"), inputs={"images": artifact.InputDescription(meaning="image")}, target_name="shape",
        preprocessing={}, source="drawn", split="given",
    )  # fmt: skip


def test_a_rule_that_is_not_met_keeps_the_champion(
    storage: Path, tmp_path: Path, bars: Any
) -> None:
    write_bars(tmp_path / "bars", bars)
    model = podium.registry(storage)["shapes"]
    with pytest.raises(
        Failed, match="second of shapes does not meet the rule; first stays champion"
    ):
        model.promote("second", rule="likely", data=tmp_path / "bars")
    assert model.champion.version == "first"


def test_an_approval_compares_on_the_data_that_were_named(
    storage: Path, tmp_path: Path, bars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bars(tmp_path / "bars", bars)
    model = podium.registry(storage)["shapes"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failed, match="second of shapes does not meet the rule"):
        model.promote("second", rule="not-worse,approved", data="bars")
    monkeypatch.chdir("/")
    assert model.approve("second", "seen").version == "second"


def test_models_and_versions_show_themselves_as_tables(storage: Path) -> None:
    registry = podium.registry(storage)
    assert list(registry) == ["rows", "shapes"]
    assert '<td style="text-align:left">first</td>' in registry._repr_html_()
    versions = registry["shapes"].versions
    assert versions.frame[["version", "value", "aliases"]].values.tolist() == [
        ["first", 0.5, "champion"],
        ["second", 0.5, ""],
    ]
    assert "champion" in registry["shapes"]._repr_html_()
    assert repr(versions[1]) == "<shapes second, accuracy 0.5000>"
    assert repr(registry["rows"].versions) == "<1 version of rows>"
    assert "0.1" in versions[1]._repr_html_()


def test_a_registry_and_runs_can_be_asked_for_names(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    for known in (podium.registry(storage), podium.runs()):
        assert "nobody" not in known
        assert known.get("nobody") is None


def test_what_is_not_in_the_registry_is_named(storage: Path) -> None:
    with pytest.raises(
        NotFound, match=r"there is no model shape in .*\nhint: models there: rows, shapes"
    ):
        podium.registry(storage)["shape"]
    with pytest.raises(NotFound, match="no version third"):
        podium.registry(storage)["shapes"]["third"]


def test_a_model_takes_its_own_inputs_only(storage: Path, bars: Any) -> None:
    champion = podium.registry(storage)["shapes"].champion
    with pytest.raises(InvalidInput, match=r"takes images \(uint8 \[n, 28, 28\]\)"):
        champion.predict(bars[:, :20])
    with pytest.raises(
        InvalidInput, match="items are an array, arrays by name, a DataFrame, paths or sentences"
    ):
        champion.predict([1, 2])
    with pytest.raises(InvalidInput, match="not of type NoneType"):
        champion.predict(None)


def test_a_model_directory_predicts_without_a_registry(
    storage: Path, bars: Any, tmp_path: Path
) -> None:
    podium.registry(storage)["shapes"].champion.fetch(tmp_path / "model")
    assert list(podium.open_model(tmp_path / "model").predict(bars)) == ["wide", "tall"]
    with pytest.raises(NotFound, match="there is no model under"):
        podium.open_model(tmp_path / "nothing")
