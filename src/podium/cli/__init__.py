"""The command line: read options, call the library, print. stdout is data, stderr is talk.

Commands live in modules beside this one and are imported when they are called: `podium --help`
loads none of them.
"""

import codecs
import io
import os
import select
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any

import click

from podium import __version__
from podium.display.terminal import doing, echo, echo_error, stopping
from podium.errors import InvalidInput, PodiumError, of_this_machine, suggestion
from podium.system.interrupts import exit_code, signals_interrupt
from podium.system.plugins import Table, blame

_MORE = "More"
"""Commands that few people need: the first screen only names them."""

GROUPS: dict[str, dict[str, str]] = {
    "Start": {
        "init": "Create a small project to start from.",
        "run": "Run a pipeline on this machine, no cluster needed.",
        "tune": "Search for the best flags of any script, without YAML.",
        "predict": "Predict new pictures, rows or sentences with the champion.",
        "serve": "Serve the champion over HTTP.",
    },
    "Inspect": {
        "ui": "Show runs, sweeps and models in a browser, as they change.",
        "runs": "List, compare, resume and remove runs on this machine.",
        "models": "List, compare, promote, roll back and verify models.",
        "experiment": "Run a Katib Experiment YAML, on this machine or on a cluster.",
    },
    "Data": {
        "data": "Prepare and inspect datasets.",
        "storage": "Check a bucket or directory, copy data into it and out of it.",
    },
    "Cluster": {
        "compile": "Compile a pipeline to YAML for the Kubeflow Pipelines UI.",
        "upload": "Upload a pipeline to a Kubeflow Pipelines server.",
        "submit": "Run an uploaded pipeline on a Kubeflow Pipelines server.",
        "schedule": "Manage recurring runs on the server by YAML files.",
    },
    "Diagnose": {
        "doctor": "Find out why metrics do not arrive: logs, commands, manifests, namespaces.",
    },
    _MORE: {
        "watch": "Run a command whenever data change.",
        "job": "Run the YAML of a PyTorchJob, TrainJob or Job, on this machine or on a cluster.",
        "mcp": "Offer runs, sweeps and models to a language model's program.",
        "upgrade": "Look whether registry and schedules are those of this podium.",
        "reap": "List and delete jobs whose pipeline run is over.",
        "migrate": "Write PyTorchJobs, Jobs and the trials of Experiments as TrainJobs.",
        "engine": "Run the Experiments of a cluster that has no Katib.",
    },
}
"""By the heading of `podium --help`, each command and its line."""

_OBJECTS = {
    "compile": ("run", "compile_"),
    "submit": ("upload", "submit"),
    "migrate": ("migrate", "migrate_"),
}
"""Module in podium.cli and object in it, of commands whose names are not those of both."""

COMMANDS = Table[Any](
    "commands",
    {name: line for group in GROUPS.values() for name, line in group.items()},
    click.Command,
)
"""Those of other distributions are click's commands themselves."""

MEANT = {
    "sweep": "tune SCRIPT, or podium experiment run FILE",
    "hpo": "tune SCRIPT, or podium experiment run FILE",
    "search": "tune SCRIPT, or podium experiment run FILE",
    "train": "job run FILE, or podium run train_and_promote",
    "promote": "models promote NAME VERSION",
    "rollback": "models rollback NAME",
    "deploy": "models deploy NAME",
    "list": "runs list, podium experiment list or podium models list",
    "status": "runs list, podium experiment list or podium models list",
    "logs": "runs logs RUN, or podium job logs NAME",
    "stop": "runs stop RUN, or podium experiment stop NAME",
    "dashboard": "ui",
    "server": "serve MODEL",
}
"""What people type who come from another tool, and the command for it."""


class _LazyGroup(click.Group):
    """A group whose subcommands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            if ctx.resilient_parsing:
                return None

            meant = MEANT.get(name.lower())
            raise InvalidInput(
                f"there is no command {name!r}",
                f"podium {meant}" if meant else suggestion(name, COMMANDS),
            )
        found = COMMANDS[name]
        if isinstance(found, click.Command):
            return found
        module, attribute = _OBJECTS.get(name, (name, name))
        command = getattr(import_module(f"podium.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader such as head that has seen enough is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            stdout = select.poll()
            stdout.register(1, 0)
            if stdout.poll(0):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                sys.exit(0)
            raise PodiumError(f"a connection broke: {error.strerror}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                if heading == _MORE:
                    formatter.write_text(f"{', '.join(commands)}: see podium COMMAND --help")
                else:
                    formatter.write_dl(list(commands.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="podium")
def app() -> None:
    """Tune, train and promote a model: on this machine today, on Kubeflow tomorrow.

    Everything is stored under podium-work/ in the working directory, or in the directory that
    PODIUM_HOME names. podium COMMAND --help shows options and examples.

    \b
    Start with:
      podium run         tune, train and promote a model of MNIST here
      podium init NAME   create a project for your own data
    """


def main() -> None:
    """Run the command line; errors become two lines on stderr and an exit code, never a
    traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(
                encoding="utf-8", errors="surrogateescape"
            )  # in the C locale, as click does
    if any(
        name.endswith("_COMPLETE") for name in os.environ
    ):  # the variable has this program's name before it
        import_module("podium.cli.completion")  # so that click has our Bash
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with signals_interrupt(), doing(" ".join(["podium", *sys.argv[1:2]])):
            app(standalone_mode=False)
    except PodiumError as error:
        echo_error(error.message, error.hint)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        echo(usage.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        # click makes an Abort of every KeyboardInterrupt.
        last = error if isinstance(error, KeyboardInterrupt) else error.__cause__
        code = exit_code(last)
        again = last is not None and isinstance(last.__context__, KeyboardInterrupt)
        said = "interrupted again: everything still running was killed" if again else "interrupted"
        echo(said if code == 130 else "terminated", err=True)
        sys.exit(code)
    except Exception as error:
        if words := blame(error):
            echo_error(words, "this code is not podium's: tell those who wrote it")
            sys.exit(1)
        refused = of_this_machine(error)
        if refused is None and isinstance(error, OSError):
            refused = PodiumError(str(error))
        if refused is None:
            raise
        echo_error(refused.message, refused.hint)
        sys.exit(1)
    finally:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: a second one interrupts the cleanup of the first, and what still runs is
    killed."""
    stopping()
    signal.default_int_handler(number, frame)
