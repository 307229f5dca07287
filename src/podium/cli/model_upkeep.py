"""The commands of `podium models` that change or verify models."""

import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.options import registry_options
from podium.display.tables import screen_width, table
from podium.display.terminal import doing, echo, output, progress_bar
from podium.display.text import figure, plural, size, when
from podium.errors import Damaged, Failed, require
from podium.system.settings import PUBLIC_KEY

if TYPE_CHECKING:
    from podium.models import Model, Record
    from podium.models.signature import PublicKey
    from podium.models.upkeep import Finding, Garbage


_tracking_option = click.option(
    "--tracking",
    default="",
    metavar="URL",
    help="MLflow server whose alias champion moves as well; by default the one that its run was logged to.",
)


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only check and say what would change.")


def _show(
    moved: "Record | None", before: "Record | None", as_json: bool, *, dry_run: bool = False
) -> None:
    assert moved
    text = f"{'dry run: ' * dry_run}{moved.alias} of {moved.name}: {moved.version}"
    if moved == before:
        text += ", as before"
    elif moved.replaced:
        text += f", instead of {moved.replaced}"
    output(as_json, moved.to_json(), lambda: text)


@click.command("upload")
@click.argument("name")
@click.argument("uri", metavar="DIRECTORY")
@click.option(
    "--version",
    default="",
    help="Id of the version; by default derived from the content of the files.",
)
@click.option(
    "--data",
    default="",
    help="Prepared dataset, directory or URI: score the model on its test part.",
)
@click.option(
    "--metric", default="", help="Metric to score it by, with --data; by default accuracy or rmse."
)
@click.option(
    "--image", default="", help="Container image that its predict command needs on a cluster."
)
@registry_options
def _upload(name: str, version: str, storage: str | None, as_json: bool, **source: str) -> None:
    """Upload a model directory, wherever it was made, as a version.

    DIRECTORY, or its URI, holds model.onnx, or model.json with a predict command. With --data the
    version can be compared with others, by `podium models promote` and diff; a predict command runs
    on this machine for that. Without it, only its files and the values in its metrics.json are
    stored. Files named checkpoint* are left out.

    \b
    Examples:
      podium models upload churn trained/ --data prepared/
      podium models upload churn s3://team/churn --version 2026-05 --data s3://team/churn/data
    """
    from podium.data.seen import SEEN
    from podium.models.shared_items import unknown_training
    from podium.training.import_model import ModelSource

    with doing(f"uploading {source['uri']}"):
        stored = ModelSource(**source).upload(podium.registry(storage).model(name), version)
    if "preprocessing.json" not in stored.files:
        echo(
            f"{stored.version} has no preprocessing.json: podium predict needs --data for it",
            err=True,
        )
    if stored.facts.value is not None and SEEN not in stored.files:
        echo(f"warning: {unknown_training(stored.title)}", err=True)
    text = f"{name} {stored.version}: {plural(len(stored.files), 'file')}, {size(stored.size)}"
    if stored.facts.value is not None:
        text += f", {stored.facts.metric.name} {figure(stored.facts.value)} on the test part"
        text += f" ({stored.facts.constant})" if str(stored.facts.constant) else ""
    output(as_json, stored.document(), lambda: text)


@click.command("promote")
@click.argument("name")
@click.argument("version")
@click.option(
    "--rule", help="Promote only by this rule: likely, better, not-worse, fresh, likely=.97, …."
)
@click.option(
    "--data", help="Dataset for the comparison, if the predictions of the two are not stored."
)
@click.option(
    "--live",
    metavar="RECORDED",
    help="Compare on what a server answered: directory or URI of podium serve --record.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="Table of the labels for --live: columns id and label, and item.",
)
@click.option("--reason", default="by hand", show_default=True, help="Reason for the history.")
@_tracking_option
@_DRY_RUN
@registry_options
def _promote(
    name: str, version: str, rule: str | None, storage: str | None, as_json: bool, **options: Any
) -> None:
    """Make a version the champion: unconditionally, or if it beats the current champion by a rule.

    VERSION may be an alias.

    \b
    Examples:
      podium models promote mnist RUN-ID --reason "better at sevens"
      podium models promote mnist RUN-ID --rule likely=.97,max_class_drop=0.02
      podium models promote mnist RUN-ID --rule likely --live recorded/ --labels labels.csv
    """
    from podium.models import NotPromoted

    model = podium.registry(storage)[name]
    before = model.aliases().get("champion")
    with doing(f"comparing {version} with the champion" if rule else f"verifying {version}"):
        try:
            promoted = model.promote(version, rule=rule, **options)
        except NotPromoted as refused:
            echo(str(refused.decision), err=True)
            raise Failed(refused.message) from None
    if promoted.decision:
        echo(str(promoted.decision), err=True)
    _show(promoted.record, before, as_json, dry_run=options["dry_run"])


