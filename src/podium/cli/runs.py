"""`podium runs`: what `podium run` left on this machine."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import unstyle
from click.core import ParameterSource

import podium
from podium.cli.completion import run_and_sweep_names, run_names
from podium.cli.notify import Notifier
from podium.cli.options import (
    Commands,
    ServerOptions,
    json_option,
    next_command,
    notify_option,
    registry_options,
    server_options,
)
from podium.cli.run import FREE, FROM, run_to_end
from podium.display.tables import Row, fold, screen_width, table
from podium.display.terminal import Styled, doing, echo, echo_json, output, styled
from podium.display.text import cut, duration, harmless, size, when
from podium.errors import InvalidInput, NotFound, PodiumError, of_this_machine
from podium.kfp.parameters import pairs
from podium.system.settings import STORAGE

if TYPE_CHECKING:
    from podium.kfp.runs import ServerRun
    from podium.runner.run import Run
    from podium.runner.runs import Runs, StoredRun, StoredRuns

_stored_option = click.option(
    "--storage",
    help="Storage with the files of runs on a cluster; by default, runs on this machine.",
)


@click.group(cls=Commands)
def runs() -> None:
    """List, compare, resume and remove the runs on this machine."""


@runs.command("list")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of the newest to list; by default all of this machine's, or 30 of a server's.",
)
@click.option(
    "--tag", "tags", metavar="NAME", multiple=True, help="Only runs with this tag; may be repeated."
)
@json_option
@server_options
@click.pass_context
def _list(
    context: click.Context,
    last: int | None,
    tags: tuple[str, ...],
    as_json: bool,
    server: ServerOptions,
) -> None:
    """List the runs and sweeps on this machine, or with --host the runs of a server, the newest
    last.

    Sweeps are the Experiments that podium tune and podium experiment run began on this machine;
    podium experiment list --run RUN lists those inside runs.

    \b
    Examples:
      podium runs list
      podium runs list --json
      podium runs list --tag baseline
      podium runs list --host http://127.0.0.1:8888
    """
    if context.get_parameter_source("host") is ParameterSource.COMMANDLINE:
        if tags:
            raise InvalidInput(
                f"runs of a server have no tags, but got --tag {tags[0]}",
                "leave out --tag or --host",
            )
        on_server = server.runs().newest(last or 30)
        output(as_json, [run.to_json() for run in on_server], lambda: _listed(on_server))
        return
    tagged = [run for run in podium.runs().all if set(tags) <= set(run.record.tags)]
    rows = [
        *(run.to_json() | {"bytes": run.size} for run in tagged),
        *([] if tags else _sweeps()),
    ]
    rows.sort(key=lambda row: datetime.fromisoformat(row["began"]))
    rows = rows[-(last or len(rows)) :]
    output(as_json, rows, lambda: _drawn(rows))


def _sweeps() -> list[dict[str, Any]]:
    """Return the sweeps of this machine's local cluster; none if it cannot be opened, which hides
    no run."""
    from podium.api.sweep_list import list_sweeps

    try:
        return list_sweeps()
    except (PodiumError, OSError) as error:
        why, _, _ = str(of_this_machine(error) or error).partition("\n")
        echo(f"warning: sweeps are not listed: {why}", err=True)
        return []


def _drawn(rows: Sequence[Mapping[str, Any]]) -> Styled:
    from podium.runner.runs import HEADS, cells_of

    width = screen_width()
    about = None if width is None else 14 if width < 120 else 30
    result = None if about is None or width is None else max(18, width - 39 - about)
    longest = {"NAME": width and 20, "ABOUT": about, "RESULT": result}
    heads = [head for head in HEADS if head != "TAGS" or any(row.get("tags") for row in rows)]
    drawn = []
    for row in rows:
        cells = dict(zip(HEADS, cells_of(row), strict=True))
        shown = [_cut(cells[head], longest.get(head)) for head in heads]
        shown.insert(-1, size(row["bytes"]) if "bytes" in row else "")
        drawn.append(Row(phase=row["state"].capitalize(), cells=shown))
    heads.insert(-1, ">SIZE")
    took = [">TOOK"] if width and width >= 70 else []  # below that the result has no room anyway
    drop = (">SIZE", "KIND", "BEGAN (UTC)", *took, "TAGS", "ABOUT", "RESULT", "STATE")
    return table(heads, drawn, width=width, drop=drop, shorten="NAME")


def _listed(runs: "Sequence[ServerRun]") -> Styled:
    rows = [Row(phase=run.state.capitalize(), cells=run.cells()) for run in runs]
    drop = ("NAME", "PIPELINE", "BEGAN (UTC)", "RESULT", "STATE")
    heads = runs[0].HEADS if runs else ("RUN",)
    return table(heads, rows, width=screen_width(), drop=drop, shorten="RUN")


@runs.command("show")
@click.argument("name", metavar="RUN", shell_complete=run_and_sweep_names)
@json_option
@server_options
def _show(name: str, as_json: bool, server: ServerOptions) -> None:
    """Show a run: its parameters, its steps, and its result or how to continue.

    RUN is an id, the beginning of one, or latest: of a run on this machine, else of the server. The
    name of a sweep on this machine shows what podium experiment status shows.

    \b
    Examples:
      podium runs show latest
      podium runs show 8c1d29f0 --host http://127.0.0.1:8888
    """
    from podium.runner import outcome as outcomes
    from podium.runner.run import Run

    try:
        run = _here_or_on(server, name)
    except NotFound:
        if not _show_sweep(name, as_json):
            raise
        return
    if not isinstance(run, Run):
        _show_of_server(run, as_json)
        return
    outcome = None
    with suppress(PodiumError):
        outcome = outcomes.outcome_of(run.record)
    if as_json:
        echo_json({**run.to_json(), "outcome": outcome})
        return
    width = screen_width()
    echo(f"run {run.id} of {run.pipeline}: {run.state}")
    if run.record.tags:
        echo(fold(f"tags: {', '.join(run.record.tags)}", width))
    if run.record.note:
        echo("\n".join(fold(line, width) for line in f"note: {run.record.note}".splitlines()))
    for parameter in run.parameters:
        echo(_cut(f"  {parameter}={_typed(run, parameter)}", width))
    steps = [
        Row(
            phase=step.state.capitalize(),
            cells=(step.title, name, step.state, duration(step.elapsed)),
        )
        for name, step in run.record.steps.items()
    ]
    heads, drop = ("STEP", "NAME", "STATE", ">TOOK"), ("NAME", "STATE")
    drawn = table(heads, steps, width=width, drop=drop, shorten="STEP")
    echo(Styled(f"\n{drawn}\n"))
    echo(outcomes.show(outcome) if outcome else f"directory  {run.directory}")
    if run.record.cause:
        echo(fold(f"failed: {run.record.cause}", width))
    if run.state not in ("succeeded", "running"):
        echo(f"continue with: podium run --resume {run.id}")


def _show_sweep(name: str, as_json: bool) -> bool:
    from podium.cli.experiment import show_status

    try:
        sweep = podium.open_sweep(name)
    except NotFound:
        return False
    with sweep:
        show_status(sweep, as_json)
        if not as_json:
            echo(f"its trials: {next_command(f'experiment trials {name}', sweep.cluster)}")
    return True


def _show_of_server(run: "ServerRun", as_json: bool) -> None:
    if as_json:
        echo_json(run.to_json())
        return
    echo(
        f"run {run.id} of {run.pipeline}: {run.state}, began {when(run.began)} UTC, took {duration(run.seconds)}"
    )
    for parameter, value in run.parameters.items():
        echo(f"  {parameter}={cut(value if isinstance(value, str) else json.dumps(value), 100)}")
    steps = [
        Row(phase=state.capitalize(), cells=(name, state.lower()))
        for name, state in run.tasks.items()
    ]
    drawn = table(("STEP", "STATE"), steps, width=screen_width(), drop=(), shorten="STEP")
    echo(Styled(f"\n{drawn}\n"))
    if run.result:
        echo(run.result)
    echo(f"what its steps printed: podium runs logs {run.id}")


def _here_or_on(server: ServerOptions, name: str) -> "Run | ServerRun":
    try:
        return podium.runs()[name]
    except NotFound:
        if not server.host:
            raise
    return server.runs()[name]


@runs.command("note")
@click.argument("name", metavar="RUN", shell_complete=run_names)
@click.argument("text")
@json_option
def _note(name: str, text: str, as_json: bool) -> None:
    """Set the note of a run on this machine; an empty text removes it.

    \b
    Examples:
      podium runs note latest "warmup was too short"
      podium runs note 20261122-0916 ""
    """
    run = podium.runs()[name]
    run.note = text
    output(as_json, {"run": run.id, "note": run.note})
    echo(
        f"run {run.id} has {'a note' if run.note else 'no note'}: podium runs show {run.id}",
        err=True,
    )


@runs.command("tag")
@click.argument("name", metavar="RUN", shell_complete=run_names)
@click.argument("tags", metavar="NAME...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove these tags.")
@json_option
def _tag(name: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Tag a run on this machine; podium runs list --tag finds it by its tags.

    \b
    Examples:
      podium runs tag latest baseline
      podium runs tag latest baseline --remove
    """
    from podium.runner.record import Annotations

    run = podium.runs()[name]
    now = Annotations.edit(
        run.directory, lambda written: written.untagged(tags) if remove else written.tagged(tags)
    ).tags
    output(as_json, {"run": run.id, "tags": now})
    echo(f"run {run.id} has {'the tags ' + ', '.join(now) if now else 'no tags'}", err=True)


