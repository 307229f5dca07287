"""Where the simulated universes run."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest


@pytest.fixture(scope="session")
def apart() -> Iterator[Callable[..., Any]]:
    """A way to call a function in a process that runs universes only.

    The universe takes the place of clock and threads in podium's modules, for threads too that
    another test left; and the order of sets, by the hash seed, is a part of a schedule.
    """
    usual = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(os.getpid).result()
            yield lambda function, *given: pool.submit(function, *given).result()
    finally:
        os.environ.pop("PYTHONHASHSEED")
        if usual is not None:
            os.environ["PYTHONHASHSEED"] = usual
