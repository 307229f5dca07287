"""Rules about names in a log: lines that are nearly ``name=value`` for the metric.

A near miss matters only while the metric is not reported at all: printing a batch's loss as ``loss:
0.5`` is what keeps it out of the objective.
"""

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from podium.display.text import listed
from podium.doctor.reading import COLOR, Line, Log, read_as
from podium.manifests.rules import Rules, Violation
from podium.metrics import DEFAULT_FORMAT, STRICT_FORMAT
from podium.metrics.libraries import BY_HAND, COLON, is_short_for

NAME_RULES = Rules[Log]()
rule = NAME_RULES.rule

# No pattern takes more than a few looks at each character of a line, however long: quantifiers that
# could share what they match are possessive, as in \s*+.
_NUMBER = r"[+-]?(?:\d|\.\d|nan|inf)"
_PLAIN = re.compile(rf"{_NUMBER}[\d.e+-]*")
_CODE = COLOR.pattern
_COLORED = re.compile(r"\d+m(?!_)")
"""Names as 32maccuracy, in which a color ends; 30m_mae is one of thirty minutes."""
_STAGES = (
    r"train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev|batch|step|running"
    r"|mean|avg|average|best"
)


class _NearMiss(NamedTuple):
    """Lines that look as if they wanted to report a metric."""

    name: str
    why: str
    pattern: str
    """NAME stands for the metric."""

    what: str
    hint: str
    means_another: Callable[[str, str, str], bool] = lambda metric, line, found: False
    """Whether a line is none, by the metric, its text and what was found."""

    def look(self, log: Log) -> Iterator[Violation]:
        """Yield a violation for each metric that no line reports."""
        for metric in log.silent():
            wanted = re.compile(self.pattern.replace("NAME", re.escape(metric)), re.IGNORECASE)
            matches = ((line, wanted.search(line.text)) for line in log.lines)
            lines = [
                (line, match[0].strip())
                for line, match in matches
                if match and not self.means_another(metric, line.text, match[0])
            ]
            if lines:
                yield Violation(
                    self.what.format(found=escaped(lines[0][1]), metric=metric),
                    line_numbers(line for line, _ in lines),
                    self.hint.format(metric=metric),
                    level=None if metric == log.reader.objective else "note",
                )