@runs.command("stop")
@click.argument("name", metavar="RUN", shell_complete=run_names)
@server_options
def _stop(name: str, server: ServerOptions) -> None:
    """Stop a run: on this machine, whichever terminal or notebook started it, or on a server.

    Its steps stop the jobs they launched. Finished steps and trials are kept; on this machine
    podium runs resume continues the run.

    \b
    Examples:
      podium runs stop latest
      podium runs stop 8c1d29f0 --host http://127.0.0.1:8888
    """
    from podium.runner.run import Run

    run = _here_or_on(server, name)
    if run.state != "running" if isinstance(run, Run) else run.is_over:
        echo(f"run {run.id} is over: {run.state}", err=True)
    elif isinstance(run, Run):
        with doing(f"stopping {run.id}"):
            run.stop()
        echo(f"run {run.id} is {run.state}; continue with: {run.record.resume_command}", err=True)
    else:
        server.runs().terminate(run.id)
        echo(f"run {run.id} is being cancelled: podium runs show {run.id}", err=True)


@runs.command("resume")
@click.argument("name", metavar="RUN", shell_complete=run_names)
@click.option("--from", "first", metavar="STEP", default="", help=FROM)
@notify_option
@json_option
def _resume(name: str, first: str, notifier: Notifier, as_json: bool) -> None:
    """Resume a run that was stopped or failed, with its parameters; the same as podium run
    --resume.

    Finished steps and finished trials are not repeated, unless --from names the first step to
    repeat; podium runs show lists the names.

    \b
    Examples:
      podium runs resume latest
      podium runs resume latest --from train-distributed
    """
    run_to_end(lambda: podium.runs()[name].resume(first, wait=False), notifier, as_json)


