"""Examine a log: the file a trial left, or its standard output."""

from collections.abc import Iterable

from podium.doctor.finding import Report, Rule, apply
from podium.doctor.name_rules import NAME_RULES
from podium.doctor.order_rules import ORDER_RULES
from podium.doctor.reading import Log, Reader, details_of, scan
from podium.doctor.value_rules import VALUE_RULES

LOG_RULES: tuple[Rule[Log], ...] = (*NAME_RULES, *VALUE_RULES, *ORDER_RULES)


def examine_log(lines: Iterable[str], reader: Reader, subject: str) -> Report:
    """Say what Katib would make of a log, and what it would miss.

    Args:
        lines: With or without line ends.
        reader: What to look for.
        subject: What to call the log.
    """
    log = scan(lines, reader)
    return Report(subject=subject, kind="log", findings=apply(LOG_RULES, log), details=details_of(log))
