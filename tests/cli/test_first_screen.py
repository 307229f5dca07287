"""`podium --help`: what a newcomer sees first."""

import re

from click.testing import CliRunner

from podium.cli import COMMANDS, app


def test_the_first_screen_shows_commands_in_groups() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    headings = re.findall(r"(?m)^(\w+):$", shown)
    assert headings == ["Options", "Begin", "Look", "Data", "Cluster", "Check", "More"]
    explained = set(re.findall(r"(?m)^  (\w+) {2,}", shown)) & COMMANDS.keys()
    assert {"init", "run", "tune", "predict"} < explained
    assert not explained & {"job", "reap", "migrate"}
    assert all(name in shown.rpartition("More:")[2] for name in COMMANDS.keys() - explained)
    assert len(shown.splitlines()) <= 50
