"""Folds of a dataset: train and validation divided anew, the test part closed."""

from pathlib import Path

import numpy as np
import pytest

import podium
from podium.data import artifact
from podium.data.folds import each_fold
from podium.errors import InvalidInput


def table(folder: Path, rows: int = 60, **options: object) -> str:
    random = np.random.default_rng(0)
    lines = ["x,who,age,day,outcome"]
    for at in range(rows):
        label = ("yes", "no", "maybe")[0 if at % 2 else 1 + (at % 6 == 0)]
        lines.append(f"{random.normal():.6f},p{at // 3},{at / 7},{at},{label}")
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    data = podium.prepare_data(
        f"table:{folder}/rows.csv",
        f"{folder}/data",
        target="outcome",
        **options,  # type: ignore[arg-type]
    )
    return str(data)


def validated(data: str, folds: int) -> list[np.ndarray]:
    return [
        artifact.load(uri, "validation").inputs["table"][:, 0]
        for uri in each_fold(data, folds, 1)[:-1]
    ]


def values(data: str, part: str) -> list[float]:
    return sorted(artifact.load(data, part).inputs["table"][:, 0].tolist())


def test_each_item_is_validated_in_one_fold(tmp_path: Path) -> None:
    data = table(tmp_path)
    both = sorted(values(data, "train") + values(data, "validation"))
    assert sorted(np.concatenate(validated(data, 5)).tolist()) == both
    for uri in each_fold(data, 5, 1)[:-1]:
        assert sorted(values(uri, "train") + values(uri, "validation")) == both
    last = each_fold(data, 5, 1)[-1]
    assert values(last, "train") == both
    assert values(last, "validation") == values(data, "validation")


def test_folds_leave_the_test_part_alone(tmp_path: Path) -> None:
    data = table(tmp_path)
    for uri in each_fold(data, 4, 1):
        assert values(uri, "test") == values(data, "test")
        assert artifact.describe(uri).digest == artifact.describe(data).digest


def test_folds_keep_the_shares_of_the_classes(tmp_path: Path) -> None:
    data = table(tmp_path, 120)
    counts = [artifact.describe(uri).parts["validation"] for uri in each_fold(data, 4, 1)[:-1]]
    for of_class in zip(*(part.class_counts for part in counts), strict=True):
        assert max(of_class) - min(of_class) <= 1
    assert max(part.count for part in counts) - min(part.count for part in counts) <= 1


def test_a_group_is_in_one_fold(tmp_path: Path) -> None:
    data = table(tmp_path, 180, group="who")
    owners: dict[int, set[int]] = {}
    for number, uri in enumerate(each_fold(data, 3, 1)[:-1]):
        kept = artifact.load(uri, "validation").inputs["table"][:, 0].tolist()
        trained = set(artifact.load(uri, "train").inputs["table"][:, 0].tolist())
        assert trained.isdisjoint(kept)
        for part in ("train", "validation"):
            rows = artifact.load(data, part).inputs["table"][:, 0].tolist()
            groups = artifact.load_facts(data, "groups", part)
            assert groups is not None
            for row, group in zip(rows, groups.tolist(), strict=True):
                if row in kept:
                    owners.setdefault(group, set()).add(number)
    assert all(len(found) == 1 for found in owners.values())
    assert set().union(*owners.values()) == {0, 1, 2}


def test_equal_items_share_a_fold(tmp_path: Path) -> None:
    rows = [f"{at % 20},{'ab'[at % 2]}" for at in range(80)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,outcome", *rows]))
    data = podium.prepare_data(f"table:{tmp_path}/rows.csv", f"{tmp_path}/data", target="outcome")
    found = [set(part.tolist()) for part in validated(str(data), 4)]
    assert sum(map(len, found)) == len(set.union(*found))


def test_folds_by_time_are_predicted_from_older_items(tmp_path: Path) -> None:
    data = table(tmp_path, time="day")
    names = [column.name for column in artifact.describe(data).inputs["table"].columns]
    at, before = names.index("age"), -np.inf
    for uri in each_fold(data, 4, 1)[:-1]:
        ages = {
            part: artifact.load(uri, part).inputs["table"][:, at]
            for part in ("train", "validation")
        }
        assert before <= ages["train"].max() < ages["validation"].min()
        before = ages["validation"].max()
    assert before == artifact.load(data, "validation").inputs["table"][:, at].max()


def test_folds_by_time_leave_the_gap(tmp_path: Path) -> None:
    data = table(tmp_path, time="day", gap=7.0)
    names = [column.name for column in artifact.describe(data).inputs["table"].columns]
    at = names.index("age")  # a seventh of the day
    for uri in each_fold(data, 4, 1)[:-1]:
        train, block = (
            artifact.load(uri, part).inputs["table"][:, at] for part in ("train", "validation")
        )
        step = np.diff(np.unique(block)).min()  # a day, as the preparation scales it
        assert block.min() - train.max() >= 7 * step * 0.999


def test_too_many_folds_by_time_say_the_most(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        artifact.check_folds(table(tmp_path, time="day"), 60)
    assert refused.value.hint == "at most 53 folds"


def test_another_seed_divides_anew(tmp_path: Path) -> None:
    data = table(tmp_path)
    first, other = (
        artifact.load(each_fold(data, 5, seed)[0], "validation").inputs["table"] for seed in (1, 2)
    )
    again = artifact.load(each_fold(data, 5, 1)[0], "validation").inputs["table"]
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize(
    ("rows", "options", "folds", "said"),
    [
        (60, {}, 12, "folds=12 are more than the 9 items of class maybe"),
        (60, {"group": "who"}, 30, "folds=30 are more than the"),
        (60, {"time": "day"}, 60, "folds=60 of items in the order of time need 61 times"),
        (60, {}, 1, "folds >= 2 must hold"),
    ],
)
def test_folds_that_cannot_be_are_refused(
    tmp_path: Path, rows: int, options: dict[str, object], folds: int, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        artifact.check_folds(table(tmp_path, rows, **options), folds)
