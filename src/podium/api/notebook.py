"""Whether the parameters of a notebook arrive, and in which way papermill takes their values."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.api.space import Choice, Dimension, Value
from podium.errors import InvalidInput, suggestion
from podium.files.documents import read_json
from podium.manifests.fields import mapping, objects

_YAML = re.compile(r"[\[{].*|true|false")
"""Texts that papermill's -p hands on as text."""

_ANY_NAME = re.compile(r"%run\b|\bimport\s*\*|\b(?:globals|locals|exec)\(")
"""Code that may use a name which it does not mention."""

_TAGGED = re.compile(r'"tags"\s*:\s*\[[^\]]*"parameters"')


def papermill_options(
    words: Sequence[str], parameters: Mapping[str, Dimension | Value]
) -> dict[str, str]:
    """Return the option of papermill by parameter, where it is not -p: -r for one whose default in
    the notebook is text, -y for one with a list, a dict or ``true`` among its values.

    Args:
        words: Command that runs papermill.
    """
    texts = {
        name: value.texts if isinstance(value, Choice) else [str(value)]
        for name, value in parameters.items()
    }
    options = {name: "-y" for name in texts if any(map(_YAML.fullmatch, texts[name]))}
    return options | {name: "-r" for name in _texts(words) if name in texts}


def _texts(words: Sequence[str]) -> Iterator[str]:
    """Yield the names that the cell with the tag parameters gives a text."""
    for cell in _code_cells(words):
        if not _TAGGED.search(json.dumps(cell)):
            continue
        with suppress(SyntaxError):  # of IPython's own
            for line in ast.parse("".join(cell.get("source") or [])).body:
                if not isinstance(line, ast.Assign | ast.AnnAssign):
                    continue
                named = line.targets if isinstance(line, ast.Assign) else [line.target]
                value = line.value.value if isinstance(line.value, ast.Constant) else None
                if isinstance(value, str) and value:  # an empty one may stand for anything
                    yield from (each.id for each in named if isinstance(each, ast.Name))


def _code_cells(words: Sequence[str]) -> list[Mapping[str, Any]]:
    files = [Path(word) for word in words if word.endswith(".ipynb")]
    if not files or not files[0].is_file():
        return []
    cells = objects(mapping(read_json(files[0])).get("cells"))
    return [cell for cell in cells if cell.get("cell_type") == "code"]


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
    text = "\n".join("".join(cell.get("source") or []) for cell in _code_cells(words))
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
