"""`podium watch`: run a command whenever data have changed and are no longer being written."""

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from podium.display.text import plural
from podium.errors import Conflict, InvalidInput, PodiumError, of_this_machine
from podium.files.documents import parse, read_json
from podium.files.drafts import appearing
from podium.storage import Entry, Storage, connect, is_slip, local_path

CHANGED = "the data changed; waiting until they stay the same"


def _look(uri: str) -> tuple[str, str]:
    """Return a fingerprint of keys, sizes, etags and times, and a description; empty if there are
    no data."""
    parent, name = _parent(uri)
    found = name and _head(connect(parent), name)
    entries = [found] if found else list(connect(uri).list())
    if not entries:
        return "", "nothing there yet"
    digest = sha256()
    for entry in entries:
        digest.update(
            f"{entry.key}\t{entry.size}\t{entry.etag}\t{entry.modified.isoformat()}\n".encode()
        )
    size = sum(entry.size for entry in entries)
    return digest.hexdigest(), f"{plural(len(entries), 'file')}, {size:,} bytes"


def _parent(uri: str) -> tuple[str, str]:
    """Split a URI into the storage that holds its last part, and that part; a bucket has none."""
    if (path := local_path(uri)) is not None:
        path = path.expanduser().resolve()
        return str(path.parent), path.name
    scheme, _, rest = uri.rstrip("/").partition("://")
    bucket, slash, name = rest.rpartition("/")
    return (f"{scheme}://{bucket}", name) if slash else (uri, "")


def _head(storage: Storage, name: str) -> Entry | None:
    try:
        return storage.head(name)
    except InvalidInput:  # no key: a directory all the same
        return None


@dataclass(kw_only=True)
class _State:
    seen: str
    """Fingerprint at the last look."""

    handled: str
    """Fingerprint at the start of the last command that was carried out; of the first look if there
    was none."""


def _words(error: Exception) -> str:
    known = error if isinstance(error, PodiumError) else of_this_machine(error)
    return known.message if known else str(error)


class Trigger:
    """Polls data and reports when a command is due. Its state is stored: a restart loses no change.

    Args:
        uri: A file, a directory, an object or all below a prefix: a path, or a URL.
        directory: Directory of the state.
        command: Words of the command; another command has a state of its own.
        now: Whether data that are there at the first look of all count as changed.
    """

    def __init__(
        self, uri: str, directory: Path, command: tuple[str, ...], *, now: bool = False
    ) -> None:
        # A URL that is none is refused now, not at the first look.
        connect(uri if is_slip(uri) else _parent(uri)[0])
        key = sha256(json.dumps([uri, str(Path.cwd()), *command]).encode()).hexdigest()[:16]
        self.uri, self.now = uri, now
        self._state: _State | None = None
        self.file = directory / f"{key}.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from watching the same for the same command.

        Raises:
            Conflict: One does.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"{self.uri} is being watched for this command by another process"
                raise Conflict(text, "end that one first") from None
            yield

    def look(self, say: Callable[[str], None]) -> str:
        """Return the fingerprint of data for which the command is due: changed, and the same at two
        looks; else "".

        Raises:
            PodiumError: The storage does not answer.
        """
        fingerprint, words = _look(self.uri)
        state = self._read()
        if state is None:
            say(f"watching {self.uri}: {words}")
            self._write(_State(seen=fingerprint, handled="" if self.now else fingerprint))
            return ""
        settled = fingerprint == state.seen
        self._write(_State(seen=fingerprint, handled=state.handled))
        if not fingerprint or fingerprint == state.handled:
            return ""
        if not settled:
            say(f"{CHANGED}: {words}")
        return fingerprint if settled else ""

    def handled(self, fingerprint: str) -> None:
        """Remember that the command was carried out for these data."""
        state = self._read()
        self._write(_State(seen=state.seen if state else fingerprint, handled=fingerprint))

    def follow(
        self, run: Callable[[], None], say: Callable[[str], None], *, every: float, once: bool
    ) -> None:
        """Look again and again, and run the command whenever it is due. A storage that fails is
        asked again, and a full disk ends nothing.

        Args:
            run: Runs the command; raises PodiumError if it fails, which is reported.
            say: Called with each message.
            every: Seconds between two looks.
            once: Look once only.

        Raises:
            PodiumError: The storage does not answer, or the command failed, with `once`.
        """
        failing = ""
        while True:
            due = ""
            try:
                due = self.look(say)
                failing = ""
            except (PodiumError, OSError) as error:
                if once:
                    raise
                if failing != _words(error):
                    say(f"warning: {_words(error)}; looking again every {every:g} s")
                failing = _words(error)
            try:
                if due:
                    run()
            except PodiumError as error:
                if once:
                    self.handled(due)
                    raise
                say(f"warning: {error.message}; watching continues")
            except OSError as error:  # no process can be had now
                if once:
                    raise
                say(f"warning: {_words(error)}; trying again every {every:g} s")
                due = ""
            if due:
                with nullcontext() if once else suppress(OSError):  # the next look writes it again
                    self.handled(due)
            if once:
                return
            time.sleep(every)

    def _read(self) -> _State | None:
        if self._state:
            return self._state
        with suppress(InvalidInput, FileNotFoundError):  # missing or damaged: as at the first look
            return parse(_State, read_json(self.file), str(self.file))
        return None

    def _write(self, state: _State) -> None:
        self._state = state  # should the disk be full
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with appearing(self.file) as draft:
            draft.write_text(json.dumps({"uri": self.uri, **asdict(state)}) + "\n")
