"""Upload the winner to the registry, with metadata that says how it was made."""

from pathlib import Path
from typing import Any

from podium.documents import read_json
from podium.identity import code_version
from podium.steps.base import say, step
from podium.steps.evaluate import PREDICTIONS
from podium.steps.handover import read_evaluation
from podium.steps.target import storage_url


@step
def upload_model(
    model: str | Path,
    evaluation: str | Path,
    *,
    beside: str,
    model_name: str,
    storage: str = "",
    image: str = "",
) -> str:
    """Upload a version; uploading the same twice makes one version.

    Args:
        model: Model directory of the winner.
        evaluation: The file written by evaluate.
        beside: URI of an artifact of the run; its bucket is used if no storage is given.
        model_name: Name in the registry.
        storage: URL of the storage.
        image: Container image the model was trained in.

    Returns:
        Name of the version: the run id.

    Raises:
        Conflict: The run has already uploaded another model under this name.
    """
    from podium.registry import open_registry

    directory = Path(model)
    measured = read_evaluation(Path(evaluation))
    files: dict[str, Path | bytes] = {
        str(file.relative_to(directory)): file for file in sorted(directory.rglob("*")) if file.is_file()
    }
    registered = open_registry(storage_url(storage, beside))[model_name]
    version = registered.upload(files, _metadata(directory, measured, image)).version
    size = sum((directory / file).stat().st_size for file in files)
    say(f"{model_name} {version}: {len(files)} files, {size / 1e6:.1f} MB")
    return version


def _metadata(directory: Path, measured: dict[str, Any], image: str) -> dict[str, Any]:
    winner, test = measured["winner"], measured["test"]
    validation = next(one["validation"] for one in measured["candidates"] if one["uri"] == winner["uri"])
    environment = directory / "environment.json"
    return {
        "run_id": measured["run_id"],
        "hyperparameters": winner["hyperparameters"],
        "metrics": {
            "accuracy": test["accuracy"], "loss": test["loss"], "validation_accuracy": validation["accuracy"],
            "validation_loss": validation["loss"],
        },
        "report": {"classes": test["classes"], "confusion": test["confusion"]},
        "predictions": PREDICTIONS,
        "dataset": measured["dataset"],
        "origin": {key: winner[key] for key in ("kind", "name", "experiment", "uri", "why")},
        "image": image or None,
        "code_version": code_version(),
        "environment": read_json(environment) if environment.is_file() else None,
    }  # fmt: skip
