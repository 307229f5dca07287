"""A loss within a slice is found where it is more than chance, whatever the rest says."""

from pathlib import Path

import numpy as np
import pytest

from podium.data.held_out import HeldOut
from podium.errors import InvalidInput
from podium.models import PromotionRule, decide
from podium.models.decision import Decision
from podium.scoring import METRICS
from podium.scoring.comparison import compare
from podium.scoring.slices import _holm, slice_names, slices
from podium.steps.prepare_data import DataSettings, prepare_data

ACCURACY = METRICS["accuracy"]
RULE = PromotionRule.parse("better,slice=city")
CITIES = np.array(["Bonn", "Kiel", "Ulm"], object)
CITY = np.repeat(CITIES, [600, 380, 80])
TARGET = np.zeros(len(CITY), int)


def wrong(**share: float) -> np.ndarray:
    """Return predictions that are wrong in the first so many of a hundred items of a city."""
    predicted = TARGET.copy()
    for city, part in share.items():
        here = np.flatnonzero(city == CITY)
        predicted[here[: round(part * len(here))]] = 1
    return predicted


def judged(challenger: np.ndarray, champion: np.ndarray, cities: np.ndarray = CITY) -> Decision:
    target = TARGET[: len(cities)]
    return decide(RULE, ACCURACY, target, challenger, champion, column=lambda name: cities)


def test_a_better_model_that_is_worse_somewhere_is_refused() -> None:
    champion, challenger = wrong(Bonn=0.3, Kiel=0.3, Ulm=0.1), wrong(Bonn=0.1, Kiel=0.1, Ulm=0.5)
    assert decide(PromotionRule.parse("better"), ACCURACY, TARGET, challenger, champion).promote
    decision = judged(challenger, champion)
    assert not decision.promote
    said = next(reason for reason in decision.reasons if reason.startswith("no"))
    assert said.startswith(
        "no: worse than the champion in city Ulm: accuracy 0.5000 against 0.9000 (n = 80,"
    )
    first, *_ = decision.figures["slices"][0]["slices"]
    assert (first["slice"], first["items"], first["value"]) == ("Ulm", 80, 0.5)
    low, high = first["value_interval"]
    assert low < 0.5 < high


def test_a_small_loss_in_a_slice_is_chance() -> None:
    decision = judged(wrong(Bonn=0.1, Ulm=0.12), wrong(Bonn=0.3, Ulm=0.1))
    assert decision.promote
    assert any(
        "worse in no city by more than chance, nearest in city Ulm" in reason
        for reason in decision.reasons
    )


def test_a_slice_of_few_items_is_named_and_not_judged() -> None:
    cities = CITY.copy()
    cities[:8] = "Aachen"
    decision = judged(wrong(Bonn=0.1), wrong(Bonn=0.3), cities)
    assert any(reason.endswith("not judged: Aachen (n = 8)") for reason in decision.reasons)


def test_a_column_of_which_nothing_can_be_judged_refuses() -> None:
    each = np.array([f"p{at}" for at in range(len(CITY))], object)
    decision = judged(wrong(Bonn=0.1), wrong(Bonn=0.3), each)
    assert not decision.promote
    assert decision.reasons[1].endswith("and 1055 more")


def test_p_values_are_corrected_as_holm_says() -> None:
    assert list(_holm([0.01, 0.02, 0.03])) == pytest.approx([0.03, 0.04, 0.04])
    assert list(_holm([0.5, 0.9])) == pytest.approx([1, 1])
    found = slices(ACCURACY, CITY.astype(str), TARGET, wrong(Ulm=0.2), wrong(Ulm=0.1))
    here = CITY == "Ulm"
    alone = compare(ACCURACY, TARGET[here], wrong(Ulm=0.2)[here], wrong(Ulm=0.1)[here])
    assert alone.p_value is not None
    assert found[0].name == "Ulm"
    assert found[0].p_value == pytest.approx(3 * alone.p_value)


def test_equal_models_are_seldom_refused() -> None:
    draw, refused = np.random.default_rng(0), 0
    names = CITY.astype(str)
    for _ in range(400):
        first, second = (draw.random((2, len(CITY))) < 0.2).astype(int)
        refused += any(one.worse for one in slices(ACCURACY, names, TARGET, first, second))
    assert refused / 400 <= 0.05


def test_losing_fifteen_of_a_hundred_is_nearly_always_found() -> None:
    draw, found = np.random.default_rng(0), 0
    names, target = np.repeat(["a", "b", "c", "d"], 100), np.zeros(400, int)
    for _ in range(200):
        champion = (draw.random(400) < 0.1).astype(int)
        lost = (draw.random(400) < 0.15 / 0.9) & (names == "a")
        challenger = np.where(lost, 1, champion)
        found += any(one.worse for one in slices(ACCURACY, names, target, challenger, champion))
    assert found / 200 >= 0.95


def test_items_of_a_group_count_once() -> None:
    groups = np.arange(len(CITY)) // 20
    found = slices(ACCURACY, CITY.astype(str), TARGET, wrong(Ulm=0.5), wrong(Ulm=0.1), groups)
    ulm = next(one for one in found if one.name == "Ulm")
    assert ulm.why == "fewer than 20 items or groups"


def test_numbers_of_many_values_are_cut_at_quartiles() -> None:
    names = slice_names(np.array([*range(100), np.nan]))
    assert {str(name): int((names == name).sum()) for name in np.unique(names)} == {
        "up to 24.75": 25,
        "24.75 to 49.5": 25,
        "49.5 to 74.25": 25,
        "above 74.25": 25,
        "(missing)": 1,
    }
    close = slice_names(1000 + np.arange(100) / 100)
    assert np.unique(close, return_counts=True)[1].tolist() == [25, 25, 25, 25]
    assert slice_names(np.array([1.0, 2.0, 1.0])).tolist() == ["1", "2", "1"]
    assert slice_names(np.array(["x", None], object)).tolist() == ["x", "(missing)"]


def test_codes_with_leading_zeros_are_no_numbers(tmp_path: Path) -> None:
    lines = [f"{at % 7},{at % 16 + 1:02},{at % 2}" for at in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["x,region,label", *lines]))
    settings = DataSettings(
        dataset=f"table:{tmp_path}/a.csv",
        target="label",
        data_options={"allow_duplicates": True, "test": 0.5},
    )
    prepare_data(settings, tmp_path / "d")
    regions = slice_names(HeldOut.open(tmp_path / "d").column("region"))
    assert set(regions.tolist()) == {f"{at:02}" for at in range(1, 17)}


def test_a_metric_undefined_in_a_slice_is_not_judged() -> None:
    target = np.arange(120) % 2
    target[:40] = 0
    sure = np.stack([1 - target * 0.8, target * 0.8], axis=1)
    names = np.repeat(["one class", "both"], [40, 80])
    found = slices(METRICS["roc_auc"], names, target, sure, sure)
    assert {one.name: bool(one.compared) for one in found} == {"both": True, "one class": False}


def test_stored_predictions_alone_have_no_columns() -> None:
    with pytest.raises(InvalidInput, match="slice=city needs the test items"):
        decide(RULE, ACCURACY, TARGET, wrong(), wrong())
