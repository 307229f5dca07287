"""Cached views of open pages: viewers of the same page share one, and views are computed in a
thread pool of their own."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from podium.ui.view import View

SHARE = 5
"""A look may take one in so many seconds."""

T = TypeVar("T")

AT_ONCE = 4
"""Looks that are taken at the same time."""

MOST_KEPT = 64
"""Pages whose last look is kept."""


@dataclass(frozen=True)
class Look:
    """A page as it was a moment ago."""

    view: View
    html: str

    until: float
    """Time until which the view is fresh, by time.monotonic."""


class Looks:
    """The last look at each page; of one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "podium-ui-look")
        self._last: dict[str, asyncio.Future[Look]] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run slow work in the pool, so that quick responses do not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def at(self, page: str, show: Callable[[], View], pause: float) -> Look:
        """Return a look at a page that is under way, or still new; else take one.

        Args:
            pause: Seconds for which it is new, at least.
        """
        known = self._last.get(page)
        if known is None or (
            known.done() and (known.exception() or time.monotonic() > known.result().until)
        ):
            known = self._last[page] = asyncio.ensure_future(self.run(_look, show, pause))
            for old in list(self._last)[:-MOST_KEPT]:
                del self._last[old]
        return await asyncio.shield(known)

    def forget(self) -> None:
        """Drop all cached views: something was changed."""
        self._last.clear()


def _look(show: Callable[[], View], pause: float) -> Look:
    began = time.monotonic()
    view = show()
    html = view.html()
    took = time.monotonic() - began
    return Look(view, html, began + took + max(pause, (SHARE - 1) * took))
