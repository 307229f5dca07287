"""`podium models`: show versions, compare them, and choose the champion."""

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import podium
from podium.cli import model_serving, model_upkeep
from podium.cli.options import Commands, registry_options, storage_option, token_option
from podium.display import tables
from podium.display.terminal import doing, echo, output, progress_bar
from podium.display.text import figure
from podium.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np

    from podium.models import Version
    from podium.models.shared_items import SharedItems


@click.group(cls=Commands)
def models() -> None:
    """List, compare, promote, roll back and verify models."""


@models.command("list")
@click.argument("name", required=False)
@registry_options
def _list(name: str | None, storage: str | None, as_json: bool) -> None:
    """List the models, or the versions of one.

    \b
    Examples:
      podium models list
      podium models list mnist --json
      podium models list mnist --storage s3://models
    """
    from podium.models import Overview

    registry, width = podium.registry(storage), tables.screen_width()
    if name:
        of = registry[name].versions
        drawn = partial(
            tables.table,
            of.HEADS,
            of.rows(),
            width=width,
            drop=("DATASET", ">SIZE", "METRIC", "CREATED (UTC)"),
            shorten="VERSION",
        )
        output(as_json, of.to_json(), drawn)
        return
    rows = [model.overview() for model in registry.select()]
    drawn = partial(
        tables.table,
        Overview.HEADS,
        [row.cells() for row in rows],
        width=width,
        drop=("METRIC", "SINCE (UTC)", ">VERSIONS"),
        shorten="MODEL",
    )
    output(as_json, [row.to_json() for row in rows], drawn)


@models.command("show")
@click.argument("name")
@click.argument("ref", default="champion")
@registry_options
def _show(name: str, ref: str, storage: str | None, as_json: bool) -> None:
    """Show a version, its confusion matrix and the classes it confuses most.

    REF is a version or an alias; the champion by default.

    \b
    Examples:
      podium models show mnist
      podium models show mnist champion --json
    """
    from podium.cli import model_view as view

    model = podium.registry(storage)[name]
    version = model.version(ref)
    report = version.facts.report
    matrix, classes = report.confusion, report.names
    pairs = report.most_confused()

    output(
        as_json,
        {**version.document(), "most_confused": pairs},
        lambda: tables.paint(
            [
                *view.version(version, model.aliases(), model.measured_since(version)),
                *(view.mistakes(matrix, classes, pairs) if matrix else []),
            ]
        ),
    )


@models.command("diff")
@click.argument("name")
@click.argument("first")
@click.argument("second")
@click.option(
    "--data",
    help="Dataset to run both on, if their predictions are not stored, or are of different test parts.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List every item that flipped, not only the most frequent kinds.",
)
@click.option(
    "--metric",
    default="",
    help="Metric to test; by default the second version's own.",
)
@click.option(
    "--draw",
    type=click.IntRange(0),
    default=0,
    help="Draw this many pictures that flipped each way (--data).",
)
@registry_options
def _diff(
    name: str,
    first: str,
    second: str,
    data: str | None,
    everything: bool,
    metric: str,
    draw: int,
    storage: str | None,
    as_json: bool,
) -> None:
    """Compare two versions on the same test part: metrics, paired test, classes, items that
    changed.

    FIRST and SECOND are versions or aliases. The predictions of a version's own evaluation are
    stored with it; two versions that were evaluated on different test parts need --data, and are
    run again.

    \b
    Examples:
      podium models diff mnist champion staging
      podium models diff houses champion staging --metric mae
      podium models diff mnist champion staging --data podium-work/data/mnist --json
      podium models diff mnist champion staging --data podium-work/data/mnist --draw 4
    """
    from podium.cli import model_view as view
    from podium.models.difference import of_versions

    if draw and data is None:
        raise InvalidInput(f"--draw {draw} needs the pictures of a dataset", "add --data URI")
    model = podium.registry(storage)[name]
    versions = model.version(first), model.version(second)
    with doing(f"comparing {first} and {second}"):
        seen, change = of_versions(versions, data, metric)
    called = [
        version.version if version.version == ref else f"{version.version} ({ref})"
        for version, ref in zip(versions, (first, second), strict=True)
    ]
    output(
        as_json,
        {
            "name": name,
            "first": versions[0].version,
            "second": versions[1].version,
            **change.to_json(),
        },
        lambda: tables.paint(
            view.difference(change, called, 1 << 30 if everything else 5, _pictures(seen), draw)
        ),
    )


