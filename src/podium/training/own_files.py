"""The model of a trainer that knows nothing of podium: its own files, and a command that predicts
with them."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from podium.code.__main__ import unpack
from podium.code.reference import Code
from podium.prediction.command import FILE
from podium.prediction.directory import ModelDirectory
from podium.training.base import say
from podium.training.target import LaunchTarget


def complete(directory: ModelDirectory, target: LaunchTarget) -> None:
    """Add the predict command to a model directory that has no model of its own, with the files of
    the code it names.

    Args:
        directory: Where a trainer left its files.
        target: Has the command and the code; without a command nothing is added.

    Raises:
        NotFound: Nothing was left there, or no model and there is no command.
    """
    if target.predict and not directory.has_model:
        if target.code:
            code = Code.parse(target.code)
            with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
                root = unpack(code.fetch(), Path(scratch).resolve(), code.uri)
                for file in _named(target.predict, root):
                    directory.put(file.relative_to(root).as_posix(), file)
        directory.put(FILE, json.dumps({"predict": list(target.predict)}).encode())
        say(f"{directory.uri} predicts by {' '.join(target.predict)}")
    directory.require_model()


def _named(words: Sequence[str], root: Path) -> Iterator[Path]:
    """Yield files below a directory that a command names, directly or by a directory above them."""
    for word in words:
        path = (root / word).resolve()
        if path != root and path.is_relative_to(root):
            yield from filter(Path.is_file, [path, *path.rglob("*")])
