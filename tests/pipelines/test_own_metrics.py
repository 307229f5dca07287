"""A metric of the user's own is tried before a run, not after its training."""

import logging
from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.kfp.parameters import Parameters
from podium.pipelines import load
from podium.runner.checks import check_here
from podium.scoring import FunctionMetric
from podium.scoring.own_metric import try_out

MODULE = """
import numpy as np

constant = 3


def hits(target, predictions):
    classes = predictions if predictions.ndim == 1 else predictions.argmax(1)
    return (classes == target).mean()


def brier(target, predictions):
    return np.square(predictions[:, 1] - target).mean()


def squares(target, predictions):
    return np.square(target - predictions).mean()


def weighted(target, predictions, weights):
    return 1.0


def silent(target, predictions):
    predictions.sum()


def per_item(target, predictions):
    return [1.0] * len(target)


def of_shop(target, predictions):
    raise KeyError("price")


def lucky(target, predictions):
    import random

    return random.random()
"""
REFUSED = [
    ("own_shop:profit", "own_shop has no function 'profit'"),
    ("own_shop:constant", "own_shop has no function 'constant'"),
    ("own_shop:weighted", r"own_shop:weighted has the parameters \(target, predictions, weights\)"),
    ("own_shop:silent", "own_shop:silent returned None, which is not a number"),
    ("own_shop:per_item", r"own_shop:per_item returned \[1.0, .*, which is not a number"),
    ("own_shop:lucky", "own_shop:lucky returned .* and then .* for the same items"),
    ("own_typo:profit", "own_typo:profit cannot be imported: SyntaxError"),
]


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules in the working directory, as a user has them."""
    (tmp_path / "own_shop.py").write_text(MODULE)
    (tmp_path / "own_typo.py").write_text("def profit(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # so that the path is as before afterwards


def values_of(**given: Any) -> dict[str, Any]:
    known = Parameters.of(load("train_and_promote").pipeline_func)
    places = {"storage": "file:///nowhere/store", "cluster": "local:///nowhere/cluster"}
    return {**{parameter.name: parameter.default for parameter in known}, **places, **given}


@pytest.mark.parametrize(("metric", "expected"), REFUSED)
def test_a_metric_that_cannot_work_is_refused(metric: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected) as refused:
        check_here(values_of(metric=f"max:{metric}"))
    assert refused.value.hint
    with pytest.raises(InvalidInput, match=expected):
        compile_pipeline("train_and_promote", [f"metric=max:{metric}"])
    with pytest.raises(InvalidInput, match=expected):
        check_here(
            values_of(
                dataset=f"table:{__file__}", target="sold", rule=f"better,metric=max:{metric}"
            )
        )


@pytest.mark.parametrize("metric", ["own_shop:hits", "own_shop:brier", "sklearn.metrics:log_loss"])
def test_a_metric_of_classes_passes(metric: str, caplog: pytest.LogCaptureFixture) -> None:
    check_here(values_of(metric=f"max:{metric}"))
    assert not caplog.records


def test_a_metric_of_numbers_passes(caplog: pytest.LogCaptureFixture) -> None:
    remote = {"dataset": "table:s3://shop/sold.csv", "target": "sold", "network": "mlp"}
    check_here(values_of(**remote, metric="min:own_shop:squares"))
    try_out(FunctionMetric(name="sklearn.metrics:r2_score", maximize=True, kind=None), "regression")
    assert not caplog.records


def test_a_metric_that_needs_other_items_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_here(values_of(metric="max:own_shop:of_shop"))
    assert "own_shop:of_shop failed on made-up items (KeyError: 'price')" in caplog.text


def test_a_metric_of_the_steps_image_is_left_to_it() -> None:
    assert "max:far_away:profit" in compile_pipeline(
        "train_and_promote", ["metric=max:far_away:profit"]
    )
    with pytest.raises(
        InvalidInput, match="far_away:profit cannot be imported: ModuleNotFoundError"
    ):
        check_here(values_of(metric="max:far_away:profit"))
