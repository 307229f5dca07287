# tests/data/test_lines_source.py
import json
from pathlib import Path

import pytest

from podium.errors import InvalidInput
from podium.training.dataset import DataSettings
from podium.training.preparation import prepare


def test_lines_become_a_dataset(tmp_path: Path) -> None:
    file = tmp_path / "rooms.jsonl"
    file.write_text(
        "".join(json.dumps({"x": [at, at % 7], "price": 3 * at}) + "\n" for at in range(100))
    )
    info = prepare(DataSettings(dataset=f"lines:{file}", target="price"), tmp_path / "data")
    assert (info.name, info.kind) == ("rooms", "regression")
    assert {part: described.count for part, described in info.parts.items()} == {
        "train": 81, "validation": 9, "test": 10,
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="line 1 has no 'cost'"):
        prepare(DataSettings(dataset=f"lines:{file}", target="cost"), tmp_path / "other")
