"""Trials that print more than anybody reads: what is held of it is bounded."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.cluster.base import MOST_LINE
from podium.cluster.kubernetes.logs import _split
from podium.cluster.local.logs import GrowingFile
from podium.metrics import Reading, parse_line, text_readings
from podium.sweeps.metrics_collector import MOST_READINGS, observe, shortened
from podium.sweeps.pod_trial import _LogReader
from podium.training.follow import epochs_of

pytestmark = pytest.mark.whole


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


def test_the_last_states_of_a_long_progress_bar_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bar = "".join(f"\r{number / 3_000:7.2%} [{'#' * 99}] loss={number}" for number in range(3_000))
    log.write_text(f"{bar}\nthe end")
    lines = [*(growing := GrowingFile(log)).lines(), growing.last()]
    values = [reading.value for reading in text_readings(lines, ["loss"])]
    assert (values, lines[-1]) == (list(map(str, range(3_000))), "the end")
    assert epochs_of(lines, ["loss"], []) == [{"loss": 2999}], "one line is one epoch"
    printed = f"2026-01-02T03:04:05Z {bar}\n".encode()
    chunks = (printed[at : at + 50_000] for at in range(0, len(printed), 50_000))
    stamped = list(_split(chunks))
    assert {line.partition(" ")[0] for line in stamped} == {"2026-01-02T03:04:05Z"}
    assert [reading.value for reading in text_readings(stamped, ["loss"])] == values


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_long_bar_changes_no_epoch_but_its_own(end: str, tmp_path: Path) -> None:
    bar = "".join(f"\r{number / 3_000:7.2%} [{'#' * 99}]" for number in range(2_900))
    log = tmp_path / "log"
    text = "".join(f"{bar} loss=9\r loss={number}{end}" for number in range(5))
    log.write_text(text, newline="")
    lines = list(GrowingFile(log).lines())
    assert epochs_of(lines, ["loss"], []) == [{"loss": float(number)} for number in range(5)]
    assert epochs_of(lines, ["loss"], [], most=3) == [{"loss": 0}, {"loss": 2}, {"loss": 4}]


def test_what_precedes_a_progress_bar_is_cut_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for parts in (["x" * (2 << 20), "loss=1"], ["loss=1", "x" * (2 << 20), "loss=2"]):
        log.write_text("\r".join(parts) + "\n")
        lines = list(GrowingFile(log).lines())
        read = [reading.value for reading in text_readings(lines, ["loss"])]
        assert read == [part[5:] for part in parts if part.startswith("loss")]
        assert max(map(len, lines)) <= MOST_LINE


def test_a_file_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loss=0.5\nloss=0.4\nlo")
    growing = GrowingFile(log)
    assert list(growing.lines()) == ["loss=0.5", "loss=0.4"]
    log.write_text("loss=0.9\n")  # as a shell's > does when a container restarts
    assert list(growing.lines()) == ["loss=0.9"]


def test_all_lines_of_metrics_count_and_the_first_are_kept() -> None:
    count = 3 * MOST_READINGS
    lines = (f"loss={(number + 7) % count} noise={number}" for number in range(count))
    observation, kept = observe(text_readings(lines, ["loss"]), ["loss"])
    assert observation["metrics"] == [
        {"name": "loss", "min": "0", "max": str(count - 1), "latest": "6"}
    ]
    assert [reading.value for reading in kept[:2]] == ["7", "8"]
    assert len(kept) == MOST_READINGS


def test_output_without_a_metric_is_not_cut_into_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 99 + "\nloss=1\n" + "y\n" * (4 << 20))
    assert sum(1 for _ in GrowingFile(log, holding=["loss"]).lines()) < 2 << 19


def test_of_a_pods_long_line_the_beginning_is_held() -> None:
    chunks = (b"x" * (1 << 20) for _ in range(64))
    assert [len(line) for line in _split(chunks)] == [MOST_LINE]
    assert list(_split(iter([b"a\nb", b"c\n", b"d"]))) == ["a", "bc", "d"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Readings that are kept."""
    for name in (
        "metrics_collector.MOST_READINGS",
        "pod_trial.MOST_READINGS",
        "pod_trial.MOST_LINES",
    ):
        monkeypatch.setattr(f"podium.sweeps.{name}", 100)
    return 100


class _Printing:
    """A trial of a pod that prints more metrics than are kept."""

    def read(self, replica: str | None, restarted: Any) -> Iterator[str]:
        return (f"loss={(number * 7919) % 1_000_003} {'x' * 400}" for number in range(2_500))

    def keeps(self, line: str) -> bool:
        return True

    def readings(self, line: str, number: int) -> list[Reading]:
        return parse_line(line, ["loss"])


@pytest.mark.parametrize("followed", [True, False])
def test_of_a_pod_that_prints_metrics_a_part_is_held(few: int, followed: bool) -> None:
    printing: Any = _Printing()
    reader = _LogReader(printing, None)
    reader.followed = followed
    reader.thread.start()
    if followed:
        assert sum(1 for _ in reader.follow()) == 2_500
    assert reader.thread.join(30)
    assert len(reader.readings) < 3 * few
    whole = text_readings(printing.read(None, None), ["loss"])
    assert observe(reader.readings, ["loss"]) == observe(whole, ["loss"])


def test_what_is_left_of_readings_says_the_same_of_all(few: int) -> None:
    lines = [
        f"2026-01-01T00:{number % 60:02}:00Z loss={(number * 7) % 997} acc=nan"
        for number in range(2_500)
    ]
    readings = list(text_readings(lines, ["loss", "acc"]))
    less = shortened(shortened(readings))
    assert len(less) <= 2 * few + 6
    assert observe(less, ["loss", "acc"]) == observe(readings, ["loss", "acc"])
