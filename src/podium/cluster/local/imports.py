"""Modules that a script imports at its top, and those among them that are not installed here."""

import ast
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from podium.errors import InvalidInput

_PARSING = threading.Lock()
"""Python below 3.11.8 fails in ast.parse where two threads are in it at once
(python/cpython#106905)."""

_DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages that are installed under another name than they are imported."""

_OTHER_MODULES = re.compile(r"\b(pip3?|uv|conda|PYTHONPATH)\b|/\S*python")
"""Words of a command that installs packages first, or runs with those of another Python."""


_FINDS_ITSELF = re.compile(rb"\b(sys\.path|sys\.meta_path|addsitedir|importlib|pip)\b")
"""A script that says one of these may find, or install, what is not here yet."""


def imported_at_top(source: bytes) -> set[str] | None:
    """Return the packages that a module imports whenever it runs; None if it is not Python."""
    try:
        with _PARSING:
            body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names} - {""}


def check_imports(script: Path, argv: Sequence[str]) -> None:
    """Refuse a script that imports what is not installed in this Python, itself or by a module
    beside it.

    Args:
        script: The file; one that changes where modules are found, or installs them, is let pass.
        argv: The command that runs it.

    Raises:
        InvalidInput: A package is missing.
    """
    if _OTHER_MODULES.search(" ".join(argv).replace(sys.executable, "python")):
        return
    missing = list(dict.fromkeys(_missing(script, script.parent, set())))
    if missing:
        install = " ".join(_DISTRIBUTIONS.get(package, package) for package in missing)
        raise InvalidInput(
            f"{script.name} imports {', '.join(missing)}, which this Python"
            f" ({sys.executable}) does not have",
            f"pip install {install}, or put a module of your own beside {script.name}",
        )


def _missing(script: Path, folder: Path, seen: set[Path]) -> Iterator[str]:
    seen.add(script)
    source = script.read_bytes() if script.is_file() else b""
    if _FINDS_ITSELF.search(source):
        return
    for package in sorted((imported_at_top(source) or set()) - sys.stdlib_module_names):
        beside = folder / f"{package}.py"
        if beside.is_file():
            if beside not in seen:
                yield from _missing(beside, folder, seen)
        elif not (folder / package).is_dir() and not _is_found(package):
            yield package


def _is_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # it is loaded in a way that leaves no spec
        return package in sys.modules
