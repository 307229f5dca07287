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


_FORM: ContextVar[Mapping[str, Any] | str] = ContextVar("_FORM", default="words")
"""How `written` writes options: as ``words``, as ``flags``, or of a pipeline."""


@contextmanager
def options_as(form: Mapping[str, Any] | str) -> Iterator[None]:
    """Choose how `written` writes options.

    Args:
        form: The data_options that a pipeline was given; or ``flags``, as `podium predict` takes
            them. Else options are words, as `podium data prepare` takes them.
    """
    token = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(token)


def in_pipeline() -> bool:
    """Whether what is said is read by somebody who gives parameters of a pipeline, not flags."""
    return not isinstance(_FORM.get(), str)


def changed(option: str, value: Any) -> dict[str, Any]:
    """Return a pipeline's ``data_options`` with an option changed, or one more name in an option
    that lists names."""
    form = _FORM.get()
    options = {} if isinstance(form, str) else form
    more = [*as_list(option, options.get(option, [])), value] if option in _LISTS else value
    return {"data_options": {**options, option: more}}


def typed(hint: str, name: str, new: str, part: str = "") -> str:
    """Return a hint whose words FILE, NEW and PART are paths as they are typed in a shell; those of
    a remote file are of a copy in the working directory, and those of a .gz file of what is in it.

    Args:
        name: Path or URI.
        new: That of the file to be made.
        part: Name of a file in a directory.
    """
    if "://" in name:
        hint = f"in a copy of it here: {hint}"
        name, new = (path.rpartition("/")[2] for path in (name, new))
    if name.lower().endswith(".gz"):
        hint, name, new = f"once gunzip has unpacked it: {hint}", name[:-3], new.removesuffix(".gz")
    paths = {"FILE": name, "NEW": new, "PART": part}
    return re.sub("FILE|NEW|PART", lambda word: shlex.quote(paths[word[0]]), hint)


def written(option: str, value: Any) -> str:
    """Return an option as it is typed in a shell: ``drop=[id]``, or of a pipeline
    ``data_options='{"drop": ["id"]}'``.

    Args:
        value: Its value; of an option that lists names, one more name.
    """
    if _FORM.get() == "flags":
        return f"--{option} {shlex.quote(str(value))}"
    if in_pipeline():
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
