"""Reading YAML and JSON within limits on size, depth and expanded aliases. Nothing else in podium
parses them.

Anything unreadable is refused in one sentence that names it; no exception of a parser gets out, and
none takes more than a second, but a large one that describes thousands of columns.
"""

import json
import math
import os
import re
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from podium.errors import InvalidInput, PodiumError, file_hint
from podium.files.drafts import appearing, replace

MAX_YAML = 3 * 2**20
"""Bytes: the limit of a Kubernetes API server."""

MAX_JSON = 64 * 2**20
"""Bytes, unless the caller passes another limit: 50,000 columns of a table take two thirds."""

MAX_JSON_DEPTH = 100
"""Levels of arrays and objects."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TEMPLATE = re.compile(
    r"\{\{-? *(?:\.|\$|if|range|with|include|define|end|template|else|toYaml|tpl)\b"
)
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
T = TypeVar("T")
_MAX_DIRECTIVES = 100  # libyaml compares each with all before it


@contextmanager
def foreign(
    problem: str,
    kind: type[PodiumError] = InvalidInput,
    hint: str | None = None,
    *,
    why: bool = True,
) -> Iterator[None]:
    """Turn any error of reading foreign bytes within this block into one sentence: nobody can list
    them all.

    Args:
        problem: Names the file and says what it is not, as "model.sig is no signature".
        kind: Class of the error; an error of this class passes unchanged.
        hint: Suggested fix.
        why: Whether the parser's own words are in it.

    Raises:
        PodiumError: Of that kind.
    """
    try:
        yield
    except kind:
        raise
    except Exception as error:
        reason = (
            f": {getattr(error, 'message', '') or error or type(error).__name__}" if why else ""
        )
        raise kind(f"{problem}{reason:.500}", hint) from None


def read_text(path: Path, limit: int = MAX_YAML) -> str:
    """Read a text file of limited size.

    Raises:
        InvalidInput: It is not UTF-8, or larger than the limit.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return _decode(file.read(limit + 1), limit, str(path))


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that a user named, whole or not at all; its directory is made.

    A link stays one, and so does a pipe or a device, such as /dev/stdout.

    Raises:
        PodiumError: It cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            path = Path(os.path.realpath(path))
            with suppress(
                FileExistsError
            ):  # a file in the directory's place is named by the next line
                path.parent.mkdir(parents=True)
            with appearing(path) as draft:
                draft.write_bytes(data)
    except OSError as error:
        raise PodiumError(f"{path} cannot be written: {error.strerror}", file_hint(error)) from None


def write_json(path: Path, value: object) -> None:
    """Replace a file atomically with JSON whose outer levels are indented."""
    replace(path, (_indented(value, 2, "\n ") + "\n").encode())


def _indented(value: object, levels: int, separator: str) -> str:
    # json.dumps(indent=1) takes ten times as long, and it would be most of what a short trial
    # costs.
    if not levels or not isinstance(value, dict) or not value:
        return json.dumps(value)
    members = (
        f"{json.dumps(str(name))}: {_indented(member, levels - 1, separator + ' ')}"
        for name, member in value.items()
    )
    return f"{{{separator}{f',{separator}'.join(members)}{separator[:-1]}}}"


def load_yaml(
    content: bytes | bytearray | str, name: str, *, own: bool = False, kubectl: bool = False
) -> list[Any]:
    """Parse all documents of a YAML or JSON text into values that JSON can hold; empty documents
    are skipped.

    Numbers and strings are distinguished as kubectl does. Aliases become copies, which can be
    changed independently.

    Args:
        content: The text, or its bytes in UTF-8.
        name: Name of the file, for errors.
        own: Whether nobody but podium reads it: a number such as 010 is refused then.
        kubectl: Whether kubectl reads it, to which y and n without quotes are true and false.

    Raises:
        InvalidInput: It is not YAML, exceeds a limit, or holds a value that JSON cannot.
    """
    import yaml

    from podium.files.yaml_loader import LimitError, Loader

    text = _decode(content, MAX_YAML, name)
    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise InvalidInput(
            f"{name} has more than {_MAX_DIRECTIVES} lines that begin with %",
            "remove the directives",
        )
    try:
        loader = Loader(text, MAX_YAML, own=own, kubectl=kubectl)
        documents = []
        while loader.check_data():
            documents.append(loader.get_data())
        return [json.loads(json.dumps(document)) for document in documents if document is not None]
    except LimitError as error:
        raise InvalidInput(
            f"{name} {error}", "split the file, or write it without aliases"
        ) from None
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        hint = None
        if _TEMPLATE.search(text):
            hint = (
                "it is a template of Helm's: helm template CHART writes the YAML that it stands for"
            )
        raise InvalidInput(f"{name} is not readable as YAML{where}: {problem}", hint) from None


def read_json(path: Path) -> Any:
    """Parse the JSON document in a file, see load_json.

    Raises:
        InvalidInput: It is not JSON or exceeds a limit.
        OSError: It cannot be read.
    """
    return load_json(read_text(path, MAX_JSON), str(path))


