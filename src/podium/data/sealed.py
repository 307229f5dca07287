"""The test part at rest in a run's directory: encrypted, so that no search from the data of a trial
comes upon it, nor upon its labels, which lie beside each version.

The key is a file of its own, ``PODIUM_HOME/key``. The checksums in ``dataset.json`` are those of
the plain files, so that what was decrypted is verified as any file is.
"""

import atexit
import hmac
import io
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from podium.errors import Denied, InvalidInput, NotFound
from podium.files.drafts import appearing
from podium.storage import local_path
from podium.system.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext

_SUFFIX = ".sealed"
_MAGIC = b"podium sealed 1\n"
KEY_BYTES, NONCE_BYTES, SHORT_NONCE = 32, 16, 12
_CHUNK = 4 << 20
_LINUX = sys.platform == "linux"

_opened: dict[tuple[str, int, int], Any] = {}
"""The plain bytes of each file that this process has opened, by its path, inode and time of
change."""


def seal(directory: Path) -> None:
    """Encrypt every file of a test part except its ``dataset.json``."""
    key = _key(make=True)
    for path in sorted(directory.iterdir()):
        if path.name == "dataset.json" or path.suffix == _SUFFIX:
            continue
        nonce = os.urandom(NONCE_BYTES)
        with appearing(_sealed(path)) as draft, path.open("rb") as plain, draft.open("wb") as kept:
            kept.write(nonce)
            _apply(_cipher(key, nonce).encryptor(), plain, kept)
        path.unlink()


def holds_sealed(uri: str | Path) -> bool:
    """Return whether a test part lies on this machine in its encrypted form."""
    directory = local_path(uri)
    return directory is not None and any(directory.glob(f"*{_SUFFIX}"))


def save_labels(path: Path, labels: np.ndarray, *, sealed: bool) -> None:
    """Write an array as ``.npy``, encrypted where the test part is that it is of."""
    stream = io.BytesIO()
    np.save(stream, labels)
    content = stream.getvalue()
    if sealed:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = _key(make=True)
        # Equal contents stay equal, so that a step can be repeated.
        nonce = hmac.digest(key, content, "sha256")[:SHORT_NONCE]
        content = _MAGIC + nonce + AESGCM(key).encrypt(nonce, content, _MAGIC)
    path.write_bytes(content)


def opened(content: bytes, name: str) -> bytes:
    """Return what save_labels wrote before it was encrypted; plain content is returned as it is.

    Raises:
        InvalidInput: The key is not there, or another one.
    """
    if not content.startswith(_MAGIC):
        return content
    nonce, sealed = content[len(_MAGIC) :][:SHORT_NONCE], content[len(_MAGIC) + SHORT_NONCE :]
    words = f"{name} is encrypted with the key of the machine that evaluated it"
    other = InvalidInput(words, "compare on the data themselves: --data URI")
    try:
        key = _key()
    except (NotFound, Denied):
        raise other from None
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(nonce, sealed, _MAGIC)
    except (InvalidTag, ValueError):
        raise other from None


def is_sealed(path: Path) -> bool:
    """Return whether a file is there in its encrypted form."""
    return _sealed(path).is_file()


def unsealed(path: Path) -> Path:
    """Return where this process finds the plain bytes of a sealed file; on Linux they have no name
    in any directory.

    Raises:
        NotFound: The key is not there.
        Denied: This process may not have the key.
        OSError: The file cannot be read.
    """
    status = _sealed(path).stat()
    name = str(path), status.st_ino, status.st_mtime_ns
    if name not in _opened:
        key = _key()
        file = tempfile.TemporaryFile() if _LINUX else tempfile.NamedTemporaryFile()  # noqa: SIM115  until the end
        with _sealed(path).open("rb") as kept:
            _apply(_cipher(key, kept.read(NONCE_BYTES)).decryptor(), kept, file)
        file.flush()
        _opened[name] = file
        atexit.register(file.close)
    return Path(f"/proc/self/fd/{_opened[name].fileno()}" if _LINUX else _opened[name].name)


def _sealed(path: Path) -> Path:
    return path.with_name(path.name + _SUFFIX)


def _cipher(key: bytes, nonce: bytes) -> "Cipher[Any]":
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(nonce))


def _apply(cipher: "CipherContext", source: Any, target: Any) -> None:
    while block := source.read(_CHUNK):
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
        raise Denied(
            "a job may not open the test part: only evaluate and promote do",
            "leave it to the pipeline",
        )
    return key
