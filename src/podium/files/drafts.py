"""Files and directories that appear whole or not at all."""

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
    draft, old = (target.with_name(f".podium-{uuid.uuid4().hex}.tmp") for _ in range(2))
    try:
        yield draft
        if draft.is_dir() and target.is_dir() and any(target.iterdir()):
            target.replace(old)
        draft.replace(target)
    finally:
        if old.exists() and not target.exists():
            old.replace(target)
        for left in (draft, old):
            with suppress(
                OSError
            ):  # a full disk needs the room; what stays there is no error of its own
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(
                    missing_ok=True
                )
