"""What lies outside the API server: registries and stores, asked from here."""

import re
from collections.abc import Iterable, Sequence
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PATIENCE = 5.0
"""Seconds to wait for an answer."""


def answers(url: str) -> tuple[bool, str]:
    """Ask an address outside the cluster; any HTTP answer will do."""
    try:
        with urlopen(Request(url, method="HEAD"), timeout=PATIENCE) as answer:
            return True, f"{url} answers {answer.status}"
    except HTTPError as error:
        return True, f"{url} answers {error.code}"
    except (URLError, OSError, ValueError) as error:
        return False, f"{url} does not answer from here: {getattr(error, 'reason', error)}"


def find_images(on_nodes: Iterable[str], images: Sequence[str]) -> dict[str, str | None]:
    """Look for images on the nodes, then in the registry that the name itself gives.

    Returns:
        For each image ``node``, ``registry``, an HTTP status, or None if nothing is known.
    """
    there = {full_name(name) for name in on_nodes}
    return {image: "node" if full_name(image) in there else _in_registry(image) for image in dict.fromkeys(images)}


def full_name(image: str) -> str:
    """Return an image's name as container runtimes report it, registry left out where it is the default one."""
    name = re.sub(r"^(index\.)?docker\.io/", "", image)
    name = name.removeprefix("library/")
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def _in_registry(image: str) -> str | None:
    host, _, rest = image.partition("/")
    if not rest or ("." not in host and ":" not in host and host != "localhost") or host.endswith("docker.io"):
        return None
    name, _, digest = rest.partition("@")
    name, _, tag = name.partition(":")
    scheme = "http" if re.match(r"localhost|127\.", host) else "https"
    kinds = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
    kinds += ", application/vnd.docker.distribution.manifest.v2+json"
    kinds += ", application/vnd.docker.distribution.manifest.list.v2+json"
    url = f"{scheme}://{host}/v2/{name}/manifests/{digest or tag or 'latest'}"
    try:
        with urlopen(Request(url, method="HEAD", headers={"Accept": kinds}), timeout=PATIENCE):
            return "registry"
    except HTTPError as error:
        return str(error.code)
    except (URLError, OSError, ValueError):
        return None
