"""Flags of a script that would take the text ``false`` for true, or that podium tune has, too."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium.api.space import Choice, Dimension, Int, Switch, Value
from podium.cluster.local.scripts import bool_flags, imported_at_top, script_of
from podium.errors import InvalidInput
from podium.manifests.experiment.trainer import flag_name

_OTHER_FLAGS = re.compile(
    r"""add_(?!argument\(\s*["'])\w*arg|\w+ArgumentParser"""
    r"""|add_argument\(\s*["'][^"']*["']\s*[+%.]"""
    r"""|\b(?!_)\w+\s*\)?\s*=\s*\S*parse_known_args\([^()]*\)(?!\[0)"""
)
"""Flags that others add to a script's, or a use of those that its parser does not know."""

_OWN_PARSER = re.compile(r"add_argument|ArgumentParser|\b(click|typer|fire|tyro|absl)\b")
_SEED = re.compile(rb"""["']--seed["']""")
_FALSE = {"false", "no", "off", "0", "none", "null"}


def check_false(words: Sequence[str], parameters: Mapping[str, Dimension | Value]) -> None:
    """Refuse a value that its script would read as another one: ``type=bool`` of argparse takes any
    text for true, and fire takes ``false`` for a word.

    Args:
        words: Command that runs the script.
        parameters: Those that are searched, and those that are the same in all trials.

    Raises:
        InvalidInput: There is such a value.
    """
    script = Path(script_of(words) or "")
    false = {
        name: text
        for name, value in parameters.items()
        for text in reversed(_texts(value))
        if text.lower() in _FALSE
    }
    if not false or script.suffix != ".py" or not script.is_file():
        return
    source = script.read_bytes()
    imported = imported_at_top(source)
    if imported is None:
        return
    bools = bool_flags(source)
    for name, text in false.items():
        if flag_name(name) in bools:
            problem = f"{script} reads --{name} with type=bool, to which {text!r} is true"
            hint = f"write action=argparse.BooleanOptionalAction there, --{name}/--no-{name} here"
            raise InvalidInput(problem, hint)
        if "fire" in imported and text == "false":
            problem = f"{script} uses fire, which takes {name}=false for the word 'false'"
            raise InvalidInput(problem, f"--{name} True,False")


def with_own_seed(words: Sequence[str]) -> str:
    """Return the script that a command runs if it has a flag --seed; empty if not."""
    script = Path(script_of(words) or "")
    is_python = script.suffix == ".py" and script.is_file()
    return script.name if is_python and _SEED.search(script.read_bytes()) else ""


def misplaced(words: Sequence[str], options: Sequence[str]) -> str:
    """Return a warning of an option of podium tune that stands among the words of a command whose
    script does not mention it; empty without."""
    script = Path(script_of(words) or "")
    if script.suffix != ".py" or not script.is_file():
        return ""
    text = script.read_text("utf-8", "replace").replace("-", "_")
    for option in [word.partition("=")[0] for word in words]:
        if option in options and option.removeprefix("--").replace("-", "_") not in text:
            return f"{option} behind -- goes to {script}, which does not mention it; podium's options go before --"
    return ""


def unread(words: Sequence[str], way: str, names: Sequence[str]) -> str:
    """Return a warning of a parameter that its script would pass over; empty without.

    Args:
        way: How the program takes its parameters.
    """
    script = Path(script_of(words) or "")
    text = (
        script.read_text("utf-8", "replace") if script.suffix == ".py" and script.is_file() else ""
    )
    line = " ".join(words)
    places = all(f"${{{name}}}" in line for name in names)
    taker = "Hydra" if "hydra.main(" in text else ""
    if not taker and "OmegaConf.from_cli(" in text and not _OWN_PARSER.search(text):
        taker = "OmegaConf"
    if way == "flags" and taker and not places:
        return f"{script} takes parameters as {taker} does, name=value: add --as hydra"
    quoted = {*re.findall(r"""["']([\w.-]+)["']""", text)}
    for name in names:
        variable = name.replace("-", "_")
        if way == "env" and variable not in quoted and variable.upper() in quoted:
            return f"{script} reads the variable {variable.upper()}, not {variable}"
        flags = (f"--{name}", f"--{variable}", f"--{flag_name(name)}")
        passes_over = "parse_known_args" in text and "add_argument" in text
        passes_over = passes_over and not _OTHER_FLAGS.search(text)
        if way == "flags" and passes_over and not any(word.startswith(flags) for word in quoted):
            return f"{script} defines no --{name}, and passes over flags it does not know"
    return ""


def _texts(value: Dimension | Value) -> list[str]:
    if isinstance(value, Switch):
        return []
    if isinstance(value, Choice):
        return value.texts
    return [str(value.low)] if isinstance(value, Int) else [str(value)]
