"""Models of scikit-learn that go through the real steps: prepare, evaluate, upload, promote, in one directory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from pyarrow import parquet
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

from podium.data import artifact
from podium.models import open_registry
from podium.prediction import ModelDirectory
from podium.steps.evaluate import _EvaluationResult, evaluate
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.steps.process import current_run
from podium.steps.promote import promote
from podium.steps.upload_model import upload_model
from podium.training.identity import StepContext
from podium.training.origin import Origin
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

TYPES = {"float32": FloatTensorType, "int64": Int64TensorType}


def fitted(data: Path, target: Path, model: Any) -> Path:
    """Train on the first input, and leave a model directory as a trainer of one's own would."""
    part, info = artifact.load(data, "train"), artifact.describe(data)
    name = next(iter(info.inputs))
    array = np.asarray(part.inputs[name])
    flat = array.reshape(len(array), -1)
    model.fit(flat, part.target)
    kind = FloatTensorType if array.ndim > 2 else TYPES[array.dtype.name]
    types = [("flat" if array.ndim > 2 else name, kind([None, flat.shape[1]]))]
    options = {"zipmap": False} if hasattr(model, "predict_proba") else None
    graph = to_onnx(model, initial_types=types, options=options)
    if array.ndim > 2:
        graph.graph.node.insert(0, helper.make_node("Flatten", ["numbers"], ["flat"]))
        graph.graph.node.insert(
            0, helper.make_node("Cast", [name], ["numbers"], to=TensorProto.FLOAT)
        )
        graph.graph.input[0].CopyFrom(
            helper.make_tensor_value_info(name, TensorProto.UINT8, ["n", *array.shape[1:]])
        )
    target.mkdir(parents=True)
    (target / "model.onnx").write_bytes(graph.SerializeToString())
    (target / "metrics.json").write_text(
        json.dumps({"accuracy": 0, "loss": 0, "epoch": 1, "dataset": info.digest})
    )
    Origin(
        kind="training", name=target.name, run_id="r", uri=str(target), hyperparameters={}
    ).write(ModelDirectory(target))
    return target


class Judge:
    """Runs the steps that judge models in one directory and reads what they wrote."""

    def __init__(self, data: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.place, self.monkeypatch = data, place, monkeypatch
        self.storage = str(place / "store")

    @property
    def step(self) -> StepContext:
        return StepContext(current_run, lambda: self.storage)

    @property
    def jobs(self) -> PredictJobs:
        target = LaunchTarget(cluster=f"local://{self.place}/cluster")
        return PredictJobs(step=self.step, target=target)

    def evaluate(
        self, *models: Path, metric: str = "", trials: Path | None = None
    ) -> tuple[_EvaluationResult, dict[str, Any]]:
        found = evaluate(
            self.step, self.data, [str(model) for model in models], self.place / "evaluation", self.place / "predictions",
            trials=trials, metric=metric, jobs=self.jobs,
        )  # fmt: skip
        return found, json.loads((self.place / "evaluation").read_text())

    def challenge(
        self, run: str, *models: Path, metric: str = "", rule: str = "better,baseline=any"
    ) -> dict[str, Any]:
        """Evaluate, upload and promote as one run; return the decision."""
        self.monkeypatch.setenv("PODIUM_RUN_ID", run)
        winner = self.evaluate(*models, metric=metric)[0].winner
        common = {"model_name": "real"}
        version = upload_model(
            self.step, winner, self.place / "predictions", self.place / "evaluation", **common
        )
        promote(self.step, self.data, self.place / "evaluation", self.place / "decision", self.place / "report.html",
                version=version, rule=rule, jobs=self.jobs, **common)  # fmt: skip
        return dict(json.loads((self.place / "decision").read_text()))


class Nights(Judge):
    """One model name over several nights, each with data and a model of its own."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(place, place, monkeypatch)
        self.night = 0

    def prepare(
        self, dataset: str, target: str = "", *, model_name: str = "real", **options: Any
    ) -> Path:
        """Prepare the data of the next night, as the pipeline does."""
        self.night += 1
        self.data = self.place / f"data-{self.night}"
        settings = DataSettings(dataset=dataset, target=target, data_options=options)
        prepare_data(settings, self.data, model_name=model_name, step=self.step)
        return self.data

    def train(self, model: Any, **rule: str) -> dict[str, Any]:
        """Train on the night's data and challenge the champion."""
        run = f"r{self.night}"
        return self.challenge(run, fitted(self.data, self.place / f"model-{run}", model), **rule)

    def predict_pictures(self, version: str) -> list[tuple[str, str]]:
        """Return what a version says of the night's test pictures as they came, and the class of each."""
        file, info = artifact.originals(self.data), artifact.describe(self.data)
        assert file is not None
        folder = self.place / f"pictures-{self.night}"
        folder.mkdir()
        rows = parquet.read_table(file).to_pylist()
        for at, row in enumerate(rows):
            (folder / f"{at:05}.png").write_bytes(row["picture"])
        predictor = open_registry(self.storage)["real"][version].opened
        truth = [info.classes[label] for label in artifact.load(self.data, "test").target]
        said = [outcome.label for outcome in predictor.stream([str(folder)])]  # type: ignore[union-attr]
        return list(zip(said, truth, strict=True))

    def predict_originals(self, version: str) -> list[Any]:
        """Return what ``podium predict`` says of the night's test items as they came, by a version."""
        file = artifact.originals(self.data)
        assert file is not None
        predictor = open_registry(self.storage)["real"][version].opened
        outcomes = predictor.stream([str(file)])
        return [outcome.values[0] if outcome.values else outcome.label for outcome in outcomes]  # type: ignore[union-attr]
