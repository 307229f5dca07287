"""Pages and files by their address: runs, sweeps, jobs and models, reports and logs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse

import podium
from podium.api.jobs import all_jobs, find_job, job_rows
from podium.api.launched import Session
from podium.api.sweep_list import sweep_rows
from podium.api.sweep_report import write_report
from podium.display.text import harmless
from podium.errors import NotFound, PodiumError, of_this_machine
from podium.kfp.runs import ServerRun, ServerRuns
from podium.kfp.values import PIPELINES
from podium.manifests.labels import EXPERIMENT
from podium.models import Model, Version
from podium.models.card import card
from podium.models.described import described
from podium.models.lineage import Lineage
from podium.reports import plots
from podium.runner.messages import KFP, STARTS
from podium.runner.outcome import put_out
from podium.runner.record import last_lines
from podium.runner.run import Run
from podium.serving.announced import servers_of
from podium.serving.form import Form
from podium.training.follow import read_metrics
from podium.training.kept_logs import KeptLogs
from podium.training.recipe import reported_metrics
from podium.ui.sources import Sources
from podium.ui.sweeps import SWEEPS, FollowedSweep
from podium.ui.view import LINES, View

_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' blob: data:; "
    "style-src 'unsafe-inline'; img-src data:"
)
"""Content security policy of a report, which holds names and rows of foreign origin: it cannot
touch these pages."""

_SHORT = 8

_HINTS = {
    "runs": "podium run makes one.",
    "sweeps": "podium tune and podium experiment run make one; those of runs are on their pages.",
    "models": "podium run and podium models upload make one.",
    "jobs": "podium job run makes one.",
}
"""How the first of a kind is made."""


def _runs(sources: Sources) -> list[dict[str, Any]]:
    rows = [run.to_json() | {"path": f"/runs/{run.id}"} for run in podium.runs().all[::-1]]
    if server := sources.server:
        newest = ServerRuns(server).newest(30)
        rows += [run.to_json() | {"path": f"/server/{run.id}"} for run in newest]
    return sorted(rows, key=lambda row: datetime.fromisoformat(row["began"]), reverse=True)


def _sweeps(sources: Sources) -> list[dict[str, Any]]:
    return sweep_rows(sources.cluster())[::-1]


def _jobs(sources: Sources) -> list[dict[str, Any]]:
    """Return summaries of all jobs but those of trials, which the page of their sweep shows."""
    session = Session(sources.spec, sources.cluster())
    own = [job for job in all_jobs(session) if EXPERIMENT not in job.workload.labels]
    return job_rows(own)[::-1]


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
        except (PodiumError, OSError) as error:
            troubles.append(str(of_this_machine(error) or error))
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


def _report(path: Path) -> Response:
    return FileResponse(
        path, media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY}
    )


_MOST_LINES = 20_000
"""Last lines of a step's log in which metrics are looked for."""


def _run(sources: Sources, request: Request) -> View:
    """Return the page of a run, with the log of the step that is asked for, else of the one that
    failed, runs, or ended last."""
    run, step = podium.runs()[request.path_params["run"]], request.query_params.get("step", "")
    record = run.record
    if step and step not in record.steps:
        raise NotFound(f"run {run.id} has no step {step!r}")
    shown = step or _interesting(run)
    log = record.log(shown) if shown else None
    lines = _tail(log) if log and log.is_file() else []
    outcome: dict[str, Any] = {}
    with suppress(PodiumError):
        outcome = run.outcome
    sweep, own = "", run.pipeline.replace("_", "-") in PIPELINES
    with suppress(PodiumError, OSError):
        sweep = run.sweep.name if record.cluster.is_dir() else ""
    return View(
        template="run.html.jinja",
        title=f"{run.id}",
        over=run.state != "running",
        figures=_curves(run, sources.sweep(sweep, run.id) if sweep else None),
        shown={
            "run": run,
            "result": run.result if outcome else "",
            "steps": record.steps,
            "path": f"/runs/{run.id}",
            "step": shown,
            "lines": lines,
            "raw": _raw(record.log(KFP), shown),
            "sweep": sweep,
            "decision": outcome.get("decision"),
            "metric": (outcome.get("metric") or {}).get("name", ""),
            "outputs": () if own else tuple(put_out(outcome)),
            "has_report": bool(outcome.get("report")),
        },
    )


def _curves(run: Run, sweep: FollowedSweep | None) -> dict[str, str]:
    objective = sweep.cluster.experiment(sweep.name).objective.metrics if sweep else ()
    metrics = reported_metrics(*objective, str(run.parameters.get("metric") or ""))
    rows: list[dict[str, Any]] = [
        {"name": step.title, "epochs": _epochs(log, log.stat().st_size, tuple(metrics))}
        for name, step in run.record.steps.items()
        if (log := run.record.log(name)).is_file()
    ]
    rows = [row for row in rows if len(row["epochs"]) > 1]
    if sweep:
        return sweep.curves(rows)
    curves = plots.learning_curves(rows, metrics, [row["name"] for row in rows], "")
    return plots.as_json(curves)


@lru_cache(maxsize=256)
def _epochs(log: Path, size: int, names: tuple[str, ...]) -> list[dict[str, float]]:
    """Return the metrics of each line of a step's log that has some; it is read when it grows."""
    read = (read_metrics(line, names, ()) for line in last_lines(log, _MOST_LINES))
    return [metrics for metrics in read if metrics]


def _raw(log: Path, step: str) -> list[str]:
    own = [
        line.removeprefix(f"{step}: ")
        for line in _tail(log, _MOST_LINES)
        if line.startswith(f"{step}: ")
    ]
    starts = [at for at, line in enumerate(own) if line == STARTS]
    return own[starts[-1] :][:LINES] if starts else []


