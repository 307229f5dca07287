"""Upload the winner to the registry, with metadata that says how it was made."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.code.reference import Code
from podium.display.text import plural, size
from podium.files.documents import load_json
from podium.models import open_registry
from podium.models.document import name_for
from podium.models.task import Task
from podium.models.upload import Content
from podium.models.version import PREDICTIONS
from podium.prediction.directory import ModelDirectory
from podium.training.base import say
from podium.training.handover import Evaluation
from podium.training.identity import StepContext, code_version
from podium.training.origin import Origin


def upload_model(
    step: StepContext,
    model: str,
    predictions: str | Path,
    evaluation: str | Path,
    *,
    model_name: str,
) -> str:
    """Upload a version, byte for byte what was evaluated; uploading the same twice makes one
    version.

    Args:
        model: URI of the winner's model directory.
        predictions: The directory written by evaluate; its files become part of the version.
        evaluation: The file written by evaluate.
        model_name: Empty for that of the dataset.

    Returns:
        Name of the version: the run id.

    Raises:
        InvalidInput: The model of this name is for another task.
        Conflict: The model changed after the evaluation, or the run has uploaded another one under
            this name.
    """
    measured = Evaluation.read(Path(evaluation))
    data = measured.dataset
    registered = open_registry(step.storage).model(model_name or name_for(data.name))
    classes = tuple(data.classes)
    task = Task(dataset=data.name, kind=data.kind, target=data.target, classes=classes)
    task.require_same_model(registered)
    with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
        files = {
            **ModelDirectory(model).fetch_evaluated(
                measured.winner.files, measured.winner.etags, Path(scratch)
            ),
            **{file.name: file for file in sorted(Path(predictions).iterdir())},
        }
        version = registered.upload(files, _metadata(files, measured))
    say(f"{version.title}: {plural(len(files), 'file')}, {size(version.size)}")
    return version.version


def _metadata(files: Mapping[str, Content], measured: Evaluation) -> dict[str, Any]:
    winner, written = measured.winner, asdict(measured)
    environment = files.get("environment.json")
    assert environment is None or isinstance(
        environment, Path
    )  # fetch_evaluated downloads what is JSON
    return {
        "run_id": measured.run_id,
        "hyperparameters": winner.hyperparameters,
        "metric": written["metric"],
        "metrics": measured.metrics,
        "constant": written["test"]["constant"] or None,
        "report": {name: written["test"][name] for name in ("classes", "confusion")},
        "predictions": PREDICTIONS,
        "dataset": written["dataset"],
        "origin": {
            key: getattr(winner, key) for key in ("kind", "name", "experiment", "uri", "why")
        },
        "trial": _trial(measured),
        "image": winner.image or None,
        "code": _code(winner),
        "code_version": code_version(),
        "environment": environment and load_json(environment.read_bytes(), "environment.json"),
    }


def _trial(measured: Evaluation) -> dict[str, Any] | None:
    """Describe the winning trial, or the trial whose hyperparameters the winner was trained with;
    None of an ensemble."""
    if not (sweep := measured.sweep) or measured.winner.kind == "ensemble":
        return None
    name = measured.winner.name if measured.winner.kind == "trial" else sweep.best
    return {"name": name, "experiment": sweep.experiment, "metrics": sweep.measured(name)}


def _code(winner: Origin) -> dict[str, Any] | None:
    if not winner.code:
        return None
    digest = Code.parse(winner.code).digest
    return {
        "uri": winner.code,
        "digest": digest,
        "install_requirements": winner.install_requirements,
    }
