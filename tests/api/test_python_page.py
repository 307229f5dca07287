"""The examples of docs/python.md, one after the other in a notebook's kernel."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.whole

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"(?:<!-- (\w+) -->\n)?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_blocks(kernel: Any, marks: tuple[str, ...]) -> None:
    from test_in_a_notebook import outputs_of

    for mark, code in BLOCKS:
        if mark in marks:
            failed = [output for output in outputs_of(kernel, code) if output["kind"] == "error"]
            assert not failed, (code, failed[0]["ename"], failed[0]["evalue"])


@pytest.fixture
def data(tiny_dataset: Path, home: Path) -> None:
    shutil.copytree(tiny_dataset, "data/tiny")
    shutil.copytree(f"{tiny_dataset}_test", "data/tiny_test")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_quick_examples_of_the_page_run(data: None, kernel: Any) -> None:
    run_blocks(kernel, ("",))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_all_examples_of_the_page_run_here(data: None, kernel: Any) -> None:
    run_blocks(kernel, ("", "slow"))


def test_the_page_names_every_function_and_each_block_parses() -> None:
    import podium

    functions = [name for name in podium.__all__ if name[0].islower() and name != "log"]
    assert [name for name in functions if f"| `podium.{name}(" not in PAGE.read_text()] == []
    for _, code in BLOCKS:
        compile(code, str(PAGE), "exec")
