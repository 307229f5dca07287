"""The leaderboard of a sweep in Chromium: sorted, filtered, narrowed, and its trials picked and compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import podium

pytestmark = pytest.mark.whole


@pytest.fixture
def sweep(home: Path, experiment: Callable[..., dict[str, Any]]) -> podium.Sweep:
    """Three trials: x = 0 and 1 are worse than x = 0.5."""
    return podium.sweep(experiment())


@pytest.fixture(params=["page", "report"])
def leaderboard(
    request: pytest.FixtureRequest, browser: Any, shown: Any, sweep: podium.Sweep
) -> Any:
    """A browser that shows the leaderboard: on the page, or in the report as a file."""
    path = f"{shown.base}/sweeps/{sweep.name}?token={shown.token}"
    browser.goto(path if request.param == "page" else sweep.report().as_uri())
    browser.wait_for_selector("[data-figure=history] .main-svg")
    return browser


def column(page: Any, head: str) -> list[str]:
    """Return the cells of a column, as they are shown."""
    at = page.locator(f"th[data-head='{head}']").evaluate("head => head.cellIndex")
    rows = page.locator("table.board tr[data-number]:visible").all()
    return [row.locator("> *").nth(at).inner_text().strip() for row in rows]


def overlays(page: Any, figure: str) -> list[str]:
    """Return the letters of the trials that stand out in a figure."""
    names = "place => (place.data ?? []).filter(trace => trace.opacity === undefined).map(trace => trace.name)"
    return [
        name.split()[0]
        for name in page.locator(f"[data-figure={figure}]").evaluate(names)
        if name and name[1:2] in (" ", "")
    ]


def test_rows_are_sorted_by_keyboard(leaderboard: Any) -> None:
    head = leaderboard.get_by_role("button", name="x", exact=True)
    head.focus()
    leaderboard.keyboard.press("Enter")
    assert column(leaderboard, "x") == ["0.0", "0.5", "1.0"]
    leaderboard.keyboard.press("Enter")
    assert column(leaderboard, "x") == ["1.0", "0.5", "0.0"]
    assert leaderboard.locator("th[data-head=x]").get_attribute("aria-sort") == "descending"
    leaderboard.keyboard.press("Enter")
    assert column(leaderboard, "x")[0] == "0.5", "the best first, as at the beginning"
    assert head.evaluate("head => head === document.activeElement")


def test_rows_are_filtered_and_columns_chosen(leaderboard: Any) -> None:
    leaderboard.get_by_label("Filter").fill("x>=0.5 state=succeeded")
    assert sorted(column(leaderboard, "x")) == ["0.5", "1.0"]
    assert leaderboard.locator(".tools output").inner_text() == "2 of 3 trials"
    leaderboard.get_by_text("Columns", exact=True).click()
    leaderboard.get_by_label("seconds").uncheck()
    assert not leaderboard.locator("th[data-head=seconds]").is_visible()
    leaderboard.reload()
    leaderboard.wait_for_selector("table.board button.sort")
    assert sorted(column(leaderboard, "x")) == ["0.5", "1.0"], "a reload keeps the view"
    assert not leaderboard.locator("th[data-head=seconds]").is_visible()


def test_a_trial_picked_in_one_figure_stands_out_in_all(leaderboard: Any) -> None:
    boxes = leaderboard.locator("table.board input[type=checkbox]")
    boxes.first.focus()
    leaderboard.keyboard.press("Space")
    leaderboard.wait_for_selector(".compared [data-figure=picked] .main-svg")
    for figure in ("history", "coordinates", "curves", "picked"):
        assert overlays(leaderboard, figure) == ["A"], figure
    drawn = leaderboard.locator("[data-figure=history] .nsewdrag").first
    drawn.scroll_into_view_if_needed()
    frame = drawn.bounding_box()
    leaderboard.mouse.move(frame["x"] + 2, frame["y"] + 2)
    leaderboard.mouse.down()
    leaderboard.mouse.move(frame["x"] + frame["width"] - 2, frame["y"] + frame["height"] - 2)
    leaderboard.mouse.up()
    leaderboard.locator("table.board input:checked").nth(2).wait_for()
    assert overlays(leaderboard, "coordinates") == ["A", "B", "C"]
    compared = leaderboard.locator(".compared table tr")
    assert [row.inner_text().split("\t")[0].strip() for row in compared.all()][1:] == list("ABC")
    heads = compared.first.inner_text().split()
    assert "x" in heads
    assert "state" not in heads, "all have succeeded"
    leaderboard.get_by_role("button", name="Clear").click()
    assert not leaderboard.locator(".compared").is_visible()
    assert overlays(leaderboard, "history") == []


def test_a_pick_stays_with_its_trial_while_rows_move(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=0.5, parallelTrialCount=1))
    browser.goto(f"{shown.base}/sweeps/{sweep.name}?token={shown.token}")
    first = browser.locator("tr[data-number='1'] input[type=checkbox]")
    first.check()
    browser.wait_for_selector("h1 .state.succeeded")
    browser.wait_for_selector("[data-figure=coordinates] .main-svg")
    checked = browser.locator("table.board tr:has(input:checked)")
    assert checked.evaluate_all("rows => rows.map(row => row.dataset.number)") == ["1"]
    assert first.evaluate("box => box === document.activeElement")
    assert overlays(browser, "coordinates") == ["A"]
    browser.reload()
    browser.wait_for_selector("[data-figure=picked] .main-svg")
