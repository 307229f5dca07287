"""The commands of `podium models` that change something or read everything."""

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from podium.cli import model_tables as draw
from podium.cli.registry_options import names, open_registry, output, progress_bar, registry_options
from podium.errors import require
from podium.terminal import echo

if TYPE_CHECKING:
    from podium.registry import Record


def _tell(record: "Record", as_json: bool) -> None:
    text = f"{record.alias} of {record.name}: {record.version}" + (
        f", instead of {record.replaced}" if record.replaced else ""
    )
    output(as_json, record.document(), lambda: text)


@click.command()
@click.argument("name")
@click.argument("version")
@click.option("--rule", help="Promote only if this holds: better, not-worse, significant,p=0.01, ….")
@click.option("--data", help="Dataset for the comparison, if what the two predicted is not stored.")
@click.option("--reason", default="by hand", show_default=True, help="Goes into the history.")
@registry_options
def promote(
    name: str, version: str, rule: str | None, data: str | None, reason: str, storage: str | None, as_json: bool
) -> None:
    """Make a version champion: because you say so, or if a rule holds against the champion of now.

    VERSION may be an alias, for what it points at.

    \b
    Examples:
      podium models promote mnist RUN-ID --reason "better at sevens"
      podium models promote mnist RUN-ID --rule significant,p=0.01,max_class_drop=0.02
    """
    from podium.errors import Failed
    from podium.steps.compare import contest

    registry = open_registry(storage)
    version = registry.resolve(name, version).version
    if rule is None:
        held = registry.aliases(name).get("champion")
        _tell(registry.promote(name, version, {"reason": reason}, held.points_at if held else None), as_json)
        return
    ended = contest(registry, name, version, rule, data, {"reason": reason})
    echo(str(ended.decision), err=True)
    if ended.record is None:
        raise Failed(f"{version} of {name} must meet the rule to replace {ended.champion or 'nobody'}, but does not")
    _tell(ended.record, as_json)


@click.command()
@click.argument("name")
@click.option("--to", help="Which version; the champion before this one if missing.")
@click.option("--reason", default="by hand", show_default=True, help="Goes into the history.")
@registry_options
def rollback(name: str, to: str | None, reason: str, storage: str | None, as_json: bool) -> None:
    """Make the champion before this one champion again, after verifying it.

    Twice goes back two steps.

    \b
    Examples:
      podium models rollback mnist --reason "bad at sevens in production"
    """
    _tell(open_registry(storage).rollback(name, to, reason), as_json)


@click.command()
@click.argument("name")
@click.argument("alias_name", metavar="ALIAS")
@click.argument("ref")
@click.option("--reason", default="by hand", show_default=True, help="Goes into the history.")
@registry_options
def alias(name: str, alias_name: str, ref: str, reason: str, storage: str | None, as_json: bool) -> None:
    """Point an alias of your own at a version, or at what another alias points at.

    \b
    Examples:
      podium models alias mnist staging champion
    """
    _tell(open_registry(storage).alias(name, alias_name, ref, reason), as_json)


@click.command()
@click.argument("name", required=False)
@registry_options
def verify(name: str | None, storage: str | None, as_json: bool) -> None:
    """Read every file of one model or of all and compare it with its sha256; exit 1 if anything is wrong.

    \b
    Examples:
      podium models verify
      podium models verify mnist --json
    """
    registry = open_registry(storage)
    models = names(registry, name)
    total = sum(one.size for model in models for one in registry.versions(model))
    counted = [0, 0]
    with progress_bar(total) as moved:

        def checked(size: int) -> None:
            counted[0], counted[1] = counted[0] + 1, counted[1] + size
            moved(size)

        findings = [finding for model in models for finding in registry.verify(model, checked)]
    value = {"files": counted[0], "bytes": counted[1], "findings": [asdict(one) for one in findings]}
    lines = [f"{one.where}\n  {one.what}" for one in findings]
    told = f"{draw.counted(len(models), 'model')}, {draw.counted(counted[0], 'file')}, {draw.size(counted[1])}"
    lines.append(f"{told}: {draw.counted(len(findings), 'finding') if findings else 'no findings'}")
    output(as_json, value, lambda: "\n".join(lines))
    if findings:
        sys.exit(1)


@click.command()
@click.argument("name", required=False)
@registry_options
def repair(name: str | None, storage: str | None, as_json: bool) -> None:
    """Restore damaged aliases from the history, and the history from the aliases.

    The last move of each alias is stored twice. What neither copy gives back is named, and the exit code is 1.

    \b
    Examples:
      podium models repair
      podium models repair mnist --json
    """
    registry = open_registry(storage)
    repairs = [one for model in names(registry, name) for one in registry.repair(model)]
    lines = [f"{one.where}\n  {one.what}" for one in repairs] or ["nothing to repair"]
    output(as_json, [asdict(one) for one in repairs], lambda: "\n".join(lines))
    if not all(one.restored for one in repairs):
        sys.exit(1)


@click.command()
@click.argument("name", required=False)
@click.option("--delete", is_flag=True, help="Delete it; otherwise it is only told.")
@click.option("--grace", default=24.0, show_default=True, help="Hours: leave alone what is younger.")
@click.option("--keep", type=click.IntRange(1), help="Also retire versions beyond the newest N that nothing needs.")
@registry_options
def gc(name: str | None, delete: bool, grace: float, keep: int | None, storage: str | None, as_json: bool) -> None:
    """Find what killed uploads left and, with --keep, versions nobody needs. Deletes only with --delete.

    What an alias points at, where a rollback would go, and what is younger than the grace period stays in any case.

    \b
    Examples:
      podium models gc
      podium models gc mnist --keep 20 --delete
    """
    require(0 <= grace <= 1e6, "0 <= grace <= 1000000", "hours", grace=grace)
    registry, hours = open_registry(storage), timedelta(hours=grace)
    found = []
    for model in names(registry, name):
        found += registry.gc(model, grace=hours, delete=delete)
        if keep:
            found += registry.retire(model, keep=keep, grace=hours, delete=delete)
    if as_json:
        echo(json.dumps({"deleted": delete, "garbage": [asdict(one) for one in found]}, indent=1, default=str))
        return
    rows = [(one.why, draw.size(one.size), draw.when(one.modified), one.where) for one in found]
    if rows:
        echo(draw.table(("WHAT", ">SIZE", "WRITTEN (UTC)", "WHERE"), rows))
    total = draw.size(sum(one.size for one in found))
    echo(f"{draw.counted(len(found), 'thing')}, {total}{' deleted' if delete else '; nothing deleted, say --delete'}")


COMMANDS = (promote, rollback, alias, verify, repair, gc)
