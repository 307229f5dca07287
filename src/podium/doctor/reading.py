"""A log as Katib's collector would read it: the relevant lines, and the values that would be
stored."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from podium.errors import Failed, InvalidInput
from podium.manifests.experiment.experiment import Collector, Experiment
from podium.metrics import (
    UNAVAILABLE,
    Reading,
    compile_format,
    fold,
    matches,
    parse_line,
    read_json,
)
from podium.metrics.goals import less_is_better, objective_value
from podium.metrics.libraries import Library, is_short_for, printed_by

STRATEGIES = ("min", "max", "latest")
SHOWN = 1000
"""Readings kept for the report; the rules see all of them."""

_MENTIONS = 5000
"""Lines kept that mention a metric and report none: enough to see near misses by."""

COLOR = re.compile(r"\x1b\[[0-9;]*m")


LABEL = re.compile(r"\s*(\d+): ")
"""How ``srun --label`` begins each line of a process."""

STDOUT = Collector(kind="StdOut")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Settings by which Katib reads metrics from a log."""

    objective: str
    """objectiveMetricName."""

    kind: str
    """``minimize`` or ``maximize``."""

    additional: tuple[str, ...] = ()
    """additionalMetricNames."""

    strategies: Mapping[str, str] = field(default_factory=dict)
    """``min``, ``max`` or ``latest`` by metric; the default follows the objective's type."""

    formats: tuple[str, ...] = ()
    """metricsFormat patterns; none for Katib's own."""

    json: bool = False
    """Whether the log has one JSON object a line, as a File collector with format JSON reads it."""

    stops_early: bool = False
    """Whether medianstop watches the lines as they come."""

    collector: Collector = STDOUT

    ask: Callable[[str, str], str] | None = None
    """Says how a sweep is started that reads a library's lines, from its key and the metric; None
    for a YAML file."""

    def __post_init__(self) -> None:
        if not self.objective:
            raise InvalidInput("the objective has no name", "for example --metric accuracy")
        if self.kind not in ("minimize", "maximize"):
            raise InvalidInput(
                f"an objective minimizes or maximizes, not {self.kind!r}", "minimize or maximize"
            )
        for name, strategy in self.strategies.items():
            if strategy not in STRATEGIES:
                raise InvalidInput(
                    f"{name} has no strategy {strategy!r}", f"one of {', '.join(STRATEGIES)}"
                )
        for pattern in self.formats:
            compile_format(pattern)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.objective, *self.additional)))

    @classmethod
    def of(cls, experiment: Experiment) -> "Reader":
        """Return how the logs of an Experiment's trials are read."""
        objective, collector = experiment.objective, experiment.collector
        reads_files = collector.kind in ("File", "TensorFlowEvent")
        return cls(
            objective=objective.metric,
            kind=objective.direction,
            additional=objective.additional,
            strategies=objective.strategies,
            formats=collector.filters,
            json=collector.reads_json,
            stops_early=experiment.early_stopping is not None,
            collector=collector if reads_files else Collector(kind=collector.kind),
        )

    def how(self, library: Library, metric: str) -> str:
        """Say how a metric that a library prints is made the objective."""
        if self.ask:
            return self.ask(library.key, self._directed(library, metric))
        patterns = json.dumps(library.patterns)
        hint = f"spec.metricsCollectorSpec.source.filter.metricsFormat: {patterns}"
        other = f", with objectiveMetricName: {json.dumps(metric)}"
        return hint + ("" if metric == self.objective else other)

    def _directed(self, library: Library, metric: str) -> str:
        """Return a metric with the direction of the objective that it is, where its name tells
        another, and always for CatBoost's, whose names tell none."""
        less = self.kind == "minimize"
        if library.key == "catboost":
            return f"{'min' if less else 'max'}:{metric}"
        if not is_short_for(metric, self.objective) or less_is_better(metric) == less:
            return metric
        return f"{'min' if less else 'max'}:{metric}"

    def strategy(self, name: str) -> str:
        """Return how a metric's readings become one value."""
        return self.strategies.get(name) or {"minimize": "min", "maximize": "max"}[self.kind]


