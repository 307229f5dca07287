"""Arguments of the Python API, held against the annotations of its functions."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, SupportsFloat, TypeVar, Union, get_args, get_origin

from podium.errors import InvalidInput

T = TypeVar("T", bound=Callable[..., Any])

_WORDS: dict[Any, str] = {
    str: "text",
    bytes: "bytes",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    SupportsFloat: "a number",
    Path: "a path",
    os.PathLike: "a path",
    Mapping: "a dict with names",
    Callable: "a function",
}

_INNER = {"NoneType", "ClusterSpec", "Stored"}
"""Classes that an annotation names beside what people give: no sentence speaks of them."""


def plain(value: Any) -> Any:
    """Return a number of numpy as Python's own; anything else stays."""
    is_one = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    return value.item() if is_one else value


def checked(function: T, path: str = "") -> T:
    """Return a function that refuses arguments of other types than its annotations say; of a class
    the same for its public methods and the properties that can be set.

    What is ``Any``, ``Annotated`` or a name in quotes is not checked, nor are ``**others``. None is
    the default where that is empty, zero or False.

    Args:
        path: Its name for users, ``podium.tune``, whose help is the hint; ``.promote`` of a method,
            which is called by the class of its object.
    """
    if isinstance(function, type):
        for name, member in list(vars(function).items()):
            if isinstance(member, property) and member.fset:
                setattr(function, name, member.setter(checked(member.fset, f".{name}")))
            elif isinstance(member, FunctionType) and not name.startswith("_"):
                setattr(function, name, checked(member, f".{name}"))
        return function
    path = path or f"podium.{function.__name__}"

    @functools.wraps(function)
    def with_check(*args: Any, **named: Any) -> Any:
        try:
            call = _signature(function).bind(*args, **named)
        except TypeError:
            return function(*args, **named)  # which refuses it in Python's own words
        for name, value in call.arguments.items():
            if value is None and not (default := call.signature.parameters[name].default):
                call.arguments[name] = default
        of = type(args[0]) if path.startswith(".") else None
        place = f"{of.__module__}.{of.__qualname__}{path}" if of else path
        call.arguments |= require_types(place, _annotations(function), call.arguments)
        return function(*call.args, **call.kwargs)

    return with_check  # type: ignore[return-value]


def require_types(
    path: str, annotations: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Refuse values of other types than annotations of the same names say; return the values, with
    numbers as Python's own, and whole where they lose nothing by it.

    Args:
        path: Name of the function that takes them, whose help is the hint.

    Raises:
        InvalidInput: "podium.tune takes metrics as text or a list of texts, but got 5".
    """
    taken = {
        name: _number(value, annotations[name]) if name in annotations else value
        for name, value in values.items()
    }
    for name, value in taken.items():
        if name in annotations and not _fits(value, annotations[name]):
            short, words = ".".join(path.split(".")[-2:]), _words(annotations[name])
            got = f"{_unfit(value, annotations[name])!r:.60}"
            problem = f"{short} takes {name} as {words}, but got {got}"
            raise InvalidInput(problem, f"help({path})")
    return taken


_signature = functools.cache(inspect.signature)


@functools.cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, parameter in _signature(function).parameters.items():
        kind = parameter.annotation
        if kind is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        several = parameter.kind is parameter.VAR_POSITIONAL
        found[name] = Sequence[kind] if several else kind  # type: ignore[valid-type]
    return found


def _number(value: Any, kind: Any) -> Any:
    """Return a number as an annotation has it: 3 for 3.0 where that says int, and not float."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if int not in kinds and float not in kinds:
        return value
    number = plain(value)
    whole = float not in kinds and isinstance(number, float) and number.is_integer()
    return int(number) if whole else number


def _fits(value: Any, kind: Any) -> bool:
    kind, origin, inner, value = kind or NoneType, get_origin(kind), get_args(kind), plain(value)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if kind is bool:
        return isinstance(value, int) and value in (0, 1)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, os.PathLike)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(name, inner[0]) and _fits(each, inner[1]) for name, each in value.items()
        )
    if origin in (Sequence, Iterable):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        return not isinstance(value, Sized) or all(_fits(each, inner[0]) for each in value)
    kind = origin or kind
    if kind in (Any, Annotated):
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # a TypeVar, a name in quotes, a Protocol that is for type checkers only
        return True


def _unfit(value: Any, kind: Any) -> Any:
    """Return those members of a value that are at fault, or the whole of it."""
    if isinstance(value, Mapping):
        return {name: each for name, each in value.items() if not _fits({name: each}, kind)}
    wrong = [each for each in value if not _fits([each], kind)] if isinstance(value, list) else ()
    return wrong or value


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        named = [each for each in inner if getattr(each, "__name__", "") not in _INNER]
        *most, last = dict.fromkeys(_words(each) for each in named)
        return f"{', '.join(most)} or {last}" if most else last
    if origin in (Sequence, Iterable):
        return {str: "a list of texts", Path: "a list of paths"}.get(inner[0], "a list")
    if origin is Mapping and inner[1] not in (object, Any):
        return f"a dict with {_words(inner[1])} by name"
    kind = origin or kind
    return _WORDS.get(kind) or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
