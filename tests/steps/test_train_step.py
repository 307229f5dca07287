"""The train step on the embedded cluster, with the real trainer."""

import json
from pathlib import Path

import pytest

from podium.errors import InvalidInput
from podium.steps.train import train


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PODIUM_RUN_ID", "run-1")
    return {"storage": f"file://{tmp_path}/store", "cluster": f"local://{tmp_path}/cluster"}


def test_a_model_tells_the_flags_its_training_was_given(
    tiny_dataset: Path, tmp_path: Path, there: dict[str, str]
) -> None:
    result = train(
        str(tiny_dataset), tmp_path / "model", task="train", hyperparameters={"lr": "0.5", "epochs": "1"}, epochs=2,
        workers=1, seed=7, image="unused", **there,
    )  # fmt: skip

    told = json.loads((tmp_path / "model" / "origin.json").read_text())["hyperparameters"]
    used = json.loads((tmp_path / "model" / "hyperparameters.json").read_text())
    assert told == {"lr": "0.5", "epochs": 2, "seed": 7}
    assert (used["lr"], used["epochs"], used["seed"]) == (0.5, 2, 7)
    assert result.metrics["epoch"] in (1, 2)


def test_a_step_refuses_nonsense_before_it_starts_anything(
    tiny_dataset: Path, tmp_path: Path, there: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput, match="epochs >= 0"):
        train(str(tiny_dataset), tmp_path / "model", task="train", hyperparameters={}, epochs=-1, workers=0,
              image="unused", **there)  # fmt: skip
    assert not (tmp_path / "cluster").exists()
