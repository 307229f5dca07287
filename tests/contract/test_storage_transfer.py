"""Copying directories into a storage and out of it, over a directory and over real S3 servers."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from podium.cli import app
from podium.errors import Conflict, InvalidInput, NotFound
from podium.storage import Storage
from podium.storage.transfer import get, put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a file in it and one below."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "dataset.json").write_text("{}")
    (tmp_path / "in" / "deep" / "train.npy").write_bytes(b"1234")
    return tmp_path / "in"


def test_a_directory_travels_there_and_back(storage: Storage, folder: Path, tmp_path: Path) -> None:
    copied = put(folder, storage)
    assert [entry.key for entry in copied] == [
        "deep/train.npy",
        "dataset.json",
    ]  # what makes it a dataset is last
    assert {entry.key for entry in get(storage, tmp_path / "out")} == {
        "dataset.json",
        "deep/train.npy",
    }
    assert (tmp_path / "out" / "deep" / "train.npy").read_bytes() == b"1234"


def test_a_file_keeps_its_name(storage: Storage, folder: Path) -> None:
    put(folder / "deep" / "train.npy", storage)
    assert storage.get("train.npy") == b"1234"


@pytest.mark.parametrize(
    ("url", "key"),
    [("raw", "raw/b.csv"), ("raw/", "raw/b.csv"), ("raw/b.csv", "raw/b.csv"), ("c.CSV", "c.CSV")],
)
def test_a_url_that_ends_like_the_file_is_its_copy(
    storage: Storage, tmp_path: Path, url: str, key: str
) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n")
    done = CliRunner().invoke(app, ["storage", "put", str(tmp_path / "b.csv"), storage.join(url)])
    assert [entry.key for entry in storage.list()] == [key]
    assert done.output == f"copied 1 file, 4 bytes, to {storage.join(key)}\n"


def test_what_is_there_is_replaced_only_on_request(storage: Storage, folder: Path) -> None:
    storage.put("deep/train.npy", b"old!")
    with pytest.raises(Conflict, match="exists already"):
        put(folder, storage)
    assert storage.head("dataset.json") is None
    put(folder, storage, overwrite=True)
    assert storage.get("deep/train.npy") == b"1234"


def test_files_on_this_machine_are_never_replaced(
    storage: Storage, folder: Path, tmp_path: Path
) -> None:
    put(folder, storage)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dataset.json").write_text("mine")
    with pytest.raises(Conflict, match="exists already"):
        get(storage, tmp_path / "out")
    assert not (tmp_path / "out" / "deep").exists()


def test_links_and_nothing_are_refused(storage: Storage, folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="symbolic link"):
        put(folder, storage)
    with pytest.raises(InvalidInput, match="no file or directory"):
        put(tmp_path / "none", storage)
    with pytest.raises(NotFound, match="nothing under"):
        get(storage, tmp_path / "out")


def test_a_name_that_no_storage_takes_is_refused_before_copying(
    storage: Storage, folder: Path
) -> None:
    (folder / "z\\odd").touch()
    with pytest.raises(InvalidInput, match="a key is a relative path"):
        put(folder, storage, overwrite=True)
    assert not list(storage.list())