@dataclass(frozen=True, slots=True)
class Line:
    """A line that reports a metric or looks as if it wanted to."""

    number: int
    """Counted from 1."""

    text: str

    readings: tuple[Reading, ...]
    """Values that Katib reads from it."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """A parsed log, the input of the rules."""

    reader: Reader
    lines: Sequence[Line]
    """Those that report a metric or mention one, and two below a mention: it may head a column."""

    total: int
    seen: Mapping[str, int]
    """Every ``name=number`` in the log by name, with its number of lines, metric or not."""

    labeled: bool = False
    """Whether each line, but those of srun itself, begins with a number and a colon."""

    libraries: Mapping[Library, Line] = field(default_factory=dict)
    """Known libraries that printed to the log, and the last line of each; its readings are all that
    its metricsFormats would find in the log."""

    def reported(self, name: str) -> list[tuple[Line, Reading]]:
        """Return each reading of a metric, in the order of the lines."""
        return [
            (line, reading)
            for line in self.lines
            for reading in line.readings
            if reading.name == name
        ]

    def reporting(self, name: str) -> list[Line]:
        """Return the lines that report a metric: one of a progress bar does so a thousand times."""
        return [line for line in self.lines if any(each.name == name for each in line.readings)]

    def silent(self) -> list[str]:
        reported = {reading.name for line in self.lines for reading in line.readings}
        return [name for name in self.reader.names if name not in reported]

    def folded(self) -> dict[str, dict[str, str]]:
        """Return the metrics of the trial's observation."""
        readings = [reading for line in self.lines for reading in line.readings]
        if self.reader.objective in self.silent():  # Katib then drops the other metrics too
            readings = []
        return fold(readings, self.reader.names)

    def details(self) -> dict[str, Any]:
        """Return further facts for the report, with a row for each metric that would be stored."""
        rows = [
            {
                "line": line.number,
                "time": None if reading.time.year == 1 else reading.time.isoformat(),
                "metric": reading.name,
                "value": reading.value,
            }
            for line in self.lines
            for reading in line.readings
        ]
        strategies = {name: self.reader.strategy(name) for name in self.reader.names}
        stored = [
            {
                "metric": name,
                **values,
                "strategy": strategies[name],
                "value": objective_value(values, strategies[name]),
            }
            for name, values in self.folded().items()
        ]
        return {
            "lines": self.total,
            "objective": self.reader.objective,
            "type": self.reader.kind,
            "stored": stored,
            "readings": rows[:SHOWN],
            "readings_total": len(rows),
        }


def scan(lines: Iterable[str], reader: Reader) -> Log:
    """Read a log once, line by line."""
    if reader.json:
        return _scan_json(list(lines), reader)
    kept, seen, total, mentioned, labeled, heads = [], Counter[str](), 0, 0, True, 0
    libraries: dict[Library, Line] = {}
    printed: dict[Library, dict[str, Reading]] = {}
    mentions = re.compile("|".join(re.escape(name) for name in reader.names), re.IGNORECASE)
    for total, raw in enumerate(lines, 1):
        text = raw.rstrip("\r\n")
        labeled = labeled and bool(LABEL.match(text) or text.startswith("srun: ") or not text)
        seen.update(_names_on(text))
        readings = tuple(parse_line(text, reader.names, reader.formats))
        if readings or (mentioned < _MENTIONS and mentions.search(text)):
            kept.append(Line(total, text, readings))
            mentioned, heads = mentioned + (not readings), total
        elif heads and total <= heads + 2:
            kept.append(Line(total, text, ()))
        if not readings and (library := printed_by(text)):
            libraries[library] = Line(total, text, ())
        for library in libraries:
            printed.setdefault(library, {}).update(read_as(library, text))
    found = {
        library: replace(line, readings=tuple(printed[library].values()))
        for library, line in libraries.items()
    }
    return Log(
        reader=reader,
        lines=kept,
        total=total,
        seen=dict(seen),
        labeled=labeled,
        libraries=found,
    )


def read_as(library: Library, text: str) -> Iterator[tuple[str, Reading]]:
    """Yield name and value of each metric that a library's metricsFormats find on a line, but for
    how full a bar of tqdm is."""
    for pattern in library.patterns:
        for match in compile_format(pattern).finditer(text):
            if match.group(1) and not text.startswith("%|", match.end()):
                yield match.group(1), Reading(match.group(1), match.group(2))


def _scan_json(lines: Sequence[str], reader: Reader) -> Log:
    """Read each line by itself, so that a broken one does not hide the others."""
    kept, seen = [], Counter[str]()
    for number, text in enumerate((raw.rstrip("\r\n") for raw in lines), 1):
        readings: list[Reading] = []
        with suppress(Failed):
            if text:
                readings = [
                    reading
                    for reading in read_json([text], reader.names)
                    if reading.value != UNAVAILABLE
                ]
                values = json.loads(text)
                seen.update(list(values) if isinstance(values, dict) else ())
        kept.append(Line(number, text, tuple(readings)))
    return Log(reader=reader, lines=kept, total=len(lines), seen=dict(seen))


def _names_on(text: str) -> Iterator[str]:
    if "=" in text:
        for name, value in matches(text):
            if any(character.isdigit() for character in value):
                yield name


def guess_reader(
    lines: Iterable[str], objective: str | None = None, kind: str | None = None
) -> Reader:
    """Guess the settings that the user omitted: a metric the log mentions, and whether smaller is
    better.

    Args:
        kind: ``minimize`` or ``maximize``, if known.
    """
    if objective is None:
        text = list(lines)
        mentioned = [
            name for name in ("accuracy", "loss") if any(name in line.lower() for line in text)
        ]
        names = Counter(name for line in text for name in _names_on(line))
        objective = (mentioned or [name for name, _ in names.most_common(1)] or ["accuracy"])[0]
    guessed = "minimize" if less_is_better(objective) else "maximize"
    return Reader(objective=objective, kind=kind or guessed)
