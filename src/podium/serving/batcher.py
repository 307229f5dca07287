"""Requests to one model, run together: whatever came while the model was busy is its next batch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np

from podium.errors import Failed
from podium.scoring.families import Array
from podium.system.background import Background

Outputs = dict[str, Array]


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    inputs: Mapping[str, Array]
    rows: int
    form: list[object]
    """Name, shape and dtype of each input: only requests with equal ones share a batch. One of
    unequal rows, which would move the rows of those behind it, has a form of its own."""

    done: "asyncio.Future[Outputs]"
    batch: "Sequence[_Waiting]" = ()
    """Those it runs with, while it runs."""

    options: Any = None
    """Options of that run."""


class Batcher:
    """Runs a model in threads of its own, so that the event loop always answers.

    Nobody waits for a batch to fill: requests that find the model idle run at once.

    Args:
        run: The model.
        most_rows: Rows of a batch at most; a larger request is a batch alone.
        threads: Batches that run at once.
        options: Makes what run is given beside the rows; its ``terminate`` is set once nobody waits
            for the answers.
    """

    def __init__(
        self,
        run: Callable[[Mapping[str, Array], Any], Outputs],
        most_rows: int,
        threads: int = 1,
        options: Callable[[], Any] = SimpleNamespace,
    ) -> None:
        self._run, self._most_rows, self._most_running, self._options = (
            run,
            most_rows,
            threads,
            options,
        )
        self._waiting: list[_Waiting] = []
        self._batches: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        """None ends a thread."""
        self._threads = [
            Background(self._serve, "podium-model", again=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        self._running = 0
        self._starting = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.batches = self.rows = 0

    async def ask(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the model's outputs for these rows.

        Raises:
            InvalidInput: The model takes other inputs.
            Failed: The model fails on them.
        """
        loop = asyncio.get_running_loop()
        rows = len(next(iter(inputs.values())))
        form: list[object] = [
            (name, array.shape[1:], array.dtype) for name, array in sorted(inputs.items())
        ]
        if any(len(array) != rows for array in inputs.values()):
            form.append(object())  # equal to no other: its rows cannot be told apart in a batch
        waiting = _Waiting(inputs=inputs, rows=rows, form=form, done=loop.create_future())
        self._waiting.append(waiting)
        self._quiet.clear()
        self._start_soon(loop)
        try:
            return await waiting.done
        except asyncio.CancelledError:
            if waiting.batch and all(other.done.done() for other in waiting.batch):
                waiting.options.terminate = True
            raise

    async def close(self) -> None:
        """Wait until everything that was asked is answered."""
        await self._quiet.wait()
        for _ in self._threads:
            self._batches.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _start_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start after the loop's pending callbacks: requests that have arrived join, and answers
        are written first."""
        if not self._starting:
            self._starting = True
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._starting = False
        while self._waiting and self._running < self._most_running:
            if batch := self._take():
                self._running += 1
                options = self._options()
                for waiting in batch:
                    waiting.batch, waiting.options = batch, options
                self._batches.put(batch)
        if not self._running:
            self._quiet.set()

    def _serve(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._work(batch)
            del batch  # an idle thread keeps no rows

    def _work(self, batch: list[_Waiting]) -> None:
        """Run a batch, and hand all of its results to the loop at once."""
        try:
            results = self._answer(batch)
        except Exception as error:
            results = [error] * len(batch)
        loop = batch[0].done.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._hand_out, batch, results, loop)

    def _hand_out(
        self,
        batch: list[_Waiting],
        results: list[Outputs | Exception],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.batches += 1
        self.rows += sum(waiting.rows for waiting in batch)
        for waiting, result in zip(batch, results, strict=True):
            waiting.batch = ()
            if waiting.done.done():  # its client is gone
                continue
            if isinstance(result, Exception):
                waiting.done.set_exception(result)
            else:
                waiting.done.set_result(result)
        self._running -= 1
        self._start_soon(loop)

    def _take(self) -> list[_Waiting]:
        """Take the oldest request and those of its form that fit beside it."""
        rows, batch, rest = 0, list[_Waiting](), list[_Waiting]()
        for waiting in self._waiting:
            if waiting.done.done():  # its client is gone
                continue
            if not batch or (
                waiting.form == batch[0].form and rows + waiting.rows <= self._most_rows
            ):
                batch.append(waiting)
                rows += waiting.rows
            else:
                rest.append(waiting)
        self._waiting = rest
        return batch

    def _answer(self, batch: list[_Waiting]) -> list[Outputs | Exception]:
        if len(batch) == 1:
            return [self._one(batch[0])]
        names = batch[0].inputs
        together = {
            name: np.concatenate([waiting.inputs[name] for waiting in batch]) for name in names
        }
        try:
            outputs = self._run(together, batch[0].options)
        except Exception:  # one of them may be at fault: the others are answered
            return [self._one(waiting) for waiting in batch]
        ends = list(accumulate(waiting.rows for waiting in batch))
        if any(array.ndim == 0 or len(array) != ends[-1] for array in outputs.values()):
            return [self._one(waiting) for waiting in batch]
        starts = [0, *ends[:-1]]
        return [
            {name: array[start:end] for name, array in outputs.items()}
            for start, end in zip(starts, ends, strict=True)
        ]

    def _one(self, waiting: _Waiting) -> Outputs | Exception:
        try:
            return self._run(waiting.inputs, waiting.options)
        except Exception as error:
            return Failed("out of memory") if isinstance(error, MemoryError) else error
