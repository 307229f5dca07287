"""A second version beside the one that answers: a canary gets a share of the requests, a shadow is
asked what the other has answered already; both answers can be recorded, for promotion by them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson

from podium.data.held_out import TestInputs
from podium.display.text import plural
from podium.errors import InvalidInput, PodiumError
from podium.models.recorded import Recording
from podium.models.split import Split
from podium.scoring.families import Array
from podium.serving.served import Loaded, Served
from podium.system.background import DaemonThreads, Tries

_MOST_PENDING, _MOST_PENDING_BYTES = 64, 64 << 20
"""Requests that wait for the second answer, and what they hold; those beyond are dropped."""

_SEGMENT_BYTES, _SEGMENT_SECONDS = 1 << 20, 60.0
"""Recorded answers are written once they are so large, and after so long."""

_THREADS = 2
"""That read raw items for a second version; those of clients are others."""

_LAST_SECONDS = 3.0
"""For second answers once the server ends; those that are not there then are lost."""

_LAST_WRITE_SECONDS = 20.0
"""To record what is left once the server ends: less than a pod has."""

_log = logging.getLogger("podium")


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A version's answer to a request."""

    version: str
    said: Any
    """For the client."""

    rows: Callable[[], tuple[list[Any], list[Mapping[str, Array]]]]
    """Returns the prediction of each item, None of one without, and the inputs of the others, in
    parts of one after the other; called only to record them."""


Ask = Callable[[Loaded, Executor | None], Awaitable[Answered]]
"""Asks a version, whose large work is done in these threads; None for those of clients."""


