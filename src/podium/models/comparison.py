"""The decision between a challenger and the champion, on the test items that they share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

import podium.models.approval as approval
import podium.models.signature as signature
from podium.data.artifact import describe
from podium.data.seen import TooFewItems
from podium.data.test_part import mostly, sketch
from podium.display.text import figure
from podium.errors import InvalidInput
from podium.models.decision import Decision, Earlier, Promotion
from podium.models.fresh import NewItems
from podium.models.ledger import Ledger
from podium.models.record import Record
from podium.models.rule import NO_CHAMPION, PromotionRule, decide
from podium.models.shared_items import (
    SharedItems,
    TestItems,
    VersionJobs,
    stored_hashes,
)
from podium.models.task import spelled_as
from podium.models.version import PREDICTIONS, Version
from podium.prediction.command import ONNX
from podium.prediction.predictor import PREPROCESSING
from podium.scoring import (
    METRICS,
    Metric,
    choose_metric,
    find_metric,
)
from podium.scoring.intervals import figure_interval
from podium.scoring.threshold import THRESHOLD
from podium.storage import absolute

if TYPE_CHECKING:
    from podium.models.championship import Championship
    from podium.models.live import LiveItems


_JUMP = 3.5
"""Standard errors by which a champion's figure may be better on other test items than at upload:
chance does that once in four thousand test parts."""


def judge(
    data: str | None,
    rule: PromotionRule,
    metric: Metric | None,
    jobs: "VersionJobs | None" = None,
    live: "LiveItems | None" = None,
) -> Callable[[Version, Version | None, Sequence[Record]], Decision]:
    """Return what decides between a challenger and a champion, or about a first champion.

    Args:
        data: URI of a dataset, or of its test part, to run them on; None to use the predictions
            stored with them.
        rule: What the challenger must achieve.
        metric: What both are compared by; None for the rule's, else what the challenger was chosen
            by.
        jobs: Where a predict command runs; None runs it on this machine.
        live: Items that a server answered, to compare on in place of a test part.

    Raises:
        InvalidInput: The rule needs what this machine lacks, as a key for signatures.
    """
    rule.require_ready()
    of_data = TestItems.of_data(data, jobs) if data is not None else None

    def decide_between(
        challenger: Version, champion: Version | None, records: Sequence[Record]
    ) -> Decision:
        both = (challenger, champion) if champion else (challenger,)
        items = live.of(challenger) if live else of_data or TestItems.stored(both)
        try:
            seen = items.common(both)
        except TooFewItems as error:
            if champion is None:
                raise
            alone = decide_between(challenger, None, records)
            reasons = tuple(reason.removesuffix(NO_CHAMPION) for reason in alone.reasons)
            return replace(alone, reasons=reasons).refused(error.message)
        notes = live.notes if live else ()
        if live and champion and (sample := live.agreement(challenger, champion)):
            notes = (*notes, sample)
        if rule.window:
            seen, records = _in_window(rule.window, seen, items, records)
        chosen = metric or chosen_metric(rule.metric, challenger, seen.kind)
        column = items.column

        def of_shared(name: str) -> np.ndarray:
            assert column
            return column(name)[seen.items]

        earlier = _earlier(rule, chosen.name, challenger, champion, seen, records)
        first, *second = seen.of(chosen)
        decision = decide(
            rule,
            chosen,
            seen.target,
            first,
            second[0] if champion else None,
            seen.groups,
            earlier,
            seen.classes,
            of_shared if column else None,
            probabilities=seen.predicted[0],
        )
        for note in (*notes, *seen.notes):
            decision = decision.noting(note)
        figures = {**decision.figures, "model": _model_of(challenger)}
        if rule.window:
            figures["window"] = _sketch(seen, items)
        decision = replace(decision, figures=figures)
        why = (
            _jumped(champion, chosen, decision.figures, seen, data)
            if champion is not None and data
            else ""
        )
        decision = decision.refused(why) if why else decision
        decision = signature.judge(rule.of_version(decision, challenger), challenger)
        return approval.judge(decision, challenger) if "approved" in rule else decision

    return decide_between


def _earlier(
    rule: PromotionRule,
    metric: str,
    challenger: Version,
    champion: Version | None,
    seen: SharedItems,
    records: Sequence[Record],
) -> Earlier:
    own = champion.version if champion else None
    earlier = Earlier.of(records, metric, challenger.version, own, _model_of(challenger))
    if "fresh" not in rule or champion is None:
        return earlier
    return replace(earlier, fresh=_new_items(seen, challenger, champion, metric))


def _model_of(version: Version) -> list[str]:
    """Return what tells its model, under whatever version: digests of its predictions and of its
    graph, each with its threshold."""
    files = (PREDICTIONS, THRESHOLD), (ONNX, PREPROCESSING, THRESHOLD)
    checksums = [
        [version.files[name].sha256 for name in some if name in version.files]
        for some in files
        if some[0] in version.files
    ]
    return [sha256("".join(each).encode()).hexdigest()[:16] for each in checksums]


def _in_window(
    count: int, seen: SharedItems, items: TestItems, records: Sequence[Record]
) -> tuple[SharedItems, Sequence[Record]]:
    """Return the newest items, and the earlier comparisons on most of them.

    Raises:
        InvalidInput: Their times are not known.
    """
    if items.times is None:
        raise InvalidInput(
            f"window={count} needs the times of the test items, which the data do not have",
            "divide them by time: data_options time=COLUMN; or name prepared data that are: --data URI",
        )
    seen = seen.newest(count, items.times)
    now = _sketch(seen, items)
    return seen, [each for each in records if mostly(str(each.evidence.get("window")), now)]


def _sketch(seen: SharedItems, items: TestItems) -> str:
    assert items.keys is not None
    return sketch(items.keys[seen.items])


def _new_items(
    seen: SharedItems, challenger: Version, champion: Version, metric: str
) -> NewItems | None:
    own = stored_hashes(champion)
    if own is None or seen.units is None:
        return None
    records = Ledger(champion.storage, champion.name).distinct_records()
    return NewItems.of(seen.units, own[:, 1], records, challenger.version, champion.version, metric)


def _jumped(
    champion: Version, metric: Metric, figures: Mapping[str, Any], seen: SharedItems, data: str
) -> str:
    """Return why a champion's figure on another test part than its own is not to be believed; empty
    if it is.

    Both figures are of items that it has not seen, as far as is known: one that is better than at
    upload by far more than their intervals shows items that it does know, in a form that nothing
    recognizes. Of the earlier ones only the classes count that the other items have.
    """
    compared, stored = "champion_interval" in figures, PREDICTIONS in champion.files
    if not (compared and stored) or champion.facts.dataset.test_part == describe(data).test_part:
        return ""
    now = figures["champion_interval"] or figure_interval(
        metric, seen.target, seen.of(metric)[1], seen.groups, present=True
    )
    try:
        items = TestItems.stored([champion])
    except InvalidInput:  # its labels are encrypted with the key of another machine
        return ""
    own = items.common([champion])
    target, predicted, groups = own.target, own.of(metric)[0], own.groups
    if own.classes:
        names = {seen.classes[label] for label in np.unique(seen.target)}
        spelled = spelled_as(seen.classes, own.classes)
        kept = np.array([name in names for name in spelled])[target]
        target, predicted, groups = (
            target[kept],
            predicted[kept],
            None if groups is None else groups[kept],
        )
    before = (
        figure_interval(metric, target, predicted, groups, present=True) if len(target) else None
    )
    if not (before and now):
        return ""
    value, earlier = figures["champion_value"], metric.value(target, predicted)
    if not _jumps(metric, (earlier, *before), (value, *now)):
        return ""
    return (
        f"the {metric.name} of {champion.title} jumps from {figure(earlier)} ({figure(before[0])} to "
        f"{figure(before[1])}) at upload to {figure(value)} on other test items: it seems to know these in a "
        "form that podium does not recognize; compare on items that it cannot know, or, if these are just easier, "
        "promote the challenger by hand, without a rule"
    )


def _jumps(
    metric: Metric, earlier: tuple[float, float, float], now: tuple[float, float, float]
) -> bool:
    """Return whether a figure is better than an earlier one by more than _JUMP standard errors.

    An interval counts by the side that faces the other figure: on few items the other side can be
    much shorter.

    Args:
        earlier: The figure and its 95 % interval.
    """
    up = int(metric.maximize)
    error = math.hypot(earlier[1 + up] - earlier[0], now[2 - up] - now[0]) / 1.96
    return metric.better(now[0], earlier[0]) and abs(now[0] - earlier[0]) > _JUMP * error


def chosen_metric(text: str, version: Version, kind: str) -> Metric:
    """Return the metric asked for, else the one that a version was chosen by, else the default.

    A function that only a version's metadata names is not imported: it could be any function of
    this machine.

    Args:
        text: In the notation of find_metric; empty for none.
        kind: classification or regression.

    Raises:
        InvalidInput: There is no such metric, or it is of the other kind.
    """
    if text:
        find_metric(text)
    name = version.facts.metric.name
    if not text and name is not None and name not in METRICS:
        direction = "max" if version.facts.metric.maximize else "min"
        raise InvalidInput(
            f"{version.version} was chosen by {name}, which podium imports only if you ask for it",
            f"--metric {direction}:{name}, or metric={direction}:{name} in the rule; or compare by another metric",
        )
    return choose_metric(text, kind, objective=name or "")


def contest(
    model: "Championship",
    version: str,
    rule: str,
    data: str | None,
    evidence: Mapping[str, Any],
    live: "LiveItems | None" = None,
) -> Promotion:
    """Let a version challenge the champion, with stored predictions, on given data or on live
    items.

    Args:
        version: The challenger, a version or an alias.
        rule: In the notation of PromotionRule.parse; without a metric, that of the challenger
            counts.
        data: URI of a dataset; None to use stored predictions.
        live: As in judge.
    """
    facts = model.version(version).facts.dataset
    part = facts.test_part or facts.test_digest
    judged = judge(data, PromotionRule.parse(rule), None, live=live)
    if data:
        # An approval compares on it once more, perhaps from another directory.
        evidence, part = {**evidence, "data": absolute(data)}, describe(data).test_part
    if live:
        evidence, part = {**evidence, "live": live.evidence}, live.test_part
    return model.challenge(version, judged, {**evidence, "test_part": part})
