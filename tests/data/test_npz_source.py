import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.data import artifact
from podium.data.options import DataOptions
from podium.data.sources import npz
from podium.errors import Damaged, InvalidInput, NotFound
from podium.steps.prepare_data import DataSettings, prepare_data

RNG = np.random.default_rng(0)


def arrays(count: int = 60, **more: Any) -> dict[str, np.ndarray]:
    return {"x": RNG.random((count, 4), np.float32), "y": np.arange(count) % 3, **more}


def prepare(tmp_path: Path, target: str = "", **options: Any) -> artifact.DatasetInfo:
    settings = DataSettings(dataset=f"npz:{tmp_path}/made.npz", target=target, data_options=options)
    return prepare_data(settings, tmp_path / "d")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_become_inputs_and_target(tmp_path: Path, save: Any) -> None:
    given = arrays(words=RNG.integers(0, 9, (60, 7)))
    save(tmp_path / "made.npz", **given)
    info = prepare(tmp_path)
    assert (info.name, info.kind, info.classes, info.split) == (
        "made",
        "classification",
        ("0", "1", "2"),
        "stratified",
    )
    assert {name: (described.dtype, described.shape) for name, described in info.inputs.items()} == {
        "x": ("float32", (4,)), "words": ("int64", (7,)),
    }  # fmt: skip
    parts = [artifact.load(tmp_path / "d", part) for part in artifact.PARTS]
    found = np.concatenate([part.inputs["x"] for part in parts])
    assert sorted(map(tuple, found)) == sorted(map(tuple, given["x"]))


def test_a_folder_of_arrays_is_mapped_and_not_copied(tmp_path: Path) -> None:
    for name, array in arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    raw = npz.NPZ.read(str(tmp_path), DataOptions(), tmp_path / "scratch")
    assert isinstance(raw.items.inputs["x"].base, np.memmap)
    assert not (tmp_path / "scratch").exists()


def test_arrays_called_train_and_test_are_the_parts(tmp_path: Path) -> None:
    pictures = RNG.integers(0, 256, (60, 5, 6, 3), np.uint8)
    np.savez(tmp_path / "made.npz", x_train=pictures[:50], y_train=np.arange(50) % 4, x_test=pictures[50:],
             y_test=np.arange(10) % 3)  # fmt: skip
    info = prepare(tmp_path)
    assert {part: part_info.count for part, part_info in info.parts.items()} == {
        "train": 45,
        "validation": 5,
        "test": 10,
    }
    assert (info.inputs["x"].meaning, info.inputs["x"].shape, len(info.inputs["x"].mean)) == (
        "image",
        (5, 6, 3),
        3,
    )
    np.testing.assert_array_equal(artifact.load(tmp_path / "d", "test").inputs["x"], pictures[50:])


def test_classes_may_have_names_of_their_own(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "made.npz", **arrays(classes=np.array(["low", "middle", "high", "never seen"]))
    )
    assert prepare(tmp_path).classes == ("low", "middle", "high", "never seen")
    np.savez(tmp_path / "made.npz", **{**arrays(), "y": np.array(["b", "a", "c"] * 20)})
    info = prepare(tmp_path)
    assert info.classes == ("a", "b", "c")
    assert info.parts["test"].class_counts == (2, 2, 2)


def test_classes_of_bytes_are_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", **arrays(y=np.array(["Köln".encode(), b"Bonn"] * 30)))
    assert prepare(tmp_path).classes == ("Bonn", "Köln")


@pytest.mark.parametrize("kind", [np.uint64, np.float32])
def test_parts_may_write_their_targets_otherwise(kind: Any, tmp_path: Path) -> None:
    x, y = RNG.random((60, 4)), np.arange(60) % 3
    np.savez(
        tmp_path / "made.npz",
        x_train=x[:50],
        y_train=y[:50],
        x_test=x[50:],
        y_test=y[50:].astype(kind),
    )
    assert prepare(tmp_path).classes == ("0", "1", "2")
    np.savez(
        tmp_path / "made.npz",
        x_train=x[:50],
        y_train=y[:50] / 7,
        x_test=x[50:],
        y_test=y[50:].astype(kind),
    )
    prepare(tmp_path, kind="regression")
    assert artifact.load(tmp_path / "d", "test").target.tolist() == y[50:].tolist()


