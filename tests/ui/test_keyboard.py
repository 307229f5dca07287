"""Every control is reached by Tab and shows that it is, and nothing is lost at 200 %."""

from collections.abc import Callable
from typing import Any

import pytest
from pages import write_run
from test_legibility import SCRIPT

import podium

pytestmark = pytest.mark.whole

CONTROLS = """() => {
  const look = each => { const {outline, boxShadow} = getComputedStyle(each); return outline + boxShadow; };
  window.controls = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter(each => each.checkVisibility() && !each.disabled && each.type !== "hidden");
  window.resting = controls.map(look);
  window.focused = () => {
    const at = controls.indexOf(document.activeElement);
    return [at, at < 0 || look(controls[at]) !== resting[at]];
  };
  return controls.map(each => each.outerHTML.slice(0, 120));
}"""


@pytest.fixture
def paths(
    home: Any, models: None, experiment: Callable[..., dict[str, Any]], shown: Any, browser: Any
) -> list[str]:
    """Addresses of a page of each kind that has controls, and of a report."""
    sweep = podium.sweep(experiment())
    browser.goto(shown.url)
    path, run = f"/sweeps/{sweep.name}", write_run(home, "failed")
    browser.goto(shown.base)
    browser.wait_for_selector(f"a[href='/runs/{run}']")  # no page changes under the keys then
    below = (f"/runs/{run}?step=train", f"{path}#picked=1,2", f"{path}/trials/{sweep.best.name}", "/models/shapes", "/models/rows", "/models/shapes/versions/v1")  # fmt: skip
    return [*(f"{shown.base}{each}" for each in ("/", *below)), sweep.report().as_uri()]


def test_tab_reaches_every_control_and_leaves_it(browser: Any, paths: list[str]) -> None:
    for path in paths:
        browser.goto(path)
        browser.wait_for_load_state("load")
        controls = browser.evaluate(CONTROLS)
        reached = list[int]()
        for _ in range(len(controls) + 1):
            browser.keyboard.press("Tab")
            at, is_seen = browser.evaluate("focused()")
            assert is_seen, f"{path}: focus is not to be seen on {controls[at]}"
            reached.append(at)
        missed = [controls[at] for at in range(len(controls)) if at not in reached]
        assert not missed, (path, missed)


def test_nothing_is_lost_at_twice_the_size(browser: Any, paths: list[str]) -> None:
    for path in paths:
        for width, size in (
            (700, "100%"),
            (320, "100%"),
            (1400, "200%"),
        ):  # zoom to 200, 440 %; text
            browser.set_viewport_size({"width": width, "height": 900})
            browser.goto(path)
            browser.evaluate(f"document.documentElement.style.fontSize = '{size}'")
            fits = "width => document.documentElement.scrollWidth <= width"
            browser.wait_for_function(fits, arg=width)  # figures take their new size in a moment
            assert browser.evaluate(SCRIPT) == [], (path, width, size)