def load_json(
    content: bytes | bytearray | str,
    name: str,
    *,
    nan: bool = True,
    twice: bool = False,
    limit: int = MAX_JSON,
) -> Any:
    """Parse a JSON document.

    Args:
        content: The text, or its bytes in UTF-8.
        name: Name of the file or object, for errors.
        nan: Whether NaN and Infinity are accepted.
        twice: Whether a key may stand twice in an object: the last value counts, as in Go's.
        limit: Maximum size in bytes.

    Raises:
        InvalidInput: It is not JSON, exceeds a limit, or has a string that UTF-8 cannot encode, a
            number that no float holds, or a key twice in one object.
    """
    text = _decode(content, limit, name)
    try:
        constant, pairs = None if nan else _refuse_constant, None if twice else unique
        value = json.loads(
            text, parse_float=_finite, parse_constant=constant, object_pairs_hook=pairs
        )
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep(name) from None
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{name} is not readable as JSON: it has half of a surrogate pair"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"{name} is not readable as JSON: {error}") from None
    _check_depth(value, name)
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object's pairs.

    Raises:
        ValueError: A key stands there twice; one of its values would be lost.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]!r} stands there twice")
    return value


def parse(kind: type[T], value: Any, name: str, field: str = "") -> T:
    """Convert a value to a dataclass, a plain type, a time, or a ``list``, ``dict``, ``tuple`` or
    union of these.

    Whole numbers become floats where the type says so, and text a path or a time (UTC); nothing
    else is converted. Unknown members are ignored.

    Args:
        value: Result of load_json or load_yaml.
        name: Name of the file, for errors.
        field: Path of the value in the file, if it is a member of the document.

    Raises:
        InvalidInput: The value has another type; the message names the file and the field.
    """
    return cast(T, _parse(kind, value, name, field))


def _parse(kind: Any, value: Any, name: str, field: str) -> Any:
    if _fits(kind, [value]):
        return value
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):  # the type the value has, else the first
        return _parse(type(value) if type(value) in args else args[0], value, name, field)
    if is_dataclass(kind):
        return _parse_dataclass(kind, value, name, field)
    if origin in (list, tuple):
        items = _expect(list, value, name, field)
        if _fits(args[0], items):
            return origin(items)
        return origin(
            _parse(args[0], item, name, f"{field}[{at}]") for at, item in enumerate(items)
        )
    if origin in (dict, Mapping):
        members = _expect(dict, value, name, field)
        return {
            key: _parse(args[1], item, name, _join(field, key)) for key, item in members.items()
        }
    if kind is datetime:
        return _parse_time(value, name, field)
    if kind is Path:
        return Path(_expect(str, value, name, field))
    if kind is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    return _expect(kind, value, name, field)


def _fits(kind: Any, values: list[Any]) -> bool:
    """Return whether nothing is to be converted or refused: most of a large document is so."""
    if kind is float:
        return {float}.issuperset(map(type, values)) and all(map(math.isfinite, values))
    return kind in (str, int, bool) and {kind}.issuperset(map(type, values))


def _parse_dataclass(kind: Any, value: Any, name: str, field: str) -> Any:
    entries = _expect(dict, value, name, field)
    members: dict[str, Any] = {}
    for member, hint in _members(kind):
        if member.name in entries:
            members[member.name] = _parse(
                hint, entries[member.name], name, _join(field, member.name)
            )
        elif member.default is MISSING and member.default_factory is MISSING:
            raise InvalidInput(
                f"{name} has no {_join(field, member.name)}", "was it written by another program?"
            )
    try:
        return kind(**members)
    except InvalidInput as error:  # of a rule of the dataclass, which does not know the file
        raise InvalidInput(f"{name}: {error.message}", error.hint) from None


@cache
def _members(kind: Any) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(kind)
    return [(member, hints[member.name]) for member in fields(kind) if member.init]


def _parse_time(value: Any, name: str, field: str) -> datetime:
    with suppress(TypeError, ValueError, OverflowError):
        time = datetime.fromisoformat(value)
        if time.tzinfo:
            return time.astimezone(UTC)
    raise _wrong(value, name, field, "a time with time zone")


TYPE_NAMES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _expect(kind: Any, value: Any, name: str, field: str) -> Any:
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise _wrong(value, name, field, TYPE_NAMES[kind])
    return value


def _wrong(value: Any, name: str, field: str, wanted: str) -> InvalidInput:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    hint = (
        'a text such as "no" stands in quotes'
        if wanted == TYPE_NAMES[str] and isinstance(value, bool)
        else None
    )
    return InvalidInput(f"{name}: {field or 'the document'} must be {wanted}, but is {shown}", hint)


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _decode(content: bytes | bytearray | str, limit: int, name: str) -> str:
    if len(content) > limit:
        raise InvalidInput(
            f"{name} is larger than {limit:,} bytes", "split it, or check the file name"
        )
    try:
        if not isinstance(content, str):
            return content.decode("utf-8-sig")  # editors on Windows write a mark first
        content.encode()  # text of the command line may hold surrogates
    except UnicodeError as error:
        raise InvalidInput(f"{name} is not readable as UTF-8: {error}") from None
    return content


def _finite(text: str) -> float:
    """Return a number; 1e400 is none, though Python takes it for Infinity."""
    if math.isinf(value := float(text)):
        raise ValueError(f"{text:.20} is larger than any number of 64 bits")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


def _check_depth(value: Any, name: str) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_JSON_DEPTH):
        containers = [node.values() if isinstance(node, dict) else node for node in level]
        level = [
            child
            for container in containers
            for child in container
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep(name)


def _too_deep(name: str) -> InvalidInput:
    return InvalidInput(f"{name} is nested more than {MAX_JSON_DEPTH} levels deep", "store it flat")


def with_whole_numbers(value: Any) -> Any:
    """Return a JSON value in which every whole float is an int.

    Kubeflow Pipelines passes 32 on as 32 (observed), while a compiled pipeline holds 32.0, for
    protobuf's Struct knows doubles alone. From 1e21 on Go's JSON has an exponent, and such a number
    stays a float.
    """
    if isinstance(value, dict):
        return {key: with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_whole_numbers(item) for item in value]
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21
        else value
    )
