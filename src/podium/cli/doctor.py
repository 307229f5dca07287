"""``podium doctor``: find out why metrics do not arrive."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from podium.doctor.finding import Report
from podium.doctor.reading import STRATEGIES, Reader, guess_reader
from podium.errors import InvalidInput


@click.command()
@click.argument("file", required=False)
@click.option("--metric", help="Name of the objective; what the log holds if not given.")
@click.option("--additional", multiple=True, metavar="NAME", help="A further metric; may be repeated.")
@click.option("--objective", type=click.Choice(["minimize", "maximize"]), help="Whether small values are good.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="How readings become one value.")
@click.option("--pattern", multiple=True, metavar="REGEX", help="A metricsFormat in place of Katib's own.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
def doctor(file: str | None, as_json: bool, **reading: Any) -> None:
    """Find out why metrics do not arrive, without a cluster.

    FILE is a log (- for stdin). The exit code is 1 if anything would fail.

    \b
    Examples:
      podium doctor train.log --metric accuracy --objective maximize
    """
    if file is None:
        raise InvalidInput("`there is something to examine` must hold, but got nothing", "podium doctor train.log")
    finish(examine_file(file, reading), as_json)


def examine_file(file: str, reading: dict[str, Any]) -> list[Report]:
    """Examine a manifest or a log."""
    from podium.doctor.log import examine_log

    lines = read_lines(file)
    if is_manifest(file, lines):
        from podium.doctor.manifest import documents, examine_manifest

        return [examine_manifest(one, file) for one in documents("\n".join(lines), file)]
    return [examine_log(lines, choose_reader(lines, **reading), file)]


def is_manifest(file: str, lines: Sequence[str]) -> bool:
    """Tell a manifest from a log: by the file's name, or by a line that names its kind."""
    named = file.endswith((".yaml", ".yml"))
    return named or any(re.match(r"\s*\"?apiVersion\"?:", line) for line in lines[:50])


def read_lines(file: str) -> list[str]:
    """Read a file or stdin; bytes that are no UTF-8 are kept visible.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", "give the path of a log or a manifest") from None
    return data.decode(errors="replace").split("\n")[: None if data[-1:] not in (b"\n", b"") else -1]


def choose_reader(
    lines: Sequence[str],
    metric: str | None,
    objective: str | None,
    additional: Sequence[str],
    strategy: str | None,
    pattern: Sequence[str],
) -> Reader:
    """Make a reader of what the user said, and guess the rest."""
    guessed = guess_reader(lines, metric, objective)
    return Reader(
        objective=guessed.objective,
        kind=guessed.kind,
        additional=tuple(additional),
        strategies=dict.fromkeys((guessed.objective, *additional), strategy) if strategy else {},
        formats=tuple(pattern),
    )


def finish(reports: Sequence[Report], as_json: bool) -> None:
    """Print the reports; exit with 1 if anything would fail."""
    if as_json:
        click.echo(json.dumps({"reports": [report.as_dict() for report in reports]}, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        from podium.doctor.text import show

        console = Console() if sys.stdout.isatty() else Console(width=100)
        for report in reports:
            show(report, console)
    if any(report.verdict == "fail" for report in reports):
        sys.exit(1)
