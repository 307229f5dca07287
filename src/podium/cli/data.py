"""`podium data prepare` and `podium data inspect`."""

import json
import logging
from pathlib import Path
from typing import Any

import click

from podium.terminal import EchoHandler, echo

PARTS = ["train", "validation", "test"]  # as podium.data.artifact has them, which would load numpy for --help


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Prepare and inspect datasets."""


@data.command()
@click.option("--dataset", default="mnist", show_default=True, help="mnist or fashion-mnist.")
@click.option("-o", "--output", help="Directory, s3:// or minio:// prefix; $PODIUM_HOME/data/DATASET if missing.")
@click.option(
    "--source", default="", help="Directory or URI with the idx files; cache and mirrors are asked if missing."
)
@click.option("--validation", default=0.1, show_default=True, help="Share of the training images put aside.")
@click.option("--limit", default=0, help="Use so many images for train and validation together; test stays whole.")
@click.option("--seed", default=1, show_default=True, help="Decides which images are chosen.")
@click.option("--json", "as_json", is_flag=True, help="Print the dataset.json that was written.")
def prepare(
    dataset: str, output: str | None, source: str, validation: float, limit: int, seed: int, as_json: bool
) -> None:
    """Fetch, verify, split and write a dataset as one checksummed artifact.

    \b
    Examples:
      podium data prepare
      podium data prepare --dataset fashion-mnist --limit 6000 --output small-fashion
      podium data prepare --source /media/stick/mnist --output s3://datasets/mnist
    """
    from podium.settings import Settings
    from podium.steps.prepare_data import DataSettings, prepare_data

    _talk()
    target = output or str(Settings.from_environment().home / "data" / dataset)
    settings = DataSettings(dataset=dataset, source=source, validation=validation, limit=limit, seed=seed)
    info = prepare_data(settings, target)
    if as_json:
        echo(json.dumps({"uri": target, **info.to_json()}, indent=1))
        return
    counts = ", ".join(f"{part.count} {name}" for name, part in info.parts.items())
    echo(f"{target}\n{info.name}: {counts}; digest {info.digest[:12]}")


@data.command()
@click.argument("uri", required=False)
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="Write a grid of pictures as PNG.")
@click.option("--part", type=click.Choice(PARTS), default="train", show_default=True, help="Part to show pictures of.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(uri: str | None, picture: Path | None, part: str, as_json: bool) -> None:
    """Verify a dataset and show its sizes, statistics, classes and some pictures.

    URI is a directory or URI that `podium data prepare` wrote; $PODIUM_HOME/data/mnist if missing. Every byte is
    read, verified and measured again.

    \b
    Examples:
      podium data inspect
      podium data inspect small-fashion --picture fashion.png
      podium data inspect s3://datasets/mnist --json
    """
    from podium.data import artifact, look
    from podium.settings import Settings

    uri = uri or str(Settings.from_environment().home / "data" / "mnist")
    found = look.statistics(uri)
    if picture:
        look.save_picture_grid(uri, part, picture)
        echo(f"pictures written to {picture}", err=True)
    if as_json:
        echo(json.dumps(found, indent=1))
        return
    echo(_table(found))
    echo("\n" + look.terminal_view(artifact.load(uri, part), len(found["classes"])))


def _table(found: dict[str, Any]) -> str:
    parts = found["parts"]
    lines = [
        f"{found['name']} · digest {found['digest'][:12]} · from {found['source']} · seed {found['seed']}"
        f" · limit {found['limit'] or 'none'}",
        "",
        f"{'part':<18}{'images':>8}{'MiB':>8}{'min':>5}{'max':>5}{'mean':>9}{'std':>9}",
    ]
    lines += [
        f"{name:<18}{part['count']:>8}{part['bytes'] / 2**20:>8.1f}{part['min']:>5}{part['max']:>5}"
        f"{part['mean']:>9.4f}{part['std']:>9.4f}"
        for name, part in parts.items()
    ]
    names = [name for name in parts if "+" not in name]
    lines += ["", f"{'class':<18}" + "".join(f"{name:>12}" for name in names)]
    lines += [
        f"{label:<18}" + "".join(f"{parts[name]['class_counts'][row]:>12}" for name in names)
        for row, label in enumerate(found["classes"])
    ]
    return "\n".join(lines)


def _talk() -> None:
    """Let the library say on stderr what it is doing: a download takes a while."""
    handler = EchoHandler()
    logger = logging.getLogger("podium.data")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
