"""The power of a promotion rule is how often that rule, simulated, promotes."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from handmade import npy

from podium.cli.data import data as data_command
from podium.cli.models import models as models_command
from podium.errors import InvalidInput, NotFound
from podium.models import Model, PromotionRule, decide, open_registry
from podium.models.decision import Earlier
from podium.models.power import (
    _least_gain,
    _of_accuracy,
    _of_versions,
    _sum_of_promoted,
    of_data,
    of_model,
)
from podium.models.shared_items import SharedItems
from podium.scoring import METRICS
from podium.scoring.families import Array, Metric
from podium.steps.fingerprint_data import fingerprint_data
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.training.identity import RunIdentity, StepContext

ACCURACY, RMSE = METRICS["accuracy"], METRICS["rmse"]
SIMULATED = 800
"""Test parts of a simulation: a standard error of .018 at most."""

FEW = 100
"""The same where the rule takes 10,000 permutations: .05 at most."""


def promoted(
    rule: str,
    metric: Metric,
    draw: Callable[[np.random.Generator], tuple[Array, Array, Array]],
    times: int = SIMULATED,
) -> float:
    """Return how often the rule promotes, by ``decide`` itself."""
    random, parsed = np.random.default_rng(5), PromotionRule.parse(rule)
    decisions = (decide(parsed, metric, *draw(random)) for _ in range(times))
    return float(np.mean([decision.promote for decision in decisions]))


@pytest.mark.parametrize("rule", ["likely", "likely=.97", "better", "not-worse"])
@pytest.mark.whole
def test_the_power_of_accuracy_is_that_of_the_simulated_rule(rule: str) -> None:
    items, gain, loss = 80, 0.16, 0.06

    def draw(random: np.random.Generator) -> tuple[Array, Array, Array]:
        side = random.choice(4, items, p=[gain, loss, 0.64, 0.14])
        return np.ones(items, int), np.isin(side, [0, 2]) + 0, np.isin(side, [1, 2]) + 0

    least = _least_gain(PromotionRule.parse(rule), ACCURACY, items, 0.8, None)
    exact = _sum_of_promoted(items, gain, loss, least)
    assert exact == pytest.approx(promoted(rule, ACCURACY, draw), abs=0.05)


@pytest.mark.whole
def test_what_can_be_shown_is_promoted_in_four_of_five() -> None:
    found = _of_accuracy(PromotionRule.parse("likely"), ACCURACY, 80)
    assert found.least is not None

    def draw(random: np.random.Generator, better: float) -> tuple[Array, Array, Array]:
        champion, challenger = random.random(80) < 0.9, random.random(80) < 0.9 + better
        return np.ones(80, int), challenger + 0, champion + 0

    for better, power in found.power:
        simulated = promoted("likely", ACCURACY, lambda random, by=better: draw(random, by))
        assert power == pytest.approx(simulated, abs=0.05)
    assert found.power[2][1] == pytest.approx(0.8, abs=0.02)
    assert str(found) == (
        "with 80 test items the rule likely=0.8 can hardly show a gain in accuracy below 0.0816: "
        "of models that are better by that much it promotes 80%, by half of it 30%, of equal ones "
        "7% (from an accuracy of 0.9000, models that err independently)"
    )


def test_earlier_challengers_take_power() -> None:
    rule = PromotionRule.parse("likely")
    alone = _of_accuracy(rule, ACCURACY, 200)
    crowd = Earlier(challengers=30, figures=(0.9,) * 29, noises=(0.0005,) * 29)
    late = _of_accuracy(rule, ACCURACY, 200, earlier=crowd)
    assert alone.least is not None
    assert late.least is None or late.least > alone.least


def of_numbers(better: float, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """A target, a challenger that is better by so much of rmse, and a champion of rmse 1."""
    target, shared, own = random.normal(size=(3, 60))
    champion = target + shared
    challenger = target + (1 - better) * (0.8 * shared + 0.6 * own)
    return target, challenger, champion


def shared(target: Array, champion: Array, other: Array) -> SharedItems:
    return SharedItems(
        items=np.arange(len(target)),
        target=target,
        predicted=(champion, other),
        decided=(champion, other),
        classes=(),
        inputs={},
    )


@pytest.mark.whole
def test_the_power_of_errors_is_near_a_simulated_rule() -> None:
    target, challenger, champion = of_numbers(0.0, np.random.default_rng(7))
    found = _of_versions(PromotionRule.parse("likely"), RMSE, shared(target, champion, challenger))
    assert not found.exact
    for better, power in found.power:
        draw = partial(of_numbers, better)
        assert power == pytest.approx(promoted("likely", RMSE, draw, times=FEW), abs=0.15)


def test_a_minimum_counts_and_only_what_is_judged_is_named() -> None:
    rule = PromotionRule.parse("better,minimum=.95,calibration=.1,slice=city")
    found = _of_accuracy(rule, ACCURACY, 100, accuracy=0.8)
    assert found.rule == "better,minimum=0.95"
    assert found.least is not None
    assert found.least > 0.15


@pytest.mark.parametrize("name", ["accuracy", "f1_macro"])
def test_a_model_uploaded_twice_shows_no_difference(name: str) -> None:
    target = np.arange(100) % 2
    same = np.where(np.arange(100) < 90, target, 1 - target)
    with pytest.raises(InvalidInput, match="has no known error"):
        _of_versions(PromotionRule.parse("likely"), METRICS[name], shared(target, same, same))


def test_items_of_groups_count_together() -> None:
    random = np.random.default_rng(3)
    target = np.ones(200, int)
    right = np.repeat(random.random((2, 20)) < 0.8, 10, axis=1) + 0
    alone = shared(target, *right)
    grouped = replace(alone, groups=np.arange(200) // 10)
    rule = PromotionRule.parse("better")
    together = _of_versions(rule, ACCURACY, grouped)
    single = _of_versions(rule, ACCURACY, alone)
    assert not together.exact
    assert single.least is not None
    assert together.least is None or together.least > single.least


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    """A champion of accuracy .8 on 200 items, and a version that is right on 20 of the others."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("mnist")
    add(model, "first", range(40))
    model.set_champion("first", {"reason": "the first"}, expect=None)
    return model


