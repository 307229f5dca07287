"""Data and output paths of a trainer: podium's own gets flags, any other placeholders, variables or
two flags.

A command, its arguments and its environment may hold ``${podium.data}``, ``${podium.output}`` and
``${podium.name}`` anywhere; ``fill`` replaces them. Every container of a trainer also gets
PODIUM_DATA and PODIUM_OUTPUT.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from podium.manifests.experiment.shell import is_shell
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.fields import items
from podium.manifests.job_editor import JobEditor, set_env
from podium.manifests.workload import uses_builtin_trainer

DATA = "${podium.data}"
"""URI or path of the dataset artifact."""

OUTPUT = "${podium.output}"
"""URI or path where the trainer leaves its model directory."""

NAME = "${podium.name}"
"""Name of the trial or of the training job."""

VARIABLES = {"PODIUM_DATA": DATA, "PODIUM_OUTPUT": OUTPUT}
"""Environment of every trainer."""

FLAGS = {"--data": DATA, "--output": OUTPUT}
"""Flags appended to a command that mentions neither a placeholder nor a variable."""

_MARKS = (*VARIABLES, *VARIABLES.values())
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_GIVEN = re.compile(r"\$\{(trialParameters\..+?|podium\.(data|output|name))\}")


def connect_trainer(
    container: dict[str, Any], searched: Iterable[str] = (), *, quoted: bool = False
) -> None:
    """Pass the paths of data and model to a trainer; alters the container.

    Every trainer gets the variables. Flags are for a command that mentions neither a placeholder
    nor a variable; a shell takes none, and podium's trainer gets its own.

    Args:
        searched: Names of trialParameters that stand for hyperparameters: a flag ``--data`` or
            ``--output`` with one of them is a hyperparameter and stays.
        quoted: Whether Katib hands the command to a shell.
    """
    written = json.dumps([container.get(field) for field in ("command", "args", "env")])
    words = _words_of(container)
    set_env(container, [{"name": name, "value": value} for name, value in VARIABLES.items()])
    if any(mark in written for mark in _MARKS) or is_shell(words) or uses_builtin_trainer(words):
        return
    given = read_flags(words)
    own = {
        flag for flag in FLAGS if set(PLACEHOLDER.findall(str(given.get(flag[2:])))) & set(searched)
    }
    set_flags(
        container, {flag: value for flag, value in FLAGS.items() if flag not in own}, quoted=quoted
    )


def _words_of(container: Mapping[str, Any]) -> list[str]:
    """Return command and args of a container's manifest."""
    return [str(word) for field in ("command", "args") for word in items(container.get(field))]


def read_flags(words: Iterable[str]) -> dict[str, Any]:
    """Read ``--name=value``, ``--name value`` and ``--name`` from a command line; other words are
    passed over."""
    flags: dict[str, Any] = {}
    waiting: str | None = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            waiting = None if equals else flag_name(name)
            flags[flag_name(name)] = value if equals else True
        elif waiting is not None:
            flags[waiting], waiting = word, None
    return flags


def flag_name(name: str) -> str:
    """Return a flag's or a parameter's name as the trainer's flags are written: with dashes."""
    return name.replace("_", "-")


def set_flags(container: dict[str, Any], flags: Mapping[str, str | None], *, quoted: bool) -> None:
    """Replace flags of a container's command, or add them at its end; None removes one. Alters the
    container.

    Args:
        flags: Values by flag (``--data``).
        quoted: Whether Katib hands the command to a shell: other than plain values are quoted then.
    """
    if not flags:
        return
    field = "args" if container.get("args") or not container.get("command") else "command"
    if field == "command" and container.get("command"):
        container["args"], field = [], "args"
    for flag, value in flags.items():
        for holder in ("command", "args"):
            if container.get(holder):
                container[holder] = _without(container[holder], flag)
        if value is not None:
            text = f"{flag}={value}"
            plain = _PLAIN.fullmatch(_GIVEN.sub("", text))
            container[field] = [
                *(container.get(field) or []),
                text if plain or not quoted else shlex.quote(text),
            ]
    if container.get("args") == []:
        del container["args"]


def fill(editor: JobEditor, values: Mapping[str, str], *, wrapped: Iterable[str] = ()) -> None:
    """Replace podium's placeholders in a job.

    Args:
        editor: Is altered.
        values: Values of DATA, OUTPUT and NAME; placeholders without a value stay.
        wrapped: Roles whose containers Katib hands to a shell.
    """
    shells = set(wrapped)
    for role, container in editor.containers():
        if role in shells or is_shell(_words_of(container)):
            quoted = {
                name: value if _is_plain(value) else shlex.quote(value)
                for name, value in values.items()
            }
            for field in ("command", "args"):
                if container.get(field):
                    container[field] = [_replaced(word, quoted) for word in container[field]]
    editor.replace_texts(lambda written: _replaced(written, values))


def _is_plain(value: str) -> bool:
    return bool(_PLAIN.fullmatch(_GIVEN.sub("", value)))


def _replaced(written: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        written = written.replace(name, value)
    return written


def _without(arguments: list[str], flag: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for index, argument in enumerate(arguments):
        following = arguments[index + 1] if index + 1 < len(arguments) else "--"
        bare = argument.strip("'")
        if skip:
            skip = False
        elif bare == flag:
            skip = not following.startswith("-")
        elif not bare.startswith(f"{flag}="):
            kept.append(argument)
    return kept