def line_numbers(lines: Iterable[Line]) -> str:
    """Name lines by number, only a few of many."""
    numbers = list(dict.fromkeys(line.number for line in lines))
    shown = ", ".join(map(str, numbers[:5]))
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the name that may be meant: one like it, or with a short form of it, as val_acc has,
    of training data only where there is no other; empty if none is."""
    candidates = list(names)
    candidates = [
        other for other in candidates if not COLON.training.fullmatch(other)
    ] or candidates
    short = [
        other
        for other in candidates
        if any(len(word) > 2 and name.startswith(word) for word in re.split(r"\W|_", other))
    ]
    return next(iter([*difflib.get_close_matches(name, candidates, 1, 0.5), *short]), "")


@rule(
    "fail",
    "A trial whose log never reports the objective ends MetricsUnavailable, which counts as failed.",
    where="whole log",
)
def objective_missing(log: Log) -> Iterator[Violation]:
    name = log.reader.objective
    if name not in log.silent():
        return
    names = sorted(log.seen, key=lambda name: -log.seen[name])[:8]
    others = "no line holds name=number at all"
    if names:
        others = f"name=value was found for {', '.join(names)}"
    hint = f"print {name}=0.9834 on a line, once an epoch, from rank 0"
    near = nearest(name, [seen for seen in names if not _COLORED.match(seen)])
    hint += f"; or make {near} the objectiveMetricName" if near else ""
    yield Violation(f"none of {log.total} lines reports {name}; {others}", hint=hint)


@rule("note", "A metricsFormat of the Experiment's own reads what Katib's pattern does not.")
def _library_has_its_own_format(log: Log) -> Iterator[Violation]:
    wanted = log.reader.objective
    for library, line in log.libraries.items() if wanted in log.silent() else ():
        if names := [reading.name for reading in line.readings]:
            hint = log.reader.how(library, library.meant(wanted, names))
            problem = f"{library.name} prints {', '.join(names)} in a form of its own"
            yield Violation(problem, line_numbers([line]), hint)


@rule("note", "A metricsFormat of the Experiment's own reads it as it is printed.")
def _printed_another_way(log: Log) -> Iterator[Violation]:
    wanted = log.reader.objective
    for library in BY_HAND if wanted in log.silent() and not log.libraries else ():
        found = {name: line for line in log.lines for name, _ in read_as(library, line.text)}
        names = [name for name in found if is_short_for(name, wanted) and name not in log.seen]
        if names and not log.reader.formats:
            metric = library.meant(wanted, names)
            sweep = f"podium tune --prints {library.key} --objective {shlex.quote(metric)}"
            hint = f"{sweep}, or {log.reader.how(library, metric)}"
            yield Violation(
                f"{metric} is printed in another form", line_numbers([found[metric]]), hint
            )
            return


@rule("fail", "Name and value have to stand on one line; what a column is called is not read.")
def _column_of_a_table(log: Log) -> Iterator[Violation]:
    wanted = log.reader.objective
    for at, head in enumerate(log.lines if wanted in log.silent() else ()):
        names = _cells(head.text.lower())
        if len(names) < 2 or wanted.lower() not in names or any(map(_PLAIN.fullmatch, names)):
            continue
        column = names.index(wanted.lower())
        for row in log.lines[at + 1 : at + 3]:
            cells = _cells(row.text)
            # An index without a name stands before the first column, a bar behind the last name.
            found = {*cells[column : column + 1], *cells[column - len(names) :][:1]}
            if len(cells) > 1 and any(re.fullmatch(rf"{_NUMBER}\S*", cell) for cell in found):
                yield Violation(
                    f"{wanted} is a column of a table",
                    line_numbers([head, row]),
                    f"print {wanted}=0.9 on a line of its own, once the table is there",
                )
                return


def _cells(text: str) -> list[str]:
    return re.split(r"\s{2,}", re.sub(r"[|│┃,\t]", "  ", text).strip())


@rule(
    "note",
    "A missing additional metric is stored as unavailable; the trial still succeeds.",
    where="whole log",
)
def additional_missing(log: Log) -> Iterator[Violation]:
    for name in log.silent():
        if name != log.reader.objective:
            hint = f"print {name}=0.5, or take it out of additionalMetricNames"
            yield Violation(f"no line reports {name}", hint=hint)


for _near in (
    _NearMiss(
        "colon-for-equals",
        "Katib's pattern wants letters, digits, _, - or | as a name, then = and the value.",
        rf"(?<![\w|\"'-])NAME\s*:\s*{_NUMBER}\S*",
        "`{found}` is not name=value",
        "print {metric}=0.9 with an equals sign",
    ),
    _NearMiss(
        "dict-for-equals",
        "JSON and dicts have colons and quotes; the StdOut collector reads name=value only.",
        rf"[\"']NAME[\"']\s*:\s*[\"']?{_NUMBER}[^,}}]*",
        "`{found}` is a dict's entry, not name=value",
        "print {metric}=0.9; or use a File collector with format JSON, its values being texts",
    ),
    _NearMiss(
        "words-for-equals",
        "Without an equals sign there is no metric.",
        rf"(?<![\w|-])NAME(?:\s*+(?:is|of|was|at|->|:=|[|│])|\s)\s*+{_NUMBER}\S*",
        "`{found}` is not name=value",
        "print {metric}=0.9 with an equals sign",
    ),
    _NearMiss(
        "longer-name",
        "A name counts only if it is the metric's to the letter: val_loss is a metric of its own, not loss.",
        rf"(?<![\w|-])(?>[\w-]+?NAME[\w-]*|NAME[\w-]+)\s*=\s*{_NUMBER}\S*",
        "`{found}` is another metric than {metric}",
        "make that name the objectiveMetricName, or print {metric}=0.9",
        lambda metric, line, found: "\x1b" in line,
    ),
    _NearMiss(
        "color-after-name",
        "A color code is part of the line, and here it stands between the name and the number.",
        rf"(?:(?<![\w|-])|{_CODE})NAME\s*+(?:(?:{_CODE})++\s*+[=:]|:\s*+{_CODE})\s*+\S+",
        "`{found}` is not read as {metric}",
        "switch colors off where stdout is not a terminal (NO_COLOR=1), and print {metric}=0.9",
    ),
    _NearMiss(
        "letter-case",
        "Case matters in names.",
        rf"(?<![\w|-])NAME\s*=\s*{_NUMBER}\S*",
        "`{found}` is another metric than {metric}",
        "print {metric}= in the same case",
        lambda metric, line, found: metric in found,
    ),
):
    rule("fail", _near.why, _near.name)(_near.look)


@rule(
    "warn",
    "| belongs to names in Katib's pattern: `epoch|loss=0.3` is a metric called `epoch|loss`.",
    hint="put a blank after the bar",
)
def _bar_before_name(log: Log) -> Iterator[Violation]:
    return _glued(log, r"(?<![\w|-])[\w|-]*\|NAME\s*=\s*\S+")


@rule(
    "warn",
    "The m that ends a color code is a letter and becomes part of the name: `32maccuracy`.",
    hint="switch colors off where stdout is not a terminal (NO_COLOR=1), or print a blank before the name",
)
def _color_before_name(log: Log) -> Iterator[Violation]:
    return _glued(log, r"\x1b\[[0-9;]*mNAME\s*=\s*\S+")


def _glued(log: Log, pattern: str) -> Iterator[Violation]:
    """Yield metric names that a prefix turns into another name; fails if the objective is never
    reported."""
    silent = log.silent()
    for name in log.reader.names:
        wanted = re.compile(pattern.replace("NAME", re.escape(name)))
        lines = [(line, match[0]) for line in log.lines if (match := wanted.search(line.text))]
        if lines:
            level = "fail" if name in silent and name == log.reader.objective else None
            where = line_numbers(line for line, _ in lines)
            yield Violation(f"`{escaped(lines[0][1])}` is not read as {name}", where, level=level)


def escaped(text: str) -> str:
    """Return a text with its color codes visible."""
    return COLOR.sub(lambda code: repr(code[0])[1:-1], text)


@rule(
    "fail",
    "Katib's own pattern finds names of ASCII letters, digits, _, - and | only.",
    where="objective",
    hint="choose a name of letters, digits, _ and -, or a metricsFormat that finds this one",
)
def _impossible_name(log: Log) -> Iterator[Violation]:
    for name in () if log.reader.formats else log.reader.names:
        if not re.fullmatch(r"[\w|-]+", name, re.ASCII):
            level = None if name == log.reader.objective else "warn"
            yield Violation(f"no line can report a metric called {name!r}", level=level)


@rule(
    "warn",
    "Only the last word before = is the name: `val loss=0.3`, `val/loss=0.3` and `loss=0.3` are one metric.",
)
def _several_stages_under_one_name(log: Log) -> Iterator[Violation]:
    for name in log.reader.names:
        stage = rf"(?:\b({_STAGES})[ /.:'\"{{]+)?{_metric(log, name)}"
        stages: dict[str, Line] = {}
        for line in log.reporting(name):
            found = list(re.finditer(stage, line.text, re.IGNORECASE))
            for match in found if _are_read(log, line, name, len(found)) else ():
                stages.setdefault((match[1] or "").lower(), line)
        first = "train"
        if len(stages) < 2 and (stages := _parts(log, name)):
            first = next(filter(None, stages)).replace(" ", "_")
        if len(stages) > 1:
            shown = listed([f"`{stage} {name}`".replace("` ", "`") for stage in stages])
            hint = f"give each its own name, for example {first}_{name} and {name}"
            where = line_numbers(stages.values())
            yield Violation(f"{shown} are all read as {name}", where, hint)


def _metric(log: Log, name: str) -> str:
    """Return a pattern of a metric's name and of what stands before its value."""
    own = {*log.reader.formats} - {DEFAULT_FORMAT, STRICT_FORMAT}
    sign = r"(?:['\"]?\s*[=:|]|\s+(?=[+-]?\.?\d))" if own else r"\s*="
    return rf"(?<![\w|-]){re.escape(name)}{sign}"


