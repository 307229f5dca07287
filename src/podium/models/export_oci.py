"""A version as a container image: an OCI image layout whose only layer has the files below
/models."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

from podium.models.version import Version

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_PLATFORMS = ("amd64", "arm64")
"""A node pulls the image of its own architecture; both have the same layer."""


def write(version: Version, directory: Path) -> None:
    """Write the layout; the same version gives the same digests.

    The layer is not compressed: weights hardly get smaller. Two manifests name it, one for each of
    _PLATFORMS.
    """
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = _layer(version, directory, blobs)
    created = f"{version.created:%Y-%m-%dT%H:%M:%SZ}"
    about = {
        "org.opencontainers.image.title": version.name,
        "org.opencontainers.image.version": version.version,
        "org.opencontainers.image.created": created,
    }
    manifests = []
    for architecture in _PLATFORMS:
        platform = {"architecture": architecture, "os": "linux"}
        config = platform | {
            "created": created,
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
            "history": [
                {
                    "created": created,
                    "created_by": f"podium models export {version.name} {version.version}",
                }
            ],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _document(config, _CONFIG, blobs),
            "layers": [layer],
            "annotations": about,
        }
        manifests.append(_document(manifest, _MANIFEST, blobs) | {"platform": platform})
    image = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests, "annotations": about}
    named = _document(image, _INDEX, blobs) | {
        "annotations": {"org.opencontainers.image.ref.name": version.version}
    }
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}
    (directory / "index.json").write_text(json.dumps(index, indent=1))


def _layer(version: Version, directory: Path, blobs: Path) -> dict[str, Any]:
    """Write the files as a tar and return its descriptor."""
    files, archive = directory / "files", directory / "layer.tar"
    version.fetch(files)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in (files, *sorted(files.rglob("*"))):
            entry = tarfile.TarInfo((Path("models") / path.relative_to(files)).as_posix())
            entry.mtime, entry.mode = (
                int(version.created.timestamp()),
                0o755 if path.is_dir() else 0o644,
            )
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            else:
                entry.size = path.stat().st_size
                with path.open("rb") as content:
                    tar.addfile(entry, content)
    shutil.rmtree(files)
    with archive.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    size = archive.stat().st_size
    archive.rename(blobs / digest)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": size}


def _document(document: dict[str, Any], media_type: str, blobs: Path) -> dict[str, Any]:
    content = json.dumps(document, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
