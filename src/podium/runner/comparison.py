"""Pages that compare runs, or versions of a model."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.display.text import when
from podium.errors import InvalidInput, PodiumError
from podium.files.documents import write_file
from podium.models.document import command
from podium.prediction.directory import ModelDirectory
from podium.reports import Compared, render_comparison
from podium.runner.record import RunRecord
from podium.runner.run import Run
from podium.training.identity import ATTEMPT
from podium.training.kept_logs import hide
from podium.training.trained import TrainedMetrics

if TYPE_CHECKING:
    from podium.models import Model, Version
    from podium.runner.runs import Runs

PLACES = ("storage", "cluster")
"""Parameters that say where a run is, not what it computes."""


def compare_runs(runs: Sequence[Run], path: Path) -> None:
    """Write the HTML page that compares runs, whole or not at all.

    Raises:
        InvalidInput: They are fewer than two.
        PodiumError: The file cannot be written.
    """
    _write({run.id: _of_run(run) for run in runs}, "runs", path, "podium runs list")


def compare_versions(model: "Model", refs: Sequence[str], runs: "Runs", path: Path) -> None:
    """Write the HTML page that compares versions of a model, whole or not at all.

    Args:
        refs: Ids of versions, or aliases.
        runs: A version whose run is among them is shown with its steps.

    Raises:
        NotFound: There is no such version.
        InvalidInput: They are fewer than two.
        PodiumError: The file cannot be written.
    """
    versions = {version.version: version for version in map(model.version, refs)}
    champion = model.find_champion()
    rows = {name: _of_version(version, champion, runs) for name, version in versions.items()}
    listed = command(f"models list {model.name}", model.storage)
    _write(rows, f"versions of {model.name}", path, listed)


def _write(rows: Mapping[str, Compared], noun: str, path: Path, hint: str) -> None:
    if len(rows) < 2:
        raise InvalidInput(
            f"a comparison needs two {noun} or more, but got {', '.join(rows) or 'none'}", hint
        )
    write_file(path, render_comparison(list(rows.values()), noun))


def _of_run(run: Run) -> Compared:
    outcome: Mapping[str, Any] = {}
    if run.state == "succeeded":
        with suppress(PodiumError):  # its directory is damaged: what run.json says is shown
            outcome = run.outcome
    measured: dict[str, Any] = {"metrics": _numbers(run.outputs)}
    if "decision" in outcome:
        winner = next(
            each for each in outcome["candidates"] if each["uri"] == outcome["winner"]["uri"]
        )
        measured = {
            "metrics": outcome["test"]["metrics"],
            "metric": outcome["metric"]["name"],
            "maximize": outcome["metric"]["maximize"],
            "epochs": winner["epochs"],
            "test": outcome["dataset"]["test_part"] or outcome["dataset"]["test_digest"],
        }
    trained = outcome["winner"]["hyperparameters"] if "decision" in outcome else {}
    return Compared(
        name=run.id,
        state=run.state,
        began=when(run.began),
        result=run.result,
        steps=_steps(run.record),
        parameters=_parameters(run.parameters, trained),
        **measured,
    )


def _of_version(version: "Version", champion: "Version | None", runs: "Runs") -> Compared:
    facts, epochs, steps = version.facts, [], {}
    with suppress(PodiumError):  # a trainer of one's own keeps another record, or none
        epochs = TrainedMetrics.read(ModelDirectory(version.storage.join(version.prefix))).epochs
    parameters: Mapping[str, Any] = {}
    with suppress(PodiumError):  # its run was deleted, or was on another machine
        record = runs[(facts.run_id or version.version).partition(ATTEMPT)[0]].record
        steps, parameters = _steps(record), record.parameters
    return Compared(
        name=version.version,
        state="champion" if champion and champion.version == version.version else "version",
        began=when(version.created),
        parameters=_parameters(parameters, version.hyperparameters),
        metrics=_numbers(version.metrics),
        metric=facts.metric.name or "",
        maximize=facts.metric.maximize is not False,
        epochs=epochs,
        steps=steps,
        test=facts.dataset.test_part or facts.dataset.test_digest or "",
    )


def _parameters(parameters: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, str]:
    # Parameters that the model was trained with win over the run's, such as epochs.
    named = {name: value for name, value in parameters.items() if name not in PLACES}
    return {name: hide(str(value), ()) for name, value in {**named, **trained}.items()}


def _steps(record: RunRecord) -> dict[str, float]:
    return {
        step.title: step.elapsed
        for step in record.steps.values()
        if step.started is not None or step.is_done
    }


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
