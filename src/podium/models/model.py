"""Models in a storage: versions, the champion, and how it became champion."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from podium.drafts import appearing
from podium.errors import Conflict, InvalidInput, NotFound
from podium.models import audit, garbage
from podium.models.audit import Finding, Repair
from podium.models.catalog import Catalog, Summary, names_below
from podium.models.document import check_name, warn_once
from podium.models.garbage import GRACE, Garbage
from podium.models.journal import Journal, Record
from podium.models.pointers import CHAMPION, AliasLost, Pointers
from podium.models.rule import Decision
from podium.models.upload import Upload
from podium.models.version import METADATA, Version
from podium.storage import Storage
from podium.storage.base import Progress
from podium.text import figure


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The outcome of a challenge."""

    decision: Decision
    """Of the rule, against the champion at that moment."""

    record: Record | None
    """The promotion; None if the champion stays."""

    champion: str | None
    """The version it was compared with; None if there was none."""


class Registry:
    """The models below ``models/`` of a storage. All state is in the storage: any number may be open at once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def models(self) -> list[str]:
        """Return the names of all models."""
        return names_below(self.storage, "models")

    def select(self, name: str | None = None) -> "list[Model]":
        """Return the named model, or all.

        Raises:
            NotFound: There is no such model; a misspelled name must not look like an empty one.
        """
        names = self.models()
        if name is not None and name not in names:
            there = f"models there: {', '.join(names) or 'none'}"
            raise NotFound(f"there is no model {name} in {self.storage.url}", there)
        return [self[known] for known in names if name in (None, known)]

    def __getitem__(self, name: str) -> "Model":
        """Return a model, whether it has versions yet or not.

        Raises:
            InvalidInput: It is not a model name.
        """
        return Model(self.storage, name)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A model in a list of models."""

    name: str
    versions: int
    champion: str | None
    metric: str | None
    """Of the champion, as value."""

    value: float | None
    since: str | None
    """Time at which the champion became it."""


