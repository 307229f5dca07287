"""`podium models approve` and `reject`: a person's word on a version that waits for one."""

from pathlib import Path
from typing import Any

import click

from podium.cli.options import open_registry, registry_options
from podium.terminal import output

reason_option = click.option(
    "--reason", required=True, help="Goes into the history, with who says so."
)
key_option = click.option(
    "--key", type=click.Path(path_type=Path), help="PEM of a private key that signs it."
)


@click.command()
@click.argument("name")
@click.argument("version")
@reason_option
@key_option
@click.option(
    "--data", help="Dataset for the comparison, if the predictions of the two are not stored."
)
@registry_options
def approve(
    name: str,
    version: str,
    reason: str,
    key: Path | None,
    data: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Say yes to a version that meets its promotion rule and waits, as under the rule
    better,approved.

    It is compared once more: the champion may have moved since. With PODIUM_PUBLIC_KEY set, an
    approval needs --key.

    \b
    Examples:
      podium models approve mnist RUN-ID --reason "seen on the shop floor"
      podium models approve mnist RUN-ID --reason "audit 12" --key key.pem
    """
    promotion = open_registry(storage)[name].approve(version, reason, key=key, data=data)
    assert promotion.record
    value: dict[str, Any] = promotion.record.document()
    output(as_json, value, lambda: f"{promotion.version} is champion of {name}")


@click.command()
@click.argument("name")
@click.argument("version")
@reason_option
@key_option
@registry_options
def reject(
    name: str, version: str, reason: str, key: Path | None, storage: str | None, as_json: bool
) -> None:
    """Say no to a version that waits for a person; the champion stays.

    \b
    Examples:
      podium models reject mnist RUN-ID --reason "worse on sevens"
    """
    record = open_registry(storage)[name].reject(version, reason, key=key)
    output(
        as_json,
        record.document(),
        lambda: f"{record.version} of {name} is rejected by {record.evidence['by']}",
    )
