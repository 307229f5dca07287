"""The one way that YAML and JSON are read: within limits on bytes, on depth and on what aliases expand to.

Every file, object and message is refused with one sentence that names it, whatever it holds; nothing that a parser
raises gets out, and no document takes more than about a second.
"""

import json
import re
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput

MAX_YAML = 3 * 2**20
"""Bytes, as many as an API server of Kubernetes takes."""

MAX_JSON = 16 * 2**20
"""Bytes, unless the reader of a document that grows says otherwise."""

MAX_JSON_DEPTH = 100
"""Levels of arrays and objects."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_MAX_DIRECTIVES = 100  # libyaml compares each with all before it


def read_text(path: Path, limit: int = MAX_YAML) -> str:
    """Read a text file that must not be larger than a limit.

    Raises:
        InvalidInput: It is not UTF-8, or larger; no more than the limit was read.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return _decode(file.read(limit + 1), limit, str(path))


def load_yaml(content: bytes | str, name: str) -> list[Any]:
    """Parse all documents of YAML or JSON into what JSON can say; empty documents are left out.

    Numbers and text are told apart as kubectl does. What an alias repeats is a copy: one can be changed without the
    other.

    Args:
        content: The text, or its bytes in UTF-8.
        name: Of the file, for the error.

    Raises:
        InvalidInput: It is not YAML, exceeds a limit, or holds what JSON cannot say.
    """
    import yaml

    from podium.yaml_loader import LimitError, Loader

    text = _decode(content, MAX_YAML, name)
    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise InvalidInput(f"{name} has more than {_MAX_DIRECTIVES} lines that begin with %", "remove the directives")
    try:
        loader = Loader(text, MAX_YAML)
        documents = []
        while loader.check_data():
            documents.append(loader.get_data())
        return [json.loads(json.dumps(one)) for one in documents if one is not None]
    except LimitError as error:
        raise InvalidInput(f"{name} {error}", "split the file, or write it without aliases") from None
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise InvalidInput(f"{name} is not readable as YAML{where}: {what}") from None


def read_json(path: Path, *, nan: bool = True, limit: int = MAX_JSON) -> Any:
    """Parse the JSON document in a file, see load_json.

    Raises:
        InvalidInput: It is not JSON or exceeds a limit.
        OSError: It cannot be read.
    """
    return load_json(read_text(path, limit), str(path), nan=nan, limit=limit)


def load_json(content: bytes | str, name: str, *, nan: bool = True, limit: int = MAX_JSON) -> Any:
    """Parse a JSON document.

    Args:
        content: The text, or its bytes in UTF-8.
        name: Of the file or object, for the error.
        nan: Whether NaN and Infinity are numbers.
        limit: Largest size in bytes.

    Raises:
        InvalidInput: It is not JSON, exceeds a limit, or has text that cannot be written as UTF-8.
    """
    text = _decode(content, limit, name)
    try:
        value = json.loads(text) if nan else json.loads(text, parse_constant=_refuse_constant)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep(name) from None
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} is not readable as JSON: it has half of a surrogate pair") from None
    except ValueError as error:
        raise InvalidInput(f"{name} is not readable as JSON: {error}") from None
    _check_depth(value, name)
    return value


def _decode(content: bytes | str, limit: int, name: str) -> str:
    _check_size(content, limit, name)
    try:
        if isinstance(content, bytes):
            return content.decode()
        content.encode()  # text of the command line may hold surrogates
    except UnicodeError as error:
        raise InvalidInput(f"{name} is not readable as UTF-8: {error}") from None
    return content


def _check_size(content: bytes | str, limit: int, name: str) -> None:
    if len(content) > limit:
        raise InvalidInput(f"{name} is larger than {limit:,} bytes", "split it, or name the file that you meant")


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number in JSON")


def _check_depth(value: Any, name: str) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_JSON_DEPTH):
        containers = [node.values() if isinstance(node, dict) else node for node in level]
        level = [child for container in containers for child in container if isinstance(child, dict | list)]
        if not level:
            return
    raise _too_deep(name)


def _too_deep(name: str) -> InvalidInput:
    return InvalidInput(f"{name} is nested more than {MAX_JSON_DEPTH} levels deep", "store it flat")
