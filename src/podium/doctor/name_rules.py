"""Rules about names in a log: lines that are nearly ``name=value`` for the metric.

A near miss matters only while the metric is not reported at all: printing a batch's loss as ``loss:
0.5`` is what keeps it out of the objective.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podium.doctor.reading import COLOR, Line, Log
from podium.manifests.rules import Rules, Violation

NAME_RULES = Rules[Log]()
rule = NAME_RULES.rule

_NUMBER = r"[+-]?(?:\d|\.\d|nan|inf)"
_STAGES = (
    r"train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev|batch|step|running"
    r"|mean|avg|average|best"
)


class _Miss(NamedTuple):
    """A line that looks as if it wanted to report a metric."""

    metric: str
    line: Line
    text: str
    """The text found in place of a metric."""


def _misses(log: Log, pattern: str, flags: int = 0) -> Iterator[_Miss]:
    for name in log.silent():
        wanted = re.compile(pattern.replace("NAME", re.escape(name)), flags)
        for line in log.lines:
            if match := wanted.search(line.text):
                yield _Miss(name, line, match[0].strip())


def _hits(log: Log, misses: Iterator[_Miss], what: str, hint: str) -> Iterator[Violation]:
    by_metric: dict[str, list[_Miss]] = {}
    for miss in misses:
        by_metric.setdefault(miss.metric, []).append(miss)
    for metric, misses_of in by_metric.items():
        level = None if metric == log.reader.objective else "note"
        text, done = what.format(found=misses_of[0].text, metric=metric), hint.format(metric=metric)
        yield Violation(text, line_numbers(miss.line for miss in misses_of), done, level=level)


def line_numbers(lines: Iterator[Line]) -> str:
    """Name lines by number, only a few of many."""
    numbers = list(dict.fromkeys(line.number for line in lines))
    shown = ", ".join(map(str, numbers[:5]))
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the name that may be meant: one like it, or with a short form of it, as val_acc has;
    empty if none is."""
    known = list(names)
    short = [
        other
        for other in known
        if any(len(word) > 2 and name.startswith(word) for word in re.split(r"\W|_", other))
    ]
    return next(iter([*difflib.get_close_matches(name, known, 1, 0.5), *short]), "")


