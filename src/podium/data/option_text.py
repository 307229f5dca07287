"""An option of a data source as people write it: in a shell, or in a pipeline's
``data_options``."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from podium.errors import InvalidInput
from podium.files.documents import load_yaml

_PLAIN = r"(?!(?i:y|n|yes|no|on|off|true|false|null)$)[A-Za-z_][\w-]*"
"""A text that YAML and a shell take as it is."""

_LISTS = ("drop", "categories", "numbers", "missing_values", "split_by")


def as_list(name: str, value: Any) -> Any:
    """Return the value of an option, that of one that lists names as a list."""
    return [value] if isinstance(value, str) and name in _LISTS else value


_PARAMETERS: ContextVar[Mapping[str, Any] | None] = ContextVar("_PARAMETERS", default=None)
"""The data_options that a pipeline was given, while it reads its data; None for `podium data
prepare`."""


@contextmanager
def of_pipeline(given: Mapping[str, Any]) -> Iterator[None]:
    """Let `written` write options as a pipeline takes them, together with those that it was
    given."""
    token = _PARAMETERS.set(given)
    try:
        yield
    finally:
        _PARAMETERS.reset(token)


_AS_FLAGS: ContextVar[bool] = ContextVar("as_flags", default=False)


@contextmanager
def as_flags() -> Iterator[None]:
    """Let `written` write options as flags, as `podium predict` takes them."""
    token = _AS_FLAGS.set(True)
    try:
        yield
    finally:
        _AS_FLAGS.reset(token)


def in_pipeline() -> bool:
    """Whether what is said is read by somebody who gives parameters of a pipeline, not flags."""
    return _PARAMETERS.get() is not None


def changed(option: str, value: Any) -> dict[str, Any]:
    """Return a pipeline's ``data_options`` with an option changed, or one more name in an option
    that lists names."""
    given = _PARAMETERS.get() or {}
    more = [*as_list(option, given.get(option, [])), value] if option in _LISTS else value
    return {"data_options": {**given, option: more}}


def written(option: str, value: Any) -> str:
    """Return an option as it is typed in a shell: ``drop=[id]``, or of a pipeline
    ``data_options='{"drop": ["id"]}'``.

    Args:
        value: Its value; of an option that lists names, one more name.
    """
    if _AS_FLAGS.get():
        return f"--{option} {shlex.quote(str(value))}"
    if _PARAMETERS.get() is not None:
        return f"data_options={shlex.quote(json.dumps(changed(option, value)['data_options'], ensure_ascii=False))}"
    value = [value] if option in _LISTS else value
    text = value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
    if option in _LISTS and re.fullmatch(_PLAIN, value[0], re.ASCII):
        return f"{option}=[{value[0]}]"
    return (
        f"{option}={text}" if re.fullmatch(r"[\w.\\-]*", text) else shlex.quote(f"{option}={text}")
    )


def _is_plain(value: Any) -> bool:
    """Return whether YAML reads a text as itself, not as a number, a date, or a comment."""
    with suppress(InvalidInput):
        return isinstance(value, str) and load_yaml(value, "an option") == [value]
    return False
