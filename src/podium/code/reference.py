"""References to packed code, URIs that end with its digest, and helpers shared by packing and
unpacking."""

import errno
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from podium.errors import Damaged, InvalidInput
from podium.storage import connect

FOLDER = "code"
"""Prefix of the archives in a storage."""

SUFFIX = ".tar.gz"

MOST_FILES = 20_000
MOST_BYTES = 64 << 20
"""Size limits of packed and of unpacked code: every pod of every trial fetches it, and it should
hold no data."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """A stored archive."""

    storage: str
    digest: str
    """sha256 of the archive."""

    @property
    def key(self) -> str:
        return f"{FOLDER}/{self.digest}{SUFFIX}"

    @property
    def uri(self) -> str:
        return f"{self.storage}/{self.key}"

    def fetch(self, digest: str = "") -> bytes:
        """Return the archive's bytes.

        Args:
            digest: sha256 of what was packed; that of the URI if empty.

        Raises:
            NotFound: There is no such archive.
            Damaged: It is not what was packed.
        """
        content, wanted = connect(self.storage).get(self.key), digest or self.digest
        actual = sha256(content).hexdigest()
        if actual != wanted:
            raise Damaged(
                f"{self.uri} has sha256 {actual}, not {wanted}",
                "pack the code again: name its directory",
            )
        return content

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a URI.

        Raises:
            InvalidInput: It is not one of packed code.
        """
        match = re.fullmatch(rf"(.+)/{FOLDER}/([0-9a-f]{{64}}){re.escape(SUFFIX)}", uri)
        if match is None:
            hint = "give a directory, or a URI that podium made of one"
            raise InvalidInput(f"code is <storage>/{FOLDER}/<sha256>{SUFFIX}, not {uri!r}", hint)
        return cls(storage=match[1], digest=match[2])


def goes_in_circles(link: Path) -> bool:
    """Return whether a link leads to itself, directly or through others."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
