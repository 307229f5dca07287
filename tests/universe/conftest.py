"""Fixtures of the simulated universes."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collected_between_tests() -> Iterator[None]:
    """Collect no garbage while a universe runs: what a collection ends, a greenlet or an object that
    another thread waits for, runs in the midst of whatever Python does, a parse too, which fails."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
