"""A model directory where a trainer left it: its files, read, fetched and checked."""

import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from podium.data.seen import SeenItems
from podium.data.validated import VALIDATED
from podium.errors import Conflict, InvalidInput, NotFound
from podium.files.documents import MAX_JSON, load_json
from podium.prediction.command import FILE as COMMAND, MODELS, ONNX, PredictCommand
from podium.storage import Entry, Stored, connect, local_path

_CHECKPOINT = "checkpoint*"
"""Files of an interrupted training; they are not part of the model."""

_LARGE = 8 << 20
"""Bytes: smaller files are downloaded and hashed again, which takes fewer requests than a copy by
the server."""


def refuse_file(uri: str) -> None:
    """Refuse a file in the place of a model directory.

    Raises:
        InvalidInput: It is one.
    """
    path = local_path(uri)
    if path and os.path.isfile(path):
        hint = f"its directory is {path.parent}"
        if path.name not in MODELS and path.suffix == ".onnx":
            folder, file = shlex.quote(path.stem), shlex.quote(str(path))
            hint = f"mkdir {folder} && cp {file} {folder}/{ONNX}, and name {folder}/"
        problem = f"{uri} is a file, but a model is a directory with {' or '.join(MODELS)} in it"
        raise InvalidInput(problem, hint)


class ModelDirectory:
    """A model directory, opened once and handed on.

    Args:
        uri: A directory or the URI of one.

    Raises:
        InvalidInput: It is neither.
    """

    def __init__(self, uri: str | Path) -> None:
        self.uri = str(uri)
        refuse_file(self.uri)
        self._storage = connect(self.uri)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Its files in order, without checkpoints and validation predictions.

        Raises:
            NotFound: There is none.
        """
        names = (entry.key for entry in self._storage.list())
        left_out = (_CHECKPOINT, VALIDATED)
        files = tuple(name for name in names if not any(fnmatch(name, one) for one in left_out))
        if not files:
            raise NotFound(
                f"there is no model under {self.uri}",
                "a trainer writes it to its output, PODIUM_OUTPUT or --output",
            )
        return files

    @property
    def has_model(self) -> bool:
        """Whether it has one of MODELS, which can be evaluated."""
        return bool(set(MODELS) & set(self.files))

    def require_model(self) -> None:
        """Refuse a directory without a model that can be evaluated.

        Raises:
            NotFound: It has neither of MODELS.
        """
        if not self.has_model:
            raise NotFound(
                f"{self.uri} has neither {' nor '.join(MODELS)}, only {', '.join(self.files):.200}",
                'a trainer writes one, or the pipeline has predict=\'["python", "predict.py"]\'',
            )

    def require_no_links(self) -> None:
        """Refuse a directory with links or special files, which are not followed.

        Raises:
            InvalidInput: It has some.
        """
        links = list(self._storage.links())
        if links:
            raise InvalidInput(
                f"{self.uri} has links or special files, which are not followed: "
                f"{', '.join(links):.200}",
                "copy the files that they point at: cp -rL",
            )

    @property
    def url(self) -> str:
        """Its URI as the storage writes it."""
        return self._storage.url

    @cached_property
    def path(self) -> Path:
        """Its directory on this machine, or a copy of it that stays."""
        if here := local_path(self.uri):
            return here
        copy = Path(tempfile.mkdtemp(prefix="podium-model-"))
        self.fetch(copy)
        return copy

    def load(self, name: str) -> Any:
        """Read a JSON file; None if there is none.

        Raises:
            InvalidInput: It is not JSON.
        """
        try:
            content = self._storage.get(name, limit=MAX_JSON + 1)
        except NotFound:
            return None
        return load_json(content, f"{self.uri}/{name}")

    @property
    def command(self) -> PredictCommand:
        """Its predict command.

        Raises:
            NotFound: It has none.
            InvalidInput: It is not a predict command.
        """
        content = self._storage.get(COMMAND, limit=MAX_JSON + 1)
        return PredictCommand.parse(content, f"{self.uri}/{COMMAND}")

    @property
    def seen(self) -> SeenItems | None:
        """Items that it says were seen; None if it says nothing.

        Raises:
            Damaged: The file is not one of SeenItems.
        """
        return SeenItems.read(self._storage)

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file."""
        self._storage.put(name, content)
        self.__dict__.pop("files", None)

    def fetch(self, target: Path, names: Iterable[str] | None = None) -> dict[str, Entry]:
        """Download files.

        Args:
            target: Directory to write them to.
            names: The files; all of them if None.

        Returns:
            The entries of the files, by name.

        Raises:
            NotFound: A file is missing.
        """
        wanted = self.files if names is None else names
        return {name: self._storage.fetch(name, target / name) for name in wanted}

    def fetch_evaluated(
        self, evaluated: Mapping[str, str], etags: Mapping[str, str], target: Path
    ) -> dict[str, Path | bytes | Stored]:
        """Find the files that were evaluated, and make sure that they are still the same.

        Args:
            evaluated: sha256 of each file, by name.
            etags: Etag of each at that time, as far as it is known. A large file that still has it
                is not downloaded.
            target: Directory to write the others to.

        Returns:
            Each file, by name.

        Raises:
            NotFound: A file is missing.
            Conflict: A file has changed since the evaluation.
        """
        files = dict[str, Path | bytes | Stored]()
        changed = []
        for name, digest in evaluated.items():
            entry = self._storage.head(name)
            unchanged = entry and entry.etag == etags.get(name)
            if entry and unchanged and entry.size > _LARGE and not _is_read(name):
                files[name] = Stored(storage=self._storage, entry=entry, sha256=digest)
                continue
            self._storage.fetch(name, target / name)
            files[name] = target / name
            if _sha256(target / name) != digest:
                changed.append(name)
        if changed:
            raise Conflict(
                f"{', '.join(changed)} under {self.uri} changed after the evaluation",
                "run the evaluation again",
            )
        return files


def _is_read(name: str) -> bool:
    """Return whether the upload has to read a file; evaluate has already read model.onnx."""
    return name.endswith((".json", ".onnx")) and name != ONNX


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