def _pictures(seen: "SharedItems") -> "np.ndarray | None":
    return next(
        (
            array
            for array in seen.inputs.values()
            if array.ndim in (3, 4) and array.dtype == "uint8"
        ),
        None,
    )


@models.command("history")
@click.argument("name")
@registry_options
def _history(name: str, storage: str | None, as_json: bool) -> None:
    """Show every promotion, refusal, rollback, alias move and deletion, and why.

    \b
    Examples:
      podium models history mnist
      podium models history mnist --json
    """
    from podium.cli import model_view as view

    records = podium.registry(storage)[name].records()
    output(
        as_json,
        [record.to_json() for record in records],
        lambda: tables.paint(view.history(records)),
    )


@models.command("lineage")
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@registry_options
def _lineage(name: str, ref: str, storage: str | None, as_json: bool) -> None:
    """Show what a version was made from and became: data, run, sweep, trial, champion, servers on
    this machine; with --json as OpenLineage's RunEvent.

    \b
    Examples:
      podium models lineage mnist
      podium models lineage mnist v3 --json
    """
    from podium.models.lineage import Lineage
    from podium.serving.announced import servers_of

    model = podium.registry(storage)[name]
    version = model.version(ref)
    found = Lineage.of(model, version, servers_of(version))
    output(
        as_json,
        found.to_json(),
        lambda: "\n".join(f"{title:9} {text}" for title, text in found.rows()),
    )


@models.command("card")
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@storage_option
def _card(name: str, ref: str, storage: str | None) -> None:
    """Print a version's model card in Markdown, from the facts in the registry alone.

    It holds data, training, figures with their intervals, the reasons for the promotion, files and
    usage. `podium models export` writes it beside the files.

    \b
    Examples:
      podium models card mnist
      podium models card mnist v3 > MODEL_CARD.md
    """
    from podium.models.card import card as card_of

    echo(card_of(podium.registry(storage)[name].version(ref)).rstrip())


class _Form(click.Choice[str]):
    """The forms, and those that other distributions add."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from podium.models.export import FORMS

        return value if value in FORMS else super().convert(value, param, ctx)


@models.command("export")
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "target", type=click.Path(path_type=Path), help="DIRECTORY, as an option."
)
@click.option(
    "--to",
    "form",
    type=_Form(["mlflow", "triton", "oci", "hub"]),
    help="Format; by default the version's own files.",
)
@click.option(
    "--tracking",
    default="",
    metavar="URL",
    help="MLflow server in whose model registry it is registered as well.",
)
@click.option("--hub", default="", metavar="URL", help="Kubeflow's Model Registry, for --to hub.")
@token_option("File with the hub's bearer token; in a pod, by default the pod's own.")
@registry_options
def _export(
    name: str,
    ref: str,
    directory: Path | None,
    target: Path | None,
    form: str | None,
    tracking: str,
    hub: str,
    token: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Download a version into a new directory; every file is verified before the directory appears.

    VERSION is a version or an alias; the champion by default. MODEL_CARD.md beside the files is its
    model card. With --to the directory is in the format of another program: a model of MLflow, a
    model repository of Triton Inference Server, or an OCI image layout with the files below
    /models. --to hub writes no directory: it registers the version in Kubeflow's Model Registry
    (Hub) by the URI that its files have in the storage, and updates an earlier registration.

    \b
    Examples:
      podium models export mnist champion ./champion
      podium models export mnist --to triton -o repository
      podium models export mnist --to mlflow -o mlflow-model --tracking http://127.0.0.1:5000
      podium models export mnist champion --to oci -o image
      podium models export mnist --to hub --hub http://127.0.0.1:8080
    """
    from podium.models import CHAMPION
    from podium.models.document import command
    from podium.models.export import export as write_export
    from podium.models.mlflow import check_tracking

    if (form == "hub") != bool(hub) or (token and not hub):
        raise InvalidInput(
            "--to hub and --hub URL go together",
            "add --to hub --hub http://127.0.0.1:8080, or leave both out",
        )
    if hub:
        if directory or target or tracking:
            raise InvalidInput(
                "--to hub writes no directory and nothing to MLflow",
                "leave DIRECTORY and --tracking out",
            )
        return _export_to_hub(name, ref, hub, token, storage, as_json)
    if (directory is None) == (target is None):
        model = podium.registry(storage)[name]
        state, _ = model.ledger.read()
        is_version = ref in {CHAMPION, *state.versions, *state.aliases}
        words = f"{ref} -o DIRECTORY" if is_version else f"-o {shlex.quote(ref)}"
        again = f"models export {name} {words}" + (f" --to {form}" if form else "")
        raise InvalidInput("export needs one directory to write to", command(again, model.storage))
    if tracking and form != "mlflow":
        raise InvalidInput(f"--tracking {tracking} registers a model of MLflow", "add --to mlflow")
    check_tracking(tracking, here=True)
    model, place = podium.registry(storage)[name], directory or target
    version = model.version(ref)
    assert place
    value = {"directory": str(place), **version.document()}
    if form is None:
        with progress_bar(version.size, "downloading") as moved:
            write_export(version, None, place, moved)
    else:
        with doing(f"exporting {version.title} to {form}"):
            write_export(version, form, place)
    if tracking:
        champion = model.champion_id == version.version
        value["mlflow_version"] = _register(version, place, tracking, champion)
    output(as_json, value, lambda: str(place))


