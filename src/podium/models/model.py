"""A model of a registry: its versions, its champion, and how it became champion."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import podium.models.approval as approval
import podium.models.upkeep as upkeep
from podium.display.notebook import data_frame, table
from podium.display.terminal import echo, warn_once
from podium.display.text import figure, plural, size, when
from podium.errors import Damaged, InvalidInput, NotFound, PodiumError
from podium.models.championship import Championship
from podium.models.decision import NotPromoted, Promotion
from podium.models.document import check_name, command
from podium.models.ledger import CHAMPION, Ledger, State
from podium.models.mlflow import champion_in_mlflow, check_tracking
from podium.models.record import Record
from podium.models.signature import PublicKey
from podium.models.upkeep import GRACE, Finding, Garbage
from podium.models.upload import Content, Upload
from podium.models.version import Facts, Version
from podium.storage.base import Progress
from podium.system.arguments import checked

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A model in a list of models."""

    name: str
    versions: int
    champion: str | None
    metric: str | None
    """Metric of the champion; ``value`` is its figure."""

    value: float | None
    since: str | None
    """Time at which the champion became it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what the shell, ``podium mcp`` and the page show of it."""
        return asdict(self)

    HEADS: ClassVar = ("MODEL", ">VERSIONS", "CHAMPION", ">AT UPLOAD", "METRIC", "SINCE (UTC)")

    def cells(self) -> tuple[str, ...]:
        """Return its row of a table, a cell for each head."""
        return (
            self.name,
            str(self.versions),
            self.champion or "-",
            "-" if self.value is None else figure(self.value),
            self.metric or "-",
            when(self.since) if self.since else "-",
        )


