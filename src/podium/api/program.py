"""Programs that the trials of ``podium.tune`` run: a Python function, a script or a command."""

import inspect
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from podium.api.function_source import MODULE, FunctionSource
from podium.api.space import Choice, Dimension, Float, Value
from podium.code.call import Call
from podium.code.reference import Code
from podium.errors import InvalidInput
from podium.files.documents import write_file
from podium.manifests.experiment.trainer import OUTPUT

_CALL = "podium_call.json"

_FROM_RUN = {"data": "PODIUM_DATA", "output": "PODIUM_OUTPUT"}
"""Variable that the sweep sets for each of these parameters if the function has it."""

Train = Callable[..., Any] | str | Path | Sequence[object]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A command, and the code that it needs."""

    name: str
    """Base of the Experiment's name."""

    words: tuple[str, ...]
    call: Call | None = None
    """The call of a function; None for a script or a command."""

    text: str = ""
    """Source of a module that is made for the call; empty where the function is imported from where
    it is."""

    root: Path | None = None
    """Directory of the code it imports or is in; None for none."""

    folder: str = ""
    """Working directory on this machine; empty for one of the trial's own with links to this one's
    files."""

    code: Code | None = None
    """The code, stored; None where the command runs as it is."""

    def files(self, path: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the files that are made for it, by name; the command names them without a
        directory.

        Args:
            path: Directories from which a function's modules are imported.
        """
        if self.call is None:
            return {}
        files = {_CALL: replace(self.call, path=list(path)).to_json()}
        return files | ({f"{MODULE}.py": self.text.encode()} if self.text else {})

    def here(self, home: Path) -> "Program":
        """Return the program as it runs on this machine, the files made for it under ``home``."""
        files = self.files([str(self.root)] if self.root else [])
        if not files:
            return self
        digest = sha256(b"\0".join(files.values())).hexdigest()[:16]
        folder = home / "functions" / digest
        for name, content in files.items():
            write_file(folder / name, content)
        words = tuple(str(folder / word) if word in files else word for word in self.words)
        return replace(self, words=words, folder=os.getcwd())

    def packed(self, storage: str) -> "Program":
        """Return the program as it runs anywhere: its code packed and stored.

        Args:
            storage: URL of the storage that keeps the code.

        Raises:
            InvalidInput: The code is too large, or cannot be packed.
        """
        files = self.files()
        if not files and not self.root:
            return self
        from podium.code.bundle import pack

        return replace(self, code=pack(self.root, files).store(storage))

    @classmethod
    def of(
        cls,
        train: Train,
        searched: Mapping[str, Dimension],
        fixed: Mapping[str, Value],
        metric: str,
        *,
        pickle: bool = False,
        has_data: bool = True,
    ) -> "Program":
        """Return the program of each trial.

        Args:
            train: A function, the path of a script, or a command.
            fixed: Other arguments, the same in all trials.
            metric: Name of the metric if a function returns a single number.
            pickle: Whether a function is handed on as cloudpickle writes it, not as source.
            has_data: Whether the sweep has data; without, a parameter ``data`` is one like any
                other.

        Raises:
            InvalidInput: There is no such script, or the function does not take these parameters.
        """
        if callable(train):
            return _function(
                train,
                FunctionSource.pickled(train) if pickle else FunctionSource.of(train),
                searched,
                fixed,
                metric,
                has_data=has_data,
            )
        words = (
            script_words(Path(train))
            if isinstance(train, str | Path)
            else [str(word) for word in train]
        )
        if not words:
            raise InvalidInput("the command has no words", '["python", "train.py"]')
        return cls(
            name=_name_of(words),
            words=tuple(words),
            root=_root_of(words),
        )


def _function(
    train: Callable[..., Any],
    source: FunctionSource,
    searched: Mapping[str, Dimension],
    fixed: Mapping[str, Value],
    metric: str,
    *,
    has_data: bool,
) -> Program:
    names = {name.replace("-", "_") for name in (*searched, *fixed)}
    try:
        takes = inspect.signature(train).parameters
    except ValueError:  # one of C does not say it
        hint = f"call it in a function: def train({', '.join(sorted(names))}): …"
        raise InvalidInput(f"nobody can say which arguments {train!r:.60} takes", hint) from None
    passed = {
        name: variable
        for name, variable in _FROM_RUN.items()
        if name in takes and name not in names and (has_data or name != "data")
    }
    _check_signature(train, [*names, *passed])
    if len(source.roots) > 1:
        hint = "keep the modules it imports in one directory"
        listed = ", ".join(map(str, source.roots))
        raise InvalidInput(
            f"{source.function} imports modules of its own from {len(source.roots)}: {listed}", hint
        )
    call = Call(
        module=source.module,
        function=source.function,
        metric=metric,
        kinds={name: _kind(dimension) for name, dimension in searched.items()},
        choices={
            name: dict(zip(dimension.texts, dimension.values, strict=True))
            for name, dimension in searched.items()
            if isinstance(dimension, Choice)
        },
        fixed={name.replace("-", "_"): value for name, value in fixed.items()},
        environment=passed,
    )
    root = source.roots[0] if source.roots else None
    return Program(
        name=source.function,
        words=("python", "-m", "podium.code.call", _CALL),
        call=call,
        text=source.text,
        root=root,
    )


def _kind(dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return "choice"
    return "float" if isinstance(dimension, Float) else "int"


def _check_signature(train: Callable[..., Any], names: Sequence[str]) -> None:
    try:
        inspect.signature(train).bind(**dict.fromkeys(names))
    except TypeError as error:
        takes = f"{getattr(train, '__name__', train)}{inspect.signature(train)}"
        hint = "each name of the space is a parameter of the function, and all others have defaults"
        raise InvalidInput(
            f"{takes} cannot be called with {', '.join(sorted(names))}: {error}", hint
        ) from None


def script_words(path: Path) -> list[str]:
    """Return the command that runs a script or a notebook.

    Raises:
        InvalidInput: There is none, or it cannot be run.
    """
    if not os.path.isfile(path):  # also of a text that is too long for a path
        run = f"-m {path}" if os.path.isfile(path / "__main__.py") else "train.py"
        hint = (
            "a path, a function, or a command as a list of words; "
            f"in a shell podium tune --lr 1e-4..1e-1 -- python {run}"
        )
        raise InvalidInput(f"there is no script {path}", hint)
    if path.suffix == ".py":
        return ["python", str(path)]
    if path.suffix == ".ipynb":
        kept = f"{OUTPUT}/{path.name}"
        return ["papermill", "--log-output", "--no-progress-bar", str(path), kept]
    if not os.access(path, os.X_OK):
        raise InvalidInput(f"{path} is neither a Python file nor executable", f"chmod +x {path}")
    with path.open("rb") as file:
        first = file.readline(200)
    quoted = shlex.quote(str(path))
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        problem = f"the lines of {path} end as on Windows, where the system takes #! for no program"
        raise InvalidInput(problem, f"perl -pi -e 's/\\r$//' {quoted}")
    if path.suffix == ".sh" and not first.startswith(b"#!"):
        raise InvalidInput(
            f"{path} does not begin with #!",
            f"perl -pi -e 's{{^}}{{#!/bin/sh\\n}} if $. == 1' {quoted}",
        )
    return [str(path) if "/" in str(path) else f"./{path}"]


def _name_of(words: Sequence[str]) -> str:
    scripts = [word for word in words if word.endswith((".py", ".sh", ".ipynb"))]
    modules = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"]
    return (
        Path(scripts[0]).stem
        if scripts
        else modules[0].rpartition(".")[2]
        if modules
        else Path(words[0]).name
    )


def _root_of(words: Sequence[str]) -> Path | None:
    here = Path.cwd()
    modules = [
        words[at + 1].replace(".", "/") for at, word in enumerate(words[:-1]) if word == "-m"
    ]
    named = [*words, *modules, *(f"{module}.py" for module in modules)]
    return here if any(name.strip("./") and os.path.exists(here / name) for name in named) else None
