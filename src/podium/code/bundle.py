"""Pack a directory: the same files make the same bytes, whoever packs them, whenever and
wherever; files that hold credentials, by their name or their content, only on request."""

import gzip
import io
import logging
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch, fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath

from podium.code.reference import MOST_BYTES, MOST_FILES, Code, goes_in_circles
from podium.display.text import one_line
from podium.errors import Conflict, InvalidInput
from podium.storage import connect

_ALLOW = "PODIUM_CODE_ALLOW"
"""Variable with the files that are packed all the same: paths in the code, with a colon between
them."""

_NAMES = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass",
    ".my.cnf", ".htpasswd", ".dockercfg", ".dockerconfigjson", ".boto", ".s3cfg", ".vault-token", "rclone.conf",
    "kaggle.json", "credentials", "credentials.json", "credentials.y*ml", "secret.json", "secret.y*ml", "secrets.json",
    "secrets.y*ml", "secrets.toml", "client_secret*.json", "service-account*.json", "service_account*.json",
    "kubeconfig", "*.kubeconfig", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p8", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.tfstate", "*.tfvars", ".*_history", ".histfile", ".lesshst",
    ".viminfo",
)  # fmt: skip
"""Patterns of file names, lower case."""

_FOLDERS = (".aws", ".azure", ".docker", ".gnupg", ".kube", ".mc", ".ssh", "gcloud")
"""Names of directories, lower case."""

