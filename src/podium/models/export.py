"""A version in the form that another program takes: MLflow, Triton, or a registry of container
images."""

import json
import shutil
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput
from podium.files.drafts import appearing
from podium.models import export_mlflow
from podium.models.card import card
from podium.models.document import CARD, sha256_of
from podium.models.export_mlflow import graph_of
from podium.models.signature import require_trusted
from podium.models.version import Version
from podium.prediction.command import ONNX
from podium.scoring.model import Tensor
from podium.storage.base import Progress
from podium.system.plugins import Table

_TYPES = {
    "float32": "TYPE_FP32", "float64": "TYPE_FP64", "float16": "TYPE_FP16", "uint8": "TYPE_UINT8", "int8": "TYPE_INT8",
    "uint16": "TYPE_UINT16", "int16": "TYPE_INT16", "uint32": "TYPE_UINT32", "int32": "TYPE_INT32",
    "uint64": "TYPE_UINT64", "int64": "TYPE_INT64", "bool": "TYPE_BOOL", "object": "TYPE_STRING",
    "tensor(bfloat16)": "TYPE_BF16",
}  # fmt: skip
"""Triton's data types by those of a Tensor."""

_MOST_ROWS = 1024
"""Rows of a batch at most, as `podium serve` has it."""


def _write_triton(version: Version, directory: Path) -> None:
    """Write a model repository of Triton Inference Server: NAME/config.pbtxt and NAME/1/model.onnx.

    Raises:
        InvalidInput: It is not an ONNX graph, or takes or returns what Triton has no type for.
    """
    graph = graph_of(version, "triton")
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.dtype not in _TYPES:
            raise InvalidInput(
                f"{version.title} has {tensor.name} of {tensor.dtype}, but Triton serves tensors of plain types only",
                'leave maps out when it is made: skl2onnx.to_onnx(…, options={"zipmap": False})',
            )
    content = version.read(ONNX)
    numbered = directory / version.name / "1"
    numbered.mkdir(parents=True)
    (numbered / ONNX).write_bytes(content)
    (numbered.parent / "config.pbtxt").write_text(
        _config(version.name, graph.inputs, graph.outputs)
    )


def _config(name: str, inputs: Sequence["Tensor"], outputs: Sequence["Tensor"]) -> str:
    batched = all(tensor.shape[:1] == (None,) for tensor in (*inputs, *outputs))
    lines = [f"name: {json.dumps(name)}", 'backend: "onnxruntime"', 'platform: "onnxruntime_onnx"']
    lines.append(f"max_batch_size: {_MOST_ROWS if batched else 0}")
    for side, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            lines += [f"{side} {{", *_triton_tensor(tensor, batched), "}"]
    return "\n".join([*lines, *(["dynamic_batching { }"] if batched else [])]) + "\n"


def _triton_tensor(tensor: "Tensor", batched: bool) -> Iterable[str]:
    """Yield the fields of an input or output; with batches Triton itself has the first axis."""
    sizes = [-1 if size is None else size for size in tensor.shape[1 if batched else 0 :]]
    # json escapes what text format escapes, once everything beyond ASCII is UTF-8 as it is.
    yield f"  name: {json.dumps(tensor.name, ensure_ascii=False)}"
    yield f"  data_type: {_TYPES[tensor.dtype]}"
    yield f"  dims: [ {', '.join(map(str, sizes or [1]))} ]"
    if not sizes:
        yield "  reshape { shape: [ ] }"


_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_PLATFORMS = ("amd64", "arm64")
"""A node pulls the image of its own architecture; both have the same layer."""


def _write_oci(version: Version, directory: Path) -> None:
    """Write a container image, an OCI image layout whose only layer has the files below /models;
    the same version gives the same digests.

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
    digest, size = sha256_of(archive)
    archive.rename(blobs / digest)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": size}


def _document(document: dict[str, Any], media_type: str, blobs: Path) -> dict[str, Any]:
    content = json.dumps(document, separators=(",", ":")).encode()
    digest, size = sha256_of(content)
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


FORMS = Table[Callable[[Version, Path], None]](
    "exporters",
    {
        "mlflow": export_mlflow.write,
        "triton": _write_triton,
        "oci": _write_oci,
    },
)
"""Writer of each format; the directory that it creates must not exist."""


def export(
    version: Version, form: str | None, directory: Path, progress: Progress | None = None
) -> Path:
    """Write a version in one of FORMS, or its files if that is None, and its model card beside
    them; every file is verified before the directory appears.

    Args:
        directory: One that does not exist yet, or is empty.
        progress: Called with the size of every chunk of its files.

    Raises:
        InvalidInput: The directory is not empty, or the form cannot hold the version.
        Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
        Damaged: A file does not match its sha256.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise InvalidInput(f"{directory} is not an empty directory", "name another directory")
    require_trusted(version)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with appearing(directory) as draft:
        if form is None:
            version.fetch(draft, progress=progress)
        else:
            FORMS[form](version, draft)
        if not (draft / CARD).exists():
            (draft / CARD).write_text(card(version))
    return directory
