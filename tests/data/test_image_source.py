"""Folders of pictures: sizes, colors, parts and classes; files that cannot be used are named."""

import io
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from podium.data import preprocessing
from podium.data.options import DataOptions
from podium.data.sources import images
from podium.data.sources.fetching import is_small
from podium.data.sources.source import Raw
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.storage import connect


def picture(seed: int, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Image.Image:
    """Draw noise, width x height."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


def fill(
    folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 3, **options: Any
) -> Path:
    for at, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture(10 * at + number, **options).save(folder / name / f"{number}.png")
    return folder


def read(folder: Path | str, tmp_path: Path, **options: Any) -> Raw:
    (tmp_path / "scratch").mkdir(parents=True, exist_ok=True)
    given = DataOptions.read("", options)
    images.IMAGES.check(given)
    return images.IMAGES.read(str(folder), given, tmp_path / "scratch")


def test_a_folder_for_each_class_is_a_dataset(tmp_path: Path) -> None:
    raw = read(fill(tmp_path / "pets"), tmp_path)
    assert (raw.name, raw.kind, raw.classes, raw.test) == (
        "pets",
        "classification",
        ("cat", "dog"),
        None,
    )
    assert raw.items.target.tolist() == [0, 0, 0, 1, 1, 1]
    array = raw.items.inputs["images"]
    assert (array.shape, array.dtype) == ((6, 10, 12, 3), np.uint8)
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array[4], np.asarray(picture(11)))
    assert raw.preprocessing == {
        "kind": "image",
        "input": "images",
        "recipe": "resize",
        "size": [10, 12],
        "channels": 3,
        "bits": 16,
    }


@pytest.mark.parametrize("mode", ["L", "1", "I;16"])
def test_gray_pictures_have_no_channel_axis(mode: str, tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    for file in (tmp_path / "pets").rglob("*.png"):
        Image.open(file).convert("L").convert(mode).save(file)
    assert read(tmp_path / "pets", tmp_path).items.inputs["images"].shape == (6, 10, 12)
    assert read(tmp_path / "pets", tmp_path, channels=3).items.inputs["images"].shape == (
        6,
        10,
        12,
        3,
    )


def test_one_picture_in_color_makes_all_colored(tmp_path: Path) -> None:
    fill(tmp_path / "pets", mode="L")
    picture(1).save(tmp_path / "pets/dog/9.png")
    assert read(tmp_path / "pets", tmp_path).preprocessing["channels"] == 3
    assert read(tmp_path / "pets", tmp_path, channels=1).items.inputs["images"].ndim == 3


def test_the_odd_size_is_named_and_resize_proposed(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    picture(1, (30, 20)).save(tmp_path / "pets/dog/odd.jpg")
    with pytest.raises(
        InvalidInput, match=r"dog/odd\.jpg has 30x20 pixels, but most pictures have 12x10 \(1 of 7"
    ):
        read(tmp_path / "pets", tmp_path)
    raw = read(tmp_path / "pets", tmp_path, resize=[8, 16])
    assert raw.items.inputs["images"].shape == (7, 8, 16, 3)


def test_folders_of_parts_are_taken_as_given(tmp_path: Path) -> None:
    for part, count in {"train": 4, "val": 2, "test": 3}.items():
        fill(tmp_path / "pets" / part, count=count)
    raw = read(tmp_path / "pets", tmp_path)
    assert raw.validation is not None
    assert raw.test is not None
    assert (len(raw.items), len(raw.validation), len(raw.test)) == (8, 4, 6)
    (tmp_path / "pets/test/cow").mkdir()
    picture(1).save(tmp_path / "pets/test/cow/1.png")
    with pytest.raises(InvalidInput, match="class 'cow' in test, but not in train"):
        read(tmp_path / "pets", tmp_path)
    fill(tmp_path / "pets/more")
    with pytest.raises(
        InvalidInput,
        match=r"pets/train looks like a part of the data, but .*pets/more is not another part",
    ):
        read(tmp_path / "pets", tmp_path)


def test_turned_photos_are_taken_as_they_are_seen(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    exif = Image.Exif()
    exif[0x0112] = 8
    upright = picture(5)
    upright.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "pets/dog/9.png", exif=exif)
    raw = read(tmp_path / "pets", tmp_path)
    np.testing.assert_array_equal(raw.items.inputs["images"][-1], np.asarray(upright))


def test_prediction_makes_the_bytes_of_preparation(tmp_path: Path) -> None:
    fill(tmp_path / "pets", size=(60, 50))
    picture(3, (3000, 2000)).save(tmp_path / "pets/dog/large.jpg")
    raw = read(tmp_path / "pets", tmp_path, resize=[20, 30])
    again = preprocessing.read(raw.preprocessing, "preprocessing.json")
    assert isinstance(again, preprocessing.ImagePreprocessing)
    files = sorted((tmp_path / "pets").rglob("*.*"))
    assert (
        again.apply(files).check().inputs["images"].tobytes()
        == raw.items.inputs["images"].tobytes()
    )


def test_pictures_are_fetched_from_a_storage(tmp_path: Path, bucket: str) -> None:
    storage = connect(bucket)
    for file in fill(tmp_path / "pets").rglob("*.png"):
        storage.put(f"pets/{file.relative_to(tmp_path / 'pets')}", file)
    remote, local = read(f"{bucket}/pets", tmp_path), read(tmp_path / "pets", tmp_path)
    np.testing.assert_array_equal(remote.items.inputs["images"], local.items.inputs["images"])
    with pytest.raises(NotFound, match="there is nothing under"):
        read(f"{bucket}/nowhere", tmp_path / "other")


def bomb() -> bytes:
    """Return a PNG that says it has 20,000 x 20,000 pixels."""
    chunks = [
        b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0),
        b"IDAT" + zlib.compress(b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def cut() -> bytes:
    stream = io.BytesIO()
    picture(1).save(stream, "png")
    return stream.getvalue()[:150]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello", "this is not a picture"),
        (cut(), "cannot be read"),
        (bomb(), "at most 50,000,000 pixels"),
        (b"", "not a"),
    ],
    ids=["text", "cut", "bomb", "empty"],
)
def test_files_that_cannot_be_decoded_are_named(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    fill(tmp_path / "pets")
    for name in ("cat/bad.png", "dog/bad.jpg"):
        (tmp_path / "pets" / name).write_bytes(content)
    with pytest.raises(
        InvalidInput, match=rf"(?s)cat/bad\.png: .*{reason}.*dog/bad\.jpg: .*{reason}"
    ):
        read(tmp_path / "pets", tmp_path)


def test_what_is_not_a_folder_of_classes_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "one", ("cat",))
    fill(tmp_path / "empty")
    (tmp_path / "empty/cow").mkdir()
    cases = {"one": "has 1 folders of pictures", "one/cat": "has 0 folders", "empty": "empty/cow has no picture",
             "nowhere": "there is no folder", "one/cat/0.png": "is a file, not a folder"}  # fmt: skip
    for name, message in cases.items():
        with pytest.raises(PodiumError, match=message):
            read(tmp_path / name, tmp_path)
    with pytest.raises(InvalidInput, match="images has no option drop"):
        read(tmp_path / "empty", tmp_path, drop=["a"])
    with pytest.raises(InvalidInput, match=r"not a size of pictures: \[0, 5\]"):
        read(fill(tmp_path / "two"), tmp_path, resize=[0, 5])


def test_a_list_of_classes_is_made_folders_by_the_hint(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        fill(tmp_path / "pets", (name,))
    shutil.move(fill(tmp_path / "all"), tmp_path / "deep" / "all")
    with pytest.raises(InvalidInput) as deep:
        read(tmp_path / "deep", tmp_path)
    assert deep.value.hint == f"name the folder of these: images:{tmp_path / 'deep' / 'all'}"
    flat, lines = tmp_path / "flat", ["file,class"]
    flat.mkdir()
    for path in sorted((tmp_path / "pets").glob("*/*.png")):
        shutil.copy(path, flat / f"{path.parent.name}{path.name}")
        lines.append(f"{path.parent.name}{path.name},{path.parent.name}")
    (flat / "NEW labels.csv").write_text("\r\n".join(lines) + "\r\n")
    with pytest.raises(InvalidInput, match="0 folders of pictures") as refused:
        read(flat, tmp_path)
    command = str(refused.value.hint).partition("are file and class: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert len(read(tmp_path / "flat-classes", tmp_path).items) == 6


def test_hidden_folders_and_other_files_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    (tmp_path / "pets/.cache").mkdir()
    (tmp_path / "pets/README.md").touch()
    (tmp_path / "pets/cat/notes.txt").touch()
    assert len(read(tmp_path / "pets", tmp_path).items) == 6


def scenes(folder: Path, shots: int = 3) -> Path:
    """Pictures of four scenes, two of each class, each in a folder of its own."""
    for at in range(4):
        inner = folder / "ab"[at % 2] / f"scene{at}"
        inner.mkdir(parents=True)
        for shot in range(shots):
            picture(10 * at + shot).save(inner / f"{shot}.png")
    return folder


def test_groups_of_pictures_follow_from_their_place_in_the_folder(tmp_path: Path) -> None:
    here, there = scenes(tmp_path / "2026" / "pets"), scenes(tmp_path / "elsewhere" / "animals")
    for group, names in {"folder": "scene", r"(\d+)/": ""}.items():
        found = [read(folder, tmp_path, group=group).groups for folder in (here, there)]
        assert found[0] is not None
        assert found[0].tolist() == [f"{names}{at}" for at in (0, 2, 1, 3) for _ in range(3)]
        np.testing.assert_array_equal(*found)


def test_a_folder_in_two_parts_is_one_group(tmp_path: Path) -> None:
    for part in ("train", "test"):
        scenes(tmp_path / "pets" / part)
    raw = read(tmp_path / "pets", tmp_path, group="folder")
    assert raw.groups is not None
    assert set(raw.groups) == set(raw.part_groups["test"])


def test_groups_that_are_classes_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    with pytest.raises(InvalidInput, match="no picture lies in a folder below that of its class"):
        read(tmp_path / "pets", tmp_path, group="folder")
    picture(99).save(scenes(tmp_path / "mixed") / "a" / "alone.png")
    raw = read(tmp_path / "mixed", tmp_path, group="folder")
    assert raw.groups is not None
    assert raw.groups.tolist().count("a/alone.png") == 1


@pytest.mark.parametrize("group", ["(", "scene", "(nothing)", "(s)(c)"])
def test_a_pattern_that_names_no_group_is_refused(group: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="group"):
        read(scenes(tmp_path / "pets"), tmp_path, group=group)


@pytest.mark.parametrize(
    "names",
    [("training", "testing"), ("Train", "Test", "VAL"), ("train", "valid"), ("train", "dev")],
)
def test_folders_that_look_like_parts_are_parts(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        fill(tmp_path / "pets" / name)
    raw = read(tmp_path / "pets", tmp_path)
    assert raw.classes == ("cat", "dog")
    assert (raw.test is not None, raw.validation is not None) == (
        len(names) > 1 and names[1].lower() in ("test", "testing"),
        names[-1].lower() in ("val", "valid", "dev"),
    )


@pytest.mark.parametrize(
    "names", [("cat", "dog", "test"), ("train", "test", "extra"), ("Train", "training")]
)
def test_a_mixture_of_parts_and_classes_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        fill(tmp_path / "pets" / name)
    with pytest.raises(
        InvalidInput, match=r"looks like a part of the data, but .*/pets/.* is not another part"
    ):
        read(tmp_path / "pets", tmp_path)


def test_parts_without_one_to_train_with_are_refused(tmp_path: Path) -> None:
    for name in ("test", "val"):
        fill(tmp_path / "pets" / name)
    with pytest.raises(InvalidInput, match="has the parts test, val, but none to train with"):
        read(tmp_path / "pets", tmp_path)


def test_hidden_folders_do_not_count(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    for hidden in (".ipynb_checkpoints", "cat/.ipynb_checkpoints", "__MACOSX", "dog/@eaDir"):
        (tmp_path / "pets" / hidden).mkdir()
        picture(1).save(tmp_path / "pets" / hidden / "copy.png")
    raw = read(tmp_path / "pets", tmp_path)
    assert (raw.classes, len(raw.items)) == (("cat", "dog"), 6)


def test_other_files_are_left_out_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "pets")
    for name in ("a.psd", "b.psd", "notes.txt"):
        (tmp_path / "pets/cat" / name).write_bytes(b"x")
    assert len(read(tmp_path / "pets", tmp_path).items) == 6
    assert "3 files left out" in caplog.text
    assert caplog.text.rstrip().endswith("2 .psd, 1 .txt")


@pytest.mark.parametrize("ending", ["jfif", "jpe", "avif", "webp"])
def test_pictures_of_every_common_ending_are_read(ending: str, tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    picture(5).save(tmp_path / f"pets/cat/new.{ending}", "JPEG" if ending.startswith("j") else None)
    assert len(read(tmp_path / "pets", tmp_path).items) == 7


def test_a_phone_picture_names_the_package_it_needs(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    (tmp_path / "pets/cat/photo.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(
        InvalidInput, match=r"photo\.HEIC: a picture in \.HEIC cannot be read"
    ) as refused:
        read(tmp_path / "pets", tmp_path)
    assert refused.value.hint == "pip install pillow-heif"


def test_twelve_bits_in_a_sixteen_bit_file_keep_their_grays(tmp_path: Path) -> None:
    fill(tmp_path / "pets", mode="L")
    deep = np.random.default_rng(0).integers(0, 4096, (10, 12), np.uint16)
    deep[0, 0] = 4095
    Image.fromarray(deep).save(tmp_path / "pets/cat/deep.png")
    raw = read(tmp_path / "pets", tmp_path)
    assert raw.preprocessing["bits"] == 12
    np.testing.assert_array_equal(
        raw.items.inputs["images"][3], np.round(deep * (255 / 4095)).astype(np.uint8)
    )


@pytest.mark.parametrize("mode", ["RGBA", "CMYK", "P", "LA", "1", "YCbCr"])
def test_pixels_are_those_that_pillow_shows(mode: str, tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    original = (
        picture(7).convert("L").convert(mode) if mode in ("LA", "1") else picture(7).convert(mode)
    )
    name = tmp_path / f"pets/cat/new.{'jpg' if mode in ('CMYK', 'YCbCr') else 'png'}"
    original.save(name, **({"quality": 100} if name.suffix == ".jpg" else {}))
    shown = read(tmp_path / "pets", tmp_path).items.inputs["images"][3]
    np.testing.assert_array_equal(shown, np.asarray(Image.open(name).convert("RGB")))


def test_a_photo_is_turned_the_way_the_camera_was_held(tmp_path: Path) -> None:
    fill(tmp_path / "pets", size=(10, 12))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(3, (12, 10)).save(tmp_path / "pets/cat/turned.png", exif=exif)
    raw = read(tmp_path / "pets", tmp_path)
    expected = np.rot90(np.asarray(picture(3, (12, 10))), -1)
    np.testing.assert_array_equal(raw.items.inputs["images"][3], expected)


def test_a_turned_tiff_is_turned_once(tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    turned = Image.Exif()
    turned[0x0112] = 6
    for file in (tmp_path / "pets").rglob("*.png"):
        Image.open(file).save(file.with_suffix(".tiff"), exif=turned)
        file.unlink()
    array = read(tmp_path / "pets", tmp_path).items.inputs["images"]
    assert array.shape == (6, 12, 10, 3)
    np.testing.assert_array_equal(array[0], np.rot90(np.asarray(picture(0)), -1))


@pytest.mark.parametrize("kind", ["avif", "gif"])
def test_a_picture_that_ends_early_is_named(kind: str, tmp_path: Path) -> None:
    fill(tmp_path / "pets")
    whole = io.BytesIO()
    picture(0).save(whole, kind, save_all=True, append_images=[picture(1)])
    for length in (len(whole.getvalue()) // 2, len(whole.getvalue()) - 3):
        (tmp_path / "pets" / "cat" / f"{length}.{kind}").write_bytes(whole.getvalue()[:length])
    (tmp_path / "pets" / "cat" / f"header.{kind}").write_bytes(whole.getvalue()[:14])
    with pytest.raises(InvalidInput, match=rf"cat/header\.{kind}: this (picture cannot|is not)"):
        read(tmp_path / "pets", tmp_path)


def test_links_that_are_not_followed_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "more")
    pets = fill(tmp_path / "pets")
    (pets / "cow").symlink_to(tmp_path / "more" / "dog")
    assert read(pets, tmp_path).classes == ("cat", "cow", "dog")
    assert "left out" not in caplog.text
    (pets / "cat" / "more").symlink_to(tmp_path / "more" / "cat")
    (pets / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (pets / "pig").symlink_to(tmp_path / "nowhere")
    assert len(read(pets, tmp_path).items) == 9
    assert "3 links left out" in caplog.text
    assert "for example cat/more" in caplog.text
    assert is_small(pets, 1 << 20)


def test_names_that_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    pets, names = fill(tmp_path / "pets", count=8), (b"caf\xe9", b"caf\xe8")
    for at, name in enumerate(names):
        for number in range(8):
            folder = pets / os.fsdecode(name) / os.fsdecode(b"\xe9")
            folder.mkdir(parents=True, exist_ok=True)
            picture(100 * at + number + 50).save(folder / os.fsdecode(b"\xe9%d.png" % number))
    settings = DataSettings(
        dataset=f"images:{pets}", data_options={"group": r"(\d)\.png", "test": 0.5}
    )
    assert prepare_data(settings, tmp_path / "d").classes == (r"caf\xe8", r"caf\xe9", "cat", "dog")


def test_the_working_directory_gives_data_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fill(tmp_path / "pets"))
    assert read(".", tmp_path).name == "pets"
    assert DataSettings(dataset="images:.").name == "pets"


SMALL_DISK = 'mount -t tmpfs -o size=1m none "$TMPDIR" && exec "$@"'


def test_a_full_disk_ends_no_process_without_a_word(tmp_path: Path) -> None:
    fill(tmp_path / "pets", count=12, size=(300, 300))
    (tmp_path / "small").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "small")}
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*alone, "true"], env=environment).returncode
    ):
        pytest.skip("this user may not mount a small disk")
    podium = [str(Path(sys.executable).with_name("podium")), "data", "prepare"]
    done = subprocess.run(
        [*alone, *podium, f"images:{tmp_path}/pets", "--output", str(tmp_path / "d")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stderr