def _register(version: "Version", model: Path, tracking: str, champion: bool) -> str:
    """Register an exported model of MLflow; return its version there."""
    from podium.models.export_mlflow import register

    number = register(version, model, tracking, champion=champion)
    alias = (
        ", alias champion"
        if champion
        else "; not champion here, so the alias champion has not moved"
    )
    echo(f"MLflow: {version.name} version {number}{alias}", err=True)
    return number


def _export_to_hub(
    name: str, ref: str, hub: str, token: str | None, storage: str | None, as_json: bool
) -> None:
    from podium.models.export_hub import check_address, register

    check_address(hub)
    model = podium.registry(storage)[name]
    version, champion = model.version(ref), model.champion_id
    with doing(f"registering {version.title} at {hub}"):
        number = register(version, hub, champion=champion, token=token)
    echo(
        f"hub: {version.title} is version {number} at {hub}, champion {champion or 'none'}",
        err=True,
    )
    output(as_json, {"hub": hub, "hub_version": number, **version.document()}, lambda: number)


@models.command("sbom")
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@storage_option
def _sbom(name: str, ref: str, storage: str | None) -> None:
    """Print a version's bill of materials as CycloneDX 1.6: files and data with their sha256,
    packages, figures.

    Packages are those that the training recorded. Licenses of data and weights, and known
    vulnerabilities, are not in it: the registry does not know them.

    \b
    Examples:
      podium models sbom mnist > mnist.cdx.json
      podium models sbom churn v3
    """
    from podium.models.sbom import bill_of_materials

    echo(json.dumps(bill_of_materials(podium.registry(storage)[name].version(ref)), indent=1))


@models.command("power")
@click.argument("name")
@click.option("--rule", default="", help="A promotion rule; likely if missing.")
@click.option("--metric", default="", help="A metric; the champion's own if missing.")
@click.option(
    "--against",
    default="",
    metavar="REF",
    help="Version that shows how much two models differ; the newest other one if missing.",
)
@click.option("--data", metavar="URI", help="Dataset to run both on, in place of what is stored.")
@registry_options
def _power(
    name: str,
    rule: str,
    metric: str,
    against: str,
    data: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Say how much better a model must be to be promoted on the champion's test part.

    For accuracy of single items it is exact; for other metrics the test items are drawn again and
    again, with the difference of the champion and another version.

    \b
    Examples:
      podium models power mnist
      podium models power houses --rule likely=.97 --metric mae
    """
    from podium.models.power import of_model

    model = podium.registry(storage)[name]
    with doing(f"computing the power of {name}"):
        found = of_model(model, rule, metric, against=against, data=data)
    rows = [[figure(better), f"{share:.1%}"] for better, share in found.power]
    drawn = tables.table(
        [f">BETTER BY ({found.metric})", ">PROMOTED"], rows, width=tables.screen_width()
    )
    output(as_json, {"name": name, **found.to_json()}, lambda: f"{found}\n\n{drawn}")


for command in (*model_upkeep.COMMANDS, *model_serving.COMMANDS):
    models.add_command(command)
