"""Options and output that the commands of `podium models` share."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from podium.terminal import echo

if TYPE_CHECKING:
    from podium.registry import Model, Registry


def registry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --storage and --json."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--storage",
        envvar="PODIUM_STORAGE",
        show_envvar=True,
        help="Directory, s3:// or minio:// URL of the registry; podium-work/store if missing.",
    )(command)


def open_registry(storage: str | None) -> "Registry":
    """Open the registry at --storage."""
    from podium.registry import open_registry as open_
    from podium.settings import Settings

    return open_(storage or Settings.from_environment().storage)


def select_models(registry: "Registry", name: str | None) -> "list[Model]":
    """Return the named model, or all.

    Raises:
        NotFound: There is no such model; a misspelled name must not look like a model without findings.
    """
    from podium.errors import NotFound

    names = registry.models()
    if name is None:
        return [registry[known] for known in names]
    if name in names:
        return [registry[name]]
    raise NotFound(f"there is no model {name} in {registry.storage.url}", f"models there: {', '.join(names) or 'none'}")


def output(as_json: bool, value: Any, text: Callable[[], str]) -> None:
    """Print a value as JSON, or its text."""
    echo(json.dumps(value, indent=1, default=str) if as_json else text())
