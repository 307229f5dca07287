"""``python -m podium.code.call FILE --name=value…``: call a function with a trial's values.

FILE is JSON, as Call writes it. What the function returns, a number or a mapping of metrics, is
printed as a metric line; a function that prints its own lines returns nothing.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput, PodiumError
from podium.files.documents import parse, read_json
from podium.metrics import metric_line


@dataclass(frozen=True, kw_only=True)
class Call:
    """A function, and how the words of a command line become its arguments."""

    module: str
    function: str

    path: list[str] = field(default_factory=list)
    """Directories from which its modules are imported, before all others."""

    kinds: dict[str, str] = field(default_factory=dict)
    """``float``, ``int`` or ``choice`` by parameter."""

    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Value by text, of each parameter of the kind ``choice``."""

    fixed: dict[str, Any] = field(default_factory=dict)
    """Arguments that are the same in all trials."""

    environment: dict[str, str] = field(default_factory=dict)
    """Variable by argument: arguments that come from the environment."""

    metric: str = ""
    """Name of the metric if the function returns a number."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def read(cls, file: Path) -> "Call":
        return parse(cls, read_json(file), str(file))

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments for the words ``--name=value``.

        Raises:
            InvalidInput: A word is not of this form, or names no parameter.
        """
        values = dict(self.fixed)
        for word in words:
            name, equals, text = word.removeprefix("--").partition("=")
            if not equals or name not in self.kinds:
                raise InvalidInput(
                    f"{word!r} is not --name=value of {self.function}",
                    f"it takes {list(self.kinds)}",
                )
            values[name.replace("-", "_")] = self._value(name, text)
        return values | {
            name: os.environ.get(variable, "") for name, variable in self.environment.items()
        }

    def _value(self, name: str, text: str) -> Any:
        kind = self.kinds[name]
        if kind == "choice":
            return self.choices[name][text]
        return float(text) if kind == "float" else int(text)


def _metrics_of(result: Any, name: str) -> dict[str, float]:
    """Return the metrics in a function's return value.

    Args:
        result: A number, or numbers by name; whatever float() takes, so arrays and tensors of one
            number too.
        name: The metric's, if it is a number.

    Raises:
        InvalidInput: It is something else.
    """
    named = result if isinstance(result, Mapping) else {name: result}
    metrics: dict[str, float] = {}
    for key, value in named.items():
        try:
            metrics[str(key)] = float(value)
        except (TypeError, ValueError):
            problem = f"the function returned {key}={value!r:.60}, which is not a number"
            raise InvalidInput(problem, 'return {"accuracy": 0.98}') from None
    return metrics


def main(words: Sequence[str]) -> int:
    try:
        call = Call.read(Path(words[0]))
        arguments = call.arguments(words[1:])
        places = [str(Path(words[0]).absolute().parent), *call.path]
        if sys.path[: len(places)] != places:
            sys.path[:0] = places
        result = getattr(import_module(call.module), call.function)(**arguments)
        if result is not None:
            print(metric_line(_metrics_of(result, call.metric)), flush=True)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
