"""Noise written in another form is the same noise: a model that knows it by heart is right half of the time."""

from pathlib import Path

import numpy as np
import pytest
from judging import Nights
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from podium.data import artifact
from podium.data.held_out import HeldOut
from podium.data.seen import unseen
from podium.models import open_registry
from podium.models.shared_items import predictions
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.whole

BY_HEART = KNeighborsClassifier(1)
CONSTANT = LogisticRegression(C=1e-9)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Nights:
    return Nights(tmp_path, monkeypatch)


def table(place: Path, digits: int, rows: int = 1000, columns: int = 4, **more: list[str]) -> str:
    """Write random numbers and labels, with so many digits."""
    draw = np.random.default_rng(4)
    numbers, labels = draw.normal(size=(rows, columns)), draw.integers(2, size=rows)
    names = [f"c{at}" for at in range(columns)]
    lines = [",".join([*(f"{value:.{digits}f}" for value in row), "ny"[label], *(of[at] for of in more.values())])
             for at, (row, label) in enumerate(zip(numbers, labels, strict=True))]  # fmt: skip
    path = place / f"digits-{digits}-{len(list(place.iterdir()))}.csv"
    path.write_text("\n".join([",".join([*names, "label", *more]), *lines]) + "\n")
    return f"table:{path}"


@pytest.mark.parametrize(
    ("before", "after", "columns"), [(5, 4, 4), (4, 3, 20), (3, 2, 4), (3, 2, 20)]
)
def test_fewer_digits_do_not_flatter_the_champion(
    nights: Nights, before: int, after: int, columns: int
) -> None:
    nights.prepare(table(nights.place, before, columns=columns), "label")
    assert 0.3 < nights.train(BY_HEART)["value"] < 0.7
    nights.prepare(table(nights.place, after, columns=columns), "label")
    decision = nights.train(CONSTANT)
    assert 0.3 < decision["champion_value"] < 0.7
    assert decision["items"] >= 60


def test_what_nearly_equals_a_seen_item_is_counted(nights: Nights) -> None:
    nights.prepare(table(nights.place, 5), "label", split_seed=1)
    nights.train(BY_HEART)
    nights.prepare(table(nights.place, 3), "label", split_seed=2)
    assert any(
        "since they nearly equal such an item" in reason
        for reason in nights.train(CONSTANT)["reasons"]
    )


def reordered(place: Path, name: str, more: str = "") -> str:
    """Write the rows of the first file in another order, under another name."""
    head, *lines = next(place.glob("digits-5-*.csv")).read_text().splitlines()
    np.random.default_rng(9).shuffle(lines)
    (place / name).write_text("\n".join([head, *lines, *filter(None, [more])]) + "\n")
    return f"table:{place}/{name}"


def test_the_count_of_challengers_goes_on_in_another_order(nights: Nights) -> None:
    said = []
    for dataset in (
        table(nights.place, 5),
        reordered(nights.place, "permuted.csv"),
        reordered(nights.place, "longer.csv", "9,9,9,9,y"),
        table(nights.place, 4),
    ):
        nights.prepare(dataset, "label")
        model = LogisticRegression(C=0.01 * len(said)) if said else BY_HEART
        said.append("; ".join(nights.train(model)["reasons"]))
    assert "on this test part" not in said[0]
    for number in (2, 3, 4):
        assert f"challenger {number} on this test part" in said[number - 1]


def test_no_figure_depends_on_the_order_of_rows(nights: Nights) -> None:
    dataset = table(nights.place, 5)
    for model in (BY_HEART, CONSTANT):
        nights.prepare(dataset, "label")
        nights.train(model)
    model = open_registry(nights.storage).model("real")
    first = predictions(list(model.versions), str(nights.data))
    again = predictions(
        list(model.versions), str(nights.prepare(reordered(nights.place, "permuted.csv"), "label"))
    )
    np.testing.assert_array_equal(first.target, again.target)
    for one, other in zip(first.predicted, again.predicted, strict=True):
        np.testing.assert_array_equal(one, other)


def pictures(place: Path, quality: int, size: int = 32) -> str:
    draw = np.random.default_rng(5)
    for at in range(400):
        folder = place / f"jpeg-{quality}" / "ab"[draw.integers(2)]
        folder.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8))
        small.resize((size, size), Image.Resampling.BICUBIC).save(folder / f"{at}.jpg", quality=95)
        if quality < 95:
            Image.open(folder / f"{at}.jpg").save(folder / f"{at}.jpg", quality=quality)
    return f"images:{place}/jpeg-{quality}"


def test_pictures_saved_again_do_not_flatter_the_champion(nights: Nights) -> None:
    nights.prepare(pictures(nights.place, 95), "")
    assert 0.2 < nights.train(BY_HEART)["value"] < 0.8
    nights.prepare(pictures(nights.place, 88), "")
    decision = nights.train(CONSTANT)
    assert 0.2 < decision["champion_value"] < 0.8
    assert decision["items"] >= 20


