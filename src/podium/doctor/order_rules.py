"""Rules about time and repetition in a log: which of many readings becomes the objective."""

import re
from collections.abc import Iterator

from podium.doctor.name_rules import line_numbers
from podium.doctor.reading import Log
from podium.manifests.rules import Rules, Violation
from podium.metrics import number

ORDER_RULES = Rules[Log]()
rule = ORDER_RULES.rule

TIME_HINT = "begin the line with an RFC 3339 time: 2026-01-02T03:04:05.678901Z accuracy=0.9"
_TIMELIKE = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(:\d\d)?|\d\d:\d\d:\d\d|(?<!\d)1[67]\d{8}(\.\d+)?(?!\d)"
)
_PROGRESS = re.compile(
    r"\[\s*\d+/\d+|\b(batch|step|iter(ation)?)\b|\d+/\d+ \[|it/s|\r", re.IGNORECASE
)


def _untimed(log: Log) -> list[int]:
    return [
        index
        for index, (_, reading) in enumerate(log.reported(log.reader.objective))
        if reading.time.year == 1
    ]


@rule(
    "warn",
    "Katib's database sorts by time only; without one, which value is the latest is not guaranteed.",
)
def _no_time(log: Log) -> Iterator[Violation]:
    reported = log.reported(log.reader.objective)
    untimed = _untimed(log)
    if (
        len(reported) > 1
        and len(untimed) == len(reported)
        and not any(_TIMELIKE.search(r[0].text) for r in reported)
    ):
        yield Violation(
            "no line with the objective has a time", line_numbers(r[0] for r in reported), TIME_HINT
        )


@rule(
    "warn",
    "A time counts only if it is the first word of the line and RFC 3339, with T and a zone.",
)
def _time_not_understood(log: Log) -> Iterator[Violation]:
    reported = log.reported(log.reader.objective)
    lines = [
        reported[index][0] for index in _untimed(log) if _TIMELIKE.search(reported[index][0].text)
    ]
    if lines and len(reported) > 1:
        match = _TIMELIKE.search(lines[0].text)
        assert match
        yield Violation(
            f"the time `{match[0]}` is not understood", line_numbers(iter(lines)), TIME_HINT
        )


@rule("warn", "Lines without a time count as the oldest ones.")
def _some_without_time(log: Log) -> Iterator[Violation]:
    reported, untimed = log.reported(log.reader.objective), _untimed(log)
    if untimed and len(untimed) < len(reported):
        what = f"{len(untimed)} of {len(reported)} readings have no time"
        yield Violation(what, line_numbers(reported[index][0] for index in untimed), TIME_HINT)


@rule("warn", "latest is the value with the latest time, not the one printed last.")
def _latest_is_not_the_last(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    reported = log.reported(name)
    latest = log.folded()[name]["latest"]
    if reported and latest != reported[-1][1].value:
        level = "fail" if log.reader.strategy(name) == "latest" else "note"
        what = f"{reported[-1][1].value!r} was printed last, {latest!r} is stored as the latest"
        yield Violation(
            what, f"line {reported[-1][0].number}", "give every line a time", level=level
        )


@rule(
    "fail",
    "A trial whose latest value is not a number can be named the best (kubeflow/katib#2723).",
)
def _latest_is_not_a_number(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    reported = log.reported(name)
    if (
        reported
        and log.reader.strategy(name) == "latest"
        and number(log.folded()[name]["latest"]) is None
    ):
        hint = "stop the trial with an error instead; let metricsFormat ask for a digit"
        what = f"the strategy is latest and the latest value is {log.folded()[name]['latest']!r}"
        yield Violation(what, f"line {reported[-1][0].number}", hint)


@rule(
    "warn",
    "With min or max over batches the objective is the luckiest batch, not the quality of the model.",
)
def _batches_share_the_name(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    reported = log.reported(name)
    batches = [line for line, _ in reported if _PROGRESS.search(line.text)]
    if len(reported) <= 1 or not batches:
        return
    strategy = log.reader.strategy(name)
    level = "note" if strategy == "latest" else None
    what = f"{len(reported)} readings of {name}, several an epoch, and the strategy is {strategy}"
    hint = f"print a batch's value as train_{name}=… (or `{name}: …`), and {name}= once an epoch"
    yield Violation(what, line_numbers(iter(batches)), hint, level=level)


@rule(
    "warn",
    "Each process's line is a reading of its own; ranks other than 0 only add noise and repetitions.",
)
def _every_rank_reports(log: Log) -> Iterator[Violation]:
    reported = log.reported(log.reader.objective)
    pairs = list(zip(reported[::2], reported[1::2], strict=False))
    same = [
        first
        for first, other in pairs
        if first[1].value == other[1].value and first[0].number != other[0].number
    ]
    ranked = [
        line
        for line, _ in reported
        if re.search(r"\brank\W{0,2}[1-9]|\[default[1-9]\]", line.text, re.I)
    ]
    if ranked or (
        len(pairs) > 1 and len(same) == len(pairs) and len({first[1].value for first in same}) > 1
    ):
        lines = ranked or [first[0] for first in same]
        what = "several processes seem to report the objective"
        yield Violation(
            what, line_numbers(iter(lines)), 'report from rank 0 only: os.environ.get("RANK", "0")'
        )
