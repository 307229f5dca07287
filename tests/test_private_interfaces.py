"""Names that a library does not promise to keep are touched only where docs/private-interfaces.md says so."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from test_structure import ROOT, sources

pytestmark = pytest.mark.whole

TABLE = ROOT / "docs" / "private-interfaces.md"
DOCUMENTED = {
    "kfp": {"kfp", "kfp.client", "kfp.compiler", "kfp.components", "kfp.dsl", "kfp.kubernetes", "kfp.local"},
    "minio": {"minio", "minio.commonconfig", "minio.credentials", "minio.datatypes", "minio.error", "minio.signer"},
    "kubernetes": {
        "kubernetes", "kubernetes.client", "kubernetes.client.exceptions", "kubernetes.config", "kubernetes.utils",
        "kubernetes.watch",
    },
    "optuna": {"optuna", "optuna.distributions", "optuna.samplers", "optuna.storages.journal", "optuna.study",
        "optuna.trial"},
}  # fmt: skip
"""Modules with a reference page; importing any other one of these libraries needs a row."""


def rows() -> dict[tuple[str, str], str]:
    """Return the pinned version by (file, name)."""
    found = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[cells[1].strip("`"), name] = cells[2]
    return found


def defined(tree: ast.AST) -> set[str]:
    """Return the names that code defines or sets itself."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def foreign(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the private names of other libraries that a module touches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            if node.attr not in own and ast.unparse(node) != "os._exit":  # os._exit is documented
                yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr")
        ):
            if isinstance(node.args[1], ast.Constant) and private(str(node.args[1].value)):
                yield str(node.args[1].value)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"_[A-Z]+_[A-Z_]+", str(node.value)):
            yield str(node.value)  # a private environment variable
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if undocumented(alias.name))
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and not node.module.startswith("podium")
        ):
            if undocumented(node.module):
                yield node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if private(alias.name) or (
                    alias.name[0].islower() and undocumented(inner) and is_module(inner)
                ):
                    yield inner


def undocumented(module: str) -> bool:
    library = module.partition(".")[0]
    known = DOCUMENTED.get(library)
    return any(private(part) for part in module.split(".")) or (
        known is not None and module not in known
    )


def is_module(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_private_names_of_libraries_are_those_in_the_table() -> None:
    touched = set()
    for _, file in sources():
        tree = ast.parse(file.read_text())
        where = str(file.relative_to(ROOT))
        touched |= {(where, name) for name in foreign(tree, defined(tree))}
    assert touched == set(rows()), (
        f"{touched - set(rows())} not in the table, {set(rows()) - touched} no longer touched"
    )


def test_the_table_names_the_pinned_versions() -> None:
    pins = dict(
        re.findall(
            r"(?m)^([\w.-]+)(?:\[.*\])?==(\d+\.\d+)", (ROOT / "requirements/pins.txt").read_text()
        )
    )
    for (where, name), seen in rows().items():
        library, _, minor = seen.partition(" ")
        assert pins[library] == minor, (
            f"{where} touches {name}: look at it again with {library} {pins[library]}"
        )
        assert version(library).startswith(minor)


def test_a_private_name_is_noticed() -> None:
    code = (
        "import minio\nfrom kfp.local import graph_utils\nself._own = minio.Minio('')._http\ngetattr(self._own, '_x')\n"
        "os.environ['_KFP_RUNTIME']\n"
    )
    tree = ast.parse(code)
    assert set(foreign(tree, defined(tree))) == {
        "_http",
        "_x",
        "_KFP_RUNTIME",
        "kfp.local.graph_utils",
    }


def test_the_table_is_linked() -> None:
    assert "private-interfaces.md" in Path(ROOT / "docs" / "architecture.md").read_text()
