"""What only several columns, all rows or overlapping rows give away is named, and nothing else."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.errors import InvalidInput
from podium.steps.prepare_data import DataSettings, prepare_data

DRAW = np.random.default_rng(2)
ROWS = 400
NOISE = pd.DataFrame(DRAW.normal(size=(ROWS, 5)), columns=list("abcde"))
LABELS = DRAW.integers(2, size=ROWS)
CITIES = DRAW.integers(150, size=ROWS)
SERIES = np.lib.stride_tricks.sliding_window_view(np.cumsum(DRAW.normal(size=ROWS + 9)), 10)

WALK = np.cumsum(DRAW.normal(size=ROWS + 40))
PATIENT = np.repeat(np.arange(ROWS // 8), 8)
TRAITS = DRAW.normal(size=(len(PATIENT), 6))


def rolling(count: int, what: str) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(WALK[:-20], count)[-ROWS:]
    return getattr(np, what)(windows, axis=1) - windows[:, 0]


FOLLOWING = pd.DataFrame(
    {f"{what}{count}": rolling(count, what) for what in ("mean", "max", "std") for count in (9, 20)}
)


def of_city(target: np.ndarray) -> pd.Series:
    return pd.Series(target).groupby(CITIES).transform("mean")


TABLES = {
    "shares": (NOISE.assign(x=of_city(LABELS).round(4), y=LABELS), "column x is the mean of y"),
    "means": (NOISE.assign(x=of_city(NOISE.e), y=NOISE.e).drop(columns="e"), "column x is the mean of y"),
    "sum": (NOISE.assign(y=(NOISE.a - 2 * NOISE.b).round(2)), "y is a sum or difference of a, b:"),
    "product": (NOISE.assign(p=3 + NOISE.a.abs(), q=CITIES + 1)
                .assign(y=lambda table: (table.p * table.q).round(2)), "y is a product or ratio of p, q:"),
    "windows": (pd.DataFrame(SERIES).add_prefix("lag").assign(y=LABELS), "40 of 40 test rows overlap"),
    "features of a series": (FOLLOWING.assign(y=WALK[40:] - WALK[20:-20]), "40 test rows are nearest to a training row"),
    "visits of patients": (pd.DataFrame(TRAITS[PATIENT] + 0.3 * DRAW.normal(size=(ROWS, 6))).add_prefix("x")
                           .assign(y=DRAW.choice(["ill", "well"], len(TRAITS))[PATIENT]), "40 test rows are nearest to"),
}  # fmt: skip


def warned(caplog: pytest.LogCaptureFixture, place: Path, table: pd.DataFrame, target: str) -> str:
    table.to_csv(place / "a.csv", index=False)
    caplog.set_level(logging.WARNING, "podium.data")
    prepare_data(DataSettings(dataset=f"table:{place / 'a.csv'}", target=target), place / "data")
    return caplog.text


@pytest.mark.parametrize("name", TABLES)
def test_a_target_hidden_in_the_rows_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, sentence = TABLES[name]
    assert sentence in warned(caplog, tmp_path, table, "y")


@pytest.mark.parametrize("name", ["features of a series", "visits of patients"])
def test_rows_divided_as_the_hint_says_are_apart(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TABLES[name][0].assign(at=np.arange(ROWS), who=PATIENT).to_csv(tmp_path / "a.csv")
    options = {"time": "at"} if "series" in name else {"group": "who"}
    dataset = f"table:{tmp_path / 'a.csv'}"
    prepare_data(DataSettings(dataset=dataset, target="y", data_options=options), tmp_path / "data")
    assert "nearest to" not in caplog.text


def test_two_things_in_either_order_are_no_windows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_team = DRAW.normal(size=(30, 4))
    home, away = DRAW.integers(30, size=(2, ROWS))
    games = pd.DataFrame(np.hstack([of_team[home], of_team[away]])).add_prefix("x").assign(y=LABELS)
    assert "overlap" not in warned(caplog, tmp_path, games, "y")


@pytest.mark.parametrize("is_video", [True, False])
def test_frames_of_videos_in_two_parts_are_named(
    is_video: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = np.random.default_rng(5)
    for clip in range(20):
        (tmp_path / "frames" / "ab"[clip % 2]).mkdir(parents=True, exist_ok=True)
        scene, drift = draw.integers(0, 200, (2, 8, 8)) / [[[1]], [[8]]]
        for at in range(15):
            scene = scene + drift if is_video else draw.integers(0, 200, (8, 8))
            pixels = (scene + draw.normal(size=(8, 8))) % 256
            file = tmp_path / "frames" / "ab"[clip % 2] / f"frame{clip * 15 + at:04}.png"
            Image.fromarray(pixels.astype(np.uint8)).resize((32, 32)).save(file)
    prepare_data(DataSettings(dataset=f"images:{tmp_path / 'frames'}"), tmp_path / "data")
    assert ("test pictures are nearest to a training picture" in caplog.text) == is_video


def test_infinity_in_an_array_is_refused_in_words(tmp_path: Path) -> None:
    inputs = NOISE.to_numpy().copy()
    inputs[3, 2] = np.inf
    np.savez(tmp_path / "a.npz", x=inputs, y=NOISE.a.to_numpy())
    with pytest.raises(InvalidInput, match="x holds inf in item 4"):
        prepare_data(DataSettings(dataset=f"npz:{tmp_path / 'a.npz'}"), tmp_path / "data")


def test_an_empty_validation_part_is_refused_in_words(tmp_path: Path) -> None:
    for part, count in {"train": 300, "validation": 0, "test": 100}.items():
        np.save(tmp_path / f"x_{part}.npy", DRAW.normal(size=(count, 8)))
        np.save(tmp_path / f"y_{part}.npy", LABELS[:count])
    with pytest.raises(InvalidInput, match="validation has no items"):
        prepare_data(DataSettings(dataset=f"npz:{tmp_path}"), tmp_path / "data")


def test_windows_of_an_array_that_overlap_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = np.stack([SERIES, SERIES**2], axis=2)
    np.savez(tmp_path / "a.npz", x=pairs, y=LABELS)
    prepare_data(DataSettings(dataset=f"npz:{tmp_path / 'a.npz'}"), tmp_path / "data")
    assert "40 of 40 test rows overlap training rows" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "iris",
        "wine",
        "breast_cancer",
        "diabetes",
        "digits",
        "training means",
        "lattice",
        "sorted",
        "sizes",
        "shares",
    ],
)
def test_honest_tables_are_not_suspected(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from sklearn import datasets

    if name == "lattice":
        table = NOISE.round(1).assign(f=NOISE.a.round(1) + 0.1, y=LABELS)
    elif name == "sizes":  # as of clothes, by which the file is sorted
        size = np.sort(DRAW.random(ROWS))
        noise = DRAW.normal(size=(ROWS, 4)) / 100
        table = pd.DataFrame(np.outer(size, [1, 2, 3, -1]) + noise).add_prefix("c").assign(y=size)
    elif name == "shares":  # of one digit: equal blocks of four are chance
        shares = DRAW.random((ROWS, 8)).round(1)
        table = pd.DataFrame(shares).add_prefix("c").assign(y=LABELS)
    elif name == "training means":  # of half of the rows, as an honest fold has them
        half = np.arange(ROWS) % 2 == 0
        means = pd.Series(LABELS[half]).groupby(CITIES[half]).mean()
        table = NOISE.assign(x=pd.Series(CITIES).map(means).fillna(LABELS.mean()), y=LABELS)
    else:
        load = datasets.load_digits if name == "sorted" else getattr(datasets, f"load_{name}")
        rows, target = load(return_X_y=True)
        order = np.argsort(target, kind="stable") if name == "sorted" else np.arange(len(rows))
        rows, target = rows[order], target[order]
        table = (
            pd.DataFrame(rows)
            .add_prefix("c")
            .assign(y=target / 7 if name == "diabetes" else target)
        )
    said = warned(caplog, tmp_path, table, "y")
    words = ("mean of y", "y is a", "overlap", "nearest to")
    assert not [word for word in words if word in said], said
