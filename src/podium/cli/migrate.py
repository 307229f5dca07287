"""`podium migrate`: a PyTorchJob, a Job or an Experiment's trials as TrainJobs."""

from pathlib import Path
from typing import Any

import click
import yaml

from podium.display.terminal import echo
from podium.errors import InvalidInput
from podium.files import yaml_loader
from podium.files.documents import MAX_YAML, write_file
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.optimization_job import (
    KIND,
    as_experiment,
    as_optimization_job,
)
from podium.manifests.experiment.rules import check
from podium.manifests.kinds import MIGRATED_KINDS, TRAINJOB
from podium.manifests.migrate import OWN_RUNTIME, migrate
from podium.manifests.rules import Violation
from podium.manifests.trainjob import TORCH
from podium.manifests.workload import Workload


@click.command("migrate")
@click.argument("file", type=click.File("rb"))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="-",
    help="File to write; stdout by default.",
)
@click.option(
    "--runtime",
    default=TORCH,
    show_default=True,
    metavar="NAME",
    help="Runtime that the TrainJobs name.",
)
@click.option(
    "--to",
    type=click.Choice(["trainjob", "optimizationjob", "experiment"]),
    default="trainjob",
    show_default=True,
    help="Kind to write: a TrainJob, or an OptimizationJob for an Experiment, or the way back.",
)
def migrate_(file: Any, output: str, runtime: str, to: str) -> None:
    """Write the PyTorchJobs of a YAML file as TrainJobs of Kubeflow Trainer 2.2 or later.

    Jobs and Experiments whose trials are PyTorchJobs or Jobs are rewritten too; everything else in
    the file stays as it is. Fields that a TrainJob lacks, and settings that change, are reported on
    stderr. Comments are not kept.

    \b
    Examples:
      podium migrate train.yaml -o trainjob.yaml
      podium migrate sweep.yaml | kubectl apply --dry-run=server -f -
      podium migrate sweep.yaml --to optimizationjob -o optimizationjob.yaml
    """
    from podium.doctor.manifest import documents, with_templates

    content = file.read(MAX_YAML + 1)
    manifests = with_templates(documents(content.decode(errors="replace"), file.name), file.name)
    accepted, wanted = {
        "experiment": ((KIND,), f"an {KIND}"),
        "optimizationjob": (("Experiment",), "an Experiment"),
    }.get(to, ((*MIGRATED_KINDS, "Experiment"), "a PyTorchJob, a Job or an Experiment"))
    if not any(manifest.get("kind") in accepted for manifest in manifests):
        kinds = ", ".join(str(manifest.get("kind")) for manifest in manifests) or "nothing"
        raise InvalidInput(f"{file.name} must hold {wanted}, but holds {kinds}")
    change = _migrate if to == "trainjob" else _convert
    changed = [
        (change if manifest.get("kind") in accepted else _keep)(manifest, file.name, runtime)
        for manifest in manifests
    ]
    written = _yaml(changed)
    if output == "-":
        echo(written, nl=False)
    else:
        write_file(Path(output), written)
        echo(f"wrote {output}", err=True)


def _yaml(manifests: list[dict[str, Any]]) -> str:
    """Write documents; a text of several lines, such as a script, as a block."""

    class Dumper(yaml_loader.Dumper):
        """With a representer of its own."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        )

    Dumper.add_representer(str, represent)
    return yaml.dump_all(manifests, Dumper=Dumper, sort_keys=False)


def _keep(manifest: dict[str, Any], origin: str, _: str) -> dict[str, Any]:
    subject = f"{origin}: {manifest.get('kind')} {Workload.parse(manifest).name}"
    echo(f"{subject.rstrip()} stays as it is", err=True)
    return manifest


def _migrate(manifest: dict[str, Any], origin: str, runtime: str) -> dict[str, Any]:
    kind, name = manifest.get("kind"), Workload.parse(manifest).name
    experiment = Experiment.parse(manifest) if kind == "Experiment" else None
    if experiment and experiment.template.workload.kind == TRAINJOB:
        return _keep(manifest, origin, runtime)
    becomes = " becomes a TrainJob"
    if experiment:
        becomes = f": its {experiment.template.workload.kind}s become TrainJobs"
    migrated, notes = migrate(experiment or Workload.parse(manifest), runtime)
    _say(f"{origin}: {kind} {name}".rstrip() + becomes, notes)
    return migrated.manifest


def _convert(manifest: dict[str, Any], origin: str, runtime: str) -> dict[str, Any]:
    kind, name = manifest.get("kind"), Workload.parse(manifest).name
    if kind == KIND:
        changed = as_experiment(manifest, remember=False)
        message = "Katib reads printed lines, not what a trial posts"
        notes = [Violation(message, "spec.objectives", "print the metric as NAME=value")]
    else:
        experiment, notes = Experiment.parse(manifest), []
        if experiment.template.workload.kind == TRAINJOB:
            check(experiment)
        else:
            experiment, notes = migrate(experiment, runtime)
        changed, lost = as_optimization_job({**experiment.manifest, "spec": experiment.defaulted})
        notes = [*notes, *lost]
    _say(f"{origin}: {kind} {name} becomes an {changed['kind']}", notes)
    return changed


def _say(subject: str, notes: list[Violation]) -> None:
    echo(f"{subject}{':' if notes else ''}", err=True)
    for note in notes:
        hint = f" ({note.hint})" if note.hint and note.hint != OWN_RUNTIME else ""
        echo(f"  {note.where}: {note.what}{hint}", err=True)
    if any(note.hint == OWN_RUNTIME for note in notes):
        echo(f"  hint: to keep fields that a TrainJob lacks, {OWN_RUNTIME}", err=True)
