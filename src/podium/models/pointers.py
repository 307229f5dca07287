"""Aliases such as ``champion``, moved by compare-and-swap.

An alias object holds the whole record of the move that set it, not only the version it points at.
It is the write-ahead log of its own history::

    1. read the alias, with its etag
    2. make sure that the record it holds is in history/ (put if absent)
    3. replace the alias on condition that its etag is unchanged   <- the move happens here, or not
      at all
    4. put the new record into history/

If a process dies between 3 and 4, the record is still in the alias: every reader of the history
counts it, and the next move writes it in its step 2 before it replaces the alias. A mover that
loses at 3 leaves nothing behind.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from podium.errors import Conflict, Damaged, NotFound
from podium.models.catalog import Catalog
from podium.models.document import MAX_BYTES, is_name, just_after, warn_once
from podium.models.journal import Journal, Record

CHAMPION = "champion"


class AliasLost(Damaged):
    """The alias is damaged, and so is its record in the history.

    Args:
        etag: The damaged alias's, for a move that replaces it.
    """

    def __init__(self, message: str, etag: str) -> None:
        super().__init__(
            message,
            "restore one of them from a backup, or move the alias: podium models promote, or rollback --to VERSION",
        )
        self.etag = etag


class Pointers:
    """The objects below ``models/<name>/aliases/``."""

    def __init__(self, catalog: Catalog, journal: Journal) -> None:
        self.storage = catalog.storage
        self.name = catalog.name
        self.catalog = catalog
        self.journal = journal
        self.prefix = f"models/{self.name}/aliases"

    def key(self, alias: str) -> str:
        """Return the key of an alias."""
        return f"{self.prefix}/{alias}.json"

    def names(self) -> list[str]:
        """Return the names of all aliases."""
        names = [
            entry.key.removeprefix(f"{self.prefix}/")
            for entry in self.storage.list(f"{self.prefix}/")
        ]
        return [
            alias.removesuffix(".json")
            for alias in names
            if alias.endswith(".json") and is_name(alias)
        ]

    def parse(self, content: bytes, alias: str) -> Record:
        """Parse an alias.

        Raises:
            Damaged: It does not match its checksum, or is another alias.
        """
        where = self.storage.join(self.key(alias))
        record = Record.unseal(content, where, self.name)
        if record.alias != alias:
            raise Damaged(f"{where} is the alias {record.alias}", "it was copied there")
        return record

    def read(self, alias: str) -> tuple[Record | None, str | None]:
        """Return the record an alias holds and the etag for the next move; (None, None) if there is
        no such alias.

        A damaged alias is read from the history, which holds the same record.

        Raises:
            AliasLost: The record in the history is damaged, too.
        """
        try:
            content, entry = self.storage.read(self.key(alias), limit=MAX_BYTES + 1)
        except NotFound:
            return None, None
        try:
            return self.parse(content, alias), entry.etag
        except Damaged as error:
            last = self._from_journal(alias, error, entry.etag)
            warn_once(
                f"{error.message}; its record in the history is used instead (podium models repair {self.name})"
            )
            return last, entry.etag

    def _from_journal(self, alias: str, cause: Damaged, etag: str) -> Record:
        last, lost = self.journal.load().last_move(alias)
        if last is None or lost:
            also = f"so is {', '.join(lost)}" if lost else "the history has no move of it"
            raise AliasLost(f"{cause.message}; {also}", etag)
        return last

    def held(self, *, strict: bool = True) -> dict[str, Record]:
        """Return the record that each alias holds, including aliases whose version was withdrawn.

        Args:
            strict: Raise AliasLost for an unreadable alias; otherwise leave it out with a warning.
        """
        held = {}
        for alias in self.names():
            try:
                record, _ = self.read(alias)
            except Damaged as error:
                if strict:
                    raise
                warn_once(error.message)
                continue
            if record:
                held[alias] = record
        return held

    def events(self) -> list[Record]:
        """Return the whole history in order of time, including records that only an alias holds so
        far.

        A damaged record that no alias holds is left out with a warning.
        """
        entries = self.journal.load()
        events = {record.id: record for record in entries.records}
        held = self.held(strict=False).values()
        for record in held:
            events.setdefault(record.id, record)
        for key in entries.damaged.keys() - {record.key for record in held}:
            warn_once(f"{entries.damaged[key].message}; the rest of the history is shown")
        return sorted(events.values(), key=lambda record: (record.time, record.sequence))

    def move(
        self,
        event: str,
        alias: str,
        version: str,
        *,
        evidence: Mapping[str, Any],
        expect: tuple[str | None, ...] = (),
    ) -> Record:
        """Move an alias to a complete version.

        Args:
            event: promotion, rollback or alias.
            expect: The version it must point at now, None for no version; an empty tuple allows
                any.

        Returns:
            The new record, or the current one if the alias already points there.

        Raises:
            Conflict: It points at another version than expected.
            NotFound: The version was deleted meanwhile.
        """
        while True:
            current, etag = self._read_for_move(alias)
            target = current.points_at if current else None
            if current and target == version:
                self.journal.write(current)
                return current
            # An alias whose version is gone counts as unset.
            if (
                expect
                and target not in expect
                and not (None in expect and not self.catalog.exists(target or ""))
            ):
                raise Conflict(
                    f"the {alias} of {self.name} is now {target or 'unset'}; {expect[0] or 'none'} was expected",
                    "compare with that one and try again",
                )
            previous = target if event != "rollback" else self._predecessor(version, target)
            wanted = Record.new(
                event, self.name, version, alias=alias, previous=previous, evidence=evidence
            )
            try:
                moved = self._swap(current, etag, wanted)
            except Conflict:
                continue  # another process was faster: read again
            self._undo_if_deleted(moved)
            return moved

    def _read_for_move(self, alias: str) -> tuple[Record | None, str | None]:
        try:
            return self.read(alias)
        except AliasLost as lost:
            warn_once(f"{lost.message}; it is replaced by the next move of {alias}")
            return None, lost.etag

    def _predecessor(self, version: str, target: str | None) -> str | None:
        """Return the champion before ``version`` last became it, so that a second rollback goes
        further back."""
        for record in reversed(self.events()):
            if record.alias == CHAMPION and record.points_at == version:
                return record.previous
        return target

    def _swap(self, current: Record | None, etag: str | None, wanted: Record) -> Record:
        """Perform steps 2 to 4 of a move.

        Args:
            current: The record from read.
            etag: The etag from read.
            wanted: The move; its sequence and replaced are filled in.

        Raises:
            Conflict: The alias changed since it was read; nothing was written.
        """
        alias = wanted.alias
        assert alias is not None
        if current:
            # Hosts whose clocks differ still write a history in the order of the moves.
            wanted = replace(
                wanted,
                sequence=current.sequence + 1,
                replaced=current.points_at,
                time=max(wanted.time, just_after(current.time)),
            )
            self.journal.write(current)
        else:
            wanted = self.journal.renumber(wanted)
        try:
            self.storage.put(self.key(alias), wanted.seal(), if_absent=etag is None, if_match=etag)
        except Conflict:
            # A request whose answer got lost is sent again and then conflicts with itself.
            if not self._took_effect(alias, wanted):
                raise
        self.journal.write(wanted)
        return wanted

    def _took_effect(self, alias: str, wanted: Record) -> bool:
        seen, _ = self.read(alias)
        return (seen is not None and seen.id == wanted.id) or self.storage.head(
            wanted.key
        ) is not None

    def _undo_if_deleted(self, moved: Record) -> None:
        """Undo a move to a version whose deletion began at the same moment."""
        if self.catalog.exists(moved.version):
            return
        assert moved.alias is not None
        current, etag = self.read(moved.alias)
        if current and current.id == moved.id:
            evidence = {
                "reason": f"{moved.version} was deleted while the {moved.alias} moved to it"
            }
            if moved.replaced and self.catalog.exists(moved.replaced):
                previous = self._predecessor(moved.replaced, None)
                back = Record.new(
                    "rollback",
                    self.name,
                    moved.replaced,
                    alias=moved.alias,
                    previous=previous,
                    evidence=evidence,
                )
            else:
                back = Record.new(
                    "withdrawal", self.name, moved.version, alias=moved.alias, evidence=evidence
                )
            self._swap(current, etag, back)
        raise NotFound(
            f"version {moved.version} of {self.name} is being deleted", "promote another one"
        )
