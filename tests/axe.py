"""axe-core over a page in a browser: what people who see, hear or move in other ways cannot use."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

SIZES = ((1400, "dark"), (390, "light"))


_STILL = """() => Promise.all(
    document.getAnimations().filter(each => each.effect.getComputedTiming().endTime < 10000)
        .map(each => each.finished.catch(() => null)))"""
"""Waits for the end of what moves, unless it moves for good."""


@cache
def _script() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-core (make install)")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


def violations(page: Any, state: str, leave_out: str = "") -> list[str]:
    """Return what violates a rule on the page as it is shown, wide and on a phone.

    Args:
        leave_out: CSS selector of elements that are not looked at.
    """
    where = {"exclude": [[leave_out]] if leave_out else []}
    said = []
    for width, scheme in SIZES:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.evaluate(_STILL)  # a color in transition has another contrast
        page.evaluate(_script())
        # Style sheets of a file could not be loaded again, and no rule that is asked needs them.
        found = page.evaluate(
            "where => axe.run(where, {preload: false}).then(({violations}) => violations)", where
        )
        said += [
            f"{state} at {width}: {each['id']} ({each['help']}): {node['html'][:200]}"
            for each in found
            for node in each["nodes"]
        ]
    return said
