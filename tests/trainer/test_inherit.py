"""A training starts from the weights of another one: population based training."""

import io
import json
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from podium.trainer.__main__ import main

SMALL = [
    "--model",
    "fast",
    "--optimizer",
    "adadelta",
    "--lr",
    "1",
    "--schedule",
    "step",
    "--average",
    "0",
]


def train(dataset: Path, tmp_path: Path, name: str, *more: str) -> int:
    flags = [
        "--data",
        str(dataset),
        "--output",
        str(tmp_path / name),
        "--inherit",
        str(tmp_path / "family"),
    ]
    return main(
        [
            *flags,
            "--epochs",
            "1",
            "--threads",
            "1",
            "--no-cuda",
            "--batch-size",
            "20",
            *SMALL,
            *more,
        ]
    )


@pytest.fixture(scope="module")
def parent(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Where a training left its weights for others, and its first loss. Read only."""
    folder, lines = tmp_path_factory.mktemp("parent"), io.StringIO()
    with redirect_stdout(lines):
        assert train(tiny_dataset, folder, "output") == 0
    return folder, first_loss(lines.getvalue())


@pytest.fixture
def family(parent: tuple[Path, float], tmp_path: Path) -> float:
    """Put the parent's weights where a training in this directory inherits them; return the parent's first loss."""
    shutil.copytree(parent[0] / "family", tmp_path / "family")
    return parent[1]


def first_loss(text: str) -> float:
    found = re.search(r"train_loss=([0-9.]+)", text)
    assert found
    return float(found[1])


@pytest.mark.parametrize("optimizer", ["adadelta", "sgd"])
def test_a_training_starts_from_inherited_weights_with_its_own_flags(
    optimizer: str, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lr = "1.0" if optimizer == "adadelta" else "0.05"
    assert train(tiny_dataset, tmp_path, "parent", "--optimizer", optimizer, "--lr", lr) == 0
    parent = first_loss(capsys.readouterr().out)
    left = torch.load(tmp_path / "family" / "inherit.pt", weights_only=True)
    assert left["state"], "the optimizer state"
    assert (
        train(
            tiny_dataset, tmp_path, "child", "--optimizer", optimizer, "--lr", "0.01", "--seed", "2"
        )
        == 0
    )
    child = first_loss(capsys.readouterr().out)
    assert child < parent * 0.8
    mine = torch.load(tmp_path / "family" / "inherit.pt", weights_only=True)
    assert any(
        not torch.equal(left["weights"][name], mine["weights"][name]) for name in left["weights"]
    )


def test_another_optimizer_inherits_the_weights_alone(
    tiny_dataset: Path, tmp_path: Path, family: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "child", "--optimizer", "sgd", "--lr", "0.01") == 0
    assert first_loss(capsys.readouterr().out) < family * 0.8


@pytest.mark.usefixtures("family")
def test_another_network_and_damage_are_reported(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "other", "--model", "tutorial") == 2
    assert "holds no weights of this network" in capsys.readouterr().err
    (tmp_path / "family" / "inherit.pt").write_bytes(b"PK damaged")
    assert train(tiny_dataset, tmp_path, "third") == 2
    assert "inherit.pt cannot be read" in capsys.readouterr().err


OTHER_TYPES: list[tuple[str, Any]] = [
    ("weights", 7), ("weights", {"0.weight": "x"}), ("weights", {7: torch.zeros(1)}), ("state", [1]),
    ("state", {0: "x"}), ("state", {0: {"step": "x"}}), ("", [1, 2]),
]  # fmt: skip


@pytest.mark.usefixtures("family")
def test_inherited_fields_of_other_types_are_refused_by_name(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "family" / "inherit.pt"
    left = torch.load(file, weights_only=True)
    for name, value in OTHER_TYPES:
        torch.save({**left, name: value} if name else value, file)
        assert train(tiny_dataset, tmp_path, "child") == 2, (name, value)
        said = capsys.readouterr().err
        assert f"--inherit {tmp_path / 'family'}" in said, said
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def again(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a finished training whose metrics.json a test spoils; whole.json keeps what it was."""
    folder = tmp_path_factory.mktemp("again")
    assert train(tiny_dataset, folder, "output") == 0
    shutil.copy(folder / "output/metrics.json", folder / "whole.json")
    return folder


@pytest.mark.parametrize(
    "content", ["[]", '{"epochs": 7}', '{"epochs": [{"accuracy": "x"}]}', "{", "[" * 5000, "null"]
)
def test_finished_metrics_of_other_types_are_refused_by_name(
    content: str, tiny_dataset: Path, again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fingerprint = json.loads((again / "whole.json").read_text())["fingerprint"]
    spoiled = (
        content.replace("{", f'{{"fingerprint": "{fingerprint}",', 1) if ":" in content else content
    )
    (again / "output/metrics.json").write_text(spoiled)
    assert train(tiny_dataset, again, "output") == 2
    assert "metrics.json" in capsys.readouterr().err


def test_a_late_kill_trains_no_weights_twice(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("podium.trainer.output.write", end)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_dataset, tmp_path, "output")
    assert train(tiny_dataset, tmp_path, "output") == 0
    shutil.rmtree(tmp_path / "family")
    assert train(tiny_dataset, tmp_path, "whole") == 0
    models = (tmp_path / name / "model.safetensors" for name in ("output", "whole"))
    assert len({model.read_bytes() for model in models}) == 1