@runs.command("rerun", context_settings=FREE)
@click.argument("name", metavar="RUN", shell_complete=run_names)
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED)
@click.option("--from", "first", metavar="STEP", default="", help="Repeat this step in any case.")
@notify_option
@json_option
def _rerun(
    name: str, parameters: tuple[str, ...], first: str, notifier: Notifier, as_json: bool
) -> None:
    """Run a run again with other values, in its place: steps whose inputs stay the same are kept.

    \b
    Examples:
      podium runs rerun latest epochs=10
      podium runs rerun latest --from evaluate rule=better
    """
    run_to_end(lambda: podium.runs()[name].rerun(parameters, first), notifier, as_json)


@runs.command("logs")
@click.argument("name", metavar="RUN", shell_complete=run_names)
@click.argument("log", metavar="[STEP|TRIAL|JOB]", required=False)
@click.option(
    "--storage", help="Storage of a run's models: where a run on a cluster keeps its logs."
)
@server_options
def _logs(name: str, log: str | None, storage: str | None, server: ServerOptions) -> None:
    """Print the log of a step, a trial or a job of a run; without a name, the logs of all steps.

    A run on this machine is read from its directory. A run on a cluster keeps its logs in the
    storage of its models, which the server knows unless --storage names it; its pods are not
    needed. kfp is the log of Kubeflow Pipelines itself on this machine, such as the inputs of each
    step.

    \b
    Examples:
      podium runs logs latest
      podium runs logs latest kfp
      podium runs logs latest katib-sweep
      podium runs logs latest sweep-285315287b-w8cqfcdq
      podium runs logs 8c1d29f0 train --storage s3://models/podium
    """
    from podium.runner.runs import StoredRuns

    try:
        run = podium.runs()[name] if storage is None else None
    except NotFound:
        run, storage = None, os.environ.get(STORAGE)
        if not storage:
            if not server.host:
                raise
            found = server.runs()[name]
            name, storage = found.id, found.storage
    for line in run.printed(log) if run else StoredRuns(str(storage)).logs(name).lines(log):
        echo(line)


