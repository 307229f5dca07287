"""Rules about values in a log: Katib stores something other than was printed, or another one of
many readings becomes the objective."""

import re
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from podium.doctor.name_rules import escaped, line_numbers
from podium.doctor.reading import LABEL, Line, Log
from podium.manifests.rules import Rules, Violation
from podium.metrics import STRICT_FORMAT, number, parse_line
from podium.metrics.goals import objective_value

VALUE_RULES = Rules[Log]()
rule = VALUE_RULES.rule


class _Printed(NamedTuple):
    """One value as printed in the log and as stored by Katib."""

    line: Line
    text: str
    """Text after the equals sign, up to the next blank."""

    value: str | None
    """The stored value; None if a stricter metricsFormat skips it."""


def _printed(log: Log, metric: str) -> Iterator[_Printed]:
    wanted = re.compile(rf"(?<![\w|-]){re.escape(metric)}[^\S\n]*([=:|]|\s)[^\S\n]*(\S*)")
    for line in log.lines:
        values = [reading.value for reading in line.readings if reading.name == metric]
        found = list(wanted.finditer(line.text))
        equals = [match for match in found if match[1] == "="]
        for match in equals or found:
            taken = bool(values) and match[2].startswith(values[0])
            if taken or equals:  # other signs mean a value only where a format reads it
                yield _Printed(line, match[2], values.pop(0) if taken else None)


class _Trap(NamedTuple):
    """A form of values of which Katib stores something else."""

    name: str
    why: str
    is_meant: Callable[[_Printed], Any]
    hint: str
    level: str = "fail"

    def look(self, log: Log) -> Iterator[Violation]:
        """Yield a violation for each metric; it is not a failure while the objective still comes
        out as a number."""
        for metric in log.reader.names:
            values = [value for value in _printed(log, metric) if self.is_meant(value)]
            if not values:
                continue
            first = values[0]
            wrong = any(value.value and number(value.value) is not None for value in values)
            stored = objective_value(log.folded()[metric], log.reader.strategy(metric))
            mild = metric != log.reader.objective or (stored is not None and not wrong)
            kept = "is passed over by the metricsFormat"
            if first.value is not None:
                kept = f"is stored as {first.value!r}"
            yield Violation(
                f"`{escaped(f'{metric}={first.text}')}` {kept}",
                line_numbers(value.line for value in values),
                self.hint.format(metric=metric),
                level="warn" if mild else None,
            )


def _unreadable(pattern: str) -> Callable[[_Printed], Any]:
    """Return whether a value is no number, and looks like a pattern."""
    wanted = re.compile(pattern, re.IGNORECASE)
    return lambda value: number(value.value or "") is None and wanted.match(value.text)


def _rest(pattern: str) -> Callable[[_Printed], Any]:
    """Return whether Katib stores a value without its rest, which looks like a pattern."""
    wanted = re.compile(pattern)
    return lambda value: value.value and wanted.match(value.text, len(value.value))


_CROWNED = "Katib stores an empty text and lets the trial succeed; it can be named the best (kubeflow/katib#2723)."
_EXPONENT = r"[eE][+-]?\d"
_WRONG = r"[,_:]\d|\.\d|[xX][0-9a-fA-F]|\.?[dD][+-]?\d|\.[eE][+-]?\d"
_NOT_FINITE = r"[+-]?(nan|inf)"
_TENSOR = r"(\w+\.)*(tensor|array|float\d*|int\d*)\("

_MINUS = r"[\u2010-\u2015\u2212\ufe63\uff0d]\.?\d"

_OTHER = _unreadable(rf"(?!{_NOT_FINITE}|{_TENSOR}|{_MINUS}|[\[({{\x1b\"'`])")
_UNIT = _rest(rf"(?!{_WRONG}|{_EXPONENT}|[eE]{_MINUS})[^\W\d_]")

