"""Checks of collectors other than StdOut, which read a file or folder that the program writes."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podium.doctor.log import examine_log
from podium.doctor.reading import Line, Log, Reader, details_of
from podium.doctor.report import Report
from podium.manifests.rules import Rules, Violation, apply, worst_first
from podium.metrics import UNAVAILABLE, event_scalars, read_events


class Given(NamedTuple):
    """A log that the user gave, and how Katib collects."""

    reader: Reader
    """Reader of the log, with its collector."""

    subject: str
    """Path of the log."""


GIVEN_RULES, EVENT_RULES = Rules[Given](), Rules[Log]()


@GIVEN_RULES.rule("warn", "With this collector Katib reads neither a trial's output nor a log.")
def _log_not_collected(given: Given) -> Iterator[Violation]:
    kind = given.reader.collector.kind
    if kind not in ("StdOut", "File", "TensorFlowEvent"):
        hint = "examine what the program itself reports; or collect from StdOut"
        yield Violation(f"a {kind} collector does not read {given.subject}", "collector", hint)


@GIVEN_RULES.rule(
    "warn", "A File collector reads its file only; what the program prints elsewhere is lost."
)
def _another_file_collected(given: Given) -> Iterator[Violation]:
    collector = given.reader.collector
    if (
        collector.kind == "File"
        and PurePosixPath(collector.path).name != PurePosixPath(given.subject).name
    ):
        what = f"Katib reads {collector.path} in the trial's pod; {given.subject} must be a copy of that file"
        yield Violation(what, "collector", f"examine {collector.path}, or collect from StdOut")


@EVENT_RULES.rule(
    "fail", "A TensorFlowEvent collector reads the scalars of event files, nothing else."
)
def _scalar_missing(log: Log) -> Iterator[Violation]:
    names = sorted(log.seen)[:8]
    there = f"they hold {', '.join(names)}" if names else "there are none"
    for name in log.silent():
        level = None if name == log.reader.objective else "note"
        hint = f"write it: SummaryWriter.add_scalar({name.rpartition('/')[2]!r}, …)"
        yield Violation(f"no event file holds {name}; {there}", "event files", hint, level=level)


def examine_given(lines: list[str], reader: Reader, subject: str) -> Report:
    """Examine a log; report if it is not the one Katib would read.

    Args:
        reader: Metrics to look for, and Katib's collector.
    """
    report = examine_log(lines, reader, subject)
    findings = apply(GIVEN_RULES, Given(reader, subject))
    return Report(
        subject=subject,
        kind=report.kind,
        findings=worst_first([*findings, *report.findings]),
        details=report.details,
    )


def examine_events(path: Path, reader: Reader, subject: str) -> Report:
    """Examine TensorBoard's event files.

    Args:
        path: A directory, or one event file.

    Raises:
        Failed: The package tensorboard is not installed.
    """
    readings = [
        reading for reading in read_events(path, reader.names) if reading.value != UNAVAILABLE
    ]
    lines = [
        Line(number, f"{reading.name}={reading.value}", (reading,))
        for number, reading in enumerate(readings, 1)
    ]
    log = Log(
        reader=reader, lines=lines, total=len(lines), seen=dict.fromkeys(event_scalars(path), 1)
    )
    return Report(
        subject=subject, kind="events", findings=apply(EVENT_RULES, log), details=details_of(log)
    )
