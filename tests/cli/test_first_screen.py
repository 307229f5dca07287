"""`podium --help`: what a newcomer sees first."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from podium.cli import COMMANDS, MEANT, app
from podium.errors import InvalidInput


def test_the_first_screen_shows_commands_in_groups() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    headings = re.findall(r"(?m)^(\w+):$", shown)
    assert headings == ["Options", "Start", "Inspect", "Data", "Cluster", "Diagnose", "More"]
    explained = set(re.findall(r"(?m)^  (\w+) {2,}", shown)) & COMMANDS.keys()
    assert {"init", "run", "tune", "predict"} < explained
    assert not explained & {"job", "reap", "migrate"}
    assert all(name in shown.rpartition("More:")[2] for name in COMMANDS.keys() - explained)
    assert len(shown.splitlines()) <= 50


def commands_of(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands_of(command, *names, name)


def test_every_example_of_a_command_is_one_line() -> None:
    assert isinstance(app, click.Group)
    seen = 0
    for words, found in commands_of(app):
        blocks = re.findall(r"\x08\n *Examples?:\n((?: *\S.*\n?)+)", found.help or "")
        for line in (line.strip() for block in blocks for line in block.splitlines()):
            seen += 1
            command = re.sub(r"^(\w+=\S+ )*", "", line)
            assert re.match(r"(podium|curl|openssl) ", f"{command} "), (words, line)
            assert not re.search(r"[^|;&] podium [a-z]+ ", command), (words, line)
    assert seen > 80


@pytest.mark.parametrize("word", MEANT)
def test_words_of_other_tools_lead_to_commands_that_exist(word: str) -> None:
    refused = CliRunner().invoke(app, [word])
    assert isinstance(refused.exception, InvalidInput)
    for command in re.findall(r"podium ([a-z ]+)", refused.exception.hint):
        names = [name for name in command.split() if name not in ("or",)]
        assert CliRunner().invoke(app, [*names, "--help"]).exit_code == 0, command
