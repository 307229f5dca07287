"""``podium doctor``: find out why metrics do not arrive."""

import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from podium.cli.options import WithCommand, json_option
from podium.display.terminal import console, doing, echo, echo_json, output, paused, printing
from podium.doctor.reading import STRATEGIES, Reader, guess_reader
from podium.doctor.report import Report, show
from podium.errors import InvalidInput
from podium.files.documents import read_text
from podium.manifests.experiment import load
from podium.manifests.experiment.webhook_rules import admit


@click.command(cls=WithCommand)
@click.argument("files", metavar="[FILE]…", nargs=-1)
@click.option("--metric", help="Name of the objective; by default the metric in the log.")
@click.option(
    "--additional", multiple=True, metavar="NAME", help="A further metric; may be repeated."
)
@click.option(
    "--objective",
    type=click.Choice(["minimize", "maximize"]),
    help="Direction of the objective.",
)
@click.option("--strategy", type=click.Choice(STRATEGIES), help="How several values become one.")
@click.option(
    "--pattern", multiple=True, metavar="REGEX", help="A metricsFormat in place of Katib's own."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    help="Format that a File collector reads.",
)
@click.option(
    "--experiment", metavar="YAML", help="Take metric, strategy and pattern from this Experiment."
)
@click.option(
    "--seconds", default=60.0, show_default=True, help="Stop the command after this time."
)
@click.option(
    "--namespace",
    help="Examine this namespace of a live cluster too; manifests are submitted as a dry run.",
)
@click.option("--context", help="Context of the kubeconfig; the current one by default.")
@click.option(
    "--service-account",
    metavar="[NAMESPACE:]NAME",
    help="Ask for this account's rights instead of your own.",
)
@click.option("--rules", is_flag=True, help="List every rule with its level and its reason.")
@json_option
def doctor(
    files: tuple[str, ...],
    command: tuple[str, ...],
    rules: bool,
    seconds: float,
    namespace: str | None,
    context: str | None,
    service_account: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Find out why metrics do not arrive.

    A FILE is a log (- for stdin), or YAML with Experiments, PyTorchJobs, TrainJobs and Jobs. A
    COMMAND after -- is run briefly, as a trial's pod would run it. The exit code is 1 if anything
    would fail.

    \b
    Examples:
      podium doctor train.log --metric accuracy --objective maximize
      podium doctor sweep.yaml other/*.yaml
      podium doctor --metric loss -- python train.py --epochs 1
      podium doctor --namespace kubeflow
    """
    if rules:
        from podium.doctor.rules import every_rule, show_rules

        output(as_json, every_rule(), show_rules)
        return
    reports: list[Report] = []
    manifests: list[dict[str, Any]] = []
    for file in files:
        examined, documents = _examine_file(file, reading)
        reports += examined
        manifests += documents
    if command:
        reports.append(_examine_command(command, reading, seconds))
    if namespace:
        from podium.doctor.namespace import examine_namespace

        reports.append(
            examine_namespace(
                namespace, context=context, account=service_account, manifests=manifests
            )
        )
    if not reports:
        hint = "podium doctor train.log, sweep.yaml, -- python train.py, or --namespace kubeflow"
        raise InvalidInput("there is nothing to examine", hint)
    _finish(reports, as_json)


def _examine_file(file: str, reading: dict[str, Any]) -> tuple[list[Report], list[dict[str, Any]]]:
    from podium.doctor.log import examine_events, examine_given

    if reading["experiment"] and not file.endswith((".yaml", ".yml")):
        reader = _choose_reader([], **reading)
        if reader.collector.kind == "TensorFlowEvent":
            if not Path(file).exists():
                raise InvalidInput(
                    f"there is no {file}", "give the path of event files or of their directory"
                )
            return [examine_events(Path(file), reader, file)], []
    if file.endswith((".py", ".sh")):
        raise InvalidInput(
            f"{file} is no log",
            f"podium doctor -- {'python' if file.endswith('.py') else 'sh'} {shlex.quote(file)}",
        )
    lines = _read_lines(file)
    if _is_manifest(file, lines):
        from podium.doctor.manifest import KINDS, documents, examine_manifest, with_templates

        written = documents("\n".join(lines), file)
        reports = [examine_manifest(manifest, file) for manifest in with_templates(written, file)]
        if not reports:
            raise InvalidInput(f"{file} holds no object", "a manifest holds at least one")
        if "pipelineInfo" in written[0]:
            hint = "give the file of its Experiment, or a job of its run; podium upload sends a pipeline to its server"
            raise InvalidInput(
                f"{file} is a compiled pipeline, which the doctor has no rules for", hint
            )
        return reports, [manifest for manifest in written if manifest.get("kind") in KINDS]
    return [examine_given(lines, _choose_reader(lines, **reading), file)], []


def _examine_command(command: Sequence[str], reading: dict[str, Any], seconds: float) -> Report:
    from podium.doctor.command import examine_command

    subject, choose = shlex.join(command), partial(_choose_reader, **reading)
    echo(f"running for at most {seconds:g} s: {subject}", err=True)
    with doing(f"running {command[0]}"):
        return examine_command(command, choose, seconds=seconds, subject=subject)


def _is_manifest(file: str, lines: Sequence[str]) -> bool:
    named = file.endswith((".yaml", ".yml"))
    return named or any(re.match(r"\s*\"?apiVersion\"?:", line) for line in lines[:50])


def _read_lines(file: str) -> list[str]:
    """Read a file or stdin; bytes that are not UTF-8 are kept visible.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        if file.endswith((".yaml", ".yml")):
            return read_text(Path(file)).split("\n")
        data = _read_stdin() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}", "give the path of a log or a manifest"
        ) from None
    return data.decode(errors="replace").split("\n")[
        : None if data[-1:] not in (b"\n", b"") else -1
    ]


def _read_stdin() -> bytes:
    with paused() if sys.stdin.isatty() else nullcontext():  # somebody is typing
        return sys.stdin.buffer.read()


def _choose_reader(
    lines: Sequence[str],
    *,
    metric: str | None,
    objective: str | None,
    additional: Sequence[str],
    strategy: str | None,
    pattern: Sequence[str],
    form: str | None,
    experiment: str | None,
) -> Reader:
    base = (
        Reader.of(admit(load(experiment))) if experiment else guess_reader(lines, metric, objective)
    )
    names = (metric or base.objective, *(additional or base.additional))
    return replace(
        base,
        objective=names[0],
        kind=objective or base.kind,
        additional=names[1:],
        strategies=dict.fromkeys(names, strategy) if strategy else base.strategies,
        formats=tuple(pattern) or base.formats,
        json=form == "json" if form else base.json,
    )


def _finish(reports: Sequence[Report], as_json: bool) -> None:
    if as_json:
        echo_json({"reports": [report.as_dict() for report in reports]})
    else:
        screen = console() if sys.stdout.isatty() else console(width=100)
        for report in reports:
            with printing(err=False):
                show(report, screen)
    if any(report.verdict == "fail" for report in reports):
        sys.exit(1)