@runs.command("compare")
@click.argument("ids", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@json_option
def _compare(ids: tuple[str, ...], as_json: bool) -> None:
    """Compare runs: the parameters in which they differ, and their results.

    \b
    Example:
      podium runs compare 20261122-0916 latest
    """
    from podium.runner.runs import differing

    all_runs = podium.runs()
    chosen = [all_runs[name] for name in ids]
    names = differing(chosen)
    rows = [
        run.to_json() | {"parameters": {name: run.parameters.get(name) for name in names}}
        for run in chosen
    ]
    shown = [
        name for name in names if name != "cluster"
    ]  # every run has a local cluster of its own
    output(as_json, rows, lambda: _compared(chosen, shown))


def _compared(chosen: "Sequence[Run]", shown: Sequence[str]) -> Styled:
    """Draw a row for each run, or where that is too wide some lines: no parameter is left out."""
    from rich.cells import cell_len

    cells = [
        (run.id, run.state, *(_typed(run, name) for name in shown), run.result) for run in chosen
    ]
    drawn, width = table(("RUN", "STATE", *shown, "RESULT"), cells), screen_width()
    if width is None or max(map(cell_len, unstyle(drawn).splitlines())) <= width:
        return drawn
    lines: list[str] = []
    for run, (_, state, *values, result) in zip(chosen, cells, strict=True):
        lines.append(
            styled(_cut(f"{run.id}  {', '.join(filter(None, (state, result)))}", width), bold=True)
        )
        lines += [
            _cut(f"  {name}={value}", width) for name, value in zip(shown, values, strict=True)
        ]
    return Styled("\n".join(lines))


@runs.command("report")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("compare.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--model", metavar="NAME", help="Compare versions of this model, or aliases, instead of runs."
)
@registry_options
def _report(
    names: tuple[str, ...], file: Path, model: str | None, storage: str | None, as_json: bool
) -> None:
    """Write one HTML file that compares runs, or with --model versions.

    It opens without a network: learning curves, metrics against parameters, the parameters that
    differ, the metrics on the test part and how long each step took. The report of one run is in
    podium runs show.

    \b
    Examples:
      podium runs report 20261122-0916 latest -o compare.html
      podium runs report champion 20261122-091634-0513 --model mnist
    """
    all_runs = podium.runs()
    if model is None:
        all_runs.compare(names, file)
    else:
        from podium.runner.comparison import compare_versions

        compare_versions(podium.registry(storage)[model], names, all_runs, file)
    output(as_json, {"compared": list(names), "report": str(file)}, lambda: str(file))


@runs.command("delete")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@_stored_option
@json_option
def _delete_named(names: tuple[str, ...], storage: str | None, as_json: bool) -> None:
    """Delete runs, their logs and the candidates they trained; versions in the registry are kept.

    \b
    Examples:
      podium runs delete 20261122-091634-0513
      podium runs delete 8c1d29f0 --storage s3://models/podium
    """
    from podium.runner.run import Run

    all_runs = _known(storage)
    chosen = {run.id: run for run in (all_runs[name] for name in names)}  # one may be named twice
    for run in chosen.values():
        if isinstance(run, Run):
            run.require_deletable()
    _delete([*chosen.values()], dry_run=False, as_json=as_json)


@runs.command("prune")
@click.option("--keep", type=int, help="Keep this many of the newest runs.")
@click.option(
    "--older-than",
    type=int,
    metavar="DAYS",
    help="Only runs that began more than this many days ago.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@_stored_option
@json_option
def _prune(
    keep: int | None, older_than: int | None, dry_run: bool, storage: str | None, as_json: bool
) -> None:
    """Delete old runs, their logs and the candidates they trained; versions in the registry and
    running runs are kept, as are those that began in the future by this machine's clock.

    The age of a run in a storage is that of its last write; one written within the last day may be
    running and is kept.

    \b
    Examples:
      podium runs prune --keep 5
      podium runs prune --older-than 30 --dry-run
      podium runs prune --older-than 30 --storage s3://models/podium
    """
    if keep is None and older_than is None:
        raise InvalidInput(
            "`--keep N` or `--older-than DAYS` must be given",
            "podium runs prune --keep 5 --dry-run",
        )
    _delete(_known(storage).old(keep=keep, older_than=older_than), dry_run=dry_run, as_json=as_json)


def _known(storage: str | None) -> "Runs | StoredRuns":
    from podium.runner.runs import StoredRuns

    return StoredRuns(storage) if storage else podium.runs()


def _cut(line: str, width: int | None) -> str:
    """Cut a line to the terminal; --json has all of it."""
    return harmless(line) if width is None else cut(line, width)


def _typed(run: "Run", name: str) -> str:
    """Return a value in a line: of a file's text the file that was typed; --json has all of it."""
    value = run.parameters.get(name, "")
    text = value if isinstance(value, str) else json.dumps(value)
    typed = dict(pairs(run.record.words)).get(name, text) if "\n" in text else text
    return f"{cut(typed, 60)} ({len(text.splitlines())} lines)" if "\n" in typed else typed


def _delete(chosen: "Sequence[Run | StoredRun]", *, dry_run: bool, as_json: bool) -> None:
    """Delete runs, also after one that cannot be, and say which were left.

    Raises:
        PodiumError: Some were.
    """
    rows: list[dict[str, Any]] = []
    left: dict[str, PodiumError] = {}
    for run in chosen:
        count = run.size
        try:
            if not dry_run:
                run.delete()
        except NotFound:  # somebody has just deleted it
            continue
        except (PodiumError, OSError) as error:
            known = error if isinstance(error, PodiumError) else of_this_machine(error)
            left[run.id] = known or PodiumError(str(error))
        rows.append({"run": run.id, "bytes": count, "deleted": not dry_run and run.id not in left})
    did = "would delete" if dry_run else "deleted"
    lines = [f"{did} {row['run']}, {size(row['bytes'])}" for row in rows if row["run"] not in left]
    output(as_json, rows, lambda: "\n".join(lines or ["there is nothing to delete"][len(left) :]))
    if len(left) > 1:
        first, why = next(iter(left)), next(iter(left.values()))
        which = f"{len(left)} of {len(rows)} runs could not be deleted: {', '.join(left)}"
        raise PodiumError(f"{which}; {first}: {why.message}", why.hint)
    for why in left.values():
        raise why
