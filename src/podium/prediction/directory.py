"""A model directory where a trainer left it: its files, fetched and checked."""

import hashlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from podium.errors import Conflict, NotFound
from podium.storage import Entry, Stored, connect

CHECKPOINT = "checkpoint*"
"""Files of an interrupted training; they are not part of the model."""

MODELS = ("model.onnx", "model.json")
"""Files that are evaluated: a graph, or a command that predicts."""

LARGE = 8 << 20
"""Bytes: smaller files are downloaded and hashed again, which takes fewer requests than a copy by
the server."""


def model_files(url: str) -> tuple[str, ...]:
    """List the files of a model directory in order, without checkpoints.

    Raises:
        NotFound: There is none.
    """
    names = tuple(entry.key for entry in connect(url).list() if not fnmatch(entry.key, CHECKPOINT))
    if not names:
        raise NotFound(
            f"there is no model under {url}",
            "a trainer writes it to its output, PODIUM_OUTPUT or --output",
        )
    return names


def require_model(url: str) -> None:
    """Refuse a model directory without a model that can be evaluated.

    Raises:
        NotFound: It has neither of MODELS.
    """
    names = model_files(url)
    if not set(MODELS) & set(names):
        raise NotFound(
            f"{url} has neither {' nor '.join(MODELS)}, only {', '.join(names):.200}",
            'a trainer writes one, or the pipeline has predict=\'["python", "predict.py"]\'',
        )


def fetch_model(url: str, names: Iterable[str], target: Path) -> dict[str, Entry]:
    """Download files of a model directory.

    Args:
        target: Directory to write them to.

    Returns:
        What was downloaded, by name.

    Raises:
        NotFound: A file is missing.
    """
    storage = connect(url)
    return {name: storage.fetch(name, target / name) for name in names}


def fetch_evaluated(
    url: str, evaluated: Mapping[str, str], etags: Mapping[str, str], target: Path
) -> dict[str, Path | bytes | Stored]:
    """Find the files that were evaluated, and make sure that they are still the same.

    Args:
        evaluated: sha256 of each file, by name.
        etags: Etag of each at that time, as far as it is known. A large file that still has it is
            not downloaded.
        target: Directory to write the others to.

    Returns:
        Each file, by name.

    Raises:
        NotFound: A file is missing.
        Conflict: A file has changed since the evaluation.
    """
    storage, files = connect(url), dict[str, Path | bytes | Stored]()
    changed = []
    for name, digest in evaluated.items():
        entry = storage.head(name)
        if entry and entry.etag == etags.get(name) and entry.size > LARGE and not _is_read(name):
            files[name] = Stored(storage=storage, entry=entry, sha256=digest)
            continue
        storage.fetch(name, target / name)
        files[name] = target / name
        if _sha256(target / name) != digest:
            changed.append(name)
    if changed:
        raise Conflict(
            f"{', '.join(changed)} under {url} changed after the evaluation",
            "run the evaluation again",
        )
    return files


def _is_read(name: str) -> bool:
    """Return whether the upload has to read a file; evaluate has already read model.onnx."""
    return name.endswith((".json", ".onnx")) and name != MODELS[0]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
