"""Memory is shared only where the other process's numbers mean that very memory here."""

import os
from pathlib import Path

import pytest

from podium.trainer import shared_memory
from podium.trainer.world import World

SIZE = 4096
TOKEN = bytes(range(shared_memory.TOKEN))


@pytest.fixture
def file(tmp_path: Path) -> int:
    number = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    os.write(number, TOKEN + bytes(SIZE - len(TOKEN)))
    yield number
    os.close(number)


def test_what_one_writes_the_other_reads(file: int) -> None:
    one, other = (shared_memory._open(SIZE, os.getpid(), file, TOKEN) for _ in range(2))
    assert one is not None
    assert other is not None
    one[100] = 7
    assert other[100] == 7


def test_another_file_under_the_same_number_is_left_alone(file: int) -> None:
    assert shared_memory._open(SIZE, os.getpid(), file, TOKEN[::-1]) is None
    assert shared_memory._open(SIZE + 1, os.getpid(), file, TOKEN) is None


def test_a_number_that_is_no_file_here_is_left_alone(file: int) -> None:
    reading, writing = os.pipe()
    for number in (reading, -1, 1 << 20):
        assert shared_memory._open(SIZE, os.getpid(), number, TOKEN) is None
    assert shared_memory._open(SIZE, 1 << 30, file, TOKEN) is None, "no such process"
    os.close(reading)
    os.close(writing)


def test_a_system_without_such_memory_shares_none(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = shared_memory.allocate(World(), 10)
    assert memory is not None
    assert memory.tolist() == [0] * 10
    monkeypatch.delattr(os, "memfd_create")
    assert shared_memory.allocate(World(), 10) is None
