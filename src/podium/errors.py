"""Every error podium raises on purpose.

An error says what must hold, what was given and, as a hint, what to do::

    PodiumError             exit 1: something failed
    ├── InvalidInput        exit 2: the user's input breaks a rule; nothing was changed
    ├── NotFound            a key, object or version that is not there
    ├── Conflict            a conditional write lost, or a name is taken
    ├── Damaged             bytes that do not match their checksum
    ├── Unavailable         a server does not answer, or asks to come back later
    ├── UnknownKind         a cluster does not know a kind of object: its operator is not installed
    ├── Denied              a server does not allow it: a right or the right credentials are missing
    └── Failed              a job, trial, step or run ended badly
"""

import difflib
from collections.abc import Iterable
from typing import Any


class PodiumError(Exception):
    """Base of all errors shown to users without a traceback.

    Args:
        message: What must hold and what was given, in one sentence.
        hint: What to do about it; printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class InvalidInput(PodiumError):
    """The input breaks a rule; nothing was changed."""

    exit_code = 2


class NotFound(PodiumError):
    """What was asked for does not exist."""


class UnknownKind(PodiumError):
    """The cluster does not know the kind: its operator is not installed."""


class Conflict(PodiumError):
    """Somebody else was faster, or the name is taken."""


class Damaged(PodiumError):
    """Bytes do not match the checksum recorded for them."""


class Unavailable(PodiumError):
    """A server does not answer, or not now: nothing is known about what it keeps, and later it may answer."""


class Denied(PodiumError):
    """A server does not allow it. One that has just started may refuse for seconds what it allows then."""


class Failed(PodiumError):
    """Something that was started ended badly."""


def require(holds: bool, law: str, hint: str | None = None, **given: Any) -> None:
    """Raise InvalidInput unless a law holds.

    Args:
        holds: Whether it does.
        law: The law as an expression, for example ``workers >= 1``.
        hint: What to do if it does not hold.
        **given: The values that decide, by name.

    Raises:
        InvalidInput: "`workers >= 1` must hold, but got workers=0".
    """
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise InvalidInput(f"`{law}` must hold, but got {values}", hint)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a hint that names what the user may have meant, or everything there is."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5) or [one for one in names if word and word in one]
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"
