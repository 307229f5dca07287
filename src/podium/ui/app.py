"""The pages over HTTP: routes, who may look and change something, and the stream of changes.

Viewers of the same page share one view, computed in a thread pool of its own.
"""

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from podium.errors import InvalidInput, NotFound, PodiumError, of_this_machine
from podium.files.documents import load_json
from podium.reports.page import embedded, plotly
from podium.serving.raw import predict_raw, read_raw
from podium.serving.service import GONE, Refused
from podium.system.background import DaemonThreads
from podium.ui.actions import ACTIONS, Action
from podium.ui.contents import FILES, VIEWS
from podium.ui.sources import Sources
from podium.ui.view import View

_SHARE = 5
"""A look may take one in so many seconds."""

T = TypeVar("T")

_AT_ONCE = 4
"""Looks that are taken at the same time."""

_MOST_KEPT = 64
"""Pages whose last look is kept."""


@dataclass(frozen=True)
class _Look:
    """A page as it was a moment ago."""

    view: View
    html: str
    until: float
    """Time until which the view is fresh, by time.monotonic."""


class _Looks:
    """The last look at each page; of one event loop."""

    def __init__(self) -> None:
        self._threads = DaemonThreads("podium-ui-look", _AT_ONCE)
        self._last: dict[str, asyncio.Future[_Look]] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def at(self, page: str, show: Callable[[], View], pause: float) -> _Look:
        """Return a look at a page that is under way, or still new; else take one.

        Args:
            pause: Seconds for which it is new, at least.
        """
        task = self._last.get(page)
        if task is None or (
            task.done() and (task.exception() or time.monotonic() > task.result().until)
        ):
            task = self._last[page] = asyncio.ensure_future(self.run(_look, show, pause))
            for old in list(self._last)[:-_MOST_KEPT]:
                del self._last[old]
        return await asyncio.shield(task)

    def forget(self) -> None:
        self._last.clear()


def _look(show: Callable[[], View], pause: float) -> _Look:
    began = time.monotonic()
    view = show()
    html = view.html()
    took = time.monotonic() - began
    return _Look(view, html, began + took + max(pause, (_SHARE - 1) * took))


