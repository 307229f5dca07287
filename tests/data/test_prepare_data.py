import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from small_dataset import CONTENT, Serve, packed, send

from podium.data import artifact
from podium.data.held_out import HeldOut
from podium.data.seen import unseen
from podium.data.sources.known import DATASETS, FILES
from podium.errors import Conflict, Damaged, Failed, InvalidInput
from podium.steps.prepare_data import DataSettings, prepare_data

pytestmark = pytest.mark.usefixtures("known")


def copy_dataset(source: Path, target: Path) -> None:
    """Copy a dataset and its test part, which lies beside it."""
    shutil.copytree(source, target)
    shutil.copytree(artifact.test_uri(source), artifact.test_uri(target))


def prepare(
    target: Path, folder: Path, *, limit: int = 0, **options: float
) -> artifact.DatasetInfo:
    settings = DataSettings(dataset="small", source=str(folder), limit=limit, data_options=options)
    return prepare_data(settings, target)


def test_every_image_lands_in_exactly_one_part(tmp_path: Path, folder: Path) -> None:
    info = prepare(tmp_path / "d", folder)
    assert {name: part.count for name, part in info.parts.items()} == {
        "train": 180,
        "validation": 20,
        "test": 50,
    }
    parts = [artifact.load(tmp_path / "d", part) for part in ("train", "validation")]
    found = sorted(
        image.tobytes() + bytes([label])
        for part in parts
        for image, label in zip(part.inputs["images"], part.target, strict=True)
    )
    images, labels = (np.frombuffer(CONTENT[FILES[0]][16:], np.uint8), CONTENT[FILES[1]][8:])
    assert found == sorted(
        image.tobytes() + bytes([labels[i]]) for i, image in enumerate(images.reshape(-1, 784))
    )
    assert (
        artifact.load(tmp_path / "d", "test").inputs["images"].tobytes() == CONTENT[FILES[2]][16:]
    )
    assert info.parts["validation"].class_counts == (2,) * 10


def test_preparing_data_leaves_no_log_handler(tmp_path: Path, folder: Path) -> None:
    log = logging.getLogger("podium.data")
    before = list(log.handlers)
    prepare(tmp_path / "d", folder)
    assert log.handlers == before


def test_equal_seeds_split_equally_and_others_do_not(tmp_path: Path, folder: Path) -> None:
    first, again = (
        prepare(tmp_path / "a", folder, split_seed=7),
        prepare(tmp_path / "b", folder, split_seed=7),
    )
    assert first == again
    assert first.digest != prepare(tmp_path / "c", folder, split_seed=8).digest


def test_a_limit_shrinks_train_and_validation_only(tmp_path: Path, folder: Path) -> None:
    info = prepare(tmp_path / "d", folder, limit=40, validation=0.25)
    assert {name: part.count for name, part in info.parts.items()} == {
        "train": 30,
        "validation": 10,
        "test": 50,
    }
    assert info.parts["train"].class_counts == (3,) * 10
    assert info.limit == 40


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"validation": 0}, "0 < validation < 1"),
        ({"validation": float("nan")}, "validation must be a finite number"),
        ({"limit": 19}, "limit >= 20"),
        ({"split_seed": -1}, "0 <= split_seed"),
    ],
)
def test_arguments_that_break_a_rule_are_refused(
    tmp_path: Path, options: dict[str, float], rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule):
        prepare(tmp_path / "d", tmp_path / "never read", **options)
    assert not list(tmp_path.iterdir())


