"""The source of a function from a notebook or a script, with everything that it uses of its module.

A process of its own cannot import such a function: importing the script would run it, and a
notebook is no module. So its source is collected together with the imports, functions, classes and
constants that it names. Functions of any other module are imported by their name.
"""

import __future__

import ast
import base64
import builtins
import dis
import inspect
import linecache
import site
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from podium.errors import InvalidInput

MODULE = "podium_function"
"""Module that the collected source becomes."""

_PICKLED = """\
import base64, sys

if (here := "{{}}.{{}}".format(*sys.version_info)) != "{python}":
    raise SystemExit("error: the function was pickled by Python {python}, but this is " + here)
import cloudpickle

{name} = cloudpickle.loads(base64.b64decode("{content}"))
"""
"""A module with a pickled function."""


@dataclass(frozen=True, kw_only=True)
class FunctionSource:
    """Import location of a function for another process."""

    module: str
    function: str
    text: str = ""
    """Content of the module; empty for one that is imported from where it is."""

    roots: tuple[Path, ...] = ()
    """Directories with modules of the user's own that it imports."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "FunctionSource":
        """Return the source from which another process imports a function.

        Raises:
            InvalidInput: It cannot be imported there: a lambda, a nested function, a method, or one
                that uses a value which has no source. Such a one goes with ``pickled``.
        """
        name = getattr(function, "__qualname__", repr(function))
        if (
            not isinstance(function, FunctionType)
            or name != function.__name__
            or not name.isidentifier()
        ):
            hint = "define it with def at the top of a module, a script or a notebook's cell; or pickle=True"
            raise InvalidInput(
                f"{name} is not a plain function, so a process of its own cannot import it", hint
            )
        named = function.__module__ != "__main__"  # a doctest's __main__ is no module
        module = sys.modules.get(function.__module__) if named else None
        scope = _scope(function) if module is None else vars(module)
        if not _is_known(name, function, scope):
            hint = f"write the decorator above def {name}, or pickle=True"
            raise InvalidInput(
                f"{function.__module__}.{name} is another function than the given one", hint
            )
        if module is not None:
            return cls(module=function.__module__, function=name, roots=tuple(_root(module)))
        collected = _Collected()
        collected.add_definition(name, function, _scope(function))
        return cls(
            module=MODULE,
            function=name,
            text=collected.text(),
            roots=tuple(dict.fromkeys(collected.roots)),
        )

    @classmethod
    def pickled(cls, function: Callable[..., Any]) -> "FunctionSource":
        """Pickle a function with cloudpickle: also a lambda, a closure, or one that only this
        process has.

        A process of its own needs the same version of Python, and the packages whose objects are
        in it.

        Raises:
            InvalidInput: cloudpickle is not installed, or cannot write it.
        """
        try:
            import cloudpickle
        except ModuleNotFoundError:
            raise InvalidInput("pickle=True needs cloudpickle", "pip install cloudpickle") from None
        name = getattr(function, "__name__", "")
        name = name if name.isidentifier() else "function"
        try:
            content = base64.b64encode(cloudpickle.dumps(function)).decode()
        except Exception as error:  # whatever an object raises that does not want to be copied
            hint = "make it inside the function"
            raise InvalidInput(
                f"{name} uses something that cannot be pickled: {type(error).__name__}: {error}",
                hint,
            ) from None
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        text = _PICKLED.format(name=name, content=content, python=python)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        roots = tuple(_root(module)) if module and module.__name__ != "__main__" else ()
        return cls(module=MODULE, function=name, text=text, roots=roots)


def returned_names(function: Callable[..., Any]) -> list[str]:
    """Return the names in the dicts that a function returns as it is written; empty where the
    source does not show."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    returned = [node.value for node in _own_nodes(tree.body[0]) if isinstance(node, ast.Return)]
    keys = [key for value in returned if isinstance(value, ast.Dict) for key in value.keys]
    names = [
        key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    return list(dict.fromkeys(names))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(
            child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
        ):
            yield child
            yield from _own_nodes(child)


@dataclass
class _Collected:
    """Source code, in the order in which it must run."""

    imports: dict[str, None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    roots: list[Path] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join(
            [
                *sorted(self.imports, key=lambda line: not line.startswith("from __future__")),
                "",
                "",
                *(f"{definition}\n" for definition in self.definitions.values()),
            ]
        )

    def add_definition(self, name: str, value: Any, scope: dict[str, Any]) -> None:
        """Add a function or class, its dependencies first."""
        if name in self.definitions:
            return
        source = _source(name, value)
        self.definitions[name] = ""  # it may call itself
        if any(each is __future__.annotations for each in scope.values()):
            self.imports["from __future__ import annotations"] = None
        for module in _submodules(source, scope):
            self._add_import(f"import {module.__name__}", module)
        for used in sorted(_globals_of(value, source)):
            if used in scope:
                self._add(used, scope[used], scope, name)
        self.definitions[name] = self.definitions.pop(name) or source

    def _add(self, name: str, value: Any, scope: dict[str, Any], user: str) -> None:
        if name in self.definitions or getattr(builtins, name, None) is value:
            return
        if isinstance(value, ModuleType):
            self._add_import(f"import {value.__name__} as {name}", value)
        elif (
            isinstance(value, FunctionType | type)
            and value.__module__ == "__main__"
            and _is_known(value.__name__, value, scope)
        ):
            self.add_definition(value.__name__, value, _scope(value, scope))
            if name != value.__name__:
                self.definitions[name] = f"{name} = {value.__name__}"
        elif module := _importable(value):
            qualified = value.__qualname__
            self._add_import(f"from {module.__name__} import {qualified} as {name}", module)
        elif _is_constant(value):
            self.definitions[name] = f"{name} = {value!r}"
        else:
            hint = f"make {name} inside {user}, keep it in a module that {user} imports, or pickle=True"
            kind = type(value).__name__
            raise InvalidInput(
                f"{user} uses {name} of type {kind}, which only this process has", hint
            )

    def _add_import(self, statement: str, module: ModuleType) -> None:
        self.imports[statement] = None
        self.roots.extend(_root(module))


def _scope(value: Any, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the globals in which a function was written: those of a decorator's wrapper are the
    decorator's."""
    scope = getattr(inspect.unwrap(value), "__globals__", None)
    return (otherwise or {}) if scope is None else scope


def _is_known(name: str, value: Any, scope: Mapping[str, Any]) -> bool:
    """Return whether a name stands for a function or class, or for one that was read anew; it does
    not for a lambda, a closure, or what was decorated under another name."""
    found = scope.get(name)
    code = getattr(value, "__code__", None)
    return found is value or (code is not None and getattr(found, "__code__", None) == code)


def _submodules(source: str, scope: Mapping[str, Any]) -> Iterator[ModuleType]:
    """Yield the modules that a source names behind their package: ``concurrent.futures``."""
    for node in ast.walk(ast.parse(source)):
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        module = scope.get(node.id) if isinstance(node, ast.Name) else None
        while names and isinstance(module, ModuleType):
            module = sys.modules.get(f"{module.__name__}.{names.pop()}")
            if module is not None:
                yield module


def _source(name: str, value: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        if isinstance(value, type) and (source := _class_in_a_cell(value)):
            return source
    hint = "write it into a file, and import it"
    raise InvalidInput(f"the source of {name} is not known", hint)


def _class_in_a_cell(value: type) -> str | None:
    """Return the source of a class of a notebook, which inspect does not find: its methods know
    their cell."""
    for method in vars(value).values():
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        if code is None:
            continue
        text = "".join(linecache.getlines(code.co_filename))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == value.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                lines = text.splitlines(keepends=True)[first - 1 : node.end_lineno]
                return textwrap.dedent("".join(lines))
    return None


def _importable(value: Any) -> ModuleType | None:
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return None
    return module if getattr(module, getattr(value, "__qualname__", ""), None) is value else None


def _is_constant(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _globals_of(value: Any, source: str) -> set[str]:
    """Return the global names that a function or class reads, also in decorators, defaults and
    annotations."""
    tree = ast.parse(source).body[0]
    if not isinstance(value, FunctionType):
        return _names(tree)
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    head = [*tree.decorator_list, tree.args, *([tree.returns] if tree.returns else [])]
    return set(_loads(inspect.unwrap(value).__code__)).union(*map(_names, head))


def _names(tree: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _loads(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loads(constant)


def _root(module: ModuleType) -> Iterator[Path]:
    """Yield the directory from which a module of the user's own is imported; nothing for an
    installed one."""
    file = getattr(module, "__file__", None)
    if file is None:
        return
    path = Path(file).resolve()
    root = path.parents[module.__name__.count(".") + (path.name == "__init__.py")]
    paths = sysconfig.get_paths()
    installed = [
        *(paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    ]
    inside = any(path.is_relative_to(Path(folder).resolve()) for folder in installed)
    if not inside and module.__name__.partition(".")[0] != "podium":
        yield root
