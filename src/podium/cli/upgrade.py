"""`podium upgrade`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

import podium
from podium.cli.options import ServerOptions, registry_options, server_options
from podium.display.terminal import output
from podium.display.text import plural

if TYPE_CHECKING:
    from podium.kfp.upgrades import Pinned


@click.command()
@click.option(
    "--check", is_flag=True, help="For scripts, to be explicit; the command never changes anything."
)
@registry_options
@server_options
def upgrade(check: bool, storage: str | None, as_json: bool, server: ServerOptions) -> None:
    """Check whether registry and schedules match this version of podium; nothing is changed.

    Every document of the registry is read, but none of the models' files; damaged documents, and
    those of a newer podium, are reported. The version that each schedule on the server (--host)
    runs is compared with what this podium would compile. The exit code is 1 if there is something
    to do.

    \b
    Examples:
      podium upgrade --check
      podium upgrade --check --storage s3://models/podium --host http://127.0.0.1:8888
    """
    from podium.kfp.upgrades import Pinned

    models = podium.registry(storage).select()
    findings = [finding for model in models for finding in model.verify(contents=False)]
    schedules = Pinned.on(server.open()) if server.host else []
    value = {
        "podium": podium.__version__,
        "findings": [asdict(finding) for finding in findings],
        "schedules": [asdict(schedule) | {"advice": schedule.advice} for schedule in schedules],
    }
    counts = plural(len(findings), "finding") if findings else "no findings"
    listed = plural(len(schedules), "schedule") if server.host else "not looked at: no --host"
    lines = [
        f"podium {podium.__version__}",
        f"registry   {plural(len(models), 'model')}, {counts}",
        *(f"  {finding.where}\n    {finding.what}" for finding in findings),
        f"schedules  {listed}",
        *map(_line, schedules),
    ]
    output(as_json, value, lambda: "\n".join(lines))
    if findings or any(schedule.advice for schedule in schedules):
        sys.exit(1)


def _line(schedule: "Pinned") -> str:
    text = "its version is no longer on the server, so it cannot start"
    if schedule.version:
        steps = "this podium's steps" if schedule.current else "another podium's steps"
        newer = f", newest {schedule.newest}" if schedule.newest != schedule.version else ""
        whose = (
            f"{steps}, in {', '.join(schedule.images)}"
            if schedule.ours
            else "not podium's pipeline"
        )
        text = f"{schedule.pipeline} {schedule.version}{newer}: {whose}"
    advice = f"\n    to do: {schedule.advice}" if schedule.advice else ""
    return f"  {schedule.schedule}: {text}{advice}"