def test_numbers_of_patients_are_one_thing_however_written(nights: Nights) -> None:
    """Each patient has a label by chance, and numbers of his own that another visit moves a little."""
    draw = np.random.default_rng(6)
    labels, places = draw.integers(2, size=120), draw.normal(size=(120, 4))

    def visits(style: str) -> str:
        lines = [",".join([*(f"{value:.6f}" for value in places[at] + draw.normal(scale=0.05, size=4)),
                           style.format(at), "ny"[labels[at]]]) for at in range(120) for _ in range(5)]  # fmt: skip
        path = nights.place / f"visits-{len(list(nights.place.iterdir()))}.csv"
        path.write_text("\n".join(["a,b,c,d,patient,label", *lines]) + "\n")
        return f"table:{path}"

    nights.prepare(visits("{}"), "label", group="patient")
    nights.train(BY_HEART)
    nights.prepare(visits("{}.0"), "label", group="patient")
    assert nights.train(CONSTANT)["champion_value"] < 0.8


def test_sentences_that_differ_in_punctuation_are_one(nights: Nights) -> None:
    draw = np.random.default_rng(7)
    words = [f"w{at}" for at in range(500)]
    sentences = [" ".join(draw.choice(words, 6)) for _ in range(300)]
    labels = draw.integers(2, size=300)

    def write(*styles: str) -> str:
        path = nights.place / f"text-{len(list(nights.place.iterdir()))}.csv"
        lines = [f'"{style.format(text)}",{"ny"[label]}' for style in styles
                 for text, label in zip(sentences, labels, strict=True)]  # fmt: skip
        path.write_text("\n".join(["text,label", *lines]) + "\n")
        return f"text:{path}"

    nights.prepare(write("{}", "{}.", "{} !"), "label")
    assert nights.train(BY_HEART)["value"] < 0.75
    nights.prepare(write("- {}!"), "label")
    decision = nights.train(CONSTANT)
    assert decision["champion_value"] < 0.75
    assert decision["items"] >= 10


@pytest.mark.parametrize("name", ["iris", "digits", "binary"])
def test_items_that_are_really_different_all_count(tmp_path: Path, name: str) -> None:
    from sklearn import datasets

    draw = np.random.default_rng(8)
    if name == "binary":
        rows, labels = draw.integers(0, 2, (2000, 14)), draw.integers(2, size=2000)
    else:
        rows, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows, first = np.unique(rows, axis=0, return_index=True)
    lines = [
        ",".join([*(f"{value:g}" for value in row), f"k{label}"])
        for row, label in zip(rows, labels[first], strict=True)
    ]
    (tmp_path / "a.csv").write_text(
        "\n".join([",".join([*(f"c{at}" for at in range(rows.shape[1])), "y"]), *lines])
    )
    prepare_data(DataSettings(dataset=f"table:{tmp_path}/a.csv", target="y"), tmp_path / "data")
    held_out = HeldOut.open(tmp_path / "data")
    fresh, near = unseen(
        held_out.as_prepared(), held_out.groups, artifact.load_seen(tmp_path / "data")
    )
    assert (fresh.all(), near) == (True, 0)


@pytest.mark.parametrize("form", ["fewer digits", "3 % off", "pictures"])
def test_copies_of_every_item_do_not_count_as_new(tmp_path: Path, form: str) -> None:
    draw = np.random.default_rng(9)
    if form == "pictures":
        for folder in [pictures(tmp_path, quality, 64)[7:] for quality in (95, 20)]:
            for file in Path(folder).rglob("*.jpg"):
                name = f"{Path(folder).name}-{file.name}"
                (tmp_path / "both" / file.parent.name).mkdir(parents=True, exist_ok=True)
                file.rename(tmp_path / "both" / file.parent.name / name)
        settings = DataSettings(dataset=f"images:{tmp_path}/both")
    else:
        rows, labels = draw.normal(3, 1, size=(400, 16)), draw.integers(2, size=400)
        off = rows * draw.normal(1, 0.03, size=rows.shape)
        lines = [",".join([*(f"{value:.5g}" for value in row), "ny"[label]])
                 for form_of in (rows, rows.round(1) if form == "fewer digits" else off)
                 for row, label in zip(form_of, labels, strict=True)]  # fmt: skip
        header = ",".join([*(f"c{at}" for at in range(16)), "y"])
        (tmp_path / "a.csv").write_text("\n".join([header, *lines]))
        settings = DataSettings(dataset=f"table:{tmp_path}/a.csv", target="y")
    prepare_data(settings, tmp_path / "data")
    held_out = HeldOut.open(tmp_path / "data")
    parts = [artifact.load(tmp_path / "data", part) for part in ("train", "validation", "test")]
    fresh, _ = unseen(
        held_out.as_prepared(), held_out.groups, artifact.load_seen(tmp_path / "data")
    )
    train, validation, new = (
        next(iter(part.inputs.values())).reshape(len(part), -1).astype(float) for part in parts
    )
    known = np.concatenate([train, validation])
    nearest, second = NearestNeighbors(n_neighbors=2).fit(known).kneighbors(new)[0].T
    is_copy = nearest < second / 2
    assert is_copy.sum() >= 5
    assert (is_copy & fresh).sum() <= is_copy.sum() / 8
    assert not (~is_copy & ~fresh).any()
