"""Actions of the pages, each the library call that shell and notebook make; each returns a message
for the user."""

from collections.abc import Callable, Mapping
from typing import Any

import podium
from podium.api.sweep import Sweep
from podium.errors import InvalidInput
from podium.kfp.runs import ServerRuns
from podium.models import Model
from podium.models.decision import NotPromoted
from podium.runner.detached import begin
from podium.ui.sources import Sources
from podium.ui.sweeps import SWEEPS


def _stop_run(sources: Sources, fields: Mapping[str, Any], *, run: str) -> str:
    podium.runs()[run].stop()
    return f"run {run} is stopped"


def _resume_run(sources: Sources, fields: Mapping[str, Any], *, run: str) -> str:
    begin("resume_run", {"run": podium.runs()[run].id})
    return f"run {run} continues"


def _stop_server_run(sources: Sources, fields: Mapping[str, Any], *, run: str) -> str:
    server = sources.server
    if server is None:
        raise InvalidInput("no server is shown", "podium ui --server URL")
    runs = ServerRuns(server)
    runs.terminate(runs[run].id)
    return f"run {run} is being cancelled"


def _stop(
    sources: Sources, fields: Mapping[str, Any], *, name: str, trial: str = "", run: str = ""
) -> str:
    sources.cluster(run).stop("Trial" if trial else "Experiment", trial or name)
    stopped = f"trial {trial}" if trial else f"sweep {name}"
    return f"{stopped} is being stopped"


def _resume_sweep(sources: Sources, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Resume a sweep: on a cluster by its engine, on this machine in a process of its own."""
    cluster = sources.cluster(run)
    if cluster.outlives_client("Experiment"):
        Sweep(sources.spec, name, cluster).resume(wait=False)
    else:
        cluster.experiment(name)  # there is one
        begin("resume_sweep", {"name": name, "cluster": sources.url(run)})
    return f"sweep {name} continues"


def _analyse(sources: Sources, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    directory = sources.cluster(run).directory("Experiment", name)
    if directory is None:
        raise InvalidInput(
            f"the study of {name} is not on this machine", "sweeps of this machine have theirs here"
        )
    return f"optuna-dashboard shows a copy of the study as of now: {sources.dashboards.open(directory)}"


def _add_trial(sources: Sources, fields: Mapping[str, Any], *, name: str, run: str = "") -> str:
    """Start a trial with values of the user's own; a sweep that does not run is resumed for it, in
    a process of its own."""
    cluster = sources.cluster(run)
    values = {parameter: str(value) for parameter, value in fields.items()}
    if not cluster.experiment(name).state.finished:
        return f"trial {cluster.add_trial(name, values)} starts"
    begin("add_trial", {"name": name, "cluster": sources.url(run), "values": values})
    return f"sweep {name} continues with one more trial"


def _note(
    sources: Sources, fields: Mapping[str, Any], *, name: str, trial: str = "", run: str = ""
) -> str:
    text, noted = str(fields.get("note", "")), trial or name
    sources.cluster(run).write_note("Trial" if trial else "Experiment", noted, text)
    return f"{noted} has {'a' if text.strip() else 'no'} note"


def _promote(sources: Sources, fields: Mapping[str, Any], *, name: str) -> str:
    rule = str(fields.get("rule") or "") or None
    return _decided(sources, fields, name, lambda model, it: model.promote(it, rule=rule))


def _approve(sources: Sources, fields: Mapping[str, Any], *, name: str) -> str:
    reason = str(fields.get("reason", ""))
    return _decided(sources, fields, name, lambda model, it: model.approve(it, reason))


def _decided(
    sources: Sources,
    fields: Mapping[str, Any],
    name: str,
    decide: Callable[[Model, str], object],
) -> str:
    version = str(fields.get("version", ""))
    try:
        decide(sources.registry.registry[name], version)
    except NotPromoted as refusal:
        return "\n".join([refusal.message, *refusal.decision.reasons])
    finally:
        sources.registry.forget()
    return f"{version} is champion of {name}"


def _reject(sources: Sources, fields: Mapping[str, Any], *, name: str) -> str:
    record = sources.registry.registry[name].reject(
        str(fields.get("version", "")), str(fields.get("reason", ""))
    )
    return f"{record.version} of {name} is rejected"


def _roll_back(sources: Sources, fields: Mapping[str, Any], *, name: str) -> str:
    moved = sources.registry.registry[name].rollback()
    sources.registry.forget()
    return f"{moved.version} is champion of {name} again, in place of {moved.replaced}"


Action = Callable[..., str]

_OF_SWEEPS: Mapping[str, Action] = {
    "stop": _stop,
    "resume": _resume_sweep,
    "analyse": _analyse,
    "add": _add_trial,
    "note": _note,
    "trials/{trial}/stop": _stop,
    "trials/{trial}/note": _note,
}

ACTIONS: Mapping[str, Action] = {
    "/runs/{run}/stop": _stop_run,
    "/runs/{run}/resume": _resume_run,
    "/server/{run}/stop": _stop_server_run,
    **{f"{sweep}/{path}": action for sweep in SWEEPS for path, action in _OF_SWEEPS.items()},
    "/models/{name}/promote": _promote,
    "/models/{name}/approve": _approve,
    "/models/{name}/reject": _reject,
    "/models/{name}/rollback": _roll_back,
}
"""Actions by the path they are posted to."""
