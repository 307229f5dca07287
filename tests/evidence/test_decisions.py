"""What a decision says of itself: how many items, how sure, how often the test part was used."""

import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from judging import Nights
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from podium.cli import app
from podium.errors import InvalidInput
from podium.models import PromotionRule, decide, open_registry
from podium.scoring import METRICS, find_metric

TARGET = np.zeros(400, np.int64)


def right(count: int, items: int = 400) -> np.ndarray:
    """Return predictions of class 0, of which so many are right."""
    return (np.arange(items) >= count).astype(np.int64)


def test_a_figure_has_its_number_of_items_and_its_interval() -> None:
    decision = decide(PromotionRule(), METRICS["accuracy"], TARGET, right(360), right(340))
    assert (
        "accuracy 0.9000 (95 % 0.8664 to 0.9259, n = 400; always class 0: 1.0000) against 0.8500"
        in decision.reasons[0]
    )
    first = decide(PromotionRule(), METRICS["accuracy"], TARGET, right(360), None)
    figure = "accuracy 0.9000 (95 % 0.8664 to 0.9259, n = 400; always class 0: 1.0000)"
    assert first.reasons[0] == f"ok: {figure}, and there is no champion yet"


@pytest.mark.parametrize("items", [1, 3, 10])
@pytest.mark.parametrize("name", ["rmse", "log_loss", "roc_auc", "f1_macro"])
def test_equal_models_on_few_items_are_hardly_ever_promoted(name: str, items: int) -> None:
    random, metric, promoted = np.random.default_rng(items), METRICS[name], 0
    for _ in range(40):
        if metric.kind == "regression":
            target = random.normal(size=items)
            models = [target + random.normal(size=items) for _ in range(2)]
        else:
            target = np.arange(items) % 2
            chances = random.random((2, items))
            models = list(np.stack([1 - chances, chances], axis=2))
        if not math.isnan(metric.value(target, models[0])):
            promoted += decide(
                PromotionRule.parse("likely=.97"), metric, target, models[0], models[1]
            ).promote
    assert (
        promoted <= 4
    )  # 1 expected, one side of p = .05; more than 4 once in 300 times, and the seeds are fixed


def test_a_champion_of_another_shape_is_refused() -> None:
    pairs = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(
        InvalidInput, match="the champion predicts 1 values a row, but the target has 2"
    ):
        decide(PromotionRule(), METRICS["rmse"], pairs, pairs + 0.1, pairs[:, 0])


def endless(target: np.ndarray, predictions: np.ndarray) -> float:
    return math.inf


def test_a_metric_that_is_infinite_for_both_says_so() -> None:
    metric = find_metric(f"min:{__name__}:endless")
    decision = decide(PromotionRule(), metric, TARGET[:20], right(15, 20), right(10, 20))
    assert not decision.promote
    assert "the metric is inf here and inf there" in decision.reasons[0]


def test_the_history_counts_the_challengers_of_a_test_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    nights = Nights(tmp_path, monkeypatch)
    x, y = make_classification(2700, 8, random_state=0, flip_y=0.2)
    lines = [
        ",".join([*map("{:.5f}".format, row), "ny"[label]]) for row, label in zip(x, y, strict=True)
    ]
    (tmp_path / "a.csv").write_text(
        "\n".join([",".join([*"abcdefgh", "label"]), *lines[:1500]]) + "\n"
    )
    (tmp_path / "b.csv").write_text(
        "\n".join([",".join([*"abcdefgh", "label"]), *lines[1500:]]) + "\n"
    )
    models = [DecisionTreeClassifier(max_depth=1), LogisticRegression()]
    models += [*models, models[1], RandomForestClassifier(20, random_state=0)]
    reasons = []
    for model in models:
        nights.prepare(f"table:{tmp_path / 'a.csv'}", "label")
        reasons.append("; ".join(nights.train(model)["reasons"]))
    assert "on this test part" not in reasons[0]
    assert "challenger 2 on this test part: figures are shrunk by " in reasons[1]
    assert "challenger 3 on this test part" in reasons[-1], (
        "the same models once more are no further look"
    )
    champion = open_registry(nights.storage).model("real").version()
    nights.prepare(f"table:{tmp_path / 'b.csv'}", "label")
    decision = nights.train(DecisionTreeClassifier(max_depth=2))
    said = "; ".join(decision["reasons"])
    assert "on this test part" not in said, "other data are another test part"
    before = champion.facts.metrics["accuracy"]
    assert f"a new test part: the champion's accuracy was {before:.4f} at upload, and is " in said
    assert f"and is {decision['champion_value']:.4f} on this one" in said
    later = open_registry(nights.storage).model("real").measured_since(champion)
    assert later
    assert later.grounds.champion_value == decision["champion_value"]
    shown = CliRunner().invoke(
        app, ["models", "show", "real", champion.version, "--storage", nights.storage]
    )
    assert f"accuracy {decision['champion_value']:.4f} on another test part" in " ".join(
        shown.output.split()
    )
