"""A run, a sweep or a comparison as one HTML page that opens anywhere, without a network."""

from podium.reports.comparison import Compared, render_comparison
from podium.reports.page import Failure, Step, SweepPage, complete, render, render_sweep

__all__ = [
    "Compared",
    "Failure",
    "Step",
    "SweepPage",
    "complete",
    "render",
    "render_comparison",
    "render_sweep",
]
