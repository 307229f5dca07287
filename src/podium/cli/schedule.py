"""`podium schedule`: recurring runs as code."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podium.cli.options import GROUP, Commands, ServerOptions, json_option, server_options
from podium.display.terminal import echo, echo_json

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


@schedule.command()
@click.argument("paths", nargs=-1, type=_PATHS)
@json_option
@server_options
def plan(paths: tuple[Path, ...], as_json: bool, server: ServerOptions) -> None:
    """Show what apply would do, and when each schedule fires next; nothing is changed.

    _PATHS are YAML files or directories of them, or a podium.yaml with a schedule; by default
    schedules/, else podium.yaml. The exit code is 0 even if there is a difference.

    \b
    Example:
      podium schedule plan
    """
    from podium.kfp.schedule_files import default_path, load
    from podium.kfp.schedules import plan as compare

    wanted = load(paths or [default_path()])
    _show(compare(server.open(), wanted), as_json)


@schedule.command()
@click.argument("paths", nargs=-1, type=_PATHS)
@click.option(
    "--group", default=GROUP, show_default=True, help="KFP experiment the runs are listed under."
)
@_now_option
@json_option
@server_options
def apply(
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
    from podium.kfp import schedules
    from podium.kfp.schedule_files import default_path, load

    wanted = load(paths or [default_path()])
    kfp_server = server.open()
    changes = schedules.plan(kfp_server, wanted)
    if not now:
        again = ["podium", "schedule", "apply", *map(str, paths)]
        for change in changes:
            schedules.require_idle(kfp_server, change.schedule.name, change.running, again)
    for change in changes:
        schedules.apply(kfp_server, change, group)
    _show(changes, as_json)


@schedule.command("list")
@json_option
@server_options
def list_(as_json: bool, server: ServerOptions) -> None:
    """List the server's schedules, including those not made by podium.

    \b
    Example:
      podium schedule list
    """
    from podium.kfp.schedules import present, settings_of

    rows = [{"name": str(run.display_name), **settings_of(run)} for run in present(server.open())]
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        state = "enabled" if row["enabled"] else "paused"
        echo(
            f"{row['name']:<28} {state:<8} {row['cron'] or 'interval':<18} version {row['version']}"
        )


@schedule.command()
@click.argument("name")
@server_options
def pause(name: str, server: ServerOptions) -> None:
    """Stop a schedule from firing; running runs are not affected.

    `podium schedule apply` resumes it unless its file says `enabled: false`.

    \b
    Example:
      podium schedule pause nightly-tune
    """
    from podium.kfp.schedules import find, switch

    kfp_server = server.open()
    for recurring_run in find(kfp_server, name):
        switch(kfp_server, recurring_run, on=False)
    echo(f"{name} paused", err=True)


@schedule.command()
@click.argument("name")
@_now_option
@server_options
def delete(name: str, now: bool, server: ServerOptions) -> None:
    """Delete a schedule from the server; its runs stay listed.

    The server cancels its run in progress along with it; while there is one, nothing is deleted
    without --now.

    \b
    Example:
      podium schedule delete nightly-tune
    """
    from podium.kfp.schedules import find, in_flight, remove, require_idle

    kfp_server = server.open()
    ids = find(kfp_server, name)
    if not now:
        require_idle(
            kfp_server, name, in_flight(kfp_server, ids), ["podium", "schedule", "delete", name]
        )
    for recurring_run in ids:
        remove(kfp_server, recurring_run)
    echo(f"{name} deleted", err=True)


def _show(changes: "list[Change]", as_json: bool) -> None:
    from podium.kfp.schedule_files import next_times

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
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        echo(
            f"{row['action']:<8} {row['name']}  {row['pipeline']} {row['version']}  cron {row['cron']}"
        )
        for difference in row["differences"]:
            echo(f"         {difference}")
        for run in row["running"]:
            echo(
                f"         run {run} is in flight: apply refuses until it has ended, or ends it with --now"
            )
        echo(
            f"         next {'  '.join(row['next'])}"
            if row["enabled"]
            else "         paused: it does not fire"
        )
