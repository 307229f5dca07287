"""A run or a sweep as one HTML page that opens anywhere, without a network."""

from podium.report.page import Failure, Step, SweepPage, complete, render, render_sweep

__all__ = ["Failure", "Step", "SweepPage", "complete", "render", "render_sweep"]
