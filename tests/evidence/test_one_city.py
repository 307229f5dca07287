"""A challenger that is better overall and worse in one city is refused, and the city is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Nights
from PIL import Image
from sklearn.linear_model import LogisticRegression

from podium.data.held_out import HeldOut
from podium.errors import InvalidInput
from podium.models import open_registry
from podium.training.dataset import DataSettings
from podium.training.preparation import check_data

pytestmark = pytest.mark.whole


def by_column(at: int) -> LogisticRegression:
    """Return a model that learns from one column."""
    model = LogisticRegression()

    def fit(inputs: Any, target: Any) -> LogisticRegression:
        return LogisticRegression.fit(
            model, np.where(np.arange(inputs.shape[1]) == at, inputs, 0), target
        )

    model.fit = fit
    return model


def table(place: Path) -> str:
    """Write rows whose label follows from ``x`` in Ulm and from ``y`` in other cities."""
    draw = np.random.default_rng(0)
    lines = ["x,y,city,label"]
    for x, y, city in zip(
        *draw.normal(size=(2, 1500)), draw.choice(["Bonn", "Kiel", "Ulm"], 1500), strict=True
    ):
        lines.append(f"{x:.5f},{y:.5f},{city},{'no' if (x if city == 'Ulm' else y) < 0 else 'yes'}")
    (place / "rows.csv").write_text("\n".join(lines))
    return f"table:{place / 'rows.csv'}"


def test_a_loss_in_one_city_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    nights, data = Nights(tmp_path, monkeypatch), table(tmp_path)
    nights.prepare(data, "label", drop=["city"])
    assert nights.train(by_column(0))["outcome"] == "promoted"
    nights.prepare(data, "label", drop=["city"])
    decision = nights.train(by_column(1), rule="better,slice=city")
    assert decision["value"] > decision["champion_value"] + 0.1
    assert decision["outcome"] == "kept"
    (said,) = (reason for reason in decision["reasons"] if reason.startswith("no"))
    assert said.startswith("no: worse than the champion in city Ulm: accuracy 0.")
    record = open_registry(nights.storage)["real"].records()[-1]
    assert {row["slice"] for row in record.evidence["slices"][0]["slices"]} == {
        "Bonn",
        "Kiel",
        "Ulm",
    }
    report = (tmp_path / "report.html").read_text()
    assert 'aria-label="By city"' in report
    assert 'data-figure="reliability"' in report
    with pytest.raises(InvalidInput, match="have no column 'town'"):
        HeldOut.open(nights.data).column("town")


def pictures(place: Path) -> str:
    """Write pictures of two classes by two cameras: the upper half tells the class, but the lower one of camera b."""
    draw = np.random.default_rng(0)
    for number in range(800):
        camera, label = "ab"[number % 4 == 0], number // 4 % 2
        pixels = draw.integers(0, 100, size=(8, 8))
        pixels[slice(0, 4) if camera == "a" else slice(4, 8)] += 100 * label
        folder = place / "pictures" / ("dark", "light")[label] / camera
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return f"images:{place / 'pictures'}"


def test_a_loss_by_one_camera_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    nights, data = Nights(tmp_path, monkeypatch), pictures(tmp_path)
    for model, rule in ((by_column(40), "likely"), (by_column(8), "better,slice=folder")):
        check_data(
            DataSettings(dataset=data, data_options={"test": 0.4}),
            metric="",
            model_name="",
            storage="",
            columns=("folder",),
        )
        nights.prepare(data, test=0.4)
        decision = nights.train(model, rule=f"{rule},baseline=any")
    assert decision["value"] > decision["champion_value"]
    (said,) = (reason for reason in decision["reasons"] if reason.startswith("no"))
    assert said.startswith("no: worse than the champion in folder b: accuracy 0."), said
    with pytest.raises(InvalidInput, match="have no column 'camera'"):
        HeldOut.open(nights.data).column("camera")
