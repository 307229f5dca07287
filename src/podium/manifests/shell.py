"""The shell line that Katib makes of a container's command: its words joined with blanks, unquoted,
for ``sh -c``.

Source: katib 0.19, pkg/webhook/v1beta1/pod/utils.go (wrapWorkerContainer); observed on a real
server, see docs/doctor.md. Nothing is executed here.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from podium.manifests.fields import items

METRICS_FILE = "/var/log/katib/metrics.log"
"""File from which the collector reads the output of a StdOut trial."""

_SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")


def is_shell(words: Sequence[str]) -> bool:
    """Return whether a command line starts a shell."""
    return bool(words) and PurePosixPath(words[0]).name in _SHELLS


def takes_script(words: Sequence[str]) -> bool:
    """Tell whether Katib keeps the shell that is there: only the very words sh or bash, then -c."""
    return len(words) > 1 and words[0] in ("sh", "bash") and words[1] == "-c"


def words_of(container: Mapping[str, Any]) -> list[str]:
    """Return command and args of a container as its manifest has them."""
    return [str(word) for field in ("command", "args") for word in items(container.get(field))]


def join(words: Sequence[str]) -> tuple[tuple[str, str], str]:
    """Return the shell and the script that Katib makes of command and args: joined with blanks,
    unquoted."""
    if takes_script(words):
        return (words[0], words[1]), " ".join(words[2:])
    return ("sh", "-c"), " ".join(words)


def run_by_shell(words: Sequence[str], variables: Sequence[str] = ()) -> list[str]:
    """Return a command that does without Katib what it does in Katib's shell: its words without
    their quotes, or that shell and its script where it does more than that.

    Args:
        words: May hold podium's placeholders, which stand for single words.
        variables: Names that Kubernetes itself replaces as ``$(NAME)`` before the shell sees them.
    """
    effects = (special.text for word in words for special in specials(word, variables))
    begins = bool(words) and (_ASSIGNMENT.match(words[0]) or _SHELL_WORD.fullmatch(words[0]))
    if takes_script(words) or begins or any(not text.startswith("${podium.") for text in effects):
        shell, script = join(words)
        return [*shell, script]
    return [part for word in words for part in shlex.split(word)]


def redirected(script: str, file: str) -> str:
    return f"{script} 1>{file} 2>&1"


def redirect(container: dict[str, Any], file: str) -> None:
    """Let Katib's shell write a container's output to a file, quoted for that shell."""
    shell, script = join(words_of(container))
    container["command"] = [*shell, redirected(script, file)]
    container.pop("args", None)


def needs_shell(container: dict[str, Any]) -> bool:
    """Tell whether a shell would do more to a container's command than split it."""
    words = words_of(container)
    return bool(container.get("command")) and (
        takes_script(words) or _plain_argv(join(words)[1]) is None
    )


def wrap_command(container: dict[str, Any]) -> None:
    """Let a container's command pass through Katib's shell where that makes a difference."""
    if container.get("command"):
        shell, script = join(words_of(container))
        container["command"] = [*shell, script] if needs_shell(container) else _plain_argv(script)
        container.pop("args", None)


_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_SAFE = re.compile(r"(?:[\w@%+=:,./^{}-]|[ \t]|'[^']*')*")
_WORD = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_SHELL_WORD = re.compile(
    r"if|then|else|elif|fi|for|while|until|do|done|case|esac|in|function|select|time|\.|:|alias|bg|break|cd|command|continue"
    r"|eval|exec|exit|export|fg|getopts|hash|jobs|local|read|readonly|return|set|shift|source|times|trap|type|ulimit|umask"
    r"|unalias|unset|wait"
)


def _plain_argv(script: str) -> list[str] | None:
    """Return the words a shell would make of a command line if it would do nothing but split it;
    else None.

    Args:
        script: One line; quotes '…' are understood, everything else that means something to a shell
            is not.
    """
    if not _SAFE.fullmatch(script):
        return None
    words = shlex.split(script)
    if not words or not _WORD.fullmatch(words[0]) or _SHELL_WORD.fullmatch(words[0]):
        return None
    return words


def named_folder(folder: PurePosixPath, words: Iterable[str]) -> PurePosixPath:
    """Return the folder by which words refer to the content of a folder: itself, else its nearest
    parent that they name.

    A program that is given ``--logs=/logs`` may write to ``/logs/test``, where Katib collects.
    """
    texts = list(words)
    if any(str(folder) in text for text in texts):
        return folder
    for above in folder.parents:
        whole = re.compile(rf"(?<![\w.\-/]){re.escape(str(above))}/?(?![\w.\-/])")
        if str(above) != "/" and any(whole.search(text) for text in texts):
            return above
    return folder


