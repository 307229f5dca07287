"""What appears whole or not at all."""

from pathlib import Path

import pytest

from podium.files.drafts import appearing


def test_a_file_takes_its_place_in_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("before")
    with appearing(target) as draft:
        draft.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    (target / "old").touch()

    def fill() -> None:
        with appearing(target) as draft:
            draft.mkdir()
            (draft / "new").touch()
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fill()
    assert [path.name for path in tmp_path.rglob("*")] == ["directory", "old"]


def test_a_directory_makes_room_for_another(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    for name in ("old", "new"):
        with appearing(target) as draft:
            draft.mkdir()
            (draft / name).touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["directory", "new"]


def test_a_directory_that_was_deleted_stays_deleted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), appearing(tmp_path / "gone" / "file") as draft:
        draft.write_text("late")
    assert not list(tmp_path.iterdir())
