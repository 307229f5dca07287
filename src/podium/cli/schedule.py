"""`podium schedule`: recurring runs as code."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli.options import GROUP, Commands, ServerOptions, json_option, server_options
from podium.display.terminal import echo, output
from podium.kfp.schedule_files import default_path, load, next_times

if TYPE_CHECKING:
    from podium.kfp.schedules import Change

_PATHS = click.Path(exists=True, path_type=Path)

_now_option = click.option(
    "--now", is_flag=True, help="Even while a run of it is in progress, which is cancelled."
)


@click.group(cls=Commands)
def schedule() -> None:
    """Manage recurring runs on Kubeflow Pipelines by YAML files.

    \b
    Examples:
      podium schedule plan
      podium schedule apply schedules/nightly.yaml
      podium schedule pause nightly-tune
    """


@schedule.command("plan")
@click.argument("paths", nargs=-1, type=_PATHS)
@json_option
@server_options
def _plan(paths: tuple[Path, ...], as_json: bool, server: ServerOptions) -> None:
    """Show what apply would do, and when each schedule fires next; nothing is changed.

    PATHS are YAML files or directories of them, or a podium.yaml with a schedule; by default
    schedules/, else podium.yaml. The exit code is 0 even if there is a difference.

    \b
    Example:
      podium schedule plan
    """
    wanted = load(paths or [default_path()])
    _show(server.schedules().plan(wanted), as_json)


@schedule.command("apply")
@click.argument("paths", nargs=-1, type=_PATHS)
@click.option(
    "--group", default=GROUP, show_default=True, help="KFP experiment the runs are listed under."
)
@_now_option
@json_option
@server_options
def _apply(
    paths: tuple[Path, ...], group: str, now: bool, as_json: bool, server: ServerOptions
) -> None:
    """Apply the schedules of the files to the server; doing it twice changes nothing.

    Schedules that are in no file are left alone. A changed schedule is created anew and the old one
    deleted, which makes the server cancel its run in progress; while there is one, nothing is
    changed without --now.

    \b
    Example:
      podium schedule apply
    """
    wanted = load(paths or [default_path()])
    schedules = server.schedules()
    changes = schedules.plan(wanted)
    command = shlex.join(["podium", "schedule", "apply", *map(str, paths)])
    schedules.apply(changes, group, now=now, command=command)
    _show(changes, as_json)


@schedule.command("list")
@json_option
@server_options
def _list(as_json: bool, server: ServerOptions) -> None:
    """List the server's schedules, including those not made by podium.

    \b
    Example:
      podium schedule list
    """
    rows = server.schedules().all()
    lines = [
        f"{row['name']:<28} {'enabled' if row['enabled'] else 'paused':<8} "
        f"{row['cron'] or 'interval':<18} version {row['version']}"
        for row in rows
    ]
    output(as_json, rows, lambda: "\n".join(lines))


@schedule.command("pause")
@click.argument("name")
@server_options
def _pause(name: str, server: ServerOptions) -> None:
    """Stop a schedule from firing; running runs are not affected.

    `podium schedule apply` resumes it unless its file says `enabled: false`.

    \b
    Example:
      podium schedule pause nightly-tune
    """
    server.schedules().pause(name)
    echo(f"{name} paused", err=True)


@schedule.command("delete")
@click.argument("name")
@_now_option
@server_options
def _delete(name: str, now: bool, server: ServerOptions) -> None:
    """Delete a schedule from the server; its runs stay listed.

    The server cancels its run in progress along with it; while there is one, nothing is deleted
    without --now.

    \b
    Example:
      podium schedule delete nightly-tune
    """
    command = shlex.join(["podium", "schedule", "delete", name])
    server.schedules().delete(name, now=now, command=command)
    echo(f"{name} deleted", err=True)


def _show(changes: "list[Change]", as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "name": change.schedule.name,
            "action": change.action,
            "pipeline": change.version.pipeline,
            "version": change.version.name,
            "cron": change.schedule.cron,
            "differences": list(change.differences),
            "running": list(change.running),
            "enabled": change.schedule.enabled,
            "next": [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in next_times(change.schedule.cron)]
            if change.schedule.enabled
            else [],
        }
        for change in changes
    ]
    output(as_json, rows, lambda: "\n".join(line for row in rows for line in _lines(row)))


def _lines(row: dict[str, Any]) -> list[str]:
    details = [
        *row["differences"],
        *(
            f"run {run} is in flight: apply refuses until it has ended, or ends it with --now"
            for run in row["running"]
        ),
        f"next {'  '.join(row['next'])}" if row["enabled"] else "paused: it does not fire",
    ]
    head = (
        f"{row['action']:<8} {row['name']}  {row['pipeline']} {row['version']}  cron {row['cron']}"
    )
    return [head, *(f"         {line}" for line in details)]
