"""`podium data prepare`, `podium data inspect` and `podium data contract`."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import click

from podium.cli.options import Commands, json_option, pairs_option
from podium.documents import load_yaml
from podium.heartbeat import doing
from podium.terminal import EchoHandler, echo, echo_json

PARTS = [
    "train",
    "validation",
    "test",
]  # as podium.data.artifact has them, which would load numpy for --help


@click.group(cls=Commands)
def data() -> None:
    """Prepare and inspect datasets."""


@data.command()
@click.argument("dataset", metavar="[SOURCE]", default="mnist")
@click.option(
    "-o", "--output", help="Directory, s3:// or minio:// prefix; podium-work/data/NAME if missing."
)
@click.option(
    "--source",
    default="",
    help="Directory or URI with the idx files of mnist; cache and mirrors if missing.",
)
@click.option("--target", default="", help="Name of the target column of a table or of text.")
@click.option(
    "--validation", type=float, help="Share of the training items put aside.  [default: 0.1]"
)
@click.option(
    "--limit",
    default=0,
    help="Use so many items for train and validation together; test stays whole.",
)
@click.option(
    "--seed",
    type=int,
    help="Decides which items form which part, the option split_seed.  [default: 1]",
)
@pairs_option(
    "--option",
    "words",
    metavar="NAME=VALUE",
    example="group=city",
    empty=True,
    help="Option of the source, its value as YAML; may be repeated.",
)
@json_option
def prepare(
    output: str | None,
    validation: float | None,
    seed: int | None,
    words: dict[str, str],
    as_json: bool,
    **settings: Any,
) -> None:
    """Read, verify, split and write data as one checksummed artifact.

    SOURCE is mnist, fashion-mnist, images:DIRECTORY, table:FILE, text:FILE, npz:FILE (paths or S3
    URIs), or a prepared dataset, which is verified and copied to --output.

    \b
    Examples:
      podium data prepare
      podium data prepare fashion-mnist --limit 6000 --output small-fashion
      podium data prepare mnist --source /media/stick/mnist --output s3://datasets/mnist
      podium data prepare table:houses.csv --target price --option group=city
      podium data prepare small-fashion --output s3://datasets/small-fashion
    """
    from podium.api.prepare import write
    from podium.training.dataset import DataSettings

    _talk()
    options = {
        name: (load_yaml(text, f"--option {name}") or [""])[0] for name, text in words.items()
    }
    options |= {} if validation is None else {"validation": validation}
    options |= {} if seed is None else {"split_seed": seed}
    data = write(DataSettings(**settings, data_options=options), output)
    info, where = data.info, output or data.uri
    if as_json:
        echo_json({"uri": where, **info.to_json()})
        return
    counts = ", ".join(f"{part.count} {name}" for name, part in info.parts.items())
    echo(
        f"{where}\n{info.name}: {info.kind}, {counts}, split {info.split}; digest {info.digest[:12]}"
    )


@data.command()
@click.argument("uri", required=False)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write images or histograms as PNG.",
)
@click.option(
    "--part", type=click.Choice(PARTS), default="train", show_default=True, help="Part to show."
)
@json_option
def inspect(uri: str | None, picture: Path | None, part: str, as_json: bool) -> None:
    """Verify a dataset and show its sizes, columns, statistics, classes and some images.

    URI is a directory or URI that `podium data prepare` wrote; podium-work/data/mnist if missing.
    Every byte is read, verified and measured again.

    \b
    Examples:
      podium data inspect
      podium data inspect small-fashion --picture fashion.png
      podium data inspect s3://datasets/mnist --json
    """
    from podium.cli import data_view
    from podium.data import artifact, draw, look
    from podium.settings import Settings

    uri = uri or str(Settings.from_environment().home / "data" / "mnist")
    with doing(f"verifying and measuring {uri}"):
        info = artifact.describe(uri)
        statistics = look.statistics(info, partial(artifact.load, uri))
    if picture:
        draw.save_picture(artifact.load(uri, part), picture)
        echo(f"picture written to {picture}", err=True)
    if as_json:
        echo_json(statistics)
        return
    echo(data_view.summary(statistics, part))
    if draw.image_input(info):
        echo("\n" + draw.terminal_view(artifact.load(uri, part), info))


@data.command()
@click.argument("uri")
@json_option
def contract(uri: str, as_json: bool) -> None:
    """Print what a prepared table holds, for podium.yaml: later nights are held to it.

    URI is a directory or URI that `podium data prepare` or a run wrote.

    \b
    Examples:
      podium data contract houses >>podium.yaml
    """
    from podium.data.dataset import load_dataset
    from podium.yaml_loader import dump

    given = load_dataset(uri).contract
    if as_json:
        echo_json(given)
        return
    document = {"data_options": {"contract": given}}
    echo(dump(document, default_flow_style=None, allow_unicode=True, width=10_000).rstrip())


def _talk() -> None:
    """Let the library say on stderr what it is doing: a download takes a while."""
    handler = EchoHandler()
    logger = logging.getLogger("podium.data")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