@rule(
    "fail",
    "A trial whose log never reports the objective ends MetricsUnavailable, which counts as failed.",
)
def objective_missing(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    if name not in log.silent():
        return
    names = sorted(log.seen, key=lambda name: -log.seen[name])[:8]
    others = (
        f"; name=value was found for {', '.join(names)}"
        if names
        else "; no line holds name=number at all"
    )
    hint = f"print {name}=0.9834 on a line, once an epoch, from rank 0"
    near = nearest(name, names)
    hint += f"; or make {near} the objectiveMetricName" if near else ""
    yield Violation(f"none of {log.total} lines reports {name}{others}", "whole log", hint)


@rule("note", "A metricsFormat of the Experiment's own reads what Katib's pattern does not.")
def _library_has_its_own_format(log: Log) -> Iterator[Violation]:
    wanted = log.reader.objective
    for library, line in log.libraries.items() if wanted in log.silent() else ():
        if names := [reading.name for reading in line.readings]:
            hint = log.reader.how(library, library.meant(wanted, names))
            what = f"{library.name} prints {', '.join(names)} in a form of its own"
            yield Violation(what, line_numbers(iter([line])), hint)


@rule("note", "A missing additional metric is stored as unavailable; the trial still succeeds.")
def additional_missing(log: Log) -> Iterator[Violation]:
    for name in log.silent():
        if name != log.reader.objective:
            hint = f"print {name}=0.5, or take it out of additionalMetricNames"
            yield Violation(f"no line reports {name}", "whole log", hint)


@rule("fail", "Katib's pattern wants letters, digits, _, - or | as a name, then = and the value.")
def _colon_for_equals(log: Log) -> Iterator[Violation]:
    misses = _misses(log, rf"(?<![\w|\"'-])NAME\s*:\s*{_NUMBER}\S*", re.IGNORECASE)
    yield from _hits(
        log, misses, "`{found}` is not name=value", "print {metric}=0.9 with an equals sign"
    )


@rule("fail", "JSON and dicts have colons and quotes; the StdOut collector reads name=value only.")
def _dict_for_equals(log: Log) -> Iterator[Violation]:
    misses = _misses(log, rf"[\"']NAME[\"']\s*:\s*[\"']?{_NUMBER}[^,}}]*", re.IGNORECASE)
    hint = "print {metric}=0.9; or use a File collector with format JSON, its values being texts"
    yield from _hits(log, misses, "`{found}` is a dict's entry, not name=value", hint)


@rule("fail", "Without an equals sign there is no metric.")
def _words_for_equals(log: Log) -> Iterator[Violation]:
    misses = _misses(
        log, rf"(?<![\w|-])NAME\s*(?:\s|is|of|was|at|->|:=|\|)\s*{_NUMBER}\S*", re.IGNORECASE
    )
    yield from _hits(
        log, misses, "`{found}` is not name=value", "print {metric}=0.9 with an equals sign"
    )


@rule(
    "fail",
    "A name counts only if it is the metric's to the letter: val_loss is a metric of its own, not loss.",
)
def _longer_name(log: Log) -> Iterator[Violation]:
    misses = _misses(
        log, rf"(?<![\w|-])(?:[\w-]+NAME[\w-]*|NAME[\w-]+)\s*=\s*{_NUMBER}\S*", re.IGNORECASE
    )
    uncolored = (miss for miss in misses if "\x1b" not in miss.line.text)
    hint = "make that name the objectiveMetricName, or print {metric}=0.9"
    yield from _hits(log, uncolored, "`{found}` is another metric than {metric}", hint)


@rule("fail", "Case matters in names.")
def _letter_case(log: Log) -> Iterator[Violation]:
    misses = _misses(log, rf"(?<![\w|-])NAME\s*=\s*{_NUMBER}\S*", re.IGNORECASE)
    others = (miss for miss in misses if miss.metric not in miss.text)
    yield from _hits(
        log, others, "`{found}` is another metric than {metric}", "print {metric}= in the same case"
    )


@rule(
    "warn",
    "| belongs to names in Katib's pattern: `epoch|loss=0.3` is a metric called `epoch|loss`.",
)
def _bar_before_name(log: Log) -> Iterator[Violation]:
    yield from _glued(log, r"(?<![\w|-])[\w|-]*\|NAME\s*=\s*\S+", "put a blank after the bar")


@rule(
    "warn", "The m that ends a color code is a letter and becomes part of the name: `32maccuracy`."
)
def _color_before_name(log: Log) -> Iterator[Violation]:
    hint = "switch colors off where stdout is not a terminal (NO_COLOR=1), or print a blank before the name"
    yield from _glued(log, r"\x1b\[[0-9;]*mNAME\s*=\s*\S+", hint)


def _glued(log: Log, pattern: str, hint: str) -> Iterator[Violation]:
    """Yield metric names that a prefix turns into another name; fails if the objective is never
    reported."""
    silent = log.silent()
    for name in log.reader.names:
        wanted = re.compile(pattern.replace("NAME", re.escape(name)))
        lines = [(line, match[0]) for line in log.lines if (match := wanted.search(line.text))]
        if lines:
            shown = COLOR.sub(lambda code: repr(code[0])[1:-1], lines[0][1])
            level = "fail" if name in silent and name == log.reader.objective else None
            where = line_numbers(line for line, _ in lines)
            yield Violation(f"`{shown}` is not read as {name}", where, hint, level=level)


@rule("fail", "Katib's own pattern finds names of ASCII letters, digits, _, - and | only.")
def _impossible_name(log: Log) -> Iterator[Violation]:
    for name in log.reader.names:
        if not log.reader.formats and not re.fullmatch(r"[\w|-]+", name, re.ASCII):
            hint = (
                "choose a name of letters, digits, _ and -, or a metricsFormat that finds this one"
            )
            level = None if name == log.reader.objective else "warn"
            yield Violation(
                f"no line can report a metric called {name!r}", "objective", hint, level=level
            )


@rule(
    "warn",
    "Only the last word before = is the name: `val loss=0.3`, `val/loss=0.3` and `loss=0.3` are one metric.",
)
def _several_stages_under_one_name(log: Log) -> Iterator[Violation]:
    for name in log.reader.names:
        wanted = re.compile(
            rf"(?:\b({_STAGES})[ /.:]+)?(?<![\w|-]){re.escape(name)}\s*=", re.IGNORECASE
        )
        stages: dict[str, Line] = {}
        for line, _ in log.reported(name):
            for match in wanted.finditer(line.text):
                stages.setdefault((match[1] or "").lower(), line)
        if len(stages) > 1:
            shown = ", ".join(f"`{stage} {name}`".replace("` ", "`") for stage in stages)
            hint = f"give each its own name, for example train_{name} and {name}"
            yield Violation(
                f"{shown} are all read as {name}", line_numbers(iter(stages.values())), hint
            )
