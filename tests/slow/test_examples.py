"""The examples of rows, numbers and sentences, as their READMEs say: make the data, run, predict, challenge."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from podium.models import open_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

EXAMPLES = Path(__file__).parents[2] / "examples"
PODIUM = str(Path(sys.executable).with_name("podium"))


class Example:
    """A copy of the examples, with a home of its own."""

    def __init__(self, name: str, root: Path) -> None:
        shutil.copytree(EXAMPLES, root / "examples")
        self.folder, self.home = root / "examples" / name, root / "home"
        self.python("make_data.py")

    def python(self, *words: str) -> str:
        return self._run(sys.executable, *words)

    def podium(self, *words: str) -> str:
        return self._run(PODIUM, *words)

    def run(self, *words: str) -> dict[str, Any]:
        outcome: dict[str, Any] = json.loads(self.podium("run", "--json", *words))
        return outcome

    def _run(self, *words: str) -> str:
        environment = {**os.environ, "PODIUM_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=1200
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, file: str) -> list[dict[str, str]]:
        with (self.folder / file).open(newline="") as stream:
            return list(csv.DictReader(stream))


def test_customers_who_leave_are_distinguished_from_those_who_stay(tmp_path: Path) -> None:
    example = Example("customers", tmp_path)
    first = example.run()
    assert first["decision"]["outcome"] == "promoted"
    assert len(first["sweep"]["trials"]) == 8
    assert first["test"]["metrics"]["roc_auc"] > 0.75
    example.podium("predict", "new-customers.csv", "--model", "customers", "-o", "leaving.csv")
    predicted = example.rows("leaving.csv")
    assert [row["row"] for row in predicted] == [str(row) for row in range(1, 201)]
    assert all(math.isclose(float(row["probability_no"]) + float(row["probability_yes"]), 1, abs_tol=1e-5)
               for row in predicted)  # fmt: skip
    assert {row["prediction"] for row in predicted} == {"yes", "no"}

    second = example.run("seed=2", "max_trials=4")
    assert second["decision"]["outcome"] in ("promoted", "kept")
    champion = open_registry(example.home / "store").model("customers").find_champion()
    assert champion is not None
    assert (
        champion.version
        == (second if second["decision"]["outcome"] == "promoted" else first)["run"]
    )


def test_rents_are_predicted_within_the_noise_of_landlords(tmp_path: Path) -> None:
    example = Example("rents", tmp_path)
    first = example.run()
    assert first["decision"]["outcome"] == "promoted"
    assert first["test"]["metrics"]["rmse"] < 110, "rents are spread by 370 euros, landlords by 60"
    example.podium("predict", "new-flats.csv", "--model", "rents", "-o", "offers.csv")
    offers, flats = example.rows("offers.csv"), example.rows("new-flats.csv")
    assert len(offers) == len(flats) == 100
    large = [
        float(offer["prediction"])
        for offer, flat in zip(offers, flats, strict=True)
        if float(flat["size"]) > 90
    ]
    small = [
        float(offer["prediction"])
        for offer, flat in zip(offers, flats, strict=True)
        if float(flat["size"]) < 50
    ]
    assert mean(large) > 1.5 * mean(small)

    poor = example.run("max_trials=4", "seed=3", "limit=300")
    assert poor["decision"]["outcome"] == "kept", "a challenger that has seen 300 flats is worse"
    assert poor["test"]["metrics"]["rmse"] > first["test"]["metrics"]["rmse"]


def test_the_order_of_words_is_understood(tmp_path: Path) -> None:
    example = Example("reviews", tmp_path)
    first = example.run()
    assert first["decision"]["outcome"] == "promoted"
    assert first["test"]["metrics"]["accuracy"] > 0.9, "a bag of words gets 0.64"
    sentences = [
        "The pool was dirty but the bar was never noisy.",
        "The bar was clean yet the pool was never clean.",
    ]
    value = json.loads(example.podium("predict", *sentences, "--model", "reviews", "--json"))
    assert [prediction["class"] for prediction in value["predictions"]] == ["good", "bad"]
    lines = example.podium("predict", "new-reviews.txt", "--model", "reviews").splitlines()
    assert len(lines) == 50

    again = example.run()
    assert again["decision"]["outcome"] == "kept", (
        "the same search on the same data finds nothing better"
    )
