"""Files and directories that appear whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yield a path beside target, where the caller makes a file or a directory that takes target's
    place in the end.

    The directory of target is not made: what is written again must not bring back what was deleted
    meanwhile. After an error target is what it was and nothing lies beside it. A directory that
    holds something makes room for another directory, and is removed after that.
    """
    draft = target.with_name(f".podium-{uuid.uuid4().hex}.tmp")
    old = draft.with_suffix(".old.tmp")
    moves = False
    try:
        yield draft
        if draft.is_dir() and target.is_dir() and any(target.iterdir()):
            moves = True
            target.replace(old)
        draft.replace(target)
    except BaseException:
        if moves and not target.exists():
            old.replace(target)
        _remove(draft)
        _remove(old)
        raise
    if moves:
        _remove(old)


def replace(target: Path, content: bytes) -> None:
    """Put content in target's place, as appearing does for a file; for what is written many times a
    second, where paths take longer than the disk."""
    draft = os.path.join(os.path.dirname(target), f".podium-{uuid.uuid4().hex}.tmp")
    try:
        with open(draft, "wb") as file:
            file.write(content)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _remove(left: Path) -> None:
    # A full disk needs the room; what stays there is no error of its own.
    with suppress(OSError):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
