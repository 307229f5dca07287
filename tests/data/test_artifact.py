import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import write_pictures

from podium.data import artifact
from podium.errors import Conflict, Damaged, InvalidInput, NotFound


@pytest.fixture
def parts(tiny_dataset: Path) -> dict[str, artifact.Split]:
    return {part: artifact.load(tiny_dataset, part) for part in artifact.PARTS}


def change_a_pixel(part: artifact.Split) -> None:
    images = part.inputs["images"].copy()
    images[0, 0, 0] ^= 1
    part.inputs["images"] = images  # type: ignore[index]


def cut(part: artifact.Split, count: int) -> artifact.Split:
    return artifact.Split(
        inputs={name: array[:count] for name, array in part.inputs.items()},
        target=part.target[:count],
    )


def write(target: str | Path, parts: dict[str, artifact.Split]) -> artifact.DatasetInfo:
    return write_pictures(target, parts)


def test_what_is_written_is_read_back(tmp_path: Path, parts: dict[str, artifact.Split]) -> None:
    info = write(tmp_path / "copy", parts)
    assert artifact.describe(tmp_path / "copy") == info
    for name, part in parts.items():
        again = artifact.load(f"file://{tmp_path}/copy", name)
        np.testing.assert_array_equal(again.inputs["images"], part.inputs["images"])
        np.testing.assert_array_equal(again.target, part.target)
        assert not again.target.flags.writeable
        assert isinstance(again.inputs["images"], np.memmap)


def test_the_info_says_what_the_arrays_hold(
    tiny_dataset: Path, parts: dict[str, artifact.Split]
) -> None:
    info = artifact.describe(tiny_dataset)
    scaled = parts["train"].inputs["images"] / 255
    assert (info.inputs["images"].mean[0], info.inputs["images"].std[0]) == (
        pytest.approx(scaled.mean()),
        pytest.approx(scaled.std()),
    )
    assert info.parts["train"].count == 400
    assert info.parts["train"].class_counts == tuple(np.bincount(parts["train"].target))
    assert json.loads((tiny_dataset / "dataset.json").read_text())["format"] == "podium.dataset/2"


def test_equal_data_has_an_equal_digest_and_other_data_another(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    first, second = write(tmp_path / "a", parts), write(tmp_path / "b", parts)
    change_a_pixel(parts["test"])
    assert first.digest == second.digest != write(tmp_path / "c", parts).digest


@pytest.mark.parametrize("harm", ["flip a bit", "cut the end", "add a byte"])
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, parts: dict[str, artifact.Split], harm: str
) -> None:
    write(tmp_path / "d", parts)
    file = tmp_path / "d" / "train-images.npy"
    data = bytearray(file.read_bytes())
    data[5000] ^= 1 if harm == "flip a bit" else 0
    file.write_bytes(
        {"flip a bit": data, "cut the end": data[:-1], "add a byte": data + b"\0"}[harm]
    )
    with pytest.raises(Damaged, match=r"train-images\.npy does not match its checksum"):
        artifact.load(tmp_path / "d", "train")
    assert len(artifact.load(tmp_path / "d", "validation")) == 100