def _are_read(log: Log, line: Line, name: str, found: int) -> bool:
    """Return whether what was found on a line is read as a metric: a format of one's own may know
    longer names, such as ``Test accuracy``."""
    own = {*log.reader.formats} - {DEFAULT_FORMAT, STRICT_FORMAT}
    return not own or found == sum(reading.name == name for reading in line.readings)


def _parts(log: Log, name: str) -> dict[str, Line]:
    """Return the parts of the data or of the work that a metric was reported for, and a line of
    each: `class 0`, `top 5`, `fold 1`, or the words before several readings of one line."""
    metric = _metric(log, name)
    part = re.compile(
        r"\b(class|label|domain|top)(?:[\s_=#@:-]{0,2}(?=\d)|[\s=:]{1,2}['\"]?(?=[a-z]))"
        rf"([\w-]++)['\"]?(?:\s*\([^()]*\))?[^\w=]*{metric}",
        re.IGNORECASE,
    )
    run = re.compile(r"\b(fold|seed|client)[\s_=#:-]{0,2}(\d++)(?!\.?\w)", re.IGNORECASE)
    reading = re.compile(rf"(?:\b([A-Za-z]+)\W{{1,3}})?{metric}\s*([^\s,;|)]*)")
    kinds: dict[str, dict[str, Line]] = {}
    for line in log.reporting(name):
        if not _are_read(log, line, name, len(reading.findall(line.text))):
            continue
        for text in re.split(r"[\r\b]", line.text):  # a progress bar's states
            if not (values := reading.findall(text)):
                continue
            found = (*part.findall(text), *run.findall(text))
            named = dict.fromkeys((kind.lower(), which) for kind, which in found)
            counts = Counter(kind for kind, _ in named)
            for kind, which in named:
                if counts[kind] <= len(values):  # else it is of several: clients 1 and 2
                    kinds.setdefault(kind, {}).setdefault(f"{kind} {which}", line)
            if all(len(set(each)) > 1 for each in zip(*values, strict=True)):
                words = kinds.setdefault("", {})
                words |= {word: line for word, _ in values if word not in words}
    return next((parts for parts in kinds.values() if len(parts) > 1), {})
