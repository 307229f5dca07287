"""A user's mistake: the law, the value and a hint on stderr, exit code 2, nothing written."""

import shutil
from pathlib import Path

import pytest

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
        (["--batch-size", "401"], "batch_size=401, images=400"),
        (["--backend", "smoke"], "backend='smoke'"),
        (["--backend", "nccl", "--no-cuda"], "no_cuda=True"),
        (["--backend", "mpi"], "a torch built with MPI"),
        (["--dataset", "mnist"], "dataset='mnist', data='tiny'"),
        (["--output", "ftp://host/place"], "ftp://host/place"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_a_mistake_in_the_flags_is_explained_and_nothing_is_written(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    argv = ["--data", str(tiny_dataset), "--output", str(tmp_path / "out"), *flags]
    assert said in refused(argv, capsys)
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "nowhere") in refused(["--data", str(tmp_path / "nowhere")], capsys)
    assert "--data" in refused([], capsys)


def test_a_damaged_dataset_is_named(tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(tiny_dataset, tmp_path / "copy")
    images = copy / "train-images.npy"
    blob = bytearray(images.read_bytes())
    blob[-1] ^= 1
    images.write_bytes(blob)
    assert "train-images.npy" in refused(["--data", str(copy), "--output", str(tmp_path / "out")], capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is set when WORLD_SIZE > 1"),
        ({"WORLD_SIZE": "two"}, "'two'"),
    ],
)
def test_an_environment_that_names_no_place_in_the_world_is_explained(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str], said: str,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert said in refused(["--data", str(tiny_dataset)], capsys)