def test_more_classes_than_a_byte_counts_are_told_apart(tmp_path: Path) -> None:
    names = np.array([f"{number:03}" for number in range(257)])
    np.savez(tmp_path / "made.npz", x=RNG.random((257 * 4, 2), np.float32), y=np.tile(names, 4))
    prepare(tmp_path)
    assert artifact.load(tmp_path / "d", "train").target.max() == 256


def test_floats_are_numbers_to_predict(tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", **{**arrays(), "y": RNG.random((60, 2))})
    info = prepare(tmp_path)
    assert (info.kind, info.classes, info.target.shape, info.split) == (
        "regression",
        (),
        (2,),
        "random",
    )
    assert info.target.mean == pytest.approx(
        tuple(artifact.load(tmp_path / "d", "train").target.mean(0))
    )
    np.savez(tmp_path / "made.npz", **arrays())
    assert prepare(tmp_path, kind="regression").target.dtype == "float64"
    np.savez(tmp_path / "made.npz", **{**arrays(), "y": RNG.integers(2, size=(60, 2)) * 1.0})
    assert prepare(tmp_path).kind == "regression"  # two outputs, rather than one-hot rows


def test_targets_are_judged_as_those_of_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = {"x": RNG.random((60, 2)), "y": np.tile([0.0, 1.0], 30), "order": np.arange(60)}
    np.savez(tmp_path / "made.npz", **some, labels=np.sort(some["y"]))
    info = prepare(tmp_path, target="labels")
    assert (info.kind, info.classes) == ("classification", ("0", "1"))
    assert "the target labels has the values 0, 1 alone, so these are classes" in caplog.text
    assert "array order looks like the answer, since it predicts labels alone" in caplog.text
    np.savez(tmp_path / "made.npz", x=np.eye(60, 2) + some["x"], y=some["y"], label=some["y"])
    prepare(tmp_path)
    assert "array y looks like the answer, since it predicts label alone" in caplog.text
    np.savez(tmp_path / "made.npz", x=some["x"], y=np.where(np.arange(60) % 3, "cat", "Cat"))
    prepare(tmp_path)
    assert "two classes of y may be one under two names" in caplog.text


def test_groups_stay_together_and_are_no_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", **arrays(patient=np.arange(60) // 6))
    info = prepare(tmp_path, group="patient")
    assert (list(info.inputs), info.split) == (["x"], "by patient")


def test_items_in_two_given_parts_are_refused_unless_allowed(tmp_path: Path) -> None:
    doubled = arrays()
    doubled = {
        f"{name}_{part}": array for name, array in doubled.items() for part in ("train", "test")
    }
    np.savez(tmp_path / "made.npz", **doubled)
    with pytest.raises(
        InvalidInput, match="items are among the train items too, for example items"
    ) as error:
        prepare(tmp_path)
    assert str(error.value).endswith("or accept them: allow_duplicates=true")
    assert [path.name for path in tmp_path.iterdir()] == ["made.npz"]
    prepare(tmp_path, allow_duplicates=True)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"group": "patiant"}, "has no array 'patiant'"),
        ({"y": np.arange(59) % 3}, {}, "x has 60 items, but there are 59 targets"),
        ({"x": np.array([["a"]] * 60)}, {}, "x holds <U1, but inputs and targets are numbers"),
        (
            {"y": np.array(["a", "b"] * 30, object)},
            {},
            r"the array y holds Python objects\nhint: save texts or numbers: y\.astype\(str\), or ",
        ),
        (
            {"x": np.full((60, 2), np.nan)},
            {"allow_duplicates": True},
            "x holds nan in item 1, column 1",
        ),
        (
            {"x": np.where(np.eye(60, 2), np.nan, np.arange(120).reshape(60, 2) / 7)},
            {},
            "x holds nan in item 1, column",
        ),
        ({"x": np.full((60, 2), 1e300)}, {"allow_duplicates": True}, r"x holds 1e\+300 in item 1"),
        ({"y": RNG.random(60) * 1e300}, {}, r"target holds .*e\+\d+ in item"),
        (
            {"x": RNG.random((60, 2)).astype(np.longdouble)},
            {},
            "x holds float128, .* 64 bits or less",
        ),
        (
            {"x": np.full((60, 2), np.inf, np.float16)},
            {"allow_duplicates": True},
            "x holds inf in item 1",
        ),
        ({"y": np.full(60, 5)}, {}, "2 <= number of classes"),
        ({"y": np.eye(2)[np.arange(60) % 2]}, {}, r"must be \[n\], but in train it is \[60, 2\]"),
        ({"y": np.arange(60)}, {}, "the target y has 60 different whole numbers in 60 items"),
        ({"y": np.array([f"P{at}" for at in range(60)])}, {}, "60 different values in 60 items"),
        ({"y": np.arange(60).astype("datetime64[D]")}, {}, "the target y holds dates"),
        ({"y": np.array(["a"] * 60)}, {"kind": "regression"}, "must be numbers, but is <U1"),
        ({"classes": np.array(["a", "b"])}, {}, "indices into the 2 classes, but they are 0 to 2"),
        ({"sets/x": np.zeros((60, 2))}, {}, "an array cannot be called 'sets/x'"),
        ({"x_train": np.zeros((60, 2))}, {}, "divided arrays beside others: x, x_train, y"),
        ({}, {"resize": [3, 4]}, "npz has no option resize"),
    ],
)
def test_arrays_that_fit_nothing_are_refused(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "made.npz", **{**arrays(), **change})
    with pytest.raises(InvalidInput, match=message):
        prepare(tmp_path, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["made.npz"]


@pytest.mark.parametrize("packing", ["encrypted", "lzma", "bzip2"])
def test_no_packing_fails_without_the_files_name(tmp_path: Path, packing: str) -> None:
    kinds = {"encrypted": zipfile.ZIP_STORED, "lzma": zipfile.ZIP_LZMA, "bzip2": zipfile.ZIP_BZIP2}
    with zipfile.ZipFile(tmp_path / "made.npz", "w", kinds[packing]) as archive:
        archive.writestr("x.npy", bytes(9000))
    data = bytearray((tmp_path / "made.npz").read_bytes())
    if packing == "encrypted":
        data[6] |= 1  # what says so, in the entry and in the directory
        data[data.index(b"PK\x01\x02") + 8] |= 1
    else:
        data[50:60] = bytes(10)
    (tmp_path / "made.npz").write_bytes(data)
    with pytest.raises(Damaged, match=r"made\.npz is not an \.npz file, or damaged"):
        prepare(tmp_path)


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"made\.npz"):
        prepare(tmp_path)
    np.savez(tmp_path / "made.npz", **arrays())
    data = bytearray((tmp_path / "made.npz").read_bytes())
    data[500] ^= 1
    (tmp_path / "made.npz").write_bytes(data)
    with pytest.raises(Damaged, match=r"made\.npz is not an \.npz file, or damaged"):
        prepare(tmp_path)
    with pytest.raises(NotFound, match=r"there is no \.npy in"):
        npz.NPZ.read(str(tmp_path), DataOptions(), tmp_path)


