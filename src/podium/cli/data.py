"""`podium data prepare`, `inspect`, which shows the distribution of each column and input in a line
of block characters, and `contract`."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from podium.cli.options import Commands, json_option, pairs_option
from podium.display.tables import table
from podium.display.terminal import doing, echo, output
from podium.errors import InvalidInput
from podium.files.documents import load_yaml
from podium.manifests.fields import present
from podium.system.settings import Settings

_PARTS = [
    "train",
    "validation",
    "test",
]  # as podium.data.artifact has them, which would load numpy for --help


@click.group(cls=Commands)
def data() -> None:
    """Prepare and inspect datasets."""


@data.command("prepare")
@click.argument("dataset", metavar="[SOURCE]", default="mnist")
@click.option(
    "-o",
    "--output",
    "destination",
    help="Directory, s3:// or minio:// prefix; podium-work/data/NAME by default.",
)
@click.option(
    "--source",
    default="",
    help="Directory or URI with the idx files of mnist; cache and mirrors by default.",
)
@click.option("--target", default="", help="Name of the target column of a table or of text.")
@click.option(
    "--validation",
    type=float,
    help="Share of the training items held out for validation.  [default: 0.1]",
)
@click.option(
    "--limit",
    default=0,
    help="Maximum number of items for training and validation together; the test part stays whole.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed of the split into parts, the option split_seed.  [default: 1]",
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
def _prepare(
    destination: str | None,
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
    from podium.models.power import of_data
    from podium.training.dataset import DataSettings

    _talk()
    flags = present(validation=validation, split_seed=seed)
    if twice := flags.keys() & words.keys():
        raise InvalidInput(f"the option {min(twice)} is given twice", "leave --option out")
    options = {**{name: _value(name, text) for name, text in words.items()}, **flags}
    data = write(DataSettings(**settings, data_options=options), destination)
    info, where = data.info, destination or data.uri
    counts = ", ".join(f"{part.count} {name}" for name, part in info.parts.items())
    text = f"{info.name}: {info.kind}, {counts}, split {info.split}; digest {info.digest[:12]}"
    if not as_json and (shows := of_data(info, "")):
        echo(str(shows), err=True)
    output(as_json, {**data.to_json(), "uri": where}, lambda: f"{where}\n{text}")


def _value(name: str, text: str) -> Any:
    """Return the value of an option: one sign is itself, as of ``decimal=,``, which is no YAML."""
    if len(text) == 1 and not text.isalnum():
        return text
    return (load_yaml(text, f"--option {name}", own=True) or [""])[0]


@data.command("inspect")
@click.argument("uri", required=False)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write images or histograms as PNG.",
)
@click.option(
    "--part", type=click.Choice(_PARTS), default="train", show_default=True, help="Part to show."
)
@json_option
def _inspect(uri: str | None, picture: Path | None, part: str, as_json: bool) -> None:
    """Verify a dataset and show its sizes, columns, statistics, classes and some images.

    URI is a directory or URI that `podium data prepare` wrote; podium-work/data/mnist by default.
    Every byte is read, verified and measured again.

    \b
    Examples:
      podium data inspect
      podium data inspect small-fashion --picture fashion.png
      podium data inspect s3://datasets/mnist --json
    """
    from podium.data import artifact, look

    uri = uri or str(Settings.from_environment().home / "data" / "mnist")
    with doing(f"verifying and measuring {uri}"):
        info = artifact.describe(uri)
        statistics = look.statistics(info, partial(artifact.load, uri))
    if picture:
        look.save_picture(artifact.load(uri, part), picture)
        echo(f"picture written to {picture}", err=True)

    def text() -> str:
        drawn = look.image_input(info) and look.terminal_view(artifact.load(uri, part), info)
        return "\n\n".join(filter(None, [_summary(statistics, part), drawn]))

    output(as_json, {"uri": uri, **statistics}, text)


@data.command("contract")
@click.argument("uri")
@json_option
def _contract(uri: str, as_json: bool) -> None:
    """Print the contract of a prepared table, for podium.yaml; later runs are checked against it.

    URI is a directory or URI that `podium data prepare` or a run wrote.

    \b
    Examples:
      podium data contract houses >>podium.yaml
    """
    from podium.data.dataset import load_dataset
    from podium.files.yaml_loader import dump

    contract = load_dataset(uri).contract
    document = {"data_options": {"contract": contract}}
    style: dict[str, Any] = {"default_flow_style": None, "allow_unicode": True, "width": 10_000}
    output(as_json, contract, lambda: dump(document, **style).rstrip())


class _EchoHandler(logging.Handler):
    """Prints log messages to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(record.getMessage(), err=True)


def _talk() -> None:
    """Let the library say on stderr what it is doing: a download takes a while."""
    handler = _EchoHandler()
    logger = logging.getLogger("podium.data")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


_BLOCKS = " ▁▂▃▄▅▆▇█"
_FACTS = ("min", "max", "mean", "std")
_MOST_CLASSES = 40
_BAR = 24
_MOST_COLUMNS = 100
_MOST_CATEGORIES = 4
"""Named in a row of a table."""


