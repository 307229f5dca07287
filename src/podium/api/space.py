"""Search spaces as Python writes them: ``{"lr": (1e-4, 1e-1), "batch_size": [32, 64], "layers":
range(1, 5)}``."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from podium.errors import InvalidInput, require
from podium.system.arguments import plain, require_types

_DECADES = 100
"""A range of positive floats whose ends differ by this factor or more is searched on a log
scale."""

Value = str | int | float | bool | None
"""Type of a choice or a fixed argument."""


def _keep_plain(of: "Float | Int") -> None:
    """Refuse ends and steps that are no finite numbers, and keep those of numpy as Python's own.

    Raises:
        InvalidInput: One is text, a boolean or infinite.
    """
    kinds = {each.name: each.type for each in fields(of)}
    values = require_types(f"podium.{type(of).__name__}", kinds, vars(of))
    for name in ("low", "high", "step"):
        value = values[name]
        if value in (math.inf, -math.inf):
            hint = "podium.Int(1, 8), or podium.Float(1e-4, 1e-1)"
            raise InvalidInput(f"{name} of a range is a finite number, but got {value!r}", hint)
        object.__setattr__(of, name, value)


@dataclass(frozen=True)
class Float:
    """A range of floats.

    Args:
        low: Smallest value.
        high: Largest value, itself possible.
        log: Whether to search on a log scale; None: where the range spans two decades or more.
        step: Distance between neighboring values; None for any value.
    """

    low: float
    high: float
    log: bool | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        _keep_plain(self)
        require(self.low < self.high, "low < high", low=self.low, high=self.high)
        require(
            not self.log or self.low > 0,
            "low > 0 on a log scale",
            "there is no logarithm of 0",
            low=self.low,
        )
        require(self.step is None or self.step > 0, "step > 0", step=self.step)

    @property
    def is_log(self) -> bool:
        """Whether it is searched on a log scale."""
        if self.log is None:
            return self.step is None and self.low > 0 and self.high / self.low >= _DECADES
        return self.log

    def feasible(self) -> tuple[str, dict[str, Any]]:
        """Return parameterType and feasibleSpace."""
        return "double", {
            "min": repr(float(self.low)),
            "max": repr(float(self.high)),
            **({"step": repr(float(self.step))} if self.step else {}),
            **({"distribution": "logUniform"} if self.is_log else {}),
        }

    def __str__(self) -> str:
        scale = (
            " on a log scale" if self.is_log else f" in steps of {self.step:g}" if self.step else ""
        )
        return f"{self.low:g} to {self.high:g}{scale}"


@dataclass(frozen=True)
class Int:
    """A range of whole numbers.

    Args:
        low: Smallest value.
        high: Largest value, itself possible.
        step: Distance between neighboring values.
        log: Whether to search on a log scale.
    """

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        _keep_plain(self)
        require(self.low <= self.high, "low <= high", low=self.low, high=self.high)
        require(self.step >= 1, "step >= 1", step=self.step)
        require(
            not self.log or self.low > 0,
            "low > 0 on a log scale",
            "there is no logarithm of 0",
            low=self.low,
        )

    def feasible(self) -> tuple[str, dict[str, Any]]:
        """Return parameterType and feasibleSpace."""
        space = {"min": str(self.low), "max": str(self.high)} | (
            {"step": str(self.step)} if self.step > 1 else {}
        )
        return "int", space | ({"distribution": "logUniform"} if self.log else {})

    def __str__(self) -> str:
        if self.high - self.low == self.step == 1:
            return f"{self.low} or {self.high}, as whole numbers ({self.low}.0 to {self.high}.0 has all between)"
        scale = (
            " on a log scale" if self.log else f" in steps of {self.step}" if self.step > 1 else ""
        )
        return f"{self.low} to {self.high}{scale}"


@dataclass(frozen=True)
class Choice:
    """A list of values: words, numbers, booleans, None.

    Args:
        values: The values, each once. Numbers keep their order for the search, others have none.
    """

    values: Sequence[Value]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            problem = f"a choice is a list of values, but got {self.values!r:.60}"
            raise InvalidInput(problem, "write [32, 64, 128], for example")
        object.__setattr__(self, "values", [plain(value) for value in self.values])
        if not self.values:
            raise InvalidInput("a choice without values", "write [32, 64, 128], for example")
        for value in self.values:
            if not isinstance(value, Value) or (isinstance(value, float) and math.isnan(value)):
                problem = f"a choice is a word, a number, a boolean or None, but got {value!r:.60}"
                raise InvalidInput(problem, "give it a name, and look that up in the function")
        texts = self.texts
        if unfit := [text for text in texts if json.dumps(text, ensure_ascii=False) != f'"{text}"']:
            problem = (
                f"{unfit[0]!r:.60} cannot be a choice: values are put into JSON text as they are"
            )
            raise InvalidInput(
                problem, "leave out double quotes, backslashes and line breaks, or give it a name"
            )
        if len(set(texts)) != len(texts):
            raise InvalidInput(
                f"a choice has a value twice: {list(self.values)}", "leave out the second"
            )

    @property
    def texts(self) -> list[str]:
        """The values as a trial is given them."""
        return [str(value) for value in self.values]

    def feasible(self) -> tuple[str, dict[str, Any]]:
        """Return parameterType and feasibleSpace."""
        numbers = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in self.values
        )
        return "discrete" if numbers else "categorical", {"list": self.texts}

    def __str__(self) -> str:
        return ", ".join(self.texts)


_SWITCH = re.compile(r"([\w.-]+)/(--[\w.-]+)?")


@dataclass(frozen=True, kw_only=True)
class Switch(Choice):
    """A flag without a value: ``--augment`` or ``--no-augment``, ``--amp`` or nothing."""

    values: Sequence[Value] = (True, False)
    on: str
    off: str = ""

    @classmethod
    def named(cls, text: str) -> tuple[str, Self] | None:
        """Read ``augment/--no-augment``, or ``amp/`` for a flag that is there or not.

        Returns:
            The parameter's name and the flag; None for the name of another parameter, also of one
            with a slash such as Hydra's ``dataset/kind``.
        """
        match = _SWITCH.fullmatch(text)
        return match and (match[1], cls(on=f"--{match[1]}", off=match[2] or ""))

    def word(self, value: str) -> str:
        """Return the flag for ``True`` or ``False``; for a placeholder a shell's expression."""
        if value in self.texts:
            return self.on if value == "True" else self.off
        otherwise = f" || echo {self.off}" if self.off else ""
        return f"$(test {value} = True && echo {self.on}{otherwise})"


