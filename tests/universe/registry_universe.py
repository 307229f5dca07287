"""The registry in a universe: processes upload, promote, roll back, delete and collect at once."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from simulated_stores import Disk, MemoryStorage
from simulation import Crash, Fault, Outcome, Process, Universe, Violation

from podium.display import terminal
from podium.errors import Conflict, Damaged, InvalidInput, NotFound, PodiumError
from podium.models import ledger
from podium.models.decision import Decision
from podium.models.model import Model
from podium.storage import Storage

KINDS = ("delay", "stall", "fail", "lost", "doubled", "ghost", "space", "crash", "died", "jump")
MOVES = ("promote", "challenge", "rollback")
RARE = (
    "rollback",
    "delete",
    "delete",
    "alias",
    "gc",
    "gc",
    "wait",
    "wait",
    "read",
    "verify",
    "retire",
    "repair",
    "rot",
)
HOUR, DAY = timedelta(hours=1), timedelta(hours=24)


@dataclass(kw_only=True)
class Done:
    """One operation of a process."""

    what: str
    version: str = ""
    content: bytes = b""
    begun: int = 0
    ended: int = 0
    error: BaseException | None = None
    result: Any = None


class RegistryUniverse:
    """A few processes on one model.

    Args:
        seed: Decides everything.
        only: Only these faults strike; None for all that the seed has.
    """

    KINDS: tuple[str, ...] = KINDS

    def __init__(self, seed: int, only: frozenset[Fault] | None = None) -> None:
        plan = random.Random(seed * 2654435761 % 2**32)
        rate = plan.choice((0, 5, 20, 60, 150))
        kinds = frozenset(kind for kind in self.KINDS if plan.random() < 0.6)
        self.universe = Universe(seed, rate=rate, kinds=kinds, only=only, patience=30_000)
        self.plan = plan
        self.disk = Disk(self.universe, coarse=plan.random() < 0.3, by_content=plan.random() < 0.6)
        self.log: list[Done] = []
        self.rotten: Done | None = None
        self.versions = [f"v{number}" for number in range(1, plan.choice((1, 2, 2, 3, 5)) + 1)]
        rest = [*RARE]
        plan.shuffle(rest)
        fewer = rest[: plan.choice((1, 2, 3, len(rest)))]
        self.menu = ["upload", "upload", *MOVES[:2], *fewer, *fewer]

    def storage(self) -> Storage:
        """Return the storage as a process opens it."""
        return MemoryStorage(self.disk)

    def run(self) -> Outcome:
        """Run it to its end and check what must hold."""
        usual = ledger.MOST_RECORDS, ledger.KEPT_RECORDS
        ledger.MOST_RECORDS, ledger.KEPT_RECORDS = self.plan.choice((usual, (6, 4), (4, 2)))
        terminal.warn_once.cache_clear()
        problem = ""
        try:
            names = [f"p{number}" for number in range(self.plan.choice((1, 2, 2, 3, 4)))]
            for name in names:
                script = [self._drawn() for _ in range(self.plan.choice((1, 2, 4, 6)))]
                script.insert(0, self._drawn("upload"))
                self._live(self.universe.process(name), script)
            self.universe.run()
            self.universe.quiet = True
            self._settle(self._check)
        except Violation as violation:
            problem = str(violation)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            ledger.MOST_RECORDS, ledger.KEPT_RECORDS = usual
        return self.universe.outcome(problem)

    # Processes

    def _drawn(self, what: str = "") -> Done:
        plan = self.plan
        version = plan.choice(self.versions)
        other = plan.random() < 0.1
        return Done(
            what=what or plan.choice(self.menu),
            version=version,
            content=f"{version}{' once more' if other else ''}".encode() * 3,
        )

    def _live(self, process: Process, script: Sequence[Done]) -> None:
        """Let a process do its operations; one that crashed starts again after a while."""
        left = list(script)

        def life() -> None:
            model = Model(self.storage(), "mnist")
            while left:
                self._do(model, left)
                if self.universe.random.random() < 0.3:
                    model = Model(self.storage(), "mnist")  # another command

        def watched() -> None:
            try:
                life()
            except Crash:
                if left:
                    self._again(process, watched)
                raise

        self.universe.begin(process, watched)

    def _again(self, process: Process, watched: Callable[[], None]) -> None:
        """Start a process that crashed; who ran its command may repeat it, or not."""
        universe = self.universe
        if getattr(universe, "over", False):
            return

        def later() -> None:
            universe.sleep((0.01, 2.0, 50.0)[universe.draw(process.number, process.operations) % 3])
            process.skew = 0.0
            universe.begin(process, watched)

        keeper = universe.process("init")
        if keeper.life is None:
            universe.begin(keeper, later)
        else:
            universe.spawn(keeper.life, later, "restart")

    def _do(self, model: Model, left: list[Done]) -> None:
        wanted = left.pop(0)
        done = Done(what=wanted.what, version=wanted.version, content=wanted.content)
        self.log.append(done)
        done.begun = self.universe.steps
        try:
            done.result = getattr(self, f"_{done.what}")(model, done)
        except Crash as crash:
            done.error = crash
            if self.universe.draw(len(self.log)) % 2:
                left.insert(0, wanted)
            raise
        except PodiumError as error:
            done.error = error
            if not error.message or "Traceback" in error.message:
                raise Violation(f"{done.what} fails without a sentence: {error!r}") from error
            if self.universe.draw(len(self.log)) % 4 == 0 and not isinstance(error, InvalidInput):
                left.insert(0, wanted)
        finally:
            done.ended = self.universe.steps

    def _upload(self, model: Model, done: Done) -> Any:
        files = {"weights.bin": done.content, "notes.txt": b"notes"}
        return model.upload(files, {"run_id": done.version})

    def _promote(self, model: Model, done: Done) -> Any:
        return model.promote(done.version, reason="simulated").record

    def _challenge(self, model: Model, done: Done) -> Any:
        def judge(challenger: Any, champion: Any, compared: Any) -> Decision:
            better = champion is None or challenger.version > champion.version
            return Decision(
                promote=better, reasons=("it is higher",), figures={"metric": {"name": "accuracy"}}
            )

        return model.challenge(done.version, judge, {"test_part": "t"}).record

    def _rollback(self, model: Model, done: Done) -> Any:
        return model.rollback().record

    def _rot(self, model: Model, done: Done) -> Any:
        """Let the disk spoil a file of a version that nobody needs."""
        key = f"models/mnist/versions/{done.version}/weights.bin"
        state, _ = model.ledger.read()
        needed = {name for held in state.aliases.values() for name in (held.version, held.previous)}
        if done.version in needed or done.version not in state.versions or self.rotten:
            return
        if any(not each.ended and each.what in MOVES for each in self.log):
            return
        self.rotten = done
        self.disk.put(key, b"spoilt", False, None)

    def _delete(self, model: Model, done: Done) -> Any:
        return model.delete(done.version)

    def _alias(self, model: Model, done: Done) -> Any:
        return model.alias("staging", done.version)

    def _wait(self, model: Model, done: Done) -> Any:
        self.universe.sleep(2 * 86400.0)

    def _gc(self, model: Model, done: Done) -> Any:
        return model.gc(grace=DAY, delete=True)

    def _retire(self, model: Model, done: Done) -> Any:
        return model.retire(keep=1, grace=HOUR, delete=True)

    def _repair(self, model: Model, done: Done) -> Any:
        return model.repair()

    def _read(self, model: Model, done: Done) -> Any:
        """Read as a server does: what it sees is whole, or the version was deleted meanwhile."""
        try:
            seen = list(model.versions)
            version = model.version(done.version)
            version.verify()
        except Damaged as error:
            state, _ = model.ledger.read()
            if done.version in state.versions and self._untouched(done.version):
                raise Violation(f"a reader trips: {error.message}") from error
            return None
        return seen

    def _verify(self, model: Model, done: Done) -> Any:
        findings = list(model.verify())
        for finding in findings:
            if finding.where == model.ledger.key and "restore it" in finding.what:
                continue  # the first upload is about to end
            if (
                "is missing" in finding.what
                or "sha256" in finding.what
                or "damaged" in finding.what
            ):
                version = finding.where.split("/")[3] if finding.where.count("/") > 3 else ""
                if self._untouched(version):
                    raise Violation(f"verify finds {finding.where}: {finding.what}")
        return findings

    def _untouched(self, version: str) -> bool:
        """Return whether nobody ever tried to delete a version."""
        spoilt = self.rotten and self.rotten.version == version
        return not spoilt and self._stayed(version)

    def _is_spoilt(self) -> bool:
        assert self.rotten  # an upload that went on may have written the file again
        key = f"models/mnist/versions/{self.rotten.version}/weights.bin"
        return key in self.disk.objects and self.disk.objects[key][0] == b"spoilt"

    def _stayed(self, version: str) -> bool:
        return not any(
            done.what == "retire" or (done.what == "delete" and done.version == version)
            for done in self.log
        )

    # What must hold in the end

    def _settle(self, check: Callable[[], None]) -> None:
        self.universe.begin(self.universe.process("checker"), check)
        self.universe.run()

    def _check(self) -> None:
        model = Model(self.storage(), "mnist")
        state, _ = model.ledger.read()
        records = model.ledger.records(state, strict=True)
        self._check_moves(state, records)
        self._check_uploads(model, state, records)
        self._check_order(model)

    def _check_moves(self, state: Any, records: Sequence[Any]) -> None:
        for record in records:
            lower = record.replaced and record.replaced >= record.version
            if record.event == "promotion" and "test_part" in record.evidence and lower:
                raise Violation(f"{record.version} won against {record.replaced}, unasked")
        if self.rotten and self._stayed(self.rotten.version) and self._is_spoilt():
            for done in self.log:
                good = done.what in MOVES and not done.error and done.begun > self.rotten.ended
                if good and done.result and done.result.version == self.rotten.version:
                    raise Violation(f"{done.result.version} is spoilt, and became champion")
        ids = [record.id for record in records]
        if len(set(ids)) < len(ids):
            raise Violation(f"a record stands twice in the history: {ids}")
        for done in self.log:
            moved = done.what in ("promote", "rollback", "challenge", "delete")
            if moved and done.error is None and done.result and done.result.id not in ids:
                raise Violation(
                    f"an acknowledged {done.what} of {done.version} is not in the history"
                )
        for alias in {record.alias for record in records if record.alias}:
            moves = [record for record in records if record.alias == alias]
            if [move.sequence for move in moves] != list(range(1, len(moves) + 1)):
                raise Violation(f"moves of {alias} are out of order: {[m.sequence for m in moves]}")
            if [move.replaced for move in moves[1:]] != [move.version for move in moves[:-1]]:
                raise Violation(f"a move of {alias} did not replace the one before")
            if any(a.time >= b.time for a, b in pairwise(moves)):
                raise Violation(f"times of {alias} are out of order")
            if state.aliases[alias] != moves[-1]:
                raise Violation(f"{alias} is not where its last move put it")

    def _check_uploads(self, model: Model, state: Any, records: Sequence[Any]) -> None:
        for alias, held in state.aliases.items():
            if held.version not in state.versions:
                raise Violation(f"{alias} points at {held.version}, which is gone")
        for version in state.versions:
            loaded = model.ledger.load(version, state)
            if loaded is None:
                raise Violation(f"version {version} has no metadata.json")
            if self.rotten and self.rotten.version == version:
                continue
            loaded.verify()
            contents = [d.content for d in self.log if (d.what, d.version) == ("upload", version)]
            if loaded.read("weights.bin") not in contents:
                raise Violation(f"version {version} holds what nobody uploaded")
        told = (NotFound, Conflict)
        for version in self.versions if self._stayed("") else ():
            done = [d for d in self.log if (d.what, d.version) == ("delete", version)]
            records_of = [r for r in records if (r.event, r.version) == ("deletion", version)]
            if len(records_of) > sum(not isinstance(each.error, told) for each in done):
                raise Violation(f"who deleted {version} was told that it failed")
        deleted = {record.version for record in records if record.event == "deletion"}
        for done in self.log:
            if done.what != "upload" or done.error or done.version in state.versions:
                continue
            if done.version not in deleted or self._untouched(done.version):
                raise Violation(f"an acknowledged upload of {done.version} is lost")

    def _check_order(self, model: Model) -> None:
        """Verify finds nothing once what killed processes left is collected."""
        self.universe.sleep(10 * 86400.0)
        model.repair()
        model.gc(grace=DAY, delete=True)
        spoilt = f"/{self.rotten.version}/" if self.rotten else "no/version"
        if findings := [each for each in model.verify() if spoilt not in each.where]:
            raise Violation(f"verify finds {findings[0].where}: {findings[0].what}")
        state, _ = model.ledger.read()
        if left := [key for key in self.disk.objects if not self._belongs(key, state)]:
            raise Violation(f"{left[0]} is left for ever")
        if state.deleting:
            raise Violation(f"deletions never end: {sorted(state.deleting)}")
        for version in self.versions:
            with suppress(InvalidInput, Conflict):
                model.upload({"weights.bin": b"new"}, {"run_id": version})

    def _belongs(self, key: str, state: Any) -> bool:
        parts = key.split("/")
        if parts[2] == "model.json":
            return True
        if parts[2] == "versions":
            return parts[3] in state.versions
        return parts[3].removesuffix(".json") in state.segments


def modules(name: str) -> bool:
    """Return whether a module of podium takes part in this universe."""
    return name.startswith(("podium.models", "podium.storage"))