for _trap in (
    _Trap(
        "not-finite",
        _CROWNED,
        _unreadable(_NOT_FINITE),
        "stop the trial with an error when {metric} is not finite, and let metricsFormat ask for a digit",
    ),
    _Trap(
        "tensor-or-array",
        _CROWNED,
        _unreadable(rf"{_TENSOR}|[\[({{]"),
        "print a plain number: float({metric}) or .item()",
    ),
    _Trap(
        "color-in-value",
        _CROWNED,
        _unreadable(r"\x1b"),
        "switch colors off where stdout is not a terminal (NO_COLOR=1)",
    ),
    _Trap("quoted-value", _CROWNED, _unreadable(r"[\"'`]"), "print the number without quotes"),
    _Trap(
        "no-number",
        _CROWNED,
        lambda value: value.value is not None and _OTHER(value),
        "print a number after {metric}=, on the same line",
    ),
    _Trap(
        "minus-sign",
        "Only the hyphen on the keyboard is a minus: of −0.5 nothing is read, and 1e−05 is 1.",
        lambda value: _unreadable(_MINUS)(value) or _rest(f"[eE]{_MINUS}")(value),
        "print the keyboard's '-', as f'{{x:.6g}}' does: a minus sign of typography is none here",
    ),
    _Trap(
        "number-cut-short",
        "The value ends where Katib's pattern no longer matches: 1,234, 1_000, 1:30, 1.e-5 are 1; 0x10, 0,95 are 0.",
        _rest(_WRONG),
        "print plain decimals, for example f'{{x:.4f}}': no separators, no decimal comma",
    ),
    _Trap(
        "percent",
        "The % is dropped: 96.59% is 96.59, so a goal of 0.95 is reached at once and scales get mixed.",
        _rest("%"),
        "print a fraction, 0.9659, and set the goal on the same scale",
        level="warn",
    ),
    _Trap(
        "fraction-cut",
        "The value ends at the slash: 9812/10000 is 9812, whatever the goal's scale.",
        lambda value: value.value and re.match(r"\d+/\d+(?![.\d])", value.text),
        "print the quotient, f'{{hits / total:.4f}}'",
        level="warn",
    ),
    _Trap(
        "exponent-cut",
        "The value ends where the metricsFormat no longer matches: without the exponent 1.5e-05 is 1.5.",
        _rest(_EXPONENT),
        f"let metricsFormat read exponents: {STRICT_FORMAT}",
    ),
    _Trap(
        "unit-dropped",
        "Everything after the number is dropped.",
        lambda value: number(value.value or "") is not None and _UNIT(value),
        "print the number alone, always in the same unit",
        level="warn",
    ),
):
    rule(_trap.level, _trap.why, _trap.name)(_trap.look)


@rule(
    "warn",
    "While a rule of medianstop is in force, a name=value without a number ends the collector: Failed.",
    hint="keep lines that mention the metric free of other name=text; do not print argv",
)
def _unreadable_while_stopping_early(log: Log) -> Iterator[Violation]:
    if not log.reader.stops_early:
        return
    pair = re.compile(r"(?<![\w|-])[\w|-]++\s*=\s*+(?![+-]?\.?\d)\S*")
    lines = [(line, match[0]) for line in log.lines if (match := pair.search(line.text))]
    if lines:
        where = line_numbers(line for line, _ in lines)
        yield Violation(f"`{lines[0][1]}` has no number", where)


ORDER_RULES = Rules[Log]()
ordered = ORDER_RULES.rule

_RANK = re.compile(
    r"[\[(](?:rank|default)\W{0,2}(\d+)[\])]|^\[\d+,(\d+)\]<std|\brank[ =]?(\d+)\s*[|:]", re.I
)
"""How launchers mark the lines of processes; LoRA's rank=8 is none."""

_TIME_HINT = "begin the line with an RFC 3339 time: 2026-01-02T03:04:05.678901Z accuracy=0.9"
_TIMELIKE = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(:\d\d)?|\d\d:\d\d:\d\d|(?<!\d)1[67]\d{8}(\.\d+)?(?!\d)"
)
_PROGRESS = re.compile(
    r"\[\s*\d+/\d|\b(batch|step|iter(ation)?)\b|\d/\d+ \[|it/s|\r", re.IGNORECASE
)


