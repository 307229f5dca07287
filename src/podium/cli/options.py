"""Options that several commands share, and what they open: clusters, registries, servers,
notifications."""

import functools
import inspect
import logging
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import podium
from podium.cli.completion import run_names
from podium.cli.notify import Notifier, parse_target
from podium.errors import InvalidInput, PodiumError
from podium.system.settings import STORAGE

if TYPE_CHECKING:
    from podium.api.cluster_spec import ClusterSpec
    from podium.cluster.base import Cluster
    from podium.cluster.local.supplies import Supplies
    from podium.kfp.client import Server
    from podium.kfp.runs import ServerRuns
    from podium.kfp.schedules import Schedules

F = TypeVar("F", bound=Callable[..., Any])

TYPED = "podium.typed"
"""Key of a context's meta: the words of a command that takes another one."""

GROUP = "podium"
"""KFP experiment that runs are listed under unless told otherwise."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Commands(click.Group):
    """A group whose help says all of what each command does; click's own cuts each line to fit."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                first, _, _ = (command.help or "").strip().partition("\n\n")
                rows.append((name, " ".join(first.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class WithCommand(click.Command):
    """A command that takes another one after ``--``: its parameter ``command``, a tuple of
    words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ctx.params["command"] = tuple(args[cut + 1 :])
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args[:cut])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND …]"]


def pairs_option(
    *names: str, metavar: str, example: str, help: str, empty: bool = False
) -> Callable[[F], F]:
    """Return an option such as ``--set FLAG=VALUE``, which may be repeated; the command gets value
    by name.

    Args:
        names: As click takes them.
        example: One of them, for the hint.
        help: As click takes it.
        empty: Whether a value may be empty.
    """

    def read(ctx: click.Context, option: click.Option, texts: tuple[str, ...]) -> dict[str, str]:
        values = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not (name and equals and (value or empty)):
                name = option.opts[0]
                raise InvalidInput(
                    f"{name} takes {option.metavar}, not {text!r}", f"for example {name} {example}"
                )
            values[name.lstrip("-")] = value
        return values

    return click.option(*names, metavar=metavar, multiple=True, callback=read, help=help)


def stacked(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return several options as one decorator, in the order in which a help shows them."""
    return lambda command: functools.reduce(lambda made, add: add(made), reversed(options), command)


def _made_of(
    name: str, make: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[F], F]:
    """Return options as one decorator; the command gets one argument in their place.

    Args:
        name: The argument.
        make: Makes it; its parameters are what the options give.
    """
    taken = inspect.signature(make).parameters

    def add(command: F) -> F:
        @functools.wraps(command)
        def made(*args: Any, **options: Any) -> Any:
            own = {each: options.pop(each) for each in taken}
            return command(*args, **options, **{name: make(**own)})

        return stacked(*options)(made)  # type: ignore[return-value]

    return add


def _spec(cluster: str | None, directory: Path | None, of_run: str | None) -> "ClusterSpec":
    from podium.api.cluster_spec import ClusterSpec

    options = {"--cluster": cluster, "--dir": directory, "--run": of_run}
    named = [option for option, value in options.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"{' and '.join(named)} name {len(named)} clusters", "give one of them")
    if of_run is not None:
        directory = podium.runs()[of_run].record.cluster
    return ClusterSpec.of(directory) if cluster is None else ClusterSpec(url=cluster)


cluster_options = _made_of(
    "spec",
    _spec,
    click.option(
        "--cluster", metavar="URL", help="kubernetes://NAMESPACE or local:///DIR; --dir by default."
    ),
    click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        help="Directory of the local cluster; podium-work/cluster by default.",
    ),
    click.option(
        "--run",
        "of_run",
        metavar="RUN",
        shell_complete=run_names,
        help="Local cluster of this run: an id, or latest.",
    ),
)


def image_dir_option(*aliases: str) -> Callable[[F], F]:
    """Return --image-dir, also under other names; the command gets ``images``."""
    return pairs_option(
        "--image-dir",
        *aliases,
        "images",
        metavar="IMAGE=DIR",
        example="trainer:1=.",
        help="Directory that stands in for an image (its bin/ comes first on PATH); "
        "other images are this Python.",
    )


def _supplies(
    volume: dict[str, str], secret: dict[str, str], config_map: dict[str, str]
) -> "Supplies":
    from podium.cluster.local.supplies import Supplies

    return Supplies(volume=volume, secret=secret, config_map=config_map).checked()


supply_options = _made_of(
    "supplies",
    _supplies,
    pairs_option(
        "--volume",
        metavar="NAME=DIR",
        example="data=/srv/data",
        help="Directory that stands in for a volume or a PersistentVolumeClaim.",
    ),
    pairs_option(
        "--secret",
        metavar="NAME=PLACE",
        example="keys=keys.env",
        help="Secret: a directory with a file for each key, a file (its manifest, or lines "
        "KEY=VALUE), or env for podium's own environment.",
    ),
    pairs_option(
        "--config-map",
        metavar="NAME=PLACE",
        example="settings=settings.yaml",
        help="ConfigMap, as --secret.",
    ),
)


def process_options(*aliases: str) -> Callable[[F], F]:
    """Return --image-dir, also under other names, --entrypoint, --fork-server and supply_options,
    for a command with a ``spec``."""
    return _made_of(
        "spec",
        _with_processes,
        image_dir_option(*aliases),
        pairs_option(
            "--entrypoint",
            "entrypoints",
            metavar="IMAGE=COMMAND",
            example="trainer:1='python train.py'",
            help="ENTRYPOINT of an image, for containers without a command.",
        ),
        click.option(
            "--fork-server/--no-fork-server",
            default=True,
            help="Start python -m from a preloaded process, on this machine.",
        ),
        supply_options,
    )


def _with_processes(
    spec: "ClusterSpec",
    images: dict[str, str],
    entrypoints: dict[str, str],
    fork_server: bool,
    supplies: "Supplies",
) -> "ClusterSpec":
    words = {image: _words(image, line) for image, line in entrypoints.items()}
    return replace(
        spec, images=images, entrypoints=words, fork_server=fork_server, supplies=supplies
    )


def _words(image: str, command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidInput(
            f"--entrypoint of {image} is not a command line: {command!r} ({error})"
        ) from None


named_object = stacked(click.argument("name"), cluster_options, json_option)
"""What every command about one object takes."""

queue_options = stacked(
    click.option("--queue", metavar="NAME", default="", help="Kueue's local queue, on a cluster."),
    click.option(
        "--queue-priority",
        metavar="NAME",
        default="",
        help="Kueue's WorkloadPriorityClass, with --queue.",
    ),
)


def sweep_options(*, without: Sequence[str] = (), raised: bool = False) -> Callable[[F], F]:
    """Return a flag for each setting of a sweep: --max-time, --constraint …; the command gets them
    by name.

    Args:
        without: Names of settings that the command has as options of its own.
        raised: Whether only those are added that a sweep may go on with.
    """
    from podium.manifests.options import settings

    return stacked(
        *(
            click.option(
                setting.flag or f"--{setting.name.replace('_', '-')}",
                setting.name,
                type=setting.kind if setting.kind in (int, float) else str,
                multiple=setting.is_list,
                metavar=setting.metavar,
                help=setting.help,
            )
            for setting in settings().values()
            if not setting.is_result
            and setting.name not in without
            and (setting.is_raised or not raised)
        )
    )


def next_command(words: str, cluster: "Cluster") -> str:
    """Return what to type about an object of this cluster."""
    from podium.api.cluster_spec import ClusterSpec

    return f"podium {words}" + (
        "" if cluster.url == ClusterSpec.of(None).url else f" --cluster {shlex.quote(cluster.url)}"
    )


def experiment_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of --name; a callback.

    Raises:
        InvalidInput: No Experiment can have it.
    """
    from podium.manifests.names import EXPERIMENT_NAME, is_experiment_name

    if value is not None and not is_experiment_name(value):
        raise InvalidInput(f"--name {EXPERIMENT_NAME}, but got {value!r}", "choose such a name")
    return value


storage_option = click.option(
    "--storage",
    envvar=STORAGE,
    show_envvar=True,
    metavar="URL",
    help="Directory, s3:// or minio:// URL of the registry; podium-work/store by default.",
)


registry_options = stacked(storage_option, json_option)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Which Kubeflow Pipelines server, and who asks."""

    host: str | None
    namespace: str | None
    token: str | None = None

    def open(self) -> "Server":
        from podium.kfp.client import Server

        return Server(self.host, self.namespace, self.token)

    def runs(self) -> "ServerRuns":
        """Connect to it; return its runs."""
        from podium.kfp.runs import ServerRuns

        return ServerRuns(self.open())

    def schedules(self) -> "Schedules":
        """Connect to it; return its recurring runs."""
        from podium.kfp.schedules import Schedules

        return Schedules(self.open())


def token_option(help: str) -> Callable[[F], F]:
    """Return --token-file; the command gets the bearer token in it as ``token``, None without."""
    return click.option(
        "--token-file",
        "token",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_read_token,
        help=help,
    )


def _read_token(ctx: click.Context, param: click.Parameter, file: Path | None) -> str | None:
    from podium.files.documents import read_text

    if file is None:
        return None
    token = read_text(file).strip()
    if not token:
        raise InvalidInput(f"there is no token in {file}", "openssl rand -hex 32 makes one")
    if not (token.isascii() and token.isprintable()):
        raise InvalidInput(f"{file} holds no token", "a token is one line of ASCII")
    return token


server_options = _made_of(
    "server",
    ServerOptions,
    click.option(
        "--host", envvar="KF_PIPELINES_ENDPOINT", show_envvar=True, help="Address of the server."
    ),
    click.option("--namespace", help="Namespace on a multi-user server."),
    token_option("File with a bearer token; by default the kfp client's credentials."),
)


def authority(host: str, port: int) -> str:
    """Return an address as a URL has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(
    address: str, port: int, hint: str = "--port takes another, --port 0 a free one"
) -> socket.socket:
    """Return a socket that listens on an address already.

    Raises:
        PodiumError: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=2048)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # create_server repeats the address
        problem = f"port {port} of {address} cannot be listened on: {why}"
        raise PodiumError(problem, hint) from None


def log_no_cancelled() -> None:
    """Keep uvicorn from logging what it cancels as it ends, such as an open page, and tracebacks of
    it."""
    import asyncio  # which few commands need

    def is_trouble(record: logging.LogRecord) -> bool:
        cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
        return not (cancelled or record.getMessage().startswith("Cancel "))

    logging.getLogger("uvicorn.error").addFilter(is_trouble)


notify_option = _made_of(
    "notifier",
    lambda targets: Notifier(tuple(map(parse_target, targets)), targets),
    click.option(
        "--notify",
        "targets",
        multiple=True,
        metavar="URL|COMMAND",
        help="Send the result as JSON to a webhook or to a command's stdin; may be repeated.",
    ),
)
"""For commands that run something to its end."""
