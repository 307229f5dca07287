"""Data and output paths of a trainer: podium's own gets flags, any other placeholders, variables or
two flags.

A command, its arguments and its environment may hold ``${podium.data}``, ``${podium.output}`` and
``${podium.name}`` anywhere; ``fill`` replaces them. Every container of a trainer also gets
PODIUM_DATA and PODIUM_OUTPUT.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.fields import items
from podium.manifests.job_editor import JobEditor, set_env
from podium.manifests.shell import is_shell, takes_script, words_of
from podium.manifests.workload import uses_builtin_trainer

DATA = "${podium.data}"
"""URI or path of the dataset artifact."""

OUTPUT = "${podium.output}"
"""URI or path where the trainer leaves its model directory."""

NAME = "${podium.name}"
"""Name of the trial or of the training job."""

_VARIABLES = {"PODIUM_DATA": DATA, "PODIUM_OUTPUT": OUTPUT}

_SEED = "PODIUM_SEED"
"""Variable with the seed of a trial that runs again with a fresh one."""

_SEEDED = re.compile(
    r"((?:--|\+{0,2})(?!(?:[\w.]+\.)?(?:data|split|(?:cv|(?:k_?)?folds?)(?![a-z])|cross_?val))"
    r"(?:[\w.]+\.)?(?:(?:random|manual)[-_])?(?:seed|seed[-_]everything|(?<=random.)state))(?:=-?\d+)?"
)
"""Flag or word of Hydra that gives a seed: ``--random-state``, ``--random-state=1``,
``trainer.seed=1``; not that of a division of the data, which stays the same."""

_FOLDS = "podium.code.folds"

FLAGS = {"--data": DATA, "--output": OUTPUT}
"""Flags appended to a command that mentions neither a placeholder nor a variable."""

_COUNT = re.compile(r"((?:^|podium\.code\.folds )--folds=)\d+")
_MARKS = (*_VARIABLES, *_VARIABLES.values())
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
    words = words_of(container)
    set_env(container, [{"name": name, "value": value} for name, value in _VARIABLES.items()])
    if any(mark in written for mark in _MARKS) or is_shell(words) or uses_builtin_trainer(words):
        return
    flags = read_flags(words)
    own = {
        flag for flag in FLAGS if set(PLACEHOLDER.findall(str(flags.get(flag[2:])))) & set(searched)
    }
    set_flags(
        container, {flag: value for flag, value in FLAGS.items() if flag not in own}, quoted=quoted
    )


def set_places(container: dict[str, Any], flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set the variables by which a trainer finds data or output; alters the container.

    Returns:
        The flags that are left: a program that has the variable need not know the flag.
    """
    names = {entry.get("name") for entry in items(container.get("env"))}
    variables = {flag: f"PODIUM_{flag[2:].upper()}" for flag in FLAGS}
    placed = {
        flag: flags[flag] for flag, name in variables.items() if flags.get(flag) and name in names
    }
    set_env(
        container, [{"name": variables[flag], "value": value} for flag, value in placed.items()]
    )
    has = read_flags(words_of(container))
    return {flag: value for flag, value in flags.items() if flag not in placed or flag[2:] in has}


def set_seed(container: dict[str, Any], seed: str, *, quoted: bool) -> None:
    """Give a trainer a seed: PODIUM_SEED, and ``--seed`` if it is podium's or its command has that
    flag, or another word for it such as ``--random-state 1`` or Hydra's ``seed=1``. Alters the
    container.

    Args:
        quoted: Whether Katib hands the command to a shell.
    """
    words = words_of(container)
    set_env(container, [{"name": _SEED, "value": seed}])
    if uses_builtin_trainer(words) or "seed" in read_flags(words):
        set_flags(container, {"--seed": seed}, quoted=quoted)
    _rewrite(container, partial(_reseeded, seed=seed))


def _rewrite(container: dict[str, Any], change: Callable[[list[str]], list[str]]) -> None:
    for field in ("command", "args"):
        if container.get(field):
            container[field] = change(container[field])


def _reseeded(words: Sequence[str], seed: str) -> list[str]:
    """Return words of a command in which those that name a seed have this one."""
    found = list(words)
    for at, word in enumerate(words):
        if not (match := _SEEDED.fullmatch(word)):
            continue
        if "=" in word:
            found[at] = f"{match[1]}={seed}"
        elif word.startswith("--") and words[at + 1 : at + 2] and words[at + 1].isdecimal():
            found[at + 1] = seed
    return found


def set_folds(container: dict[str, Any], count: int, *, quoted: bool) -> None:
    """Let a trainer run folds: podium's by a flag, another by the program that calls it for each.
    Alters the container.

    Args:
        quoted: Whether Katib hands the command to a shell.
    """
    words = words_of(container)
    if uses_builtin_trainer(words):
        set_flags(container, {"--folds": str(count)}, quoted=quoted)
    elif any(_FOLDS in word for word in words):
        _rewrite(container, lambda words: [_COUNT.sub(rf"\g<1>{count}", word) for word in words])
    else:
        run_by(container, ["python", "-m", _FOLDS, f"--folds={count}", "--"])


def run_by(container: dict[str, Any], prefix: Sequence[str]) -> None:
    """Put words before a container's command: a program that runs it. Alters the container.

    Raises:
        InvalidInput: It leaves its command to the image.
    """
    command = [str(word) for word in container.get("command") or []]
    if not command:
        hint = "write the command of the image into the manifest"
        problem = f"container {container.get('name')} has no command that {prefix[2]} could run"
        raise InvalidInput(problem, hint)
    words = words_of(container)
    if not takes_script(words) or len(words) == 2:
        container["command"] = [*prefix, *command]
        return
    # Katib joins words without quotes unless the first are a shell's, so the shell stays in front.
    script = shlex.join([*prefix, words[0], "-c", words[2]])
    rest = words[3:]
    container["command"] = [*words[:2], f'{script} "$0" "$@"' if rest else script, *rest]
    container.pop("args", None)


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
    for flag, value in flags.items():
        _rewrite(container, partial(_without, flag=flag))
        if value is not None:
            text = f"{flag}={value}"
            word = _for_shell(text) if quoted else text
            container["args"] = [*(container.get("args") or []), word]
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
    quoted = {name: _for_shell(value) for name, value in values.items()}
    for role, container in editor.containers():
        if role in shells or is_shell(words_of(container)):
            _rewrite(container, lambda words: [_replaced(word, quoted) for word in words])
    editor.replace_texts(lambda written: _replaced(written, values))


def _for_shell(value: str) -> str:
    return value if _PLAIN.fullmatch(_GIVEN.sub("", value)) else shlex.quote(value)


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
