"""The Python file that a command line runs, directly, through a launcher or in a shell script, and
what it imports that is not installed here."""

import ast
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePath

from podium.errors import InvalidInput

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
_ACCELERATE = ("accelerate.commands.launch",)
_SWITCHES = {
    "--standalone",
    "--run-path",
    "--virtual-local-rank",
    "--print-completion",
    "--use-env",
    "--help",
    "-h",
}
"""Options of torchrun that take no value."""

_NO_SCRIPT = {"--module", "-m", "--no-python"}
"""Flags with which torchrun and accelerate run a module or any program."""

_HARMLESS = {
    "echo",
    "export",
    "set",
    "ulimit",
    "umask",
    "sleep",
    "date",
    "true",
    "mkdir",
    "pip",
    "pip3",
    "nvidia-smi",
}
"""Commands that neither write programs nor change the directory."""

_PLAIN = re.compile(r"[\w./@:=+-]+")


def script_of(argv: Sequence[str]) -> str | None:
    """Return the script that Python is to run; None where a command runs something else, or it
    cannot be determined."""
    program, *words = argv
    name = PurePath(program).name
    if name == "torchrun":
        return _behind_torchrun(words)
    if name == "accelerate":
        return _behind_accelerate(words[1:]) if words[:1] == ["launch"] else None
    if name in ("sh", "bash", "dash") and words[:1] == ["-c"] and len(words) > 1:
        return _in_shell(words[1])
    return _behind_python(words) if name.startswith("python") else None


def _behind_python(words: Sequence[str]) -> str | None:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option = words[at]
        at += 2 if option in ("-W", "-X", "--check-hash-based-pycs") else 1
        if option == "-" or (not option.startswith("--") and option.endswith("c")):
            return None
        if not option.startswith("--") and option.endswith("m"):
            return _behind_module(words[at:])
    return words[at] if at < len(words) else None


def _behind_module(words: Sequence[str]) -> str | None:
    module, *rest = words or [""]
    if module in _LAUNCHERS:
        return _behind_torchrun(rest)
    return _behind_accelerate(rest) if module in _ACCELERATE else None


def _behind_torchrun(words: Sequence[str]) -> str | None:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, _ = words[at].replace("_", "-").partition("=")
        if option in _NO_SCRIPT:
            return None
        at += 1 if equals or option in _SWITCHES else 2
    return words[at] if at < len(words) else None


def _behind_accelerate(words: Sequence[str]) -> str | None:
    """Return the first word that is a Python file: accelerate has too many options to know which
    take a value."""
    for word in words:
        if word.replace("_", "-") in _NO_SCRIPT:
            return None
        if not word.startswith("-") and word.endswith(".py"):
            return word
    return None


def _in_shell(script: str) -> str | None:
    """Return the script of the first command that does something, unless a shell would change its
    words."""
    lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return None
    while words:
        end = next((at for at, word in enumerate(words) if set(word) <= set(";&|<>()")), len(words))
        command, words = words[:end], words[end + 1 :]
        while command and (command[0] == "exec" or re.match(r"\w+=", command[0])):
            command = command[1:]
        if command and command[0] not in _HARMLESS:
            file = script_of(command)
            return file if file and _PLAIN.fullmatch(file) else None
    return None


_PARSING = threading.Lock()
"""Python below 3.11.8 fails in ast.parse where two threads are in it at once
(python/cpython#106905)."""

_DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "gitpython",
    "hydra": "hydra-core",
    "ignite": "pytorch-ignite",
    "imblearn": "imbalanced-learn",
    "mpl_toolkits": "matplotlib",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
"""Packages that are installed under another name than they are imported."""

_OTHER_MODULES = re.compile(r"\b(pip3?|uv|conda|PYTHONPATH)\b|/\S*python")
"""Words of a command that installs packages first, or runs with those of another Python."""


_FINDS_ITSELF = re.compile(rb"\b(sys\.path|sys\.meta_path|addsitedir|importlib|pip)\b")
"""A script that says one of these may find, or install, what is not here yet."""


@lru_cache(maxsize=64)
def imported_at_top(source: bytes) -> frozenset[str] | None:
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
    return frozenset({name.partition(".")[0] for name in names} - {""})


def bool_flags(source: bytes) -> frozenset[str]:
    """Return the flags to which a Python script gives ``type=bool``, with dashes.

    Raises:
        SyntaxError: It is not Python.
    """
    with _PARSING:
        nodes = list(ast.walk(ast.parse(source)))
    return frozenset(
        str(word.value)[2:].replace("_", "-")
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
        if any(
            each.arg == "type" and getattr(each.value, "id", "") == "bool" for each in node.keywords
        )
        for word in node.args
        if isinstance(word, ast.Constant) and str(word.value).startswith("--")
    )


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
    for package in sorted((imported_at_top(source) or frozenset()) - sys.stdlib_module_names):
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
