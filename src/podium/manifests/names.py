"""Names: rules of the API server, and its way to make a name unique."""

import re
import secrets
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.resource import R
from podium.manifests.rules import shorten

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_dns_1035(name: str) -> bool:
    """Return whether a name is a DNS-1035 label: lower case letters, digits and -, a letter first,
    at most 63."""
    return len(name) <= 63 and bool(_DNS_1035.fullmatch(name))


def is_dns_1123(name: str) -> bool:
    """Return whether a name is a DNS-1123 subdomain: as a batch Job's, dots and a digit first
    allowed, at most 253."""
    return len(name) <= 253 and bool(_DNS_1123.fullmatch(name))


_LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def is_label(name: str, value: Any) -> bool:
    """Return whether an object can have a label: letters, digits, ``-``, ``_`` and ``.``, at most
    63 of them, in its name, which may follow a DNS-1123 subdomain and a slash, and in its value,
    which may be empty."""
    prefix, slash, own = name.rpartition("/")
    is_value = isinstance(value, str) and (not value or bool(_LABEL.fullmatch(value)))
    return is_value and bool(_LABEL.fullmatch(own)) and (not slash or is_dns_1123(prefix))


EXPERIMENT_NAME = (
    "must be lower case letters, digits and '-', begin with a letter and have at most 40 characters"
)
"""The rule of Katib's webhook."""


def is_experiment_name(name: str) -> bool:
    """Return whether an Experiment can have a name."""
    return is_dns_1123(name) and name[0].isalpha() and len(name) <= 40


def random_suffix(length: int = 5) -> str:
    """Return random letters and digits of Kubernetes' alphabet, which spells no words."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(length))


def named(resource: R) -> R:
    """Return an object with a name, generated from ``metadata.generateName`` if it has none.

    Raises:
        InvalidInput: There is neither, or the name cannot be a folder's.
    """
    metadata = resource.manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise InvalidInput(
            f"metadata must be an object, but got {shorten(metadata)}", "metadata: {name: …}"
        )
    name, beginning = metadata.get("name"), metadata.get("generateName")
    if not name and isinstance(beginning, str):
        name = beginning + random_suffix()
    # The name becomes a folder, so it is checked before the rules of each kind are.
    if not isinstance(name, str) or not name or "/" in name or name[0] == ".":
        hint = "lower case letters, digits and dashes"
        raise InvalidInput(f"metadata.name must be a name, but got {shorten(name)}", hint)
    return resource.with_metadata({**metadata, "name": name})
