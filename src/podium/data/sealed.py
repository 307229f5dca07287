"""The test part at rest in a run's directory: encrypted, so that no search from the data of a trial comes upon it.

The key is a file of its own, ``PODIUM_HOME/key``. The checksums in ``dataset.json`` are those of the plain files, so
that what was decrypted is verified as any file is.
"""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.drafts import appearing
from podium.errors import Denied, NotFound
from podium.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext

SUFFIX = ".sealed"
KEY_BYTES, NONCE_BYTES = 32, 16
CHUNK = 4 << 20
LINUX = sys.platform == "linux"

_opened: dict[tuple[str, int, int], Any] = {}
"""The plain bytes of each file that this process has opened, by its path, inode and time of change."""


def seal(directory: Path) -> None:
    """Encrypt every file of a test part except its ``dataset.json``."""
    key = _key(make=True)
    for path in sorted(directory.iterdir()):
        if path.name == "dataset.json" or path.suffix == SUFFIX:
            continue
        nonce = os.urandom(NONCE_BYTES)
        with appearing(_sealed(path)) as draft, path.open("rb") as plain, draft.open("wb") as kept:
            kept.write(nonce)
            _apply(_cipher(key, nonce).encryptor(), plain, kept)
        path.unlink()


def is_sealed(path: Path) -> bool:
    """Return whether a file is there in its encrypted form."""
    return _sealed(path).is_file()


def unsealed(path: Path) -> Path:
    """Return where this process finds the plain bytes of a sealed file; on Linux they have no name in any directory.

    Raises:
        NotFound: The key is not there.
        Denied: This process may not have the key.
        OSError: The file cannot be read.
    """
    known = _sealed(path).stat()
    name = str(path), known.st_ino, known.st_mtime_ns
    if name not in _opened:
        key = _key()
        file = tempfile.TemporaryFile() if LINUX else tempfile.NamedTemporaryFile()  # noqa: SIM115  until the end
        with _sealed(path).open("rb") as kept:
            _apply(_cipher(key, kept.read(NONCE_BYTES)).decryptor(), kept, file)
        file.flush()
        _opened[name] = file
    return Path(f"/proc/self/fd/{_opened[name].fileno()}" if LINUX else _opened[name].name)


def _sealed(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _cipher(key: bytes, nonce: bytes) -> "Cipher[Any]":
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(nonce))


def _apply(cipher: "CipherContext", source: Any, target: Any) -> None:
    while block := source.read(CHUNK):
        target.write(cipher.update(block))
    target.write(cipher.finalize())


def _key(*, make: bool = False) -> bytes:
    path = Settings.from_environment().home / "key"
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent) as draft:  # which nobody else may read
            draft.write(os.urandom(KEY_BYTES))
            draft.flush()
            with suppress(FileExistsError):
                os.link(draft.name, path)
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        hint = "prepare the data again: podium run --resume RUN --from prepare-data"
        raise NotFound(f"the key of the test part is not at {path}", hint) from None
    if len(key) != KEY_BYTES:
        raise Denied("a job may not open the test part: evaluate and promote alone do", "leave it to the pipeline")
    return key
