"""The words of a promotion rule; docs/registry.md has this table."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import podium.models.fresh as fresh
import podium.models.signature as signature
from podium.data.test_part import LEAST_ITEMS
from podium.display.text import apart, digits, exact, figure, listed, p_words
from podium.errors import InvalidInput, require
from podium.metrics.goals import Constraint
from podium.models.decision import Case, Condition, Criterion
from podium.models.version import Version
from podium.system.plugins import Table

if TYPE_CHECKING:
    from podium.scoring import Comparison, Metric
    from podium.scoring.slices import Slice

LIKELY = 0.8
"""Default of ``likely``: it suits a first week on a laptop as well as a year of nightly runs;
docs/registry.md explains the value."""

_MOST_SLICES = 50
"""Slices of a column whose figures the history stores, the worst first."""

_LEAST_CHANGED = 2
"""Items that decide for one model alone; a single one is a coin that was thrown once."""


def _number(name: str, holds: Callable[[float], bool], wanted: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(
                f"{name} of a promotion rule must be a number, not {text!r}"
            ) from None
        require(math.isfinite(value) and holds(value), wanted, **{name: text})
        return value

    return read


def _words(case: Case) -> str:
    """Return the figures of both models, and what tells them apart."""
    assert case.compared
    champion = apart(case.compared.second, case.compared.first)
    if case.compared.second_interval:
        champion += f" ({_between(case.compared.second_interval)})"
    shrunk = figure(case.figures["shrunk"]), figure(case.figures["champion_shrunk"])
    return (
        f"{case.metric.name} {measured(case.figures)} against {champion}, "
        f"shrunk {shrunk[0]} against {shrunk[1]}, {_test(case.compared)}"
    )


def measured(figures: dict[str, Any]) -> str:
    """Return the challenger's figure with its precision, and what a constant guess reaches."""
    items = f"n = {figures['items']:,}"
    if figures["units"] != figures["items"]:
        items += f", {figures['units']:,} of them independent"
    if figures["value_interval"]:
        items = f"{_between(figures['value_interval'])}, {items}"
    if constant := figures["constant"]:
        items += f"; {constant['guess']}: {figure(constant['value'])}"
    return f"{figure(figures['value'])} ({items})"


def _between(interval: Any) -> str:
    return f"95 % {figure(interval[0])} to {figure(interval[1])}"


def _test(compared: "Comparison") -> str:
    sides = ""
    if compared.gained is not None:
        sides = f"right where the champion is wrong: {compared.gained}, wrong where it is right: {compared.lost}, "
    if compared.test == "McNemar" and compared.p_value is not None:
        return f"{sides}McNemar {p_words(compared.p_value)}"
    change = f"difference {digits(compared.difference, sign='+')}"
    if not math.isfinite(compared.difference):
        here, there = figure(compared.first), figure(compared.second)
        return f"{change}: the metric is {here} here and {there} there"
    if compared.interval is not None:
        low, high = compared.interval
        change += f", 95 % interval {digits(low, sign='+')} to {digits(high, sign='+')}"
    doubt = f" (interval and p are not reliable: {compared.doubt})" if compared.doubt else ""
    if compared.p_value is None:
        return f"{sides}{change}; {compared.why or 'too few items for a test'}"
    return f"{sides}{change}, permutation {p_words(compared.p_value, compared.p_is_bound)}{doubt}"


def _likely(least: float, case: Case) -> Iterator[Condition]:
    probability = case.figures["probability"]
    if probability is None:
        few = "too few items to say how likely it is better than the champion"
        yield False, f"{few}: {_words(case)}"
        return
    shown, holds = f"{probability:.3g}", probability >= least
    if (float(shown) >= least) != holds:
        shown = apart(probability, least)
    wanted = f"better than the champion with probability {shown} >= {exact(least)}"
    yield holds, f"{wanted}: {_words(case)}"


def _better(value: None, case: Case) -> Iterator[Condition]:
    assert case.compared
    yield case.compared.better, f"better than the champion: {_words(case)}"
    if case.compared.better and _differing(case) < _LEAST_CHANGED:
        unit = "item" if case.groups is None else "group"
        yield False, f"a single {unit} tells the two apart, which is chance: 2 or more are needed"


