"""Requests to one model, run together: whatever came while the model was busy is its next batch."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from podium.errors import Failed
from podium.scoring.families import Array

Outputs = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Waiting:
    inputs: Mapping[str, Array]
    done: "asyncio.Future[Outputs]"

    @cached_property
    def rows(self) -> int:
        return len(next(iter(self.inputs.values())))

    @cached_property
    def form(self) -> tuple[tuple[str, tuple[int, ...], "np.dtype[Any]"], ...]:
        """What has to be equal for two requests to be one batch."""
        return tuple((name, self.inputs[name].shape[1:], self.inputs[name].dtype) for name in sorted(self.inputs))


class Batcher:
    """Runs a model in a thread of its own, so that the event loop always answers.

    Nobody waits for a batch to fill: a request that finds the model idle runs at once.

    Args:
        run: The model.
        most_rows: Rows of a batch at most; a larger request is a batch alone.
    """

    def __init__(self, run: Callable[[Mapping[str, Array]], Outputs], most_rows: int) -> None:
        self._run, self._most_rows = run, most_rows
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(1, "podium-model")
        self._working: asyncio.Task[None] | None = None
        self.batches = self.rows = 0

    async def ask(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the model's outputs for these rows.

        Raises:
            InvalidInput: The model takes other inputs.
            Failed: The model fails on them.
        """
        waiting = _Waiting(inputs=inputs, done=asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await waiting.done

    async def close(self) -> None:
        """Wait until everything that was asked is answered."""
        while self._working:
            await self._working
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._take()
            try:
                results = await loop.run_in_executor(self._thread, self._answer, batch)
            except Exception as error:
                results = [error] * len(batch)
            for waiting, result in zip(batch, results, strict=True):
                if waiting.done.done():  # its client is gone
                    continue
                if isinstance(result, Exception):
                    waiting.done.set_exception(result)
                else:
                    waiting.done.set_result(result)
        self._working = None

    def _take(self) -> list[_Waiting]:
        """Take the oldest request and those of its form that fit beside it."""
        first, rows = self._waiting[0], 0
        batch, rest = list[_Waiting](), list[_Waiting]()
        for waiting in self._waiting:
            fits = not batch or (waiting.form == first.form and rows + waiting.rows <= self._most_rows)
            if fits and not waiting.done.done():
                batch.append(waiting)
                rows += waiting.rows
            elif not waiting.done.done():
                rest.append(waiting)
        self._waiting = rest
        return batch

    def _answer(self, batch: list[_Waiting]) -> list[Outputs | Exception]:
        self.batches += 1
        self.rows += sum(waiting.rows for waiting in batch)
        if len(batch) == 1:
            return [self._one(batch[0])]
        names = batch[0].inputs
        together = {name: np.concatenate([waiting.inputs[name] for waiting in batch]) for name in names}
        try:
            outputs = self._run(together)
        except Exception:  # one of them may be at fault: the others are answered
            return [self._one(waiting) for waiting in batch]
        ends = np.cumsum([waiting.rows for waiting in batch])
        if any(array.ndim == 0 or len(array) != ends[-1] for array in outputs.values()):
            return [self._one(waiting) for waiting in batch]
        starts = [0, *ends[:-1]]
        return [
            {name: array[start:end] for name, array in outputs.items()} for start, end in zip(starts, ends, strict=True)
        ]

    def _one(self, waiting: _Waiting) -> Outputs | Exception:
        try:
            return self._run(waiting.inputs)
        except Exception as error:
            return error if isinstance(error, Failed) or not isinstance(error, MemoryError) else Failed("out of memory")
