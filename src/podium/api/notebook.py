"""Whether the parameters of a notebook arrive, and in which way papermill takes their values."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium.api.space import Choice, Dimension, Value
from podium.errors import InvalidInput, suggestion
from podium.files.documents import read_json
from podium.manifests.fields import mapping, objects

_YAML = re.compile(r"[\[{].*|true|false")
"""Texts that papermill's -p hands on as text."""

_ANY_NAME = re.compile(r"%run\b|\bimport\s*\*|\b(?:globals|locals|exec)\(")
"""Code that may use a name which it does not mention."""

_TAGGED = re.compile(r'"tags"\s*:\s*\[[^\]]*"parameters"')


def names_in_yaml(parameters: Mapping[str, Dimension | Value]) -> frozenset[str]:
    """Return the parameters with a list, a dict or ``true`` among their values, for -y."""
    texts = {
        name: value.texts if isinstance(value, Choice) else [str(value)]
        for name, value in parameters.items()
    }
    return frozenset(name for name in texts if any(map(_YAML.fullmatch, texts[name])))


def check_notebook(words: Sequence[str], names: Sequence[str]) -> None:
    """Refuse parameters that a notebook never uses, or that it sets itself behind papermill's cell.

    Args:
        words: Command that runs papermill.
        names: Its parameters.

    Raises:
        InvalidInput: There is such a parameter.
    """
    files = [Path(word) for word in words if word.endswith(".ipynb")]
    if not files or not files[0].is_file():
        return
    cells = objects(mapping(read_json(files[0])).get("cells"))
    code = [cell for cell in cells if cell.get("cell_type") == "code"]
    text = "\n".join("".join(cell.get("source") or []) for cell in code)
    tagged = _TAGGED.search(files[0].read_text("utf-8", errors="replace"))
    mentioned = {*re.findall(r"[A-Za-z_]\w*", text)}
    for name in names:
        word = re.escape(name)
        if name not in mentioned and not _ANY_NAME.search(text):
            problem = f"no cell of {files[0]} mentions {name}"
            raise InvalidInput(problem, suggestion(name, sorted(mentioned)) or "use it in a cell")
        if not tagged and re.search(rf"(?m)^{word}\s*(?::[^=\n]+)?=(?!=|.*\b{word}\b)", text):
            problem = f"{files[0]} sets {name} itself, and no cell has the tag parameters"
            raise InvalidInput(problem, "give that cell the tag parameters, which papermill knows")
