import numpy as np
import pytest

from podium.data.blocks import BLOCK, Selection
from podium.data.split import Split
from podium.data.suspects import find_overlaps
from podium.errors import InvalidInput
from podium.training.preparation import _check_overlaps


def selections(table: np.ndarray, words: np.ndarray, **index: list[int]) -> dict[str, Selection]:
    items = Split(inputs={"table": table, "words": words}, target=np.arange(len(table)))
    return {
        part: Selection(part=items, index=np.array(positions)) for part, positions in index.items()
    }


def overlaps(parts: dict[str, Selection]) -> list[str]:
    return find_overlaps(parts, {part: items.hashes() for part, items in parts.items()})


def distinct(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((count, 3), np.float32), rng.integers(0, 9, (count, 2))


def test_parts_without_common_items_do_not_overlap() -> None:
    assert (
        overlaps(selections(*distinct(9), train=[0, 1, 2], validation=[3, 4], test=[5, 6, 7])) == []
    )


def test_items_in_two_parts_are_found_and_named() -> None:
    table, words = distinct(9)
    table[[5, 6]], words[[5, 6]] = table[1], words[1]
    found = overlaps(selections(table, words, train=[0, 1, 2], validation=[3, 4], test=[5, 6, 7]))
    assert found == ["2 of the test items are among the train items too, for example items 6 and 2"]
    parts = selections(table, words, train=[0, 1, 2], validation=[3, 4], test=[5, 6, 7])
    with pytest.raises(
        InvalidInput,
        match="2 of the test items are among the train items too, for example items 6 and 2",
    ) as error:
        _check_overlaps(
            parts,
            {part: items.hashes() for part, items in parts.items()},
            accepted=False,
            by_hash=False,
        )
    assert "allow_duplicates" in str(error.value)


def test_one_shared_item_is_counted_as_one() -> None:
    table, words = distinct(6)
    table[5], words[5] = table[0], words[0]
    found = overlaps(selections(table, words, train=[0, 1], validation=[2, 3], test=[4, 5]))
    assert found[0].startswith("1 of the test items is among the train items too")


def test_items_that_differ_in_one_input_are_not_duplicates() -> None:
    table, words = distinct(6)
    table[5] = table[0]
    assert overlaps(selections(table, words, train=[0, 1], validation=[2, 3], test=[4, 5])) == []


def test_duplicates_within_a_part_are_nobodys_business() -> None:
    table, words = distinct(6)
    table[1], words[1] = table[0], words[0]
    assert overlaps(selections(table, words, train=[0, 1], validation=[2, 3], test=[4, 5])) == []


def test_items_beyond_the_first_block_are_compared() -> None:
    count = BLOCK // 1024 + 100
    table = np.random.default_rng(0).integers(0, 255, (count, 1024), np.uint8)
    table[-1] = table[3]
    parts = selections(table, np.zeros((count, 1)), train=list(range(count - 2)), validation=[count - 2],
                       test=[count - 1])  # fmt: skip
    assert overlaps(parts)[0].endswith(f"for example items {count} and 4")
