"""Ways in which a program takes its parameters: flags, Hydra's or papermill's words, variables, a
file, or places in its command."""

import ast
import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from podium.api.space import Choice, Dimension, Float, Switch, Value, read_value
from podium.errors import InvalidInput, PodiumError, suggestion
from podium.files.documents import load_yaml, read_json
from podium.manifests.fields import mapping, objects

WAYS = ("flags", "hydra", "papermill", "env", "config")

TEXT = "PODIUM_CONFIG"
"""Variable with the text of a trial's configuration file."""

MAX_FILE = 100_000
"""Largest configuration file in bytes: Linux takes variables of less than 128 KiB."""

_PLACE = re.compile(r"\$\{([^{}]+)\}")
_SWITCHED = re.compile(r"\$\(test (\w+) = True && echo (\S+?)(?: \|\| echo (\S+?))?\)")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_READERS: dict[str, Callable[[str], Any]] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": lambda text: load_yaml(text.encode(), "it"),
    ".yml": lambda text: load_yaml(text.encode(), "it"),
}


@dataclass(frozen=True, kw_only=True)
class Passing:
    """The way in which a program takes its parameters."""

    way: str = "flags"
    file: str = ""
    """Configuration file as the command names it; empty unless the way is config."""

    text: str = ""
    """Its text, with ``${NAME}`` in the place of a parameter."""

    switches: Mapping[str, Switch] = field(default_factory=dict)
    """The flags without a value, by name."""

    options: Mapping[str, str] = field(default_factory=dict)
    """How papermill takes a parameter where it is not -p: -r, as text, or -y, as YAML."""

    @classmethod
    def read(
        cls,
        text: str,
        command: Sequence[str],
        searched: Mapping[str, Dimension],
        fixed: Mapping[str, Value],
    ) -> Self:
        """Read ``hydra`` or ``config:FILE`` for a command and its parameters.

        Args:
            text: One of WAYS; config with its file behind a colon. Empty: flags, or papermill for a
                notebook.
            fixed: Parameters that are the same in all trials.

        Raises:
            InvalidInput: There is no such way or file, or a parameter would not arrive.
        """
        way, _, file = text.partition(":")
        way = way or ("papermill" if "papermill" in command[:1] else "flags")
        listed = f"{', '.join(WAYS[:-1])} or config:FILE"
        if way not in WAYS or bool(file) != (way == "config"):
            hint = "config:config.yaml" if way == "config" else suggestion(way, WAYS)
            raise InvalidInput(f"parameters are passed as {listed}, not {text!r:.60}", hint)
        switches = {name: found for name, found in searched.items() if isinstance(found, Switch)}
        if switches and way != "flags":
            problem = f"{next(iter(switches))} is a flag without a value, but parameters are passed as {way}"
            raise InvalidInput(problem, "true,false are its values where it has some")
        passing = cls(way=way, file=file, switches=switches)
        left = passing._left(command, [*searched, *fixed])
        if way == "env" and (
            unfit := [name for name in left if not _VARIABLE.fullmatch(_variable(name))]
        ):
            raise InvalidInput(f"a variable cannot be named {unfit[0]}", "letters, digits and _")
        if way == "papermill":
            _check_notebook(command, left)
            options = _papermill_options(command, {**searched, **fixed})
            passing = replace(passing, options=options)
        return passing._with_file(command, searched, fixed, left) if file else passing

    def _with_file(
        self,
        command: Sequence[str],
        searched: Mapping[str, Dimension],
        fixed: Mapping[str, Value],
        left: Sequence[str],
    ) -> Self:
        """Read the file, in which each of the parameters that are left has its place."""
        path = Path(self.file)
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            problem = "is no file" if not path.is_file() else f"is larger than {MAX_FILE:,} bytes"
            raise InvalidInput(f"{self.file} {problem}", f"a file with {_place('lr')} in it")
        if not any(_names(word, self.file) for word in command):
            hint = f"for example -- {shlex.join(command)} --config {self.file}"
            raise InvalidInput(f"the command does not name {self.file}, which it reads", hint)
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{self.file} is no text in UTF-8: {error.reason}") from None
        named = set(_PLACE.findall(text))
        if missing := [name for name in left if name not in named]:
            problem = f"{self.file} has no place for {missing[0]}"
            raise InvalidInput(problem, f"write {_place(missing[0])} where its value belongs")
        if path.suffix in (".yaml", ".yml"):
            parameters = {**searched, **fixed}
            text = _tagged(text, [name for name, found in parameters.items() if _is_float(found)])
        samples = {name: _sample(found) for name, found in searched.items()}
        filled = _filled(text, samples | {name: str(value) for name, value in fixed.items()})
        try:
            _READERS.get(path.suffix, str)(filled)
        except (ValueError, PodiumError) as error:
            problem = f"{self.file} cannot be read with its first values: {error}"
            raise InvalidInput(
                " ".join(problem.split()), 'text stands in quotes: "${NAME}"'
            ) from None
        return type(self)(way=self.way, file=self.file, text=text)

    @property
    def takes_data(self) -> bool:
        """Whether the dataset is a parameter like others; else PODIUM_DATA alone names it."""
        return self.way in ("flags", "hydra", "papermill")

    def words(self, command: Sequence[str], values: Mapping[str, str]) -> list[str]:
        """Return a command with its parameters.

        Args:
            values: Values as text, by name, or what stands for them.
        """
        left = {name: values[name] for name in self._left(command, list(values))}
        words = [_filled(word, values) for word in command]
        if self.way == "flags":
            flags = [
                self.switches[name].word(value) if name in self.switches else f"--{name}={value}"
                for name, value in left.items()
            ]
            return [*words, *filter(None, flags)]
        if self.way == "hydra":
            return [*words, *(f"{name}={value}" for name, value in left.items())]
        if self.way == "papermill":
            for name, value in left.items():
                option = self.options.get(name, "-p")
                words += [option, *([f"{name}: {value}"] if option == "-y" else [name, value])]
            return words
        if self.way == "env":
            return [*(f"{_variable(name)}={value}" for name, value in left.items()), *words]
        return words

    def variables(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the variable that holds the text of the configuration file, if there is one."""
        kept = re.sub(r"\$(?=[$(])", "$$", self.text)  # else Kubernetes would read $(NAME) and $$
        return {TEXT: _filled(kept, values)} if self.file else {}

    @property
    def needs_shell(self) -> bool:
        """Whether the words are ones for a shell."""
        return self.way in ("env", "config")

    def script(self, words: Sequence[str]) -> str:
        """Return a shell's script that runs words, with the configuration file written first.

        Args:
            words: Words, quoted where they have to be.
        """
        if not self.file:
            return " ".join(words)
        target = f'"$d"/{shlex.quote(Path(self.file).name)}'
        named = [
            f"{word.removesuffix(self.file)}{target}" if _names(word, self.file) else word
            for word in words
        ]
        made = f'd=$(mktemp -d) && trap \'rm -r "$d"\' EXIT && printf %s "${TEXT}" >{target}'
        return f"{made} && {' '.join(named)}"

    def shown(self, command: Sequence[str], values: Mapping[str, str]) -> str:
        """Return a line that says how the program runs with values."""
        line = shlex.join(self.words(command, values))
        if not self.file:
            return line
        written = ", ".join(f"{name}={values[name]}" for name in self._left(command, list(values)))
        return f"{line}, where {self.file} has {written}" if written else line

    def _left(self, command: Sequence[str], names: Sequence[str]) -> list[str]:
        placed = {name for word in command for name in _PLACE.findall(word)}
        return [name for name in names if name not in placed]


def settled(script: str) -> str:
    """Return a trial's script with its flags without a value written out."""
    return _SWITCHED.sub(lambda found: found[2] if found[1] == "True" else found[3] or "", script)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def _place(name: str) -> str:
    return f"${{{name}}}"


def _names(word: str, file: str) -> bool:
    return word == file or word.endswith(f"={file}")


def _variable(name: str) -> str:
    return name.replace("-", "_")


def _sample(searched: Dimension) -> str:
    feasible = searched.feasible()[1]
    return str(feasible["list"][0] if "list" in feasible else feasible["min"])


def _is_float(domain: Dimension | Value) -> bool:
    """Return whether the values are numbers, and floats among them."""
    if isinstance(domain, Choice):
        kind, _ = domain.feasible()
        return kind == "discrete" and any(isinstance(value, float) for value in domain.values)
    value = read_value(domain) if isinstance(domain, str) else domain
    return isinstance(domain, Float) or (isinstance(value, float) and math.isfinite(value))


def _tagged(text: str, names: Sequence[str]) -> str:
    """Mark the floats of a YAML text as such: 1e-05 would be read as text."""
    if not names:
        return text
    place = "|".join(re.escape(_place(name)) for name in names)
    return re.sub(
        rf"(?m)((?:[:,\[]|^\s*-)\s+|\[)({place})(?=\s*(?:[,\]}}#]|$))", r"\1!!float \2", text
    )


_YAML = re.compile(r"[\[{].*|true|false")
"""Texts that papermill's -p hands on as text."""

_ANY_NAME = re.compile(r"%run\b|\bimport\s*\*|\b(?:globals|locals|exec)\(")
"""Code that may use a name which it does not mention."""

_TAGGED = re.compile(r'"tags"\s*:\s*\[[^\]]*"parameters"')


def _papermill_options(
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
    return options | {name: "-r" for name in _text_names(words) if name in texts}


def _text_names(words: Sequence[str]) -> Iterator[str]:
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
    file = _notebook(words)
    cells = objects(mapping(read_json(file)).get("cells")) if file else []
    return [cell for cell in cells if cell.get("cell_type") == "code"]


def _notebook(words: Sequence[str]) -> Path | None:
    files = [Path(word) for word in words if word.endswith(".ipynb")]
    return files[0] if files and files[0].is_file() else None


def _check_notebook(words: Sequence[str], names: Sequence[str]) -> None:
    """Refuse parameters that a notebook never uses, or that it sets itself behind papermill's cell.

    Args:
        words: Command that runs papermill.
        names: Its parameters.

    Raises:
        InvalidInput: There is such a parameter.
    """
    file = _notebook(words)
    if file is None:
        return
    text = "\n".join("".join(cell.get("source") or []) for cell in _code_cells(words))
    tagged = _TAGGED.search(file.read_text("utf-8", errors="replace"))
    mentioned = {*re.findall(r"[A-Za-z_]\w*", text)}
    for name in names:
        word = re.escape(name)
        if name not in mentioned and not _ANY_NAME.search(text):
            problem = f"no cell of {file} mentions {name}"
            raise InvalidInput(problem, suggestion(name, sorted(mentioned)) or "use it in a cell")
        if not tagged and re.search(rf"(?m)^{word}\s*(?::[^=\n]+)?=(?!=|.*\b{word}\b)", text):
            problem = f"{file} sets {name} itself, and no cell has the tag parameters"
            raise InvalidInput(problem, "give that cell the tag parameters, which papermill knows")
