"""A distribution that adds one of each kind to podium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from podium.data.options import COMMON, DataOptions
from podium.data.schema import InputDescription
from podium.data.sources.fetching import fetch_file
from podium.data.sources.source import Raw, Source
from podium.data.split import Split
from podium.models import Version
from podium.models.decision import Case, Condition, Criterion
from podium.scoring.families import Array, MeanMetric, class_indices
from podium.search.algorithm import Algorithm, Plan, Point


def _profits(target: Array, predictions: Array) -> Array:
    """A hit earns 2, a miss costs 1."""
    return np.where(class_indices(predictions) == target, 2.0, -1.0)[:, None]


PROFIT = MeanMetric(
    name="profit", maximize=True, kind="classification", range=(-1.0, 2.0), items=_profits
)


def _read(location: str, options: DataOptions, folder: Path) -> Raw:
    draw = np.random.default_rng(0)
    trees = int(fetch_file(location, folder).read_text())
    x = draw.normal(size=(trees, 2)).astype(np.float32)
    return Raw(
        items=Split(inputs={"x": x}, target=(x[:, 0] > 0).astype(np.int64)),
        name="apples",
        kind="classification",
        classes=("green", "red"),
        descriptions={"x": InputDescription()},
        target_name="color",
        source="the orchard",
    )


APPLES = Source(name="apples", options=COMMON, read=_read)


class Golden(Plan):
    """Multiples of the golden ratio, modulo 1."""

    def next(self, trial: str) -> Point | None:
        self.given += 1
        share = self.given * 0.6180339887 % 1
        return {parameter.name: parameter.at(share) for parameter in self.space}


GOLDEN = Algorithm(name="golden", settings={}, in_katib=False, plan=Golden)


def _many(value: None, case: Case) -> Iterator[Condition]:
    yield len(case.target) >= 50, f"{len(case.target)} apples are 50 or more"


MANY = Criterion(name="many", sentence="is measured on 50 apples or more", judge=_many)


def _crash(value: None, case: Case) -> Iterator[Condition]:
    yield 1 / 0 > 1, "never said"


CRASH = Criterion(name="crash", sentence="fails", judge=_crash)


def write_crate(version: Version, directory: Path) -> None:
    """Write a version's model alone."""
    directory.mkdir()
    (directory / "crate.json").write_bytes(version.read("model.json"))


class Basket:
    """Appends notices to a file: basket:///path."""

    def __init__(self, url: str) -> None:
        self.path = Path(url.removeprefix("basket://"))

    def send(self, body: bytes) -> None:
        """Write a line."""
        with self.path.open("ab") as file:
            file.write(body + b"\n")


@click.command()
@click.argument("count", type=int)
def pick(count: int) -> None:
    """Pick apples."""
    click.echo("apple " * count)


@click.command()
def drop() -> None:
    """Fail."""
    shutil.rmtree(1 / 0)  # type: ignore[arg-type]
