"""Trials that print more than anybody reads: what is held of it is bounded."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.cluster.local.logs import MOST_LINE, GrowingFile
from podium.metrics import text_readings
from podium.sweeps.metrics_collector import MOST_READINGS, observe


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_of_a_long_line_only_the_beginning_is_held(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\nloss=0.5\nthe end")
    growing = GrowingFile(log)
    first, second = growing.lines()
    assert (len(first), second, growing.last()) == (MOST_LINE, "loss=0.5", "the end")
    with log.open("ab") as file:
        file.write(b", really\n")
    assert list(growing.lines()) == ["the end, really"]


def test_all_lines_of_metrics_count_and_the_first_are_kept() -> None:
    count = 3 * MOST_READINGS
    lines = (f"loss={(number + 7) % count} noise={number}" for number in range(count))
    observation, kept = observe(text_readings(lines, ["loss"]), ["loss"])
    assert observation["metrics"] == [{"name": "loss", "min": "0", "max": str(count - 1), "latest": "6"}]
    assert [reading.value for reading in kept[:2]] == ["7", "8"]
    assert len(kept) == MOST_READINGS


def test_output_without_a_metric_is_not_cut_into_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 99 + "\nloss=1\n" + "y\n" * (4 << 20))
    assert sum(1 for _ in GrowingFile(log, holding=["loss"]).lines()) < 2 << 19
