"""A mistake by the user: the rule, the value and a hint on stderr, exit code 2, nothing written."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.storage import connect
from podium.trainer.__main__ import main


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is said on stderr; everything else must be as agreed."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "\nhint: " in err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--lr", "nan"], "lr=nan"),
        (["--epochs", "0"], "epochs=0"),
        (["--batch-size", "-1"], "batch_size=-1"),
        (["--backend", "smoke"], "takes gloo, nccl, mpi, but not 'smoke'"),
        (
            ["--backend", "nccl", "--no-cuda"],
            "--backend nccl needs a GPU, but --no-cuda leaves it none",
        ),
        (["--backend", "mpi"], "a torch that is built with MPI"),
        (["--dataset", "mnist"], "holds tiny, not mnist"),
        (["--output", "ftp://host/place"], "ftp://host/place"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_wrong_flags_are_explained_and_nothing_is_written(
    tiny_dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: str,
) -> None:
    argv = ["--data", str(tiny_dataset), "--output", str(tmp_path / "out"), *flags]
    assert said in refused(argv, capsys)
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert str(tmp_path / "nowhere") in refused(["--data", str(tmp_path / "nowhere")], capsys)
    assert "--data" in refused([], capsys)


def test_a_damaged_dataset_is_named(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(tiny_dataset, tmp_path / "copy")
    images = copy / "train-images.npy"
    blob = bytearray(images.read_bytes())
    blob[-1] ^= 1
    images.write_bytes(blob)
    assert "train-images.npy" in refused(
        ["--data", str(copy), "--output", str(tmp_path / "out")], capsys
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE is 2, but MASTER_ADDR is not set"),
        ({"WORLD_SIZE": "two"}, "'two'"),
        ({"PET_NODE_RANK": "0", "PET_NNODES": "1:4"}, "PET_NNODES must be a number, but is '1:4'"),
        ({"PET_NODE_RANK": "2", "PET_NNODES": "2"}, "PET_NODE_RANK=2, PET_NNODES=2"),
        (
            {"PET_NODE_RANK": "0", "PET_NNODES": "2"},
            "PET_NNODES is 2, but PET_MASTER_ADDR is not set",
        ),
        ({"PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "4"}, "start it with torchrun"),
    ],
)
def test_a_wrong_rank_in_the_environment_is_explained(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str], said: str,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert said in refused(["--data", str(tiny_dataset)], capsys)


def test_an_output_below_a_file_is_refused_at_the_start(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    said = refused(
        ["--data", str(tiny_dataset), "--output", str(tmp_path / "file" / "below")], capsys
    )
    assert f"--output {tmp_path}/file/below cannot be used: " in said


def test_an_output_without_write_permission_is_refused_at_the_start(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write everywhere")
    said = refused(["--data", str(tiny_dataset), "--output", str(tmp_path / "out")], capsys)
    assert "check the permissions" in said


@pytest.fixture
def bucket(new_bucket: Callable[[str], str]) -> str:
    """The URL of an empty bucket on a real server, which the environment names."""
    return new_bucket("moto")


def test_a_missing_bucket_is_refused_at_the_start(
    tiny_dataset: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(["--data", str(tiny_dataset), "--output", "s3://not-there/model"], capsys)
    assert "--output s3://not-there/model cannot be used: " in said


def test_a_server_that_does_not_answer_is_refused(
    tiny_dataset: Path,
    bucket: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    assert address in refused(["--data", str(tiny_dataset), "--output", f"{bucket}/model"], capsys)


def test_a_bucket_holds_nothing_but_the_model_at_the_end(tiny_dataset: Path, bucket: str) -> None:
    flags = ["--model", "fast", "--epochs", "1", "--threads", "1", "--no-cuda"]
    assert main(["--data", str(tiny_dataset), "--output", f"{bucket}/model", *flags]) == 0
    names = {
        "model.onnx",
        "model.safetensors",
        "metrics.json",
        "hyperparameters.json",
        "environment.json",
        "validation.npz",
    }
    assert {entry.key for entry in connect(bucket).list()} == {f"model/{name}" for name in names}
