"""--notify, which commands that run something to its end share."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podium.terminal import echo

if TYPE_CHECKING:
    from podium.notify import Notice, Target

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Notifier:
    """Who is told at the end."""

    targets: "tuple[Target, ...]" = ()
    texts: tuple[str, ...] = ()
    """As given."""

    @contextmanager
    def about(self, what: str, **known: Any) -> "Iterator[Notice]":
        """Notify when the context ends; it fills in the notice as more becomes known.

        Args:
            what: ``run``, ``Experiment``, ``job``.
            known: Fields of the notice.
        """
        from podium.notify import Notice, notified

        with notified(self.targets, Notice(what=what, **known), lambda line: echo(line, err=True)) as notice:
            yield notice


def notify_option(command: F) -> F:
    """Add --notify; the command gets ``notifier``."""

    @click.option(
        "--notify",
        "targets",
        multiple=True,
        metavar="URL|COMMAND",
        help="Tell a webhook, or a command by JSON on its stdin, how it ended; may be repeated.",
    )
    @functools.wraps(command)
    def with_notifier(*args: Any, targets: tuple[str, ...], **options: Any) -> Any:
        from podium.notify import parse_target

        notifier = Notifier(tuple(map(parse_target, targets)), targets)
        return command(*args, notifier=notifier, **options)

    return with_notifier  # type: ignore[return-value]