class _Access:
    """Lets in who has the token.

    A browser gets it by the address. It keeps a cookie, which is enough to look, and which every
    port of this host gets: so it is another secret. The token itself goes into the storage of the
    page, which no other port reads, and no page holds it.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._cookie = secrets.token_urlsafe(24)

    def refuse(self, request: Request) -> Response | None:
        token = request.query_params.get("token", "")
        cookie = f"podium-{request.scope['server'][1]}"
        if request.method == "GET" and _is_same(token, self._token):
            response = RedirectResponse(f"{_without_token(request)}#token={token}", 303)
            response.set_cookie(cookie, self._cookie, httponly=True, samesite="strict")
            return response
        changes = request.method not in ("GET", "HEAD")
        sent = request.headers.get("x-podium-token") if changes else request.cookies.get(cookie)
        if _is_same(sent or "", self._token if changes else self._cookie):
            return None
        sentence = "Open the address that podium ui printed: the token in it lets you in."
        if changes:
            return JSONResponse({"error": sentence}, 403)
        return PlainTextResponse(sentence + "\n", 401)


def _without_token(request: Request) -> str:
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
    path = "/" + quote(request.scope["path"]).lstrip("/")  # //host would be another server
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _is_same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())


LOOK_SECONDS, FAR_LOOK_SECONDS = 0.5, 2.0
"""Minimum interval between refreshes of an open page: for this machine, and for an API server or a
server of runs."""

_ALIVE_SECONDS = 15.0
"""After so long without news a stream says that it is there."""

_MOST_BODY = 32 << 20
"""Maximum size of a posted body in bytes."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy of a page; plotly.js sets styles."""

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every answer that has none of its own."""

STATIC = {
    "style.css": "reports",
    "board.js": "reports",
    "ui.css": "ui",
    "ui.js": "ui",
    "try.css": "serving",
    "try.js": "serving",
}
"""Room of each file that pages load."""

_Answer = Callable[[Request], Awaitable[Response]]


class Pages:
    """Answers with pages.

    Args:
        sources: Sources of the pages.
        token: Secret that clients must send.
    """

    def __init__(self, sources: Sources, token: str) -> None:
        self._sources, self._access = sources, _Access(token)
        self._looks = _Looks()
        self.app = Starlette(routes=self._routes())

    def _routes(self) -> list[Route]:
        shown = {path: self._page(partial(show, self._sources)) for path, show in VIEWS.items()}
        files = {
            path: partial(self._looks.run, partial(answer, self._sources))
            for path, answer in FILES.items()
        }
        static = {"/static/{file}": lambda request: asyncio.to_thread(_static, request)}
        actions = {path: self._act(action) for path, action in ACTIONS.items()}
        posted = {**actions, "/models/{name}/try": self._try}
        return [
            *(Route(path, self._guarded(read)) for path, read in (shown | static | files).items()),
            *(Route(path, self._guarded(act), methods=["POST"]) for path, act in posted.items()),
            Route("/{path:path}", self._guarded(_nowhere)),
        ]

    def _guarded(self, answer: _Answer) -> _Answer:
        """Return a handler that checks the token and turns exceptions into responses."""

        async def handle(request: Request) -> Response:
            response = self._access.refuse(request)
            if response is None:
                try:
                    response = await answer(request)
                except PodiumError as error:
                    response = _trouble(request, error)
                except OSError as error:  # a full disk, a file of another user's
                    response = _trouble(request, of_this_machine(error) or PodiumError(str(error)))
                except ClientDisconnect:
                    response = Response(status_code=GONE)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handle

    def _page(self, show: Callable[[Request], View]) -> _Answer:
        def look(request: Request, pause: float) -> Awaitable[_Look]:
            page = f"{request.scope['path']}?{request.query_params}"
            return self._looks.at(page, lambda: show(request), pause)

        async def answer(request: Request) -> Response:
            if "text/event-stream" in request.headers.get("accept", ""):
                here = self._sources.is_here or request.scope["path"].startswith("/runs/")
                pause = LOOK_SECONDS if here else FAR_LOOK_SECONDS
                changes = _changes(lambda: look(request, pause), pause)
                return StreamingResponse(changes, media_type="text/event-stream")
            seen = await look(request, LOOK_SECONDS)
            return HTMLResponse(await self._looks.run(_whole, request, seen.view))

        return answer

    def _act(self, action: Action) -> _Answer:
        async def answer(request: Request) -> Response:
            fields = load_json(await _body(request) or b"{}", "the request body")
            if not isinstance(fields, dict):
                raise InvalidInput("the request body is not a JSON object")
            said = await asyncio.to_thread(action, self._sources, fields, **request.path_params)
            self._looks.forget()
            return JSONResponse({"said": said})

        return answer

    async def _try(self, request: Request) -> Response:
        body, media = await _body(request), request.headers.get("content-type", "")

        def predict() -> list[dict[str, Any]]:
            kind, content = read_raw(body, media)
            predictor = self._sources.registry.predictor(request.path_params["name"])
            return predict_raw(predictor, kind, content)

        return JSONResponse({"predictions": await self._looks.run(predict)})


def _trouble(request: Request, error: PodiumError) -> Response:
    code = Refused.of(error).status
    if request.method == "POST":
        return JSONResponse({"error": str(error)}, code)
    view = View(
        template="error.html.jinja",
        title="Not found" if code == 404 else "Trouble",
        shown={"message": error.message, "hint": error.hint},
    )
    return HTMLResponse(_whole(request, view), code)


def _whole(request: Request, view: View) -> str:
    place = request.scope["path"].split("/")[1]
    return view.html(place=place, figures=embedded(view.figures))


async def _changes(look: Callable[[], Awaitable[_Look]], pause: float) -> AsyncIterator[str]:
    """Yield the page as events, now and whenever something of it changes, until nothing will.

    Args:
        pause: Seconds between two looks, at least.
    """
    html, figures, said = "", dict[str, str](), time.monotonic()
    while True:
        try:
            seen = await look()
        except (PodiumError, OSError):  # it was removed, or is away: the browser asks again
            return
        view, now = seen.view, seen.html
        changed = {
            name: figure for name, figure in view.figures.items() if figures.get(name) != figure
        }
        news = [f'"html":{json.dumps(now)}'] if now != html else []
        news.append(f'"figures":{embedded(changed)}')
        if now != html or changed:
            html, figures, said = now, dict(view.figures), time.monotonic()
            yield "data: {" + ",".join(news) + "}\n\n"
        elif time.monotonic() - said > _ALIVE_SECONDS:
            said = time.monotonic()
            yield ": here\n\n"
        if view.over:
            yield "event: over\ndata: \n\n"
            return
        await asyncio.sleep(max(pause, seen.until - time.monotonic()))


async def _body(request: Request) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        size += len(piece)
        if size > _MOST_BODY:
            raise InvalidInput(f"the request body is larger than {_MOST_BODY >> 20} MiB")
        pieces.append(piece)
    return b"".join(pieces)


async def _nowhere(request: Request) -> Response:
    raise NotFound(
        f"there is no page {request.scope['path']}", "the first page, /, leads to all others"
    )


def _static(request: Request) -> Response:
    file = request.path_params["file"]
    if file == "plotly.js":
        return Response(
            plotly(),
            media_type="text/javascript",
            headers={"Content-Encoding": "gzip", "Cache-Control": "max-age=3600"},
        )
    if file not in STATIC:
        raise NotFound(f"there is no file {file}")
    content = (resources.files(f"podium.{STATIC[file]}") / file).read_bytes()
    return Response(content, media_type="text/css" if file.endswith(".css") else "text/javascript")
