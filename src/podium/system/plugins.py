"""Plugins of other distributions, by entry points in the groups ``podium.metrics``,
``.sources``, ``.algorithms``, ``.criteria``, ``.exporters``, ``.notifiers`` and ``.commands``.

Entry points are read where a name is not podium's own, or all names are listed: reading them takes
half as long as ``podium --help`` does.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from podium.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
_log = logging.getLogger("podium")
_distributions: dict[str, str] = {}
"""Distribution of each package whose entry points were loaded."""


class Table(Mapping[str, T]):
    """Things by name: podium's own, then those of other distributions. One that cannot be used is
    left out of a list with a warning, and refused by its name.

    Args:
        group: After ``podium.`` in the name of the entry points' group: the plural of the noun.
        own: Podium's.
        kind: Class of those of others; None for a callable.
    """

    def __init__(self, group: str, own: Mapping[str, T], kind: type | None = None) -> None:
        self.group, self.own, self._kind = group, dict(own), kind
        self._loaded: dict[str, T] = {}
        self._warned = set[str]()

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self._others[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._others

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for name in self._others:
            try:
                self[name]
            except InvalidInput as error:
                self._warn(f"{error.message}; it is left out")
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _others(self) -> "dict[str, list[EntryPoint]]":
        from importlib.metadata import entry_points

        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=f"podium.{self.group}"):
            if point.name in self.own:
                self._warn(
                    f"{_distribution(point)} adds {point.name!r} to podium.{self.group}, "
                    "which is podium's own name: it is refused"
                )
            else:
                found.setdefault(point.name, []).append(point)
        return found

    def _load(self, name: str, points: "list[EntryPoint]") -> T:
        point, whose = points[0], " and ".join(map(_distribution, points))
        if len(points) > 1:
            raise InvalidInput(
                f"{whose} both add {name!r} to podium.{self.group}", "uninstall one of them"
            )
        _distributions[point.module.partition(".")[0]] = whose
        try:
            made = point.load()
        except Exception as error:  # code of others: anything may come
            words = f"{type(error).__name__}: {error}"
            raise InvalidInput(
                f"{name!r} in podium.{self.group} of {whose} cannot be loaded: {words}",
                "reinstall it, or uninstall it",
            ) from error
        from dataclasses import is_dataclass

        fits = callable(made) if self._kind is None else isinstance(made, self._kind)
        if not fits or (is_dataclass(made) and getattr(made, "name", name) != name):
            wanted = f"a {self._kind.__name__}" if self._kind else "a function"
            raise InvalidInput(
                f"{point.value} of {whose} is not {wanted} called {name!r}, "
                f"but its entry point in podium.{self.group} says so",
                "install another version of it, or uninstall it",
            )
        thing: T = made
        return thing

    def _warn(self, words: str) -> None:
        if words not in self._warned:
            self._warned.add(words)
            _log.warning("%s", words)


def _distribution(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def blame(error: BaseException) -> str:
    """Return in words the failure of code that another distribution added; empty for all else."""
    frame: Any = error.__traceback__
    whose = ""
    while frame:
        package = str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0]
        whose = _distributions.get(package, whose)
        frame = frame.tb_next
    return f"{whose} failed: {type(error).__name__}: {error}" if whose else ""
