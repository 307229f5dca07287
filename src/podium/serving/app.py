"""The server: Open Inference Protocol v2 over HTTP, and raw items at ``/v2/models/NAME/predict``.

Source of paths, members and errors:
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import asyncio
import errno
import hmac
import json
import logging
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Asked
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from podium import __version__
from podium.display.text import are
from podium.errors import InvalidInput, NotFound, PodiumError, suggestion
from podium.prediction.predictions import UnknownValues
from podium.scoring.families import Array
from podium.serving.challenger import Answered, Ask, RawItems, new_id, predicted_rows
from podium.serving.figures import Figures, compared
from podium.serving.form import try_page
from podium.serving.raw import predict_raw, read_raw
from podium.serving.served import Loaded, Served
from podium.serving.tensors import MOST_NAME, read_request, write_response
from podium.system.background import Tries
from podium.system.machine import cores

_LARGE = 64 << 10
"""Bytes that are read or written beside the event loop."""

T = TypeVar("T")
_log = logging.getLogger("podium")
_INFER = re.compile(r"/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?/infer")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the requests of a client."""

    body: int = 64 << 20
    """Bytes of a request."""

    requests: int = 256
    """Requests under way; one more is told to come again."""

    seconds: float = 60.0
    """For an answer."""


class _Refused(Exception):
    """A request that is answered by a status and a sentence.

    Args:
        status: Of HTTP.
        sentence: For the client.
        headers: Of the answer.
    """

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.headers = (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )


