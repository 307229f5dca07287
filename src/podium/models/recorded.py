"""Answers of two versions to the same requests, as ``podium serve --record`` writes them.

A folder or bucket holds objects of JSON lines for each model, ``MODEL/TIME-WRITER.jsonl``. A line
is a request: ``id``, ``time``, ``answers``, by version, that of the client's first, and ``digests``
of these versions' files. An answer has for each item its prediction (probabilities, a class index,
a number, or null) and ``items``, the hash of its inputs; it is null where the version failed. The
inputs themselves are not kept.
"""

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from podium.errors import Damaged, NotFound, PodiumError
from podium.models.document import check_name
from podium.models.version import Version
from podium.storage import Entry, connect

MOST_BYTES = 256 << 20
"""Bytes that are kept of a model's answers; the oldest are deleted beyond."""

_HOUR = 3600.0
"""Seconds that a server writes into the same object: one a minute would be half a million a year."""

_ENDING = ".jsonl"
_SEGMENT = re.compile(r"\d{20}-\d+-[0-9a-f]{8}\.jsonl")
"""Name of an object that a server wrote; others in the folder are somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A version's answer to a request."""

    predicted: tuple[Any, ...]
    """Of each item: probabilities, a class index or a number; None where it has none."""

    items: tuple[str, ...]
    """Hash of the inputs of each, hexadecimal; empty where it has none."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and the answers to it."""

    id: str
    time: datetime
    answers: Mapping[str, Answer]
    """By version; a version that failed is missing."""

    failed: tuple[str, ...]
    digests: Mapping[str, str]
    """digest_of each of them: another registry may have another model of that name."""

    @classmethod
    def parse(cls, line: bytes, where: str) -> "Exchange":
        """Read a line.

        Raises:
            Damaged: It is not one.
        """
        try:
            document = json.loads(line)
            answers = {
                str(version): Answer(
                    predicted=tuple(answer["predicted"]),
                    items=tuple(
                        f"{int(item, 16):016x}" if item else "" for item in answer["items"]
                    ),
                )
                for version, answer in document["answers"].items()
                if answer is not None
            }
            if any(len(answer.predicted) != len(answer.items) for answer in answers.values()):
                raise ValueError("an answer has more predictions than items, or fewer")
            counts = [len(answer.items) for answer in answers.values()]
            # One of another number of items than the client's failed: they pair with no label.
            answers = {name: each for name, each in answers.items() if len(each.items) == counts[0]}
            moment = datetime.fromisoformat(document["time"]).astimezone(UTC)
            failed = tuple(sorted(document["answers"].keys() - answers))
            digests = {
                version: str(document["digests"][version]) for version in document["answers"]
            }
            return cls(
                id=str(document["id"]), time=moment, answers=answers, failed=failed, digests=digests
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Damaged(
                f"{where} is not a recorded answer: {error!r:.200}", "move that file elsewhere"
            ) from None


def digest_of(version: Version) -> str:
    """Return what tells the files of a version, under whatever name and in whatever registry."""
    files = sorted((name, file.sha256) for name, file in version.files.items())
    return sha256(repr(files).encode()).hexdigest()[:16]


class Recording:
    """The recorded answers of a model.

    Args:
        url: Directory or URI of the folder, which may hold those of several models.
        model: Its name.
        most: Bytes that are kept.
    """

    def __init__(self, url: str | Path, model: str, most: int = MOST_BYTES) -> None:
        self._storage, self._most = connect(url), most
        self._prefix = f"{check_name('model name', model)}/"
        self._writer = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._key, self._written, self._until = "", b"", 0.0
        self.url = self._storage.join(self._prefix.rstrip("/"))

    def check_writable(self) -> None:
        """Write an object, delete it, and list what is there.

        Raises:
            PodiumError: It cannot be written.
        """
        key = f"{self._prefix}{self._writer}.probe"
        try:
            self._storage.put(key, b"")
            self._storage.delete(key)
            self._segments()
        except OSError as error:
            raise PodiumError(
                f"answers cannot be recorded in {self.url}: {error.strerror}",
                "--record names a directory or a URI that can be written",
            ) from None

    def add(self, lines: bytes) -> None:
        """Write lines, after deleting the oldest objects, of any writer, beyond the size: who adds
        them again after an error has not written them before.

        An object takes the lines of an hour, if they are few and nobody has removed it.
        """
        entries = self._segments()
        excess = sum(entry.size for entry in entries) + len(lines) - self._most
        while entries and excess > 0:
            oldest = entries.pop(0)
            self._storage.delete(oldest.key)
            excess -= oldest.size
        is_mine = (self._key, len(self._written)) in {(each.key, each.size) for each in entries}
        is_full = len(self._written) + len(lines) > self._most >> 8
        if not is_mine or is_full or time.monotonic() > self._until:
            self._key = f"{self._prefix}{time.time_ns():020d}-{self._writer}{_ENDING}"
            self._written, self._until = b"", time.monotonic() + _HOUR
        self._storage.put(self._key, self._written + lines)
        self._written += lines

    def __iter__(self) -> Iterator[Exchange]:
        """Yield what is recorded, oldest first.

        Raises:
            NotFound: Nothing is.
            Damaged: A line is not a recorded answer.
        """
        entries = self._segments()
        if not entries:
            raise NotFound(
                f"there are no recorded answers in {self.url}",
                "podium serve NAME --shadow VERSION --record DIRECTORY records them",
            )
        for entry in entries:
            with suppress(NotFound):  # a server has just deleted it as the oldest one
                for number, line in enumerate(self._storage.get(entry.key).splitlines(), 1):
                    yield Exchange.parse(line, f"{self._storage.join(entry.key)}, line {number},")

    @cached_property
    def requests(self) -> tuple[dict[str, Exchange], set[str]]:
        """Requests by id, and ids that stand for different items; one that came again with the same
        items is one request."""
        exchanges, ambiguous = dict[str, Exchange](), set[str]()
        for exchange in self:
            if not exchange.answers:
                continue
            earlier = exchanges.setdefault(exchange.id, exchange)
            if earlier is exchange:
                continue
            if not _same(earlier, exchange):
                ambiguous.add(exchange.id)
            both = {**exchange.answers, **earlier.answers}
            answers = {name: both[name] for name in dict.fromkeys([*earlier.answers, *both])}
            failed = {*earlier.failed, *exchange.failed} - both.keys()
            # Another model of that name may have answered what this one failed on.
            said = exchange.answers.keys() - earlier.answers.keys()
            later = {name: exchange.digests[name] for name in said}
            exchanges[exchange.id] = Exchange(
                id=exchange.id,
                time=earlier.time,
                answers=answers,
                failed=tuple(sorted(failed)),
                digests={**exchange.digests, **earlier.digests, **later},
            )
        return {name: each for name, each in exchanges.items() if name not in ambiguous}, ambiguous

    def _segments(self) -> list[Entry]:
        """Return what servers wrote, in the order of their times."""
        listed = self._storage.list(self._prefix)
        return [each for each in listed if _SEGMENT.fullmatch(each.key, len(self._prefix))]


def _same(one: Exchange, other: Exchange) -> bool:
    return any(
        first.items == second.items
        for first in one.answers.values()
        for second in other.answers.values()
    )
