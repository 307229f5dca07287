"""`podium watch`."""

import re
import shlex
import signal
import subprocess
import sys
import time

import click

from podium.cli.notify import Notifier
from podium.cli.options import notify_option
from podium.display.terminal import echo, paused
from podium.errors import Failed, InvalidInput, suggestion

_STOP_SECONDS = 60.0
"""Seconds that a command has to stop what it started; more than `podium run` gives its steps."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@click.command()
@click.argument("uri")
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--every",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Time between two checks, as in 30s, 5m or 1h.",
)
@click.option("--now", is_flag=True, help="Also run for the data found by the first check.")
@click.option(
    "--once",
    is_flag=True,
    help="Check once and exit, for cron; the record is kept for the next time.",
)
@notify_option
def watch(
    uri: str, words: tuple[str, ...], every: str, now: bool, once: bool, notifier: Notifier
) -> None:
    """Run a podium command whenever data change.

    URI is a file, a directory, or an object or prefix of s3:// or minio://. The command after --
    starts when names, sizes or times differ from those of its last run and two checks in a row
    agree, so that nobody is still writing. The first check only records what is there. The record
    is kept under podium-work/watch/, so changes made while podium watch was not running are noticed
    at its next start. A command that fails is reported, and watching continues. Ctrl-C or SIGTERM
    stops the command and ends.

    \b
    Examples:
      podium watch incoming/ -- run tune_and_promote dataset=images:incoming
      podium watch s3://raw/photos --every 5m -- run dataset=images:s3://raw/photos
      podium watch incoming/ --once --notify https://hooks.example/T0/B0 -- run
    """
    from podium.runner.trigger import Trigger
    from podium.system.settings import Settings

    seconds = _seconds(every)
    command = _command(words, notifier)
    trigger = Trigger(uri, Settings.from_environment().home / "watch", words, now=now)
    with trigger.held(), paused():
        trigger.follow(lambda: _run(words, command), _say, every=seconds, once=once)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise InvalidInput(f"--every is a time such as 30s, 5m or 1h, not {text!r}")
    return seconds


def _command(words: tuple[str, ...], notifier: Notifier) -> list[str]:
    """Return the words of a process; it does the notifying, for it knows what came of it.

    Raises:
        InvalidInput: It is not a command of podium, watches itself, or sends no notification.
    """
    from podium.cli import COMMANDS, app

    words = words[1:] if words[0] == "podium" else words
    if not words or words[0] not in COMMANDS or words[0] == "watch":
        first = words[0] if words else "podium"
        raise InvalidInput(
            f"{first!r} is not a command of podium to run", suggestion(first, COMMANDS)
        )
    context, named, rest = (
        click.Context(app),
        app.get_command(click.Context(app), words[0]),
        words[1:],
    )
    while isinstance(named, click.Group) and rest:
        named, rest = named.get_command(context, rest[0]), rest[1:]
    if notifier.texts and not (named and any(option.name == "targets" for option in named.params)):
        raise InvalidInput(
            f"podium {shlex.join(words)} sends no notification", "leave --notify out"
        )
    notify = [word for text in notifier.texts for word in ("--notify", text)]
    return [sys.executable, "-P", "-c", "from podium.cli import main; main()", *words, *notify]


def _run(words: tuple[str, ...], command: list[str]) -> None:
    _say(f"running: podium {shlex.join(words)}")
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    if code:
        raise Failed(f"podium {shlex.join(words)} ended with exit code {code}")
    _say("done")


def _say(line: str) -> None:
    echo(f"{time.strftime('%H:%M:%S')}  {line}", err=True)
