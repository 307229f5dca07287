"""Models made elsewhere: uploaded, compared, promoted, and asked for predictions."""

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from podium.data import artifact
from podium.data.blocks import Selection
from podium.data.held_out import HeldOut
from podium.data.near import NearItems
from podium.data.seen import SeenItems
from podium.models import open_registry
from podium.models.shared_items import predictions
from podium.prediction import Outcome, open_model, predictor
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.storage import connect
from podium.storage.transfer import put
from podium.training.import_model import ModelSource

pytestmark = pytest.mark.whole

Typed = Callable[..., tuple[int, str, str]]
PREDICT = """
import argparse, pathlib, {imports}
import numpy as np
parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
table = np.load(given.inputs + "/table.npy")
print("predicts", len(table), "rows")
pathlib.Path("left-behind.txt").write_text("by the command")
np.save(given.output, {result})
"""
BY_BAYES = {"imports": "bayes", "result": "bayes.probabilities(table)"}
BAYES = """
import numpy as np
def probabilities(table):
    model = np.load("bayes.npz")
    surprise = (table[:, None] - model["theta"]) ** 2 / model["var"] + np.log(2 * np.pi * model["var"])
    scores = np.log(model["prior"]) - surprise.sum(2) / 2
    rows = np.exp(scores - scores.max(1, keepdims=True))
    return rows / rows.sum(1, keepdims=True)
"""  # scikit-learn's GaussianNB, without seconds of imports at each call
BY_RULE = {"imports": "os", "result": "np.eye(3)[(table[:, 0] > 13).astype(int)]"}


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's wines as a CSV file, and prepared."""
    folder = tmp_path_factory.mktemp("wine")
    data = load_wine()
    with (folder / "wine.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*data.feature_names, "grape"])
        writer.writerows(
            [*row, f"grape {label}"] for row, label in zip(data.data, data.target, strict=True)
        )
    prepare_data(
        DataSettings(dataset=f"table:{folder / 'wine.csv'}", target="grape"), folder / "data"
    )
    return folder


@pytest.fixture(scope="module")
def fitted(wine: Path) -> dict[str, Any]:
    """Fitted models by name."""
    part = artifact.load(wine / "data", "train")
    rows, labels = np.asarray(part.inputs["table"]), np.asarray(part.target)
    return {
        "logistic": LogisticRegression(max_iter=5000).fit(rows, labels),
        "weak": LogisticRegression(max_iter=5000, C=1e-6).fit(rows, labels),
        "bayes": GaussianNB().fit(rows, labels),
        "whole": LogisticRegression(max_iter=5000).fit(load_wine().data, load_wine().target),
    }


@pytest.fixture
def graph(fitted: dict[str, Any], tmp_path: Path) -> Callable[[str], Path]:
    """Save a fitted model as ONNX, in a directory that nothing of podium wrote."""

    def save(name: str) -> Path:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType

        types = [("table", FloatTensorType([None, 13]))]
        made = to_onnx(
            fitted[name], initial_types=types, options={"zipmap": False}, target_opset=18
        )
        target = tmp_path / name
        target.mkdir()
        (target / "model.onnx").write_bytes(made.SerializeToString())
        (target / "metrics.json").write_text(json.dumps({"accuracy": 0.5}))
        return target

    return save


@pytest.fixture
def command(fitted: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """Save a directory with a predict command."""

    def save(**script: str) -> Path:
        target = tmp_path / "command"
        target.mkdir()
        text = PREDICT
        for name, words in (script or BY_BAYES).items():
            text = text.replace(f"{{{name}}}", words)
        (target / "predict.py").write_text(text)
        (target / "bayes.py").write_text(BAYES)
        bayes = fitted["bayes"]
        np.savez(target / "bayes.npz", theta=bayes.theta_, var=bayes.var_, prior=bayes.class_prior_)
        (target / "model.json").write_text('{"predict": ["python", "predict.py"]}')
        return target

    return save


@pytest.fixture(params=["files", "moto"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    new_bucket: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """URL of an empty store."""
    url = new_bucket("moto") if request.param == "moto" else str(tmp_path / "store")
    monkeypatch.setenv("PODIUM_STORAGE", url)
    return url


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Path of an empty store."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    return str(tmp_path / "store")


def accuracy(model: Any, data: Path) -> float:
    part = artifact.load(data, "test")
    return float((model.predict(part.inputs["table"]) == part.target).mean())


def test_a_graph_from_elsewhere_is_promoted_and_predicts(
    store: str, graph: Callable[[str], Path], wine: Path, fitted: dict[str, Any], typed: Typed
) -> None:
    weak, strong = graph("weak"), graph("logistic")
    if store.startswith("s3:"):
        put(strong, connect(f"{store}/elsewhere/wine"), overwrite=False, progress=lambda size: None)
    source = f"{store}/elsewhere/wine" if store.startswith("s3:") else str(strong)
    code, out, _ = typed(
        "models", "upload", "wine", weak, "--data", wine / "data", "--version", "first"
    )
    (guess,) = re.findall(r" on the test part \((always 'grape \d': 0\.\d{4})\)", out)
    assert guess in " ".join(typed("models", "show", "wine", "first")[1].split())
    _, _, err = typed("models", "promote", "wine", "first", "--rule", "better")
    assert (code, err.count(guess)) == (0, 1)
    code, out, err = typed("models", "upload", "wine", source, "--data", wine / "data", "--json")
    assert (code, len(err.splitlines())) == (0, 1)
    version = json.loads(out)
    assert set(version["files"]) == {
        "model.onnx", "metrics.json", "predictions.npy", "target.npy", "test-items.npy", "preprocessing.json", "profile.json"
    }  # fmt: skip
    assert version["metrics"]["accuracy"] == accuracy(fitted["logistic"], wine / "data")
    assert version["reported"] == {"accuracy": 0.5}
    assert version["origin"]["source"].endswith(
        "elsewhere/wine" if store.startswith("s3:") else "/logistic"
    )

    code, _, err = typed(
        "models", "promote", "wine", version["version"], "--rule", "better,metric=log_loss"
    )
    assert (code, "log_loss" in err) == (0, True)
    code, out, _ = typed("predict", wine / "wine.csv", "--model", "wine", "--json")
    given = [prediction["class"] for prediction in json.loads(out)["predictions"]]
    rows = load_wine().data.astype(np.float32)
    assert given == [f"grape {label}" for label in fitted["logistic"].predict(rows)]


def test_nobody_knows_what_an_upload_has_learned(
    files: str, graph: Callable[[str], Path], wine: Path, typed: Typed
) -> None:
    """It may know the test items by heart, and no file of it says so."""
    said = "it is not known which items wine whole was trained on"
    _, _, err = typed(
        "models", "upload", "wine", graph("whole"), "--data", wine / "data", "--version", "whole"
    )
    assert said in err
    for data in ((), ("--data", wine / "data")):
        *_, err = typed("models", "promote", "wine", "whole", "--rule", "likely", *data)
        assert said in err


def test_nearly_seen_items_stay_out_of_stored_comparisons(
    files: str, graph: Callable[[str], Path], wine: Path
) -> None:
    place, held_out = graph("weak"), HeldOut.open(wine / "data")
    six = Selection(part=held_out.part, index=np.arange(6))
    near = NearItems.of([six], held_out.info.inputs)
    assert near
    seen = SeenItems(hashes=np.empty(0, np.uint64), near=(near,))
    (place / "seen.npz").write_bytes(seen.to_bytes())
    model = open_registry(files).model("wine")
    version = ModelSource(uri=str(place), data=str(wine / "data")).upload(model, "first")
    for data in (None, str(wine / "data")):
        assert len(predictions([version], data).items) == len(held_out) - 6


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_command_is_scored_promoted_and_predicts(
    store: str, command: Callable[..., Path], graph: Callable[[str], Path], wine: Path, fitted: dict[str, Any],
    typed: Typed,
) -> None:  # fmt: skip
    typed("models", "upload", "wine", graph("weak"), "--data", wine / "data", "--version", "first")
    typed("models", "promote", "wine", "first")
    code, out, err = typed("models", "upload", "wine", command(), "--data", wine / "data", "--json")
    assert code == 0, err
    version = json.loads(out)
    assert {
        "bayes.npz",
        "bayes.py",
        "predict.py",
        "model.json",
        "target.npy",
        "preprocessing.json",
    } < set(version["files"])
    assert "left-behind.txt" not in version["files"]
    assert version["metrics"]["accuracy"] == accuracy(fitted["bayes"], wine / "data")
    assert typed("models", "promote", "wine", version["version"], "--rule", "better")[0] == 0

    code, out, err = typed(
        "models", "diff", "wine", "first", "champion", "--data", wine / "data", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["value"] == version["metrics"]["accuracy"]
    code, out, err = typed("predict", wine / "wine.csv", "--model", "wine", "--json")
    assert code == 0, err
    assert "predicts 178 rows" in err
    found = json.loads(out)["predictions"]
    probabilities = fitted["bayes"].predict_proba(load_wine().data.astype(np.float32))
    assert [row["class"] for row in found] == [
        f"grape {label}" for label in probabilities.argmax(1)
    ]
    assert found[0]["probabilities"]["grape 0"] == pytest.approx(probabilities[0, 0], abs=1e-5)


def test_without_data_reported_numbers_are_not_test_metrics(
    files: str, graph: Callable[[str], Path], wine: Path, typed: Typed
) -> None:
    code, out, err = typed("models", "upload", "wine", graph("weak"), "--version", "first")
    assert (code, out.split(":")[0]) == (0, "wine first")
    assert "no preprocessing.json" in err
    version = open_registry(files).model("wine").version("first")
    assert (version.facts.value, version.metadata["reported"]) == (None, {"accuracy": 0.5})
    assert set(version.files) == {"model.onnx", "metrics.json"}
    assert "reported" in typed("models", "show", "wine", "first")[1]

    typed("models", "upload", "wine", graph("logistic"), "--version", "second")
    typed("models", "promote", "wine", "first")
    code, _, err = typed("models", "promote", "wine", "second", "--rule", "better")
    assert (code, "--data URI" in err) == (2, True)
    assert (
        typed("models", "promote", "wine", "second", "--rule", "better", "--data", wine / "data")[0]
        == 0
    )


def test_an_exported_version_goes_into_another_registry(
    files: str, graph: Callable[[str], Path], wine: Path, tmp_path: Path, typed: Typed
) -> None:
    model = graph("logistic")
    (model / "checkpoint-3").mkdir()
    (model / "checkpoint-3" / "optimizer").write_bytes(b"")
    typed(
        "models",
        "upload",
        "wine",
        model,
        "--data",
        wine / "data",
        "--version",
        "first",
        "--metric",
        "f1_macro",
    )
    typed("models", "export", "wine", "first", tmp_path / "exported")
    other = [
        "--storage",
        str(tmp_path / "other"),
        "--data",
        str(wine / "data"),
        "--metric",
        "f1_macro",
    ]
    assert (
        typed("models", "upload", "wine", tmp_path / "exported", "--version", "first", *other)[0]
        == 0
    )
    ours, theirs = (
        open_registry(url).model("wine").version("first") for url in (files, tmp_path / "other")
    )
    assert ours.files == theirs.files
    assert ours.facts.metric.name == theirs.facts.metric.name == "f1_macro"
    assert ours.metadata["metrics"] == theirs.metadata["metrics"]


def test_the_same_upload_twice_makes_one_version(
    files: str, graph: Callable[[str], Path], wine: Path, typed: Typed
) -> None:
    words = ["models", "upload", "wine", graph("logistic"), "--data", wine / "data"]
    assert typed(*words)[1] == typed(*words)[1]
    assert len(open_registry(files).model("wine").versions) == 1
    code, _, err = typed(*words, "--metric", "f1_macro")
    assert (code, "another metric" in err) == (1, True)


def damage(directory: Path, how: str) -> None:
    if how == "no model":
        (directory / "model.onnx").unlink()
    elif how == "link":
        (directory / "weights.bin").symlink_to("/etc/hosts")
    elif how == "folder that is a link":
        (directory / "more").symlink_to(directory.parent)
    elif how == "damaged graph":
        (directory / "model.onnx").write_bytes(b"PK, a zip file")
    elif how == "other data":
        (directory / "metrics.json").write_text('{"dataset": "0123"}')
    elif how == "metrics":
        (directory / "metrics.json").write_text("[1]")
    else:
        (directory / "preprocessing.json").write_text('{"kind": "sound"}')


@pytest.mark.parametrize(
    ("how", "code", "problem"),
    [
        ("no model", 1, "has neither model.onnx nor model.json, only metrics.json"),
        ("link", 2, "has links or special files, which are not followed: weights.bin"),
        ("folder that is a link", 2, "has links or special files, which are not followed: more"),
        ("damaged graph", 1, "logistic/model.onnx is not an ONNX model"),
        ("other data", 2, "was trained on dataset 0123, but is evaluated on"),
        ("metrics", 2, "metrics.json"),
        ("preprocessing", 2, "preprocessing of kind 'sound' is not known"),
    ],
)
def test_a_bad_directory_is_refused_and_nothing_stored(
    how: str,
    code: int,
    problem: str,
    files: str,
    graph: Callable[[str], Path],
    wine: Path,
    typed: Typed,
) -> None:
    directory = graph("logistic")
    damage(directory, how)
    ended, out, err = typed("models", "upload", "wine", directory, "--data", wine / "data")
    assert (ended, out) == (code, ""), err
    assert problem in err
    assert "Traceback" not in err
    assert not Path(files).exists()


@pytest.mark.parametrize(
    ("script", "document", "problem"),
    [
        ({"imports": "os", "result": "np.ones((3, 3)) / 3"}, None, "predictions for"),
        ({"imports": "os", "result": "exit('out of wine')"}, None, "out of wine"),
        (BY_RULE, '{"predict": []}', "is empty"),
        (BY_RULE, '{"run": "predict.py"}', "model.json"),
        (BY_RULE, '{"predict": ["no-such-program"]}', "'no-such-program' cannot be started"),
    ],
)
def test_a_command_that_fails_is_not_stored(
    script: dict[str, str], document: str | None, problem: str, files: str, command: Callable[..., Path], wine: Path,
    typed: Typed,
) -> None:  # fmt: skip
    directory = command(**script)
    if document:
        (directory / "model.json").write_text(document)
    code, out, err = typed("models", "upload", "wine", directory, "--data", wine / "data")
    assert (code in (1, 2), out) == (True, ""), err
    assert problem in err
    assert "Traceback" not in err
    assert not Path(files).exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["wine", ".", "--metric", "rmse"],
            "rmse is measured on a test part, but no dataset is given",
        ),
        (["wine", ".", "--version", "a/b"], "a/b"),
        (["wi ne", "."], "wi ne"),
        (["wine", "nowhere"], "there is no directory nowhere"),
    ],
)
def test_wrong_words_are_usage_errors(
    words: list[str], problem: str, files: str, typed: Typed
) -> None:
    code, out, err = typed("models", "upload", *words)
    assert (code, out, problem in err) == (2, "", True), err


def test_a_graph_of_another_name_is_told_where_it_belongs(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my net.onnx").touch()
    Path("a.csv").touch()
    for words in (
        ("models", "upload", "wine", "my net.onnx"),
        ("serve", "./my net.onnx"),
        ("predict", "a.csv", "--file", "my net.onnx"),
    ):
        code, _, err = typed(*words)
        assert (code, "my net.onnx is a file, but a model is a directory" in err) == (2, True), err
        make = err.partition("hint: ")[2].partition(", and name ")[0]
        subprocess.run(make, shell=True, check=True)
        Path("my net/model.onnx").unlink()
        Path("my net").rmdir()


def test_a_directory_predicts_without_being_changed(
    files: str, command: Callable[..., Path], wine: Path, typed: Typed
) -> None:
    directory = command(**BY_RULE)
    before = sorted(directory.rglob("*"))
    for file in (directory, directory / "model.json"):
        code, out, err = typed(
            "predict", wine / "wine.csv", "--file", file, "--data", wine / "data"
        )
        assert (code, len(out.splitlines())) == (0, 178), err
    assert sorted(directory.rglob("*")) == before
    code, _, err = typed("predict", wine / "wine.csv", "--file", directory)
    assert (code, "does not say how" in err) == (2, True)


def test_all_items_are_predicted_in_one_call(
    command: Callable[..., Path],
    wine: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = (wine / "wine.csv").read_text().splitlines()
    odd = tmp_path / "odd.csv"
    odd_rows = lines[60:65]  # others than the first ones, which the rule takes for the other class
    odd_rows[2] = "strong" + odd_rows[2][odd_rows[2].index(",") :]
    odd.write_text("\n".join([lines[0], *odd_rows]))
    model = open_model(command(**BY_RULE))
    items = [str(wine / "wine.csv"), str(odd), str(wine / "wine.csv")]
    gathered = list(model.stream(items, data=wine / "data"))
    assert capfd.readouterr().err.splitlines() == ["predicts 360 rows"]
    monkeypatch.setattr(predictor, "ONE_CALL", 1)
    single = list(model.stream(items, data=wine / "data"))
    assert capfd.readouterr().err.splitlines() == [
        "predicts 178 rows",
        "predicts 4 rows",
        "predicts 178 rows",
    ]
    assert gathered == single
    assert [at for at, result in enumerate(gathered) if not isinstance(result, Outcome)] == [182]
    classes = [result.label for result in gathered if isinstance(result, Outcome)]
    assert classes[:4] == classes[182:186] == ["grape 1"] * 4
    assert classes[178:182] == ["grape 0", "grape 0", "grape 1", "grape 0"]


def test_a_command_runs_only_for_a_named_model(
    files: str, command: Callable[..., Path], wine: Path, typed: Typed
) -> None:
    typed(
        "models",
        "upload",
        "wine",
        command(**BY_RULE),
        "--data",
        wine / "data",
        "--version",
        "first",
    )
    typed("models", "promote", "wine", "first")
    code, out, err = typed("predict", wine / "wine.csv")
    assert (code, out) == (2, "")
    assert "wine first predicts by a command that is stored with it" in err
    assert "--model wine" in err
    assert "predicts 178" not in err
    assert (
        typed("predict", wine / "wine.csv", "--model", "wine", "--output", Path(files) / "out.csv")[
            0
        ]
        == 0
    )


def test_an_image_is_kept_for_the_cluster(
    files: str, command: Callable[..., Path], typed: Typed
) -> None:
    typed(
        "models",
        "upload",
        "wine",
        command(**BY_RULE),
        "--image",
        "team/wine:3",
        "--version",
        "first",
    )
    assert open_registry(files).model("wine").version("first").metadata["image"] == "team/wine:3"
