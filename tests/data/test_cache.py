"""Datasets in a bucket are fetched once a machine."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from podium.data import artifact, artifact_files
from podium.data.cache import ObjectCache
from podium.errors import Damaged, InvalidInput, PodiumError
from podium.storage import connect
from podium.system.settings import Settings


def total(url: str, environ: dict[str, str]) -> int:
    """Sum the labels of a dataset, in a process of its own."""
    os.environ.update(environ)
    return int(artifact.load(url, "train").target.sum())


@pytest.fixture
def remote(
    tiny_dataset: Path,
    tmp_path: Path,
    new_bucket: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A dataset in a bucket, and an empty cache."""
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "cache"))
    uri = f"{new_bucket('moto')}/tiny"
    artifact_files.copy(tiny_dataset, uri)
    return uri


def cached(tmp_path: Path) -> list[Path]:
    return sorted(
        path
        for path in (tmp_path / "cache" / "objects").iterdir()
        if not path.name.endswith(".lock")
    )


def test_a_second_load_needs_no_download(remote: str, tiny_dataset: Path, tmp_path: Path) -> None:
    artifact.load(remote, "train")
    assert len(cached(tmp_path)) == 2
    connect(remote).delete("train-images.npy")
    again = artifact.load(remote, "train").inputs["images"]
    np.testing.assert_array_equal(again, artifact.load(tiny_dataset, "train").inputs["images"])


def test_a_damaged_file_in_the_cache_is_fetched_again(
    remote: str, tiny_dataset: Path, tmp_path: Path
) -> None:
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


def test_readers_at_the_same_time_all_get_the_data(
    remote: str, tiny_dataset: Path, tmp_path: Path
) -> None:
    forks = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(4, forks) as readers:
        answers = list(readers.map(total, [remote] * 4, [dict(os.environ)] * 4, timeout=300))
    assert answers == [int(artifact.load(tiny_dataset, "train").target.sum())] * 4
    files = cached(tmp_path)
    inodes = [file.stat().st_ino for file in files]
    assert [file.name for file in files] == sorted(
        file.sha256 for file in artifact.describe(tiny_dataset).parts["train"].files
    )
    with ProcessPoolExecutor(1, forks) as reader:
        reader.submit(total, remote, dict(os.environ)).result(timeout=300)
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
    artifact_files.copy(remote, f"{remote}-copy")
    assert artifact.describe(f"{remote}-copy") == artifact.describe(tiny_dataset)
    np.testing.assert_array_equal(
        artifact.load(f"{remote}-copy", "test").target, artifact.load(tiny_dataset, "test").target
    )


def files_of(remote: str, part: str) -> dict[str, int]:
    return {file.sha256: file.bytes for file in artifact.describe(remote).parts[part].files}


def test_what_was_not_used_for_longest_makes_room(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = tmp_path / "cache" / "objects"
    objects.mkdir(parents=True)
    for age, name in enumerate(("newest", "middle", "oldest")):
        (objects / name).write_bytes(bytes(1000))
        os.utime(objects / name, (1000 - age, 1000 - age))
    needed = sum(files_of(remote, "test").values())
    monkeypatch.setenv("PODIUM_CACHE_GB", f"{(needed + 2000) / 1e9:.9f}")
    artifact.load(remote, "test")
    assert {file.name for file in cached(tmp_path)} == {
        "newest",
        "middle",
        *files_of(remote, "test"),
    }
    artifact.load(remote, "validation")
    assert {file.name for file in cached(tmp_path)} == {
        *files_of(remote, "test"),
        *files_of(remote, "validation"),
    }


def test_what_a_running_process_uses_stays(remote: str, tiny_dataset: Path, tmp_path: Path) -> None:
    used = artifact.load(remote, "train")
    (tmp_path / "cache" / "objects" / "unused").write_bytes(b"1234")
    words = [str(Path(sys.executable).with_name("podium")), "storage", "cache", "--empty", "--json"]
    report = json.loads(subprocess.run(words, check=True, timeout=60, capture_output=True).stdout)
    assert report["removed"] == {"files": 1, "bytes": 4}
    assert {file.name for file in cached(tmp_path)} == set(files_of(remote, "train"))
    np.testing.assert_array_equal(used.target, artifact.load(tiny_dataset, "train").target)


def test_the_rest_of_a_killed_download_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".abc.draft").write_bytes(b"half")
    cache = ObjectCache(directory=tmp_path, limit=0)
    assert [file.bytes for file in cache.evict(0)] == [4]
    assert list(tmp_path.iterdir()) == []


def test_a_download_in_progress_stays(remote: str, tmp_path: Path) -> None:
    objects = tmp_path / "cache" / "objects"
    cache, removed = ObjectCache(directory=objects, limit=0), []
    connect(remote).fetch(
        "train-images.npy",
        objects / ".abc.draft",
        progress=lambda _: removed.extend(cache.evict(0)),
    )
    assert removed == []
    (left,) = cached(tmp_path)
    left.rename(objects / ".podium-of-a-killed-download.tmp")
    os.utime(objects / ".podium-of-a-killed-download.tmp", (1000, 1000))
    assert len(cache.evict(0)) == 1


@pytest.mark.parametrize("limit", ["10 GiB", "-1", "lots"])
def test_a_limit_that_is_no_number_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CACHE_GB", limit)
    with pytest.raises(InvalidInput, match="not a number of gigabytes"):
        Settings.from_environment()
