"""Answers for some models, whatever the protocol: token, limits, the version that answers,
figures."""

import asyncio
import errno
import hmac
import logging
import random
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from podium.display.text import are, size as size_words
from podium.errors import InvalidInput, NotFound, PodiumError, suggestion
from podium.prediction import Predictor
from podium.scoring import OnnxModel
from podium.scoring.families import Array
from podium.serving.challenger import Answered, Ask
from podium.serving.figures import Figures
from podium.serving.served import Loaded, Served
from podium.system.background import Tries
from podium.system.machine import cores

_ANSWER = 4
"""An answer is at most so many times as large as a request may be: a model can make a thousand
numbers of one byte."""

GONE = 499
"""Status of a request whose client hung up, as proxies count it."""

_LARGE = 64 << 10
"""Bytes that are read or written beside the event loop."""

T = TypeVar("T")
_log = logging.getLogger("podium")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the requests of a client."""

    body: int = 64 << 20
    """Bytes of a request."""

    requests: int = 256
    """Requests under way; one more is told to come again."""

    seconds: float = 60.0
    """For an answer."""


class Refused(Exception):
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

    @classmethod
    def of(cls, error: Exception) -> "Refused":
        """Return the status and the sentence of any error; one that nobody expects is logged."""
        if isinstance(error, Refused):
            return error
        status = _status_of(error)
        if isinstance(error, PodiumError):
            return cls(status, str(error))
        _log.error("a request failed: %s", "".join(traceback.format_exception(error)))
        said = (
            "there is no room on the server's disk"
            if status == 507
            else "the server failed; its log says how"
        )
        return cls(status, said)


def _status_of(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return 507
    return 404 if isinstance(error, NotFound) else 400 if isinstance(error, InvalidInput) else 500


class Service:
    """Models that are asked.

    Args:
        models: To serve.
        token: Bearer token that clients send; empty for none.
        limits: Limits of a request.
        follow: Seconds between checks for a new champion.
    """

    def __init__(
        self, models: Sequence[Served], *, token: str, limits: Limits, follow: float
    ) -> None:
        self.models = {model.name: model for model in models}
        self.limits = limits
        self._challengers = [model.challenger for model in models if model.challenger]
        self._every = [*models, *(challenger.served for challenger in self._challengers)]
        self._token, self._follow = token, follow
        self._under_way = 0
        # Of their own: what follows a champion has one too, and waits for no request.
        self._threads = ThreadPoolExecutor(cores() + 4, "podium-request")
        self._tries = {
            model.name: Tries(f"following the champion of {model.name}") for model in self._every
        }
        self.draining = False
        """Whether it is about to end: it is not ready, and each answer is the last on its
        connection."""
        self.figures = Figures()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the champions; at the end, when no client waits any more, end the models."""
        work = [
            *(self._tries[model.name].repeat(model.follow, self._follow) for model in self._every),
            *(challenger.repeat() for challenger in self._challengers),
        ]
        following = [asyncio.create_task(each) for each in work]
        yield
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await asyncio.gather(*(challenger.close() for challenger in self._challengers))
        self._threads.shutdown(wait=False, cancel_futures=True)
        for model in self._every:
            await model.close()

    def check_token(self, authorization: bytes) -> None:
        """Refuse a request without the token, if there is one.

        Args:
            authorization: The header.
        """
        if not self._token:
            return
        scheme, _, token = authorization.partition(
            b" "
        )  # RFC 9110, 11.1: its letters may be small ones
        valid = scheme.lower() == b"bearer" and hmac.compare_digest(
            token.strip(b" "), self._token.encode()
        )
        if not valid:
            raise Refused(
                401,
                "a bearer token is needed, and none or another one came",
                www_authenticate="Bearer",
            )

    @property
    def stuck(self) -> list[str]:
        """Tasks that do not come back by themselves."""
        return [tries.name for tries in self._tries.values() if tries.stuck]

    @property
    def ready(self) -> bool:
        """Whether all models are open; one whose version changes stays so."""
        opened = all(model.opened for model in self.models.values())
        waits = any(challenger.served.opening for challenger in self._challengers)
        return opened and not waits and not self.draining and not self.stuck

    def find(self, name: str, version: str | None = None) -> Served:
        """Return a model that is open.

        Args:
            version: One that has to answer for it; None for any.

        Raises:
            NotFound: There is no such model or version.
            Refused: It is being opened.
        """
        model = self.models.get(name)
        if model is None:
            raise NotFound(f"no model {name!r} is served", suggestion(name, self.models))
        beside = model.challenger
        if not model.opened or (beside and beside.served.opening):
            raise Refused(503, f"{name} is being opened", retry_after="1")
        if version is not None and version not in (versions := model.versions):
            hint = f"{' and '.join(versions)} {are(len(versions))}"
            raise NotFound(f"version {version!r} of {name} is not served", hint)
        return model

    def describe(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Return a model's name, versions, platform, inputs and outputs; arguments and errors as of
        find."""
        model = self.find(name, version)
        versions = model.versions
        now = versions[version or model.now.version]
        return {"name": name, "versions": [*versions], **now.metadata}

    @staticmethod
    def id_of(*ids: str) -> str:
        """Return the first id that a client gave its request, else a new one."""
        return next(filter(None, ids), "") or f"{random.getrandbits(128):032x}"

    async def infer(
        self,
        model: str,
        version: str | None,
        key: str,
        called: str,
        inputs: Mapping[str, Array],
        size: int,
        limit: asyncio.Timeout,
        write: Callable[[Mapping[str, str], Mapping[str, Array]], T],
    ) -> T:
        """Return the answer of the version that has to answer; other arguments as of ask.

        Args:
            write: Makes it of its members beside the outputs, and of these.
        """

        async def ask(now: Loaded, threads: Executor | None) -> Answered:
            now.check_names(inputs)
            self._check_answer(len(next(iter(inputs.values()))) * now.row_bytes)
            outputs = await now.batcher.ask(inputs)
            self._check_answer(sum([array.nbytes for array in outputs.values()]))
            rows = partial(_predicted_rows, now.predictor, outputs)
            return Answered(version=now.version, said=outputs, rows=lambda: (rows(), [inputs]))

        answered = await self.ask(model, version, key, called, ask, size, limit)
        head = {"model_name": model, "model_version": answered.version, "id": called}
        written = sum([array.nbytes for array in answered.said.values()])
        return await self.beside(written, write, head, answered.said)

    def _check_answer(self, count: int) -> None:
        """Refuse a request whose answer has too many bytes."""
        if count > (most := _ANSWER * self.limits.body):
            raise InvalidInput(
                f"the answer has {size_words(count)}, but at most {size_words(most)} are sent",
                "send fewer rows at once",
            )

    async def ask(
        self,
        model: str,
        version: str | None,
        key: str,
        called: str,
        ask: Ask,
        size: int,
        limit: asyncio.Timeout,
    ) -> Answered:
        """Ask the version that has to answer.

        Args:
            model: Its name.
            version: As of find.
            key: Requests of the same key get the same version; empty for any.
            called: Id of the request.
            ask: Asks a version.
            size: Bytes that the request holds.
            limit: Ends the request once its time is over.
        """
        # Only now: a version that is replaced while the body comes takes no request.
        served = self.find(model, version)
        if served.challenger is None or not served.challenger.served.opened:
            return await ask(served.now, None)
        return await served.challenger.answer(
            served, version, key or called, called, ask, size, limit
        )

    async def apart(
        self, work: Callable[..., T], *arguments: Any, threads: Executor | None = None
    ) -> T:
        """Run large work in a request thread, or in one of others, so that the event loop stays
        responsive."""
        return await asyncio.get_running_loop().run_in_executor(
            threads or self._threads, work, *arguments
        )

    async def beside(self, size: int, work: Callable[..., T], *arguments: Any) -> T:
        """Run what reads or writes so many bytes: beside the event loop if they are many."""
        return work(*arguments) if size < _LARGE else await self.apart(work, *arguments)

    async def limited(
        self,
        name: Callable[[], str],
        body: Callable[[], Awaitable[bytes]],
        answer: Callable[[bytes, asyncio.Timeout], Awaitable[T]],
    ) -> T:
        """Answer a request for a model within the limits, and count it.

        Args:
            name: Returns the model's; called last.
            body: Reads the request, once it may come.
            answer: Returns the answer to it; given what ends it as well.

        Raises:
            Refused: There are too many, or it took too long.
        """
        began, status = time.monotonic(), 500
        if self._under_way >= self.limits.requests:
            self.figures.note(name(), 503, 0.0)
            raise Refused(503, f"{self._under_way} requests are under way", retry_after="1")
        self._under_way += 1
        try:
            async with asyncio.timeout(self.limits.seconds) as limit:
                said = await answer(await body(), limit)
            status = 200
            return said
        except TimeoutError:
            status = 504
            raise Refused(504, f"there was no answer within {self.limits.seconds:g} s") from None
        except asyncio.CancelledError:
            status = GONE
            raise
        except Exception as error:
            status = _status_of(error)
            raise
        finally:
            self._under_way -= 1
            self.figures.note(name(), status, time.monotonic() - began)

    def page(self) -> str:
        """Return the metrics in Prometheus' format."""
        return self.figures.page(self._every, self._under_way, self._tries)


def _predicted_rows(predictor: Predictor, outputs: Mapping[str, Array]) -> list[Any]:
    model, classes = predictor.model, predictor.classes
    if isinstance(model, OnnxModel):
        count = None if classes is None else len(classes)
        return list(model.predicted(outputs, classes=count))
    (array,) = outputs.values()
    return list(array)