def _untimed(log: Log) -> list[Line]:
    reported = log.reported(log.reader.objective)
    return [line for line, reading in reported if reading.time.year == 1]


@ordered(
    "warn",
    "Katib's database sorts by time only; without one, which value is the latest is not guaranteed.",
    hint=_TIME_HINT,
)
def _no_time(log: Log) -> Iterator[Violation]:
    reported, untimed = log.reported(log.reader.objective), _untimed(log)
    lines = log.reporting(log.reader.objective)
    if 1 < len(reported) == len(untimed) and not any(_TIMELIKE.search(line.text) for line in lines):
        yield Violation("no line with the objective has a time", line_numbers(untimed))


@ordered(
    "warn",
    "A time counts only if it is the first word of the line and RFC 3339, with T and a zone.",
    hint=_TIME_HINT,
)
def _time_not_understood(log: Log) -> Iterator[Violation]:
    untimed = {line.number: line for line in _untimed(log)}.values()
    lines = [(line, match[0]) for line in untimed if (match := _TIMELIKE.search(line.text))]
    if lines and len(log.reported(log.reader.objective)) > 1:
        where = line_numbers(line for line, _ in lines)
        yield Violation(f"the time `{lines[0][1]}` is not understood", where)


@ordered("warn", "Lines without a time count as the oldest ones.", hint=_TIME_HINT)
def _some_without_time(log: Log) -> Iterator[Violation]:
    reported, untimed = log.reported(log.reader.objective), _untimed(log)
    if untimed and len(untimed) < len(reported):
        problem = f"{len(untimed)} of {len(reported)} readings have no time"
        yield Violation(problem, line_numbers(untimed))


