"""A training starts from the weights of another one: population based training."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from podium.trainer.__main__ import main


def train(dataset: Path, tmp_path: Path, name: str, *more: str) -> int:
    flags = ["--data", str(dataset), "--output", str(tmp_path / name), "--inherit", str(tmp_path / "family")]
    return main([*flags, "--epochs", "1", "--threads", "1", "--no-cuda", "--batch-size", "20", *more])


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
    assert train(tiny_dataset, tmp_path, "child", "--optimizer", optimizer, "--lr", "0.01", "--seed", "2") == 0
    child = first_loss(capsys.readouterr().out)
    assert child < parent * 0.8
    mine = torch.load(tmp_path / "family" / "inherit.pt", weights_only=True)
    assert any(not torch.equal(left["weights"][name], mine["weights"][name]) for name in left["weights"])


def test_another_optimizer_inherits_the_weights_alone(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "parent") == 0
    parent = first_loss(capsys.readouterr().out)
    assert train(tiny_dataset, tmp_path, "child", "--optimizer", "sgd", "--lr", "0.01") == 0
    assert first_loss(capsys.readouterr().out) < parent * 0.8


def test_another_network_and_damage_are_told(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "parent") == 0
    assert train(tiny_dataset, tmp_path, "other", "--model", "fast") == 2
    assert "holds no weights of this network" in capsys.readouterr().err
    (tmp_path / "family" / "inherit.pt").write_bytes(b"PK damaged")
    assert train(tiny_dataset, tmp_path, "third") == 2
    assert "inherit.pt cannot be read" in capsys.readouterr().err


OTHER_TYPES: list[tuple[str, Any]] = [
    ("weights", 7), ("weights", {"0.weight": "x"}), ("weights", {7: torch.zeros(1)}), ("state", [1]),
    ("state", {0: "x"}), ("state", {0: {"step": "x"}}), ("", [1, 2]),
]  # fmt: skip


def test_inherited_fields_of_other_types_are_refused_by_name(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "parent") == 0
    file = tmp_path / "family" / "inherit.pt"
    left = torch.load(file, weights_only=True)
    for name, value in OTHER_TYPES:
        torch.save({**left, name: value} if name else value, file)
        assert train(tiny_dataset, tmp_path, "child") == 2, (name, value)
        said = capsys.readouterr().err
        assert f"--inherit {tmp_path / 'family'}" in said, said
        assert "Traceback" not in said


@pytest.mark.parametrize("content", ["[]", '{"epochs": 7}', '{"epochs": [{"accuracy": "x"}]}', "{", "[" * 5000, "null"])
def test_finished_metrics_of_other_types_are_refused_by_name(
    content: str, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny_dataset, tmp_path, "again") == 0
    file = tmp_path / "again" / "metrics.json"
    print_of = json.loads(file.read_text())["fingerprint"]
    file.write_text(content.replace("{", f'{{"fingerprint": "{print_of}",', 1) if ":" in content else content)
    capsys.readouterr()
    assert train(tiny_dataset, tmp_path, "again") == 2
    assert "metrics.json" in capsys.readouterr().err