def _summary(dataset: dict[str, Any], part: str) -> str:
    """Draw what `podium.data.look.statistics` measured.

    Args:
        part: Whose columns and distributions are shown.
    """
    sections = [_head(dataset), _parts(dataset)]
    measured = dataset["parts"][part]
    for name, described in dataset["inputs"].items():
        shape = "×".join(map(str, described["shape"])) or "number"
        head = f"input {name}: {described['meaning']}, {described['dtype']} {shape}"
        sections.append(_input(head, described, measured["inputs"][name]))
    sections.append(
        _classes(dataset, part) if dataset["classes"] else _numbers(dataset, measured["target"])
    )
    return "\n\n".join(section for section in sections if section)


def _spark(counts: Sequence[int]) -> str:
    """Draw a histogram as a line of block characters; what is not zero is never blank."""
    most = max(counts, default=0) or 1
    return "".join(_BLOCKS[-(-count * 8 // most)] for count in counts)


def _head(dataset: dict[str, Any]) -> str:
    return (
        f"{dataset['name']} · {dataset['kind']} · digest {dataset['digest'][:12]} · from {dataset['source']}"
        f" · split {dataset['split']} · seed {dataset['seed']} · limit {dataset['limit'] or 'none'}"
    )


def _parts(dataset: dict[str, Any]) -> str:
    rows = [
        [name, str(part["count"]), f"{part['bytes'] / 2**20:.1f}"]
        for name, part in dataset["parts"].items()
    ]
    heads = ["part", ">items", ">MiB"]
    for name, described in dataset["inputs"].items():
        if described["meaning"] == "image":
            heads += [f">{name} min", ">max", ">mean", ">std"]
            for row, part in zip(rows, dataset["parts"].values(), strict=True):
                image = part["inputs"][name]
                row += [
                    _figure(min(image["min"])),
                    _figure(max(image["max"])),
                    _means(image["mean"]),
                ]
                row.append(_means(image["std"]))
    return table(heads, rows)


def _input(head: str, described: dict[str, Any], measured: dict[str, Any]) -> str:
    if described["meaning"] == "image":
        return head
    if described["meaning"] == "tokens":
        return f"{head}\n" + _lines(["words of an item"], measured["lengths"])
    if described["meaning"] == "array":
        return f"{head}\n" + _lines(["all values"], measured)
    rows = []
    for at, column in enumerate(described["columns"][:_MOST_COLUMNS]):
        counts = measured["histograms"][at]
        digits = 12 if column["center"] else 4
        facts = [_figure(measured[name][at], digits) for name in _FACTS[:3]]
        facts.append(_figure(measured["std"][at]))
        shown = _spark(counts)
        if column["kind"] == "category":
            facts = ["", "", "", ""]
            shown = _shares(column["categories"], counts)
        rows.append([column["name"], column["kind"], str(column["missing"]), *facts, shown])
    more = len(described["columns"]) - _MOST_COLUMNS
    heads = ["column", "type", ">missing", ">min", ">max", ">mean", ">std", "distribution"]
    return table(heads, rows, title=head) + (f"\n… and {more} more columns" if more > 0 else "")


def _shares(categories: Sequence[str], counts: Sequence[int]) -> str:
    total = sum(counts) or 1
    ranked = sorted(zip(counts, categories, strict=True), key=lambda pair: -pair[0])
    named = [f"{name} {count / total:.0%}" for count, name in ranked[:_MOST_CATEGORIES] if count]
    more = len(categories) - len(named)
    return ", ".join(named) + (f" … {more} more" if more > 0 else "")


def _numbers(dataset: dict[str, Any], target: dict[str, Any]) -> str:
    count = len(target["mean"])
    names = [dataset["target"]["name"] + (f" {at}" if count > 1 else "") for at in range(count)]
    return f"target {dataset['target']['name']}: {dataset['target']['dtype']}\n" + _lines(
        names, target
    )


def _lines(names: Sequence[str], measured: dict[str, Any]) -> str:
    rows = [
        [
            name,
            *(_figure(measured[fact][at]) for fact in _FACTS),
            _spark(measured["histograms"][at]),
        ]
        for at, name in enumerate(names)
    ]
    return table(["", ">min", ">max", ">mean", ">std", "distribution"], rows)


def _classes(dataset: dict[str, Any], part: str) -> str:
    parts = {
        name: measured["class_counts"]
        for name, measured in dataset["parts"].items()
        if "+" not in name
    }
    most = max(parts[part]) or 1
    bars = ["█" * max(count > 0, round(_BAR * count / most)) for count in parts[part]]
    rows = [
        [name, *(str(counts[at]) for counts in parts.values()), bars[at]]
        for at, name in enumerate(dataset["classes"][:_MOST_CLASSES])
    ]
    more = len(dataset["classes"]) - _MOST_CLASSES
    text = table(
        [f"class of {dataset['target']['name']}", *(f">{name}" for name in parts), f"of {part}"],
        rows,
    )
    return text + (f"\n… and {more} more classes" if more > 0 else "")


def _means(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _figure(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
