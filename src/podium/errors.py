"""Every error podium raises on purpose.

A message is one sentence with the offending value; a hint says what to do::

    PodiumError             exit 1: something failed
    ├── InvalidInput        exit 2: the user's input breaks a rule; nothing was changed
    ├── NotFound            a key, object or version that does not exist
    │   └── NoSuchKey       the same of ``podium.registry()[…]`` and ``podium.runs()[…]``
    ├── Conflict            a conditional write lost the race, or a name is taken
    ├── Damaged             bytes that do not match their checksum
    ├── Untrusted           a model without a valid signature, where one is asked for
    ├── Unavailable         a server does not answer, or asks to be called later
    ├── UnknownKind         a cluster does not know a kind of object: its operator is not installed
    ├── Denied              a server refuses: permissions or credentials are missing
    └── Failed              a job, trial, step or run ended badly
"""

import difflib
import errno
import os
import shlex
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_OTHERS = (f"{Path(__file__).parent}/", "/site-packages/")
"""Parts of a path that mark code as not the user's."""


class PodiumError(Exception):
    """Base of all errors that users see without a traceback.

    Args:
        message: One sentence with the offending value.
        hint: Suggested fix, printed on its own line.
        fix: Values of a pipeline's parameters with which it would not occur; empty where there is
            more than one way.
    """

    exit_code = 1

    def __init__(
        self, message: str, hint: str | None = None, fix: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fix = fix or {}

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for a notebook (IPython: docs/source/config/integrating.rst): the
        user's lines, no others."""
        frames = traceback.extract_tb(self.__traceback__)
        own = [frame for frame in frames if not any(part in frame.filename for part in _OTHERS)]
        return [
            *(line.rstrip("\n") for line in traceback.format_list(own)),
            f"{type(self).__name__}: {self}",
        ]


_SHOWN = "`ls -la {folder}` shows what is there, and who may use it"
_FILE_HINTS = {
    errno.EACCES: _SHOWN,
    errno.EDQUOT: "delete what is not needed, or have the quota raised: `quota -s` shows it",
    errno.EEXIST: _SHOWN,
    errno.EFBIG: "let files be larger: `ulimit -f` shows how large",
    errno.EIO: "check the disk, or the network behind it: `dmesg` may say more",
    errno.EISDIR: _SHOWN,
    errno.EMFILE: "let a process open more files: `ulimit -n` shows how many, `ulimit -n $(ulimit -Hn)` raises it",
    errno.ENAMETOOLONG: "choose a shorter name: most file systems take 255 bytes",
    errno.ENFILE: "end other programs: `cat /proc/sys/fs/file-nr` shows how many files are open",
    errno.ENOENT: "check the path",
    errno.ENOSPC: "free some space: `df -h` shows how much there is, `df -i` for how many files",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.ENOTEMPTY: _SHOWN,
    errno.EPERM: _SHOWN,
    errno.EROFS: "choose a directory that can be written",
}


def file_hint(error: OSError) -> str | None:
    """Return what to do where a machine refuses a file; None for errors of a network and the like."""
    hint = _FILE_HINTS.get(error.errno or 0)
    path = error.filename if isinstance(error.filename, str) else ""
    return hint and hint.format(folder=shlex.quote(os.path.dirname(path) or "."))


def of_this_machine(error: BaseException) -> PodiumError | None:
    """Return the sentence for what a machine refuses: memory, space, a file; None for any other
    error, as those of a network are."""
    if isinstance(error, MemoryError):
        detail = f": {error}" if str(error) else ""
        return PodiumError(
            f"there is not enough memory{detail}",
            "`free -h` shows how much there is; fewer items or fewer trials at a time take less",
        )
    if isinstance(error, FileNotFoundError) and not error.filename and _stands_nowhere():
        return PodiumError("the working directory was removed", "cd to one that is there")
    if isinstance(error, OSError) and (hint := file_hint(error)):
        where = f"{error.filename}: " if error.filename else ""
        return PodiumError(f"{where}{error.strerror or error}", hint)
    return None


def _stands_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


class InvalidInput(PodiumError):
    """The input breaks a rule; nothing was changed."""

    exit_code = 2


class NotFound(PodiumError):
    """The requested object does not exist."""


class NoSuchKey(NotFound, KeyError):
    """A mapping does not have the key: ``in`` and ``get`` of Python's mappings ask for a KeyError."""


class UnknownKind(PodiumError):
    """The cluster does not know the kind: its operator is not installed."""


class Conflict(PodiumError):
    """Another writer was faster, or the name is taken."""


class Damaged(PodiumError):
    """Bytes do not match the checksum recorded for them."""


class Untrusted(PodiumError):
    """A model has no valid signature, where one is required."""


class Unavailable(PodiumError):
    """A server does not answer now; its state is unknown, and a later call may succeed."""


class Denied(PodiumError):
    """A server refuses. One that has just started may refuse for seconds what it then allows."""


class Failed(PodiumError):
    """Something that was started failed."""


def require(holds: bool, rule: str, /, hint: str | None = None, **parameters: Any) -> None:
    """Raise InvalidInput unless a rule holds.

    Args:
        rule: The rule as an expression, for example ``workers >= 1``.
        hint: Suggested fix if it does not hold.
        **parameters: The values it is about, by name.

    Raises:
        InvalidInput: "`workers >= 1` must hold, but got workers=0".
    """
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
        raise InvalidInput(f"`{rule}` must hold, but got {values}", hint)


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return a hint with the name the user may have meant, or with at most 20 names, if any."""
    names, word = list(choices), word[:200]
    close = (
        [name for name in names if len(word) > 2 and name.startswith(word)]
        or difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        or [name for name in names if word and word in name]
    )
    if close:
        return f"did you mean {close[0]}?"
    more = f", … ({len(names)} in all)" if len(names) > 20 else ""
    return f"one of {', '.join(names[:20])}{more}" if names else "there are none yet"


def require_known(names: Iterable[str], choices: Iterable[str], problem: str) -> None:
    """Raise InvalidInput for the first name that is not known, with a suggestion.

    Args:
        problem: Sentence that ends with the name, for example ``there is no parameter``.
    """
    choices = list(choices)
    for name in names:
        if name not in choices:
            raise InvalidInput(f"{problem} {name!r}", suggestion(str(name), choices))
