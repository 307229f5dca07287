"""When a challenger wins."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from podium.errors import InvalidInput
from podium.models import PromotionRule, Version, decide
from podium.models.criteria import CRITERIA
from podium.models.decision import Earlier
from podium.models.record import Record
from podium.models.version import Facts, _TrialFacts
from podium.scoring import METRICS, find_metric
from podium.scoring.comparison import mcnemar

N = 1000
LABELS = np.arange(N) % 10
ACCURACY = METRICS["accuracy"]


def wrong_at(*indices: int) -> np.ndarray:
    """Predict all right but these."""
    predicted = LABELS.copy()
    predicted[list(indices)] = (predicted[list(indices)] + 1) % 10
    return predicted


def test_without_a_champion_only_the_minimum_counts() -> None:
    almost = wrong_at(*range(10))
    assert decide(PromotionRule.parse("minimum=.99"), ACCURACY, LABELS, almost, None).promote
    refused = decide(PromotionRule.parse("minimum=.991"), ACCURACY, LABELS, almost, None)
    assert not refused.promote
    assert refused.reasons[0] == "no: accuracy 0.9900 >= minimum 0.991"


def test_better_needs_one_image_more() -> None:
    rule = PromotionRule.parse("better")
    assert decide(rule, ACCURACY, LABELS, wrong_at(1), wrong_at(2, 3)).promote
    assert not decide(rule, ACCURACY, LABELS, wrong_at(1), wrong_at(2)).promote
    assert not decide(rule, ACCURACY, LABELS, wrong_at(1, 2), wrong_at(3)).promote


def test_better_needs_one_group_more() -> None:
    rule, groups = PromotionRule.parse("better"), np.arange(N) // 10
    one, two = wrong_at(*range(5)), wrong_at(*range(8, 12))
    refused = decide(rule, ACCURACY, LABELS, LABELS, one, groups)
    assert not refused.promote
    assert refused.reasons[-1].startswith("no: a single group tells the two apart")
    assert decide(rule, ACCURACY, LABELS, LABELS, two, groups).promote


def test_not_worse_allows_a_draw() -> None:
    rule = PromotionRule.parse("not-worse")
    assert decide(rule, ACCURACY, LABELS, wrong_at(1), wrong_at(2)).promote
    assert not decide(rule, ACCURACY, LABELS, wrong_at(1, 2), wrong_at(3)).promote


def test_likely_looks_at_the_items_that_changed_sides() -> None:
    rule = PromotionRule.parse("likely=.97")
    champion = wrong_at(*range(40, 60))
    assert not decide(rule, ACCURACY, LABELS, wrong_at(*range(44, 60)), champion).promote
    decision = decide(rule, ACCURACY, LABELS, wrong_at(*range(50, 60)), champion)
    assert decision.promote
    assert decision.figures["p_value"] == pytest.approx(2 / 2**10)
    sides = decision.figures["only_challenger_right"], decision.figures["only_champion_right"]
    assert sides == (10, 0)


def test_every_rule_prints_shrunk_figures() -> None:
    for rule in ("likely", "better", "not-worse"):
        decision = decide(
            PromotionRule.parse(rule),
            ACCURACY,
            LABELS,
            wrong_at(*range(30)),
            wrong_at(*range(100, 140)),
        )
        figures = decision.figures
        assert figures["champion_value"] < figures["champion_shrunk"]
        assert figures["champion_shrunk"] < figures["shrunk"] < figures["value"]
        kept = (figures["shrunk"] - figures["shrunk_to"]) / (
            figures["value"] - figures["shrunk_to"]
        )
        assert figures["shrunk_by"] == pytest.approx(1 - kept)
        assert f"shrunk {figures['shrunk']:.4f} against" in decision.reasons[0]


def test_one_item_of_thirteen_promotes_nobody() -> None:
    for rule in ("better", "likely"):
        one = wrong_at(1)[:13], wrong_at(1, 2)[:13]
        decision = decide(PromotionRule.parse(rule), ACCURACY, LABELS[:13], *one)
        assert not decision.promote
    assert "a single item tells the two apart" in str(
        decide(PromotionRule.parse("better"), ACCURACY, LABELS[:13], *one)
    )


def test_many_equal_models_shrink_a_lead() -> None:
    models = wrong_at(*range(30)), wrong_at(*range(100, 140))
    alone = decide(PromotionRule(), ACCURACY, LABELS, *models)
    among = Earlier(challengers=30, figures=(0.965,) * 28, noises=(35e-6,) * 28)
    decision = decide(PromotionRule(), ACCURACY, LABELS, *models, earlier=among)
    assert decision.figures["probability"] < alone.figures["probability"]
    assert "challenger 30 on this test part" in decision.reasons[-1]


@pytest.mark.parametrize("others", [(0.1,), (0.8,) * 28])
def test_models_of_another_kind_lend_no_spread(others: tuple[float, ...]) -> None:
    models = wrong_at(*range(30)), wrong_at(*range(100, 140))
    among = Earlier(challengers=30, figures=(0.965,) * 28, noises=(35e-6,) * 28)
    mixed = Earlier(challengers=31, figures=among.figures + others, noises=among.noises)
    one, other = (
        decide(PromotionRule(), ACCURACY, LABELS, *models, earlier=each).figures
        for each in (among, mixed)
    )
    names = ("probability", "shrunk", "champion_shrunk", "shrunk_to", "shrunk_by")
    assert [one[name] for name in names] == pytest.approx([other[name] for name in names])


def test_the_champion_once_more_says_nothing_of_chance() -> None:
    def refusal(version: str, value: float, noise: float) -> Record:
        beaten = {"champion": "first", "champion_value": 0.9}
        figures = {"metric": ACCURACY.to_json(), "value": value, "noise": noise, **beaten}
        return Record.new("refusal", "mnist", version, evidence=figures)

    records = [refusal("again", 0.9, 0.0), refusal("other", 0.88, 1e-4)]
    assert Earlier.of(records, "accuracy", "new", "first") == Earlier(
        challengers=3, figures=(0.88,), noises=(1e-4,)
    )


def test_a_broken_challenger_is_in_no_later_ones_way() -> None:
    both = {"value": 0.1, "champion": "first", "champion_value": 0.97}
    figures = {"metric": ACCURACY.to_json(), "noise": 435e-6, **both}
    record = Record.new("refusal", "mnist", "guesses", evidence=figures)
    earlier = Earlier.of([record], "accuracy", "new", "first")
    models = wrong_at(*range(18)), wrong_at(*range(30))
    after = decide(PromotionRule(), ACCURACY, LABELS, *models, earlier=earlier)
    alone = decide(PromotionRule(), ACCURACY, LABELS, *models)
    assert after.promote
    assert after.figures["probability"] == alone.figures["probability"]


RETRAINED = {
    "beside the champion": Earlier(
        challengers=101, figures=(0.849, 0.851) * 50, noises=(2e-6,) * 100
    ),
    "beside each other": Earlier(
        challengers=101, figures=(0.839, 0.841) * 50, noises=(8e-5,) * 100
    ),
}


@pytest.mark.parametrize("earlier", RETRAINED.values(), ids=RETRAINED)
def test_retrained_models_stand_in_no_better_ones_way(earlier: Earlier) -> None:
    rule, champion = PromotionRule.parse("likely=.97"), wrong_at(*range(150))
    better = wrong_at(*range(50), *range(200, 240))  # p = 2e-6
    decision = decide(rule, ACCURACY, LABELS, better, champion, earlier=earlier)
    assert decision.promote
    lucky = wrong_at(*range(80), *range(200, 247))  # p = .02, once in a hundred nights
    assert not decide(rule, ACCURACY, LABELS, lucky, champion, earlier=earlier).promote


def test_a_few_mended_items_count_among_models_that_differ() -> None:
    earlier = Earlier(challengers=31, figures=(0.842, 0.85, 0.858) * 10, noises=(4e-5,) * 30)
    rule, champion = PromotionRule.parse("likely=.97"), wrong_at(*range(150))
    mended = wrong_at(*range(30, 150), *range(200, 203))  # p = 1e-6
    assert decide(rule, ACCURACY, LABELS, mended, champion, earlier=earlier).promote
    lucky = wrong_at(*range(10, 150), *range(200, 203))  # p = .09
    assert not decide(rule, ACCURACY, LABELS, lucky, champion, earlier=earlier).promote


def test_no_lead_of_one_item_is_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return ((target - predicted) ** 2).mean() ** .5"
    (tmp_path / "root_metric.py").write_text(f"def root(target, predicted):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    errors = np.random.default_rng(0).normal(size=100) / 10
    first, second = errors.copy(), errors / 2
    first[7], second[7] = 900, 1000  # the first model is worse on all others
    metric = find_metric("min:root_metric:root")
    assert not decide(PromotionRule(), metric, np.zeros(100), first, second).promote
    assert decide(PromotionRule(), metric, np.zeros(100), errors / 2, errors).promote


@pytest.mark.parametrize("name", ["f1_macro", "balanced_accuracy"])
def test_an_evident_lead_is_as_likely_as_any_rule_asks(name: str) -> None:
    rule, champion = PromotionRule.parse("likely=.99999"), wrong_at(*range(400))
    assert decide(rule, METRICS[name], LABELS, wrong_at(*range(20)), champion).promote
    assert not decide(rule, METRICS[name], LABELS, wrong_at(*range(391)), champion).promote


def test_a_probability_just_too_small_is_written_as_smaller() -> None:
    rule = PromotionRule.parse("likely=.9649")  # it is .96478
    refused = decide(rule, ACCURACY, LABELS, wrong_at(*range(100)), wrong_at(*range(106)))
    words = "no: better than the champion with probability 0.9648 >= 0.9649: accuracy"
    assert refused.reasons[0].startswith(words)


def test_a_clear_loss_is_not_promoted() -> None:
    rule = PromotionRule.parse("likely=.97")
    assert not decide(
        rule, ACCURACY, LABELS, wrong_at(*range(100)), wrong_at(*range(200, 205))
    ).promote


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (1, 0), (3, 9), (10, 10), (40, 21), (700, 4000), (9900, 9500)]
)
def test_the_p_value_is_the_exact_two_sided_one(gained: int, lost: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, rel=1e-9)


def test_a_difference_is_told_with_its_interval_and_p() -> None:
    target = np.linspace(0, 1, 40)
    noise = np.where(np.arange(40) % 2, 0.1, -0.1) * np.linspace(0.5, 1.5, 40)
    given = target + noise, target + 2 * noise
    reason = decide(PromotionRule(), METRICS["rmse"], target, *given).reasons[0]
    assert re.search(r"difference -\S+, 95 % interval -\S+ to -\S+, permutation p", reason)


def test_a_tiny_p_value_is_not_called_zero() -> None:
    assert mcnemar(7000, 100) == 0.0
    labels = np.zeros(7100, int)
    challenger = np.where(np.arange(7100) < 7000, 0, 1)
    assert (
        "McNemar p < 1e-300"
        in decide(PromotionRule(), ACCURACY, labels, challenger, 1 - challenger).reasons[0]
    )


def test_a_class_that_falls_too_far_stops_a_better_model() -> None:
    sevens = [int(i) for i in np.flatnonzero(LABELS == 7)[:6]]
    threes = [int(i) for i in np.flatnonzero(LABELS == 3)[:20]]
    challenger, champion = wrong_at(*sevens), wrong_at(*threes)
    assert decide(PromotionRule(), ACCURACY, LABELS, challenger, champion).promote
    assert decide(
        PromotionRule.parse("max_class_drop=.06"), ACCURACY, LABELS, challenger, champion
    ).promote
    refused = decide(
        PromotionRule.parse("max_class_drop=.05"), ACCURACY, LABELS, challenger, champion
    )
    assert not refused.promote
    assert "largest loss of a class: -0.0600 (class 7)" in refused.reasons[-1]
    assert refused.figures["classes"]["7"] == {
        "items": 100,
        "accuracy": 0.94,
        "champion_accuracy": 1.0,
        "change": -0.06,
    }


def test_a_rule_reads_back_as_it_is_written() -> None:
    for text in (
        "likely=0.97,minimum=0.98,max_class_drop=0.02,metric=accuracy",
        "better,minimum=0.0,signed",
        "not-worse,trial.latency_ms<=20,trial.size_mb<5",
        "likely=0.8,trial.weights<=1234567,trial.ms<=0.12345678,trial.x>=-1e-30",
    ):
        assert str(PromotionRule.parse(text)) == text
    assert PromotionRule.parse("") == PromotionRule.parse(" likely ") == PromotionRule()
    assert PromotionRule.parse(" likely = 0.97 ") == PromotionRule.parse("likely=.97")


@pytest.mark.parametrize(
    "text",
    [
        "best",
        "criterion=",
        "likely=most",
        "likely=1",
        "likely=nan",
        "likely,better",
        "better,better",
        "better=1",
        "minimum",
        "minimum=nan",
        "minimum=inf",
        "least=0.9",
        "max_class_drop=2",
        "signed=no",
        "trial.latency_ms=20",
        "trial.latency_ms",
        "trial.<=20",
        "trial=20",
        "latency_ms<=20",
        "metric=",
        "metric",
        "metric=accuracy,metric=f1_macro",
        "slice=",
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        PromotionRule.parse(text)


@pytest.mark.parametrize(
    ("labels", "challenger"),
    [
        (LABELS, LABELS[:-1]),
        (LABELS[:0], LABELS[:0]),
        (LABELS, np.eye(N, 5)),
        (LABELS, LABELS / 1.0),
    ],
)
def test_predictions_that_cannot_be_compared_are_refused(
    labels: np.ndarray, challenger: np.ndarray
) -> None:
    with pytest.raises(InvalidInput):
        decide(PromotionRule(), ACCURACY, labels, challenger, None)


def test_the_evidence_is_plain_json() -> None:
    rule = PromotionRule.parse("better,max_class_drop=.1")
    decision = decide(rule, ACCURACY, LABELS, wrong_at(1), wrong_at(2, 3))
    assert json.loads(json.dumps(decision.evidence(), allow_nan=False)) == decision.evidence()
    assert decision.evidence()["decision"] == "promote"


RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=400)
CLOSE, FAR = (NUMBERS + RANDOM.normal(size=400) * spread for spread in (0.3, 0.6))


@pytest.mark.parametrize("name", ["rmse", "mae", "r2"])
def test_numbers_are_compared_in_the_direction_of_their_metric(name: str) -> None:
    metric = METRICS[name]
    won = decide(PromotionRule.parse("likely=.999"), metric, NUMBERS, CLOSE, FAR)
    assert won.promote
    assert won.figures["metric"] == {"name": name, "maximize": metric.maximize}
    assert won.figures["difference"] == won.figures["value"] - won.figures["champion_value"]
    low, high = won.figures["interval"]
    assert low < won.figures["difference"] < high
    assert won.figures["test"] == "paired permutation"
    assert not decide(PromotionRule.parse("not-worse"), metric, NUMBERS, FAR, CLOSE).promote
    assert decide(PromotionRule.parse("not-worse"), metric, NUMBERS, CLOSE, CLOSE).promote
    assert not decide(PromotionRule(), metric, NUMBERS, CLOSE, CLOSE).promote


def test_better_by_chance_is_not_likely_better() -> None:
    target = NUMBERS[:30]
    noise = RANDOM.normal(size=(2, 30)) * 0.3
    models = sorted(
        (target + noise[0], target + noise[1]),
        key=lambda model: METRICS["rmse"].value(target, model),
    )
    assert decide(PromotionRule.parse("better"), METRICS["rmse"], target, *models).promote
    refused = decide(
        PromotionRule.parse("likely=.97"), METRICS["rmse"], target, models[0], models[1]
    )
    assert refused.figures["p_value"] > 0.01
    assert refused.reasons[0].startswith("no: better than the champion with probability 0.")


def test_probabilities_are_compared_by_their_own_metrics() -> None:
    target = np.arange(300) % 3
    sure = np.where(np.eye(3)[target] == 1, 0.8, 0.1)
    unsure = np.where(np.eye(3)[target] == 1, 0.4, 0.3)
    assert decide(
        PromotionRule.parse("likely=.97"), METRICS["log_loss"], target, sure, unsure
    ).promote
    assert not decide(PromotionRule(), METRICS["accuracy"], target, sure, unsure).promote
    with pytest.raises(
        InvalidInput,
        match="log_loss needs probabilities, but of the champion there are only classes",
    ):
        decide(PromotionRule(), METRICS["log_loss"], target, sure, target)


def test_the_minimum_of_a_loss_is_a_maximum() -> None:
    assert decide(PromotionRule.parse("minimum=.4"), METRICS["rmse"], NUMBERS, CLOSE, None).promote
    refused = decide(PromotionRule.parse("minimum=.2"), METRICS["rmse"], NUMBERS, CLOSE, None)
    assert refused.reasons[0].startswith("no: rmse 0.")
    assert refused.reasons[0].endswith(" <= maximum 0.2")


@pytest.mark.parametrize(
    ("rule", "metric", "said"),
    [
        ("minimum=98", "accuracy", "accuracy is a share, not a percentage"),
        (
            "max_class_drop=0.1",
            "f1_macro",
            "max_class_drop is about accuracy, but the metric is f1_macro",
        ),
    ],
)
def test_a_rule_that_does_not_fit_the_metric_is_refused(rule: str, metric: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        decide(PromotionRule.parse(rule), METRICS[metric], LABELS, wrong_at(1), wrong_at(2))


def test_a_rule_may_name_its_metric() -> None:
    rule = PromotionRule.parse("better,metric=max:shop.metrics:revenue,minimum=3.5")
    assert rule.metric == "max:shop.metrics:revenue"
    assert PromotionRule.parse(str(rule)) == rule


def test_a_metric_that_is_not_a_number_loses() -> None:
    undefined = decide(
        PromotionRule(), METRICS["roc_auc"], np.zeros(3, int), np.full((3, 2), 0.5), None
    )
    said = (
        "no: roc_auc of the challenger is not a number on these 3 items, so it loses: roc_auc needs"
    )
    assert undefined.reasons[0].startswith(said)
    assert undefined.figures["value"] is None
    good, broken = np.eye(10)[LABELS], np.full((N, 10), np.nan)
    metric = METRICS["log_loss"]
    assert not decide(PromotionRule(), metric, LABELS, broken, good).promote
    won = decide(PromotionRule(), metric, LABELS, good, broken)
    assert won.promote
    assert "that of the champion is not a number on these items" in won.reasons[0]
    json.dumps(won.evidence(), allow_nan=False)


def test_who_replaces_an_undefined_champion_beats_a_constant_guess() -> None:
    target = np.repeat([0, 1], [950, 50])
    broken, poor = np.full((1000, 2), np.nan), np.full((1000, 2), 0.5)
    refused = decide(PromotionRule(), METRICS["log_loss"], target, poor, broken)
    assert not refused.promote
    assert "is not better than a constant guess, the shares of the classes" in refused.reasons[-1]


def infinite(target: np.ndarray, predictions: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(np.divide(1.0, np.std(predictions)))


@pytest.mark.parametrize("champion", [None, np.linspace(0, 1, 30)])
def test_an_infinitely_good_value_of_ones_own_loses(champion: np.ndarray | None) -> None:
    metric, target, constant = find_metric(f"max:{__name__}:infinite"), np.ones(30), np.zeros(30)
    for rule in ("better,baseline=any", "not-worse,minimum=2"):
        assert not decide(PromotionRule.parse(rule), metric, target, constant, champion).promote


def test_a_first_champion_beats_a_constant_guess() -> None:
    target = np.r_[np.zeros(950, int), np.ones(50, int)]
    poor = np.where(np.arange(1000) % 11 == 0, 1 - target, target)
    names = "no", "yes"
    refused = decide(PromotionRule(), ACCURACY, target, poor, None, classes=names)
    assert not refused.promote
    assert "is not better than a constant guess, always 'no': 0.9500" in refused.reasons[-1]
    assert decide(PromotionRule.parse("baseline=any"), ACCURACY, target, poor, None).promote
    assert decide(PromotionRule(), ACCURACY, target, target, None, classes=names).promote


def test_a_challenger_that_loses_to_a_guess_is_told() -> None:
    target = np.r_[np.zeros(950, int), np.ones(50, int)]
    worse, poor = (np.where(np.arange(1000) % step == 0, 1 - target, target) for step in (4, 11))
    won = decide(PromotionRule(), ACCURACY, target, poor, worse, classes=("no", "yes"))
    assert won.promote
    assert "is not better than a constant guess, always 'no': 0.9500 (min" in won.reasons[-1]
    told = decide(PromotionRule.parse("better,baseline=any"), ACCURACY, target, poor, worse)
    assert not any("constant guess" in reason for reason in told.reasons)
    good = decide(PromotionRule(), ACCURACY, target, target, poor)
    assert not any("constant guess" in reason for reason in good.reasons)


def test_a_first_champion_that_may_know_nothing_is_told() -> None:
    draw = np.random.default_rng(0)
    target = (draw.random(400) < 0.2).astype(int)
    chance = (draw.random(400) < 0.2).astype(int)
    guess = METRICS["f1_macro"].value(target, chance)
    assert 0.4505 < guess < 0.5
    refused = decide(PromotionRule(), METRICS["f1_macro"], target, chance, None)
    assert "constant guess, each class as often as it occurs: 0.5000" in refused.reasons[-1]
    lucky = np.where(np.arange(400) < 20, target, chance)
    won = decide(PromotionRule(), METRICS["f1_macro"], target, lucky, None)
    assert won.promote
    assert "ok: the interval contains that guess" in won.reasons[-1]
    assert "minimum=VALUE" in won.reasons[-1]
    known = decide(PromotionRule(), METRICS["f1_macro"], target, target, None)
    assert "the interval contains" not in known.reasons[-1]


def test_every_figure_stands_beside_a_constant_guess() -> None:
    decision = decide(PromotionRule(), ACCURACY, LABELS, wrong_at(1), wrong_at(2, 3))
    assert "n = 1,000; always class 0: 0.1000)" in decision.reasons[0]
    skewed = NUMBERS**4
    guesses = {}
    for name in ("rmse", "mae"):
        decision = decide(PromotionRule(), METRICS[name], skewed, skewed * 0.9, skewed * 0.8)
        guesses[name] = decision.figures["constant"]["guess"]
    assert guesses == {"rmse": "the mean", "mae": "the median"}
    loss = decide(PromotionRule(), METRICS["log_loss"], LABELS, np.eye(10)[LABELS], None)
    assert loss.figures["constant"]["value"] == pytest.approx(np.log(10))


def unsteady(target: np.ndarray, predictions: np.ndarray) -> float:
    return 0.5 if len(target) <= 6 else float(RANDOM.random())


def test_an_own_metric_that_is_random_is_refused() -> None:
    metric = find_metric(f"max:{__name__}:unsteady")
    with pytest.raises(InvalidInput, match="for the same 1000 items"):
        decide(PromotionRule(), metric, LABELS, wrong_at(1), None)


def of_trial(facts: _TrialFacts) -> Version:
    return Version(
        storage=None,  # type: ignore[arg-type]
        name="m",
        version="v",
        created=datetime.now(UTC),
        files={},
        metadata={},
        facts=Facts(trial=facts),
    )


@pytest.mark.parametrize(
    ("metrics", "promote", "reason"),
    [
        ({"ms": 20.0, "mb": 4.9}, True, "ok: ms 20 of its trial t-1 keeps trial.ms<=20"),
        ({"ms": 20.1, "mb": 4.9}, False, "no: ms 20.1 of its trial t-1 breaks trial.ms<=20"),
        (
            {"ms": 20.00000001, "mb": 4.9},
            False,
            "no: ms 20.00000001 of its trial t-1 breaks trial.ms<=20",
        ),
        ({"ms": 19.0, "mb": 5.0}, False, "no: mb 5 of its trial t-1 breaks trial.mb<5"),
        ({"mb": 1.0}, False, "no: its trial t-1 has no ms (trial.ms<=20)"),
    ],
)
def test_a_rule_bounds_what_the_trial_reported(
    metrics: dict[str, float], promote: bool, reason: str
) -> None:
    rule = PromotionRule.parse("better,trial.ms<=20,trial.mb<5")
    better = decide(rule, ACCURACY, LABELS, wrong_at(1), wrong_at(2, 3, 4, 5))
    decided = rule.of_version(better, of_trial(_TrialFacts(name="t-1", metrics=metrics)))
    assert decided.promote is promote
    assert reason in decided.reasons
    assert set(better.reasons) < set(decided.reasons)


def test_a_bound_that_cannot_be_read_shows_one_that_can() -> None:
    with pytest.raises(InvalidInput, match="not 'ms=20'") as caught:
        PromotionRule.parse("better,trial.ms=20")
    assert PromotionRule.parse(caught.value.hint or "").bounds


def test_a_version_without_a_trial_keeps_no_bound() -> None:
    rule = PromotionRule.parse("trial.ms<=20")
    first = decide(rule, ACCURACY, LABELS, wrong_at(1), None)
    decided = rule.of_version(first, of_trial(_TrialFacts()))
    assert not decided.promote
    assert decided.reasons[0] == "no: the version, which is of no trial, has no ms (trial.ms<=20)"


def test_the_page_has_every_criterion_with_its_sentence() -> None:
    page = (Path(__file__).parents[2] / "docs" / "registry.md").read_text()
    for criterion in CRITERIA.values():
        assert f"| `{criterion.name}" in page
        assert criterion.sentence in page
