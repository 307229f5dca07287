"""A model directory is opened once and handed on."""

from pathlib import Path

import pytest

from podium.errors import InvalidInput, NotFound
from podium.prediction import ModelDirectory


def test_files_are_listed_once_until_one_is_added(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"1")
    (tmp_path / "checkpoint-1").write_bytes(b"2")
    directory = ModelDirectory(tmp_path)
    assert directory.files == ("weights.bin",)
    (tmp_path / "late.txt").write_text("of somebody else")
    assert directory.files == ("weights.bin",)
    directory.put("model.json", b'{"predict": ["python"]}')
    assert directory.files == ("late.txt", "model.json", "weights.bin")
    assert directory.has_model
    assert directory.command.predict == ["python"]


def test_a_missing_json_file_is_none_and_a_broken_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text("{")
    directory = ModelDirectory(tmp_path)
    assert directory.load("origin.json") is None
    with pytest.raises(InvalidInput, match=r"metrics\.json"):
        directory.load("metrics.json")


def test_an_empty_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no model under"):
        ModelDirectory(tmp_path).require_model()
