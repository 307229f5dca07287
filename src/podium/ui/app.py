"""The pages over HTTP: routes, the stream of changes, and access control."""

import asyncio
import gzip
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

import podium
from podium.api.jobs import all_jobs, find_job
from podium.api.launched import Session
from podium.api.sweep_list import sweeps_on
from podium.api.sweep_report import path_of_report, write_report
from podium.api.trials import logs_of
from podium.documents import load_json
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.kfp.runs import find_run, newest_runs, pipeline_names, server_run, storage_of
from podium.manifests.labels import EXPERIMENT
from podium.text import harmless
from podium.ui import models, runs, sweeps
from podium.ui.actions import ACTIONS, Action, try_model
from podium.ui.house import House
from podium.ui.looks import Look, Looks
from podium.ui.view import LINES, View

LOOK_SECONDS, FAR_LOOK_SECONDS = 0.5, 2.0
"""Minimum interval between refreshes of an open page: for this machine, and for an API server or a
server of runs."""

ALIVE_SECONDS = 15.0
"""After so long without news a stream says that it is there."""

SHORT = 8
"""Rows of each kind on the first page."""

MOST_BODY = 32 << 20
"""Maximum size of a posted body in bytes."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy of a page; plotly.js sets styles."""

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' blob: data:; "
    "style-src 'unsafe-inline'; img-src data:"
)
"""Content security policy of a report, which holds names and rows of foreign origin: it cannot
touch these pages."""

STATIC = {
    "style.css": "reports",
    "ui.css": "ui",
    "ui.js": "ui",
    "try.css": "serving",
    "try.js": "serving",
}
"""Room of each file that pages load."""

Show = Callable[[Request], View]


