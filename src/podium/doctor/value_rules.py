"""Rules about values in a log: Katib stores something other than was printed."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from podium.doctor.name_rules import line_numbers
from podium.doctor.reading import COLOR, Line, Log
from podium.manifests.rules import Rules, Violation
from podium.metrics import STRICT_FORMAT, number, objective_value

VALUE_RULES = Rules[Log]()
rule = VALUE_RULES.rule

CROWNED = "Katib stores an empty text and lets the trial succeed; it can be named the best (kubeflow/katib#2723)."
_EXPONENT = re.compile(r"[eE][+-]?\d")
_WRONG = re.compile(r"[,_]\d|\.\d|[xX][0-9a-fA-F]")


class _Printed(NamedTuple):
    """One value as printed in the log and as stored by Katib."""

    metric: str
    line: Line
    text: str
    """Text after the equals sign, up to the next blank."""

    value: str | None
    """The stored value; None if a stricter metricsFormat skips it."""


def _printed(log: Log) -> Iterator[_Printed]:
    """Yield every ``metric=…`` of a log."""
    for name in log.reader.names:
        wanted = re.compile(rf"(?<![\w|-]){re.escape(name)}[^\S\n]*=[^\S\n]*(\S*)")
        for line in log.lines:
            values = [reading.value for reading in line.readings if reading.name == name]
            for match in wanted.finditer(line.text):
                taken = bool(values) and match[1].startswith(values[0])
                yield _Printed(name, line, match[1], values.pop(0) if taken else None)


def _grouped(log: Log, values: Iterator[_Printed], hint: str) -> Iterator[Violation]:
    """Make one violation for each metric; it is not a failure while the objective still comes out
    as a number."""
    by_metric: dict[str, list[_Printed]] = {}
    for value in values:
        by_metric.setdefault(value.metric, []).append(value)
    folded = log.folded()
    for metric, values_of in by_metric.items():
        wrong = any(value.value and number(value.value) is not None for value in values_of)
        usable = (
            objective_value(folded[metric], log.reader.strategy(metric)) is not None and not wrong
        )
        mild = metric != log.reader.objective or usable
        first = values_of[0]
        shown = COLOR.sub(lambda code: repr(code[0])[1:-1], f"{metric}={first.text}")
        kept = (
            "is passed over by the metricsFormat"
            if first.value is None
            else f"is stored as {first.value!r}"
        )
        where = line_numbers(value.line for value in values_of)
        yield Violation(
            f"`{shown}` {kept}", where, hint.format(metric=metric), level="warn" if mild else None
        )


def _unreadable(log: Log, pattern: str) -> Iterator[_Printed]:
    wanted = re.compile(pattern, re.IGNORECASE)
    for value in _printed(log):
        if number(value.value or "") is None and wanted.match(value.text):
            yield value


@rule("fail", CROWNED)
def _not_finite(log: Log) -> Iterator[Violation]:
    hint = "stop the trial with an error when {metric} is not finite, and let metricsFormat ask for a digit"
    yield from _grouped(log, _unreadable(log, r"[+-]?(nan|inf)"), hint)


@rule("fail", CROWNED)
def _tensor_or_array(log: Log) -> Iterator[Violation]:
    values = _unreadable(log, r"(\w+\.)*(tensor|array|float\d*|int\d*)\(|[\[({]")
    yield from _grouped(log, values, "print a plain number: float({metric}) or .item()")


@rule("fail", CROWNED)
def _color_in_value(log: Log) -> Iterator[Violation]:
    hint = "switch colors off where stdout is not a terminal (NO_COLOR=1)"
    yield from _grouped(log, _unreadable(log, r"\x1b"), hint)


@rule("fail", CROWNED)
def _quoted_value(log: Log) -> Iterator[Violation]:
    yield from _grouped(log, _unreadable(log, r"[\"'`]"), "print the number without quotes")


@rule("fail", CROWNED)
def _no_number(log: Log) -> Iterator[Violation]:
    others = r"(?![+-]?(nan|inf)|(\w+\.)*(tensor|array|float\d*|int\d*)\(|[\[({\x1b\"'`])"
    values = (value for value in _unreadable(log, others) if value.value is not None)
    yield from _grouped(log, values, "print a number after {metric}=, on the same line")


@rule(
    "fail",
    "The value ends where Katib's pattern no longer matches: 1,234 and 1_000 are 1, 0x10 is 0, 0,95 is 0.",
)
def _number_cut_short(log: Log) -> Iterator[Violation]:
    values = (
        value
        for value in _printed(log)
        if value.value and _WRONG.match(value.text[len(value.value) :])
    )
    hint = "print plain decimals, for example f'{{x:.4f}}': no separators, no decimal comma"
    yield from _grouped(log, values, hint)


@rule(
    "warn",
    "The % is dropped: 96.59% is 96.59, so a goal of 0.95 is reached at once and scales get mixed.",
)
def _percent(log: Log) -> Iterator[Violation]:
    values = (
        value
        for value in _printed(log)
        if value.value and value.text[len(value.value) :].startswith("%")
    )
    yield from _grouped(log, values, "print a fraction, 0.9659, and set the goal on the same scale")


@rule(
    "fail",
    "The value ends where the metricsFormat no longer matches: without the exponent 1.5e-05 is 1.5.",
)
def _exponent_cut(log: Log) -> Iterator[Violation]:
    values = (
        value
        for value in _printed(log)
        if value.value and _EXPONENT.match(value.text[len(value.value) :])
    )
    yield from _grouped(log, values, f"let metricsFormat read exponents: {STRICT_FORMAT}")


@rule("warn", "Everything after the number is dropped.")
def _unit_dropped(log: Log) -> Iterator[Violation]:
    values = (
        value
        for value in _printed(log)
        if value.value
        and (rest := value.text[len(value.value) :])[:1].isalpha()
        and not _WRONG.match(rest)
        and not _EXPONENT.match(rest)
        and number(value.value) is not None
    )
    yield from _grouped(log, values, "print the number alone, always in the same unit")


@rule(
    "warn",
    "While a rule of medianstop is in force, a name=value without a number ends the collector: Failed.",
)
def _unreadable_while_stopping_early(log: Log) -> Iterator[Violation]:
    if not log.reader.stops_early:
        return
    pair = re.compile(r"[\w|-]+\s*=\s*(?![+-]?\.?\d)\S*")
    lines = [(line, match[0]) for line in log.lines if (match := pair.search(line.text))]
    if lines:
        hint = "keep lines that mention the metric free of other name=text; do not print argv"
        yield Violation(
            f"`{lines[0][1]}` has no number", line_numbers(line for line, _ in lines), hint
        )
