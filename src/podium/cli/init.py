"""`podium init`."""

from importlib.util import find_spec
from pathlib import Path

import click

from podium.terminal import echo


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--from", "template", default="blank", show_default=True, help="table, images, text or blank."
)
def init(name: Path, template: str) -> None:
    """Write a small project: data, a trainer, an Experiment and podium.yaml.

    NAME is the new directory and the name of the model. The templates are a table, pictures in
    folders, sentences, and arrays of your own with a trainer that uses no helper of podium (blank).
    `podium run` in it runs the whole pipeline, and podium compile, submit and schedule take the
    same podium.yaml.

    \b
    Examples:
      podium init penguins --from table
      podium init photos --from images
    """
    from podium.projects.create import create, needs_torch

    files = create(name, template)
    echo(f"wrote {', '.join(file.name for file in files)} in {name}", err=True)
    install = (
        "pip install torch torchvision && "
        if needs_torch(name) and find_spec("torch") is None
        else ""
    )
    echo(f"next: {install}cd {name} && python make_data.py && podium run", err=True)
