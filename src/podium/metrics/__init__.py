"""Metric lines: the contract between a trainer, Katib and podium's engine. Written and parsed only
here.

A line holds an RFC3339 time and ``name=value`` pairs::

    2026-01-02T03:04:05.678901Z accuracy=0.9834 loss=0.0500

Parsing follows Katib exactly (katib: pkg/metricscollector/v1beta1/file-metricscollector and
pkg/controller.v1beta1/trial): the time is the first token before a space, a name counts only if it
equals the metric's, values stay text, and ``min``, ``max`` and ``latest`` are computed from them at
the end.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from podium.errors import Failed, InvalidInput
from podium.files.documents import load_json
from podium.metrics.goals import UNAVAILABLE, number

DEFAULT_FORMAT = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""Katib's own metricsFormat. The value may be empty: ``loss=nan`` is stored as an empty string."""

STRICT_FORMAT = r"([\w|-]+)\s*=\s*([+-]?\d*\.?\d+([Ee][+-]?\d+)?)"
"""The metricsFormat of the bundled Experiments: a value needs a digit, so ``loss=nan`` is not a
metric."""

_QUICK = {
    pattern: re.compile(pattern.replace(r"\s", r"[\t\n\f\r ]"), re.ASCII)
    for pattern in (DEFAULT_FORMAT, STRICT_FORMAT)
}
_MOST_QUICK = 256
"""Characters of a line that Python's engine is given."""

PACE = "pace: "
"""Begins the line in which podium's trainer says how fast it is; no metric is in it."""

RESUMED = "resumed: "
"""Begins the line in which podium's trainer says where it goes on. The metric lines of the epochs
before follow it again: what an earlier pod printed may be gone with it."""

