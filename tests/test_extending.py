"""The examples of docs/extending.md: each declaration is entered in its table, and its test runs."""

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium.data.sources.source import SOURCES
from podium.manifests.options import OPTIONS
from podium.models.criteria import CRITERIA
from podium.scoring import METRICS
from podium.search.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
FILES = ("lines", "test_lines_source", "halton", "test_halton", "patience", "test_patience")
BLOCKS = [f"```python\n{(ROOT / f'examples/extending/{name}.py').read_text()}```" for name in FILES]
TEXT = "\n".join([PAGE.read_text(), *BLOCKS])
EXAMPLES = re.findall(
    r"```python\n# src/(\S+)\.py\n(.*?)```.*?```python\n# (tests/\S+\.py)\n(.*?)```",
    TEXT,
    re.DOTALL,
)
TABLES: dict[str, tuple[Any, str]] = {
    "scoring": (METRICS, "MAPE"),
    "data": (SOURCES, "LINES"),
    "search": (ALGORITHMS, "HALTON"),
    "models": (CRITERIA, "SURE"),
    "manifests": (OPTIONS, "Patience"),
}


def test_every_kind_of_extension_has_an_example() -> None:
    assert {file.split("/")[1] for file, *_ in EXAMPLES} == set(TABLES)
    assert len(re.findall("```python", TEXT)) == 2 * len(EXAMPLES)
    assert all(f"{name}.py" in PAGE.read_text() for name in FILES)


@pytest.mark.parametrize(
    ("file", "code", "test", "check"), EXAMPLES, ids=[file for file, *_ in EXAMPLES]
)
def test_the_example_passes_its_test(
    file: str, code: str, test: str, check: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table, name = TABLES[file.split("/")[1]]
    module = ModuleType(f"example_{name.lower()}")
    if known := sys.modules.get(file.replace("/", ".")):  # the example is a part of this file
        module.__dict__.update(vars(known), __name__=module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, file, "exec"), module.__dict__)
    declared = getattr(module, name)
    if isinstance(table, list):
        monkeypatch.setattr("podium.manifests.options.OPTIONS", [*table, declared])
    else:
        entry = f"{module.__name__}:{name}" if table is SOURCES else declared
        monkeypatch.setitem(table.own, declared.name, entry)
    checks: dict[str, Any] = {}
    exec(compile(check, test, "exec"), checks)
    tests = [function for given, function in checks.items() if given.startswith("test_")]
    assert tests
    for function in tests:
        function(**{"tmp_path": tmp_path} if "tmp_path" in signature(function).parameters else {})


def test_the_examples_are_formatted_as_podium_is(tmp_path: Path) -> None:
    for file, code, test, check in EXAMPLES:
        for path, text in ((f"src/{file}.py", code), (test, check)):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--check",
        "--config",
        str(PAGE.parent.parent / "pyproject.toml"),
    ]
    done = subprocess.run([*ruff, "."], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