@click.command("rollback")
@click.argument("name")
@click.option("--to", help="The version to return to; the previous champion by default.")
@click.option("--reason", default="by hand", show_default=True, help="Reason for the history.")
@_tracking_option
@_DRY_RUN
@registry_options
def _rollback(
    name: str, to: str | None, storage: str | None, as_json: bool, **options: Any
) -> None:
    """Return to the previous champion, after verifying it.

    Rolling back twice goes back two steps. MLflow's alias champion moves as well.

    \b
    Examples:
      podium models rollback mnist --dry-run
      podium models rollback mnist --reason "bad at sevens in production"
    """
    model = podium.registry(storage)[name]
    before = model.aliases().get("champion")
    with doing("verifying the version to return to"):
        promoted = model.rollback(to, **options)
    _show(promoted.record, before, as_json, dry_run=options["dry_run"])


_SAID = click.option(
    "--reason", required=True, help="Reason for the history, recorded with your name."
)
_KEY = click.option(
    "--key", type=click.Path(path_type=Path), help="PEM of a private key that signs it."
)


@click.command("approve")
@click.argument("name")
@click.argument("version")
@_SAID
@_KEY
@click.option(
    "--data", help="Dataset for the comparison, if the predictions of the two are not stored."
)
@registry_options
def _approve(
    name: str,
    version: str,
    reason: str,
    key: Path | None,
    data: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Approve a version that meets its promotion rule and waits for approval, as under the rule
    better,approved.

    It is compared once more, as the champion may have changed since. With PODIUM_PUBLIC_KEY set, an
    approval needs --key.

    \b
    Examples:
      podium models approve mnist RUN-ID --reason "seen on the shop floor"
      podium models approve mnist RUN-ID --reason "audit 12" --key key.pem
    """
    promotion = podium.registry(storage)[name].approve(version, reason, key=key, data=data)
    assert promotion.record
    output(
        as_json, promotion.record.to_json(), lambda: f"{promotion.version} is champion of {name}"
    )


@click.command("reject")
@click.argument("name")
@click.argument("version")
@_SAID
@_KEY
@registry_options
def _reject(
    name: str, version: str, reason: str, key: Path | None, storage: str | None, as_json: bool
) -> None:
    """Reject a version that waits for approval; the champion stays.

    \b
    Examples:
      podium models reject mnist RUN-ID --reason "worse on sevens"
    """
    record = podium.registry(storage)[name].reject(version, reason, key=key)
    output(
        as_json,
        record.to_json(),
        lambda: f"{record.version} of {name} is rejected by {record.evidence['by']}",
    )


@click.command("alias")
@click.argument("name")
@click.argument("alias_name", metavar="ALIAS")
@click.argument("ref")
@click.option("--reason", default="by hand", show_default=True, help="Reason for the history.")
@registry_options
def _alias(
    name: str, alias_name: str, ref: str, reason: str, storage: str | None, as_json: bool
) -> None:
    """Point your own alias at a version, or at the target of another alias.

    \b
    Examples:
      podium models alias mnist staging champion
    """
    model = podium.registry(storage)[name]
    before = model.aliases().get(alias_name)
    model.alias(alias_name, ref, reason)
    _show(model.aliases()[alias_name], before, as_json)


@click.command("sign")
@click.argument("name")
@click.argument("ref", metavar="[VERSION]", default="champion")
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    help="PEM of the private key: EC P-256, P-384 or P-521.",
)
@click.option(
    "--signature",
    "made",
    type=click.Path(path_type=Path),
    help="Store this model.sig, made elsewhere, after checking it with PODIUM_PUBLIC_KEY.",
)
@registry_options
def _sign(
    name: str, ref: str, key: Path | None, made: Path | None, storage: str | None, as_json: bool
) -> None:
    """Sign a version with a local key, in the format of OpenSSF's model_signing, after verifying
    every byte.

    VERSION is a version or an alias; the champion by default. The signature covers every file and
    metadata.json, so also the run, the code, the image, the dataset and the metrics named there. It
    is stored beside them as model.sig, and `podium models export` includes it. An earlier signature
    is replaced.

    \b
    Examples:
      openssl ecparam -name prime256v1 -genkey -noout -out key.pem
      openssl ec -in key.pem -pubout -out pub.pem
      podium models sign mnist champion --key key.pem
      podium models verify mnist champion --key pub.pem
    """
    from podium.models import signature

    require(
        (key is None) != (made is None),
        "either --key or --signature",
        "--key key.pem signs here",
        key=key,
        signature=made,
    )
    version = podium.registry(storage)[name].version(ref)
    if key:
        with doing(f"verifying {version.title}"):
            public = signature.sign(version, key)
    else:
        assert made
        public = signature.require_key()
        public.attach(version, made)
    where = version.storage.join(signature.signature_key(version))
    value = {
        "name": name,
        "version": version.version,
        "key": public.fingerprint,
        "signature": where,
    }
    output(
        as_json,
        value,
        lambda: f"{version.title} is signed with the key {public.fingerprint[:16]}: {where}",
    )


@click.command("verify")
@click.argument("name", required=False)
@click.argument("ref", metavar="[VERSION]", required=False)
@click.option(
    "--key",
    envvar=PUBLIC_KEY,
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="PEM of the public key that signatures are checked with.",
)
@click.option("--quick", is_flag=True, help="Do not read the models' files.")
@click.option("--fix", is_flag=True, help="Repair what can be repaired, and delete what is listed.")
@click.option(
    "--grace",
    default=24.0,
    show_default=True,
    help="Grace period in hours; nothing younger is deleted.",
)
@click.option(
    "--keep", type=click.IntRange(1), help="Also retire unneeded versions beyond the newest N."
)
@registry_options
def _verify(
    name: str | None,
    ref: str | None,
    key: Path | None,
    quick: bool,
    fix: bool,
    grace: float,
    keep: int | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Read every file of one model or of all and compare it with its sha256; exit 1 if anything is
    wrong.

    It also lists what interrupted uploads and deletions left behind and, with --keep, versions that
    are no longer needed. --fix deletes these, adds complete versions that their model's document
    does not list, and rebuilds a damaged document from the versions. The targets of aliases and of
    a rollback, and anything younger than the grace period, are always kept.

    With a key every signature is checked as well, whether podium made it or OpenSSF's
    `model_signing sign key`. The named version, or without one the target of every alias, must be
    signed.

    \b
    Examples:
      podium models verify
      podium models verify mnist --json
      podium models verify mnist champion --key pub.pem
      podium models verify --quick --fix --keep 20
    """
    from podium.models.signature import PublicKey

    require(0 <= grace <= 1e6, "0 <= grace <= 1000000", "hours", grace=grace)
    require(
        not (ref and (fix or keep)),
        "--fix and --keep without a version",
        f"leave VERSION out: podium models verify {name} --fix",
        version=ref,
    )
    public, age = PublicKey.read(key) if key else None, timedelta(hours=grace)
    models = podium.registry(storage).select(name)
    mended = [done for model in models if fix for done in model.repair()]
    garbage = []
    for model in models if not ref else []:
        garbage += model.gc(grace=age, delete=fix)
        if keep:
            garbage += model.retire(keep=keep, grace=age, delete=fix)
    sizes, findings = _read(models, ref, public, quick)
    value = {
        "files": len(sizes),
        "bytes": sum(sizes),
        "findings": [asdict(finding) for finding in findings],
        "mended": [asdict(done) for done in mended],
        "garbage": [asdict(item) for item in garbage],
        "deleted": fix,
    }
    counts = f"{plural(len(models), 'model')}, {plural(len(sizes), 'file')}, {size(sum(sizes))}"
    counts += f": {plural(len(findings), 'finding') if findings else 'no findings'}"
    lines = [f"{finding.where}\n  {finding.what}" for finding in [*mended, *findings]]
    if garbage and not as_json:
        _list(garbage, fix)
    output(as_json, value, lambda: "\n".join([*lines, counts]))
    if findings:
        sys.exit(1)


def _read(
    models: "list[Model]", ref: str | None, key: "PublicKey | None", quick: bool
) -> "tuple[list[int], list[Finding]]":
    total = 0
    for model in models if not quick else []:
        with suppress(Damaged):  # which is a finding
            total += sum(
                version.size for version in ([model.version(ref)] if ref else model.versions)
            )
    sizes: list[int] = []
    with progress_bar(total, "verifying") as moved:

        def checked(count: int) -> None:
            sizes.append(count)
            moved(count)

        return sizes, [
            finding
            for model in models
            for finding in model.verify(checked, contents=not quick, key=key, only=ref)
        ]


def _list(garbage: "list[Garbage]", deleted: bool) -> None:
    rows = [(item.why, size(item.size), when(item.modified), item.where) for item in garbage]
    heads, drop = ("WHAT", ">SIZE", "WRITTEN (UTC)", "WHERE"), ("WRITTEN (UTC)",)
    echo(table(heads, rows, width=screen_width(), drop=drop, shorten="WHERE"))
    ending = " deleted" if deleted else "; nothing deleted, add --fix"
    total = size(sum(item.size for item in garbage))
    echo(f"{plural(len(garbage), 'thing')}, {total}{ending}")


COMMANDS = (_upload, _promote, _rollback, _approve, _reject, _alias, _sign, _verify)