class Model:
    """One model of a registry.

    Args:
        storage: Where it is.
        name: Its name.

    Raises:
        InvalidInput: It is not a model name.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = check_name("model name", name)
        self.catalog = Catalog(storage, name)
        self.journal = Journal(storage, name)
        self.pointers = Pointers(self.catalog, self.journal)

    def upload(
        self,
        files: Mapping[str, Path | bytes],
        metadata: Mapping[str, Any],
        version: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Version:
        """Store a version; it becomes visible as a whole with its metadata.json, which is written last.

        Uploading the same again returns the existing version: a step that is retried or fires twice makes one version.

        Args:
            files: Content by file name; files are streamed.
            metadata: Plain JSON. The registry itself reads ``run_id``, ``metric`` (``name``, ``maximize``), ``metrics``
                (the value of that name), ``dataset`` (``digest``, ``test_digest``, ``kind``) and ``report``
                (``classes``, ``confusion``).
            version: Its id; metadata["run_id"] if None, else a name derived from the content.
            progress: Called with the size of every chunk.

        Raises:
            InvalidInput: A name, a file or the metadata breaks a rule; nothing was written.
            Conflict: The version exists with other content.
        """
        return Upload.prepare(self.catalog, self.journal, files, metadata, version, progress).run()

    def versions(self) -> list[Summary]:
        """Return a summary of each complete version, oldest first."""
        return self.catalog.summaries()

    def version(self, ref: str = CHAMPION) -> Version:
        """Return a version by its id or by an alias.

        Raises:
            NotFound: There is neither; the hint lists what there is.
            Damaged: The alias or metadata.json does not match its checksum.
        """
        check_name("version or alias", ref)
        held, _ = self.pointers.read(ref)
        if held and (held.points_at is None or not self.catalog.exists(held.points_at)):
            raise NotFound(
                f"the {ref} of {self.name} in {self.storage.url} was {held.version}, which is gone",
                f"podium models list {self.name} shows the versions that are left",
            )
        return self._complete(held.version if held else ref)

    def champion(self) -> Version | None:
        """Return the champion; None if there is none, or if its version is gone.

        Raises:
            Damaged: The alias and its record are damaged, or the version's metadata.json is.
        """
        held, _ = self.pointers.read(CHAMPION)
        if held is None or held.points_at is None:
            return None
        champion = self.catalog.load(held.points_at)
        if champion is None:
            warn_once(f"the champion of {self.name} in {self.storage.url} is {held.points_at}, which is gone")
        return champion

    def overview(self) -> Overview:
        """Return the model as a list of models shows it."""
        held, versions = self.aliases().get(CHAMPION), self.versions()
        champion = next((summary for summary in versions if held and summary.version == held.version), None)
        return Overview(name=self.name, versions=len(versions), champion=held.version if held else None,
                        metric=champion.metric if champion else None, value=champion.value if champion else None,
                        since=held.time if held else None)  # fmt: skip

    def aliases(self) -> dict[str, Record]:
        """Return the record of each alias that points at a version, by alias."""
        held = self.pointers.held(strict=False)
        return {alias: record for alias, record in held.items() if record.points_at}

    def history(self) -> list[Record]:
        """Return every promotion, refusal, rollback, alias move and deletion, oldest first."""
        return self.pointers.events()

    def read(self, version: Version, file: str) -> bytes:
        """Return the verified bytes of one file.

        Raises:
            InvalidInput: The version has no such file.
            Damaged: It is missing or not what was uploaded.
        """
        _require_file(version, file)
        return self.catalog.read(version, file)

    def fetch(
        self,
        ref: str,
        target: Path,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Version:
        """Download a version and verify every file; only then the directory appears.

        Args:
            ref: A version or an alias.
            target: A directory that does not exist yet, or is empty.
            files: Only these; None for all and metadata.json.
            progress: Called with the size of every chunk.

        Raises:
            InvalidInput: The target is not empty, or a file is not part of the version.
            Damaged: A file does not match its sha256; the target is unchanged.
        """
        version = self.version(ref)
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise InvalidInput(f"{target} is not an empty directory", "name another directory")
        for file in files or ():
            _require_file(version, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as draft:
            draft.mkdir()
            for file in version.files if files is None else files:
                self.catalog.fetch(version, file, draft / file, progress)
            if files is None:
                self.storage.fetch(f"{version.prefix}/{METADATA}", draft / METADATA)
        return version

    def promote(self, version: str, evidence: Mapping[str, Any], expect: str | None) -> Record:
        """Make a version champion, after verifying every byte of it, if the champion is still the expected one.

        Args:
            version: The challenger; it must be complete.
            evidence: The decision and its figures, for the history.
            expect: The champion it was compared with; None if there was none, or none that still exists.

        Returns:
            The new record; the current one if the version is champion already.

        Raises:
            NotFound: There is no such version.
            Damaged: A file of it is missing or damaged; the champion stays.
            Conflict: The champion changed: compare again.
        """
        challenger = self._complete(version)
        self.catalog.verify_files(challenger)
        return self.pointers.move("promotion", CHAMPION, version, evidence=evidence, expect=(expect,))

    def challenge(
        self,
        version: str,
        judge: Callable[[Version, Version | None, int], Decision],
        evidence: Mapping[str, Any] | None = None,
    ) -> Contest:
        """Promote a version if it beats the champion; compare again if the champion changes meanwhile.

        Args:
            version: The challenger, already uploaded.
            judge: Decides between the challenger and a champion, or about a first champion; it is told how many
                challengers the test part has seen, with this one.
            evidence: Kept in the history beside the decision: run id, dataset digest, …; ``test_part`` says which
                test part it is.

        Raises:
            NotFound: There is no such version.
            Damaged: A file of the challenger or the champion is.
        """
        challenger, test_part = self.version(version), (evidence or {}).get("test_part")
        uses = len(self._challengers(test_part) | {challenger.version})
        while True:
            champion = self.champion()
            expect = champion.version if champion else None
            decision = judge(challenger, champion, uses)
            metric = decision.figures["metric"]["name"]
            if champion and test_part:
                decision = _noting_other_part(decision, champion, test_part)
            if champion and champion.facts.metric.name not in (None, metric):
                decision = decision.noting(
                    f"{champion.version} was chosen by {champion.facts.metric.name}; both are compared by {metric}"
                )
            if expect == challenger.version:
                # The step fired twice, or was retried after it won: the record is ours already.
                return Contest(decision=decision, record=self.aliases().get(CHAMPION), champion=expect)
            grounds = {**(evidence or {}), **decision.evidence()}
            if not decision.promote:
                self.journal.refuse(challenger.version, expect, grounds)
                return Contest(decision=decision, record=None, champion=expect)
            try:
                record = self.promote(challenger.version, grounds, expect)
            except Conflict:
                continue  # another challenger won meanwhile: beat that one
            return Contest(decision=decision, record=record, champion=expect)

    def measured_since(self, version: Version) -> Record | None:
        """Return the last comparison that measured a version, as champion, on another test part than its own."""
        own = version.facts.dataset.test_part or version.facts.dataset.test_digest
        later = [
            record for record in self.history()
            if record.event in ("promotion", "refusal") and record.grounds.champion_value is not None
            and version.version in (record.grounds.champion, record.replaced)
            and record.evidence.get("test_part") not in (None, own)
        ]  # fmt: skip
        return later[-1] if later else None

    def _challengers(self, test_part: str | None) -> set[str]:
        """Return the versions that challenged a champion on a test part."""
        return {
            record.version for record in self.history()
            if test_part and record.event in ("promotion", "refusal")
            and record.evidence.get("test_part") == test_part
        }  # fmt: skip

    def alias(self, alias: str, ref: str, reason: str = "") -> Record:
        """Point an alias of your own at a version, or at the target of another alias.

        Raises:
            InvalidInput: It is the champion's alias, or the name of a version.
            NotFound: There is no such version.
        """
        check_name("alias", alias)
        if alias == CHAMPION:
            raise InvalidInput(f"{CHAMPION} cannot be set as an alias", "promote and rollback move the champion")
        if self.catalog.load(alias):
            raise InvalidInput(f"{alias} is the name of a version of {self.name}", "choose another alias")
        return self.pointers.move("alias", alias, self.version(ref).version, evidence={"reason": reason})

    def rollback(self, to: str | None = None, reason: str = "") -> Record:
        """Make an earlier version champion again, after verifying every byte of it.

        Args:
            to: The version; None for the previous champion. Rolling back twice goes back two steps.

        Raises:
            NotFound: There is no champion, no previous one, or it was deleted.
            Damaged: The version to return to is damaged; the champion stays.
        """
        try:
            current, _ = self.pointers.read(CHAMPION)
        except AliasLost:
            if to is None:
                raise
            current = None
        else:
            if current is None:
                raise self._no_champion()
        target = to or (current.previous if current else None)
        if target is None:
            assert current is not None
            raise NotFound(f"{current.version} is the first champion of {self.name}", "name a version: --to VERSION")
        version = self._complete(target)
        self.catalog.verify_files(version)
        expect = (current.points_at if current else None,)
        return self.pointers.move("rollback", CHAMPION, target, evidence={"reason": reason}, expect=expect)

    def verify(self, checked: Callable[[int], None] = lambda size: None, *, contents: bool = True) -> Iterator[Finding]:
        """Read everything of the model and yield what is wrong with it.

        Args:
            checked: Called with the size of each file that was read.
            contents: Whether the files of versions are read too, or only what describes them.
        """
        return audit.verify(self.pointers, checked, contents=contents)

    def repair(self) -> list[Repair]:
        """Restore damaged aliases from the history, and the history from the aliases."""
        return list(audit.repair(self.pointers))

    def gc(self, *, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find leftovers of killed uploads, deletions and writes that are older than the grace period.

        Args:
            grace: Younger objects may still be in the making.
            delete: Delete them as well; by default they are only listed.
        """
        return list(garbage.collect(self.pointers, grace=grace, delete=delete))

    def retire(self, *, keep: int, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find versions beyond the newest few that no alias, no rollback and no grace period protects.

        Args:
            keep: How many of the newest stay.
            grace: Versions uploaded, or replaced, less than this ago stay.
            delete: Delete them as well, with a record in the history.
        """
        return list(garbage.retire(self.pointers, keep=keep, grace=grace, delete=delete))

    def delete(self, version: str, reason: str = "") -> Record:
        """Delete one version, with a record in the history.

        Raises:
            NotFound: There is no such version.
            Conflict: An alias, or the champion's rollback, needs it.
        """
        return garbage.delete_version(self.pointers, check_name("version", version), reason)

    def _complete(self, version: str) -> Version:
        complete = self.catalog.load(check_name("version", version))
        if complete is not None:
            return complete
        models = list(self.storage.children("models"))
        if self.name not in models:
            names = ", ".join(models) or "none"
            raise NotFound(f"there is no model {self.name} in {self.storage.url}", f"models there: {names}")
        if version == CHAMPION:
            raise self._no_champion()
        known = [summary.version for summary in self.versions()]
        raise NotFound(
            f"model {self.name} has no version {version} in {self.storage.url}",
            f"versions: {', '.join(known[-5:]) or 'none'}; aliases: {', '.join(self.aliases()) or 'none'}",
        )

    def _no_champion(self) -> NotFound:
        return NotFound(
            f"model {self.name} has no champion in {self.storage.url}", f"podium models promote {self.name} VERSION"
        )


def _noting_other_part(decision: Decision, champion: Version, test_part: str) -> Decision:
    """Note it if the champion's own figure is of another test part than this comparison."""
    metric, now = decision.figures["metric"]["name"], decision.figures.get("champion_value")
    before = champion.facts.metrics.get(metric)
    own = champion.facts.dataset.test_part or champion.facts.dataset.test_digest
    if own in (None, test_part) or now is None or before is None:
        return decision
    return decision.noting(
        f"a new test part: the champion's {metric} was {figure(before)} at upload, and is {figure(now)} on this one"
    )


def _require_file(version: Version, file: str) -> None:
    if file not in version.files:
        raise InvalidInput(f"version {version.version} of {version.name} has no file {file}",
                           f"files: {', '.join(sorted(version.files))}")  # fmt: skip