_OPERATORS = {
    ";": "ends the command",
    "&": "starts a command in the background",
    "|": "starts a pipe",
    "<": "redirects input",
    ">": "redirects output",
    "(": "is a syntax error",
    ")": "is a syntax error",
    "`": "runs a command",
    "\n": "ends the command",
}
_BLANKS = dict.fromkeys(" \t", "splits it into several words")
_GLOBS = dict.fromkeys("*?[", "is a pattern for file names")
_UNQUOTED = _OPERATORS | _BLANKS | _GLOBS
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\}|[@*#?$!-])")
_KUBERNETES = re.compile(r"\$\(([\w.-]+)\)")


class Special(NamedTuple):
    """A piece of a word that the shell does not leave alone."""

    text: str
    effect: str
    harmless: bool = False
    """Whether it is most likely meant: a variable, a pattern."""


def specials(word: str, variables: Sequence[str] = ()) -> Iterator[Special]:
    """Yield the effects of a POSIX shell on one word of a command line.

    Args:
        word: A word of command or args as written; quotes around a value take effect, an unmatched
            one does not end.
        variables: Names that Kubernetes itself replaces as ``$(NAME)`` before the shell sees them.
    """
    if word == "":
        yield Special("", "vanishes: an empty word needs quotes")
    index, quote = 0, ""
    while index < len(word):
        here = word[index]
        if quote == "'":
            quote = "" if here == "'" else quote
        elif here in "'\"" and not quote:
            quote = here
        elif here == quote:
            quote = ""
        elif match := _KUBERNETES.match(word, index):
            index += len(match[0]) - 1
            if match[1] not in variables:
                yield Special(
                    match[0], "runs a command, for no variable of the container has this name"
                )
        else:
            special = _special(word, index, quote)
            if special:
                yield special
                index += len(special.text) - 1
        index += 1
    if quote:
        yield Special(quote, "opens a quotation that nothing closes")


def _special(word: str, index: int, quote: str) -> Special | None:
    """Describe the effect of the character at an index, outside single quotes."""
    here = word[index]
    if here == "$" and (match := _VARIABLE.match(word, index)):
        return Special(match[0], "is replaced by the variable's value", harmless=True)
    if here == "$" and word[index : index + 2] == "$(":
        return Special("$(", "runs a command")
    if here == "\\" and (not quote or word[index + 1 : index + 2] in ("$", "`", '"', "\\", "\n")):
        return Special(word[index : index + 2], "loses its backslash")
    if here == "`":
        return Special(here, _OPERATORS[here])
    if quote:
        return None
    if here in _UNQUOTED:
        return Special(here, _UNQUOTED[here], harmless=here in _GLOBS)
    starts = index == 0 or word[index - 1] in " \t\n"
    if here == "#" and starts:
        return Special(
            here, "begins a comment: the rest of the line is gone, Katib's redirection too"
        )
    if here == "~" and starts:
        return Special(here, "is replaced by the home directory", harmless=True)
    return None


class _Script(NamedTuple):
    """A script given to ``sh -c``, cut where commands end."""

    commands: tuple[str, ...]

    operators: tuple[str, ...]
    """``;``, ``&&``, ``||``, ``|``, ``&``, a line break, or at the end ``#`` between and after them."""


def split_script(script: str) -> _Script:
    """Cut a script at the operators that stand outside quotes, brackets and braces; comments are
    left out."""
    commands, operators = [""], list[str]()
    index, quote, depth = 0, "", 0
    while index < len(script):
        here = script[index]
        operator = re.compile(r"&&|\|\||;;?|\|&?|(?<![<>])&(?!>)|\n").match(script, index)
        if here == "\\" and quote != "'":
            commands[-1] += script[index : index + 2]
            index += 2
            continue
        if quote:
            quote = "" if here == quote else quote
        elif here == "#" and (not index or script[index - 1] in " \t\n;&|()"):
            index = script.find("\n", index)
            if index < 0:
                return _Script((*map(str.strip, commands), ""), (*operators, "#"))
            continue
        elif here in "'\"`":
            quote = here
        elif here in "({":
            depth += 1
        elif here in ")}":
            depth -= 1
        elif operator and not depth:
            operators.append(operator[0])
            commands.append("")
            index += len(operator[0])
            continue
        commands[-1] += here
        index += 1
    return _Script(tuple(command.strip() for command in commands), tuple(operators))
