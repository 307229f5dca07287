"""Scripts of other libraries, tuned as they are with the real libraries: `make test-libraries` installs these."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sweep_manifests import job, space, write_experiment

from podium.metrics.goals import less_is_better
from podium.metrics.libraries import BY_HAND, LIBRARIES

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "libraries" / "bin" / "python"
ENTRY = "import sys; from podium.cli import main; sys.argv[0] = 'podium'; sys.exit(main())"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not PYTHON.exists(), reason="the libraries are not installed: make test-libraries"
    ),
]

TUNED = {
    "huggingface": ("eval_accuracy", "--learning_rate 0.01,1e-5 --output_dir ${podium.output} --eval_strategy epoch "
                    "--num_train_epochs 2 --report_to none --use_cpu true", "model.safetensors"),
    "lightning": ("val_acc", "--lr 0.1,1e-6 --checkpoint ${podium.output}/model.ckpt", "model.ckpt"),
    "lightning tqdm": ("val_acc", "--lr 0.1,1e-6 --bar tqdm --checkpoint ${podium.output}/model.ckpt", "model.ckpt"),
    "keras": ("val_accuracy", "--lr 0.1,1e-6 --model ${podium.output}/model.keras", "model.keras"),
    "xgboost": ("eval-logloss", "--eta 0.3,0.001 --model ${podium.output}/model.ubj", "model.ubj"),
    "lightgbm": ("valid_1's auc", "--learning_rate 0.1,0.01 --model ${podium.output}/model.txt", "model.txt"),
    "catboost": ("test", "--rate 0.1,0.01 --model ${podium.output}/model.cbm", "model.cbm"),
    "sklearn": ("accuracy", "--alpha 0.001,10 --model ${podium.output}/model.joblib", "model.joblib"),
    "colon": ("Test accuracy", "--alpha 0.001,10 --model ${podium.output}/model.joblib", "model.joblib"),
    "json": ("test_acc", "--alpha 0.001,10 --model ${podium.output}/model.joblib", "model.joblib"),
    "words": ("acc", "--alpha 0.001,10 --model ${podium.output}/model.joblib", "model.joblib"),
}  # fmt: skip
"""Objective, flags and the model's file by library; all scripts write what their library's own objects hold."""


def _podium(folder: Path, *words: str) -> str:
    environment = {
        **os.environ,
        "PODIUM_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    environment["PATH"] = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [PYTHON, "-c", ENTRY, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TUNED)
def test_an_unchanged_script_is_tuned_by_its_own_metric(name: str, tmp_path: Path) -> None:
    (objective, flags, model), library = TUNED[name], name.partition(" ")[0]
    by_hand = library in {printed.key for printed in BY_HAND}
    script = "train_sklearn.py" if by_hand else f"train_{library}.py"
    shutil.copy(Path(__file__).parent / script, tmp_path)
    words = [*flags.split(), "--results", "${podium.output}/results.json", "--objective", objective]
    _podium(
        tmp_path,
        "tune",
        script,
        *words,
        "--prints",
        library,
        "--algorithm",
        "grid",
        "--trials",
        "2",
    )
    best = json.loads(
        _podium(tmp_path, "experiment", "best", script[:-3].replace("_", "-"), "--json")
    )
    chosen = min if less_is_better(objective) else max
    held = [
        chosen(json.loads(file.read_text())[objective])
        for file in tmp_path.glob("home/trials/*/results.json")
    ]
    assert len(set(held)) == 2
    rounded = 0.005 if library == "sklearn" else 0.0  # its report has two digits
    assert best["value"] == pytest.approx(chosen(held), rel=1e-3, abs=rounded)
    assert len(list(tmp_path.glob(f"home/trials/*/{model}"))) == 2


def test_hugging_faces_trainer_needs_no_printed_line(tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "train_huggingface.py")
    flags = "--output_dir=out --eval_strategy=epoch --num_train_epochs=2 --report_to=none --use_cpu=true"
    trial = job(["python", script, "--learning_rate=${trialParameters.lr}", *flags.split()])
    manifest = write_experiment(
        trial,
        name="hf",
        objective={"type": "maximize", "objectiveMetricName": "eval_accuracy"},
        algorithm={"algorithmName": "grid"},
        parameters=[space("lr", "categorical", list=["0.01", "1e-5"])],
        metricsCollectorSpec={"collector": {"kind": "Push"}},
    )
    (tmp_path / "hf.yaml").write_text(json.dumps(manifest))
    _podium(tmp_path, "experiment", "run", "hf.yaml")
    assert json.loads(_podium(tmp_path, "experiment", "best", "hf", "--json"))["value"] > 0.5


def test_every_library_is_tuned() -> None:
    assert {library.key for library in LIBRARIES} == {name.partition(" ")[0] for name in TUNED}


HYDRA = """
import logging
import hydra

@hydra.main(version_base=None, config_path=".", config_name="config")
def main(given):
    assert isinstance(given.optimizer.lr, float)
    logging.getLogger(__name__).info("accuracy=%s", given.optimizer.lr + given.layers)

main()
"""


def test_a_hydra_program_is_tuned_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HYDRA)
    (tmp_path / "config.yaml").write_text("optimizer: {lr: 0.1}\nlayers: 2\n")
    words = ["--as", "hydra", "--optimizer.lr", "1e-5..1e-2", "--layers", "1..3", "--trials", "2"]
    _podium(tmp_path, "tune", "train.py", *words)
    best = json.loads(_podium(tmp_path, "experiment", "best", "train", "--json"))
    given = best["parameters"]
    assert best["value"] == pytest.approx(float(given["optimizer.lr"]) + int(given["layers"]))


def test_a_notebook_is_tuned_as_it_is(tmp_path: Path) -> None:
    parameters = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "lr = 0.1"}
    prints = {"cell_type": "code", "metadata": {}, "source": "print(f'accuracy={lr * 2}')"}
    cells = [
        {"execution_count": None, "outputs": [], "id": f"cell-{number}", **cell}
        for number, cell in enumerate((parameters, prints))
    ]
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    _podium(tmp_path, "tune", "train.ipynb", "--lr", "1e-5..1e-2", "--trials", "2")
    best = json.loads(_podium(tmp_path, "experiment", "best", "train", "--json"))
    assert best["value"] == pytest.approx(2 * float(best["parameters"]["lr"]))
    assert len(list(tmp_path.glob("home/trials/*/train.ipynb"))) == 2


def test_the_best_adapter_is_kept_evaluated_and_promoted(tmp_path: Path) -> None:
    folder = tmp_path / "lora"
    shutil.copytree(ROOT / "examples" / "lora", folder)
    subprocess.run([PYTHON, "make_data.py"], cwd=folder, check=True, timeout=300)
    outcome = json.loads(_podium(folder, "run", "--json", "max_trials=4"))
    assert outcome["decision"]["outcome"] == "promoted"
    assert outcome["test"]["metrics"]["accuracy"] > 0.6
    (version,) = (folder / "home" / "store" / "models" / "lora" / "versions").iterdir()
    kept = {file.name for file in version.iterdir()}
    assert {"adapter_model.safetensors", "predict.py", "base", "model.json"} <= kept
    assert not [name for name in kept if name.startswith("checkpoint")]
    predicted = _podium(
        folder,
        "predict",
        "my lamp is broken. the courier was friendly this time.",
        "--model",
        "lora",
    )
    assert any(topic in predicted for topic in ("delivery", "fault", "payment", "question"))
