"""Under drift, models are compared on the newest test items."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Nights
from sklearn.linear_model import LogisticRegression
from test_one_city import by_column

from podium.errors import InvalidInput
from podium.kfp.values import check_values
from podium.models import open_registry
from podium.models.comparison import contest
from podium.models.shared_items import SharedItems

pytestmark = pytest.mark.whole

ROWS = 2000


def drifting(place: Path) -> str:
    """Write rows whose label mostly follows from ``x``, but from ``y`` in the last 200."""
    x, y = np.random.default_rng(0).normal(size=(2, ROWS))
    yes = np.where(np.arange(ROWS) < ROWS - 200, x + y / 3, y) > 0
    days = np.datetime64("2020-01-01") + np.arange(ROWS)
    rows = zip(x, y, days, yes, strict=True)
    lines = [f"{one:.5f},{other:.5f},{day},{'ny'[int(label)]}" for one, other, day, label in rows]
    (place / "rows.csv").write_text("\n".join(["x,y,day,label", *lines]))
    return f"table:{place / 'rows.csv'}"


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Nights:
    return Nights(tmp_path, monkeypatch)


def test_a_window_judges_by_the_newest_items(nights: Nights) -> None:
    data, divided = drifting(nights.place), {"time": "day", "test": 0.4}
    for rule, outcome, items in (("likely", "kept", 800), ("likely,window=200", "promoted", 200)):
        nights.prepare(data, "label", **divided)
        nights.train(by_column(0), rule="better,baseline=any")
        nights.prepare(data, "label", **divided)
        decision = nights.train(by_column(1), rule=rule)
        assert (decision["outcome"], decision["items"]) == (outcome, items)
    assert decision["value"] > 0.9 > 0.7 > decision["champion_value"]
    since = f"since {np.datetime64('2020-01-01') + ROWS - 200}"
    assert f"ok: compared on the 200 newest of 800 test items, {since}" in decision["reasons"]
    with pytest.raises(InvalidInput, match="window=50 needs the times of the test items"):
        contest(open_registry(nights.storage).model("real"), "r2", "likely,window=50", None, {})


def test_figures_of_another_window_do_not_count(nights: Nights) -> None:
    data, model = drifting(nights.place), LogisticRegression()
    for rule, challengers in (
        ("likely", 1),
        ("likely", 2),
        ("likely,window=200", 1),
        ("likely,window=150", 2),
    ):
        nights.prepare(data, "label", time="day", test=0.4)
        model.C = 0.01 * (1 + nights.night)
        said = "".join(nights.train(model, rule=rule)["reasons"])
        assert (f"challenger {challengers} on" in said) == (challengers > 1), said


def test_the_newest_items_keep_their_hashes() -> None:
    target, days = np.zeros(4), np.datetime64("2020-01-01") + np.arange(4)
    answers: Any = {"target": target, "predicted": (target,), "decided": (target,)}
    shared = SharedItems(
        items=np.arange(4), classes=(), inputs={}, units=np.arange(10, 14), **answers
    )
    units = shared.newest(2, days).units
    assert units is not None
    assert units.tolist() == [12, 13]


def test_a_window_needs_times(nights: Nights) -> None:
    data = drifting(nights.place)
    nights.prepare(data, "label")
    with pytest.raises(
        InvalidInput, match="window=200 needs the times of the test items"
    ) as raised:
        nights.train(LogisticRegression(), rule="likely,window=200")
    assert "time" in raised.value.hint
    with pytest.raises(InvalidInput, match="window=200"):
        check_values({"dataset": data, "target": "label", "rule": "likely,window=200"})
    for wrong in ("9", "1.5", "all"):
        with pytest.raises(InvalidInput, match="window"):
            check_values({"rule": f"window={wrong}"})
