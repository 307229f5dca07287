"""The examples in the docstrings of the API, each run as it stands."""

import doctest
from pathlib import Path
from typing import Any

import pytest

import podium


def example_of(name: str, names: dict[str, Any]) -> list[doctest.DocTest]:
    """Return the example in a docstring, as if it were typed into a notebook."""
    finder = doctest.DocTestFinder(recurse=False)
    found = finder.find(getattr(podium, name), name, globs={"__name__": "__main__", **names})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", ["log", "sweep", "tune"])
def test_the_example_of_a_function_runs(name: str, parabola: dict[str, Any], home: Path) -> None:
    (test,) = example_of(name, {"experiment": parabola})
    said: list[str] = []
    results = doctest.DocTestRunner().run(test, out=said.append)
    assert results.failed == 0, "".join(said)
