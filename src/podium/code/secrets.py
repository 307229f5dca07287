"""Files that are packed only on request: they hold credentials, by their name or their content."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from podium.errors import InvalidInput
from podium.text import one_line

ALLOW = "PODIUM_CODE_ALLOW"
"""Variable with the files that are packed all the same: paths in the code, with a colon between
them."""

NAMES = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass",
    ".my.cnf", ".htpasswd", ".dockercfg", ".dockerconfigjson", ".boto", ".s3cfg", ".vault-token", "rclone.conf",
    "kaggle.json", "credentials", "credentials.json", "credentials.y*ml", "secret.json", "secret.y*ml", "secrets.json",
    "secrets.y*ml", "secrets.toml", "client_secret*.json", "service-account*.json", "service_account*.json",
    "kubeconfig", "*.kubeconfig", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p8", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.tfstate", "*.tfvars", ".*_history", ".histfile", ".lesshst",
    ".viminfo",
)  # fmt: skip
"""Patterns of file names, lower case."""

FOLDERS = (".aws", ".azure", ".docker", ".gnupg", ".kube", ".mc", ".ssh", "gcloud")
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


def is_secret(name: str) -> bool:
    """Return whether a file is left out for its name or for that of a directory it is in."""
    *folders, last = name.lower().split("/")
    return any(fnmatchcase(last, pattern) for pattern in NAMES) or not set(FOLDERS).isdisjoint(
        folders
    )


def allowed() -> set[str]:
    """Return the files that PODIUM_CODE_ALLOW names."""
    return {str(PurePosixPath(name)) for name in os.environ.get(ALLOW, "").split(":") if name}


def allow(names: Iterable[str]) -> str:
    """Return the command that allows files beside those that are allowed already."""
    return f"export {ALLOW}={shlex.quote(one_line(':'.join(sorted({*allowed(), *names}))))}"


def refuse_secrets(contents: Mapping[str, bytes]) -> None:
    """Refuse files with a string that looks like a private key or a token.

    Args:
        contents: Bytes by name.

    Raises:
        InvalidInput: One does, and it is not allowed. The secret itself is not in the message.
    """
    permitted = allowed()
    found = {
        name: what
        for name, content in contents.items()
        if name not in permitted and (what := _held(content))
    }
    if found:
        first = "; ".join(
            f"{one_line(name)} holds what looks like {what}"
            for name, what in list(found.items())[:5]
        )
        more = f"; so do {len(found) - 5} more files" if len(found) > 5 else ""
        raise InvalidInput(
            f"code is stored and every trial reads it, but {first}{more}",
            f"take it out, or if it is none: {allow(found)}",
        )


def _held(content: bytes) -> str:
    """Return a secret found in a file, with its line; empty if there is none."""
    for start, (what, rest) in _CONTENT.items():
        # A literal at the front is found fast; that nothing goes before it is looked at afterwards.
        form = re.escape(start) + rb"(?<![A-Za-z0-9]" + re.escape(start) + rb")" + rest
        if start in content and (match := re.search(form, content)):
            line = content.count(b"\n", 0, match.start()) + 1
            return f"{what} (line {line})"
    return ""
