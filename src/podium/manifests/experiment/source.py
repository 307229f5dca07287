"""Experiments from files, from text, or from those that come with podium."""

import difflib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from podium.errors import InvalidInput, NotFound


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: ``1e-3`` is a number and ``2026-01-02`` is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if not tag.endswith((":timestamp", ":float"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+0123456789."),
)


def bundled() -> list[str]:
    """Return the names of the Experiments that come with podium."""
    folder = resources.files("podium.experiments")
    names = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return [name for name in names if "kind: Experiment" in (folder / f"{name}.yaml").read_text()]


def load(name_or_text: str) -> dict[str, Any]:
    """Read one object: YAML text, a file's path, or the name of a manifest that comes with podium.

    Args:
        name_or_text: Text if it has a line break or a brace; else a path if there is such a file; else a name.

    Raises:
        NotFound: No such file or name.
        InvalidInput: Not YAML, or not exactly one object.
    """
    if "\n" in name_or_text or "{" in name_or_text:
        return parse(name_or_text, "the given text")
    path = Path(name_or_text)
    if path.is_file():
        try:
            return parse(path.read_text(), name_or_text)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name_or_text} cannot be read: {error}") from None
    entry = resources.files("podium.experiments") / f"{name_or_text}.yaml"
    if not re.fullmatch(r"[\w-]+", name_or_text) or not entry.is_file():
        close = difflib.get_close_matches(name_or_text, bundled(), 1)
        hint = f"did you mean {close[0]}?" if close else f"a file, or one of {', '.join(bundled())}"
        raise NotFound(f"no file and no bundled experiment is called {name_or_text!r}", hint)
    return parse(entry.read_text(), name_or_text)


def parse(text: str, origin: str) -> dict[str, Any]:
    """Parse one object of YAML or JSON that could be sent to Kubernetes.

    Raises:
        InvalidInput: Not YAML, not one object, or it holds what JSON cannot say.
    """
    documents = parse_all(text, origin)
    if len(documents) != 1:
        hint = "split the file" if documents else "it must hold one Kubernetes object"
        raise InvalidInput(f"`one object` must hold, but {origin} has {len(documents)}", hint)
    if not isinstance(documents[0], dict):
        raise InvalidInput(
            f"`one object` must hold, but {origin} is something else", "it must hold one Kubernetes object"
        )
    return dict(documents[0])


def parse_all(text: str, origin: str) -> list[Any]:
    """Parse every document of YAML or JSON; empty ones are left out.

    Raises:
        InvalidInput: Not YAML, or it holds what JSON cannot say.
    """
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
        # As in the JSON that a cluster gets, what an alias repeats is a copy: one can be changed without the other.
        documents = [json.loads(json.dumps(one, allow_nan=False, ensure_ascii=False).encode()) for one in documents]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InvalidInput(f"{origin} is not readable as YAML{place}: {what}") from None
    return documents
