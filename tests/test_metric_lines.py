"""Metric lines are read as a real Katib read them: programs and answers from runs on a cluster."""

import random
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

from podium.errors import Failed, InvalidInput
from podium.metrics import (
    DEFAULT_FORMAT,
    STRICT_FORMAT,
    compile_format,
    fold,
    format_metrics,
    matches,
    number,
    parse_line,
    read_json,
    read_text,
)
from podium.metrics.goals import objective_value
from podium.metrics.libraries import COLON, WORDS


def observed(
    lines: list[str], names: list[str], formats: list[str] | None = None
) -> dict[str, Any]:
    return {
        name: tuple(values.values())
        for name, values in fold(read_text(lines, names, formats), names).items()
    }


def test_odd_lines_are_read_as_katib_read_them() -> None:
    lines = [
        "loss = 0.5, accuracy:0.1; val-loss=1 val/loss=2 a b=3 Loss=9 xloss=8",
        "loss=+0.25 accuracy=.5",
        "accuracy=90%",
        "val-loss=-1.5e-3",
        "epoch 3: loss=0.75|accuracy=0.8",
    ]
    assert observed(lines, ["loss", "accuracy", "val-loss", "val/loss", "a b"]) == {
        "loss": ("+0.25", "2", "0.75"),
        "accuracy": (".5", "90", "90"),
        "val-loss": ("-1.5e-3", "1", "-1.5e-3"),
        "val/loss": ("unavailable",) * 3,
        "a b": ("unavailable",) * 3,
    }


def test_words_are_cut_to_what_looks_like_a_number() -> None:
    lines = ["loss=good", "loss=0x10", "loss=1_000", "loss=1,5", "loss=", "loss=0.5.5"]
    assert observed(lines, ["loss"]) == {"loss": ("0", "1", "0.5")}


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ("NaN", ("unavailable", "unavailable", "")),
        ("inf", ("unavailable", "unavailable", "")),
        ("-inf", ("unavailable", "unavailable", "-")),
        ("0.5,nan", ("0.5", "0.5", "")),
        ("nan,0.4", ("0.4", "0.4", "0.4")),
        ("1e-3,2E-2", ("1e-3", "2E-2", "2E-2")),
        ("0.7", ("0.7", "0.7", "0.7")),
    ],
)
def test_nan_and_infinity_are_empty_texts_and_never_a_minimum(
    curve: str, expected: tuple[str, ...]
) -> None:
    lines = [f"argv: ['--curve={curve}']", *(f"loss={value}" for value in curve.split(","))]
    assert observed(lines, ["loss"]) == {"loss": expected}


def test_latest_goes_by_time_and_no_time_is_oldest() -> None:
    lines = [
        "2026-01-01T00:00:02Z loss=0.5",
        "2026-01-01T00:00:01Z loss=0.7",
        "2026-01-01T00:00:02Z loss=0.6",
        "loss=0.9",
    ]
    assert observed(lines, ["loss"]) == {"loss": ("0.5", "0.9", "0.6")}


def test_a_time_counts_only_as_a_leading_rfc3339_token() -> None:
    lines = [
        "2026-01-01 00:00:09,1 loss=1",
        "[2026-01-01T00:00:09Z] loss=2",
        "2026-01-01T01:00:01.25+01:00 loss=3",
    ]
    times = [reading.time.year for reading in read_text(lines, ["loss"])]
    assert times == [1, 1, 2026]


def test_min_max_and_latest_are_kept_whatever_the_strategy() -> None:
    folded = fold(
        read_text(["loss=0.5", "loss=0.2", "loss=0.6"], ["loss", "epoch"]), ["loss", "epoch"]
    )
    assert folded["loss"] == {"min": "0.2", "max": "0.6", "latest": "0.6"}
    assert [objective_value(folded["loss"], how) for how in ("min", "max", "latest")] == [
        0.2,
        0.6,
        0.6,
    ]
    assert objective_value(folded["epoch"], "min") is None


def test_without_the_objective_the_other_metrics_are_dropped_too() -> None:
    assert observed(["accuracy=0.3"], ["loss", "accuracy"]) == {
        "loss": ("unavailable",) * 3,
        "accuracy": ("unavailable",) * 3,
    }


def test_a_given_format_replaces_the_default() -> None:
    lines = ["loss: 0.5 accuracy: 0.6", "loss=0.1", "loss: 0.4"]
    assert observed(lines, ["loss", "accuracy"], ["([a-z]+): ([0-9.]+)"]) == {
        "loss": ("0.4", "0.5", "0.4"),
        "accuracy": ("0.6", "0.6", "0.6"),
    }


def test_json_takes_texts_only_and_reads_timestamps() -> None:
    lines = [
        '{"loss": "0.5", "accuracy": 0.6}',
        '{"loss": 0.4, "timestamp": 1767225600}',
        '{"loss": "0.3", "accuracy": "0.7", "timestamp": "2026-01-01T00:00:00Z"}',
        "",
    ]
    names = ["loss", "accuracy"]
    assert {
        name: tuple(values.values())
        for name, values in fold(read_json(lines, names), names).items()
    } == {
        "loss": ("0.3", "0.5", "0.3"),
        "accuracy": ("0.7", "0.7", "0.7"),
    }


