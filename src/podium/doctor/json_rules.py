"""Rules about a file of one JSON object a line, as a File collector with format JSON reads it."""

from collections.abc import Iterator
from typing import Any

from podium.doctor.name_rules import line_numbers
from podium.doctor.reading import Line, Log
from podium.documents import load_json
from podium.errors import InvalidInput
from podium.manifests.rules import Rules, Violation

JSON_RULES = Rules[Log]()
rule = JSON_RULES.rule


def _objects(log: Log) -> Iterator[tuple[Line, Any]]:
    """Yield each line with the value it parses to; None if it does not."""
    for line in log.lines:
        if line.text:
            try:
                yield line, load_json(line.text, "line", nan=False)
            except InvalidInput:
                yield line, None


@rule("fail", "One line that is not a JSON object ends the collector, and the trial is Failed.")
def _line_is_not_an_object(log: Log) -> Iterator[Violation]:
    bad = [line for line, value in _objects(log) if not isinstance(value, dict)]
    if bad:
        what = f"`{bad[0].text[:60]}` is not a JSON object"
        yield Violation(
            what,
            line_numbers(iter(bad)),
            "write nothing else into this file, and no NaN or Infinity",
        )


@rule("fail", "Values must be JSON texts; numbers are passed over without a word.")
def _number_for_text(log: Log) -> Iterator[Violation]:
    for name in log.reader.names:
        bad = [
            line
            for line, values in _objects(log)
            if isinstance(values, dict) and name in values and not isinstance(values[name], str)
        ]
        if bad:
            level = None if name == log.reader.objective else "warn"
            what, hint = (
                f"{name} is not a text",
                f'write {{"{name}": "0.9"}}: str() around the number',
            )
            yield Violation(what, line_numbers(iter(bad)), hint, level=level)
