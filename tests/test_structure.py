"""The rules of docs/architecture.md, held against the code."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"components": "components", "experiments": "experiments", "pipelines": "pipelines", "trainer": "trainer"}
HEAVY = {"torch", "torchvision", "kfp", "kubernetes", "kubeflow", "minio", "optuna", "onnx", "onnxruntime", "scipy"}

# Who may import which rooms of podium; a room may always import itself, errors, documents and settings.
ALLOWED = {
    "trainer": {"data", "metrics", "storage"},
    "storage": set(),
    "metrics": set(),
    "data": {"storage"},
    "scoring": {"onnx_files"},
    "registry": {"onnx_files", "storage"},
    "doctor": {"cluster", "manifests", "metrics"},
    "manifests": {"metrics", "cluster"},  # of cluster the type of a manifest
}


def sources() -> Iterator[tuple[str, Path]]:
    """Yield (room, file): the room is the first name below podium."""
    for folder in FOLDERS:
        yield from ((folder, file) for file in (ROOT / folder).rglob("*.py"))
    for file in (ROOT / "src" / "podium").rglob("*.py"):
        yield file.relative_to(ROOT / "src" / "podium").with_suffix("").parts[0], file


def imported_rooms(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" if node.module == "podium" else node.module for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("podium.")}


def test_every_package_there_is_gets_installed() -> None:
    from setuptools import find_packages

    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert options == {"where": ["src"], "namespaces": False}
    found = {".".join(file.parent.relative_to(ROOT / "src").parts) for file in (ROOT / "src").rglob("__init__.py")}
    for folder in FOLDERS:
        found |= {
            ".".join(["podium", *file.parent.relative_to(ROOT).parts]) for file in (ROOT / folder).rglob("__init__.py")
        }
    assert set(find_packages(str(ROOT / "src"))) == found


def test_imports_go_one_way() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {room} imports podium.{other}"
        for room, file in sources()
        if room in ALLOWED
        for other in imported_rooms(ast.parse(file.read_text()))
        if other not in ALLOWED[room] | {room, "errors", "documents", "settings", "__version__"}
    ]
    assert not wrong, "\n".join(wrong)


def test_help_loads_nothing_heavy() -> None:
    script = """if True:
        import sys
        from podium.cli import app
        try:
            app(["--help"])
        finally:
            print(*sys.modules, file=sys.stderr)
    """
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.split(".")[0] for name in result.stderr.split()}
    assert "Usage:" in result.stdout
    assert not loaded & (HEAVY | {"numpy", "rich", "plotly", "jinja2", "yaml"})


@pytest.mark.parametrize("file", sorted(ROOT.glob("requirements*.txt")), ids=lambda file: file.name)
def test_pins_are_exact_have_hashes_and_name_no_index(file: Path) -> None:
    pins = file.read_text().replace(" \\\n    ", " ").splitlines()
    assert pins
    for pin in pins:
        assert re.match(r"^[\w.-]+(\[[\w,-]+\])?==[\w.+!]+( ; [^-]+)?( --hash=sha256:[0-9a-f]{64})+$", pin), pin


def test_yaml_is_loaded_in_one_module() -> None:
    loads = re.compile(r"\byaml\.(\w*load\w*|parse|scan|compose\w*|\w*Loader)\b|from yaml\b")
    wrong = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for _, file in sources()
        if file.stem != "yaml_loader"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if loads.search(line)
    ]
    assert not wrong, "\n".join(["use podium.documents.load_yaml", *wrong])
