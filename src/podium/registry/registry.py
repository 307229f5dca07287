"""A model registry on a bare storage: versions, the champion, and how it came to be one."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from podium.errors import NotFound, require
from podium.registry import content, index, moves, pointer
from podium.registry.collect import GRACE, Garbage, garbage, remove, retired
from podium.registry.document import check_name, warn_once
from podium.registry.index import Summary
from podium.registry.pointer import CHAMPION
from podium.registry.record import Record
from podium.registry.repair import Repair, repair
from podium.registry.upload import upload
from podium.registry.verify import Finding, verify
from podium.registry.version import METADATA, Version, exists, load, names_below
from podium.storage import Storage
from podium.storage.base import Progress


class Registry:
    """Models under ``models/`` of a storage. All state is there: open as many as you like, anywhere."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def models(self) -> list[str]:
        """Return the names of all models."""
        return names_below(self.storage, "models")

    def upload(
        self,
        name: str,
        files: Mapping[str, Path | bytes],
        metadata: Mapping[str, Any],
        version: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Version:
        """Store a version; it becomes visible whole, by its metadata.json which is written last.

        Uploading the same again returns the version that is there: a step that is retried or fires twice makes
        one version.

        Args:
            name: The model.
            files: What to store, by name; files are streamed.
            metadata: Plain JSON. The registry itself reads ``run_id``, ``metrics`` (``accuracy``), ``dataset``
                (``digest``, ``test_digest``) and ``report`` (``classes``, ``confusion``).
            version: Its id; metadata["run_id"] if None, else a name derived from the content.
            progress: Told of every chunk of every file.

        Raises:
            InvalidInput: A name, a file or the metadata breaks a rule; nothing was written.
            Conflict: This version is there with other content.
        """
        return upload(self.storage, name, files, metadata, version, progress)

    def versions(self, name: str) -> list[Summary]:
        """Return one line for each complete version, oldest first."""
        return index.listing(self.storage, check_name("model name", name))

    def champion(self, name: str) -> Version | None:
        """Return the champion; None if there is none, or if its version is gone.

        Raises:
            Damaged: Nobody can say which it is, or its metadata.json is damaged.
        """
        held, _ = pointer.read(self.storage, check_name("model name", name), CHAMPION)
        if held is None or held.points_at is None:
            return None
        champion = load(self.storage, name, held.points_at)
        if champion is None:
            warn_once(f"the champion of {name} in {self.storage.url} is {held.points_at}, which is gone")
        return champion

    def aliases(self, name: str) -> dict[str, Record]:
        """Return what each alias points at and since when, by alias."""
        return pointer.aliases(self.storage, check_name("model name", name))

    def history(self, name: str) -> list[Record]:
        """Return every promotion, refusal, rollback, alias move and deletion, oldest first."""
        return pointer.history(self.storage, check_name("model name", name))

    def resolve(self, name: str, ref: str = CHAMPION) -> Version:
        """Return a version by its id or by an alias.

        Raises:
            NotFound: There is neither; the message names what there is.
            Damaged: The alias or metadata.json does not match its checksum.
        """
        check_name("model name", name)
        check_name("version or alias", ref)
        held, _ = pointer.read(self.storage, name, ref)
        if held and (held.points_at is None or not exists(self.storage, name, held.points_at)):
            raise NotFound(
                f"the {ref} of {name} in {self.storage.url} was {held.version}, which is gone",
                f"podium models list {name} shows what could take its place",
            )
        return content.whole(self.storage, name, held.version if held else ref)

    def read(self, version: Version, file: str) -> bytes:
        """Return the verified bytes of one file.

        Raises:
            NotFound: The version has no such file.
            Damaged: What is stored is not what was uploaded.
        """
        content.require_part(version, file)
        return content.read(self.storage, version, file)

    def fetch(
        self,
        name: str,
        ref: str,
        target: Path,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Version:
        """Download a version, verify every file, and only then let the directory appear.

        Args:
            name: The model.
            ref: A version or an alias.
            target: A directory that does not exist yet, or is empty.
            files: Only these; all and metadata.json if None.
            progress: Told of every chunk.

        Raises:
            InvalidInput: The target is taken, or a file is not part of the version.
            Damaged: A file does not match its sha256; the target is not touched.
        """
        version = self.resolve(name, ref)
        free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
        require(free, "the target is empty, or not there yet", "name another directory", target=str(target))
        for file in files or ():
            content.require_part(version, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".podium-", dir=target.parent) as scratch:
            whole = Path(scratch) / "version"
            whole.mkdir()
            for file in version.files if files is None else files:
                content.fetch(self.storage, version, file, whole / file, progress)
            if files is None:
                self.storage.fetch(f"{version.prefix}/{METADATA}", whole / METADATA)
            os.replace(whole, target)
        return version

    def promote(self, name: str, version: str, evidence: Mapping[str, Any], expect: str | None) -> Record:
        """Make a version champion after verifying every byte of it, if the champion is the one it was compared with.

        Args:
            name: The model.
            version: The challenger; it must be complete.
            evidence: Why: the decision and its figures. Goes into the history.
            expect: The champion at the time of the comparison; None if there was none, or none that is still there.

        Returns:
            The new record; the one that stands if the version is champion already.

        Raises:
            NotFound: There is no such version.
            Damaged: A file of it is missing or damaged; the champion stays.
            Conflict: The champion is another one by now: compare again.
        """
        found = content.whole(self.storage, name, version)
        content.verify_files(self.storage, found)
        return moves.move(self.storage, "promotion", name, CHAMPION, found.version, evidence=evidence, expect=(expect,))

    def alias(self, name: str, alias: str, ref: str, reason: str = "") -> Record:
        """Point an alias of your own at a version (or at what another alias points at).

        Raises:
            InvalidInput: It is the champion's alias, or a version is called like that.
            NotFound: There is no such version.
        """
        check_name("alias", alias)
        require(alias != CHAMPION, "the champion moves by promote and rollback", alias=alias)
        require(load(self.storage, name, alias) is None, "an alias is not called like a version", alias=alias)
        found = self.resolve(name, ref)
        return moves.move(self.storage, "alias", name, alias, found.version, evidence={"reason": reason})

    def rollback(self, name: str, to: str | None = None, reason: str = "") -> Record:
        """Make an earlier version champion again, after verifying every byte of it.

        Args:
            name: The model.
            to: Which; the champion's predecessor if None. Rolling back twice goes back two steps.
            reason: Goes into the history.

        Raises:
            NotFound: There is no champion, no predecessor, or it was deleted.
            Damaged: The version to go back to is damaged; the champion stays.
        """
        return moves.rollback(self.storage, check_name("model name", name), to, reason)

    def verify(self, name: str, checked: Callable[[int], None] = lambda size: None) -> Iterator[Finding]:
        """Read everything of a model and yield what is wrong with it.

        Args:
            name: The model.
            checked: Told the size of each file that was read.
        """
        return verify(self.storage, check_name("model name", name), checked)

    def repair(self, name: str) -> list[Repair]:
        """Restore damaged aliases from the history, and the history from the aliases; tell what became of each."""
        return list(repair(self.storage, check_name("model name", name)))

    def gc(self, name: str, *, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find what killed uploads, deletions and writes left, and is older than the grace period.

        Args:
            name: The model.
            grace: What is younger may still be in the making.
            delete: Remove it as well; by default it is only told.
        """
        return list(garbage(self.storage, check_name("model name", name), grace=grace, delete=delete))

    def retire(self, name: str, *, keep: int, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find versions beyond the newest few that no alias, no rollback and no grace period protects.

        Args:
            name: The model.
            keep: How many of the newest stay.
            grace: Versions uploaded, or replaced, less than this ago stay.
            delete: Remove them as well, with a record in the history.
        """
        return list(retired(self.storage, check_name("model name", name), keep=keep, grace=grace, delete=delete))

    def remove(self, name: str, version: str, reason: str = "") -> Record:
        """Delete one version, with a record in the history.

        Raises:
            NotFound: There is no such version.
            Conflict: An alias, or the champion's rollback, needs it.
        """
        return remove(self.storage, check_name("model name", name), check_name("version", version), reason)
