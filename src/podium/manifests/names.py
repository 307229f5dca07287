"""Rules for names, as an API server checks them, and its way to make one unique."""

import re
import secrets

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_dns_1035(name: str) -> bool:
    """Return whether a name is a DNS-1035 label: lower case letters, digits and -, a letter first, at most 63."""
    return len(name) <= 63 and bool(_DNS_1035.fullmatch(name))


def is_dns_1123(name: str) -> bool:
    """Return whether a name is a DNS-1123 subdomain: as a batch Job's, dots and a digit first allowed, at most 253."""
    return len(name) <= 253 and bool(_DNS_1123.fullmatch(name))


def random_suffix(length: int = 5) -> str:
    """Return random letters and digits of Kubernetes' alphabet, which spells no words."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(length))
