"""What waits for a busy model is its next batch: rows of one form, up to the limit, and everybody's own answer."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from podium.errors import Failed
from podium.scoring.families import Array
from podium.serving.batcher import Batcher

MOST_ROWS = 4


class Doubling:
    """A model that doubles its rows, and refuses negative ones; its first call lasts until it is
    let go."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.is_free = threading.Event()

    def __call__(self, inputs: Mapping[str, Array], options: Any) -> dict[str, Array]:
        self.rows.append(len(inputs["x"]))
        assert self.is_free.wait(60)
        if (inputs["x"] < 0).any():
            raise Failed("a negative row")
        return {"y": inputs["x"] * 2}


def ask(model: Doubling, waiting: Sequence[Array], gone: Sequence[int] = ()) -> list[Any]:
    """Return the answers to requests that came while the model was busy with another one.

    Args:
        gone: Numbers of those whose clients go before the model is free.
    """

    async def answers() -> list[Any]:
        batcher = Batcher(model, MOST_ROWS)
        first = asyncio.create_task(batcher.ask({"x": np.zeros((1, 1))}))
        while not model.rows:
            await asyncio.sleep(0.01)
        tasks = [asyncio.create_task(batcher.ask({"x": rows})) for rows in waiting]
        await asyncio.sleep(0)  # each of them has asked
        for number in gone:
            tasks[number].cancel()
        model.is_free.set()
        given = await asyncio.gather(*tasks, return_exceptions=True)
        await first
        await batcher.close()
        return [answer["y"] if isinstance(answer, dict) else answer for answer in given]

    return asyncio.run(answers())


@pytest.mark.parametrize(
    ("rows", "batches"),
    [
        ([2, 2], [4]),
        ([2, 3], [2, 3]),
        ([3, 2, 1], [4, 2]),
        ([5, 1], [5, 1]),
        ([1, 5], [1, 5]),
        ([1, 1, 1, 1, 1], [4, 1]),
    ],
)
def test_a_batch_is_filled_up_to_its_limit(rows: list[int], batches: list[int]) -> None:
    model = Doubling()
    waiting = [np.full((count, 1), 1.0 + number) for number, count in enumerate(rows)]
    for given, answer in zip(waiting, ask(model, waiting), strict=True):
        assert np.array_equal(answer, given * 2)
    assert model.rows == [1, *batches]


@pytest.mark.parametrize("other", [np.ones((1, 2)), np.ones((1, 1), np.float32)])
def test_rows_of_another_form_are_a_batch_of_their_own(other: Array) -> None:
    model = Doubling()
    waiting = [np.ones((1, 1)), other, np.full((1, 1), 3.0)]
    for given, answer in zip(waiting, ask(model, waiting), strict=True):
        assert np.array_equal(answer, given * 2)
        assert answer.dtype == given.dtype
    assert model.rows == [1, 2, 1]


def test_a_client_that_is_gone_takes_no_room() -> None:
    model = Doubling()
    answers = ask(model, [np.ones((2, 1)) for _ in range(3)], gone=[0])
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [answer.tolist() for answer in answers[1:]] == [[[2.0], [2.0]]] * 2
    assert model.rows == [1, 4]


def test_a_client_that_is_gone_joins_no_other_forms() -> None:
    wide, narrow = np.ones((1, 2)), np.ones((1, 1))
    answers = ask(Doubling(), [narrow, wide, narrow], gone=[0])
    assert [answer.tolist() for answer in answers[1:]] == [[[2.0, 2.0]], [[2.0]]]


def test_requests_of_unequal_rows_move_no_rows_of_others() -> None:
    def add(inputs: Mapping[str, Array], options: Any) -> dict[str, Array]:
        if len(inputs["x"]) != len(inputs["y"]):
            raise Failed("unequal rows")
        return {"sum": inputs["x"] + inputs["y"]}

    async def answers() -> list[Any]:
        batcher = Batcher(add, 100)
        rows = ((2, 3, 100.0), (1, 1, 7.0), (3, 2, 1000.0))
        given = [{"x": np.full((x, 1), value), "y": np.full((y, 1), value)} for x, y, value in rows]
        said = await asyncio.gather(*map(batcher.ask, given), return_exceptions=True)
        await batcher.close()
        return said

    one, honest, other = asyncio.run(answers())
    assert honest["sum"].tolist() == [[14.0]]
    assert (str(one), str(other)) == ("unequal rows", "unequal rows")


def test_equally_unequal_requests_share_no_batch() -> None:
    def add(inputs: Mapping[str, Array], options: Any) -> dict[str, Array]:
        return {"sum": inputs["x"] + inputs["y"][: len(inputs["x"])]}

    async def answers() -> list[Any]:
        batcher = Batcher(add, 100)
        given = [{"x": np.zeros((3, 1)), "y": np.full((4, 1), value)} for value in (1.0, 2.0, 3.0)]
        said = await asyncio.gather(*map(batcher.ask, given))
        await batcher.close()
        return said

    sums = [answer["sum"].ravel().tolist() for answer in asyncio.run(answers())]
    assert sums == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_a_request_at_fault_fails_alone() -> None:
    good, bad, other = ask(Doubling(), [np.ones((1, 1)), -np.ones((1, 1)), np.zeros((1, 1))])
    assert (good.tolist(), other.tolist()) == ([[2.0]], [[0.0]])
    assert isinstance(bad, Failed)
    assert bad.message == "a negative row"
