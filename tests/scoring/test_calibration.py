"""The calibration error is what its formula says, and says what chance alone gives."""

import numpy as np
import pytest

from podium.errors import InvalidInput
from podium.models import PromotionRule, decide
from podium.reports import plots
from podium.scoring import METRICS
from podium.scoring.calibration import calibration

ACCURACY = METRICS["accuracy"]


def binary(confidence: np.ndarray) -> np.ndarray:
    return np.stack([confidence, 1 - confidence], axis=1)


def drawn(items: int, power: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and probabilities that are their true ones to a power."""
    draw = np.random.default_rng(seed)
    true = draw.uniform(0.5, 1, items)
    said = true**power / (true**power + (1 - true) ** power)
    first = np.arange(items) % 2 == 0  # in half of the items it is the second class that is likely
    target = ((draw.random(items) > true) == first).astype(int)
    return target, binary(np.where(first, said, 1 - said))


def test_two_confidences_give_the_error_of_the_formula() -> None:
    predictions = binary(np.repeat([0.6, 0.9], [100, 300]))
    target = np.concatenate([np.arange(100) >= 50, np.arange(300) >= 240]).astype(int)
    found = calibration(target, predictions)
    assert found is not None
    assert found.error == pytest.approx((100 * (0.6 - 0.5) + 300 * (0.9 - 0.8)) / 400)
    assert [(one.items, one.accuracy) for one in found.bins] == [(100, 0.5), (300, 0.8)]


def test_squared_odds_give_the_error_of_the_integral() -> None:
    """The mean of p^2 / (p^2 + (1 - p)^2) - p over p from 1/2 to 1 is ln(2) / 2 - 1/4."""
    found = calibration(*drawn(200_000, power=2))
    assert found is not None
    assert found.error == pytest.approx(np.log(2) / 2 - 0.25, abs=0.004)


def test_true_probabilities_err_as_chance_alone_does() -> None:
    found = [calibration(*drawn(500, seed=seed)) for seed in range(200)]
    errors, chances = zip(*((one.error, one.by_chance) for one in found if one), strict=True)
    assert np.mean(errors) == pytest.approx(np.mean(chances), rel=0.05)


def test_bins_are_of_equal_size() -> None:
    found = calibration(*drawn(1003))
    assert found is not None
    assert {one.items for one in found.bins} == {100, 101}
    few = calibration(*drawn(30))
    assert few is not None
    assert len(few.bins) == 1


def test_the_order_of_items_does_not_matter() -> None:
    target, predictions = drawn(500)
    predictions = predictions.round(1)
    order = np.random.default_rng(1).permutation(500)
    assert calibration(target, predictions) == calibration(target[order], predictions[order])


def test_classes_alone_have_no_calibration() -> None:
    assert calibration(np.zeros(9, int), np.zeros(9, int)) is None


def test_a_rule_bounds_the_calibration_error() -> None:
    target, predictions = drawn(2000, power=3)
    rule = PromotionRule.parse("calibration=.05")
    refused = decide(rule, ACCURACY, target, predictions, None)
    assert not refused.promote
    assert refused.reasons[0].startswith("no: calibration error 0.1")
    assert decide(rule, ACCURACY, *drawn(2000), None).promote
    assert not decide(rule, ACCURACY, target, predictions.argmax(1), None).promote
    with pytest.raises(InvalidInput, match="calibration is about classes"):
        decide(rule, METRICS["rmse"], target / 1.0, target / 1.0, None)


def test_the_diagram_shows_each_bin_with_its_interval() -> None:
    found = calibration(*drawn(400))
    assert found is not None
    figure = plots.reliability([vars(one) for one in found.bins])
    line, bins = figure["data"]
    assert line["x"] == line["y"]
    assert bins["y"] == pytest.approx([one.accuracy for one in found.bins])
    assert len(bins["error_y"]["array"]) == 10
