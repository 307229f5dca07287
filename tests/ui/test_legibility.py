"""Every page in each of its states, light and dark, wide and on a phone: all text can be read."""

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from handmade import shapes_model

import podium
from podium.models import open_registry
from podium.ui.app import STATIC

pytestmark = pytest.mark.whole

SCRIPT = (Path(__file__).parent / "legibility.js").read_text()


def check(browser: Any, state: str) -> None:
    """Look at the page as it is in every size and color."""
    for width in (1400, 390):
        browser.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            browser.emulate_media(color_scheme=scheme)
            assert browser.evaluate(SCRIPT) == [], (state, width, scheme)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, state


@pytest.fixture
def page(browser: Any, models: None, shown: Any) -> Any:
    """A page that has opened the address with the token."""
    browser.goto(shown.url)
    browser.base = shown.base
    return browser


def test_the_champions_answer_is_legible(page: Any) -> None:
    page.goto(f"{page.base}/models/rows")
    check(page, "a row to fill in")
    page.get_by_label("x").fill("3")
    page.get_by_label("color").fill("red")
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("output .answer")
    assert page.locator("output meter").count() > 1
    check(page, "an answer with its probabilities")
    page.get_by_label("x").fill("much")
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("output .trouble")
    check(page, "a refusal")


def test_models_and_versions_are_legible(page: Any) -> None:
    for path in (
        "/models",
        "/models/shapes",
        "/models/shapes?first=v1&second=v2",
        "/models/shapes/versions/v1",
        "/models/none",
    ):
        page.goto(f"{page.base}{path}")
        check(page, path)
    page.goto(f"{page.base}/models/shapes")
    page.get_by_role("button", name="Promote").first.click()
    page.wait_for_selector("dialog[open]")
    check(page, "a question")


def test_counts_of_a_confusion_matrix_are_in_ink(page: Any) -> None:
    report = {"classes": [{"name": "tall"}, {"name": "wide"}], "confusion": [[90, 1], [2, 50]]}
    open_registry(None)["shapes"].upload(
        {"model.onnx": shapes_model()}, {"report": report}, version="v3"
    )
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{page.base}/models/shapes/versions/v3")
        texts = page.locator("[data-figure=confusion] .heatmap-label text")
        texts.nth(3).wait_for()
        fills = texts.evaluate_all("texts => texts.map(text => getComputedStyle(text).fill)")
        assert fills == 4 * [page.evaluate("getComputedStyle(document.body).color")], scheme


def test_sweeps_and_trials_are_legible(
    page: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    for path in (
        "/",
        "/sweeps",
        f"/sweeps/{sweep.name}",
        f"/sweeps/{sweep.name}#picked=1,2&sort=x&filter=x<2",
        f"/sweeps/{sweep.name}/trials/{sweep.best.name}",
    ):
        page.goto(f"{page.base}{path}")
        check(page, path)


def test_no_class_is_styled_by_two_sheets_of_a_page() -> None:
    styled: dict[str, set[str]] = {}
    for file, room in STATIC.items():
        sheet = (resources.files(f"podium.{room}") / file).read_text() if ".css" in file else ""
        for selectors in re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", sheet, flags=re.S)):
            for name in re.findall(r"(?:^|,)\s*\.([\w-]+)", selectors):
                styled.setdefault(name, set()).add(file)
        assert not re.search("transition|animation|@keyframes|smooth", sheet), "nothing moves"
    assert {name: files for name, files in styled.items() if len(files) > 1} == {}
