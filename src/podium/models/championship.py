"""Which version of a model is champion, and the challenge by which one becomes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.data.test_part import mostly
from podium.display.terminal import warn_once
from podium.display.text import figure, plural
from podium.errors import Conflict, NotFound
from podium.models.approval import WAITING
from podium.models.decision import Decision, Promotion
from podium.models.document import check_name, command
from podium.models.ledger import CHAMPION, Ledger, State
from podium.models.record import Record
from podium.models.signature import require_trusted
from podium.models.version import Version
from podium.storage import Storage
from podium.system.arguments import checked


@checked
class Championship:
    """A model as challenges need it: its versions, its champion, and how it became champion.

    Raises:
        InvalidInput: It is not a model name.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = check_name("model name", name)
        self.ledger = Ledger(storage, name)

    def version(self, ref: str = CHAMPION) -> Version:
        """Return a version by its id or by an alias.

        Raises:
            NotFound: There is neither; the hint lists what there is.
            Damaged: The document or metadata.json does not match its checksum.
        """
        check_name("version or alias", ref)
        state, _ = self.ledger.read()
        held = state.aliases.get(ref)
        if version := self.ledger.load(held.version if held else ref, state):
            return version
        if held:
            raise NotFound(
                f"the {ref} of {self.name} in {self.storage.url} was {held.version}, which is gone",
                f"{command(f'models list {self.name}', self.storage)} shows the versions that are left",
            )
        raise self._missing(ref, state)

    def find_champion(self) -> Version | None:
        """Return the champion; None if there is none, or if its version is gone.

        Raises:
            Damaged: The document or the version's metadata.json is.
        """
        state, _ = self.ledger.read()
        held = state.aliases.get(CHAMPION)
        champion = self.ledger.load(held.version, state) if held else None
        if held and champion is None:
            url = self.storage.url
            warn_once(f"the champion of {self.name} in {url} is {held.version}, which is gone")
        return champion

    @property
    def champion_id(self) -> str | None:
        """Id of the champion, although its version may be gone; None if there is none."""
        held = self.aliases().get(CHAMPION)
        return held.version if held else None

    def aliases(self) -> dict[str, Record]:
        """Return the record of each alias's last move, by alias."""
        return dict(self.ledger.read()[0].aliases)

    def records(self) -> list[Record]:
        """Return every promotion, refusal, rollback, alias move and deletion, oldest first."""
        return self.ledger.records()

    def set_champion(self, version: str, evidence: Mapping[str, Any], expect: str | None) -> Record:
        """Make a version champion, after verifying every byte of it, if the champion is still the
        expected one.

        Args:
            version: The challenger; it must be complete.
            evidence: The decision and its figures, for the history.
            expect: The champion it was compared with; None if there was none, or none that still
                exists.

        Returns:
            The new record; the current one if the version is champion already.

        Raises:
            NotFound: There is no such version.
            Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have; the champion
                stays.
            Damaged: A file of it is missing or damaged; the champion stays.
            Conflict: The champion changed: compare again.
        """
        self.require_intact(version)
        return self.ledger.move("promotion", CHAMPION, version, evidence=evidence, expect=(expect,))

    def challenge(
        self,
        version: str,
        judge: Callable[[Version, Version | None, Sequence[Record]], Decision],
        evidence: Mapping[str, Any] | None = None,
    ) -> Promotion:
        """Promote a version if it beats the champion; compare again if the champion changes
        meanwhile.

        Args:
            version: The challenger, already uploaded.
            judge: Decides between the challenger and a champion, or about a first champion; it also
                gets the earlier comparisons on this test part.
            evidence: Kept in the history beside the decision: run id, dataset digest, …;
                ``test_part`` says which test part it is.

        Raises:
            NotFound: There is no such version.
            Damaged: A file of the challenger or the champion is.
        """
        challenger, test_part = self.version(version), (evidence or {}).get("test_part")
        version, run = challenger.version, (evidence or {}).get("run_id")
        while True:
            champion = self.find_champion()
            expect = champion.version if champion else None
            held = self.aliases().get(CHAMPION) if expect == version else None
            if held and held.version == version and run and held.evidence.get("run_id") == run:
                # The step fired twice, or was retried after it won: the record is ours already.
                return Promotion(decision=Decision.of(held), record=held, champion=held.replaced)
            decision = judge(challenger, champion, self.comparisons(test_part))
            metric = decision.figures["metric"]["name"]
            if champion and test_part:
                decision = _noting_other_part(decision, champion, test_part)
                decision = _noting_looks(decision, self._looks(version, expect, test_part))
            if champion and champion.facts.metric.name not in (None, metric):
                decision = decision.noting(
                    f"{champion.version} was chosen by {champion.facts.metric.name}; both are compared by {metric}"
                )
            if expect == version:
                return Promotion(decision=decision, record=held, champion=expect)
            grounds = {**(evidence or {}), **decision.evidence()}
            if not decision.promote:
                self.ledger.refuse(challenger.version, expect, grounds)
                return Promotion(decision=decision, record=None, champion=expect)
            try:
                record = self.set_champion(challenger.version, grounds, expect)
            except Conflict:
                continue  # another challenger won meanwhile: beat that one
            return Promotion(decision=decision, record=record, champion=expect)

    def comparisons(self, test_part: str | None) -> list[Record]:
        """Return every challenge on a test part, or on one that has most of its items, oldest
        first."""
        return [
            record
            for record in self.ledger.distinct_records()
            if test_part
            and record.event in ("promotion", "refusal")
            and mostly(str(record.evidence.get("test_part")), test_part)
        ]

    def _looks(self, version: str, champion: str | None, test_part: str) -> int:
        """Return how often a version was refused for this champion on other test parts; one that
        only waited for a person's word was not."""
        return sum(
            record.event == "refusal"
            and record.version == version
            and not record.evidence.get(WAITING)
            and record.evidence.get("champion") == champion
            and record.evidence.get("test_part") not in (None, test_part)
            for record in self.ledger.distinct_records()
        )

    def require_intact(self, version: str) -> None:
        """Read every byte of a version; raises as set_champion."""
        state, _ = self.ledger.read()
        complete = self.ledger.load(check_name("version", version), state)
        if complete is None:
            raise self._missing(version, state)
        require_trusted(complete)
        complete.verify()

    def _missing(self, version: str, state: State) -> NotFound:
        models, url = list(self.storage.children("models")), self.storage.url
        if self.name not in models:
            names = ", ".join(models) or "none"
            return NotFound(f"there is no model {self.name} in {url}", f"models there: {names}")
        if version == CHAMPION:
            return self.no_champion()
        if version in state.versions:
            checks = command(f"models verify {self.name}", self.storage)
            return NotFound(
                f"metadata.json of version {version} of {self.name} is gone in {url}",
                f"restore it from a backup; all that is lost: {checks}",
            )
        versions = ", ".join([*state.versions][-5:]) or "none"
        aliases = ", ".join(state.aliases) or "none"
        return NotFound(
            f"model {self.name} has no version {version} in {url}",
            f"versions: {versions}; aliases: {aliases}",
        )

    def no_champion(self) -> NotFound:
        """Return the error of who asks for the champion of a model that has none."""
        return NotFound(
            f"model {self.name} has no champion in {self.storage.url}",
            command(f"models promote {self.name} VERSION", self.storage),
        )


def _noting_other_part(decision: Decision, champion: Version, test_part: str) -> Decision:
    metric, now = decision.figures["metric"]["name"], decision.figures.get("champion_value")
    before = champion.metrics.get(metric)
    own = champion.facts.dataset.test_part or champion.facts.dataset.test_digest
    if own in (None, test_part) or now is None or before is None:
        return decision
    return decision.noting(
        f"a new test part: the champion's {metric} was {figure(before)} at upload, and is {figure(now)} on this one"
    )


def _noting_looks(decision: Decision, looks: int) -> Decision:
    rule = str(decision.figures.get("rule"))
    if not looks or any(word.startswith("fresh") for word in rule.split(",")):
        return decision
    return decision.noting(
        f"refused before, on fewer or other items ({plural(looks, 'look')}): each look is a chance to win by luck, "
        f"which the rule fresh allows for and {rule} does not"
    )
