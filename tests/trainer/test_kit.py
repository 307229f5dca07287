"""The helpers for a trainer of one's own, in a real sweep and in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from kit_trainer import TRAIN

from podium.data.artifact import describe, load
from podium.data.seen import SeenItems
from podium.files.onnx_files import read_model
from podium.metrics import parse_line
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.storage import connect

pytestmark = pytest.mark.whole

EXPERIMENT = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "nearest"},
    "spec": {
        "objective": {
            "type": "minimize",
            "objectiveMetricName": "log_loss",
            "additionalMetricNames": ["accuracy"],
        },
        "algorithm": {"algorithmName": "grid"},
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
        "parameters": [
            {
                "name": "sharpness",
                "parameterType": "categorical",
                "feasibleSpace": {"list": ["0.001", "0.5"]},
            }
        ],
        "trialTemplate": {
            "primaryContainerName": "train",
            "trialParameters": [{"name": "sharpness", "reference": "sharpness"}],
            "trialSpec": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "spec": {
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [
                                {
                                    "name": "train",
                                    "image": "any",
                                    "command": [
                                        "python",
                                        "train.py",
                                        "--sharpness=${trialParameters.sharpness}",
                                    ],
                                }
                            ],
                        }
                    }
                },
            },
        },
    },
}


def python(code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


def test_a_sweep_tunes_a_trainer_made_with_the_kit(tmp_path: Path, tiny_dataset: Path) -> None:
    import onnxruntime

    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    command = [
        str(Path(sys.executable).with_name("podium")),
        "experiment",
        "run",
        "sweep.yaml",
        "--json",
    ]
    places = [
        "--data",
        str(tiny_dataset),
        "--output",
        str(tmp_path / "models"),
        "--dir",
        str(tmp_path / "cluster"),
    ]
    done = subprocess.run(
        [*command, *places], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    models = {
        float(json.loads(file.read_text())["log_loss"]): file
        for file in tmp_path.rglob("models/**/metrics.json")
    }
    assert len(models) == 2
    best = models[min(models)]
    kept = json.loads(best.read_text())
    assert kept["dataset"] == describe(tiny_dataset).digest
    assert [epoch["epoch"] for epoch in kept["epochs"]] == [1, 2]
    assert kept["accuracy"] == kept["epochs"][1]["accuracy"] > 0.8
    validation = load(tiny_dataset, "validation")
    (logits,) = onnxruntime.InferenceSession(best.with_name("model.onnx")).run(
        None, dict(validation.inputs)
    )
    assert (logits.argmax(1) == validation.target).mean() == kept["accuracy"]


def test_only_the_first_rank_reports_and_saves(tmp_path: Path, tiny_dataset: Path) -> None:
    code = (
        "from podium.trainer import kit; kit.report(accuracy=0.5, epoch=3)\n"
        "kit.save_onnx(b'x' if kit.ranks().rank == 0 else 'file-of-the-first.onnx')"
    )
    places = {"PODIUM_DATA": str(tiny_dataset), "PODIUM_OUTPUT": f"file://{tmp_path}/out"}
    places |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    second, first = python(code, RANK="1", **places), python(code, RANK="0", **places)
    assert (second.returncode, second.stdout, first.returncode) == (0, "", 0), (
        first.stderr + second.stderr
    )
    assert [
        (reading.name, reading.value) for reading in parse_line(first.stdout.strip(), ["accuracy"])
    ] == [("accuracy", "0.5")]
    assert json.loads((tmp_path / "out/metrics.json").read_text())["epoch"] == 3
    assert (tmp_path / "out/model.onnx").read_bytes() == b"x"


@pytest.mark.parametrize("command", ["['python', 'predict.py']", "'python predict.py'"])
def test_a_model_with_a_predict_command_is_saved_whole(
    command: str, tmp_path: Path, tiny_dataset: Path
) -> None:
    (tmp_path / "made/inner").mkdir(parents=True)
    (tmp_path / "made/inner/trees.npy").write_bytes(b"trees")
    code = (
        "import sys; from podium.trainer import kit\n"
        "for epoch in (1, 2): kit.report(rmse=1.0 / epoch)\n"
        f"kit.save_model(sys.argv[1], predict={command}, epoch=1)"
    )
    done = python(
        code, str(tmp_path / "made"), "--data", str(tiny_dataset), f"--output={tmp_path / 'out'}"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/inner/trees.npy").read_bytes() == b"trees"
    assert json.loads((tmp_path / "out/model.json").read_text()) == {
        "predict": ["python", "predict.py"]
    }
    kept = json.loads((tmp_path / "out/metrics.json").read_text())
    assert (kept["rmse"], kept["epoch"], len(kept["epochs"])) == (1.0, 1, 2)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("kit.load('test')", "a trainer reads train and validation"),
        ("kit.report(accuracy=float('nan'))", "accuracy is nan, not a finite number"),
        ("kit.report(**{'f1 macro': 0.5})", "not a metric's name: 'f1 macro'"),
        ("kit.save_model('made', predict=['python', 'p.py'])", "there are no files in made"),
        ("kit.save_onnx('made.onnx')", "made.onnx cannot be read"),
        ("open('a', 'w'); kit.save_model('.')", "holds neither model.onnx nor model.json"),
        ("kit.save_onnx(b'x', epoch=4)", "epoch 4 was not reported"),
        ("kit.output()", "neither --output nor PODIUM_OUTPUT is given"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(
    tmp_path: Path, tiny_dataset: Path, call: str, expected: str
) -> None:
    places = {"PODIUM_DATA": str(tiny_dataset)} | (
        {} if "output" in call else {"PODIUM_OUTPUT": str(tmp_path / "out")}
    )
    done = python(
        f"import os\nos.chdir({str(tmp_path)!r})\nfrom podium.trainer import kit\n{call}", **places
    )
    assert done.returncode == 1
    assert expected in done.stderr


def test_weights_beside_a_model_file_are_saved_with_it(tmp_path: Path, tiny_dataset: Path) -> None:
    code = (
        "import numpy as np, onnx; from onnx import helper, numpy_helper\n"
        "weights = numpy_helper.from_array(np.arange(4, dtype=np.float32), 'w')\n"
        "items = helper.make_tensor_value_info('x', 1, ['n', 4])\n"
        "values = helper.make_tensor_value_info('y', 1, ['n', 4])\n"
        "node = helper.make_node('Mul', ['x', 'w'], ['y'])\n"
        "graph = helper.make_graph([node], 'g', [items], [values], [weights])\n"
        "onnx.save(helper.make_model(graph), 'model.onnx', save_as_external_data=True, "
        "location='model.onnx.data', size_threshold=0)\n"
        "from podium.trainer import kit; kit.save_onnx('model.onnx')"
    )
    places = {"PODIUM_DATA": str(tiny_dataset), "PODIUM_OUTPUT": str(tmp_path / "out")}
    done = python(f"import os\nos.chdir({str(tmp_path)!r})\n{code}", **places)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.onnx.data").exists()
    assert read_model(tmp_path / "out/model.onnx", "model.onnx")


def test_numbers_of_numpy_count_as_epochs(tmp_path: Path, tiny_dataset: Path) -> None:
    code = (
        "import numpy as np; from podium.trainer import kit\n"
        "for epoch in np.arange(2): kit.report(epoch=epoch, accuracy=np.float32(epoch / 2))\n"
        "kit.save_onnx(b'x', epoch=np.argmax([1, 0]))"
    )
    places = {"PODIUM_DATA": str(tiny_dataset), "PODIUM_OUTPUT": str(tmp_path / "out")}
    done = python(code, **places)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "out/metrics.json").read_text())
    assert (kept["epoch"], kept["accuracy"], len(kept["epochs"])) == (0, 0.0, 2)


def test_any_name_of_a_metric_is_reported(tiny_dataset: Path) -> None:
    done = python("from podium.trainer import kit; kit.report(time=1.5, loss=0.123456789)")
    readings = parse_line(done.stdout.strip(), ["time", "loss"])
    assert [(each.name, each.value) for each in readings] == [
        ("time", "1.5"),
        ("loss", "0.123456789"),
    ], done.stderr


def test_the_kit_loads_no_torch(tiny_dataset: Path) -> None:
    code = "import sys; from podium.trainer import kit; print(len(kit.load('train')), 'torch' in sys.modules)"
    assert python(code, PODIUM_DATA=str(tiny_dataset)).stdout == "400 False\n"


def test_what_the_weights_had_seen_goes_with_the_model(tmp_path: Path) -> None:
    rows = "\n".join(f"{row},{row % 7}" for row in range(100))
    (tmp_path / "rows.csv").write_text(f"a,b\n{rows}\n")
    prepare_data(DataSettings(dataset=f"table:{tmp_path}/rows.csv", target="b"), tmp_path / "data")
    old, new, foreign = tmp_path / "old", tmp_path / "new", tmp_path / "foreign"
    code = (
        "import sys; from podium.trainer import kit; kit.save_onnx(b'model', weights=sys.argv[1])"
    )

    def train(output: Path, weights: str) -> dict[str, object]:
        done = python(code, weights, PODIUM_DATA=str(tmp_path / "data"), PODIUM_OUTPUT=str(output))
        assert done.returncode == 0, done.stderr
        return json.loads((output / "metrics.json").read_text())

    assert "unknown_weights" not in train(old, "")
    earlier = SeenItems.read(connect(str(old)))
    assert earlier is not None
    (old / "seen.npz").write_bytes(
        earlier.plus(SeenItems(hashes=np.array([7], np.uint64))).to_bytes()
    )
    assert "unknown_weights" not in train(new, f"{old}/model.onnx")
    later = SeenItems.read(connect(str(new)))
    assert later is not None
    assert set(later.hashes) - set(earlier.hashes) == {7}
    assert train(foreign, "from-elsewhere.onnx")["unknown_weights"] == "from-elsewhere.onnx"


SMALL = "from podium.files import onnx_files; onnx_files.LARGEST = 3\n"


def test_a_model_that_no_onnx_file_holds_is_refused(tmp_path: Path, tiny_dataset: Path) -> None:
    places = {"PODIUM_DATA": str(tiny_dataset), "PODIUM_OUTPUT": str(tmp_path / "out")}
    done = python(f"{SMALL}from podium.trainer import kit; kit.save_onnx(b'four')", **places)
    assert "takes 4 bytes, and an ONNX model holds at most 3" in done.stderr
    assert "kit.save_model(" in done.stderr
    assert (tmp_path / "out/model.onnx").read_bytes() == b"four"
    assert not (tmp_path / "out/metrics.json").exists()


def test_a_network_that_no_onnx_file_holds_is_not_trained(
    tmp_path: Path, tiny_dataset: Path
) -> None:
    train = f"['--data', {str(tiny_dataset)!r}, '--output', {str(tmp_path / 'out')!r}]"
    done = python(
        f"{SMALL}import sys; from podium.trainer.__main__ import main; sys.exit(main({train}))"
    )
    assert done.returncode == 2
    assert "error: the network takes " in done.stderr
    assert "accuracy=" not in done.stdout
