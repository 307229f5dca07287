from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from podium.data.hashes import _coarser, _mix_columns, _rounded
from podium.data.options import DataOptions
from podium.data.schema import InputDescription
from podium.data.sources.source import Raw
from podium.data.split import Split
from podium.data.splits import Division, divide
from podium.errors import InvalidInput


def part_of(target: np.ndarray) -> Split:
    return Split(inputs={"x": np.arange(len(target), dtype=np.float32)}, target=target)


def raw_of(target: np.ndarray, **facts: Any) -> Raw:
    kind = "regression" if target.dtype.kind == "f" else "classification"
    classes = () if kind == "regression" else tuple(map(str, range(max(2, int(target.max()) + 1))))
    return Raw(items=part_of(target), name="made", kind=kind, classes=classes, descriptions={"x": InputDescription()},
               target_name="y", source="a test", **facts)  # fmt: skip


def counts(division: Division) -> dict[str, int]:
    return {part: len(division.index[part]) for part in sorted(division.index)}


def assert_every_item_is_in_one_part(division: Division, count: int) -> None:
    assert sorted(np.concatenate(list(division.index.values())).tolist()) == list(range(count))


CLASSES = (
    np.random.default_rng(0).permutation(np.repeat(np.arange(3), [1000, 501, 7])).astype(np.uint8)
)


def test_the_split_keeps_the_proportions_of_the_classes() -> None:
    raw = raw_of(CLASSES, test=part_of(CLASSES))
    division = divide(raw, DataOptions())
    assert_every_item_is_in_one_part(division, 1508)
    assert np.bincount(CLASSES[division.index["validation"]]).tolist() == [100, 50, 1]
    division = divide(raw, DataOptions(), limit=150)
    used = [*division.index["train"], *division.index["validation"]]
    assert np.bincount(CLASSES[used]).tolist() == [99, 50, 1]
    assert counts(division) == {"train": 135, "validation": 15}


def test_the_split_of_a_seed_never_changes() -> None:
    """Digests of old runs must still be met: neither a new numpy nor a change here may choose other images."""
    raw = raw_of((np.arange(40) % 10).astype(np.uint8), test=part_of(np.zeros(3, np.uint8)))
    division = divide(raw, DataOptions(validation=0.25))
    assert division.index["validation"].tolist() == [2, 3, 4, 26, 27, 28, 29, 30, 31, 35]
    assert len(division.index["train"]) == 30


def test_a_source_without_a_test_part_gets_one_in_proportion() -> None:
    division = divide(raw_of(CLASSES), DataOptions(test=0.2))
    assert_every_item_is_in_one_part(division, 1508)
    assert np.bincount(CLASSES[division.index["test"]]).tolist() == [200, 100, 2]
    assert counts(division) == {"test": 302, "train": 1085, "validation": 121}
    assert division.how == "stratified"


def test_a_limit_leaves_the_test_part_whole() -> None:
    limited = divide(raw_of(CLASSES), DataOptions(), limit=100)
    assert counts(limited) == {"test": 151, "train": 90, "validation": 10}
    np.testing.assert_array_equal(
        limited.index["test"], divide(raw_of(CLASSES), DataOptions()).index["test"]
    )


def test_numbers_are_divided_at_random_and_by_the_seed() -> None:
    raw = raw_of(np.linspace(0, 1, 100, dtype=np.float32))
    first, again, other = (divide(raw, DataOptions(split_seed=seed)) for seed in (0, 0, 1))
    assert first.how == "random"
    assert_every_item_is_in_one_part(first, 100)
    assert counts(first) == {"test": 10, "train": 81, "validation": 9}
    assert (
        first.index["test"].tolist() == again.index["test"].tolist() != other.index["test"].tolist()
    )
    with pytest.raises(InvalidInput, match="only classes can be divided in proportion"):
        divide(raw, DataOptions(split="stratified"))


def test_a_group_is_never_divided() -> None:
    groups = np.array([f"patient {number % 23}" for number in range(500)])
    division = divide(raw_of(np.arange(500) % 2, groups=groups), DataOptions(group="patient"))
    assert_every_item_is_in_one_part(division, 500)
    seen = [set(groups[index]) for index in division.index.values()]
    assert sum(map(len, seen)) == 23
    assert 30 <= len(division.index["test"]) <= 50
    assert division.how == "by patient"


def test_one_large_group_does_not_fill_the_test_part() -> None:
    groups = np.array(["large"] * 90 + [f"small {number}" for number in range(10)])
    for seed in range(5):
        division = divide(
            raw_of(np.arange(100) % 2, groups=groups), DataOptions(group="g", split_seed=seed)
        )
        assert "large" in groups[division.index["train"]]


def test_two_groups_cannot_fill_three_parts() -> None:
    with pytest.raises(InvalidInput, match="every part needs a group of g of its own, but"):
        divide(raw_of(np.arange(100) % 2, groups=np.arange(100) % 2), DataOptions(group="g"))


def test_the_oldest_train_and_the_newest_test() -> None:
    times = np.random.default_rng(0).permutation(
        np.arange("2024-01-01", "2024-07-19", dtype="datetime64[D]")
    )
    division = divide(raw_of(np.arange(200) % 2, times=times), DataOptions(time="day"))
    train, validation, test = (
        times[division.index[part]] for part in ("train", "validation", "test")
    )
    assert train.max() < validation.min() <= validation.max() < test.min()
    assert counts(division) == {"test": 20, "train": 162, "validation": 18}
    assert division.how == "by day"