@pytest.mark.parametrize(
    "stamp", ["true", "1e300", "-1e300", "[1]", '"soon"', '"9999-12-31T23:59:59-99:99"']
)
def test_a_timestamp_that_is_none_counts_as_the_oldest(stamp: str) -> None:
    lines = ['{"loss": "0.2", "timestamp": 0.5}', f'{{"loss": "0.3", "timestamp": {stamp}}}']
    first, second = read_json(lines, ["loss"])
    assert second.time.year == 1
    assert fold([first, second], ["loss"])["loss"]["latest"] == "0.2"


def test_the_last_value_of_a_json_key_counts() -> None:
    """Go reads an object so, and Katib's collector and Trainer are written in Go."""
    (reading,) = read_json(['{"loss": "1", "loss": "2"}'], ["loss"])
    assert reading.value == "2"


@pytest.mark.parametrize("line", ["loss=0.3", "[1]", '{"loss": NaN}', " "])
def test_a_line_that_is_no_json_object_fails_the_collector(line: str) -> None:
    with pytest.raises(Failed, match="line 2 of the metrics file is not a JSON object"):
        read_json(['{"loss": "1"}', line], ["loss"])


def test_the_strict_format_passes_over_what_is_no_number() -> None:
    lines = ["loss=nan", "loss=-inf", "loss=", "loss=0.25", "accuracy=.5", "loss=tensor(0.2)"]
    assert observed(lines, ["loss", "accuracy"], [STRICT_FORMAT])["loss"] == (
        "0.25",
        "0.25",
        "0.25",
    )


def test_the_last_line_is_the_latest_whatever_the_clock_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock(datetime):
        """Steps three hours back after two lines."""

        hours = iter([0, 0, -3, -3])

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return super().now(tz) + timedelta(hours=next(cls.hours))

    monkeypatch.setattr("podium.metrics.datetime", Clock)
    lines = [format_metrics(accuracy=value) for value in (0.1, 0.2, 0.8, 0.9)]
    monkeypatch.undo()
    readings = read_text(lines, ["accuracy"])
    assert fold(readings, ["accuracy"])["accuracy"]["latest"] == "0.9000"
    assert len({reading.time for reading in readings}) == 4


def test_the_trainers_line_survives_both_formats() -> None:
    line = format_metrics(accuracy=0.98341, loss=1e-7)
    for formats in (None, [STRICT_FORMAT]):
        found = parse_line(line, ["accuracy", "loss"], formats)
        assert [(reading.name, reading.value) for reading in found] == [
            ("accuracy", "0.9834"),
            ("loss", "1e-07"),
        ]
        assert all(reading.time.year > 2000 for reading in found)


@pytest.mark.parametrize(
    "pattern", ["(a", "(a)", "(?=x)(a)(b)", r"(a)(b)\1", "(?>a)(b)(c)", "(a);(b)"]
)
def test_patterns_that_go_refuses_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="metricsFormat"):
        compile_format(pattern)


def test_go_classes_mean_ascii() -> None:
    assert parse_line("loss=٣", ["loss"], [r"(\w+)=(\d+)"]) == []


@pytest.mark.parametrize(
    "text", ["", "-", "nan", "inf", "1_000", "0x10", "1e999", " 1", "unavailable"]
)
def test_what_is_no_finite_number_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize("pattern", [DEFAULT_FORMAT, STRICT_FORMAT])
def test_both_engines_find_the_same(pattern: str) -> None:
    draw, letters = random.Random(1), "ab_|-=+.eE019 \t\v\u00e9\u0661\n\r"
    for _ in range(5000):
        line = "".join(draw.choices(letters, k=draw.randrange(30)))
        found = [
            (match.group(1) or "", match.group(2) or "")
            for match in compile_format(pattern).finditer(line)
        ]
        assert list(matches(line, [pattern])) == [
            (name.strip(), value.strip()) for name, value in found
        ], line


def test_a_long_line_takes_no_longer_for_its_length() -> None:
    began = time.process_time()
    assert list(matches("loss" * 16_000 + " " * 1000)) == []
    assert time.process_time() - began < 1


@pytest.mark.parametrize("pattern", [STRICT_FORMAT, *COLON.patterns, *WORDS.patterns])
def test_a_number_may_begin_with_its_point(pattern: str) -> None:
    lines = ["loss=1.2", "loss=.9834", "loss=-.5", "loss=.5e-1", "loss=1.25 acc=.9", "loss=7"]
    found = [parse_line(line, ["loss"], [pattern])[0].value for line in lines]
    assert found == ["1.2", ".9834", "-.5", ".5e-1", "1.25", "7"]
    assert not parse_line("loss=.", ["loss"], [pattern])