class Pages:
    """Answers with pages.

    Args:
        house: Sources of the pages.
        token: Secret that clients must send.
    """

    def __init__(self, house: House, token: str) -> None:
        self._house, self._token = house, token
        self._seen = secrets.token_urlsafe(24)  # of who may only look
        self._looks = Looks()
        self.app = Starlette(routes=self._routes())

    def _routes(self) -> list[Route]:
        shown: dict[str, Show] = {
            "/": self._overview,
            "/runs": self._runs,
            "/sweeps": self._sweeps,
            "/models": self._models,
            "/jobs": self._jobs,
            "/runs/{run}": self._run,
            "/server/{run}": self._server_run,
            "/models/{name}": self._model,
            "/models/{name}/versions/{version}": self._version,
            "/jobs/{kind}/{name}": self._job,
        }
        files: dict[str, Callable[[Request], Response]] = {
            "/runs/{run}/report": self._run_report,
            "/runs/{run}/logs/{step}": self._log,
            "/runs/{run}/report.html": self._run_report,  # so another run's report links to it
        }
        for root in ("", "/runs/{run}"):
            shown |= {
                f"{root}/sweeps/{{name}}": self._sweep,
                f"{root}/sweeps/{{name}}/trials/{{trial}}": self._trial,
            }
            files |= {
                f"{root}/sweeps/{{name}}/report": self._sweep_report,
                f"{root}/sweeps/{{name}}/trials/{{trial}}/log": self._trial_log,
            }
        return [
            *(Route(path, self._guarded(self._page(show))) for path, show in shown.items()),
            Route("/static/{file}", self._guarded(_in_thread(_static, asyncio.to_thread))),
            *(
                Route(path, self._guarded(_in_thread(answer, self._looks.run)))
                for path, answer in files.items()
            ),
            *(
                Route(path, self._guarded(self._act(action)), methods=["POST"])
                for path, action in ACTIONS.items()
            ),
            Route("/models/{name}/try", self._guarded(self._try), methods=["POST"]),
            Route("/{path:path}", self._guarded(_in_thread(_nowhere, asyncio.to_thread))),
        ]

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that checks the token and turns exceptions into responses."""

        async def handle(request: Request) -> Response:
            response = self._unknown(request)
            if response is None:
                try:
                    response = await answer(request)
                except PodiumError as error:
                    status = (
                        404
                        if isinstance(error, NotFound)
                        else 400
                        if isinstance(error, InvalidInput)
                        else 500
                    )
                    response = self._trouble(request, error, status)
            for name, value in (
                ("Content-Security-Policy", POLICY),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
                ("Cache-Control", "no-store"),
            ):
                response.headers.setdefault(name, value)
            return response

        return handle

    def _unknown(self, request: Request) -> Response | None:
        """Return the response to a client without the token; None for one that has it.

        A browser gets it by the address. It keeps a cookie, which is enough to look, and which
        every port of this host gets: so it is another secret. The token itself goes into the
        storage of the page, which no other port reads, and no page holds it.
        """
        given, cookie = (
            request.query_params.get("token", ""),
            f"podium-{request.scope['server'][1]}",
        )
        if request.method == "GET" and _is_same(given, self._token):
            query = urlencode(
                [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
            )
            path = "/" + quote(request.scope["path"]).lstrip("/")  # //host would be another server
            target = f"{path}?{query}" if query else path
            response = RedirectResponse(f"{target}#token={given}", 303)
            response.set_cookie(cookie, self._seen, httponly=True, samesite="strict")
            return response
        changes = request.method not in ("GET", "HEAD")
        sent = request.headers.get("x-podium-token") if changes else request.cookies.get(cookie)
        if _is_same(sent or "", self._token if changes else self._seen):
            return None
        sentence = "Open the address that podium ui printed: the token in it lets you in."
        return (
            JSONResponse({"error": sentence}, 403)
            if changes
            else PlainTextResponse(sentence + "\n", 401)
        )

    def _trouble(self, request: Request, error: PodiumError, status: int) -> Response:
        if request.method == "POST":
            return JSONResponse({"error": str(error)}, status)
        shown = {"message": error.message, "hint": error.hint}
        view = View(
            template="error.html.jinja",
            title="Not found" if status == 404 else "Trouble",
            shown=shown,
        )
        return HTMLResponse(self._whole(request, view), status)

    def _whole(self, request: Request, view: View) -> str:
        drawn = (
            "{"
            + ",".join(f"{json.dumps(name)}:{figure}" for name, figure in view.figures.items())
            + "}"
        )
        place = request.scope["path"].split("/")[1]
        return view.html(place=place, figures=drawn.replace("<", "\\u003c"))

    def _page(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if "text/event-stream" in request.headers.get("accept", ""):
                here = self._house.is_here or request.scope["path"].startswith("/runs/")
                pause = LOOK_SECONDS if here else FAR_LOOK_SECONDS
                changes = _changes(lambda: self._look(show, request, pause), pause)
                return StreamingResponse(changes, media_type="text/event-stream")
            look = await self._look(show, request, LOOK_SECONDS)
            return HTMLResponse(await asyncio.to_thread(self._whole, request, look.view))

        return answer

    async def _look(self, show: Show, request: Request, pause: float) -> Look:
        """Return a cached view of the page, or a new one."""
        return await self._looks.at(
            f"{request.scope['path']}?{request.query_params}", lambda: show(request), pause
        )

    def _act(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body = await _body(request)
            fields = load_json(body or b"{}", "what was posted")
            if not isinstance(fields, dict):
                raise InvalidInput("what was posted is not a JSON object")
            said = await asyncio.to_thread(action, self._house, fields, **request.path_params)
            self._looks.forget()
            return JSONResponse({"said": said})

        return answer

    async def _try(self, request: Request) -> Response:
        body, media = await _body(request), request.headers.get("content-type", "")
        said = await asyncio.to_thread(try_model, self._house, body, media, **request.path_params)
        return JSONResponse({"predictions": said})

    def _overview(self, request: Request) -> View:
        troubles: list[str] = []

        def tried(read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
            try:
                return read()
            except PodiumError as error:
                troubles.append(str(error))
                return []

        shown = {
            "runs": tried(self._all_runs),
            "sweeps": tried(self._all_sweeps),
            "models": tried(self._house.registry.rows),
            "jobs": tried(self._all_jobs),
        }
        count = sum(
            row["state"].lower() == "running"
            for kind in ("runs", "sweeps", "jobs")
            for row in shown[kind]
        )
        return View(
            template="overview.html.jinja",
            title="What runs",
            shown={
                **{kind: rows[:SHORT] for kind, rows in shown.items()},
                "count": count,
                "troubles": troubles,
                "where": [
                    str(podium.runs().directory),
                    self._house.spec.url,
                    self._house.registry.registry.url,
                ],
            },
        )

    def _all_runs(self) -> list[dict[str, Any]]:
        known = runs.rows_of()
        if server := self._house.server:
            known += [
                {
                    "id": run.name,
                    "path": f"/server/{run.id}",
                    "subject": run.pipeline,
                    "state": run.state,
                    "began": run.began,
                    "seconds": run.seconds,
                    "result": run.result,
                    "steps": [{"title": name, "state": state} for name, state in run.tasks.items()],
                }
                for run in newest_runs(server, 30)
            ]
        return sorted(known, key=lambda row: row["began"], reverse=True)

    def _all_sweeps(self) -> list[dict[str, Any]]:
        return [vars(sweep) for sweep in reversed(sweeps_on(self._house.cluster()))]

    def _all_jobs(self) -> list[dict[str, Any]]:
        """Return summaries of all jobs but those of trials, which the page of their sweep shows."""
        session = Session(self._house.spec, self._house.cluster())
        own = [job for job in all_jobs(session) if EXPERIMENT not in job.workload.labels]
        return [{**job.summary, "progress": job.progress()} for job in own][::-1]

    def _runs(self, request: Request) -> View:
        return _list(
            "runs", self._all_runs(), str(podium.runs().directory), "podium run makes one."
        )

    def _sweeps(self, request: Request) -> View:
        return _list(
            "sweeps",
            self._all_sweeps(),
            self._house.spec.url,
            "podium tune and podium experiment run make one; those of runs are on their pages.",
        )

    def _models(self, request: Request) -> View:
        registry = self._house.registry
        return _list(
            "models",
            registry.rows(),
            registry.registry.url,
            "podium run and podium models upload make one.",
        )

    def _jobs(self, request: Request) -> View:
        return _list("jobs", self._all_jobs(), self._house.spec.url, "podium job run makes one.")

    def _run(self, request: Request) -> View:
        run = podium.runs()[request.path_params["run"]]
        return runs.view(run, f"/runs/{run.id}", request.query_params.get("step", ""))

    def _server_run(self, request: Request) -> View:
        server = self._house.server
        if server is None:
            raise NotFound("no server is shown", "podium ui --server URL")
        found = find_run(server, request.path_params["run"])
        log, run = request.query_params.get("log", ""), server_run(found, pipeline_names(server))
        return runs.server_view(run, request.scope["path"], storage_of(found), log)

    def _run_report(self, request: Request) -> Response:
        return _report(podium.runs()[request.path_params["run"]].report)

    def _log(self, request: Request) -> Response:
        run, step = podium.runs()[request.path_params["run"]], request.path_params["step"]
        return _text(run.printed(step))

    def _followed(self, request: Request) -> sweeps.FollowedSweep:
        return self._house.sweep(request.path_params["name"], request.path_params.get("run", ""))

    def _sweep(self, request: Request) -> View:
        return self._followed(request).view(
            request.scope["path"], every="every" in request.query_params
        )

    def _trial(self, request: Request) -> View:
        return self._followed(request).trial_view(
            request.path_params["trial"], request.scope["path"]
        )

    def _trial_log(self, request: Request) -> Response:
        cluster = self._followed(request).cluster
        lines = logs_of(cluster, cluster.trial(request.path_params["trial"]))
        return StreamingResponse((f"{harmless(line)}\n" for line in lines), media_type="text/plain")

    def _sweep_report(self, request: Request) -> Response:
        followed = self._followed(request)
        path = path_of_report(followed.cluster, followed.name)
        write_report(followed.cluster, followed.name, path)
        return _report(path)

    def _model(self, request: Request) -> View:
        model = models.require_model(self._house.registry.registry, request.path_params["name"])
        asked = request.query_params
        return models.view(
            model, request.scope["path"], asked.get("first", ""), asked.get("second", "")
        )

    def _version(self, request: Request) -> View:
        model = models.require_model(self._house.registry.registry, request.path_params["name"])
        version = model.version(request.path_params["version"])
        return models.version_view(model, version, request.scope["path"])

    def _job(self, request: Request) -> View:
        session = Session(self._house.spec, self._house.cluster())
        job = find_job(session, request.path_params["name"], [request.path_params["kind"]])
        lines = [harmless(line) for line in job.cluster.logs(job.kind, job.name)]
        shown = {"summary": job.summary, "lines": lines[-LINES:], "cut": max(0, len(lines) - LINES)}
        return View(
            template="job.html.jinja", title=job.name, over=job.workload.state.finished, shown=shown
        )


async def _changes(look: Callable[[], Awaitable[Look]], pause: float) -> AsyncIterator[str]:
    """Yield the page as events, now and whenever something of it changes, until nothing will.

    Args:
        pause: Seconds between two looks, at least.
    """
    html, figures, said = "", dict[str, str](), time.monotonic()
    while True:
        try:
            seen = await look()
        except PodiumError:  # it was removed, or is away: the browser asks again
            return
        view, now = seen.view, seen.html
        changed = {
            name: figure for name, figure in view.figures.items() if figures.get(name) != figure
        }
        news = ([f'"html":{json.dumps(now)}'] if now != html else []) + (
            [
                '"figures":{'
                + ",".join(f"{json.dumps(name)}:{figure}" for name, figure in changed.items())
                + "}"
            ]
        )
        if now != html or changed:
            html, figures, said = now, dict(view.figures), time.monotonic()
            yield "data: {" + ",".join(news) + "}\n\n"
        elif time.monotonic() - said > ALIVE_SECONDS:
            said = time.monotonic()
            yield ": here\n\n"
        if view.over:
            yield "event: over\ndata: \n\n"
            return
        await asyncio.sleep(max(pause, seen.until - time.monotonic()))


def _list(kind: str, rows: list[dict[str, Any]], where: str, hint: str) -> View:
    return View(
        template="list.html.jinja",
        title=kind.capitalize(),
        shown={"kind": kind, "rows": rows, "where": where, "hint": hint},
    )


def _in_thread(
    answer: Callable[[Request], Response], run: Callable[..., Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await run(answer, request)

    return handle


def _is_same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())


async def _body(request: Request) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BODY:
            raise InvalidInput(f"what was posted is larger than {MOST_BODY >> 20} MiB")
        pieces.append(piece)
    return b"".join(pieces)


def _nowhere(request: Request) -> Response:
    raise NotFound(
        f"there is no page {request.scope['path']}", "the first page, /, leads to all others"
    )


def _text(lines: Any) -> Response:
    return PlainTextResponse("".join(f"{harmless(line)}\n" for line in lines))


def _report(path: Path) -> Response:
    return FileResponse(
        path, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY}
    )


def _static(request: Request) -> Response:
    file = request.path_params["file"]
    if file == "plotly.js":
        return Response(
            _plotly(),
            media_type="text/javascript",
            headers={"Content-Encoding": "gzip", "Cache-Control": "max-age=3600"},
        )
    if file not in STATIC:
        raise NotFound(f"there is no file {file}")
    content = (resources.files(f"podium.{STATIC[file]}") / file).read_bytes()
    return Response(content, media_type="text/css" if file.endswith(".css") else "text/javascript")


@cache
def _plotly() -> bytes:
    return gzip.compress(
        (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes(), 6, mtime=0
    )
