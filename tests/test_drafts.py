"""What appears whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from podium.files.drafts import appearing, replace


def test_a_file_takes_its_place_in_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("before")
    with appearing(target) as draft:
        draft.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_is_replaced_in_one_call(tmp_path: Path) -> None:
    target = tmp_path / "file"
    for content in (b"before", b"after"):
        replace(target, content)
    assert target.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [target]


def test_the_draft_of_a_bare_name_lies_beside_it(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from podium.files.drafts import replace
sys.addaudithook(lambda event, args: event == "os.rename" and print(args[0]))
replace(Path("file"), b"content")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout.startswith(b".podium-")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_what_cannot_be_replaced_leaves_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        replace(target, b"late")
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "gone" / "file", b"late")
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


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupt_between_two_moves_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    target, moves, move = tmp_path / "directory", list[Path](), Path.replace
    target.mkdir()
    (target / "old").touch()

    def interrupted(path: Path, to: Path) -> Path:
        moved = move(path, to)
        moves.append(path)
        if len(moves) == after:
            raise KeyboardInterrupt
        return moved

    def fill() -> None:
        with appearing(target) as draft:
            draft.mkdir()
            (draft / "new").touch()

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill()
    assert [path.name for path in tmp_path.rglob("*")] == [
        "directory", "old" if after == 1 else "new",
    ]  # fmt: skip
