"""The train step on the embedded cluster, with the real trainer."""

import json
from pathlib import Path

import pytest

from podium.steps.target import LaunchTarget
from podium.steps.train import TrainSettings, train


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchTarget:
    monkeypatch.setenv("PODIUM_RUN_ID", "run-1")
    return LaunchTarget(
        trainer_image="unused", storage=f"file://{tmp_path}/store", cluster=f"local://{tmp_path}/cluster"
    )


def test_a_model_tells_the_flags_its_training_was_given(
    tiny_dataset: Path, tmp_path: Path, target: LaunchTarget
) -> None:
    settings = TrainSettings(hyperparameters={"lr": "0.5", "epochs": "1"}, epochs=2, workers=1, seed=7)
    result = train(str(tiny_dataset), task="train", settings=settings, target=target)

    model = Path(result.model.removeprefix("file://"))
    told = json.loads((model / "origin.json").read_text())["hyperparameters"]
    used = json.loads((model / "hyperparameters.json").read_text())
    assert told == {"lr": "0.5", "epochs": 2, "seed": 7}
    assert (used["lr"], used["epochs"], used["seed"]) == (0.5, 2, 7)
    assert result.metrics["epoch"] in (1, 2)
