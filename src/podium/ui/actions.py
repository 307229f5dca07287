"""Actions of the pages, each the library call that shell and notebook make; each returns a message
for the user."""

from collections.abc import Callable, Mapping
from typing import Any

import podium
from podium.api.sweep import Sweep
from podium.errors import InvalidInput
from podium.kfp.runs import find_run, terminate
from podium.models.promotion import NotPromoted
from podium.runner.detached import begin
from podium.serving.raw import predict_raw, read_raw
from podium.ui.house import House


def _stop_run(house: House, fields: Mapping[str, Any], *, run: str) -> str:
    """Stop a run on this machine, whichever process carries it out."""
    podium.runs()[run].stop()
    return f"run {run} is stopped"


def resume_run(house: House, fields: Mapping[str, Any], *, run: str) -> str:
    """Resume a run in a process of its own, which outlives the page."""
    begin("resume_run", {"run": run})
    return f"run {run} goes on"


def _stop_server_run(house: House, fields: Mapping[str, Any], *, run: str) -> str:
    """Cancel a run of the server."""
    server = house.server
    if server is None:
        raise InvalidInput("no server is shown", "podium ui --server URL")
    terminate(server, str(find_run(server, run).run_id))
    return f"run {run} is being cancelled"


def _stop_sweep(house: House, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Stop a sweep, whichever process runs it."""
    house.cluster(run).stop("Experiment", name)
    return f"sweep {name} is being stopped"


def resume_sweep(house: House, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Resume a sweep: on a cluster by its engine, on this machine in a process of its own."""
    cluster = house.cluster(run)
    if cluster.outlives_client("Experiment"):
        Sweep(house.spec, name, cluster).resume(wait=False)
    else:
        cluster.experiment(name)  # there is one
        begin("resume_sweep", {"name": name, "cluster": house.url(run)})
    return f"sweep {name} goes on"


def analyse(house: House, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Open optuna-dashboard on a copy of a sweep's study."""
    directory = house.cluster(run).directory("Experiment", name)
    if directory is None:
        raise InvalidInput(
            f"the study of {name} is not on this machine", "sweeps of this machine have theirs here"
        )
    return (
        f"optuna-dashboard shows a copy of the study as of now: {house.dashboards.open(directory)}"
    )


def stop_trial(
    house: House, fields: Mapping[str, Any], *, name: str, trial: str, run: str = ""
) -> str:
    """End a running trial; it counts with the metrics it has reported."""
    house.cluster(run).stop("Trial", trial)
    return f"trial {trial} is being stopped"


def add_trial(house: House, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Start a trial with values of the user's own; a sweep that does not run is resumed for it, in
    a process of its own."""
    cluster = house.cluster(run)
    values = {parameter: str(value) for parameter, value in fields.items()}
    if not cluster.experiment(name).state.finished:
        return f"trial {cluster.add_trial(name, values)} begins"
    begin("add_trial", {"name": name, "cluster": house.url(run), "values": values})
    return f"sweep {name} goes on with one more trial"


def promote(house: House, fields: Mapping[str, Any], *, name: str) -> str:
    """Make a version champion, by a rule or in any case."""
    version = str(fields.get("version", ""))
    try:
        house.registry.registry[name].promote(version, rule=fields.get("rule") or None)
    except NotPromoted as refusal:
        return "\n".join([refusal.message, *refusal.decision.reasons])
    finally:
        house.registry.forget()
    return f"{version} is champion of {name}"


def approve(house: House, fields: Mapping[str, Any], *, name: str) -> str:
    """Say yes to a version that waits for a person; it is compared once more."""
    version = str(fields.get("version", ""))
    try:
        house.registry.registry[name].approve(version, str(fields.get("reason", "")))
    except NotPromoted as refusal:
        return "\n".join([refusal.message, *refusal.decision.reasons])
    finally:
        house.registry.forget()
    return f"{version} is champion of {name}"


def reject(house: House, fields: Mapping[str, Any], *, name: str) -> str:
    """Say no to a version that waits for a person."""
    record = house.registry.registry[name].reject(
        str(fields.get("version", "")), str(fields.get("reason", ""))
    )
    return f"{record.version} of {name} is rejected"


def _roll_back(house: House, fields: Mapping[str, Any], *, name: str) -> str:
    """Make the champion before this one champion again."""
    moved = house.registry.registry[name].rollback()
    house.registry.forget()
    return f"{moved.version} is champion of {name} again, in place of {moved.replaced}"


def try_model(house: House, body: bytes, media: str, *, name: str) -> list[dict[str, Any]]:
    """Return the champion's predictions for raw items.

    Raises:
        InvalidInput: It takes other items.
    """
    kind, content = read_raw(body, media)
    return predict_raw(house.registry.predictor(name), kind, content)


Action = Callable[..., str]

ACTIONS: Mapping[str, Action] = {
    "/runs/{run}/stop": _stop_run,
    "/runs/{run}/resume": resume_run,
    "/server/{run}/stop": _stop_server_run,
    "/sweeps/{name}/stop": _stop_sweep,
    "/sweeps/{name}/resume": resume_sweep,
    "/sweeps/{name}/analyse": analyse,
    "/runs/{run}/sweeps/{name}/analyse": analyse,
    "/sweeps/{name}/add": add_trial,
    "/sweeps/{name}/trials/{trial}/stop": stop_trial,
    "/runs/{run}/sweeps/{name}/add": add_trial,
    "/runs/{run}/sweeps/{name}/trials/{trial}/stop": stop_trial,
    "/runs/{run}/sweeps/{name}/stop": _stop_sweep,
    "/runs/{run}/sweeps/{name}/resume": resume_sweep,
    "/models/{name}/promote": promote,
    "/models/{name}/approve": approve,
    "/models/{name}/reject": reject,
    "/models/{name}/rollback": _roll_back,
}
"""Actions by the path they are posted to."""
