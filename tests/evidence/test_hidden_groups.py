"""Items that belong together though nobody said so are told by their names, and the hint keeps them
together."""

import logging
import shlex
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.data.hidden_groups import find_beginning, share_targets
from podium.steps.prepare_data import DataSettings, prepare_data

Prepare = Callable[..., str]

PATIENTS = np.repeat(np.arange(60), 5)
SICK = PATIENTS % 2


@pytest.fixture
def prepare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Prepare:
    """Prepare data; return how they were divided, and what was said."""

    def run(dataset: str, **options: object) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "podium.data"):
            settings = DataSettings(
                dataset=dataset,
                target="" if dataset.startswith("images") else "sick",
                data_options=options,
            )
            info = prepare_data(settings, tmp_path / "data")
        return f"{info.split}\n{caplog.text}"

    return run


def table(sick: np.ndarray) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"P{patient:03}_scan{at}" for at, patient in enumerate(PATIENTS)],
            "patient": PATIENTS,
            "size": draw.normal(size=len(PATIENTS)).round(4),
            "sick": np.where(sick, "yes", "no"),
        }
    )


@pytest.mark.parametrize("is_dropped", [False, True])
def test_ids_that_begin_alike_name_a_group(
    prepare: Prepare, tmp_path: Path, is_dropped: bool
) -> None:
    rows = table(SICK).drop(columns="patient")
    rows.to_csv(tmp_path / "a.csv", index=False)
    options = {"drop": ["id"]} if is_dropped else {}
    said = prepare(f"table:{tmp_path / 'a.csv'}", **options)
    assert "rows whose id begins alike, such as P000, mostly have the same sick" in said
    rows["group"] = rows["id"].str.partition("_")[0]
    rows.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", group="group", **options)
    assert said.startswith("by group")
    assert "begins alike" not in said


def test_a_column_left_out_may_name_the_group(prepare: Prepare, tmp_path: Path) -> None:
    table(SICK).to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", drop=["id", "patient"])
    assert "rows with the same patient mostly have the same sick" in said
    assert "keep them in one part: group=patient" in said
    assert "rows with the same" not in prepare(
        f"table:{tmp_path / 'a.csv'}", drop=["id"], group="patient"
    )


def test_a_column_that_tells_the_answer_may_be_a_group(prepare: Prepare, tmp_path: Path) -> None:
    rows = table(SICK).drop(columns="id")
    ward = PATIENTS // 3
    rows["patient"], rows["sick"] = [f"P{each}" for each in ward], np.where(ward % 2, "yes", "no")
    rows.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert "column patient looks like the answer" in said
    assert "as a patient does: group=patient" in said


@pytest.mark.parametrize("prefix", ["", "P"])
def test_a_name_that_is_learned_from_may_be_a_group(
    prefix: str, prepare: Prepare, tmp_path: Path
) -> None:
    draw = np.random.default_rng(3)
    numbers = draw.permutation(900)[:60]
    rows = table(np.where(draw.random(len(PATIENTS)) < 0.1, 1 - SICK, SICK)).drop(columns="id")
    rows["age"] = (
        20 + 3 * SICK * draw.integers(9, 12, 60)[PATIENTS] + draw.integers(0, 20, 60)[PATIENTS]
    )
    rows["patient"] = [f"{prefix}{number}" for number in numbers[PATIENTS]]
    rows.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert "rows with the same patient mostly have the same sick" in said
    assert "rows with the same age" not in said
    assert "rows with the same" not in prepare(f"table:{tmp_path / 'a.csv'}", group="patient")


def test_names_of_unrelated_rows_are_no_groups(prepare: Prepare, tmp_path: Path) -> None:
    table(np.random.default_rng(1).integers(0, 2, len(PATIENTS))).to_csv(
        tmp_path / "a.csv", index=False
    )
    said = prepare(f"table:{tmp_path / 'a.csv'}", drop=["patient"])
    assert "begins alike" not in said
    assert "rows with the same" not in said


def test_the_hint_keeps_pictures_of_a_patient_together(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    for at, patient in enumerate(PATIENTS):
        folder = tmp_path / "scans" / ("sick" if SICK[at] else "well")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 255, (8, 8), np.uint8).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"patient{patient}_left-{at}.png")
    said = prepare(f"images:{tmp_path / 'scans'}")
    assert "pictures whose names begin alike, such as patient" in said
    hint = shlex.split(said.partition("keep them together: ")[2].splitlines()[0])[0]
    said = prepare(f"images:{tmp_path / 'scans'}", group=hint.partition("=")[2])
    assert "begin alike" not in said
    assert said.startswith("by ")


@pytest.mark.parametrize(
    ("names", "target"),
    [
        ([f"{'cat' if at % 2 else 'dog'}_{at}" for at in range(300)], np.arange(300) % 2),
        ([f"IMG_{at:04}" for at in range(300)], np.arange(300) % 2),
        ([f"{at % 10}_left_{at}" for at in range(300)], np.arange(300) % 10),
        ([f"s{at // 100}-{at}" for at in range(300)], np.arange(300) // 100),
    ],
)
def test_names_that_count_or_tell_the_class_name_no_group(
    names: list[str], target: np.ndarray
) -> None:
    assert find_beginning(names, target) is None


def test_numbers_of_one_group_lie_close(prepare: Prepare) -> None:
    ages = np.random.default_rng(3).normal(50, 15, 60)[PATIENTS]
    assert share_targets(PATIENTS, ages)
    assert not share_targets(PATIENTS, np.random.default_rng(4).permutation(ages))


def test_one_long_text_costs_memory_once(tmp_path: Path) -> None:
    names = [f"row_{at}" for at in range(20_000)]
    names[0] = "x" * 100_000
    tracemalloc.start()
    assert find_beginning(names, np.arange(20_000) % 2) is None
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize("rows", [100, 600])
def test_a_rare_class_makes_no_groups_by_chance(rows: int) -> None:
    draw, found = np.random.default_rng(rows), 0
    shares = 1 / np.arange(1, 201)
    for _ in range(50):
        target = draw.permutation(np.arange(rows) < max(2, rows // 200)).astype(int)
        streets = draw.choice(200, rows, p=shares / shares.sum())
        pairs = draw.integers(0, rows // 2, rows)
        found += share_targets(streets, target) + share_targets(pairs, target)
    assert found <= 2


def test_patients_of_a_rare_class_are_still_a_group() -> None:
    draw = np.random.default_rng(0)
    patients = np.repeat(np.arange(300), 5)
    assert share_targets(patients, (patients < 4).astype(int))
    sizes = draw.integers(1, 9, 300)
    of_sizes = np.repeat(np.arange(300), sizes)
    assert share_targets(of_sizes, (of_sizes < 9).astype(int))


def test_no_items_are_of_no_group() -> None:
    assert find_beginning([], np.array([], np.int64)) is None
