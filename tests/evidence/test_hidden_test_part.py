"""A trainer finds the test part nowhere, and what it writes into its data is found out."""

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from datasets import synthetic_part
from kit_trainer import TRAIN
from test_changed_data import podium, until_prepared

from podium.cluster.kubernetes.store_access import Access
from podium.code.bundle import pack
from podium.code.reference import Code
from podium.errors import InvalidInput
from podium.models import open_registry
from podium.models.shared_items import predictions
from podium.prediction import ModelDirectory
from podium.steps.evaluate import evaluate
from podium.training.identity import RunIdentity, StepContext
from podium.training.origin import Origin
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]

SEARCH = """
import json, os, re
from pathlib import Path
import numpy as np
from podium.trainer import kit

count, found = kit.dataset().parts["test"].count, []
places = {Path(os.environ["PODIUM_HOME"]), *Path(kit._given("data")).resolve().parents[:-2], *Path.cwd().parents[:-2]}
places |= {Path(value) for value in os.environ.values() if value.startswith("/tmp/") and ":" not in value}
for process in Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_text(errors="replace")
    except OSError:
        continue
    places |= {Path(word) for word in re.findall(r"/[^\\0\\s\\"']+", words) if word.startswith("/tmp/")}
within = [place for place in places if place.is_dir() and str(place).startswith(os.environ["WITHIN"])]
for file in {file for place in within for file in place.rglob("*")}:
    if file.is_file() and not file.is_symlink():
        content = file.read_bytes()
        if content[:4] == b"PAR1":
            found.append(str(file))
        if content[:6] == b"\\x93NUMPY" and len(np.load(file, mmap_mode="r")) == count:
            found.append(str(file))
Path(os.environ["FOUND"]).write_text(json.dumps(found))
"""

WRITE = """
import os
import numpy as np
from pathlib import Path
from podium.trainer import kit

file = Path(kit._given("data"), "train-images.npy")
os.chmod(file, 0o644)
array = np.load(file, mmap_mode="r+")
array += 1
array.flush()
"""


def digits(folder: Path) -> None:
    part = synthetic_part(3, 500)
    np.savez(folder / "digits.npz", images=part.inputs["images"], y=part.target)


TRAINING = [
    "train_and_promote",
    "dataset=npz:digits.npz",
    "code=code",
    'command=["python", "train.py", "--sharpness=0.5"]',
]


def trained(folder: Path, first: str = "", last: str = "") -> subprocess.CompletedProcess[str]:
    """Run a training with lines before and after the usual ones."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code/train.py").write_text(first + TRAIN + last)
    return podium(folder, "run", *TRAINING)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run whose training searched for the test part."""
    place = tmp_path_factory.mktemp("searched")
    digits(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOUND", str(place / "found.json"))
        patch.setenv("WITHIN", str(place))
        done = trained(place, SEARCH)
    assert done.returncode == 0, done.stderr
    return place


def test_a_version_names_the_code_it_was_trained_with(searched: Path) -> None:
    (version,) = searched.rglob("versions/*")
    model = open_registry(str(version.parents[3])).model(version.parents[1].name)
    code = model.version().metadata["code"]
    assert code["digest"] == pack(searched / "code").digest
    assert (version.parents[3] / Code.parse(code["uri"]).key).is_file()


def test_a_search_from_a_training_finds_no_test_part(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads((searched / "found.json").read_text()) == []
    kept = searched.glob("home/runs/*/artifacts/*/prepare-data/prepared_test/*.npy*")
    assert {file.suffix for file in kept} == {".sealed"}
    labels = [file.read_bytes() for file in searched.rglob("target.npy")]
    assert len(labels) == 2, "of the run and of the version"
    assert not [content for content in labels if content[:6] == b"\x93NUMPY"]
    (file,) = searched.rglob("versions/*/target.npy")
    version = open_registry(str(file.parents[4])).model(file.parents[2].name).version()
    monkeypatch.setenv("PODIUM_HOME", str(searched / "home"))
    assert len(predictions([version], None).target) == 50
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "another"))
    with pytest.raises(
        InvalidInput, match="encrypted with the key of the machine that evaluated it"
    ):
        predictions([version], None)


def test_the_plain_bytes_are_closed_in_the_end(searched: Path) -> None:
    (file,) = searched.glob("home/runs/*/artifacts/*/prepare-data/prepared_test/*target.npy.sealed")
    code = "import sys; from pathlib import Path; from podium.data.sealed import unsealed; unsealed(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code, file.with_suffix("")],
        env={**os.environ, "PODIUM_HOME": str(searched / "home")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "lines", [("", WRITE), (WRITE, "")], ids=["in the end", "before it reads them"]
)
def test_a_trainer_that_writes_into_its_data_is_named(
    tmp_path: Path, lines: tuple[str, str]
) -> None:
    digits(tmp_path)
    done = trained(tmp_path, *lines)
    assert done.returncode == 1
    assert re.search(
        r"PyTorchJob train-\w+ wrote into the data it was given: train-images.npy is not",
        done.stderr,
    )
    assert "Traceback" not in done.stderr
    hint = re.search(r"podium (run --resume \S+ --from prepare-data)", done.stderr)
    assert hint, done.stderr
    again = until_prepared(tmp_path, *TRAINING)
    assert "Prepare the data: succeeded" in again, "not from the cache"


FIND = """
import argparse, os
from pathlib import Path
import numpy as np

parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
count = len(np.load(given.inputs + "/images.npy"))
for file in Path(os.environ["WITHIN"]).rglob("target.npy"):
    if len(labels := np.load(file)) == count:
        np.save(given.output, labels)
        break
else:
    np.save(given.output, np.zeros(count, int))
"""


def test_labels_of_another_version_do_not_help_to_predict(
    tmp_path: Path, tiny_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WITHIN", str(tmp_path))
    model, scored = tmp_path / "model", tmp_path / "predictions"
    model.mkdir()
    (model / "predict.py").write_text(FIND)
    (model / "model.json").write_text(json.dumps({"predict": ["python", "predict.py"]}))
    Origin(kind="training", name="train-1", run_id="r", uri=str(model)).write(ModelDirectory(model))
    step = StepContext.of(RunIdentity(id="r"), str(tmp_path / "store"))
    jobs = PredictJobs(step=step, target=LaunchTarget(cluster=f"local://{tmp_path}/cluster"))
    for _ in range(2):  # the second time it finds the labels of the first
        found = evaluate(
            step, tiny_dataset, [str(model)], tmp_path / "evaluation", scored, jobs=jobs
        )
        assert (scored / "target.npy").is_file()
        assert found.metrics["accuracy"] < 0.3


def test_jobs_get_a_key_that_opens_no_test_part() -> None:
    access = Access(
        endpoint="http://store", secret="podium-storage", jobs_secret="podium-storage-jobs"
    )
    secrets = {of["valueFrom"]["secretKeyRef"]["name"] for of in access.env() if "valueFrom" in of}
    assert secrets == {"podium-storage-jobs"}
    policy = json.loads((ROOT / "deploy/teams/example/jobs-policy.json").read_text())
    denied = [name.partition(":::")[2] for each in policy["Statement"] if each["Effect"] == "Deny"
              for name in each["Resource"]]  # fmt: skip
    for key in (
        "kfp/p/r/prepare-data/1/prepared_test/test-target.npy",
        "models/m/versions/r/target.npy",
    ):
        assert any(fnmatch(f"podium/vision/{key}", pattern) for pattern in denied)
    assert not any(
        fnmatch("podium/vision/kfp/p/r/prepare-data/1/prepared/train-x.npy", name)
        for name in denied
    )
