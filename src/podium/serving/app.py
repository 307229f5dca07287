"""The server: Open Inference Protocol v2 over HTTP, and raw items at ``/v2/models/NAME/predict``.

Source of paths, members and errors:
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette
from starlette.requests import Request as Asked
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from podium import __version__
from podium.data.items import Batch
from podium.display.templates import environment
from podium.prediction import Predictor
from podium.prediction.predictions import UnknownValues
from podium.scoring.families import Array
from podium.serving.challenger import Answered
from podium.serving.form import Form
from podium.serving.raw import predict_raw, read_raw
from podium.serving.served import Loaded, Served
from podium.serving.service import GONE, Limits, Refused, Service
from podium.serving.tensors import MOST_NAME, InferRequest

if TYPE_CHECKING:
    from podium.serving.rpc import RpcServer

_COMPRESSED = re.compile(r"(?i)\b(br|compress|deflate|gzip|zstd)\b")
_INFER = re.compile(r"/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?/infer")


def _told(error: Exception) -> Response:
    refused = Refused.of(error)
    return JSONResponse({"error": str(refused)}, refused.status, refused.headers)


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"")[:MOST_NAME].decode("latin-1")


class _RawItems:
    """The raw items of a request, as a version reads them and predicts them."""

    def __init__(self) -> None:
        self._rows = list[Any]()
        self._parts = list[Mapping[str, Array]]()

    def add(self, batch: Batch, results: Array) -> None:
        """Add items, in the order in which the answer has them."""
        self._rows += [*results, *[None] * len(batch.problems)]
        self._parts += [batch.inputs] if batch.names else []

    def rows(self) -> tuple[list[Any], list[Mapping[str, Array]]]:
        """Return them as Answered.rows does; where one cannot be read, of which the place in the
        request is not known, none has a prediction."""
        if any(row is None for row in self._rows):
            return [None] * len(self._rows), []
        return self._rows, self._parts


class Server:
    """Answers for some models over HTTP.

    Args:
        models: To serve.
        token: Bearer token that clients send; empty for none.
        limits: Limits of a request.
        follow: Seconds between checks for a new champion.
    """

    def __init__(
        self, models: Sequence[Served], *, token: str, limits: Limits, follow: float
    ) -> None:
        self.service = Service(models, token=token, limits=limits, follow=follow)
        self.rpc: RpcServer | None = None
        """Answers over gRPC as long as this one does over HTTP."""

        self._rest = Starlette(routes=self._routes(), lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an ASGI application; inference without Starlette's layers, which take longer
        than a small model."""
        found = _INFER.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if not found:
            return await self._rest(scope, receive, send)
        try:
            if scope["method"] != "POST":
                raise Refused(
                    405, f"{scope['path']} takes POST, not {scope['method']}", allow="POST"
                )
            content, headers = await self._infer(found, dict(scope["headers"]), receive)
        except Exception as error:
            return await self._closing(_told(error))(scope, receive, send)
        named = [*headers, (b"content-length", b"%d" % len(content))]
        named += [(b"connection", b"close")] if self.service.draining else []
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
        async with self.service.running():
            if self.rpc:
                await self.rpc.start()
            yield
            if self.rpc:
                await self.rpc.stop()

    def _answering(
        self, answer: Callable[[Asked], Awaitable[Response]]
    ) -> Callable[[Asked], Awaitable[Response]]:
        """Return a handler that turns what is raised into an answer."""

        async def handle(asked: Asked) -> Response:
            try:
                # Not asked.url, which the client makes by its Host header.
                if not asked.scope["path"].startswith("/v2/health/"):
                    self.service.check_token(
                        asked.headers.get("authorization", "").encode("latin-1")
                    )
                return self._closing(await answer(asked))
            except Exception as error:
                return self._closing(_told(error))

        return handle

    def _closing(self, response: Response) -> Response:
        if self.service.draining:
            response.headers["Connection"] = "close"
        return response

    async def _live(self, asked: Asked) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, asked: Asked) -> Response:
        ready, stuck = self.service.ready, self.service.stuck
        return JSONResponse(
            {"ready": ready, **({"stuck": stuck} if stuck else {})}, 200 if ready else 503
        )

    async def _server(self, asked: Asked) -> Response:
        return JSONResponse(
            {"name": "podium", "version": __version__, "extensions": ["binary_tensor_data"]}
        )

    async def _model(self, asked: Asked) -> Response:
        return JSONResponse(self.service.describe(**asked.path_params))

    async def _model_ready(self, asked: Asked) -> Response:
        model = self.service.find(**asked.path_params)
        return JSONResponse({"name": model.name, "ready": True})

    async def _infer(
        self, path: re.Match[str], headers: dict[bytes, bytes], receive: Receive
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        service = self.service
        service.check_token(headers.get(b"authorization", b""))
        name, version = path["name"], path["version"]
        service.find(name, version)

        async def answer(
            body: bytes, limit: asyncio.Timeout
        ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
            size = headers.get(b"inference-header-content-length")
            request = await service.beside(len(body), InferRequest.read, body, size)
            called = service.id_of(request.id, _header(headers, b"x-request-id"))
            key = _header(headers, b"podium-sticky")
            return await service.infer(
                name, version, key, called, request.inputs, len(body), limit, request.answer
            )

        return await service.limited(lambda: name, partial(self._body, receive, headers), answer)

    async def _predict(self, asked: Asked) -> Response:
        service, named = self.service, asked.path_params
        name, version = named["name"], named.get("version")
        service.find(name, version)
        headers = dict(asked.headers.raw)
        called = service.id_of(_header(headers, b"x-request-id"))

        async def answer(body: bytes, limit: asyncio.Timeout) -> Response:
            arguments = body, asked.headers.get("content-type", "")
            media, raw = await service.beside(len(body), read_raw, *arguments)

            async def ask(now: Loaded, threads: Executor | None) -> Answered:
                until = time.monotonic() + service.limits.seconds
                return await service.apart(work, now, until, threads=threads)

            def work(now: Loaded, until: float) -> Answered:
                values, items = list[UnknownValues](), _RawItems()
                said = predict_raw(
                    now.predictor,
                    media,
                    raw,
                    until=until,
                    on_unknown=values.append,
                    on_batch=items.add,
                )
                (seen,) = values
                many = {"Unknown": seen.many, "Missing": seen.many_missing}
                head = {f"Podium-{kind}-Values": json.dumps(of) for kind, of in many.items() if of}
                answer = {"model_name": name, "model_version": now.version, "id": called}
                response = JSONResponse({**answer, "predictions": said}, headers=head)
                return Answered(version=now.version, said=(response, seen), rows=items.rows)

            key = _header(headers, b"podium-sticky")
            answered = await service.ask(name, version, key, called, ask, len(body), limit)
            response, seen = answered.said
            service.figures.note_values(name, seen)  # a second version's are the same rows
            return cast("Response", response)

        body = partial(self._body, asked.receive, headers)
        return await service.limited(lambda: name, body, answer)

    async def _body(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        most = self.service.limits.body
        if _COMPRESSED.search(encoding := _header(headers, b"content-encoding")):
            raise Refused(
                415, f"Content-Encoding {encoding!r} is not read: send the request as it is"
            )
        if int(headers.get(b"content-length", 0)) > most:  # before anything of it came
            raise Refused(413, f"a request has at most {most} bytes")
        pieces, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(GONE, "the client hung up")
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
            size += len(pieces[-1])
            if size > most:
                raise Refused(413, f"a request has at most {most} bytes")
        return b"".join(pieces)

    async def _page(self, asked: Asked) -> Response:
        models = [model for model in self.service.models.values() if model.opened]
        shown = [(model.name, model.now.version, model.now.predictor) for model in models]
        return HTMLResponse(await self.service.apart(_try_page, shown))

    async def _metrics(self, asked: Asked) -> Response:
        return Response(self.service.page(), media_type="text/plain; version=0.0.4")


def _try_page(models: Sequence[tuple[str, str, Predictor]]) -> str:
    """Return a page on which each model, given by name, version and what predicts, can be tried."""
    shown = [
        {"name": name, "version": version, "form": Form.of(predictor)}
        for name, version, predictor in models
    ]
    template = environment("serving", "reports").get_template("serve.html.jinja")
    return template.render(models=shown, podium=__version__)