_NO_TIME = datetime.min.replace(tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class Reading(NamedTuple):
    """A value that a metric line reported."""

    name: str
    value: str
    """The value as printed; may be empty or not a number."""

    time: datetime = _NO_TIME
    """The time on the line; without one the earliest possible time."""

    @classmethod
    def of(cls, row: Sequence[str]) -> "Reading":
        """Read what ``row`` wrote."""
        name, value, time = row
        return cls(name, value, datetime.fromisoformat(time))

    @property
    def row(self) -> list[str]:
        """Name, value and time (ISO 8601), as they are kept in JSON."""
        return [self.name, self.value, self.time.isoformat()]


def format_metrics(**values: float) -> str:
    """Format a metric line, measured now: values with four decimals, or with four significant
    digits where fewer than two would remain, such as an rmse of 5.213e-05.

    Args:
        **values: Finite numbers by metric name.

    Raises:
        InvalidInput: A value is not finite: Katib would store an empty string and might name the
            trial the best (kubeflow/katib#2723).
    """
    return _line(values, _digits)


def metric_line(values: Mapping[str, float]) -> str:
    """Format a metric line with all digits of the values, measured now.

    Args:
        values: Finite numbers by metric name.

    Raises:
        InvalidInput: A value is not finite, or Katib would not read a name.
    """
    for name in values:
        if not re.fullmatch(r"[\w-]+", name, re.ASCII):
            raise InvalidInput(
                f"not a metric's name: {name!r}", "letters, digits, _ and -, such as val_accuracy"
            )
    return _line(values, lambda value: repr(float(value)))


def over_folds(folds: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Return the means of metrics over folds, by epoch, each with its standard error as
    ``name_se``.

    Args:
        folds: Metrics of each epoch of each fold; epochs that some fold lacks are left out.
    """
    means = []
    for records in zip(*folds, strict=False):
        names = [name for name in records[0] if all(name in record for record in records)]
        values = {name: [record[name] for record in records] for name in names}
        errors = {f"{name}_se": stdev(of) / len(of) ** 0.5 for name, of in values.items()}
        means.append({**{name: fmean(of) for name, of in values.items()}, **errors})
    return means


_printed = [datetime.min.replace(tzinfo=UTC)]
"""Time of this process's last line: the latest value is told by the times, which never go back."""


def _line(values: Mapping[str, float], write: Callable[[float], str]) -> str:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidInput(
                f"{name} is {value}, not a finite number", "stop the trial with an error instead"
            )
    _printed[0] = max(datetime.now(UTC), _printed[0] + timedelta(microseconds=1))
    moment = _printed[0].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return " ".join([moment, *(f"{name}={write(value)}" for name, value in values.items())])


def _digits(value: float) -> str:
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.4g}"


@cache
def compile_format(pattern: str) -> Any:
    """Compile a metricsFormat with the rules of Go's regexp, which is RE2 and not Python's re.

    Raises:
        InvalidInput: Go cannot compile it, it lacks the two groups, or it has a ``;``, where Katib
            splits patterns.
    """
    import re2

    if ";" in pattern:
        raise InvalidInput(
            f"metricsFormat {pattern!r} has a ;, where Katib splits patterns", "use \\x3b"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidInput(
            f"metricsFormat is not a Go regular expression: {pattern!r}: {reason}",
            "Go's RE2 has no look-around and no back-references",
        ) from None
    if compiled.groups < 2:
        raise InvalidInput(
            f"metricsFormat {pattern!r} lacks the two groups, of the name and of the value",
            r"for example ([\w-]+)=([0-9.]+)",
        )
    return compiled


def parse_line(
    line: str, names: Iterable[str], formats: Sequence[str] | None = None
) -> list[Reading]:
    """Parse a line of text as Katib's collector does.

    Args:
        line: Without its line end.
        names: The metrics to look for.
        formats: metricsFormat patterns; Katib's default if None or empty.

    Raises:
        InvalidInput: A pattern breaks a rule.
    """
    for name in names:
        if name in line:
            break
    else:
        return []
    first, blank, _ = line.partition(" ")
    time = _parse_time(first) if blank else _NO_TIME
    return [Reading(name, value, time) for name, value in matches(line, formats) if name in names]


def matches(line: str, formats: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Return names and values as metricsFormat patterns find them; the arguments are those of
    parse_line.

    Python's engine finds the same by the usual patterns, at a fifth of the cost, but in time that
    grows by the square of a line.
    """
    found = list[tuple[str, str]]()
    for pattern in formats or (DEFAULT_FORMAT,):
        if len(line) <= _MOST_QUICK and (quick := _QUICK.get(pattern)):
            found += [(name, value) for name, value, *_ in quick.findall(line)]
            continue
        for match in compile_format(pattern).finditer(line):
            found.append(((match.group(1) or "").strip(), (match.group(2) or "").strip()))
    return found


def text_readings(
    lines: Iterable[str], names: Sequence[str], formats: Sequence[str] | None = None
) -> Iterator[Reading]:
    """Yield the readings of a log as it is read; the arguments are those of read_text."""
    wanted = frozenset(names)
    for line in lines:
        yield from parse_line(line, wanted, formats)


def read_text(
    lines: Iterable[str], names: Sequence[str], formats: Sequence[str] | None = None
) -> list[Reading]:
    """Parse a log.

    Args:
        lines: Without their line ends.
        names: The metrics to look for, the objective first.
        formats: metricsFormat patterns; Katib's default if None or empty.

    Returns:
        The readings in line order. If the objective was never reported, only ``unavailable`` for
        the objective: Katib then drops the other metrics too.
    """
    return _with_objective(list(text_readings(lines, names, formats)), names)


def read_json(lines: Iterable[str], names: Sequence[str]) -> list[Reading]:
    """Parse a file of one JSON object per line, as json_readings does; without the objective there
    is nothing."""
    return _with_objective(list(json_readings(lines, names)), names)


def json_readings(lines: Iterable[str], names: Sequence[str], first: int = 1) -> Iterator[Reading]:
    """Yield the readings of a file of one JSON object per line; values are strings, ``timestamp``
    one or seconds.

    Args:
        lines: Without their line ends.
        names: The metrics to look for.
        first: Number of the first line.

    Raises:
        Failed: A line is not a JSON object; Katib's collector stops there and the trial fails.
    """
    for line_number, line in enumerate(lines, first):
        if not line:
            continue
        try:
            row = load_json(line, "line", nan=False, twice=True)
        except InvalidInput:
            row = None
        if not isinstance(row, dict):
            raise Failed(
                f"line {line_number} of the metrics file is not a JSON object: {line[:80]!r}"
            )
        time = _parse_json_time(row.get("timestamp"))
        yield from (
            Reading(name, row[name], time) for name in names if isinstance(row.get(name), str)
        )


def kept_readings(lines: Iterable[str], names: Sequence[str]) -> Iterator[Reading]:
    """Yield the readings of these names that were kept as a row (Reading.row) a line, in JSON.

    Raises:
        Failed: A line is none; it says why there are no readings.
    """
    for line in filter(None, lines):
        try:
            reading = Reading.of(load_json(line, "line"))
        except (InvalidInput, TypeError, ValueError):
            raise Failed(f"the metrics cannot be read: {line[:200]}") from None
        if reading.name in names:
            yield reading


def read_events(path: Path | None, names: Sequence[str]) -> list[Reading]:
    """Read metrics from TensorBoard's event files, as Katib's TensorFlowEvent collector does.

    Args:
        path: A directory, searched recursively, or an event file; None if neither exists.
        names: The metrics, the objective first; "validation/loss" is the scalar loss in the
            directory validation too.

    Raises:
        Failed: The package tensorboard is not installed.
    """
    readings = []
    for folder, scalars in _scalars(path):
        for name in names:
            directory, _, tag = name.rpartition("/")
            inside = not directory or folder == directory
            for scalar in {name, tag} & set(scalars) if inside or name in scalars else set():
                readings += [
                    Reading(
                        name, repr(float(event.value)), datetime.fromtimestamp(event.wall_time, UTC)
                    )
                    for event in scalars[scalar]
                ]
    return readings or [Reading(names[0], UNAVAILABLE)]


def event_scalars(path: Path) -> list[str]:
    """Return the names of all scalars in TensorBoard's event files."""
    return sorted({tag for _, scalars in _scalars(path) for tag in scalars})


def _scalars(path: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            SCALARS,
            TENSORS,
            EventAccumulator,
        )
    except ImportError:
        raise Failed(
            "TensorFlowEvent needs the package tensorboard", "pip install 'podium-ml[tensorboard]'"
        ) from None
    if path is None:
        return
    for source in (
        [path] if path.is_file() else sorted({file.parent for file in path.rglob("*tfevents*")})
    ):
        events = EventAccumulator(str(source), size_guidance={SCALARS: 0, TENSORS: 0})
        events.Reload()
        folder = source.parent.name if path.is_file() else source.name
        yield folder, {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}


def fold(readings: Iterable[Reading], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Reduce readings to the metrics of a trial's observation.

    Args:
        readings: In any order.
        names: Every metric of the experiment.

    Returns:
        ``min`` and ``max`` (of the numbers) and ``latest`` (the last value, even an empty string)
        by metric name.
    """
    folded = {name: dict.fromkeys(("min", "max", "latest"), UNAVAILABLE) for name in names}
    last = dict.fromkeys(names, _NO_TIME)
    ends: dict[str, dict[str, tuple[float, datetime]]] = {
        "min": {},
        "max": {},
    }  # of equal ones the first by time
    for reading in readings:
        name, time = reading.name, reading.time
        if name not in folded:
            continue
        if time >= last[name]:
            folded[name]["latest"], last[name] = reading.value, time
        if (value := number(reading.value)) is None:
            continue
        for how, size in (("min", value), ("max", -value)):
            end = ends[how].get(name)
            if end is None or size < end[0] or (size == end[0] and time < end[1]):
                folded[name][how], ends[how][name] = reading.value, (size, time)
    return folded


def _with_objective(readings: list[Reading], names: Sequence[str]) -> list[Reading]:
    if any(reading.name == names[0] for reading in readings):
        return readings
    return [Reading(names[0], UNAVAILABLE)]


def _parse_time(text: str) -> datetime:
    if not _RFC3339.fullmatch(text):
        return _NO_TIME
    try:  # microseconds: the database keeps no more
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return _NO_TIME


def _parse_json_time(value: object) -> datetime:
    if isinstance(value, str):
        return _parse_time(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NO_TIME
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=value)
    except OverflowError:
        return _NO_TIME