def test_items_of_one_time_stay_together() -> None:
    years = np.repeat([2020, 2021, 2022, 2023], 50)
    division = divide(raw_of(np.arange(200) % 2, times=years), DataOptions(time="year"))
    assert [set(years[division.index[part]]) for part in ("train", "validation", "test")] == [
        {2020, 2021},
        {2022},
        {2023},
    ]


def test_items_of_a_single_time_are_refused_in_words() -> None:
    raw = raw_of(np.arange(60) % 2, times=np.full(60, 5.0))
    with pytest.raises(InvalidInput, match="the validation part has no item") as error:
        divide(raw, DataOptions(time="day"))
    assert error.value.hint.endswith("by day, and 1 different time: items of one time share a part")


def test_series_that_all_go_on_are_divided_by_time_alone() -> None:
    weeks, series = np.repeat(np.arange(20), 5), np.tile(list("abcde"), 20)
    raw = raw_of(np.arange(100) % 2, times=weeks, groups=series)
    with pytest.raises(InvalidInput, match="the validation part has no item") as error:
        divide(raw, DataOptions(time="week", group="series"))
    assert error.value.hint.endswith(
        "each series in its newest part alone: leave out the option group"
    )


def test_a_limit_by_time_leaves_out_the_oldest() -> None:
    times = np.arange(200)
    division = divide(raw_of(np.arange(200) % 2, times=times), DataOptions(time="t"), limit=50)
    assert division.index["train"].min() == 130


@pytest.mark.parametrize(
    "times", [np.array([1.0, np.nan] * 20), np.array(["2024-01-01", "NaT"] * 20, "datetime64[D]")]
)
def test_an_item_without_a_time_is_named(times: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="day of item 2 is missing"):
        divide(raw_of(np.arange(40) % 2, times=times), DataOptions(time="day"))


def test_a_column_may_name_the_part_of_each_item() -> None:
    given = np.array(["Training", "val", "TEST ", "train"] * 10)
    division = divide(raw_of(np.arange(40) % 2, given=given), DataOptions(part="fold"))
    assert division.index["test"].tolist() == list(range(2, 40, 4))
    assert counts(division) == {"test": 10, "train": 20, "validation": 10}
    assert division.how == "given by fold"
    with pytest.raises(InvalidInput, match="fold of item 3 is 'holdout'"):
        divide(raw_of(np.arange(40) % 2, given=np.array(["train", "val", "holdout", "test"] * 10)),
               DataOptions(part="fold"))  # fmt: skip


def test_a_part_nobody_names_is_taken_from_the_training_items() -> None:
    given = np.array(["train"] * 30 + ["test"] * 10)
    division = divide(
        raw_of(np.arange(40) % 2, given=given), DataOptions(part="fold", validation=0.2)
    )
    assert_every_item_is_in_one_part(division, 40)
    assert division.index["test"].tolist() == list(range(30, 40))
    assert counts(division)["validation"] == 6
    with pytest.raises(
        InvalidInput, match="fold gives no item to train, only to test and validation"
    ):
        divide(
            raw_of(np.arange(40) % 2, given=np.array(["val", "test"] * 20)),
            DataOptions(part="fold"),
        )


def test_two_ways_to_divide_are_refused() -> None:
    with pytest.raises(InvalidInput, match="by group, by time, by both, or as split says"):
        divide(raw_of(np.arange(40) % 2), DataOptions(group="a", split="random"))


def test_too_few_items_are_refused() -> None:
    with pytest.raises(InvalidInput, match="every part needs an item, but only one is left"):
        divide(raw_of(np.arange(2)), DataOptions())


def test_two_items_and_their_copies_are_refused() -> None:
    target = np.arange(40) % 2
    items = Split(inputs={"x": target.astype(np.float32)}, target=target)
    same = replace(raw_of(target), items=items)
    with pytest.raises(InvalidInput, match="every part needs items that no other has, but") as few:
        divide(same, DataOptions())
    assert "allow_duplicates=true" in few.value.hint


@pytest.mark.parametrize(("low", "high"), [(20, 40), (70, 130), (0, 1)])
def test_the_kind_of_key_stays_as_data_grow(low: float, high: float) -> None:
    numbers = np.random.default_rng(0).uniform(low, high, (6400, 3))
    kinds = set()
    for count in (200, 400, 800, 1600, 3200, 6400):
        coarse = _mix_columns(_rounded(numbers[:count]))
        kinds.add(_coarser(np.arange(count, dtype=np.uint64), coarse) is coarse)
    assert len(kinds) == 1


def test_groups_that_grow_keep_their_part() -> None:
    """Of 89 test items 29 were of groups that had been in training: small ones filled up what others left."""
    lost, items, shares = 0, 0, []
    for seed in range(40):
        groups = np.random.default_rng(seed).integers(40, size=900) + 1000 * seed
        index = [
            divide(
                raw_of(np.zeros(rows), groups=groups[:rows]), DataOptions(group="patient", test=0.1)
            ).index
            for rows in (800, 900)
        ]
        learned = np.concatenate([index[0]["train"], index[0]["validation"]])
        lost += int(np.isin(groups[index[1]["test"]], groups[learned]).sum())
        items += len(index[1]["test"])
        shares.append(len(index[1]["test"]) / 900)
    assert lost <= 0.03 * items
    assert min(shares) >= 0.08
    assert max(shares) <= 0.12
