"""Datasets in a bucket are fetched once a machine."""

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import s3servers

from podium.data import artifact
from podium.errors import Damaged, PodiumError
from podium.storage import connect

READ = "import sys; from podium.data import artifact; print(int(artifact.load(sys.argv[1], 'train').target.sum()))"


@pytest.fixture
def remote(tiny_dataset: Path, tmp_path: Path, endpoint: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset in a bucket, and an empty cache."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint("moto"))
    for name, value in s3servers.KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "cache"))
    bucket = f"podium-{uuid.uuid4().hex}"
    connect(f"s3://{bucket}", create=True)
    artifact.copy(tiny_dataset, f"s3://{bucket}/tiny")
    return f"s3://{bucket}/tiny"


def cached(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "cache" / "objects").iterdir() if not path.name.endswith(".lock"))


def test_a_second_load_needs_no_download(remote: str, tiny_dataset: Path, tmp_path: Path) -> None:
    artifact.load(remote, "train")
    assert len(cached(tmp_path)) == 2
    connect(remote).delete("train-images.npy")
    again = artifact.load(remote, "train").inputs["images"]
    np.testing.assert_array_equal(again, artifact.load(tiny_dataset, "train").inputs["images"])


def test_a_damaged_file_in_the_cache_is_fetched_again(remote: str, tiny_dataset: Path, tmp_path: Path) -> None:
    artifact.load(remote, "train")
    for file in cached(tmp_path):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    again = artifact.load(remote, "train").inputs["images"]
    np.testing.assert_array_equal(again, artifact.load(tiny_dataset, "train").inputs["images"])


def test_a_damaged_object_does_not_enter_the_cache(remote: str, tmp_path: Path) -> None:
    storage = connect(remote)
    storage.put("train-images.npy", storage.get("train-images.npy")[:-1] + b"?")
    with pytest.raises(Damaged, match=r"train-images\.npy does not match its checksum"):
        artifact.load(remote, "train")
    assert cached(tmp_path) == []


def test_readers_at_the_same_time_all_get_the_data(remote: str, tiny_dataset: Path, tmp_path: Path) -> None:
    readers = [
        subprocess.Popen([sys.executable, "-c", READ, remote], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    answers = [reader.communicate(timeout=60)[0] for reader in readers]
    assert set(answers) == {f"{int(artifact.load(tiny_dataset, 'train').target.sum())}\n"}
    files = cached(tmp_path)
    inodes = [file.stat().st_ino for file in files]
    assert [file.name for file in files] == sorted(
        file.sha256 for file in artifact.describe(tiny_dataset).parts["train"].files
    )
    subprocess.run([sys.executable, "-c", READ, remote], check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert [file.stat().st_ino for file in cached(tmp_path)] == inodes


def test_a_cache_that_cannot_be_written_names_its_setting(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PodiumError, match=r"cannot be kept in .*file/cache") as error:
        artifact.load(remote, "train")
    assert "PODIUM_CACHE" in str(error.value)


def test_a_dataset_is_copied_from_bucket_to_bucket(remote: str, tiny_dataset: Path) -> None:
    artifact.copy(remote, f"{remote}-copy")
    assert artifact.describe(f"{remote}-copy") == artifact.describe(tiny_dataset)
    np.testing.assert_array_equal(
        artifact.load(f"{remote}-copy", "test").target, artifact.load(tiny_dataset, "test").target
    )
