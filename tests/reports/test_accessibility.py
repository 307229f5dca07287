"""The reports can be read in light and dark, by keyboard, by a screen reader, and without a network."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from axe import violations
from test_markup import compared, swept, written

from podium.reports import Step, complete, page, plots, render
from podium.reports.comparison import COLORS

pytestmark = pytest.mark.whole

STYLE = (Path(page.__file__).parent / "style.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--(\w+): (#\w+)", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
)


def channels(color: str) -> list[float]:
    digits = color[1:] if len(color) > 4 else "".join(2 * digit for digit in color[1:])
    return [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]


def luminance(color: list[float]) -> float:
    """Return the relative luminance, as WCAG 2 defines it."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: list[float], other: list[float]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_enough_contrast_on_every_ground(colors: dict[str, str]) -> None:
    assert colors.keys() == LIGHT.keys()
    for text in ("ink", "soft", "good", "bad"):
        for ground in ("paper", "shade", "best"):
            assert contrast(channels(colors[text]), channels(colors[ground])) >= 4.5, (text, ground)
    assert contrast(channels(colors["bar"]), channels(colors["paper"])) >= 3


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_bars_stand_out_in_every_figure(colors: dict[str, str]) -> None:
    for color in {*COLORS, *(color for color, _ in plots.STATES.values())}:
        assert contrast(channels(color), channels(colors["paper"])) >= 3, color


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_are_legible_in_the_fullest_cell(colors: dict[str, str]) -> None:
    share = 0xA0 / 255  # of the strongest color of confusion_matrix
    for color in (plots.BLUE, plots.RED):
        both = zip(channels(color), channels(colors["paper"]), strict=True)
        cell = [share * over + (1 - share) * under for over, under in both]
        assert contrast(channels(colors["ink"]), cell) >= 4.5, color


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, {name: value or "" for name, value in attributes}))


PAGES = {
    "run": lambda: complete(
        render(*written("plain")), [Step(title="Train", state="succeeded", seconds=1)], "podium run"
    ),
    "sweep": lambda: swept("plain"),
    "comparison": lambda: compared("plain"),
}


@pytest.fixture(scope="module", params=PAGES)
def html(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


def test_every_head_of_a_table_says_its_direction(html: str) -> None:
    heads = [attributes for tag, attributes in Elements(html).all if tag == "th"]
    assert heads
    assert {head.get("scope") for head in heads} == {"col", "row"}


def test_every_figure_has_a_name(html: str) -> None:
    figures = [attributes for _, attributes in Elements(html).all if "data-figure" in attributes]
    assert figures
    assert all(figure["role"] == "img" and len(figure["aria-label"]) > 15 for figure in figures)
    assert all(attributes["alt"] for tag, attributes in Elements(html).all if tag == "img")


def test_a_page_violates_no_rule_of_axe(html: str, tmp_path: Path, browser: Any) -> None:
    file = tmp_path / "report.html"
    file.write_text(html)
    browser.goto(file.as_uri())
    browser.wait_for_selector("[data-figure] .main-svg")
    said = violations(browser, "report")
    assert not said, "\n".join(said)


def test_whatever_scrolls_is_reached_by_keyboard(html: str) -> None:
    scrolling = [
        attributes
        for tag, attributes in Elements(html).all
        if tag == "pre" or attributes.get("class") == "wide"
    ]
    assert scrolling
    assert all(attributes.get("tabindex") == "0" for attributes in scrolling)
    assert all(
        attributes["aria-label"] for attributes in scrolling if attributes.get("role") == "region"
    )


def test_a_page_has_a_language_a_title_and_landmarks(html: str) -> None:
    tags = [tag for tag, _ in Elements(html).all]
    assert dict(Elements(html).all)["html"] == {"lang": "en"}
    assert [tags.count(tag) for tag in ("title", "main", "h1", "footer")] == [1, 1, 1, 1]


def test_a_page_is_one_small_file_without_a_network(html: str) -> None:
    assert len(html.encode()) <= 3_000_000
    fetched = [
        attributes for _, attributes in Elements(html).all
        if any(not attributes[name].startswith("data:") for name in ("src", "href") if name in attributes)
    ]  # fmt: skip
    assert fetched == []
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_a_sweep_of_thousands_of_trials_fits_as_well() -> None:
    evaluation, _ = written("plain")
    sweep = evaluation["sweep"]
    epochs = [{"epoch": float(epoch), "plain": 0.123456789 * epoch} for epoch in range(1, 301)]
    rows = [
        {**sweep["trials"][0], "name": f"sweep-285315287b-{number:08}", "number": number, "value": 1 / number,
         "state": "Succeeded", "model": "", "epochs": epochs}
        for number in range(1, 4001)
    ]  # fmt: skip
    made = page.SweepPage(table={**sweep, "trials": rows, "best": rows[0]["name"]}, goal="", state="Succeeded",
                          message="", cluster="local")  # fmt: skip
    html = page.render_sweep(made)
    assert "And 3,500 more trials." in html
    assert len(html) <= 3_000_000
