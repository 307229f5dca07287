"""`podium storage check`."""

import json
import sys
from dataclasses import asdict

import click

from podium.terminal import Styled, echo, harmless, styled


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def storage() -> None:
    """Check a bucket or directory."""


@storage.command()
@click.argument("url", required=False)
@click.option("--create", is_flag=True, help="Make the bucket if it is not there.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def check(url: str | None, create: bool, as_json: bool) -> None:
    """Try everything podium needs of a storage and say what to fix.

    URL is a directory, s3://bucket/prefix or minio://bucket/prefix; the default storage if missing. Where the server
    is and who asks is read from the environment: see docs/registry.md.

    \b
    Examples:
      podium storage check
      MINIO_ENDPOINT=http://localhost:9000 podium storage check minio://models --create
    """
    from podium.settings import Settings
    from podium.storage import connect
    from podium.storage.check import check as run

    opened = connect(url or Settings.from_environment().storage, create=create)
    results = []
    for result in run(opened):
        results.append(result)
        if not as_json:
            mark = styled("ok  ", fg="green") if result.ok else styled("FAIL", fg="red")
            echo(Styled(f"{mark}  {result.name:<22}  {harmless(result.detail)}"))
            if result.hint:
                echo(f"      hint: {result.hint}")
    if as_json:
        echo(json.dumps({"url": opened.url, "checks": [asdict(result) for result in results]}, indent=1))
    if not all(result.ok for result in results):
        sys.exit(1)
