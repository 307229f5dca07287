"""Bets on the items that came since the champion was promoted: who wins them, and how rarely by luck."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Nights
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from podium.errors import InvalidInput
from podium.models import Decision, PromotionRule, decide, open_registry
from podium.models.decision import Earlier
from podium.models.fresh import LEVEL, STAKES, Bets, NewItems, _bet
from podium.models.record import Record
from podium.scoring import METRICS

ACCURACY = METRICS["accuracy"]
NONE_KNOWN = np.empty(0, np.uint32)


def new_items(count: int, before: Bets = Bets(), known: np.ndarray = NONE_KNOWN) -> Earlier:  # noqa: B008
    units = np.arange(count).astype(np.uint64) << np.uint64(32)
    return Earlier(fresh=NewItems(units=units, known=known, before=before))


def night(gained: int, lost: int, items: int, earlier: Earlier, rule: str = "fresh") -> Decision:
    target = np.zeros(items, np.int64)
    champion, challenger = target.copy(), target.copy()
    champion[:gained], challenger[gained : gained + lost] = 1, 1
    return decide(
        PromotionRule.parse(rule),
        ACCURACY,
        target,
        challenger,
        champion,
        earlier=earlier,
    )


def test_the_capital_is_the_mean_of_eight_bettors() -> None:
    decision = night(60, 20, 1000, new_items(1000), "fresh=.005")
    up, level, down = ((1 - 0.005) / 1.005, -0.005 / 1.005, -1)
    made = [
        (1 + stake * up) ** 60 * (1 + stake * level) ** 920 * (1 + stake * down) ** 20
        for stake in STAKES
    ]
    assert decision.figures["fresh"]["capital"] == pytest.approx(math.fsum(made) / len(STAKES))


def test_the_capital_goes_on_over_nights() -> None:
    first = night(60, 40, 1000, new_items(1000))
    assert not first.promote
    known = {name: first.figures["fresh"][name] for name in ("logs", "units", "margin", "scale")}
    second = night(60, 40, 1000, new_items(1000, Bets(**known)))
    assert second.promote == (second.figures["fresh"]["capital"] >= 1 / LEVEL)
    assert second.figures["fresh"]["logs"] == pytest.approx([2 * log for log in known["logs"]])
    assert second.figures["fresh"]["units"] == 2000


def test_a_challenger_behind_tonight_inherits_no_capital() -> None:
    rich = Bets(logs=(9.0,) * len(STAKES), units=1000, scale=1.0)
    assert night(11, 10, 1000, new_items(1000, rich)).promote
    decision = night(10, 11, 1000, new_items(1000, rich))
    assert not decision.promote
    assert any(reason.startswith("no: itself ahead") for reason in decision.reasons)


def test_without_new_items_nobody_is_promoted() -> None:
    rich = Bets(logs=(9.0,) * len(STAKES), units=1000, scale=1.0)
    decision = night(90, 0, 300, new_items(300, rich, np.arange(300, dtype=np.uint32)))
    assert not decision.promote
    assert any("no test item, or group of items, is new" in reason for reason in decision.reasons)
    assert not night(90, 0, 300, Earlier()).promote


def test_items_of_a_group_count_once() -> None:
    earlier = new_items(900)
    assert earlier.fresh
    grouped = Earlier(
        fresh=replace(
            earlier.fresh, units=earlier.fresh.units // np.uint64(1 << 34) << np.uint64(32)
        )
    )
    assert night(60, 0, 900, earlier).figures["fresh"]["new"] == 900
    assert night(60, 0, 900, grouped).figures["fresh"]["new"] == 225


def test_gains_without_a_bound_are_cut_and_counted() -> None:
    random = np.random.default_rng(1)
    target = random.normal(size=2000)
    champion, challenger = (
        target + random.standard_t(2, size=2000),
        target + random.normal(size=2000),
    )
    for name in ("mae", "rmse"):
        rule = PromotionRule.parse(f"fresh,metric={name}")
        decision = decide(
            rule, METRICS[name], target, challenger, champion, earlier=new_items(2000)
        )
        assert decision.figures["fresh"]["units"] == 1970
        assert any("of them cut to" in reason for reason in decision.reasons)
        assert decision.promote, decision


def test_rare_large_losses_are_not_cut() -> None:
    random = np.random.default_rng(2)
    seasons, won = 40, 0
    for _ in range(seasons):  # equal models, of which one is better most of the time
        before = Bets()
        for _ in range(30):
            gains = 1 - random.exponential(1, 1000) ** 2 / 2
            before, _, lead = _bet(before, gains, np.arange(1000), 0.0, exact=False)
            if before.capital >= 1 / LEVEL and lead > 0:
                won += 1
                break
    assert won <= 0.05 * seasons


@pytest.mark.parametrize("margin", ["", "=0.005"])
def test_models_that_rarely_differ_are_bet_on_by_size(margin: str) -> None:
    target = np.zeros(2000)
    champion, challenger = target.copy(), target.copy()
    champion[100::10], challenger[105::100] = 1.0, 50.0  # better ten times as often, by a fiftieth
    rule = PromotionRule.parse(f"fresh{margin},metric=mae")
    decision = decide(rule, METRICS["mae"], target, challenger, champion, earlier=new_items(2000))
    assert decision.figures["fresh"]["units"] == 1899
    assert decision.figures["fresh"]["scale"] == pytest.approx(3, rel=0.01)


def test_too_few_units_for_a_scale_wait() -> None:
    target = np.arange(20.0)
    rule = PromotionRule.parse("fresh,metric=mae")
    few = decide(rule, METRICS["mae"], target, target, target + 1, earlier=new_items(20))
    assert (few.promote, few.figures["fresh"]["spent"]) == (False, "")
    target = np.arange(100.0)
    equal = decide(rule, METRICS["mae"], target, target, target, earlier=new_items(100))
    assert (equal.promote, equal.figures["fresh"]["spent"]) == (False, "")


@pytest.mark.parametrize("name", ["roc_auc", "f1_macro", "r2"])
def test_metrics_that_are_no_means_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"fresh bets on means over items, which {name} is not"):
        PromotionRule.parse("fresh").check(METRICS[name])


@pytest.mark.parametrize("text", ["fresh=-1", "fresh=x", "fresh=inf"])
def test_a_margin_is_a_number_of_zero_or_more(text: str) -> None:
    with pytest.raises(InvalidInput):
        PromotionRule.parse(text)


@pytest.mark.parametrize("margin", [0, 0.005])
def test_equal_models_win_in_at_most_one_season_of_20(margin: float) -> None:
    random, ever = np.random.default_rng(2), 0
    shares = (0.09 + margin / 2, 0.09 - margin / 2, 0.82)
    for _ in range(150):
        nights = random.choice([1.0, -1.0, 0.0], p=shares, size=(50, 100))
        bets, won = Bets(margin=margin), False
        for gains in nights:
            bets, _, lead = _bet(bets, gains, np.arange(100), margin, exact=True)
            won |= bets.capital >= 1 / LEVEL and lead > margin
        ever += won
    assert ever <= 150 * LEVEL


def test_bets_on_other_items_are_not_forgotten() -> None:
    units = np.arange(2000).astype(np.uint64) << np.uint64(32)
    bets, *_ = _bet(Bets(), np.full(1000, -0.01), np.arange(1000), 0.0, exact=True)
    evidence = {"champion": "c", "metric": {"name": "accuracy"}, "fresh": asdict(bets)}
    records = [Record.new("refusal", "m", "v", evidence=evidence)]

    def asked(some: np.ndarray) -> tuple[int, Bets]:
        new = NewItems.of(some, np.empty(0, np.uint64), records, "v", "c", "accuracy")
        return len(new.known), new.before

    assert asked(units[:1000]) == asked(units) == (0, Bets()), "a step that is repeated"
    assert asked(units[1000:]) == asked(units[500:]) == (1000, bets)


def test_a_challenger_bets_on_more_items_each_night() -> None:
    gained, before, records = np.zeros(40_000), 0, list[Record]()
    gained[::8], gained[1::10] = 1, -1
    units = np.random.default_rng(5).permutation(40_000).astype(np.uint64) << np.uint64(32)
    for count in (8000, 16000, 24000, 40000):
        new = NewItems.of(units[:count], np.empty(0, np.uint64), records, "v", "c", "accuracy")
        asked = Earlier(fresh=new)
        target = np.zeros(count, np.int64)
        models = (gained[:count] < 0).astype(np.int64), (gained[:count] > 0).astype(np.int64)
        found = decide(PromotionRule.parse("fresh"), ACCURACY, target, *models, earlier=asked)
        now = found.figures["fresh"]["units"]
        assert now == min(count, before + 10_000), "no item is bet on twice, none is left out"
        records.append(
            Record.new("refusal", "m", "v", evidence={**found.evidence(), "champion": "c"})
        )
        before = now


def rows(place: Path, count: int) -> str:
    """Write a file that grows: two classes, a tenth of the labels wrong."""
    random = np.random.default_rng(3)
    table = random.random((6000, 4))
    labels = (table[:, 0] + table[:, 1] > 1) ^ (random.random(6000) < 0.1)
    lines = [",".join([*(f"{value:.6f}" for value in row), "ny"[int(label)]])
             for row, label in zip(table[:count], labels[:count], strict=True)]  # fmt: skip
    path = place / f"grown-{count}.csv"
    path.write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return f"table:{path}"


@pytest.mark.whole
def test_a_better_model_wins_by_what_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    nights, poor, good = (
        Nights(tmp_path, monkeypatch),
        KNeighborsClassifier(1),
        LogisticRegression(),
    )

    def decided(count: int, model: Any) -> dict[str, Any]:
        nights.prepare(rows(tmp_path, count), "label")
        return nights.train(model, rule="fresh")

    decided(1500, poor)
    stale = decided(1500, good)
    assert any(
        "no test item, or group of items, is new" in reason for reason in stale["reasons"]
    ), stale
    first = decided(2000, good)
    assert 30 <= first["fresh"]["new"] <= 70
    assert first["fresh"]["units"] == first["fresh"]["new"]
    assert decided(2000, good)["fresh"]["new"] == 0, "no item is bet on twice"
    later = decided(6000, good)
    assert later["fresh"]["units"] == first["fresh"]["units"] + later["fresh"]["new"]
    assert later["decision"] == "promote", later
    model = open_registry(nights.storage).model("real")
    assert model.champion.version == f"r{nights.night}"
    model.rollback()
    assert any("after bets on 0 new items" in reason for reason in decided(6000, good)["reasons"])