def test_a_truncated_download_leaves_nothing_behind(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(lambda request: send(request, packed(request)[:500], announced=9000))
    monkeypatch.setitem(DATASETS, "small", replace(DATASETS["small"], mirrors=(url,)))
    with pytest.raises(Failed, match="500 of 9000 bytes arrived"):
        prepare_data(DataSettings(dataset="small"), tmp_path / "d", cache=tmp_path / "cache")
    with pytest.raises(Damaged, match="500 of 9000 bytes arrived"):
        prepare_data(
            DataSettings(dataset="small", source=url), tmp_path / "d", cache=tmp_path / "cache"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tmp_path: Path, folder: Path) -> None:
    """A limit on the size of files stands in for the full disk; the kernel refuses the write just the same."""
    program = """
import resource, signal, sys
from hashlib import sha256
from pathlib import Path
from small_dataset import CONTENT
from podium.data.sources.known import DATASETS, Known
from podium.errors import PodiumError
from podium.steps.prepare_data import DataSettings, prepare_data
sums = {name: sha256(data).hexdigest() for name, data in CONTENT.items()}
DATASETS["small"] = Known(name="small", classes=tuple("0123456789"), sha256=sums)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    prepare_data(DataSettings(dataset="small", source="given"), "d")
except PodiumError as error:
    print(error)
"""
    environment = {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment,
    )
    assert "the dataset could not be written to" in done.stdout, done.stderr
    assert "hint: let files be larger" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_a_prepared_dataset_is_copied_as_it_is(tiny_dataset: Path, tmp_path: Path) -> None:
    info = prepare_data(DataSettings(dataset=str(tiny_dataset)), tmp_path / "copy")
    assert info == artifact.describe(tiny_dataset) == artifact.describe(tmp_path / "copy")
    np.testing.assert_array_equal(
        artifact.load(tmp_path / "copy", "test").target, artifact.load(tiny_dataset, "test").target
    )
    with pytest.raises(InvalidInput, match="taken as it is"):
        DataSettings(dataset=str(tiny_dataset), limit=100)


def test_a_prepared_dataset_may_stay_in_place(tiny_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_dataset(tiny_dataset, copy)
    before = {file.name: file.stat().st_ino for file in copy.iterdir()}
    prepare_data(DataSettings(dataset=str(copy)), f"file://{copy}")
    assert {file.name: file.stat().st_ino for file in copy.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "copy_test"}


def test_a_damaged_dataset_is_not_copied(tiny_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_dataset(tiny_dataset, copy)
    with (tmp_path / "copy_test" / "test-target.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x63")
    with pytest.raises(Damaged, match="test-target"):
        prepare_data(DataSettings(dataset=str(copy)), tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "copy_test"}


def test_rows_of_a_cluster_count_together_and_divide_nothing(tmp_path: Path) -> None:
    rows = [
        f"{shop},{week},{week * shop % 97 / 8},{week % 7 * shop}"
        for week in range(40)
        for shop in range(12)
    ]
    (tmp_path / "sales.csv").write_text("\n".join(["shop,week,rain,sales", *rows]) + "\n")
    infos = {}
    for cluster in ("", "shop"):
        options = {
            "time": "week",
            "kind": "regression",
            "allow_duplicates": True,
            "cluster": cluster,
        }
        settings = DataSettings(
            dataset=f"table:{tmp_path}/sales.csv", target="sales", data_options=options
        )
        infos[cluster] = prepare_data(settings, tmp_path / f"d{cluster}")
    alone, together = infos[""], infos["shop"]
    assert (alone.has_groups, together.has_groups) == (False, True)
    assert together.digest == alone.digest
    assert together.inputs == alone.inputs
    assert together.split == "by week"
    assert len(np.unique(artifact.load_facts(tmp_path / "dshop", "groups", "test"))) == 12
    assert artifact.load_facts(tmp_path / "dshop", "groups", "train") is None
    seen, same = (artifact.load_seen(tmp_path / name) for name in ("dshop", "d"))
    assert seen is not None
    assert same is not None
    np.testing.assert_array_equal(seen.hashes, same.hashes)
    held_out = HeldOut.open(tmp_path / "dshop")
    fresh, _ = unseen(held_out.as_prepared(), held_out.groups, seen)
    assert fresh.all()


def test_other_clusters_are_another_dataset_of_a_bucket(tmp_path: Path, bucket: str) -> None:
    rows = [f"{at % 9},{at % 5},{at * 37 % 101}" for at in range(90)]
    (tmp_path / "sales.csv").write_text("\n".join(["shop,city,sales", *rows]) + "\n")
    for cluster in ("", "", "shop", "city"):
        options = {"kind": "regression", "allow_duplicates": True, "cluster": cluster}
        settings = DataSettings(
            dataset=f"table:{tmp_path}/sales.csv", target="sales", data_options=options
        )
        prepared = partial(prepare_data, settings, f"{bucket}/sales")
        if cluster:
            with pytest.raises(Conflict, match="holds another dataset already"):
                prepared()
        else:
            prepared()
