"""Metric lines: the contract between a trainer, Katib and the local engine. Written and parsed here only.

A line holds an RFC3339 time and ``name=value`` pairs::

    2026-01-02T03:04:05.678901Z accuracy=0.9834 loss=0.0500

What Katib makes of such lines is repeated here to the letter (katib: pkg/metricscollector/v1beta1/file-metricscollector
and pkg/controller.v1beta1/trial): the time is the first blank-separated token, a name counts only if it is exactly the
metric's, values stay text, and ``min``, ``max`` and ``latest`` are folded from them at the end.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from podium.documents import load_json
from podium.errors import Failed, InvalidInput, require

DEFAULT_FORMAT = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""Katib's own metricsFormat. Its value may be empty: ``loss=nan`` is stored as an empty text."""

STRICT_FORMAT = r"([\w|-]+)\s*=\s*([+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"
"""The metricsFormat of our manifests: a value begins with a digit, so ``loss=nan`` is no metric at all."""

UNAVAILABLE = "unavailable"
"""What Katib stores for a metric that never came."""

_NO_TIME = datetime.min.replace(tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([Ee][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """One value that a line reported."""

    name: str
    value: str
    """As printed; may be empty or no number."""

    time: datetime = _NO_TIME
    """When, if the line said so; else the oldest of times."""


def format_metrics(*, time: datetime | None = None, **values: float) -> str:
    """Write one metric line.

    Args:
        time: When the values were measured; now if None.
        **values: Finite numbers by metric name.

    Raises:
        InvalidInput: A value is not finite: Katib would store an empty string and might crown the trial
            (kubeflow/katib#2723).
    """
    for name, value in values.items():
        require(math.isfinite(value), f"{name} is finite", "stop the trial with an error instead", **{name: value})
    moment = (time or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return " ".join([moment, *(f"{name}={value:.4f}" for name, value in values.items())])


def number(text: str) -> float | None:
    """Return the finite decimal number a metric's text holds, None if it holds none."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


@cache
def compile_format(pattern: str) -> Any:
    """Compile a metricsFormat with the rules of Go's regexp, which is RE2 and not Python's re.

    Raises:
        InvalidInput: It does not compile there, lacks the two groups, or holds ``;``, at which Katib splits patterns.
    """
    import re2

    require(";" not in pattern, "';' not in metricsFormat", "Katib splits patterns there: use \\x3b", pattern=pattern)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidInput(
            f"`metricsFormat is a Go regular expression` must hold, but got {pattern!r}: {reason}",
            "Go's RE2 has no look-around and no back-references",
        ) from None
    require(
        compiled.groups >= 2,
        "metricsFormat has two groups, the name and the value",
        r"for example ([\w-]+)=([0-9.]+)",
        pattern=pattern,
    )
    return compiled


def parse_line(line: str, names: Iterable[str], formats: Sequence[str] | None = None) -> list[Reading]:
    """Read one line of text as Katib's collector does.

    Args:
        line: Without its line end.
        names: The metrics to look for.
        formats: metricsFormat patterns; Katib's default if None or empty.

    Raises:
        InvalidInput: A pattern breaks a rule.
    """
    wanted = frozenset(names)
    if not any(name in line for name in wanted):
        return []
    first, blank, _ = line.partition(" ")
    time = _parse_time(first) if blank else _NO_TIME
    return [
        Reading(match.group(1).strip(), (match.group(2) or "").strip(), time)
        for pattern in formats or (DEFAULT_FORMAT,)
        for match in compile_format(pattern).finditer(line)
        if (match.group(1) or "").strip() in wanted
    ]


def read_text(lines: Iterable[str], names: Sequence[str], formats: Sequence[str] | None = None) -> list[Reading]:
    """Read a log.

    Args:
        lines: Without their line ends.
        names: The metrics to look for, the objective first.
        formats: metricsFormat patterns; Katib's default if None or empty.

    Returns:
        What was reported, in the order of the lines; only ``unavailable`` for the objective if it never was: Katib
        then drops the other metrics too.
    """
    return _with_objective([reading for line in lines for reading in parse_line(line, names, formats)], names)


def read_json(lines: Iterable[str], names: Sequence[str]) -> list[Reading]:
    """Read a file of one JSON object a line, values being texts and ``timestamp`` a text or seconds.

    Raises:
        Failed: A line is no JSON object; Katib's collector ends there and the trial fails.
    """
    readings = []
    for place, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = load_json(line, "line", nan=False)
        except InvalidInput:
            row = None
        if not isinstance(row, dict):
            raise Failed(f"line {place} of the metrics file is no JSON object: {line[:80]!r}")
        time = _parse_json_time(row.get("timestamp"))
        readings += [Reading(name, row[name], time) for name in names if isinstance(row.get(name), str)]
    return _with_objective(readings, names)


def read_events(path: Path | None, names: Sequence[str]) -> list[Reading]:
    """Read metrics from TensorBoard's event files, as Katib's TensorFlowEvent collector does.

    Args:
        path: A directory, searched to its bottom, or one event file; None if there is none.
        names: The metrics, the objective first; "validation/loss" is the scalar loss in the directory validation too.

    Raises:
        Failed: The package tensorboard is not installed.
    """
    readings = []
    for folder, scalars in _scalars(path):
        for name in names:
            place, _, tag = name.rpartition("/")
            inside = not place or folder == place
            for found in {name, tag} & set(scalars) if inside or name in scalars else set():
                readings += [
                    Reading(name, repr(float(event.value)), datetime.fromtimestamp(event.wall_time, UTC))
                    for event in scalars[found]
                ]
    return readings or [Reading(names[0], UNAVAILABLE)]


def event_scalars(path: Path) -> list[str]:
    """Return the names of all scalars in TensorBoard's event files."""
    return sorted({tag for _, scalars in _scalars(path) for tag in scalars})


def _scalars(path: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name of the folder, events by scalar) of each folder with event files."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
    except ImportError:
        raise Failed("TensorFlowEvent needs the package tensorboard", "pip install 'podium-ml[tensorboard]'") from None
    if path is None:
        return
    for source in [path] if path.is_file() else sorted({file.parent for file in path.rglob("*tfevents*")}):
        events = EventAccumulator(str(source), size_guidance={SCALARS: 0, TENSORS: 0})
        events.Reload()
        folder = source.parent.name if path.is_file() else source.name
        yield folder, {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}


def in_order(readings: Iterable[Reading]) -> list[Reading]:
    """Sort readings as Katib's database returns them: by time; lines without a time are the oldest."""
    return sorted(readings, key=lambda reading: reading.time)


def fold(readings: Iterable[Reading], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Fold readings into what a trial's observation holds.

    Args:
        readings: In any order.
        names: Every metric of the experiment.

    Returns:
        ``min``, ``max`` (over the numbers) and ``latest`` (whatever came last, even an empty text) by metric name.
    """
    folded = {name: dict.fromkeys(("min", "max", "latest"), UNAVAILABLE) for name in names}
    for reading in in_order(readings):
        metric = folded.get(reading.name)
        if metric is None:
            continue
        metric["latest"] = reading.value
        value = number(reading.value)
        if value is not None:
            lowest, highest = number(metric["min"]), number(metric["max"])
            metric["min"] = reading.value if lowest is None or value < lowest else metric["min"]
            metric["max"] = reading.value if highest is None or value > highest else metric["max"]
    return folded


def objective_value(metric: Mapping[str, str], strategy: str) -> float | None:
    """Return the number that ``min``, ``max`` or ``latest`` chose, None if there is none."""
    return number(metric.get(strategy, UNAVAILABLE))


def _with_objective(readings: list[Reading], names: Sequence[str]) -> list[Reading]:
    if any(reading.name == names[0] for reading in readings):
        return readings
    return [Reading(names[0], UNAVAILABLE)]


def _parse_time(text: str) -> datetime:
    found = _RFC3339.fullmatch(text)
    if not found:
        return _NO_TIME
    whole, fraction, zone = found.groups()
    try:  # microseconds: the database keeps no more
        return datetime.fromisoformat(f"{whole}.{(fraction or '0')[:6]:0<6}{'+00:00' if zone == 'Z' else zone}")
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