def test_texts_are_times_if_they_are_dates(tmp_path: Path) -> None:
    days = [f"2026-{at % 12 + 1:02}-{at // 12 + 1:02}" for at in range(60)]
    np.savez(tmp_path / "made.npz", **arrays(t=np.array(days)))
    assert prepare(tmp_path, time="t").split == "by t"
    np.savez(tmp_path / "made.npz", **arrays(t=np.array([f"{day[8:]}/01/2026" for day in days])))
    with pytest.raises(InvalidInput, match="time t holds texts that are no dates, such as '01/01"):
        prepare(tmp_path, time="t")


@pytest.mark.parametrize("form", ["20{:02}-01", "20{:02}", "20{:02}0131"])
def test_months_and_years_are_times(form: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", **arrays(t=np.array([form.format(at) for at in range(60)])))
    raw = npz.NPZ.read(str(tmp_path / "made.npz"), DataOptions.read("", {"time": "t"}), tmp_path)
    assert raw.times is not None
    assert raw.times.argsort(kind="stable").tolist() == [*range(60)]
    assert raw.times.dtype.kind in "Mi"


@pytest.mark.parametrize("form", ["{2}{1}{0}", "{2}.{1}.{0}", "{0}-{1}-{2}T00:00:00+02:00"])
def test_times_are_read_as_in_a_table(form: str, tmp_path: Path) -> None:
    days = [("2026", f"{at % 12 + 1:02}", f"{at // 12 + 17:02}") for at in range(60)]
    written = np.array([form.format(*day) for day in days])
    times = written.astype(int) if written[0].isdigit() else written
    np.savez(tmp_path / "made.npz", **arrays(t=times))
    raw = npz.NPZ.read(str(tmp_path / "made.npz"), DataOptions.read("", {"time": "t"}), tmp_path)
    assert raw.times is not None
    expected = sorted(range(60), key=lambda at: days[at])
    assert raw.times.argsort(kind="stable").tolist() == expected
    assert raw.times.dtype.kind == "M"
