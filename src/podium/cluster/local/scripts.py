"""The Python file that a command line runs: directly, through a launcher, or in a shell script."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

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
