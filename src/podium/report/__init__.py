"""A run as one HTML page that opens anywhere, without a network."""

from podium.report.page import render

__all__ = ["render"]
