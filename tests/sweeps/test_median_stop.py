"""Median stopping: the rule that new trials get and the value at which a running trial meets it."""

import pytest

from podium.metrics import Reading
from podium.sweeps.early_stopping import MedianStop, RuleWatch


def readings(*values: str) -> list[Reading]:
    return [Reading("loss", value) for value in values]


def taught(*trials: tuple[str, ...], maximize: bool = False, **settings: int) -> MedianStop:
    median = MedianStop(settings, "loss", maximize=maximize)
    for number, values in enumerate(trials):
        median.learn(f"t{number}", readings(*values))
    return median


@pytest.mark.parametrize(("maximize", "comparison"), [(True, "less"), (False, "greater")])
def test_the_rule_stops_what_is_worse_than_the_mean(maximize: bool, comparison: str) -> None:
    median = taught(("1", "2"), ("3", "6"), maximize=maximize, min_trials_required=2, start_step=2)
    assert median.rules() == [
        {"name": "loss", "value": "3.0", "comparison": comparison, "startStep": 2}
    ]


def test_only_values_before_the_start_step_make_the_mean() -> None:
    median = taught(("1", "3", "100"), min_trials_required=1, start_step=2)
    assert median.rules()[0]["value"] == "2.0"


def test_values_that_are_no_numbers_count_as_steps_only() -> None:
    median = taught(("nan?", "4", "100"), ("none", "none"), min_trials_required=1, start_step=2)
    assert median.rules()[0]["value"] == "4.0"


@pytest.mark.parametrize(
    ("settings", "required", "start"),
    [({}, 3, 4), ({"min_trials_required": 2, "start_step": 1}, 2, 1)],
)
def test_rules_begin_with_the_last_trial_required(
    settings: dict[str, int], required: int, start: int
) -> None:
    assert taught(*[("1",)] * (required - 1), **settings).rules() == []
    (rule,) = taught(*[("1",)] * required, **settings).rules()
    assert rule["startStep"] == start


def watch(value: float, comparison: str, start: int, *, maximize: bool) -> RuleWatch:
    rule = {"name": "loss", "value": str(value), "comparison": comparison, "startStep": start}
    return RuleWatch([rule], "loss", maximize=maximize, formats=None)


def stopped_at(watch: RuleWatch, *values: float) -> int | None:
    """Return the number of the value, from 1, at which a trial is stopped."""
    return next((step for step, value in enumerate(values, 1) if watch.sees(f"loss={value}")), None)


@pytest.mark.parametrize(
    ("maximize", "values", "step"),
    [
        (True, (0.1, 0.2), 2),  # both below
        (True, (0.9, 0.1), None),  # its best is above
        (True, (0.1, 0.5), None),  # equal is not worse
        (True, (0.6, 0.7), None),
        (False, (0.9, 0.8), 2),
        (False, (0.1, 0.9), None),
        (False, (0.9, 0.5), None),
        (False, (0.4, 0.3), None),
    ],
)
def test_a_trial_is_judged_by_its_best_value(
    maximize: bool, values: tuple[float, ...], step: int | None
) -> None:
    assert (
        stopped_at(watch(0.5, "less" if maximize else "greater", 2, maximize=maximize), *values)
        == step
    )


@pytest.mark.parametrize("start", [1, 2, 3])
def test_a_trial_is_judged_at_its_start_step_alone(start: int) -> None:
    bad = [0.9] * 5
    assert stopped_at(watch(0.5, "greater", start, maximize=False), *bad) == start
    good_until_then = [0.1] * start + bad
    assert stopped_at(watch(0.5, "greater", start, maximize=False), *good_until_then) is None


@pytest.mark.parametrize(
    ("start", "stopped"), [(None, [False, False, True]), (2, [False, False, False])]
)
def test_without_a_start_step_every_value_is_judged(start: int | None, stopped: list[bool]) -> None:
    rule = {"name": "time", "value": "10", "comparison": "greater", "startStep": start}
    watched = RuleWatch([rule], "loss", maximize=False, formats=None)
    assert [watched.sees(f"time={value}") for value in (9, 10, 11)] == stopped


def test_values_that_are_printed_again_count_once() -> None:
    watched = watch(0.5, "greater", 3, maximize=False)
    lines = [
        "loss=0.9",
        "loss=0.8",
        "resumed: epoch 3 after step 0 of 9",
        "loss=0.9",
        "loss=0.8",
        "loss=0.7",
    ]
    assert [watched.sees(line) for line in lines] == [False, False, False, False, False, True]


@pytest.mark.parametrize("pushed_first", [False, True])
def test_a_metric_that_is_printed_and_pushed_counts_once(pushed_first: bool) -> None:
    watched = watch(0.5, "less", 4, maximize=True)
    takes = [
        lambda value: watched.sees(f"loss={value}"),
        lambda value: watched.takes(("loss", value)),
    ]
    for value in (0.1, 0.2, 0.3, 0.99):
        assert not any(take(value) for take in (takes[::-1] if pushed_first else takes))


def test_lines_are_judged_where_pushes_came_sooner() -> None:
    watched = watch(0.5, "less", 3, maximize=True)
    assert not any(watched.takes(("loss", value)) for value in (0.1, 0.2))
    assert not watched.sees("loss=0.9")
    assert not any(watched.takes(("loss", value)) for value in (0.3, 0.4))
    only_pushed = watch(0.5, "less", 3, maximize=True)
    assert [only_pushed.takes(("loss", 0.1)) for _ in range(3)] == [False, False, True]
