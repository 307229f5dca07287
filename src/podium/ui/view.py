"""Content of a page, and its rendering as HTML."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from podium import __version__
from podium.reports.page import chance
from podium.text import brief, duration, figure, iso, size, when

if TYPE_CHECKING:
    from jinja2 import Environment

LINES = 500
"""Last lines of a log that a page shows; its text file has all."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A page as of now."""

    template: str
    title: str
    shown: Mapping[str, Any]
    """Variables of the template."""

    figures: Mapping[str, str] = field(default_factory=dict)
    """Plotly's JSON by the name of its place in the page."""

    over: bool = False
    """Whether nothing of it will change by itself."""

    def html(self, **frame: Any) -> str:
        """Return the whole page, or its inner part if ``frame`` is left out."""
        return (
            _environment()
            .get_template(self.template)
            .render(
                **self.shown,
                title=self.title,
                drawn=self.figures.keys(),
                podium=__version__,
                frame=frame or None,
            )
        )


@cache
def _environment() -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    rooms = ChoiceLoader([PackageLoader(f"podium.{room}", ".") for room in ("ui", "serving")])
    environment = Environment(
        loader=rooms,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure,
        "number": brief,
        "chance": chance,
        "duration": duration,
        "size": size,
        "when": when,
        "iso": iso,
    }
    return environment
