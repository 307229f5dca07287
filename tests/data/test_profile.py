"""The bins of a training part, and what is counted in them."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from datasets import synthetic_part, write_pictures

from podium.data import artifact
from podium.data.profile import Bins, Profile, Watch, _measured
from podium.files.documents import parse

DRAWN = np.random.default_rng(7)


def test_a_number_has_ten_bins_of_equal_size() -> None:
    values = DRAWN.normal(20, 3, 5000)
    bins = Bins.of_numbers("age", values)
    assert bins.counts[0] == sum(bins.counts[-2:]) == 0
    assert all(abs(count - 500) <= 1 for count in bins.counts[1:-2])
    assert bins.labels[1] == f"from {values.min():.4g}"


def test_what_training_did_not_have_falls_outside() -> None:
    bins = Bins.of_numbers("age", np.linspace(10, 90, 500))
    counted = dict(
        zip(
            bins.labels,
            bins.count(np.array([9.9, 10, 90, 90.1, np.nan, np.inf, -np.inf])),
            strict=True,
        )
    )
    assert {name: count for name, count in counted.items() if count} == {
        "below 10": 2, "from 10": 1, "from 81.98": 1, "above 90": 2, "(missing)": 1,
    }  # fmt: skip


def test_a_value_that_fills_bins_has_one_of_its_own() -> None:
    values = np.concatenate([np.zeros(900), DRAWN.uniform(5, 9, 100)])
    bins = Bins.of_numbers("visits", values)
    assert bins.counts[1:3] == (900, 100)
    assert Bins.of_numbers("flag", np.array([0.0, 1, 1])).counts == (0, 1, 2, 0, 0)
    assert Bins.of_numbers("same", np.full(9, 3.5)).counts == (0, 9, 0, 0)


def test_labels_differ_where_numbers_hardly_do() -> None:
    bins = Bins.of_numbers("time", 1.7e9 + np.arange(1000.0))
    assert len(set(bins.labels)) == len(bins.labels)


def test_rare_categories_share_a_bin() -> None:
    names = [*(f"c{at}" for at in range(200)), "(missing)", "(unknown)"]
    bins = Bins.of_categories("city", names, np.concatenate([np.arange(200.0), np.arange(5.0, 45)]))
    assert len(bins.labels) == 50 + 2 + 1
    assert dict(zip(bins.labels, bins.counts, strict=True))["(other)"] == 240 - 2 * 40 - 10
    seen = bins.count(np.array([5.0, 199, 200, 201, 999, -1, np.nan]))
    assert dict(zip(bins.labels, seen, strict=True)) | {
        "c5": 1,
        "(missing)": 1,
        "(unknown)": 1,
        "(other)": 4,
    } == dict(zip(bins.labels, seen, strict=True))


def test_pictures_and_tokens_are_measured_as_wholes() -> None:
    pictures = np.stack(
        [
            np.zeros((4, 4), np.uint8),
            np.full((4, 4), 255, np.uint8),
            np.eye(4, dtype=np.uint8) * 255,
        ]
    )
    assert _measured("image", pictures).tolist() == [
        [0, 0],
        [1, 0],
        [0.25, pytest.approx(3**0.5 / 4)],
    ]
    assert _measured("tokens", np.array([[5, 1, 0], [2, 0, 0]])).tolist() == [[2], [1]]


def test_a_dataset_has_the_profile_of_its_training_part(tmp_path: Path) -> None:
    parts = {
        "train": synthetic_part(1, 300),
        "validation": synthetic_part(2, 20),
        "test": synthetic_part(3, 20),
    }
    write_pictures(tmp_path / "data", parts)
    profile = artifact.describe(tmp_path / "data").profile
    brightness, contrast = profile.inputs["images"].bins
    assert (brightness.name, contrast.name) == ("images brightness", "images contrast")
    assert sum(brightness.counts) == 300
    assert brightness.counts == tuple(
        brightness.count(parts["train"].inputs["images"].reshape(300, -1).mean(1) / 255).tolist()
    )


def table(count: int, mean: float = 0.0) -> np.ndarray:
    return np.stack([DRAWN.normal(mean, 1, count), DRAWN.integers(0, 2, count)], 1).astype(
        np.float32
    )


def test_a_watch_counts_every_item_once() -> None:
    from podium.data.schema import Column

    columns = (
        Column(name="x", kind="number"),
        Column(name="color", kind="category", categories=("red", "green")),
    )
    whole = table(1000)
    profile = Profile.of([("table", "table", columns, [whole])]).with_predictions(
        whole[:, 0] * 2, ()
    )
    assert parse(Profile, json.loads(json.dumps(asdict(profile))), "profile.json") == profile
    watch = Watch(profile)
    for row in whole:
        watch.note({"table": row[None]}, row[None, :1] * 2)
    counts = watch.counts()
    assert watch.items == 1000
    assert {key: tuple(count.tolist()) for key, count in counts.items()} == {
        key: bins.counts for key, bins in profile.bins().items()
    }
    watch.note({"other": whole}, whole[:, 0])
    assert [watch.counts()[key].sum() for key in counts] == [1000, 1000, 2000], (
        "the model may leave an input unused"
    )
    watch.note({"table": whole[:, :1]}, whole[:, 0])
    watch.counts()
    assert (watch.items, watch.failures) == (2000, 1)


def test_a_sample_counts_its_share_of_the_calls() -> None:
    profile = Profile.of([("x", "array", (), [np.arange(9.0)])]).with_predictions(
        np.arange(9.0), ()
    )
    watch = Watch(profile, 0.25)
    for _ in range(4000):
        watch.note({"x": np.zeros((1, 1))}, np.zeros(1))
    watch.counts()
    assert 800 < watch.items < 1200


def test_columns_of_one_name_in_two_tables_are_told_apart() -> None:
    from podium.data.schema import Column

    age = (Column(name="age", kind="number"),)
    low, high = np.zeros((9, 1)), np.ones((9, 1))
    profile = Profile.of([("his", "table", age, [low]), ("hers", "table", age, [high])])
    counts = profile.count({"his": low, "hers": high[:4]}, np.zeros(9))
    assert {name: int(count.sum()) for (_, name), count in counts.items()} == {
        "age": 9,
        "hers.age": 4,
    }
