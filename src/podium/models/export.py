"""A version in the form that another program takes: MLflow, Triton, or a registry of container
images."""

from collections.abc import Callable
from pathlib import Path

from podium.errors import InvalidInput
from podium.files.drafts import appearing
from podium.models import export_mlflow, export_oci, export_triton
from podium.models.card import card
from podium.models.document import CARD
from podium.models.signature import require_trusted
from podium.models.version import Version
from podium.storage.base import Progress
from podium.system.plugins import Table

FORMS = Table[Callable[[Version, Path], None]](
    "exporters",
    {
        "mlflow": export_mlflow.write,
        "triton": export_triton.write,
        "oci": export_oci.write,
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
