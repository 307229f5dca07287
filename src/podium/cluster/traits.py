"""Properties of each kind of cluster, by the scheme of its URL."""

from dataclasses import dataclass

from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a cluster that callers may rely on without asking which kind they hold."""

    shares_files: bool
    """Whether its jobs see the files of this machine, and its Python replaces images."""

    outlives_client: bool
    """Whether objects survive close() and the process that created them."""

    keeps_logs: bool
    """Logs stay when a job has ended, and when its pods are gone."""

    collects_garbage: bool
    """An object goes with its owner."""


_TRAITS = {
    "kubernetes": Traits(
        shares_files=False, outlives_client=True, keeps_logs=False, collects_garbage=True
    ),
    "local": Traits(
        shares_files=True, outlives_client=False, keeps_logs=True, collects_garbage=False
    ),
}
"""By scheme of the URL."""


def traits_of(url: str) -> Traits:
    """Return the traits of the cluster at a URL, without looking for it.

    Raises:
        InvalidInput: No cluster has the URL's scheme.
    """
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in _TRAITS:
        raise InvalidInput(
            f"no cluster has the scheme {scheme!r}: {url}",
            "use kubernetes://namespace or local:///dir",
        )
    return _TRAITS[scheme]
