"""`podium migrate`: a PyTorchJob, a Job or an Experiment's trials as TrainJobs."""

from pathlib import Path
from typing import Any

import click

from podium.documents import MAX_YAML, write_file
from podium.errors import InvalidInput
from podium.manifests.kinds import MIGRATED_KINDS, TRAINJOB
from podium.manifests.migrate import OWN_RUNTIME, migrate
from podium.manifests.rules import Violation
from podium.manifests.trainjob import TORCH
from podium.manifests.workload import Workload
from podium.terminal import echo


@click.command("migrate")
@click.argument("file", type=click.File("rb"))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="-",
    help="File to write; stdout if missing.",
)
@click.option(
    "--runtime",
    default=TORCH,
    show_default=True,
    metavar="NAME",
    help="Runtime that the TrainJobs name.",
)
def migrate_(file: Any, output: str, runtime: str) -> None:
    """Write the PyTorchJobs of a YAML file as TrainJobs of Kubeflow Trainer 2.2 or later.

    Jobs and Experiments whose trials are PyTorchJobs or Jobs are rewritten too; everything else in
    the file stays as it is. What a TrainJob has no field for, and what is another than before, is
    said on stderr. Comments are not kept.

    \b
    Examples:
      podium migrate train.yaml -o trainjob.yaml
      podium migrate sweep.yaml | kubectl apply --dry-run=server -f -
    """
    from podium.doctor.manifest import documents, with_templates

    content = file.read(MAX_YAML + 1)
    manifests = with_templates(documents(content.decode(errors="replace"), file.name), file.name)
    if not any(manifest.get("kind") in (*MIGRATED_KINDS, "Experiment") for manifest in manifests):
        kinds = ", ".join(str(manifest.get("kind")) for manifest in manifests) or "nothing"
        raise InvalidInput(
            f"{file.name} must hold a PyTorchJob, a Job or an Experiment, but holds {kinds}"
        )
    changed = [_migrate(manifest, file.name, runtime) for manifest in manifests]
    written = _yaml(changed)
    if output == "-":
        echo(written, nl=False)
    else:
        write_file(Path(output), written)
        echo(f"wrote {output}", err=True)


def _yaml(manifests: list[dict[str, Any]]) -> str:
    """Write documents; a text of several lines, such as a script, as a block."""
    import yaml

    from podium import yaml_loader

    class Dumper(yaml_loader.Dumper):
        """With a representer of its own."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        )

    Dumper.add_representer(str, represent)
    return yaml.dump_all(manifests, Dumper=Dumper, sort_keys=False)


def _migrate(manifest: dict[str, Any], origin: str, runtime: str) -> dict[str, Any]:
    """Return an object of the file as it is written; say what becomes of it."""
    from podium.manifests.experiment.experiment import Experiment

    kind, name = manifest.get("kind"), Workload.parse(manifest).name
    subject = f"{origin}: {kind} {name}".rstrip()
    experiment = Experiment.parse(manifest) if kind == "Experiment" else None
    if experiment and experiment.template.workload.kind != TRAINJOB:
        migrated: Any = migrate(experiment, runtime)
        subject = f"{subject}: its {experiment.template.workload.kind}s become TrainJobs"
    elif kind in MIGRATED_KINDS:
        migrated = migrate(Workload.parse(manifest), runtime)
        subject = f"{subject} becomes a TrainJob"
    else:
        echo(f"{subject} stays as it is", err=True)
        return manifest
    _say(subject, migrated.notes)
    result: dict[str, Any] = migrated.resource.manifest
    return result


def _say(subject: str, notes: list[Violation]) -> None:
    echo(f"{subject}{':' if notes else ''}", err=True)
    for note in notes:
        hint = f" ({note.hint})" if note.hint and note.hint != OWN_RUNTIME else ""
        echo(f"  {note.where}: {note.what}{hint}", err=True)
    if any(note.hint == OWN_RUNTIME for note in notes):
        echo(f"  hint: to keep what a TrainJob has no field for, {OWN_RUNTIME}", err=True)