Dimension = Float | Int | Choice


def dimension(name: str, value: Any) -> Dimension | None:
    """Return the dimension to search for a name; None for a single value, which is fixed.

    Args:
        value: Float, Int or Choice; a tuple of two numbers, a range, a list or an array; or a
            value.

    Raises:
        InvalidInput: It is something else.
    """
    if hasattr(value, "tolist"):  # an array or a number of numpy
        value = value.tolist()
    if isinstance(value, tuple):
        value = tuple(map(plain, value))
    if isinstance(value, Dimension):
        return value
    if isinstance(value, range):
        if not value or value.step < 0:
            raise InvalidInput(
                f"{name} cannot be {value}, which does not rise", "write range(1, 5), for example"
            )
        return Int(value.start, value[-1], value.step)
    if isinstance(value, list | set | frozenset):
        return Choice(sorted(value, key=str) if isinstance(value, set | frozenset) else value)
    if isinstance(value, tuple):
        if len(value) != 2 or not all(
            isinstance(end, int | float) and not isinstance(end, bool) for end in value
        ):
            hint = "a range is (low, high); write a list for choices"
            raise InvalidInput(
                f"{name} is searched between two numbers, but got {value!r:.60}", hint
            )
        try:
            return Int(*value) if all(isinstance(end, int) for end in value) else Float(*value)
        except InvalidInput as error:
            raise InvalidInput(
                f"{name}: {error.message}", error.hint or "a range is (low, high)"
            ) from None
    if isinstance(value, Value):
        return None
    hint = '{"lr": (1e-4, 1e-1), "batch_size": [32, 64], "layers": range(1, 5)}'
    if isinstance(value, Mapping) and value:
        inner = next(iter(value))
        hint = (
            f'"{name}_{inner}" as a name of its own, put together in the function; '
            f'"{name}.{inner}" for a script\'s flag or Hydra'
        )
    raise InvalidInput(f"{name} is neither a range nor a list of choices, but {value!r:.60}", hint)


