"""Examine a log: the file a trial left, one JSON object a line where its collector says so, or its
standard output; and what other collectors read, a file or a directory of events."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from podium.doctor.name_rules import NAME_RULES, additional_missing, line_numbers, objective_missing
from podium.doctor.reading import Line, Log, Reader, scan
from podium.doctor.report import Report
from podium.doctor.value_rules import ORDER_RULES, VALUE_RULES
from podium.errors import InvalidInput
from podium.files.documents import load_json
from podium.manifests.experiment.experiment import Collector
from podium.manifests.rules import Rule, Rules, Violation, apply, worst_first
from podium.metrics import UNAVAILABLE, event_scalars, read_events

JSON_RULES = Rules[Log]()
rule = JSON_RULES.rule


def _objects(log: Log) -> Iterator[tuple[Line, Any]]:
    """Yield each line with the value it parses to; None if it does not."""
    for line in log.lines:
        if line.text:
            try:
                yield line, load_json(line.text, "line", nan=False, twice=True)
            except InvalidInput:
                yield line, None


@rule(
    "fail",
    "One line that is not a JSON object ends the collector, and the trial is Failed.",
    hint="write nothing else into this file, and no NaN or Infinity",
)
def _line_is_not_an_object(log: Log) -> Iterator[Violation]:
    bad = [line for line, value in _objects(log) if not isinstance(value, dict)]
    if bad:
        yield Violation(f"`{bad[0].text[:60]}` is not a JSON object", line_numbers(bad))


@rule("fail", "Values must be JSON texts; numbers are passed over without a word.")
def _number_for_text(log: Log) -> Iterator[Violation]:
    for name in log.reader.names:
        bad = [
            line
            for line, values in _objects(log)
            if isinstance(values, dict) and not isinstance(values.get(name, ""), str)
        ]
        if bad:
            level = None if name == log.reader.objective else "warn"
            hint = f'write {{"{name}": "0.9"}}: str() around the number'
            yield Violation(f"{name} is not a text", line_numbers(bad), hint, level=level)


TEXT_LOG_RULES: tuple[Rule[Log], ...] = (*NAME_RULES, *VALUE_RULES, *ORDER_RULES)
_JSON_LOG_RULES: tuple[Rule[Log], ...] = (
    objective_missing,
    *JSON_RULES,
    *ORDER_RULES,
    additional_missing,
)


def rules_for(reader: Reader) -> tuple[Rule[Log], ...]:
    """Return the rules for a log that is read so."""
    return _JSON_LOG_RULES if reader.json else TEXT_LOG_RULES


def examine_log(lines: Iterable[str], reader: Reader, subject: str) -> Report:
    """Report the metrics that Katib would read from a log, and those it would miss.

    Args:
        lines: With or without line ends.
        subject: Name of the log in the report.
    """
    return _report(scan(lines, reader), rules_for(reader), "log", subject)


GIVEN_RULES, EVENT_RULES = Rules[tuple[Collector, str]](), Rules[Log]()
"""Rules about the metrics collector and the path of a log that the user gave; about event files."""


@GIVEN_RULES.rule(
    "warn",
    "With this collector Katib reads neither a trial's output nor a log.",
    where="collector",
    hint="examine what the program itself reports; or collect from StdOut",
)
def _log_not_collected(source: tuple[Collector, str]) -> Iterator[Violation]:
    collector, path = source
    if collector.kind not in ("StdOut", "File", "TensorFlowEvent"):
        yield Violation(f"a {collector.kind} collector does not read {path}")


@GIVEN_RULES.rule(
    "warn",
    "A File collector reads its file only; what the program prints elsewhere is lost.",
    where="collector",
)
def _another_file_collected(source: tuple[Collector, str]) -> Iterator[Violation]:
    collector, path = source
    if collector.kind == "File" and Path(collector.path).name != Path(path).name:
        file = collector.path
        problem = f"Katib reads {file} in the trial's pod; {path} must be a copy of that file"
        yield Violation(problem, hint=f"examine {file}, or collect from StdOut")


@EVENT_RULES.rule(
    "fail",
    "A TensorFlowEvent collector reads the scalars of event files, nothing else.",
    where="event files",
)
def _scalar_missing(log: Log) -> Iterator[Violation]:
    names = sorted(log.seen)[:8]
    there = f"they hold {', '.join(names)}" if names else "there are none"
    for name in log.silent():
        level = None if name == log.reader.objective else "note"
        hint = f"write it: SummaryWriter.add_scalar({name.rpartition('/')[2]!r}, …)"
        yield Violation(f"no event file holds {name}; {there}", hint=hint, level=level)


def examine_given(lines: list[str], reader: Reader, subject: str) -> Report:
    """Examine a log; report if it is not the one Katib would read.

    Args:
        reader: Metrics to look for, and Katib's collector.
    """
    report = examine_log(lines, reader, subject)
    findings = apply(GIVEN_RULES, (reader.collector, subject))
    return replace(report, findings=worst_first([*findings, *report.findings]))


def examine_events(path: Path, reader: Reader, subject: str) -> Report:
    """Examine TensorBoard's event files.

    Args:
        path: A directory, or one event file.

    Raises:
        Failed: The package tensorboard is not installed.
    """
    readings = (each for each in read_events(path, reader.names) if each.value != UNAVAILABLE)
    lines = [
        Line(number, f"{reading.name}={reading.value}", (reading,))
        for number, reading in enumerate(readings, 1)
    ]
    seen = dict.fromkeys(event_scalars(path), 1)
    log = Log(reader=reader, lines=lines, total=len(lines), seen=seen)
    return _report(log, EVENT_RULES, "events", subject)


def _report(log: Log, rules: Iterable[Rule[Log]], kind: str, subject: str) -> Report:
    return Report(subject=subject, kind=kind, findings=apply(rules, log), details=log.details())
