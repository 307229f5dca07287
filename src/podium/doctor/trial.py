"""Reasons why a trial has no metrics, found by the doctor in its log and worded as an error."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from podium.doctor.log import rules_for
from podium.doctor.name_rules import nearest
from podium.doctor.reading import Log, Reader, read_as, scan
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.build import reporting_flag
from podium.manifests.rules import Finding, apply
from podium.metrics.libraries import BY_HAND

_CALL = "podium.code.call"
"""Module that calls a tuned function and prints its return value (podium.code)."""

_LIBRARY = "library-has-its-own-format"
_MISREAD = (
    "several-stages-under-one-name",
    "every-rank-reports",
    "shares-and-percentages",
    "bar-of-batches",
    "minus-sign",
    "number-cut-short",
    "fraction-cut",
    "exponent-cut",
)
"""Rules about an objective that is another one than the program meant."""

_ENOUGH = 500
"""Lines of a log in which all that may be misread has been printed."""

_COLORS = {"color-before-name", "color-after-name"}
_OTHER_FORMS = {"colon-for-equals", "dict-for-equals", "words-for-equals"}

_MEASURES = frozenset(
    {
        "acc",
        "accuracy",
        "loss",
        "err",
        "error",
        "f1",
        "auc",
        "auroc",
        "score",
        "mae",
        "mse",
        "rmse",
        "r2",
    }
    | {
        "acc1",
        "top1",
        "metric",
        "precision",
        "recall",
        "perplexity",
        "ppl",
        "bleu",
        "rouge",
        "iou",
        "dice",
        "map",
        "ndcg",
        "nll",
    }
)
_HELD_OUT = frozenset({"val", "valid", "validation", "test", "eval", "dev"})
"""Words in the names of what is measured, and of what is measured on other data than the
training's."""


def why_unavailable(
    experiment: Experiment,
    lines: Sequence[str],
    objective: str,
    ask: Callable[[str, str], str] | None = None,
) -> tuple[list[str], str]:
    """Explain why a trial that succeeded has no metrics.

    Args:
        objective: Setting that selects another objective, with NAME for its name.
        ask: See Reader.

    Returns:
        Lines that say what was seen, and a hint.
    """
    reader = replace(Reader.of(experiment), ask=ask)
    if reader.collector.kind != "StdOut":  # it read a file that nobody has any more
        return [], ""
    name, log = reader.objective, scan(lines, reader)
    words = [word for _, body in experiment.template.workload.containers() for word in body.words]
    if not log.seen and not log.libraries and any(_CALL in word for word in words):
        return [
            "the function returned nothing, and printed no metric"
        ], f'return {{"{name}": 0.98}}'
    if experiment.uses_builtin_trainer and reporting_flag(experiment):
        return [
            f"podium's trainer prints {name} only where it is asked to"
        ], f"add --metric={name} to its command"
    found = [
        finding
        for finding in apply(rules_for(reader), log)
        if finding.level == "fail" or finding.rule == _LIBRARY
    ]
    misses = [finding for finding in found if finding.rule != "objective-missing"] or found
    near = nearest(name, log.seen) or (next(iter(log.seen)) if len(log.seen) == 1 else "")
    hints = dict.fromkeys(finding.hint for finding in misses if finding.hint)
    if colored := [finding.hint for finding in found if finding.rule in _COLORS]:
        hints, near = dict.fromkeys(filter(None, colored)), ""
    elif asked := _as_printed(log, found, lines):
        hints, near = dict.fromkeys([asked]), ""
    hint = (
        f"{objective.replace('NAME', near)}, or print {name}=0.98" if near else "; or ".join(hints)
    )
    return [
        f"{finding.what} ({finding.where})" for finding in (found if log.seen else misses)
    ], hint


def misread_trial(
    experiment: Experiment,
    best: Trial,
    trials: Iterable[Trial],
    log: Callable[[str], Iterable[str]],
) -> tuple[Trial, Finding] | None:
    """Return the first of the best, the least and the greatest trial whose objective is not what
    it printed, by its first lines, and what doctor says of it.

    It was read from several stages, as `train accuracy=1.0 val accuracy=0.9`, or processes, in
    shares and percentages, or cut short, as 1,234 is 1 and 89/100 is 89: that makes its trial one
    of these three.

    Args:
        log: Returns the lines of a trial's log by its name.
    """
    reader = Reader.of(experiment)
    if reader.collector.kind != "StdOut":
        return None
    alone = replace(reader, additional=())
    rules = [rule for rule in rules_for(reader) if rule.name in _MISREAD]
    scored = [(trial.value, trial) for trial in trials if trial.value is not None]
    ranked = [trial for _, trial in sorted(scored, key=lambda each: each[0])]
    for trial in dict.fromkeys([best, *ranked[:1], *ranked[-1:]]):
        if found := apply(rules, scan(islice(log(trial.name), _ENOUGH), alone)):
            return trial, found[0]
    return None


def _as_printed(log: Log, found: Sequence[Finding], lines: Sequence[str]) -> str | None:
    """Suggest how to read the metrics as the program prints them; None if nothing fits."""
    if hint := next((finding.hint for finding in found if finding.rule == _LIBRARY), None):
        return hint
    if not log.reader.ask:
        return None
    wanted, rules = log.reader.objective, {finding.rule for finding in found}
    if log.seen and not rules & _OTHER_FORMS:
        return None
    for library in BY_HAND:
        printed = dict.fromkeys(name for line in lines for name, _ in read_as(library, line))
        names = [name for name in printed if _words(name) & _MEASURES and not _AT.search(name)]
        if names:  # "val_acc: 0.95" where accuracy is wanted, but not "seed: 3"
            near = nearest(wanted, names)
            best = [
                *sorted(names, key=lambda name: bool(_words(name) & _HELD_OUT)),
                *filter(None, [near]),
            ]
            return log.reader.how(library, library.meant(wanted, best))
    return None


_AT = re.compile(r"(?i)(epoch|step|iter|fold|batch)\w{0,30}\W{0,9}\d")
"""A name that only one line has, as "best accuracy at epoch 2"."""


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+\d*|[A-Z]+\d*", name)}