def split(space: Mapping[str, Any]) -> tuple[dict[str, Dimension], dict[str, Value]]:
    """Split a space into searched dimensions and fixed values.

    Raises:
        InvalidInput: Nothing is searched, or a part of the space is neither.
    """
    hint = '{"lr": (1e-4, 1e-1), "batch_size": [32, 64], "layers": range(1, 5)}'
    for name, value in space.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a parameter is named by a word, but got {name!r:.60}", hint)
        if Switch.named(name) and value not in (None, "", [True, False]):
            problem = f"{name} is a flag without a value, but {value!r:.60} is given"
            raise InvalidInput(problem, f'{{"{name}": None}}')
    space = dict(Switch.named(name) or (name, value) for name, value in space.items())
    searched = {name: dim for name, value in space.items() if (dim := dimension(name, value))}
    if not searched:
        raise InvalidInput(f"there is nothing to search in {dict(space)!r:.80}", hint)
    fixed = {name: value for name, value in space.items() if name not in searched}
    return searched, {name: plain(value) for name, value in fixed.items()}


def parameter(name: str, searched: Dimension) -> dict[str, Any]:
    """Return an entry of ``spec.parameters``."""
    kind, feasible = searched.feasible()
    return {"name": name, "parameterType": kind, "feasibleSpace": feasible}


_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_PLAIN = re.compile(rf"(?![+-]?0\d){_NUMBER}", re.ASCII)
"""A number that is none of the names made of digits: 007, or 2024_01."""
_RANGE = re.compile(rf"(?:(log|linear):)?({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?")


def from_text(name: str, text: str) -> Any:
    """Parse a word of a command line: ``1e-4..1e-1``, ``1..8:2``, ``log:1..64``, ``32,64,128`` or a
    value.

    Args:
        text: Whole numbers stay whole; the ends of a range decide whether it is one of floats. A
            single value that a number would be written otherwise than, such as 1.10, stays text,
            and so does 007; what is searched in a list are numbers: 1.10,1.2 are 1.1 and 1.2.

    Raises:
        InvalidInput: It looks like a range and is none.
    """
    if match := _RANGE.fullmatch(text):
        scale, *numbers = match.groups()
        low, high, step = (None if number is None else read_value(number) for number in numbers)
        try:
            if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
                return Int(low, high, step or 1, log=scale == "log")
            log_scale = None if scale is None else scale == "log"
            return Float(float(low or 0), float(high or 0), log_scale, step)
        except InvalidInput as error:
            raise InvalidInput(f"--{name} {text}: {error.message}", error.hint) from None
    if ".." in text and "/" not in text:
        other, _, rest = text.rpartition("=")
        if other and _RANGE.fullmatch(rest):
            problem = f"--{name} {text}: a parameter is an option of its own name"
            raise InvalidInput(problem, f"--{other} {rest}")
        raise InvalidInput(
            f"--{name} {text} is neither a range nor a list",
            f"--{name} 1e-4..1e-1, or --{name} 32,64,128",
        )
    if len(parts := _parts(text)) > 1:
        return Choice([_number(part) for part in parts])
    value = _number(text)
    return value if str(value) == text else text


def _parts(text: str) -> list[str]:
    """Divide a text at its commas; one inside of brackets belongs to a value, such as [64,64]."""
    parts, depth = [""], 0
    for character in text:
        depth = max(0, depth + (character in "([{") - (character in ")]}"))
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _number(text: str) -> Any:
    return read_value(text) if _PLAIN.fullmatch(text) else text


def read_value(text: str) -> Any:
    """Return the number that a text is; other text stays, and empty text is None."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


_WORDS = {"True": True, "False": False, "None": None}


def argument_of(text: str, kind: str) -> Any:
    """Return the argument that a trial's text stands for, so that ``train(**best.parameters)`` is
    the best trial: a number, True, False or None; 007 and other words of a choice stay.

    Args:
        kind: parameterType.
    """
    if kind != "categorical" or not text:
        return read_value(text)
    return _WORDS[text] if text in _WORDS else _number(text)
