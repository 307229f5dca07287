"""Servers on this machine and their models: a file of each below PODIUM_HOME, locked while it
lives."""

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import InvalidInput
from podium.files.documents import parse, read_json
from podium.models.version import Version
from podium.system.settings import Settings

if TYPE_CHECKING:
    from podium.serving.served import Served


class Announcement:
    """The file of this process; nothing where it cannot be written, as in a pod.

    Args:
        url: Address of the server.
        served: Its models; each says when another version answers.
    """

    def __init__(self, url: str, served: "Sequence[Served]") -> None:
        self._url, self._served = url, served
        self._path = _directory() / f"{os.getpid()}.json"
        self._file: int | None = None
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(".draft")
            self._file = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.write()
            draft.rename(self._path)  # locked from the moment that it can be read
        for model in served:
            model.announce = self.write

    def write(self) -> None:
        """Write which version of each model of a registry answers now."""
        models = [
            {
                "storage": model.registered.storage.url,
                "name": model.name,
                "version": model.now.version,
            }
            for model in self._served
            if model.opened and model.registered
        ]
        if self._file is not None:
            content = json.dumps({"url": self._url, "models": models}).encode()
            with suppress(OSError):  # on a full disk nobody finds it, but it serves
                os.pwrite(self._file, content.ljust(os.fstat(self._file).st_size), 0)

    def close(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)


def servers_of(version: Version) -> list[str]:
    """Return the addresses of the servers of this machine that answer with a version now."""
    named = {"storage": version.storage.url, "name": version.name, "version": version.version}
    found = []
    for path in sorted(_directory().glob("*.json")):
        with suppress(OSError, InvalidInput):  # it ends, or is being written
            if not _is_held(path):
                path.unlink()
                continue
            written = read_json(path)
            if named in parse(list[dict[str, str]], written.get("models"), str(path)):
                found.append(str(written.get("url")))
    return found


def _is_held(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _directory() -> Path:
    return Settings.from_environment().home / "servers"
