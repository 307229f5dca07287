"""A model directory where a trainer left it: its files, fetched and checked."""

import hashlib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from podium.errors import Conflict, NotFound
from podium.storage import connect

CHECKPOINT = "checkpoint*"
"""Files of an interrupted training; they are not part of the model."""

MODELS = ("model.onnx", "model.json")
"""What is evaluated: a graph, or a command that predicts."""


def model_files(url: str) -> tuple[str, ...]:
    """List the files of a model directory in order, without checkpoints.

    Raises:
        NotFound: There is none.
    """
    names = tuple(entry.key for entry in connect(url).list() if not fnmatch(entry.key, CHECKPOINT))
    if not names:
        raise NotFound(f"there is no model under {url}", "a trainer writes it to its output, PODIUM_OUTPUT or --output")
    return names


def require_model(url: str) -> None:
    """Refuse a model directory without a model that can be evaluated.

    Raises:
        NotFound: It has neither of MODELS.
    """
    names = model_files(url)
    if not set(MODELS) & set(names):
        raise NotFound(f"{url} has neither {' nor '.join(MODELS)}, only {', '.join(names):.200}",
                       "a trainer writes one of them to its output")  # fmt: skip


def fetch_model(url: str, names: Iterable[str], target: Path) -> dict[str, str]:
    """Download files of a model directory.

    Args:
        target: Directory to write them to.

    Returns:
        The sha256 of each file, by name.

    Raises:
        NotFound: A file is missing.
    """
    storage = connect(url)
    for name in names:
        storage.fetch(name, target / name)
    return {name: _sha256(target / name) for name in names}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_evaluated(url: str, evaluated: dict[str, str], target: Path) -> dict[str, Path]:
    """Download the files that were evaluated, and make sure that they are still the same.

    Args:
        evaluated: sha256 of each file, by name.
        target: Directory to write them to.

    Returns:
        Path of each file, by name.

    Raises:
        NotFound: A file is missing.
        Conflict: A file has changed since the evaluation.
    """
    fetched = fetch_model(url, evaluated, target)
    changed = [name for name, digest in evaluated.items() if fetched[name] != digest]
    if changed:
        raise Conflict(f"{', '.join(changed)} under {url} changed after the evaluation", "run the evaluation again")
    return {name: target / name for name in evaluated}
