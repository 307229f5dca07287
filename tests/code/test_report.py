"""`podium.report`: one line for an epoch, which podium and Katib read."""

from typing import Any

import numpy as np
import pytest

from podium.code.report import report
from podium.errors import InvalidInput
from podium.metrics import STRICT_FORMAT, parse_line


def test_a_report_is_one_line_that_katib_reads(capsys: pytest.CaptureFixture[str]) -> None:
    report({"val-loss": 0.25}, accuracy=1, step=3)
    report(loss=1e-9)
    first, second = capsys.readouterr().out.splitlines()
    read = parse_line(first, ["val-loss", "accuracy"], [STRICT_FORMAT])
    assert [(reading.name, reading.value) for reading in read] == [
        ("val-loss", "0.25"),
        ("accuracy", "1.0"),
    ]
    assert read[0].time.year > 2000
    assert first.endswith(" step=3")
    assert [reading.value for reading in parse_line(second, ["loss"], [STRICT_FORMAT])] == ["1e-09"]


def test_an_epoch_may_be_a_fraction(capsys: pytest.CaptureFixture[str]) -> None:
    for step in (0.5, np.float64(1.5), np.array(2)):
        report(loss=0.5, step=step)  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["step=0.5", "step=1.5", "step=2"]


class _Tensor:
    """As TensorFlow has them: with dimensions, but without item()."""

    ndim = 0

    def __float__(self) -> float:
        return 0.5


def test_a_tensor_that_is_a_number_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report({"val-loss": _Tensor()})
    assert capsys.readouterr().out.endswith(" val-loss=0.5\n")


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ({}, {}, "nothing is reported"),
        ({"loss": 1}, {"loss": 2}, "loss is reported twice"),
        ({"step": 1}, {"step": 2}, "step is reported twice"),
        ({"val loss": 1}, {}, "not a metric's name: 'val loss'"),
        ({"loss": "low"}, {}, "loss is 'low', not a number"),
        ({}, {"loss": float("nan")}, "loss is nan, not a finite number"),
    ],
)
def test_a_report_that_nobody_could_read_is_refused(
    values: dict[str, Any], named: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput, match=message):
        report(values, **named)
    assert capsys.readouterr().out == ""
