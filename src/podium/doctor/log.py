"""Examine a log: the file a trial left, or its standard output."""

from collections.abc import Iterable

from podium.doctor.json_rules import JSON_RULES
from podium.doctor.name_rules import NAME_RULES, additional_missing, objective_missing
from podium.doctor.order_rules import ORDER_RULES
from podium.doctor.reading import Log, Reader, details_of, scan
from podium.doctor.report import Report
from podium.doctor.value_rules import VALUE_RULES
from podium.manifests.rules import Rule, apply

TEXT_LOG_RULES: tuple[Rule[Log], ...] = (*NAME_RULES, *VALUE_RULES, *ORDER_RULES)
JSON_LOG_RULES: tuple[Rule[Log], ...] = (
    objective_missing,
    *JSON_RULES,
    *ORDER_RULES,
    additional_missing,
)


def rules_for(reader: Reader) -> tuple[Rule[Log], ...]:
    """Return the rules for a log that is read so."""
    return JSON_LOG_RULES if reader.json else TEXT_LOG_RULES


def examine_log(lines: Iterable[str], reader: Reader, subject: str) -> Report:
    """Report the metrics that Katib would read from a log, and those it would miss.

    Args:
        lines: With or without line ends.
        subject: Name of the log in the report.
    """
    log = scan(lines, reader)
    findings = apply(rules_for(reader), log)
    return Report(subject=subject, kind="log", findings=findings, details=details_of(log))