def add(model: Model, version: str, wrong: range) -> None:
    labels = (np.arange(200) % 10).astype(np.uint8)
    predicted = np.where(np.isin(np.arange(200), wrong), (labels + 1) % 10, labels).astype(np.uint8)
    files = {
        "model.onnx": version.encode(),
        "predictions.npy": npy(predicted),
        "target.npy": npy(labels),
    }
    classes = [str(number) for number in range(10)]
    dataset = {"digest": "d" * 64, "test_digest": "t", "classes": classes}
    metric = {"name": "accuracy", "maximize": True}
    model.upload(files, {"run_id": version, "metric": metric, "dataset": dataset})


def test_a_model_says_what_its_test_part_can_show(model: Model) -> None:
    alone = of_model(model)
    assert alone.given == "from an accuracy of 0.8000, models that err independently"
    add(model, "second", range(20, 60))
    found = of_model(model)
    assert found.given == "as first and second differ"
    expected = _of_accuracy(
        PromotionRule.parse("likely"), ACCURACY, 200, accuracy=0.8, disagreement=0.2
    )
    assert found.power == expected.power
    shown = CliRunner().invoke(models_command, ["power", "mnist"])
    assert "can hardly show a gain in accuracy below" in " ".join(shown.output.split())
    said = json.loads(CliRunner().invoke(models_command, ["power", "mnist", "--json"]).stdout)
    assert said["least"] == found.least
    assert said["exact"] is True


def test_what_has_no_power_is_refused(model: Model, tmp_path: Path) -> None:
    for rule in ("fresh", "likely,window=100"):
        with pytest.raises(InvalidInput):
            of_model(model, rule)
    with pytest.raises(InvalidInput, match="follows from two of them, but mnist has one"):
        of_model(model, metric="f1_macro")
    with pytest.raises(InvalidInput, match=r"champion of .* is the champion itself"):
        of_model(model, against="champion")
    with pytest.raises(NotFound):
        of_model(open_registry(tmp_path / "store").model("none"))


def test_data_say_what_a_first_model_can_show(tiny_dataset: Path) -> None:
    from podium.data.artifact import describe

    info = describe(tiny_dataset)
    found = of_data(info, "likely")
    assert found == _of_accuracy(PromotionRule.parse("likely"), ACCURACY, info.parts["test"].count)
    assert of_data(info, "fresh") is None
    assert of_data(info, "likely", "roc_auc") is None
    assert of_data(info, "likely,metric=log_loss") is None
    test = replace(
        info.parts["test"], count=1000, class_counts=(990, 10, *[0] * (len(info.classes) - 2))
    )
    uneven = replace(info, parts={**info.parts, "test": test})
    assert "from an accuracy of 0.9900, models" in str(of_data(uneven, "likely"))


def test_preparing_data_says_it(
    tiny_dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = DataSettings(dataset=str(tiny_dataset))
    info = prepare_data(settings, tmp_path / "data", rule="likely=.97")
    said = f"with {info.parts['test'].count} test items the rule likely=0.97 "
    assert said in capfd.readouterr().out
    command = ["prepare", str(tiny_dataset), "--output", str(tmp_path / "other")]
    assert "test items the rule likely=0.8 " in CliRunner().invoke(data_command, command).stderr


def test_it_is_said_again_where_the_data_are_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{at / 200},{at % 7},{'ab'[at // 100]}" for at in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,z,y", *rows]) + "\n")
    settings = DataSettings(dataset=f"table:{tmp_path}/rows.csv", target="y")
    step = StepContext.of(RunIdentity(id="20260102-030405-abcd"), str(tmp_path / "store"))
    first = fingerprint_data(settings, tmp_path / "listing", step)
    prepare_data(settings, tmp_path / "data", rule="better", fingerprint=first, step=step)
    said = "with 20 test items the rule better "
    assert said in capfd.readouterr().out
    assert fingerprint_data(settings, tmp_path / "listing", step) == first
    assert said in capfd.readouterr().out
