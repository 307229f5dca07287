"""Files that others may have written: pickles that run code, and JSON and weights of the wrong types."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import digits

from podium.trainer.__main__ import main
from podium.trainer.config import parse


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.target),)


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def flags(dataset: Path, tmp_path: Path) -> list[str]:
    return ["--data", str(dataset), "--output", str(tmp_path / "out"), "--inherit", str(tmp_path / "parent"), "--model", "fast",
            "--epochs", "1", "--threads", "1", "--no-cuda"]  # fmt: skip


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("out", "parent"):
        (tmp_path / name).mkdir()


def test_a_checkpoint_that_would_run_code_does_not(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"fingerprint": Payload(tmp_path / "ran"), "config": {}}
    (tmp_path / "out" / "checkpoint.pt").write_bytes(saved(state))
    assert main(flags(tiny_dataset, tmp_path)) == 0
    assert (
        "checkpoint.pt cannot be read (UnpicklingError): starting anew" in capsys.readouterr().err
    )
    assert not (tmp_path / "ran").exists()


def refusal(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the sentence a refused training prints."""
    assert main(flags(dataset, tmp_path)) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in said if not line.startswith("notice")] == [
        "error",
        "hint",
    ]
    return "\n".join(said)


def test_weights_to_inherit_that_would_run_code_do_not(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"weights": {}, "optimizer": "sgd", "state": Payload(tmp_path / "ran")}
    (tmp_path / "parent" / "inherit.pt").write_bytes(saved(content))
    assert "inherit.pt cannot be read (UnpicklingError)" in refusal(tiny_dataset, tmp_path, capsys)
    assert not (tmp_path / "ran").exists()


WEIGHTS_OF_FAST = "the weights of --model fast"
PARENTS: dict[str, Any] = {
    "a list": [1, 2],
    "a number": 3,
    "no weights": {"optimizer": "sgd", "state": []},
    "weights that are text": {"weights": "all of them", "optimizer": "sgd", "state": []},
    "weights of another shape": {
        "weights": {"1.weight": torch.zeros(1)},
        "optimizer": "sgd",
        "state": [],
    },
    "weights that are numbers": {"weights": {"1.weight": 1.0}, "optimizer": "sgd", "state": []},
    "optimizer state that is a number": {
        "weights": WEIGHTS_OF_FAST,
        "optimizer": "sgd",
        "state": 1,
    },
    "optimizer state without tensors": {
        "weights": WEIGHTS_OF_FAST,
        "optimizer": "sgd",
        "state": [{}, {}],
    },
}


@pytest.mark.parametrize("case", PARENTS)
def test_an_inherited_file_of_wrong_types_is_explained(
    case: str, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = PARENTS[case]
    if isinstance(content, dict) and content.get("weights") == WEIGHTS_OF_FAST:
        from podium.trainer.models import build

        network = build(parse(["--model", "fast"]), digits())
        content = {**content, "weights": network.state_dict()}
    (tmp_path / "parent" / "inherit.pt").write_bytes(saved(content))
    said = refusal(tiny_dataset, tmp_path, capsys)
    assert f"--inherit {tmp_path / 'parent'} holds no weights of this network" in said


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'"text"', b"null", b'{"fingerprint": OURS}',
                                     b'{"fingerprint": OURS, "epochs": 3}', b'{"fingerprint": OURS, "epochs": ["one"]}',
                                     b'{"fingerprint": OURS, "epochs": [{"accuracy": "high", "loss": 1}]}',
                                     b'{"fingerprint": OURS, "epochs": [{"accuracy": 1}]}'])  # fmt: skip
def test_a_metrics_file_of_wrong_types_is_explained(
    content: bytes, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = flags(tiny_dataset, tmp_path)
    digest = json.loads((tiny_dataset / "dataset.json").read_text())["digest"]
    ours = json.dumps(parse(argv).fingerprint(digest)).encode()
    (tmp_path / "out" / "metrics.json").write_bytes(content.replace(b"OURS", ours))
    assert "metrics.json" in refusal(tiny_dataset, tmp_path, capsys)


@pytest.mark.parametrize("content", [b"{", b"[1]"])
def test_hyperparameters_that_are_not_json_objects_are_explained(
    content: bytes, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "metrics.json").write_text('{"fingerprint": "of another training"}')
    (tmp_path / "out" / "hyperparameters.json").write_bytes(content)
    assert "hyperparameters.json is not a JSON object" in refusal(tiny_dataset, tmp_path, capsys)


def test_a_checkpoint_of_another_version_is_explained(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = parse(flags(tiny_dataset, tmp_path))
    digest = json.loads((tiny_dataset / "dataset.json").read_text())["digest"]
    state = {
        "fingerprint": config.fingerprint(digest),
        "config": config.decisive,
        "model": {},
    }
    (tmp_path / "out" / "checkpoint.pt").write_bytes(saved(state))
    assert "is of another version" in refusal(tiny_dataset, tmp_path, capsys)
