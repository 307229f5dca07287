"""What `podium job` and `podium experiment` share: which cluster, a free name on it, and what to type next."""

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podium.cli.completion import run_names
from podium.errors import InvalidInput

if TYPE_CHECKING:
    from podium.api.place import Place
    from podium.cluster.base import Cluster

F = TypeVar("F", bound=Callable[..., Any])

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def cluster_options(command: F) -> F:
    """Add --cluster, --dir and --run; the command gets the URL as ``url``."""

    @click.option("--cluster", metavar="URL", help="kubernetes://NAMESPACE or local:///DIR; --dir if missing.")
    @click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        help="Directory of the local cluster; podium-work/cluster if missing.",
    )
    @click.option(
        "--run",
        "of_run",
        metavar="RUN",
        shell_complete=run_names,
        help="The local cluster of this run of `podium run`; or latest.",
    )
    @functools.wraps(command)
    def with_url(*args: Any, cluster: str | None, directory: Path | None, of_run: str | None, **options: Any) -> Any:
        given = {"--cluster": cluster, "--dir": directory, "--run": of_run}
        named = [option for option, value in given.items() if value is not None]
        if len(named) > 1:
            raise InvalidInput(f"{' and '.join(named)} name {len(named)} clusters", "give one of them")
        if of_run is not None:
            from podium.run.runs import Runs
            from podium.settings import Settings

            directory = Runs(Settings.from_environment())[of_run].cluster
        local = _default_url() if directory is None else f"local://{directory.absolute()}"
        return command(*args, url=local if cluster is None else cluster, **options)

    return with_url  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """What only processes on this machine need."""

    images: dict[str, str | Path] = field(default_factory=dict)
    """Directory by image."""

    entrypoints: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Entrypoint by image, as words."""

    fork_server: bool = True
    """Whether ``python -m`` starts from a warm process."""

    def place(self, url: str) -> "Place":
        """Return the cluster of a URL with these options."""
        from podium.api.place import Place

        return Place(url=url, images=self.images, entrypoints=self.entrypoints, fork_server=self.fork_server)


def named_object(command: F) -> F:
    """Add what every command about one object takes: NAME, the cluster, and --json."""
    return click.argument("name")(cluster_options(as_json_option(command)))


def process_options(*aliases: str) -> Callable[[F], F]:
    """Add --image-dir, also under other names, --entrypoint and --fork-server; the command gets ``processes``."""

    def add(command: F) -> F:
        @click.option(
            "--image-dir",
            *aliases,
            "images",
            metavar="IMAGE=DIR",
            multiple=True,
            help="Directory that stands for an image here (its bin/ first on PATH); any other image is this Python.",
        )
        @click.option(
            "--entrypoint",
            "entrypoints",
            metavar="IMAGE=COMMAND",
            multiple=True,
            help="ENTRYPOINT of an image, for containers without a command.",
        )
        @click.option(
            "--fork-server/--no-fork-server", default=True, help="Start python -m from a warm process, on this machine."
        )
        @functools.wraps(command)
        def with_processes(
            *args: Any, images: tuple[str, ...], entrypoints: tuple[str, ...], fork_server: bool, **options: Any
        ) -> Any:
            folders = dict(_pair("--image-dir IMAGE=DIR", text, "trainer:1=.") for text in images)
            commands = dict(
                _pair("--entrypoint IMAGE=COMMAND", text, "trainer:1='python train.py'") for text in entrypoints
            )
            words = {image: _words(image, line) for image, line in commands.items()}
            processes = ProcessOptions(images={**folders}, entrypoints=words, fork_server=fork_server)
            return command(*args, processes=processes, **options)

        return with_processes  # type: ignore[return-value]

    return add


def _pair(rule: str, text: str, example: str) -> tuple[str, str]:
    image, _, value = text.partition("=")
    if not (image and value):
        raise InvalidInput(f"`{rule}` must hold, but got {text!r}", f"for example {rule.split()[0]} {example}")
    return image, value


def _words(image: str, command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidInput(f"--entrypoint of {image} is not a command line: {command!r} ({error})") from None


def queue_options(command: F) -> F:
    """Add --queue and --queue-priority."""
    for option in (
        click.option(
            "--queue-priority", metavar="NAME", default="", help="Kueue's WorkloadPriorityClass, with --queue."
        ),
        click.option("--queue", metavar="NAME", default="", help="Kueue's local queue, on a cluster."),
    ):
        command = option(command)
    return command


def open_cluster(url: str, processes: ProcessOptions | None = None) -> "Cluster":
    """Open the cluster the options name.

    Raises:
        InvalidInput: There is no such kind of cluster, or one that pulls its images is given directories for them.
    """
    return (processes or ProcessOptions()).place(url).open()


def next_command(words: str, cluster: "Cluster") -> str:
    """Return what to type about an object of this cluster."""
    return f"podium {words}" + ("" if cluster.url == _default_url() else f" --cluster {shlex.quote(cluster.url)}")


def _default_url() -> str:
    from podium.settings import Settings

    return f"local://{Settings.from_environment().cluster}"