def test_an_edited_dataset_json_is_refused(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    write(tmp_path / "d", parts)
    file = tmp_path / "d" / "dataset.json"
    known = json.loads(file.read_text())
    known["parts"]["test"]["target"]["sha256"] = "0" * 64
    file.write_text(json.dumps(known))
    with pytest.raises(Damaged, match="digest does not follow"):
        artifact.describe(tmp_path / "d")
    file.write_text(file.read_text()[:100])
    with pytest.raises(Damaged, match="not readable as JSON"):
        artifact.describe(tmp_path / "d")
    file.write_text("[]")
    with pytest.raises(InvalidInput, match=r"podium\.dataset/2"):
        artifact.describe(tmp_path / "d")
    file.write_text('{"format": "something/2"}')
    with pytest.raises(InvalidInput, match="something/2"):
        artifact.describe(tmp_path / "d")


def test_a_missing_dataset_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        artifact.load(tmp_path / "nowhere", "train")
    assert "podium data prepare" in str(caught.value)
    with pytest.raises(InvalidInput, match="train, validation, test"):
        artifact.load(tmp_path, "training")


def test_a_dataset_is_replaced_but_other_things_are_left_alone(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    target = tmp_path / "d"
    first = write(target, parts)
    parts["train"] = cut(parts["train"], 50)
    assert write(target, parts).digest == artifact.describe(target).digest != first.digest
    assert {path.name for path in tmp_path.iterdir()} == {"d", "d_test"}

    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(InvalidInput, match="left alone"):
        write(tmp_path / "thesis", parts)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"


def test_parts_that_fit_nothing_are_refused_and_nothing_is_written(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    eleven = replace(parts["test"], target=parts["test"].target + np.uint8(1))
    with pytest.raises(InvalidInput, match="has a target 10, but there are 10 classes"):
        write(tmp_path / "d", {**parts, "test": eleven})
    with pytest.raises(InvalidInput, match="has no items"):
        write(tmp_path / "d", {**parts, "test": cut(eleven, 0)})
    with pytest.raises(InvalidInput, match="images has 100 items, but there are 99 targets"):
        replace(parts["test"], target=parts["test"].target[1:])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, tiny_dataset: Path) -> None:
    """A limit on the size of files stands in for the full disk: the kernel refuses the write just the same."""
    program = """
import resource, signal, sys
from pathlib import Path
from typing import Any
from podium.data import artifact, artifact_files
from podium.errors import PodiumError
parts = {part: artifact.load(sys.argv[1], part) for part in artifact.PARTS}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    artifact_files.write(Path(sys.argv[2]), parts, name="tiny", kind="classification", classes=tuple("0123456789"),
                   inputs={"images": artifact.InputDescription(meaning="image")}, target_name="label",
                   preprocessing={}, source="a test", split="given")
except PodiumError as error:
    print(error)
"""
    command = [sys.executable, "-B", "-c", program, str(tiny_dataset), str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "could not be written" in done.stdout, done.stderr
    assert "hint: let files be larger" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_reading_a_dataset_imports_numpy_and_nothing_heavy() -> None:
    program = "import sys, podium.data.artifact; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {
        "torch",
        "torchvision",
        "PIL",
        "kfp",
        "minio",
        "click",
        "onnxruntime",
        "requests",
        "urllib3",
    }
    assert not heavy & set(done.stdout.split())


def test_a_bucket_holds_a_dataset_and_never_replaces_it(
    tmp_path: Path,
    parts: dict[str, artifact.Split],
    new_bucket: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = new_bucket("moto")
    uri = f"{bucket}/data/tiny"
    info = write(uri, parts)
    assert artifact.describe(uri) == info == write(uri, parts)
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "cache"))
    np.testing.assert_array_equal(
        artifact.load(uri, "train").inputs["images"], parts["train"].inputs["images"]
    )
    change_a_pixel(parts["test"])
    with pytest.raises(Conflict, match="another dataset already"):
        write(uri, parts)
    assert artifact.describe(uri) == info
    with pytest.raises(NotFound, match=r"no dataset\.json in s3://"):
        artifact.describe(f"{bucket}/data/other")


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document; of a list only the first."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    for name, member in items:
        yield from fields_of(member, (*path, name))


ALIKE = {str: (str,), int: (int,), float: (int, float), list: (), dict: ()}


def test_any_field_of_another_type_is_named(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    write(tmp_path / "d", parts)
    file = tmp_path / "d" / "dataset.json"
    whole = json.loads(file.read_text())
    whole["preprocessing"] = {}  # which may hold anything
    for *above, last in filter(None, fields_of(whole)):
        for other in (None, 7, "x", 1.5, float("nan"), True, [[]], {"x": 1}, "\ud800"):
            value = json.loads(json.dumps(whole))
            holder = value
            for name in above:
                holder = holder[name]
            before, holder[last] = holder[last], other
            file.write_text(json.dumps(value))
            with contextlib.suppress(Damaged, InvalidInput):
                artifact.describe(tmp_path / "d")
                assert before in (None, {}) or type(other) in ALIKE[type(before)], (
                    above,
                    last,
                    other,
                )
    whole["parts"]["train"]["count"] = "400"
    file.write_text(json.dumps(whole))
    with pytest.raises(
        Damaged, match=r"dataset\.json: parts\.train\.count must be a whole number, but is '400'"
    ):
        artifact.describe(tmp_path / "d")


def test_a_file_outside_the_dataset_is_not_read(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    write(tmp_path / "d", parts)
    file = tmp_path / "d" / "dataset.json"
    file.write_text(file.read_text().replace("test-target.npy", "../secret.npy"))
    with pytest.raises(
        Damaged, match=r"'\.\./secret\.npy' is not the name of a file beside dataset\.json"
    ):
        artifact.load(tmp_path / "d", "test")


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return Path.touch, (self.made,)


def test_a_pickle_in_a_dataset_is_not_opened(
    tmp_path: Path, parts: dict[str, artifact.Split]
) -> None:
    write(tmp_path / "d", parts)
    file = tmp_path / "d_test" / "test-target.npy"
    np.save(file, np.array([Trap(tmp_path / "made")] * 100, object), allow_pickle=True)
    whole = json.loads((tmp_path / "d" / "dataset.json").read_text())
    whole["parts"]["test"]["target"] |= {
        "sha256": sha256(file.read_bytes()).hexdigest(),
        "bytes": file.stat().st_size,
    }
    sums = [
        file["sha256"]
        for part in artifact.PARTS
        for file in (whole["parts"][part]["inputs"]["images"], whole["parts"][part]["target"])
    ]
    whole["digest"] = sha256("".join(sums).encode()).hexdigest()
    (tmp_path / "d" / "dataset.json").write_text(json.dumps(whole))
    np.load(file, allow_pickle=True)
    assert (tmp_path / "made").exists(), "the trap works"
    (tmp_path / "made").unlink()
    with pytest.raises(Damaged, match="Python objects"):
        artifact.load(tmp_path / "d", "test")
    assert not (tmp_path / "made").exists()


def test_a_dataset_too_large_to_describe_leaves_nothing_behind(
    tmp_path: Path, parts: dict[str, artifact.Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.data.artifact_files.MAX_JSON", 500)
    with pytest.raises(InvalidInput, match="the description of tiny has"):
        write(tmp_path / "copy", parts)
    assert not list(tmp_path.iterdir())
