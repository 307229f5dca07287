"""The pages of `podium ui` as Chromium shows them, by mouse and by keyboard alone."""

import re
from collections.abc import Callable
from typing import Any

import podium
from podium.models import open_registry


def test_what_runs_is_followed_without_a_reload(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=1.0, parallelTrialCount=1))
    browser.goto(shown.url)
    browser.get_by_role("link", name=sweep.name, exact=True).click()
    browser.wait_for_selector(".state.running")
    browser.evaluate("window.loaded = 'once'")
    browser.wait_for_selector("[data-figure=curves] .scatterlayer .trace")
    browser.wait_for_selector("h1 .state.succeeded")
    assert browser.locator("tbody tr.best").count() == 1
    assert browser.locator("[data-figure=history] .main-svg").count() > 0
    assert browser.evaluate("window.loaded") == "once"
    assert "token" not in browser.url


def test_a_sweep_is_stopped_by_keyboard_after_one_question(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=2.0))
    browser.goto(f"{shown.base}/sweeps/{sweep.name}?token={shown.token}")
    browser.get_by_role("button", name="Stop").focus()
    browser.keyboard.press("Enter")
    browser.wait_for_selector("dialog[open]")
    browser.keyboard.press("Enter")  # the focus is on No
    browser.wait_for_selector("dialog[open]", state="detached")
    assert sweep.status == "Running"
    browser.get_by_role("button", name="Stop").focus()
    browser.keyboard.press("Enter")
    browser.keyboard.press("Shift+Tab")
    browser.keyboard.press("Enter")
    browser.wait_for_selector("h1 .state.stopped")
    assert sweep.status == "Stopped"


def test_a_digit_is_drawn_and_a_row_is_filled_in(browser: Any, models: None, shown: Any) -> None:
    browser.goto(f"{shown.base}/models/rows?token={shown.token}")
    browser.get_by_label("x").fill("3")
    browser.get_by_label("color").fill("red")
    browser.get_by_role("button", name="Predict").click()
    browser.wait_for_selector("output .answer")
    browser.goto(f"{shown.base}/models/shapes")
    browser.wait_for_selector("form.try")
    browser.locator("input[type=file]").set_input_files(
        {"name": "tall.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"}
    )
    browser.wait_for_selector("output .trouble")


def test_a_version_is_promoted_from_the_page(browser: Any, models: None, shown: Any) -> None:
    browser.goto(f"{shown.base}/models/shapes?token={shown.token}")
    browser.get_by_label("rule for v2").select_option("")
    browser.get_by_role("button", name="Promote").click()
    browser.get_by_role("button", name="Yes").click()
    browser.wait_for_selector("tr.best >> text=v2")
    assert open_registry(None)["shapes"].champion.version == "v2"
    assert browser.locator("#said").inner_text() == "v2 is champion of shapes"


def test_nothing_is_wider_than_a_phone_in_the_dark(
    browser: Any, models: None, shown: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    browser.set_viewport_size({"width": 390, "height": 800})
    browser.emulate_media(color_scheme="dark")
    for path in (
        "/",
        f"/sweeps/{sweep.name}",
        f"/sweeps/{sweep.name}/trials/{sweep.best.name}",
        "/models/shapes",
    ):
        browser.goto(f"{shown.base}{path}{'?token=' + shown.token if path == '/' else ''}")
        browser.wait_for_timeout(500)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390, path
    colors = browser.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = (sum(map(int, re.findall(r"\d+", color)[:3])) for color in colors)
    assert light > 600 > 120 > dark
