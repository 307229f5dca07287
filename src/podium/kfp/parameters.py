"""Pipeline parameters as a user writes them: ``name=value``, checked against the pipeline's own
signature."""

import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

from podium.errors import InvalidInput, require_known
from podium.files.documents import load_json, with_whole_numbers


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a pipeline."""

    name: str
    type: type
    """int, float, bool, str, dict or list."""

    default: Any
    description: str
    required: bool = False

    def parse(self, text: str) -> Any:
        """Turn the user's text into a value of the parameter's type.

        Raises:
            InvalidInput: The text is not such a value.
        """
        if text == "null" and self.default is None and not self.required:
            return None
        if self.type is str:
            return text
        try:
            value = load_json(text.lower() if self.type is bool else text, "the value", nan=False)
        except InvalidInput:
            value = None  # of no parameter's type
        return self.check(value, text if len(text) <= 80 else f"{text[:80]}…")

    def check(self, value: Any, shown: Any = None) -> Any:
        """Return a value that was not written as text, as in a YAML file; a whole number is a
        number too.

        Args:
            shown: Text for an error; the value itself if None.

        Raises:
            InvalidInput: It is of another type.
        """
        original = value if shown is None else shown
        if not _fits(value):
            value = None
        if self.type is float and type(value) is int:
            value = float(value)
        if type(value) is not self.type:
            quoted = self.type is str and isinstance(original, bool)
            raise InvalidInput(
                f"{self.name} is {_ARTICLES[self.type]}, not {original!r}",
                'a text such as "no" stands in quotes' if quoted else self.description,
            )
        return value


def _fits(value: Any) -> bool:
    # A compiled pipeline holds all numbers as finite doubles.
    if isinstance(value, dict | list):
        return all(map(_fits, value.values() if isinstance(value, dict) else value))
    if isinstance(value, int):
        return abs(value) <= 2**53
    return not isinstance(value, float) or math.isfinite(value)


_ARTICLES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: 'a JSON object such as {"lr": 0.7}',
    list: "a JSON list",
}


_TYPES: dict[str, type] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": bool,
    "STRING": str,
    "STRUCT": dict,
    "LIST": list,
}


class Parameters(list[Parameter]):
    """The parameters of a pipeline, in its order."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """List those of a pipeline function, described by its docstring's ``Args:``."""
        descriptions = _descriptions(inspect.getdoc(function) or "")
        return cls(
            Parameter(
                name=name,
                type=parameter.annotation,
                default=parameter.default,
                description=descriptions.get(name, ""),
            )
            for name, parameter in inspect.signature(function).parameters.items()
        )

    @classmethod
    def within(cls, spec: Mapping[str, Any]) -> Self:
        """List those of a compiled pipeline."""
        definitions = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
        return cls(_parameter(name, definition) for name, definition in definitions.items())

    def require_all(self, values: Mapping[str, Any]) -> None:
        """Refuse values that lack a parameter without a default.

        Raises:
            InvalidInput: Some are missing; the message names them.
        """
        missing = [
            parameter.name
            for parameter in self
            if parameter.required and parameter.name not in values
        ]
        if missing:
            problem = f"the pipeline needs {', '.join(missing)}"
            raise InvalidInput(problem, f"for example {missing[0]}=VALUE")

    def with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter: the given one, else its default."""
        defaults = {
            parameter.name: parameter.default for parameter in self if not parameter.required
        }
        return {**defaults, **values}

    def read(self, words: Iterable[str]) -> dict[str, Any]:
        """Read ``name=value``, ``--name=value`` and ``--name value``; dashes in names are
        underscores.

        Args:
            words: Arguments of the command line.

        Returns:
            The given values by name.

        Raises:
            InvalidInput: A name is unknown (with a suggestion), is given twice, or has no value or
                one of another type.
        """
        table = {parameter.name: parameter for parameter in self}
        values: dict[str, Any] = {}
        for name, text in pairs(words, table):
            require_known([name], table, "there is no parameter")
            if name in values:
                raise InvalidInput(f"{name} is given twice, the second time as {text!r}")
            values[name] = table[name].parse(text)
        return values


def _parameter(name: str, definition: Mapping[str, Any]) -> Parameter:
    kind, default = _TYPES.get(definition["parameterType"], str), definition.get("defaultValue")
    if kind is not float:
        default = with_whole_numbers(default)  # a compiled pipeline writes all numbers as doubles
    required = default is None and not definition.get("isOptional")
    return Parameter(
        name=name,
        type=kind,
        default=default,
        description=definition.get("description", ""),
        required=required,
    )


def pairs(words: Iterable[str], names: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield name and text of each parameter as Parameters.read reads them.

    Args:
        names: Those that there are, for a hint.

    Raises:
        InvalidInput: A word is no parameter, or one without its value.
    """
    words = iter(words)
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            if not word.startswith("--"):
                example = word if word in names else next(iter(names), "NAME")
                raise InvalidInput(
                    f"a parameter is written name=value, but got {word!r}",
                    f"for example {example}=VALUE",
                )
            following = next(words, None)
            if following is None:
                raise InvalidInput(f"{word} has no value", f"{name}=VALUE works too")
            text = following
        yield name.removeprefix("--").replace("-", "_"), text


def word(value: Any) -> str:
    """Write a value as the command line has it: what Parameter.parse reads."""
    if isinstance(value, str):
        return value
    is_json = isinstance(value, bool | int | float | dict | list | None)
    return json.dumps(value) if is_json else str(value)


def written(values: Mapping[str, Any]) -> list[str]:
    """Write values as ``name=value``; None leaves a parameter its default."""
    return [f"{name}={word(value)}" for name, value in values.items() if value is not None]


def _descriptions(doc: str) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    last = ""
    for line in takewhile(
        lambda line: line.startswith("    "), doc.partition("Args:\n")[2].splitlines()
    ):
        name, _, text = line.strip().partition(": ")
        if line.startswith("     "):  # continues the description above
            descriptions[last] += f" {line.strip()}"
        else:
            last, descriptions[name] = name, text
    return descriptions