class Versions(Sequence[Version]):
    """The versions of a model, oldest first.

    Args:
        aliases: The version each alias points at.
    """

    HEADS = ("VERSION", ">AT UPLOAD", "METRIC", "CREATED (UTC)", ">SIZE", "DATASET", "ALIASES")

    def __init__(self, name: str, versions: Sequence[Version], aliases: Mapping[str, str]) -> None:
        self.name, self.aliases = name, aliases
        self._versions = versions

    @property
    def frame(self) -> "DataFrame":
        """A row for each version."""
        columns = ["version", "created", "metric", "value", "size", "run_id", "aliases"]
        return data_frame(
            [
                {
                    **version.to_json(),
                    "created": version.created,
                    "aliases": self._aliases_of(version),
                }
                for version in self
            ],
            columns,
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a table, a cell for each of HEADS."""
        return [
            (
                version.version,
                "-" if version.facts.value is None else figure(version.facts.value),
                version.facts.metric.name or "-",
                when(version.created),
                size(version.size),
                (version.facts.dataset.digest or "-")[:8],
                self._aliases_of(version),
            )
            for version in self
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "aliases": dict(self.aliases),
            "versions": [version.to_json() for version in self],
        }

    def _aliases_of(self, version: Version) -> str:
        return ", ".join(
            alias for alias, target in self.aliases.items() if target == version.version
        )

    def __len__(self) -> int:
        return len(self._versions)

    def __getitem__(self, at: Any) -> Any:
        return self._versions[at]

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'version')} of {self.name}>"

    def _repr_html_(self) -> str:
        return table(
            self.HEADS, self.rows(), title=f"{plural(len(self), 'version')} of {self.name}"
        )


@checked
class Model(Championship):
    """A model of a registry: what a person does with it, decided by its history and written to it.

    Raises:
        InvalidInput: It is not a model name.
    """

    def upload(
        self,
        files: Mapping[str, Content],
        metadata: Mapping[str, Any],
        version: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Version:
        """Store a version; it becomes visible as a whole once the model's document names it, which
        is written last.

        Uploading the same again returns the existing version: a step that is retried or fires twice
        makes one version.

        Args:
            files: Content by file name; files are streamed, stored objects copied.
            metadata: Plain JSON. The registry itself reads ``run_id``, ``metric`` (``name``,
                ``maximize``), ``metrics`` (the value of that name), ``trial`` (``name``,
                ``metrics``), ``dataset`` (``digest``, ``test_digest``, ``kind``) and ``report``
                (``classes``, ``confusion``).
            version: Its id; metadata["run_id"] if None, else a name derived from the content.
            progress: Called with the size of every chunk.

        Raises:
            InvalidInput: A name, a file or the metadata breaks a rule; nothing was written.
            Conflict: The version exists with other content, or a stored object changed after it was
                hashed.
        """
        return Upload.prepare(self.ledger, files, metadata, version, progress).run()

    @property
    def versions(self) -> Versions:
        """All complete versions, oldest first."""
        state, _ = self.ledger.read()
        pointing = {alias: record.version for alias, record in state.aliases.items()}
        return Versions(self.name, self.ledger.versions(state), pointing)

    @property
    def champion(self) -> Version:
        """The champion.

        Raises:
            NotFound: There is none.
        """
        return self.version(CHAMPION)

    def __getitem__(self, ref: str) -> Version:
        """Return a version by its id or an alias."""
        return self.version(ref)

    def overview(self) -> Overview:
        """Return the model as a list of models shows it; what is damaged costs a warning."""
        state, facts = State(), Facts()
        try:
            state, _ = self.ledger.read()
            if champion := self.find_champion():
                facts = champion.facts
        except Damaged as error:
            warn_once(error.message)
        held = state.aliases.get(CHAMPION)
        return Overview(
            name=self.name,
            versions=len(state.versions),
            champion=held.version if held else None,
            metric=facts.metric.name,
            value=facts.value,
            since=held.time if held else None,
        )

    @property
    def history(self) -> "DataFrame":
        """Every promotion, refusal, rollback, alias move and deletion, oldest first."""
        rows = [record.to_json() for record in self.records()]
        return data_frame(rows, ["time", "event", "version", "alias", "replaced", "evidence"])

    def promote(
        self,
        version: str | Version,
        *,
        rule: str | None = None,
        data: str | Path | None = None,
        live: str | Path | None = None,
        labels: str | Path | None = None,
        reason: str = "by hand",
        tracking: str = "",
        dry_run: bool = False,
    ) -> Promotion:
        """Make a version the champion: unconditionally, or if it beats the current champion by a
        rule.

        Args:
            version: A version, its id or an alias.
            rule: ``likely``, ``better``, ``likely=.97,minimum=.9`` …; None promotes it in any case.
            data: Dataset for the comparison, if the predictions of the two are not stored.
            live: Directory or URI in which ``podium serve --record`` has recorded answers of both:
                they are compared on these, with labels.
            labels: Table of the labels, with the columns id (of the request) and label, and item
                (the place in the request) where a request has several.
            reason: For the history.
            tracking: MLflow whose alias champion follows; the one that the version's run was logged
                to if empty.
            dry_run: Check and return the same, but change nothing.

        Raises:
            NotPromoted: It does not meet the rule; the champion stays.
            NotFound: There is no such version.
            Conflict: Somebody else moved the champion meanwhile.
        """
        if (live is None) != (labels is None) or (live and data):
            raise InvalidInput(
                "recorded answers and labels go together, and not with other data",
                "--live RECORDED --labels labels.csv",
            )
        if rule is None and (data or live):
            raise InvalidInput(
                f"{data or live} is for a comparison, and there is no rule", "add --rule likely"
            )
        chosen = self._chosen(version).version
        check_tracking(tracking)
        model = self._dry_run() if dry_run else self
        if rule is None:
            record = model.set_champion(chosen, {"reason": reason}, model.champion_id)
            return model._moved(Promotion(record=record), tracking)
        from podium.models.comparison import contest
        from podium.models.live import LiveItems

        items = (
            LiveItems(model=self.name, recorded=str(live), labels=Path(labels))
            if live and labels
            else None
        )
        ended = contest(model, chosen, rule, str(data) if data else None, {"reason": reason}, items)
        if ended.record is None:
            assert ended.decision
            champion = (
                f"{ended.champion} stays champion"
                if ended.champion
                else "there is still no champion"
            )
            raise NotPromoted(
                f"{chosen} of {self.name} does not meet the rule; {champion}", ended.decision
            )
        return model._moved(ended, tracking)

    def approve(
        self,
        version: str | Version,
        reason: str,
        *,
        key: str | Path | None = None,
        data: str | Path | None = None,
    ) -> Promotion:
        """Say yes to a version that waits for a person, as under the rule ``better,approved``.

        It is compared once more, as the champion may have moved since.

        Args:
            version: A version, its id or an alias.
            reason: For the history, beside who says so.
            key: PEM of a private key that signs the approval.
            data: Dataset for the comparison, if the predictions of the two are not stored.

        Raises:
            NotFound: It does not wait.
            NotPromoted: It does not meet the rule any more; the champion stays.
        """
        return approval.approve(self, self._chosen(version).version, reason, key=key, data=data)

    def reject(
        self, version: str | Version, reason: str, *, key: str | Path | None = None
    ) -> Record:
        """Say no to a version that waits for a person; arguments and errors as of approve."""
        return approval.reject(self, self._chosen(version).version, reason, key=key)

    @property
    def waiting(self) -> list[Record]:
        """The refusal of each version that only waits for a person's word, oldest first."""
        return approval.waiting(self.ledger)

    def _chosen(self, version: str | Version) -> Version:
        if not isinstance(version, Version):
            return self.version(version)
        if (version.storage.url, version.name) != (self.storage.url, self.name):
            raise InvalidInput(
                f"{version.title} in {version.storage.url} is not a version of {self.name} in {self.storage.url}",
                command(f"models list {self.name}", self.storage),
            )
        return self.version(version.version)

    def _dry_run(self) -> "Model":
        model = Model(self.storage, self.name)
        model.ledger = Ledger(self.storage, self.name, dry_run=True)
        return model

    def _moved(self, promotion: Promotion, tracking: str) -> Promotion:
        assert promotion.record
        if self.ledger.dry_run:
            return promotion
        if notice := champion_in_mlflow(self, promotion.record, tracking):
            echo(notice, err=True)
        return promotion

    def measured_since(self, version: Version) -> Record | None:
        """Return the last comparison that measured a version, as champion, on another test part
        than its own."""
        own = version.facts.dataset.test_part or version.facts.dataset.test_digest
        later = [
            record
            for record in self.ledger.distinct_records()
            if record.grounds.champion_value is not None
            and version.version in (record.grounds.champion, record.replaced)
            and record.evidence.get("test_part") not in (None, own)
        ]
        return later[-1] if later else None

    def alias(self, alias: str, version: str | Version, reason: str = "") -> Version:
        """Point an alias of your own at a version, or at the target of another alias; return the
        version.

        Raises:
            InvalidInput: It is the champion's alias, or the name of a version.
            NotFound: There is no such version.
        """
        check_name("alias", alias)
        if alias == CHAMPION:
            raise InvalidInput(
                f"{CHAMPION} cannot be set as an alias", "promote and rollback move the champion"
            )
        if alias in self.ledger.read()[0].versions:
            raise InvalidInput(
                f"{alias} is the name of a version of {self.name}", "choose another alias"
            )
        target = self._chosen(version)
        self.ledger.move("alias", alias, target.version, evidence={"reason": reason})
        return target

    def rollback(
        self,
        to: str | None = None,
        *,
        reason: str = "by hand",
        tracking: str = "",
        dry_run: bool = False,
    ) -> Promotion:
        """Make an earlier version champion again, after verifying every byte of it.

        Args:
            to: The version or an alias; None for the previous champion. Rolling back twice goes
                back two steps.
            reason: For the history.
            tracking: As for promote.
            dry_run: As for promote.

        Raises:
            NotFound: There is no champion, no previous one, or it was deleted or lost.
            Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have; the champion
                stays.
            Damaged: The version to return to is damaged; the champion stays.
        """
        check_tracking(tracking)
        state, _ = self.ledger.read()
        current = state.aliases.get(CHAMPION)
        if current is None:
            raise self.no_champion()
        target = current.previous if to is None else self.version(to).version
        if target is None:
            raise NotFound(
                f"{current.version} is the first champion of {self.name}",
                f"name a version: {command(f'models rollback {self.name} --to VERSION', self.storage)}",
            )
        if to is None:
            self._require_kept(target, state)
        try:
            self.require_intact(target)
        except (Damaged, NotFound) as error:
            if another := self._former_champion(state, target, current.version):
                words = f"models rollback {self.name} --to {another}"
                back = command(words, self.storage)
                hint = f"restore the file from a backup, or return to another champion: {back}"
                raise type(error)(error.message, hint) from error
            raise
        expect = (current.version,)
        model = self._dry_run() if dry_run else self
        record = model.ledger.move(
            "rollback", CHAMPION, target, evidence={"reason": reason}, expect=expect
        )
        return model._moved(Promotion(record=record), tracking)

    def _former_champion(self, state: State, *others: str) -> str | None:
        """Return the last champion that is intact and none of these; None without one."""
        records = reversed(self.ledger.records(state))
        former = dict.fromkeys(record.version for record in records if record.alias == CHAMPION)
        for version in former:
            if version in state.versions.keys() - others:
                with suppress(PodiumError):
                    self.require_intact(version)
                    return version
        return None

    def _require_kept(self, target: str, state: State) -> None:
        """Refuse a former champion that was deleted: other files may have its id since."""
        moves = (
            record
            for record in reversed(self.ledger.records(state))
            if record.version == target and (record.alias == CHAMPION or record.event == "deletion")
        )
        if (last := next(moves, None)) and last.event == "deletion":
            raise NotFound(
                f"{target}, a champion of {self.name} before, was deleted",
                f"name a version: {command(f'models rollback {self.name} --to VERSION', self.storage)}",
            )

    def verify(
        self,
        checked: Callable[[int], None] = lambda size: None,
        *,
        contents: bool = True,
        key: PublicKey | None = None,
        only: str | None = None,
    ) -> Iterator[Finding]:
        """Read everything of the model and yield what is wrong with it.

        Args:
            checked: Called with the size of each file that was read.
            contents: Whether the files of versions are read too, or only what describes them.
            key: Check signatures with it: every one there is, and that the targets of aliases have
                one.
            only: Read only this version or the target of this alias, and nothing but its files and
                its signature; with a key it must be signed.

        Raises:
            NotFound: There is no such version.
        """
        if only is not None:
            return upkeep.verify_version(self.version(only), self.ledger, checked, key)
        return upkeep.verify(self.ledger, checked, contents=contents, key=key)

    def repair(self) -> list[Finding]:
        """Make a damaged or missing document anew from the versions, and add complete versions that
        it does not name; return what was done."""
        return list(upkeep.repair(self.ledger))

    def gc(self, *, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find leftovers of killed uploads, deletions and writes that are older than the grace
        period.

        Args:
            grace: Younger objects may still be in the making.
            delete: Delete them as well; by default they are only listed.
        """
        return list(upkeep.collect(self.ledger, grace=grace, delete=delete))

    def retire(self, *, keep: int, grace: timedelta = GRACE, delete: bool = False) -> list[Garbage]:
        """Find versions beyond the newest few that no alias, no rollback and no grace period
        protects.

        Args:
            keep: How many of the newest stay.
            grace: Versions uploaded, or replaced, less than this ago stay.
            delete: Delete them as well, with a record in the history.
        """
        return list(upkeep.retire(self.ledger, keep=keep, grace=grace, delete=delete))

    def delete(self, version: str, reason: str = "") -> Record:
        """Delete one version, with a record in the history.

        Raises:
            NotFound: There is no such version.
            Conflict: An alias, or the champion's rollback, needs it.
        """
        return upkeep.delete_version(self.ledger, check_name("version", version), reason)

    def __repr__(self) -> str:
        seen = self.overview()
        champion = seen.champion or "none"
        return f"<model {self.name}: {plural(seen.versions, 'version')}, champion {champion}>"

    def _repr_html_(self) -> str:
        return self.versions._repr_html_()