_CONTENT = {
    b"-----BEGIN ": ("a private key", rb"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    b"AKIA": ("an access key of AWS", rb"[0-9A-Z]{16}(?<!EXAMPLE)(?![0-9A-Za-z])"),
    b"gh": ("a token of GitHub", rb"[pousr]_[A-Za-z0-9]{36}"),
    b"github_pat_": ("a token of GitHub", rb"[A-Za-z0-9_]{50}"),
    b"glpat-": ("a token of GitLab", rb"[A-Za-z0-9_-]{20}"),
    b"hf_": ("a token of Hugging Face", rb"[A-Za-z0-9]{34}"),
    b"sk-": ("an API key", rb"(?:[A-Za-z0-9]{48}|(?:ant|proj|svcacct)-[A-Za-z0-9_-]{40})"),
    b"sk_live_": ("an API key", rb"[A-Za-z0-9]{24}"),
    b"xox": ("a token of Slack", rb"[abprs]-[A-Za-z0-9-]{20}"),
    b"AIza": ("an API key of Google", rb"[A-Za-z0-9_-]{35}"),
    b"pypi-AgE": ("a token of PyPI", rb"[A-Za-z0-9_-]{50}"),
    b"npm_": ("a token of npm", rb"[A-Za-z0-9]{36}"),
    b"eyJ": ("a JSON web token", rb"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
}
"""Prefix, description and rest of the pattern of each known credential."""


def _is_secret(name: str) -> bool:
    *folders, last = name.lower().split("/")
    return any(fnmatchcase(last, pattern) for pattern in _NAMES) or not set(_FOLDERS).isdisjoint(
        folders
    )


def _allowed() -> set[str]:
    return {str(PurePosixPath(name)) for name in os.environ.get(_ALLOW, "").split(":") if name}


def _allow(names: Iterable[str]) -> str:
    return f"export {_ALLOW}={shlex.quote(one_line(':'.join(sorted({*_allowed(), *names}))))}"


def _refuse_secrets(contents: Mapping[str, bytes]) -> None:
    """Refuse files with a string that looks like a private key or a token.

    Args:
        contents: Bytes by name.

    Raises:
        InvalidInput: One does, and it is not allowed. The secret itself is not in the message.
    """
    permitted = _allowed()
    found = {
        name: secret
        for name, content in contents.items()
        if name not in permitted and (secret := _held(content))
    }
    if found:
        first = "; ".join(
            f"{one_line(name)} holds what looks like {secret}"
            for name, secret in list(found.items())[:5]
        )
        more = f"; so do {len(found) - 5} more files" if len(found) > 5 else ""
        raise InvalidInput(
            f"code is stored and every trial reads it, but {first}{more}",
            f"remove it, or if it is not a secret: {_allow(found)}",
        )


def _held(content: bytes) -> str:
    """Return a secret found in a file, with its line; empty if there is none."""
    for start, (kind, rest) in _CONTENT.items():
        # A literal at the front is found fast; that nothing goes before it is looked at afterwards.
        form = re.escape(start) + rb"(?<![A-Za-z0-9]" + re.escape(start) + rb")" + rest
        if start in content and (match := re.search(form, content)):
            line = content.count(b"\n", 0, match.start()) + 1
            return f"{kind} (line {line})"
    return ""


_log = logging.getLogger("podium")

_NEVER = (".git", "__pycache__", "*.pyc", "podium-work")
"""Names that are left out wherever they are."""

_IGNORED = (
    "*.egg-info", ".cache", ".DS_Store", ".hg", ".idea", ".ipynb_checkpoints", ".mypy_cache", ".nox",
    ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "node_modules", "venv",
)  # fmt: skip
"""Names that are left out of a directory outside a git checkout; a checkout has its own list."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A packed directory."""

    digest: str
    """sha256 of the content."""

    content: bytes
    """A .tar.gz."""

    files: int

    def code_in(self, storage: str) -> Code:
        """Return the reference to it in a storage, where it may not be yet."""
        return Code(storage=connect(storage).url, digest=self.digest)

    def store(self, storage: str) -> Code:
        """Put it into a storage, unless it is there."""
        target = connect(storage)
        code = Code(storage=target.url, digest=self.digest)
        try:
            target.put(code.key, self.content, if_absent=True)
        except Conflict:
            if sha256(target.get(code.key)).hexdigest() != code.digest:
                target.put(code.key, self.content)
        return code

    def changed_since(self, before: bytes) -> list[str]:
        """Return the names of the files by which it differs from the content of another."""
        first, second = _entries(before), _entries(self.content)
        names = sorted({*first, *second})
        return [name for name in names if first.get(name) != second.get(name)]


def _entries(content: bytes) -> dict[str, object]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return {
            entry.name: (entry.mode, entry.linkname, file.read() if file else b"")
            for entry in archive
            for file in [archive.extractfile(entry) if entry.isfile() else None]
        }


def pack(directory: Path | None, files: Mapping[str, bytes] | None = None) -> Bundle:
    """Pack the files of a directory, without those that git ignores and those that hold
    credentials.

    Args:
        directory: None packs the other files only.
        files: Content of other files by name; they take the place of the directory's own of these
            names.

    Raises:
        InvalidInput: There is no such directory, it holds nothing, more than the limits, or what
            looks like a secret; or a link leads out of it.
    """
    others, raw = files or {}, io.BytesIO()
    root, names = _listed(directory) if directory else (Path(), [])
    links = {name for name in names if name not in others and (root / name).is_symlink()}
    contents = {
        name: others[name] if name in others else _read(root / name)
        for name in {*names, *others} - links
    }
    _refuse_secrets(contents)
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({*names, *others}):
            if name in links:
                _add_link(archive, root, name)
            else:
                _add(
                    archive,
                    name,
                    contents[name],
                    executable=name not in others and bool((root / name).stat().st_mode & 0o100),
                )
    content = gzip.compress(raw.getvalue(), 6, mtime=0)
    return Bundle(digest=sha256(content).hexdigest(), content=content, files=len({*names, *others}))


def _listed(directory: Path) -> tuple[Path, list[str]]:
    """Return the root of a directory and the names of its files to pack; say which are left out as
    secrets."""
    if not os.path.isdir(directory):  # also of a text that is too long for a path
        raise InvalidInput(
            f"code is a directory, but there is no directory {directory}", "for example code=."
        )
    root, permitted = directory.resolve(), _allowed()
    listed = _known_to_git(root)
    every = sorted(
        name for name in (_walk(root) if listed is None else listed) if not _matches(name, _NEVER)
    )
    secret = [name for name in every if _is_secret(name) and name not in permitted]
    if secret:
        shown = ", ".join(map(one_line, secret[:10])) + (
            f" and {len(secret) - 10} more" if len(secret) > 10 else ""
        )
        _log.warning(
            f"left out of the code, as files that hold credentials: {shown}; to pack them: {_allow(secret)}"
        )
    names = [name for name in every if name not in set(secret)]
    if not names:
        raise InvalidInput(
            f"{directory} holds no code: it is empty, or git ignores all of it", "see .gitignore"
        )
    _check_size(root, names, str(directory))
    return root, names


def _known_to_git(root: Path) -> list[str] | None:
    """Return the files that git tracks or would track below a directory; None outside a checkout.

    Raises:
        InvalidInput: It is a checkout that git does not read: what it ignores would be packed.
    """
    command = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=60, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode:
        said = one_line(done.stderr.decode(errors="replace").strip())
        if "not a git repository (" in said:
            return None
        raise InvalidInput(
            f"git cannot say which files of {root} it ignores, and those are not packed: {said}",
            f"git -C {shlex.quote(str(root))} status",
        )
    listed = [os.fsdecode(name).rstrip("/") for name in done.stdout.split(b"\0") if name]
    names: set[str] = set()
    for name in listed:
        path = root / name
        if path.is_dir() and not path.is_symlink():  # a submodule, or a checkout inside this one
            names |= {f"{name}/{inner}" for inner in (_known_to_git(path) or [])}
        elif os.path.lexists(path):  # else it is deleted and git has not been told
            names.add(name)
    return sorted(names)


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        here = PurePosixPath(Path(folder).relative_to(root).as_posix())
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [
            name for name in folders if name not in links and not _matches(name, _NEVER + _IGNORED)
        ]
        yield from (str(here / name) for name in (*files, *links) if not _matches(name, _IGNORED))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(part, pattern) for part in name.split("/") for pattern in patterns)


def _check_size(root: Path, names: list[str], shown: str) -> None:
    hint = "list files that are not code in .gitignore (of a git checkout), or keep data outside of the directory"
    if len(names) > MOST_FILES:
        raise InvalidInput(
            f"{shown} holds {len(names):,} files, but code has at most {MOST_FILES:,}", hint
        )
    sizes = {name: (root / name).lstat().st_size for name in names}
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        biggest = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
        most = f"code has at most {MOST_BYTES >> 20} MiB"
        raise InvalidInput(
            f"{shown} holds {total / 1e6:.1f} MB, but {most}; the largest files: {biggest}", hint
        )


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise InvalidInput(
            f"{path} is neither a file nor a directory", "name it in .gitignore, or remove it"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error.strerror}", "name it in .gitignore, or remove it"
        ) from None


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, executable: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o755 if executable else 0o644, len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_link(archive: tarfile.TarFile, root: Path, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, _inside(root, root / name)
    archive.addfile(entry)


def _inside(root: Path, link: Path) -> str:
    if goes_in_circles(link):
        raise InvalidInput(f"the link {link} leads to itself", f"rm {shlex.quote(str(link))}")
    target = link.resolve()
    if not target.is_relative_to(root):
        hint = "copy its target, or name the link in .gitignore"
        raise InvalidInput(f"the link {link} leads out of {root}, to {target}", hint)
    return os.path.relpath(target, link.parent)
