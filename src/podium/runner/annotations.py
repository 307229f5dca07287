"""The note and the tags of a run in run.json, which any process may change while the run's own
writes it."""

import fcntl
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.display.text import as_note
from podium.errors import InvalidInput, NotFound
from podium.files.documents import parse, parse_member, read_json
from podium.files.drafts import appearing

EDIT_LOCK = "edit-lock"
"""File in a run's directory that is locked while run.json is read and rewritten."""

TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """A user's note and tags on a run."""

    note: str = ""
    tags: tuple[str, ...] = ()
    """In the order they were given."""

    @classmethod
    def read(cls, directory: Path) -> "Annotations":
        """Read those of a run.

        Raises:
            NotFound: There is no such run.
            InvalidInput: Its record is damaged.
        """
        return cls._of(_record(directory), str(directory / "run.json"))

    @classmethod
    def _of(cls, record: dict[str, Any], name: str) -> "Annotations":
        note = parse_member(str, record.get("note", ""), name, "note")
        return cls(
            note=note, tags=parse_member(tuple[str, ...], record.get("tags", []), name, "tags")
        )

    def noted(self, text: str) -> "Annotations":
        """Return them with another note; empty for none.

        Raises:
            InvalidInput: It is too long.
        """
        return replace(self, note=as_note(text))

    def tagged(self, names: Iterable[str]) -> "Annotations":
        """Return them with more tags.

        Raises:
            InvalidInput: One is not a word of at most 40 letters, digits, dots, dashes and
                underscores.
        """
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if not TAG.fullmatch(name):
                rule = "a tag has at most 40 letters, digits, ., - and _, and begins and ends with a letter or digit"
                raise InvalidInput(f"{rule}, but got {name!r}", "for example baseline, or lr-0.1")
        return replace(self, tags=tuple(dict.fromkeys([*self.tags, *names])))

    def untagged(self, names: Sequence[str]) -> "Annotations":
        """Return them without some tags.

        Raises:
            NotFound: There is no such tag.
        """
        if missing := [name for name in names if name not in self.tags]:
            raise NotFound(
                f"there is no tag {missing[0]!r}", f"its tags: {', '.join(self.tags) or 'none'}"
            )
        return replace(self, tags=tuple(tag for tag in self.tags if tag not in names))


@contextmanager
def editing(directory: Path) -> Iterator[None]:
    """Hold the lock that everybody holds who reads and writes run.json; the kernel releases it with
    the process."""
    with (directory / EDIT_LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def annotate(directory: Path, change: Callable[[Annotations], Annotations]) -> Annotations:
    """Change the annotations of a run, whether it runs or not; nothing else in its record is
    touched.

    Raises:
        NotFound: There is no such run.
        InvalidInput: Its record is damaged, or the change is refused.
    """
    path = directory / "run.json"
    _record(directory)  # there is one: else its lock would appear in a directory that is no run's
    with editing(directory):
        record = _record(directory)
        changed = change(Annotations._of(record, str(path)))
        with appearing(path) as draft:
            draft.write_text(
                json.dumps({**record, "note": changed.note, "tags": changed.tags}, indent=1) + "\n"
            )
    return changed


def _record(directory: Path) -> dict[str, Any]:
    path = directory / "run.json"
    try:
        return parse(dict[str, Any], read_json(path), str(path))
    except FileNotFoundError:
        raise NotFound(
            f"there is no run {directory.name!r} in {directory.parent}", "podium runs list"
        ) from None