def _interesting(run: Run) -> str:
    steps = run.record.steps
    for state in ("failed", "running"):
        if found := [name for name, step in steps.items() if step.state == state]:
            return found[-1]
    ended = [
        name for name, step in steps.items() if step.state not in ("pending", "cached", "skipped")
    ]
    return ended[-1] if ended else ""


def _tail(log: Path, most: int = LINES) -> list[str]:
    return list(map(harmless, last_lines(log, most)))


def _server_run(sources: Sources, request: Request) -> View:
    """Return the page of a run of a server, with the log that is asked for, else that of a step
    that failed, else the newest of a step."""
    server, log = sources.server, request.query_params.get("log", "")
    if server is None:
        raise NotFound("no server is shown", "podium ui --server URL")
    run = ServerRuns(server)[request.path_params["run"]]
    names, lines, shown, trouble = [], [], "", ""
    try:
        kept = KeptLogs(run.storage, run.id)
        names = kept.names()
        shown = log or _telling(names, run)
        lines = [harmless(line) for line in kept.read(shown).splitlines()] if shown in names else []
    except PodiumError as error:  # a storage that only pods reach, or a bucket that is gone
        trouble = f"{error.message}; {error.hint}" if error.hint else error.message
    if log and not trouble and log not in names:
        raise NotFound(f"no log {log!r} is kept with run {run.id}")
    return View(
        template="server_run.html.jinja",
        title=run.id,
        over=run.is_over,
        shown={
            "run": run,
            "path": request.scope["path"],
            "logs": names,
            "log": shown,
            "lines": lines[-LINES:],
            "cut": max(0, len(lines) - LINES),
            "storage": run.storage,
            "trouble": trouble,
        },
    )


def _telling(names: Sequence[str], run: ServerRun) -> str:
    steps = [name for name in names if name.startswith("steps/")]
    failed = [name for name in steps if run.tasks.get(name.removeprefix("steps/")) == "FAILED"]
    return next(iter([*failed, *steps[::-1]]), "")


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
    return _report(write_report(followed.cluster, followed.name))


_MOST_RECORDS = 50
"""Events of the history that a page shows, the newest."""

_SHOWN_APART = ("created", "metrics", "chosen by", "settings")
"""Facts about a version that have a place of their own on its page."""


def _model(sources: Sources, request: Request) -> View:
    """Return the page of a model, with what the versions ``first`` and ``second`` differ in."""
    model, asked = _known(sources, request), request.query_params
    aliases, versions = model.aliases(), list(model.versions)[::-1]
    held = aliases.get("champion")
    # By the same look: another one may be champion by now, for other reasons.
    champion = next((each for each in versions if held and each.version == held.version), None)
    first, second = asked.get("first", ""), asked.get("second", "")
    first = first or (champion.version if champion else "")
    other = next((version.version for version in versions if version != champion), "")
    return View(
        template="model.html.jinja",
        title=model.name,
        shown={
            "model": model,
            "path": request.scope["path"],
            "champion": champion,
            "held": held,
            "form": _form(champion),
            "versions": versions,
            "waiting": model.waiting,
            "records": model.records()[::-1][:_MOST_RECORDS],
            "aliases": {alias: record.version for alias, record in aliases.items()},
            "first": first,
            "second": second or other,
            **_compared(model, first, second),
        },
    )


def _form(version: Version | None) -> Form | None:
    with suppress(PodiumError):
        return Form.of(version.opened) if version else None
    return None


def _compared(model: Model, first: str, second: str) -> dict[str, Any]:
    compared, trouble = None, ""
    if first and second:
        from podium.models.difference import of_versions

        versions = model.version(first), model.version(second)
        try:
            _, compared = of_versions(versions)
        except PodiumError as error:
            trouble = str(error)
    return {"difference": compared, "trouble": trouble}


def _version(sources: Sources, request: Request) -> View:
    model = _known(sources, request)
    version = model.version(request.path_params["version"])
    report = version.facts.report
    chosen = version.facts.metric.name
    facts = {name: fact for name, fact in described(version).items() if name not in _SHOWN_APART}
    return View(
        template="version.html.jinja",
        title=version.title,
        figures=plots.as_json(
            {"confusion": plots.confusion_matrix(report.confusion, report.names)}
            if any(report.confusion)
            else {}
        ),
        shown={
            "version": version,
            "path": request.scope["path"],
            "chosen": chosen,
            "metrics": dict(sorted(version.metrics.items(), key=lambda item: item[0] != chosen)),
            "held": [
                alias for alias, held in model.aliases().items() if held.version == version.version
            ],
            "lineage": _lineage(model, version),
            "facts": facts,
        },
    )


def _lineage(model: Model, version: Version) -> list[tuple[str, str, str]]:
    found = Lineage.of(model, version, servers_of(version))
    here = found.run and (podium.runs().directory / found.run / "run.json").is_file()
    paths = {"champion": f"/models/{model.name}"}
    if found.served_by:
        paths["served by"] = found.served_by[0]
    if here:
        root = f"/runs/{found.run}"
        paths |= {"run": root, "sweep": f"{root}/sweeps/{found.sweep}"}
        if found.sweep and found.kind == "trial":
            paths[found.kind] = f"{root}/sweeps/{found.sweep}/trials/{found.name}"
    return [(title, text, paths.get(title, "")) for title, text in found.rows()]


def _card(sources: Sources, request: Request) -> Response:
    version = _known(sources, request).version(request.path_params["version"])
    return PlainTextResponse(card(version))


def _known(sources: Sources, request: Request) -> Model:
    model = sources.registry.registry[request.path_params["name"]]
    if not len(model.versions):
        raise NotFound(f"model {model.name} has no version")
    return model


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
