"""Commands that start several processes of one training, and how a plain ``python`` becomes one of
them."""

import re
from collections.abc import Sequence
from itertools import dropwhile

from podium.manifests.shell import is_shell

_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate",
    "deepspeed",
    "mpirun",
    "horovodrun",
)
_PYTHON = re.compile(r"(?:\S*/)?python(?:\d+(?:\.\d+)?)?")
_MODULE = re.compile(r"\s-m\s+(\S+)")
_END = re.compile(r"[;&|\n]+")
_IN_SCRIPT = re.compile(
    rf"(?P<before>(?:^|[;&|(\n])\s*(?:(?:exec|then|do|else|time|env)\s+)*(?:\w+=\S*\s+)*)"
    rf"(?P<python>{_PYTHON.pattern})(?P<options>(?:\s+-u)*)(?=\s)(?!\s+-m\s+(?:pip|venv|ensurepip)\b)"
    rf"(?P<follows>\s+(?:-m\s|[^-\s])?)"
)
"""A Python command in a shell script, with its first argument if that is a file or ``-m``."""


def launches(words: Sequence[str]) -> bool:
    """Return whether a command starts the processes of a training through torchrun or another
    launcher.

    It is a word of its own, there or in a script: ``--output=/models/torchrun`` starts nothing.
    """
    commands = _END.split(" ".join(words).replace("\\\n", " "))
    return any(_starts_launcher(command.split()) for command in commands)


def _starts_launcher(words: Sequence[str]) -> bool:
    """Return whether a launcher is among the words of one command: not as an argument of a script,
    nor as a package that is installed."""
    for at, word in enumerate(words):
        name = word.strip("()'\"")
        if name in _LAUNCHERS or _is_launcher(name):
            return True
        if name == "install":
            return False
        if _PYTHON.fullmatch(name):
            script = next((each for each in words[at + 1 :] if each[0] != "-"), "")
            module = _MODULE.search(" ".join(words))
            return bool(module and module[1] in _LAUNCHERS) or _is_launcher(script)
    return False


def _is_launcher(path: str) -> bool:
    return path.partition("/bin/")[2] in _LAUNCHERS


def _script_of(words: Sequence[str]) -> int | None:
    """Return the index of the script in a command such as ``sh -ec SCRIPT``; None if it is another
    command."""
    if not is_shell(words):
        return None
    flags = next(
        (at for at, word in enumerate(words) if at and re.fullmatch(r"-[a-z]*c", word)), None
    )
    return flags + 1 if flags is not None and flags + 1 < len(words) else None


def with_torchrun(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return a command with torchrun in place of the Python that it starts.

    ``python train.py`` becomes ``torchrun train.py``, ``python -m x`` becomes ``torchrun -m x``. A
    Python with other options is started by ``torchrun --no-python``; one with a path or a version
    keeps it, as torchrun may be another's.

    Returns:
        The words; None if they start no Python, several, or already a launcher.
    """
    if not words or launches(words):
        return None
    if _PYTHON.fullmatch(words[0]):
        return _replaced(words[0], words[1:])
    at = _script_of(words)
    if at is None:
        return None
    starts = list(_IN_SCRIPT.finditer(words[at]))
    if len(starts) != 1:
        return None
    script = words[at]
    (start,) = starts
    python, follows = start["python"], start["follows"]
    launcher = " ".join(_launcher(python))
    rest = follows if follows.strip() else f" --no-python {python}{start['options']}{follows}"
    changed = f"{script[: start.start()]}{start['before']}{launcher}{rest}{script[start.end() :]}"
    return (*words[:at], changed, *words[at + 1 :])


def _replaced(python: str, rest: Sequence[str]) -> tuple[str, ...]:
    program = list(dropwhile(lambda word: word == "-u", rest))  # torchrun says so itself
    if program and (program[0] == "-m" or not program[0].startswith("-")):
        return (*_launcher(python), *program)
    return (*_launcher(python), "--no-python", python, *rest)


def _launcher(python: str) -> tuple[str, ...]:
    return (
        ("torchrun",)
        if python in ("python", "python3")
        else (python, "-m", "torch.distributed.run")
    )
