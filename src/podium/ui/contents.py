"""Pages and files by their address: a run, a sweep, a report, a log."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse

import podium
from podium.api.jobs import all_jobs, find_job
from podium.api.launched import Session
from podium.api.sweep_list import sweep_rows
from podium.api.sweep_report import path_of_report, write_report
from podium.display.text import harmless
from podium.errors import NotFound, PodiumError
from podium.kfp.runs import ServerRuns
from podium.manifests.labels import EXPERIMENT
from podium.models import Model
from podium.models.card import card
from podium.ui import models, runs
from podium.ui.sources import Sources
from podium.ui.sweeps import SWEEPS, FollowedSweep
from podium.ui.view import LINES, View

_SHORT = 8

_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' blob: data:; "
    "style-src 'unsafe-inline'; img-src data:"
)
"""Content security policy of a report, which holds names and rows of foreign origin: it cannot
touch these pages."""

_HINTS = {
    "runs": "podium run makes one.",
    "sweeps": "podium tune and podium experiment run make one; those of runs are on their pages.",
    "models": "podium run and podium models upload make one.",
    "jobs": "podium job run makes one.",
}
"""How the first of a kind is made."""


def _runs(sources: Sources) -> list[dict[str, Any]]:
    known = runs.rows_of()
    if server := sources.server:
        newest = ServerRuns(server).newest(30)
        known += [run.to_json() | {"path": f"/server/{run.id}"} for run in newest]
    return sorted(known, key=lambda row: datetime.fromisoformat(row["began"]), reverse=True)


def _sweeps(sources: Sources) -> list[dict[str, Any]]:
    return sweep_rows(sources.cluster())[::-1]


def _jobs(sources: Sources) -> list[dict[str, Any]]:
    """Return summaries of all jobs but those of trials, which the page of their sweep shows."""
    session = Session(sources.spec, sources.cluster())
    own = [job for job in all_jobs(session) if EXPERIMENT not in job.workload.labels]
    return [job.to_json() for job in own][::-1]


_ROWS: Mapping[str, Callable[[Sources], list[dict[str, Any]]]] = {
    "runs": _runs,
    "sweeps": _sweeps,
    "models": lambda sources: sources.registry.rows(),
    "jobs": _jobs,
}
"""The list of each kind, the newest first."""


def _where(sources: Sources) -> dict[str, str]:
    cluster = sources.spec.url
    registry = sources.registry.registry.url
    here = str(podium.runs().directory)
    return {"runs": here, "sweeps": cluster, "models": registry, "jobs": cluster}


def _overview(sources: Sources, request: Request) -> View:
    troubles: list[str] = []
    shown: dict[str, list[dict[str, Any]]] = {}
    for kind, read in _ROWS.items():
        shown[kind] = []
        try:
            shown[kind] = read(sources)
        except PodiumError as error:
            troubles.append(str(error))
    rows = [*shown["runs"], *shown["sweeps"], *shown["jobs"]]
    return View(
        template="overview.html.jinja",
        title="What runs",
        shown={
            **{kind: rows[:_SHORT] for kind, rows in shown.items()},
            "count": sum(row["state"].lower() == "running" for row in rows),
            "troubles": troubles,
            "where": list(dict.fromkeys(_where(sources).values())),
        },
    )


def _list(kind: str) -> Callable[[Sources, Request], View]:
    return lambda sources, request: View(
        template="list.html.jinja",
        title=kind.capitalize(),
        shown={
            "kind": kind,
            "rows": _ROWS[kind](sources),
            "where": _where(sources)[kind],
            "hint": _HINTS[kind],
        },
    )


def _run(sources: Sources, request: Request) -> View:
    run = podium.runs()[request.path_params["run"]]
    return runs.view(run, sources, f"/runs/{run.id}", request.query_params.get("step", ""))


def _server_run(sources: Sources, request: Request) -> View:
    server = sources.server
    if server is None:
        raise NotFound("no server is shown", "podium ui --server URL")
    run = ServerRuns(server)[request.path_params["run"]]
    return runs.server_view(run, request.scope["path"], request.query_params.get("log", ""))


def _run_report(sources: Sources, request: Request) -> Response:
    return _report(podium.runs()[request.path_params["run"]].report)


def _step_log(sources: Sources, request: Request) -> Response:
    run, step = podium.runs()[request.path_params["run"]], request.path_params["step"]
    return PlainTextResponse("".join(f"{harmless(line)}\n" for line in run.printed(step)))


def _followed(sources: Sources, request: Request) -> FollowedSweep:
    return sources.sweep(request.path_params["name"], request.path_params.get("run", ""))


def _sweep(sources: Sources, request: Request) -> View:
    return _followed(sources, request).view(
        request.scope["path"],
        every="every" in request.query_params,
        picked=request.query_params.get("picked", "").split(","),
    )


def _trial(sources: Sources, request: Request) -> View:
    followed = _followed(sources, request)
    return followed.trial_view(request.path_params["trial"], request.scope["path"])


def _trial_log(sources: Sources, request: Request) -> Response:
    followed = _followed(sources, request)
    trial = followed.cluster.trial(request.path_params["trial"])
    lines = followed.trials.log(trial.name)
    return StreamingResponse((f"{harmless(line)}\n" for line in lines), media_type="text/plain")


def _sweep_report(sources: Sources, request: Request) -> Response:
    followed = _followed(sources, request)
    path = path_of_report(followed.cluster, followed.name)
    write_report(followed.cluster, followed.name, path)
    return _report(path)


def _report(path: Path) -> Response:
    return FileResponse(
        path, media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY}
    )


def _known_model(sources: Sources, request: Request) -> Model:
    return models.require_model(sources.registry.registry, request.path_params["name"])


def _model(sources: Sources, request: Request) -> View:
    asked = request.query_params
    first, second = asked.get("first", ""), asked.get("second", "")
    return models.view(_known_model(sources, request), request.scope["path"], first, second)


def _version(sources: Sources, request: Request) -> View:
    model = _known_model(sources, request)
    version = model.version(request.path_params["version"])
    return models.version_view(model, version, request.scope["path"])


def _card(sources: Sources, request: Request) -> Response:
    version = _known_model(sources, request).version(request.path_params["version"])
    return PlainTextResponse(card(version))


def _job(sources: Sources, request: Request) -> View:
    session = Session(sources.spec, sources.cluster())
    job = find_job(session, request.path_params["name"], [request.path_params["kind"]])
    lines = [harmless(line) for line in job.cluster.logs(job.kind, job.name)]
    shown = {"job": job.to_json(), "lines": lines[-LINES:], "cut": max(0, len(lines) - LINES)}
    return View(
        template="job.html.jinja", title=job.name, over=job.workload.state.finished, shown=shown
    )


VIEWS: Mapping[str, Callable[[Sources, Request], View]] = {
    "/": _overview,
    **{f"/{kind}": _list(kind) for kind in _ROWS},
    "/runs/{run}": _run,
    "/server/{run}": _server_run,
    "/models/{name}": _model,
    "/models/{name}/versions/{version}": _version,
    "/jobs/{kind}/{name}": _job,
    **dict.fromkeys(SWEEPS, _sweep),
    **{f"{sweep}/trials/{{trial}}": _trial for sweep in SWEEPS},
}

FILES: Mapping[str, Callable[[Sources, Request], Response]] = {
    "/runs/{run}/report": _run_report,
    "/runs/{run}/report.html": _run_report,  # so another run's report links to it
    "/runs/{run}/logs/{step}": _step_log,
    "/models/{name}/versions/{version}/card": _card,
    **{f"{sweep}/report": _sweep_report for sweep in SWEEPS},
    **{f"{sweep}/trials/{{trial}}/log": _trial_log for sweep in SWEEPS},
}