def _differing(case: Case) -> float:
    """Return of how many items, or groups, accuracy sees that one model alone has some right."""
    compared = case.compared
    assert compared
    if compared.gained is None or compared.lost is None:
        return math.inf
    if case.groups is None:
        return compared.gained + compared.lost
    from podium.scoring.families import only_right

    assert case.champion is not None
    first, second = only_right(case.target, case.challenger, case.champion)
    return len(set(case.groups[first | second].tolist()))


def _not_worse(value: None, case: Case) -> Iterator[Condition]:
    assert case.compared
    yield not case.compared.worse, f"not worse than the champion: {_words(case)}"


def _read_baseline(text: str) -> str:
    if text != "any":
        raise InvalidInput(f"baseline is any or left out, not {text!r}", "baseline=any")
    return text


def _minimum(least: float, case: Case) -> Iterator[Condition]:
    sign, word = (">=", "minimum") if case.metric.maximize else ("<=", "maximum")
    value = case.figures["value"]
    words = f"{case.metric.name} {figure(value)} {sign} {word} {least:g}"
    yield not case.metric.better(least, value), words


def _check_minimum(least: float, metric: "Metric") -> None:
    if metric.range == (0, 1):
        share = f"{metric.name} is a share, not a percentage"
        require(0 <= least <= 1, "0 <= minimum <= 1", share, minimum=least)


def _class_drop(most: float, case: Case) -> Iterator[Condition]:
    classes = case.figures.get("classes")
    if classes:
        name, worst = min(classes.items(), key=lambda item: item[1]["change"])
        words = f"largest loss of a class: {worst['change']:+.4f} (class {name}), -{most:g} allowed"
        yield -worst["change"] <= most, words


def _check_class_drop(most: float, metric: "Metric") -> None:
    if not metric.counts_hits:
        raise InvalidInput(
            f"max_class_drop is about accuracy, but the metric is {metric.name}",
            "leave it out, or add metric=accuracy to the rule",
        )


def _slice(column: str, case: Case) -> Iterator[Condition]:
    from podium.scoring.slices import LEAST_OF_SLICE, slice_names, slices

    names = slice_names(case.column(column))
    found = slices(case.metric, names, case.target, case.challenger, case.champion, case.groups)
    shown = [one.to_json() for one in found[:_MOST_SLICES]]
    case.figures.setdefault("slices", []).append({"column": column, "slices": shown})
    if case.champion is None:
        return
    passed_over = [f"{one.name} (n = {one.items:,})" for one in found if not one.compared]
    rest = f"; not judged: {listed(passed_over)}" if passed_over else ""
    judged = [one for one in found if one.compared]
    if judged:
        yield not judged[0].worse, f"{_worst(column, judged)}{rest}"
    else:
        yield False, f"no {column} has {LEAST_OF_SLICE} items that can be judged{rest}"


def _worst(column: str, judged: "list[Slice]") -> str:
    """Say in which slice the challenger is worst, and in which others it is worse."""
    worst, refused = judged[0], [one.name for one in judged if one.worse]
    compared = worst.compared
    assert compared
    head = (
        "worse than the champion in"
        if refused
        else f"worse in no {column} by more than chance, nearest in"
    )
    also = f"; also in {listed(refused[1:])}" if refused[1:] else ""
    both = f"{figure(compared.first)} against {apart(compared.second, compared.first)}"
    corrected = f"{p_words(worst.p_value or 0.0)} by Holm among {len(judged)}"
    tested = f"n = {worst.items:,}, {_test(compared)}, {corrected}"
    return f"{head} {column} {worst.name}: {compared.metric.name} {both} ({tested}){also}"