def _told(error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    if isinstance(error, _Refused):
        return JSONResponse({"error": str(error)}, error.status, error.headers)
    status = _status_of(error)
    if isinstance(error, PodiumError):
        return JSONResponse({"error": str(error)}, status)
    _log.error("a request failed: %s", "".join(traceback.format_exception(error)))
    said = (
        "there is no room on the server's disk"
        if status == 507
        else "the server failed; its log says how"
    )
    return JSONResponse({"error": said}, status)


def _status_of(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return 507
    return 404 if isinstance(error, NotFound) else 400 if isinstance(error, InvalidInput) else 500


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"")[:MOST_NAME].decode("latin-1")


class Server:
    """Answers for some models.

    Args:
        models: To serve.
        token: Bearer token that clients send; empty for none.
        limits: Limits of a request.
        follow: Seconds between checks for a new champion.
    """

    def __init__(
        self, models: Sequence[Served], *, token: str, limits: Limits, follow: float
    ) -> None:
        self._models = {model.name: model for model in models}
        self._challengers = [model.challenger for model in models if model.challenger]
        self._every = [*models, *(challenger.served for challenger in self._challengers)]
        self._token, self._limits, self._follow = token, limits, follow
        self._under_way = 0
        # Of their own: what follows the champion takes the loop's, and waits for no request.
        self._threads = ThreadPoolExecutor(cores() + 4, "podium-request")
        self._tries = {
            model.name: Tries(f"following the champion of {model.name}") for model in self._every
        }
        self.draining = False
        """Whether it is about to end: it is not ready, and each answer is the last on its
        connection."""
        self._figures = Figures()
        self._rest = Starlette(routes=self._routes(), lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an ASGI application; inference without Starlette's layers, which take longer
        than a small model."""
        found = _INFER.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if not found:
            return await self._rest(scope, receive, send)
        try:
            if scope["method"] != "POST":
                raise _Refused(
                    405, f"{scope['path']} takes POST, not {scope['method']}", allow="POST"
                )
            content, headers = await self._infer(found, dict(scope["headers"]), receive)
        except Exception as error:
            return await self._closing(_told(error))(scope, receive, send)
        named = [*headers, (b"content-length", b"%d" % len(content))]
        named += [(b"connection", b"close")] if self.draining else []
        await send({"type": "http.response.start", "status": 200, "headers": named})
        await send({"type": "http.response.body", "body": content})

    def _routes(self) -> list[Route]:
        paths: dict[
            str, tuple[str, Callable[[Asked], Awaitable[Response]]]
        ] = {}  # tried in this order
        for where in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            paths |= {
                f"{where}/predict": ("POST", self._predict),
                where: ("GET", self._model),
                f"{where}/ready": ("GET", self._model_ready),
            }
        paths |= {
            "/v2/health/live": ("GET", self._live),
            "/v2/health/ready": ("GET", self._ready),
            "/v2": ("GET", self._server),
            "/metrics": ("GET", self._metrics),
            "/": ("GET", self._page),
        }
        return [
            Route(path, self._answering(answer), methods=[verb])
            for path, (verb, answer) in paths.items()
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        following = [
            asyncio.create_task(self._tries[model.name].repeat(model.follow, self._follow))
            for model in self._every
        ]
        following += [asyncio.create_task(challenger.repeat()) for challenger in self._challengers]
        yield
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for challenger in self._challengers:
            await challenger.close()
        for model in self._open():
            await model.now.close()

    def _open(self) -> list[Served]:
        return [model for model in self._every if model.opened]

    def _answering(
        self, answer: Callable[[Asked], Awaitable[Response]]
    ) -> Callable[[Asked], Awaitable[Response]]:
        """Return a handler that turns what is raised into an answer."""

        async def handle(asked: Asked) -> Response:
            try:
                # Not asked.url, which the client makes by its Host header.
                if not asked.scope["path"].startswith("/v2/health/"):
                    self._check_token(asked.headers.get("authorization", "").encode("latin-1"))
                return self._closing(await answer(asked))
            except Exception as error:
                return self._closing(_told(error))

        return handle

    def _closing(self, response: Response) -> Response:
        if self.draining:
            response.headers["Connection"] = "close"
        return response

    def _check_token(self, authorization: bytes) -> None:
        if not self._token:
            return
        scheme, _, given = authorization.partition(
            b" "
        )  # RFC 9110, 11.1: its letters may be small ones
        known = scheme.lower() == b"bearer" and hmac.compare_digest(
            given.strip(b" "), self._token.encode()
        )
        if not known:
            raise _Refused(
                401,
                "a bearer token is needed, and none or another one came",
                www_authenticate="Bearer",
            )

    async def _live(self, asked: Asked) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, asked: Asked) -> Response:
        # A model whose version changes stays open.
        stuck = [tries.name for tries in self._tries.values() if tries.stuck]
        ready = not self.draining and not stuck and len(self._open()) == len(self._every)
        return JSONResponse(
            {"ready": ready, **({"stuck": stuck} if stuck else {})}, 200 if ready else 503
        )

    async def _server(self, asked: Asked) -> Response:
        return JSONResponse(
            {"name": "podium", "version": __version__, "extensions": ["binary_tensor_data"]}
        )

    def _served(self, name: str, version: str | None = None) -> tuple[Served, dict[str, Loaded]]:
        """Return a model and those that answer for it by version, the champion first."""
        model = self._models.get(name)
        if model is None:
            raise NotFound(f"no model {name!r} is served", suggestion(name, self._models))
        both = [model, *([model.challenger.served] if model.challenger else [])]
        if not all(each.opened for each in both):
            raise _Refused(503, f"{name} is being opened", retry_after="1")
        versions = {each.now.version: each.now for each in both}
        if version is not None and version not in versions:
            known = f"{' and '.join(versions)} {are(len(versions))}"
            raise NotFound(f"version {version!r} of {name} is not served", known)
        return model, versions

    async def _model(self, asked: Asked) -> Response:
        model, versions = self._served(**asked.path_params)
        now = versions[asked.path_params.get("version") or model.now.version]
        return JSONResponse({"name": model.name, "versions": [*versions], **now.metadata})

    async def _model_ready(self, asked: Asked) -> Response:
        model, _ = self._served(**asked.path_params)
        return JSONResponse({"name": model.name, "ready": True})

    async def _infer(
        self, path: re.Match[str], headers: dict[bytes, bytes], receive: Receive
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the answer to a request for inference and its headers."""
        self._check_token(headers.get(b"authorization", b""))
        named = path.groupdict()
        model, _ = self._served(**named)

        async def answer(body: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
            size = headers.get(b"inference-header-content-length")
            small = len(body) < _LARGE
            request = (
                read_request(body, size) if small else await self._apart(read_request, body, size)
            )
            called = request.id or _header(headers, b"x-request-id") or new_id()
            key = _header(headers, b"podium-sticky") or called
            version, outputs = await self._run(named, key, called, request.inputs)
            head = {"model_name": model.name, "model_version": version, "id": called}
            if sum([array.nbytes for array in outputs.values()]) < _LARGE:
                return write_response(head, outputs, request)
            return await self._apart(write_response, head, outputs, request)

        return await self._limited(model, receive, answer)

    async def _run(
        self,
        named: Mapping[str, str | None],
        key: str,
        called: str,
        inputs: Mapping[str, Array],
    ) -> tuple[str, dict[str, Array]]:
        """Return the version that answers, and its outputs."""

        async def ask(now: Loaded) -> Answered:
            outputs = await now.batcher.ask(inputs)
            rows = partial(predicted_rows, now.predictor, outputs)
            return Answered(version=now.version, said=outputs, rows=lambda: (rows(), [inputs]))

        size = sum([array.nbytes for array in inputs.values()])
        answered = await self._ask(named, key, called, ask, size)
        return answered.version, answered.said

    async def _ask(
        self, named: Mapping[str, str | None], key: str, called: str, ask: Ask, size: int
    ) -> Answered:
        # Only now: a version that is replaced while the body comes takes no request.
        model, _ = self._served(**named)  # type: ignore[arg-type]
        if model.challenger is None:
            return await ask(model.now)
        return await model.challenger.answer(model, named.get("version"), key, called, ask, size)

    async def _predict(self, asked: Asked) -> Response:
        model, _ = self._served(**asked.path_params)

        headers = dict(asked.headers.raw)
        called = _header(headers, b"x-request-id") or new_id()
        key = _header(headers, b"podium-sticky") or called

        async def answer(body: bytes) -> Response:
            until = time.monotonic() + self._limits.seconds
            media, raw = read_raw(body, asked.headers.get("content-type", ""))

            async def ask(now: Loaded) -> Answered:
                return await self._apart(work, now)

            def work(now: Loaded) -> Answered:
                many, items = dict[str, int](), RawItems()

                def count(unknown: UnknownValues) -> None:
                    many.update(unknown.many)
                    self._figures.note_unknown(model.name, unknown.counts)

                said = predict_raw(
                    now.predictor, media, raw, until=until, on_unknown=count, on_batch=items.add
                )
                answer = {"model_name": model.name, "model_version": now.version, "id": called}
                head = {"Podium-Unknown-Values": json.dumps(many)} if many else {}
                response = JSONResponse({**answer, "predictions": said}, headers=head)
                return Answered(version=now.version, said=response, rows=items.rows)

            response: Response = (
                await self._ask(asked.path_params, key, called, ask, len(body))
            ).said
            return response

        return await self._limited(model, asked.receive, answer)

    async def _apart(self, work: Callable[..., T], *given: Any) -> T:
        """Run large work in a request thread, so that the event loop stays responsive."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def _limited(
        self, model: Served, receive: Receive, answer: Callable[[bytes], Awaitable[T]]
    ) -> T:
        """Answer a request within the limits, and count it."""
        began, status = time.monotonic(), 500
        if self._under_way >= self._limits.requests:
            self._figures.note(model.name, 503, 0.0)
            raise _Refused(503, f"{self._under_way} requests are under way", retry_after="1")
        self._under_way += 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                said = await answer(await self._body(receive))
            status = 200
            return said
        except TimeoutError:
            status = 504
            raise _Refused(504, f"there was no answer within {self._limits.seconds:g} s") from None
        except _Refused as refused:
            status = refused.status
            raise
        except Exception as error:
            status = _status_of(error)
            raise
        finally:
            self._under_way -= 1
            self._figures.note(model.name, status, time.monotonic() - began)

    async def _body(self, receive: Receive) -> bytes:
        most = self._limits.body
        pieces, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
            size += len(pieces[-1])
            if size > most:
                raise _Refused(413, f"a request has at most {most} bytes")
        return b"".join(pieces)

    async def _page(self, asked: Asked) -> Response:
        shown = {
            model.name: (model.now.version, model.now.predictor)
            for model in self._models.values()
            if model.opened
        }
        return HTMLResponse(await self._apart(try_page, shown))

    async def _metrics(self, asked: Asked) -> Response:
        page = self._figures.page(self._open(), self._under_way, self._tries)
        page += compared(self._models.values())
        return Response(page, media_type="text/plain; version=0.0.4")
