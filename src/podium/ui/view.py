"""Content of a page, and its rendering as HTML."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podium import __version__
from podium.display.templates import environment

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
            environment("ui", "serving")
            .get_template(self.template)
            .render(
                **self.shown,
                title=self.title,
                drawn=self.figures.keys(),
                podium=__version__,
                frame=frame or None,
            )
        )