class Challenger:
    """The second version of a model, and what became of its answers.

    Args:
        served: The second version; its name is ``NAME@VERSION``.
        share: As in Split.
        recording: Where both answers are recorded; None for nowhere.
        seconds: For its answer.
    """

    def __init__(
        self, served: Served, share: float, recording: Recording | None, seconds: float
    ) -> None:
        self.served, self._share, self._recording = served, share, recording
        self._seconds = seconds
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Answers by version, role (canary or shadow) and outcome: answered, failed, dropped as too
        many waited, or lost as the server ended."""

        self.recorded = self.record_failures = 0
        """Requests whose answers were written, and those that could not be."""

        self._tasks = set[asyncio.Task[None]]()
        self._held = 0
        self._threads = ThreadPoolExecutor(_THREADS, "podium-shadow")
        self._lines, self._size = list[bytes](), 0
        self._writer = DaemonThreads("podium-record")

    async def answer(
        self,
        champion: Served,
        version: str | None,
        key: str,
        name: str,
        ask: Ask,
        size: int,
        limit: asyncio.Timeout,
    ) -> Answered:
        """Let one of both versions answer a request, and the other one behind it.

        Args:
            champion: The model.
            version: The one that the client asks for; None for any.
            key: Requests of the same key get the same version.
            name: Id of the request.
            ask: Asks a version.
            size: Bytes that the request holds.
            limit: Ends the request once its time is over.
        """
        now, other = champion.now, self.served.now
        if now.version == other.version:  # it was promoted
            return await ask(now, None)
        takes = version == other.version or (version is None and self._takes(key, other.version))
        if not takes:
            answered = await ask(now, None)
            if not self._share:
                self._follow(now, answered, self.served, ask, name, size)
            return answered
        try:
            answered = await ask(other, None)
        except InvalidInput:  # if the champion takes the request, it is not the client's fault
            self._follow(other, None, champion, ask, name, size, doubted=True)
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not limit.expired():
                raise  # the client hung up
            self.counts[other.version, "canary", "failed"] += 1
            if self._recording:
                self._follow(other, None, champion, ask, name, size)
            raise
        self.counts[other.version, "canary", "answered"] += 1
        if self._recording:
            self._follow(other, answered, champion, ask, name, size)
        return answered

    def _takes(self, key: str, version: str) -> bool:
        """Return whether the canary answers requests of a key: a larger share keeps those of a
        smaller one."""
        digest = blake2b(f"{version}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
        return int.from_bytes(digest.digest()) < self._share * 2**64

    def _follow(
        self,
        asked: Loaded,
        first: Answered | None,
        second: Served,
        ask: Ask,
        name: str,
        size: int,
        doubted: bool = False,
    ) -> None:
        """Ask a second version without a client that waits, unless too many are waiting already."""
        full = self._held + size > _MOST_PENDING_BYTES or len(self._tasks) >= _MOST_PENDING
        if full and self._tasks:
            self.counts[second.now.version, "shadow", "dropped"] += 1
            return
        self._held += size
        task = asyncio.create_task(self._compare(asked, first, second, ask, name, doubted))

        def ended(task: asyncio.Task[None]) -> None:
            self._held -= size
            self._tasks.discard(task)

        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _compare(
        self,
        asked: Loaded,
        first: Answered | None,
        second: Served,
        ask: Ask,
        name: str,
        doubted: bool,
    ) -> None:
        """Ask the second version, and record both answers.

        Args:
            doubted: Whether the version that was asked has refused the request: it has failed only
                if the second takes it.
        """
        now, answered = second.now, None  # only now: one that is replaced meanwhile takes none
        outcome = "answered"
        try:
            async with asyncio.timeout(self._seconds):
                answered = await ask(now, self._threads)
        except asyncio.CancelledError:  # the server ends
            outcome = "lost"
        except Exception as error:  # it may say anything of a request that the other has answered
            if first is None and isinstance(error, InvalidInput):
                return  # the client is at fault
            outcome = "failed"
        self.counts[now.version, "shadow", outcome] += 1
        if doubted and answered is None:
            return  # nobody knows who is at fault
        if doubted:
            self.counts[asked.version, "canary", "failed"] += 1
        if self._recording:
            loop, moment = asyncio.get_running_loop(), datetime.now(UTC)
            both = {asked: first} | ({now: answered} if outcome != "lost" else {})
            # It is recorded also where the server ends while it waits for the writer's thread.
            record = loop.run_in_executor(self._writer, self._record, name, moment, both)
            await asyncio.shield(record)

    def _record(self, name: str, moment: datetime, both: Mapping[Loaded, Answered | None]) -> None:
        """Keep both answers for the next segment; called in the writer's thread, as _write is."""
        try:
            line = {
                "id": name,
                "time": moment.isoformat(),
                "answers": {now.version: self._answer(answer) for now, answer in both.items()},
                "digests": {now.version: now.digest for now in both},
            }
            self._lines.append(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        except Exception:  # an id that is no text, for example
            self.record_failures += 1
            return
        self._size += len(self._lines[-1])
        if self._size >= _SEGMENT_BYTES:
            with suppress(PodiumError, OSError):
                self._write()

    def _answer(self, answered: Answered | None) -> dict[str, Any] | None:
        """Return an answer as it is recorded: None of a version that failed, or whose outputs are
        no predictions."""
        if answered is None:
            return None
        try:
            rows, parts = answered.rows()
            hashes = iter([f"{item:016x}" for inputs in parts for item in _hashes(inputs)])
            items = ["" if row is None else next(hashes) for row in rows]
            return {"predicted": rows, "items": items}
        except Exception:
            self.record_failures += 1
            return None

    def _write(self, last: bool = False) -> None:
        lines, size, self._lines, self._size = self._lines, self._size, [], 0
        if not lines or not self._recording:
            return
        try:
            self._recording.add(b"".join(lines))
        except Exception as error:
            if size < _SEGMENT_BYTES and not last:  # the storage may be back in a minute
                self._lines, self._size = lines, size
                raise
            self.record_failures += len(lines)
            lost = plural(len(lines), "answered request")
            _log.warning("%s of %s could not be recorded: %s", lost, self.served.name, error)
            raise
        self.recorded += len(lines)

    async def flush(self, last: bool = False) -> None:
        """Write what is kept.

        Args:
            last: Whether it is counted and gone if it cannot be; else that is so once it is as
                large as a segment.

        Raises:
            PodiumError, OSError: It cannot be written.
        """
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, last)

    async def repeat(self) -> None:
        """Write what is kept from time to time, for ever."""
        await Tries(f"recording answers of {self.served.name}").repeat(self.flush, _SEGMENT_SECONDS)

    async def close(self) -> None:
        """Wait a moment for answers that are under way, and write what is kept."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=min(self._seconds, _LAST_SECONDS))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        lost = sum(count for key, count in self.counts.items() if key[2] == "lost")
        if lost:
            _log.warning(
                "the server ended before %s came beside a client's", plural(lost, "answer")
            )
        write = asyncio.create_task(self.flush(last=True))
        if not (await asyncio.wait([write], timeout=_LAST_WRITE_SECONDS))[0]:
            _log.warning(
                "the last answers of %s could not be recorded within %g s",
                self.served.name,
                _LAST_WRITE_SECONDS,
            )
            write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown()


def _hashes(inputs: Mapping[str, Array]) -> Array:
    count = len(next(iter(inputs.values())))
    return TestInputs(inputs=inputs, kept=np.arange(count)).hashes()


def add_challengers(
    models: Sequence[Served],
    splits: Sequence[Split],
    record: str | None,
    seconds: float,
) -> None:
    """Give models the second versions that are asked for.

    Args:
        models: To be served.
        splits: Which version beside which model.
        record: Directory or URI that both answers are recorded in; None for none.
        seconds: For an answer.

    Raises:
        InvalidInput: A model is not served, is a directory, or has two second versions; answers
            are to be recorded without any.
        NotFound: There is no such version.
        PodiumError: The directory cannot be written.
    """
    named = {model.name: model for model in models}
    if record and not splits:
        raise InvalidInput(
            "--record needs --shadow or --canary",
            "--shadow VERSION lets a second version answer too",
        )
    for split in splits:
        name = split.name or (models[0].name if len(models) == 1 else "")
        if name not in named:
            raise InvalidInput(
                f"{split.ref} is to answer beside {name or 'one'} of the models {', '.join(named)}",
                f"name it: {next(iter(named))}@{split.ref}",
            )
        model = named[name]
        if model.challenger:
            raise InvalidInput(
                f"{model.challenger.served.name} and {name}@{split.ref} are both to answer beside {name}",
                "give one, with --shadow or with --canary",
            )
        recording = Recording(record, name) if record else None
        if recording:
            recording.check_writable()
        model.challenger = Challenger(model.beside(split.ref), split.share, recording, seconds)