@ordered(
    "warn",
    "latest is the value with the latest time, not the one printed last.",
    hint="give every line a time",
)
def _latest_is_not_the_last(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    latest = log.folded()[name]["latest"]
    for line, reading in log.reported(name)[-1:]:
        if latest != reading.value:
            level = "fail" if log.reader.strategy(name) == "latest" else "note"
            problem = f"{reading.value!r} was printed last, {latest!r} is stored as the latest"
            yield Violation(problem, f"line {line.number}", level=level)


@ordered(
    "fail",
    "A trial whose latest value is not a number can be named the best (kubeflow/katib#2723).",
    hint="stop the trial with an error instead; let metricsFormat ask for a digit",
)
def _latest_is_not_a_number(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    latest = log.folded()[name]["latest"]
    if log.reader.strategy(name) == "latest" and number(latest) is None:
        for line, _ in log.reported(name)[-1:]:
            problem = f"the strategy is latest and the latest value is {latest!r}"
            yield Violation(problem, f"line {line.number}")


_BAR = re.compile(r"(?<!\d)(\d{1,9})/\d+ ?(?:\[[\d:?]+[<,]|\[[=>.]|━)")
"""Bars of tqdm and Keras, and how far they have come."""
_EPOCHS = re.compile(r"(?i)\bepochs?\W*(?:\d+%\W*)?$")
"""Before the counter of a bar whose steps are epochs, as each fold or seed may have one."""
_LUCKIEST = "With min or max over batches the objective is the luckiest batch, not the quality of the model."


def _bars(log: Log) -> list[list[Line]]:
    """Return the lines of progress bars within which the objective changes all the time. One such
    bar alone may be that of the epochs."""
    bars: list[list[tuple[str, Line]]] = []
    name, last = log.reader.objective, 0
    for line in log.reporting(name):
        for state in re.split(r"[\r\b]+", line.text):
            readings = parse_line(state, [name], log.reader.formats)
            bar = _BAR.search(state)
            if readings and bar and not _EPOCHS.search(state[: bar.start()]):
                if not bars or int(bar[1]) < last:
                    bars.append([])
                last = int(bar[1])
                bars[-1].append((readings[-1].value, line))
    changes = (sum(a != b for (a, _), (b, _) in pairwise(bar)) for bar in bars)
    found = [bar for bar, many in zip(bars, changes, strict=True) if many > max(3, len(bar) // 3)]
    return [[line for _, line in bar] for bar in found] if len(found) > 1 else []


@ordered("warn", _LUCKIEST)
def _bar_of_batches(log: Log) -> Iterator[Violation]:
    name, strategy = log.reader.objective, log.reader.strategy(log.reader.objective)
    if strategy != "latest" and (bars := _bars(log)):
        yield Violation(
            f"{name} is printed in a progress bar of batches, and the strategy is {strategy}",
            line_numbers(line for lines in bars for line in lines),
            f"print a batch's value as train_{name}=…, and {name}= once an epoch",
        )


@ordered("warn", _LUCKIEST)
def _batches_share_the_name(log: Log) -> Iterator[Violation]:
    name, strategy = log.reader.objective, log.reader.strategy(log.reader.objective)
    reported = log.reported(name)
    batches = [line for line in log.reporting(name) if _PROGRESS.search(line.text)]
    if len(reported) > 1 and batches and not (strategy != "latest" and _bars(log)):
        yield Violation(
            f"{len(reported)} readings of {name}, several an epoch, and the strategy is {strategy}",
            line_numbers(batches),
            f"print a batch's value as train_{name}=… (or `{name}: …`), and {name}= once an epoch",
            level="note" if strategy == "latest" else None,
        )


@ordered(
    "warn",
    "Each process's line is a reading of its own; ranks other than 0 only add noise and repetitions.",
    hint='report from rank 0 only: os.environ.get("RANK", "0")',
)
def _every_rank_reports(log: Log) -> Iterator[Violation]:
    lines = log.reporting(log.reader.objective)
    labels = [match[1] for line in lines if log.labeled and (match := LABEL.match(line.text))]
    turns = [label for label, _ in groupby(labels)]
    # A number that comes again after another is no epoch's.
    find = LABEL.match if len(turns) > len({*turns}) else _RANK.search
    ranks: dict[str, Line] = {}
    for line in lines:
        mark = find(line.text)
        ranks.setdefault(next(filter(None, mark.groups())) if mark else "", line)
    # Without a mark it may be process 0, but beside [rank=8] alone any line of a LoRA.
    if len(ranks.keys() - {""}) > 1 or {"", "1"} <= ranks.keys():
        who, hint = "processes", None
        if find == LABEL.match:  # of srun, or of a program that counts its folds
            who, hint = "processes or folds", "report from rank 0 only, or the mean of the folds"
        yield Violation(
            f"several {who} seem to report the objective", line_numbers(ranks.values()), hint
        )


@ordered(
    "warn",
    "The greatest of 0.98 and 97, which is 0.97, is 97: another one than the best.",
    hint="print a fraction, 0.97, throughout",
)
def _shares_and_percentages(log: Log) -> Iterator[Violation]:
    reported = log.reported(log.reader.objective)
    values = [value for _, each in reported if (value := number(each.value)) is not None]
    if (
        log.reader.kind == "minimize"
        or len(values) < len(reported)
        or not all(0 <= value <= 100 for value in values)
    ):
        return
    several = sum(0 < value <= 1 for value in values) > 1
    for at, (value, following) in enumerate(pairwise(values)):
        share, percentage = sorted((value, following))
        # A first guess among many classes may be less than 1 %.
        is_share = (several and share <= 1) if value < following else share < 1
        # What falls is said once more, as a share; what diverges falls to any number.
        least, most = (70, 143) if value < following else (90, 112)
        if is_share and share > 0 and percentage > 20 and least < percentage / share < most:
            problem = f"{value:g} and {following:g} follow each other: shares and percentages seem to be mixed"
            yield Violation(problem, line_numbers(line for line, _ in reported[at : at + 2]))
            return