def _read_window(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_ITEMS:
        words = f"window is a number of test items, {LEAST_ITEMS} or more, not {text!r}"
        raise InvalidInput(words, "window=1000")
    return int(text)


def _calibration(most: float, case: Case) -> Iterator[Condition]:
    from podium.scoring.calibration import calibration

    assert case.probabilities is not None
    found = calibration(case.target, case.probabilities)
    if found is None:
        yield False, "the challenger gives classes only, which have no calibration error"
        return
    case.figures["calibration_error"] = found.error
    chance = f"{figure(found.by_chance)} by chance alone, n = {found.items:,}"
    yield found.error <= most, f"calibration error {figure(found.error)} <= {most:g} ({chance})"


def _check_calibration(most: float, metric: "Metric") -> None:
    if metric.kind == "regression":
        words = f"calibration is about classes, but {metric.name} is a metric of numbers"
        raise InvalidInput(words, "leave it out of the rule")


def _read_trial(text: str) -> Constraint:
    try:
        return Constraint.read(text)
    except InvalidInput as error:
        raise InvalidInput(error.message, f"trial.{error.hint}") from None


def _trial(bound: Constraint, version: Version) -> Iterator[Condition]:
    trial = version.facts.trial
    value = trial.metrics.get(bound.metric)
    whose = f"its trial {trial.name}" if trial.name else "the version, which is of no trial,"
    if value is None:
        yield False, f"{whose} has no {bound.metric} (trial.{bound})"
    elif bound.broken_by(value) > 0:
        yield False, f"{bound.metric} {exact(value)} of {whose} breaks trial.{bound}"
    else:
        yield True, f"{bound.metric} {exact(value)} of {whose} keeps trial.{bound}"


_ALL = (
    Criterion(
        name="likely",
        sentence="is better with a probability of at least P, by empirical Bayes",
        read=_number("likely", lambda value: 0.5 <= value < 1, "0.5 <= likely < 1"),
        default=LIKELY,
        compares=True,
        judge=_likely,
    ),
    Criterion(
        name="better",
        sentence="has a better value of the metric, by more than a single item of accuracy",
        compares=True,
        judge=_better,
    ),
    Criterion(
        name="not-worse",
        sentence="has as good a value or a better one",
        compares=True,
        judge=_not_worse,
    ),
    Criterion(
        name="fresh",
        sentence="wins bets on the items that came since the champion was promoted: by more than MARGIN",
        read=_number("fresh", lambda value: value >= 0, "0 <= fresh"),
        default=0.0,
        compares=True,
        check=fresh.check_metric,
        judge=fresh.judge,
    ),
    Criterion(
        name="minimum",
        sentence="has at least this value of the metric, or at most where less is better",
        read=_number("minimum", lambda value: True, "minimum is a finite number"),
        check=_check_minimum,
        judge=_minimum,
    ),
    Criterion(
        name="baseline",
        sentence="may be a first champion that is not better than a constant guess",
        read=_read_baseline,
    ),
    Criterion(
        name="max_class_drop",
        sentence="loses in no class more than this share of the right answers (accuracy)",
        read=_number("max_class_drop", lambda value: 0 <= value <= 1, "0 <= max_class_drop <= 1"),
        check=_check_class_drop,
        judge=_class_drop,
    ),
    Criterion(
        name="slice",
        sentence="is in no value of this column of the test items worse by more than chance",
        read=str,
        judge=_slice,
    ),
    Criterion(
        name="window",  # seen to where the items are: see podium.models.comparison
        sentence="is compared on this many of the test items, the newest",
        read=_read_window,
    ),
    Criterion(
        name="calibration",
        sentence="has at most this expected calibration error",
        read=_number("calibration", lambda value: 0 < value < 1, "0 < calibration < 1"),
        check=_check_calibration,
        judge=_calibration,
    ),
    Criterion(
        name="signed",
        sentence="has a valid signature of the key of PODIUM_PUBLIC_KEY, which is set",
        ready=signature.require_key,
    ),
    Criterion(
        name="approved",  # judged last: see podium.models.approval
        sentence="has a person's yes: where it meets all else, it waits for that",
    ),
    Criterion(
        name="trial.",
        sentence="keeps a bound of what its trial reported: trial.latency_ms<=20",
        read=_read_trial,
        of_version=_trial,
    ),
)

CRITERIA = Table[Criterion](
    "criteria", {criterion.name: criterion for criterion in _ALL}, Criterion
)
"""By name. A new one is a Criterion in this table; a name that ends in a dot begins a word."""
