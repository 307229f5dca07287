"""Write a project from a template."""

from importlib import resources
from pathlib import Path

from podium.drafts import appearing
from podium.errors import InvalidInput, PodiumError, suggestion
from podium.models.document import check_name

TEMPLATES = ("table", "images", "text", "blank")
SUFFIX = ".tmpl"
NAME = "PROJECT_NAME"
"""Placeholder for the project's name in a template."""


def create(target: Path, template: str) -> list[Path]:
    """Write the files of a template into a new directory, which appears whole or not at all.

    Args:
        target: The directory; its name becomes the model's.
        template: One of TEMPLATES.

    Returns:
        The files.

    Raises:
        InvalidInput: There is no such template, the name is not one of a model, or the directory
            holds something.
    """
    if template not in TEMPLATES:
        raise InvalidInput(f"there is no template {template!r}", suggestion(template, TEMPLATES))
    target = target.absolute()
    check_name("project name", target.name)
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise InvalidInput(
            f"{target} is not empty, and nothing in it is overwritten", "choose another name"
        )
    try:
        with appearing(target) as draft:
            draft.mkdir(parents=True)
            for entry in (resources.files("podium.projects") / "templates" / template).iterdir():
                text = entry.read_text(encoding="utf-8").replace(NAME, target.name)
                (draft / entry.name.removesuffix(SUFFIX)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PodiumError(f"{target} cannot be written: {error.strerror}") from None
    return sorted(target.iterdir())


def needs_torch(project: Path) -> bool:
    """Return whether a project trains with PyTorch, in its own trainer or podium's."""
    trainer = project / "train.py"
    return not trainer.exists() or "import torch" in trainer.read_text(encoding="utf-8")
