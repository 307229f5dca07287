"""What users read is held against the command line."""

import ast
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from test_structure import ALLOWED, nodes

from podium.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(
    group: click.Group, path: tuple[str, ...] = ("podium",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(app))


def shown_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `podium …` line in fenced blocks of a page."""
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"^\s*(?:\$ )?(?:\.venv/bin/)?(podium [a-z-].*)$", line):
                yield shlex.split(re.split(r" (?:[|>]|&&) ", match[1])[0], comments=True)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help
    assert " ".join(path) in command.help, "show an example in the help"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{parameter.name} has no help"


def test_optuna_dashboard_is_only_ever_given_a_copy() -> None:
    texts = [
        path.read_text()
        for path in [*PAGES, *(ROOT / "src/podium").rglob("*.py"), *ROOT.glob("examples/*.ipynb")]
    ]
    opened = [
        path for text in texts for path in re.findall(r"optuna-dashboard (\S+\.journal)", text)
    ]
    assert opened, "the docs no longer say how to look at a study"
    assert [path for path in opened if path.endswith("optuna.journal")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_in_the_docs_parses(page: Path) -> None:
    for words in shown_commands(page.read_text()):
        path = next((path for path in COMMANDS if tuple(words[: len(path)]) == path), None)
        if path is None:
            assert {"--help", "--version", "-h"} & set(words), f"no such command: {' '.join(words)}"
            continue
        with COMMANDS[path].make_context(
            " ".join(path), words[len(path) :], resilient_parsing=False
        ):
            pass


def test_commands_in_messages_and_hints_have_their_options() -> None:
    shown = re.findall(r"podium ([a-z-]+(?: [a-z-]+)?)([^`;|\n]*)", literals())
    checked = 0
    for words, rest in shown:
        path = ("podium", *words.split())
        command = COMMANDS.get(path) or COMMANDS.get(path[:2])
        # others take the options of a script, or the parameters of a pipeline, too
        if command is None or command.context_settings.get("ignore_unknown_options"):
            continue
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        rest = re.split(r" -- |podium |kubectl ", rest)[0]
        named = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest))
        assert named <= {*known, "--help"}, f"podium {words}{rest}"
        checked += len(named)
    assert checked > 100


def test_what_commands_say_names_no_parameter_of_pipelines_alone() -> None:
    options = {name for each in COMMANDS.values() for option in each.params for name in option.opts}
    parameters = {
        node.arg
        for file in (ROOT / "pipelines").glob("*_and_promote.py")
        for node in nodes(file)
        if isinstance(node, ast.arg)
    }
    alone = [name for name in parameters if f"--{name.replace('_', '-')}" not in options]
    assert "model_name" in alone
    rooms = ("data", "models", "prediction", "scoring", "serving")
    texts = [
        text
        for room in rooms
        for file in (ROOT / "src/podium" / room).rglob("*.py")
        if file.name != "option_text.py"  # which knows who reads it
        for text in texts_of(nodes(file))
    ]
    shown = re.compile(rf"(?<![\w-])(?:{'|'.join(alone)})=")
    assert [text for text in texts if shown.search(text) and "pipeline" not in text] == []


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        found.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    repeated = {
        f"{slug}-{number}" for slug, count in Counter(found).items() for number in range(1, count)
    }
    return {*found, *repeated}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def pages_in(navigation: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of a navigation and of what lies below its headings, in order."""
    for entry in navigation:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else pages_in(below)


def test_every_page_is_in_the_navigation_once() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    listed = [name for name in pages_in(site["nav"]) if name.endswith(".md")]
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_start_page_links_to_every_other_page() -> None:
    linked = set(re.findall(r"\]\((\w[\w-]+\.md)", (ROOT / "docs/index.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"index.md"}


def test_pages_that_code_and_manifests_name_are_there() -> None:
    folders = (
        "src/podium",
        "trainer",
        "components",
        "pipelines",
        "deploy",
        "scripts",
        "tests",
        "benchmarks",
    )
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in ("", ".py", ".yaml")
    ]
    files += [
        *ROOT.glob("deploy/teams/example/*.example"),
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]
    named = {
        name
        for path in files
        if path.is_file()
        for name in re.findall(r"(?<!\w/)docs/[\w-]+\.md", path.read_text())
    }
    assert "docs/cluster-teams.md" in named
    assert {name for name in named if not (ROOT / name).exists()} == set()


@cache
def literals() -> str:
    """Return every text in the source; of a formatted one also the parts that stand in it."""
    files = [path for folder in ("src/podium", "trainer") for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(texts_of([node for path in files for node in nodes(path)]))


def texts_of(found: list[ast.AST]) -> list[str]:
    """Return every text among the nodes of source; of a formatted one also the parts of it."""
    formatted = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        for node in found
        if isinstance(node, ast.JoinedStr)
    ]
    plain = [node.value for node in found if isinstance(node, ast.Constant)]
    return [*formatted, *(text for text in plain if isinstance(text, str))]


def test_messages_in_troubleshooting_are_those_of_the_source() -> None:
    blocks = re.findall(
        r"^```text\n(.*?)^```$",
        (ROOT / "docs/troubleshooting.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    lines = [
        line.removeprefix("hint: ").removeprefix("error: ")
        for block in blocks
        for line in block.splitlines()
    ]
    assert len(lines) > 30
    source = literals()
    for line in (
        lines
    ):  # words in capitals are the reader's own; podium puts sentences together at their ends
        parts = re.split(r"[.:,;] | \(|'?\b[A-Z_]{2,}\b'?", line)
        assert all(part.strip(' .=;:,"') in source for part in parts), line


def test_every_command_is_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [" ".join(path) for path in COMMANDS if " ".join(path) not in text]
    assert not missing, missing


def test_nothing_asks_to_install_the_other_project_called_podium() -> None:
    texts = [
        *PAGES,
        ROOT / "CHANGELOG.md",
        ROOT / "Makefile",
        ROOT / "Dockerfile",
        ROOT / "scripts/bootstrap",
    ]
    texts += [
        path
        for folder in ("src", "trainer", "components", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
    ]
    wrong = [
        str(path)
        for path in texts
        if re.search(r"pip install (-\S+ )*['\"]?podium(?!-ml)\b", path.read_text())
    ]
    assert not wrong, wrong


def test_every_difference_from_katib_has_its_tests() -> None:
    page, _, _ = (
        (ROOT / "docs/katib-differences.md").read_text().partition("## Katib's own examples")
    )
    rows = re.findall(r"^\| (?!What|---)(.*?) \|(?: |$)", page, re.MULTILINE)
    differences = yaml.safe_load((ROOT / "tests/differences.yaml").read_text())
    assert len(rows) > 45
    assert set(differences) == set(rows)
    golden = (ROOT / "tests/golden/katib/experiments.yaml").read_text()
    for named in differences.values():
        for module, names in named.items():
            (file,) = (ROOT / "tests").rglob(f"{module}.py")
            text = file.read_text() + (golden if module == "test_experiment_golden" else "")
            found = re.findall(
                r"^def test_(\w+)|^case: (\S+)|^    \"([^\"]+)\": \(", text, re.MULTILINE
            )
            known = [name.replace("_", " ").lower() for each in found for name in each if name]
            for words in names:
                assert any(words.lower() in name for name in known), (module, words)


def test_variables_lists_every_variable_of_the_code() -> None:
    folders = ("src/podium", "trainer", "components", "pipelines", "deploy", "scripts", "tests")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in ("", ".py", ".yaml")
    ]
    texts = [
        path.read_text()
        for path in (*files, ROOT / "Dockerfile", ROOT / "Makefile")
        if path.is_file()
    ]
    named = {name for text in texts for name in re.findall(r"\bPODIUM_[A-Z0-9_]+", text)}
    page = (ROOT / "docs/variables.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    # the pattern by which the doctor finds credentials ends in the name's beginning
    assert named - {"PODIUM_S3_"} == set(re.findall(r"^\| `(PODIUM_\w+)`", page, re.MULTILINE))


def test_architecture_names_every_room_and_only_files_there_are() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(ALLOWED)
    files = {
        file for file in re.findall(r"`([\w/]+/\w+\.py)`", text) if not file.startswith("tests/")
    }
    assert {file for file in files if not (ROOT / "src/podium" / file).exists()} == set()
