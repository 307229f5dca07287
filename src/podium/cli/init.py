"""`podium init`: write a project from a template."""

from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import click

from podium.display.terminal import echo
from podium.errors import InvalidInput, PodiumError, file_hint, suggestion
from podium.files.drafts import appearing
from podium.models.document import check_name

TEMPLATES = ("table", "images", "text", "blank")
SUFFIX = ".tmpl"
NAME = "PROJECT_NAME"
"""Placeholder for the project's name in a template."""


def _create(target: Path, template: str) -> list[Path]:
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
        problem = f"{target} cannot be written: {error.strerror}"
        raise PodiumError(problem, file_hint(error)) from None
    return sorted(target.iterdir())


def _needed(project: Path, *, has_torch: bool) -> tuple[str, str, str]:
    """Return a module that a project trains with, the packages that bring it, and the parameters of
    its first run; all empty for a trainer that needs nothing."""
    trainer, experiment = project / "train.py", project / "experiment.yaml"
    if trainer.exists():
        uses_torch = "import torch" in trainer.read_text(encoding="utf-8")
        return ("torch", "torch torchvision", "") if uses_torch else ("", "", "")
    if "trees" in experiment.read_text(encoding="utf-8"):  # without PyTorch, trees alone
        return "sklearn", "scikit-learn", "" if has_torch else " network=trees"
    return "torch", "torch torchvision", ""


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--from", "template", default="blank", show_default=True, help="table, images, text or blank."
)
def init(name: Path, template: str) -> None:
    """Create a small project: data, a trainer, an Experiment and podium.yaml.

    NAME is the new directory and the name of the model. The templates are a table, pictures in
    folders, sentences, and your own arrays, with a trainer that uses none of podium's helpers
    (blank). `podium run` in it runs the whole pipeline, and podium compile, submit and schedule
    take the same podium.yaml.

    \b
    Examples:
      podium init penguins --from table
      podium init photos --from images
    """
    files = _create(name, template)
    echo(f"wrote {', '.join(file.name for file in files)} in {name}", err=True)
    module, packages, parameters = _needed(name, has_torch=find_spec("torch") is not None)
    install = f"pip install {packages} && " if module and find_spec(module) is None else ""
    echo(f"next: {install}cd {name} && python make_data.py && podium run{parameters}", err=True)
