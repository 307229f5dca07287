"""Memory is shared only where the other process's numbers mean that very memory here. This file is also a program."""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

from podium.trainer import shared_memory
from podium.trainer.config import TrainConfig
from podium.trainer.world import PeerLost, World, join

SIZE = 4096
TOKEN = bytes(range(shared_memory.LINE))


@pytest.fixture
def file(tmp_path: Path) -> int:
    number = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    os.write(number, TOKEN + bytes(SIZE - len(TOKEN)))
    yield number
    os.close(number)


def test_a_file_is_opened_that_another_process_has_open(file: int) -> None:
    opened = shared_memory._open(SIZE, os.getpid(), file, TOKEN)
    assert opened is not None
    assert os.fstat(opened).st_ino == os.fstat(file).st_ino
    os.close(opened)


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


def test_a_system_or_a_processor_that_cannot_share_shares_none(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = shared_memory.allocate(World(), 10)
    assert memory is not None
    assert memory.take(10).tolist() == [0] * 10
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "aarch64")
        assert shared_memory.allocate(World(), 10) is None
    monkeypatch.delattr(os, "memfd_create")
    assert shared_memory.allocate(World(), 10) is None


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(__file__, folder, folder)


def test_after_a_meeting_each_reads_what_the_other_wrote_before(met: list[dict[str, Any]]) -> None:
    for found in met:
        assert found["read"] == [float(i) for i in range(2000)]


def test_whoever_comes_early_waits(met: list[dict[str, Any]]) -> None:
    assert met[0]["waited"] > 0.1


def test_a_process_that_ended_is_missed_only_at_meetings_it_did_not_come_to(met: list[dict[str, Any]]) -> None:
    assert met[0]["lost"] == "rank 1 has ended or does not answer"
    assert met[0]["noticed"] < 5


def meet(here: World) -> dict[str, Any]:
    """Meet 2000 times to write and read in turn, once late, and once as rank 0 without the other."""
    memory = shared_memory.allocate(here, 2)
    assert memory is not None
    read, numbers = [], memory.take(2)
    for value in range(2000):
        if value % 2 == here.rank:
            numbers[0] = value
        memory.meet()
        read.append(numbers[0].item())
        memory.meet()
    begin = time.monotonic()
    if here.rank == 1:
        time.sleep(0.2)
    memory.meet()
    found = {"read": read, "waited": time.monotonic() - begin}
    if here.rank == 0:
        begin = time.monotonic()
        try:
            memory.meet()
        except PeerLost as error:
            found |= {"lost": str(error).partition("(")[2].partition(")")[0], "noticed": time.monotonic() - begin}
    return found


if __name__ == "__main__":
    with join(TrainConfig(no_cuda=True)) as here:
        torch.save(meet(here), f"{sys.argv[2]}/{here.rank}")
        os._exit(0)  # rank 0 cannot say goodbye to one who is gone
