"""Fields of a manifest, read leniently: a value of another type counts as absent, and the rules
report it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one in place of anything else: wrong types are reported by the
    rules."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """Return a list, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def numbered(path: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each object of a list with its path: ``spec.parameters[0]`` …"""
    for index, item in enumerate(items(value)):
        yield f"{path}[{index}]", mapping(item)


def text(value: Any) -> str:
    """Return a string, or an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def integer(value: Any) -> int | None:
    """Return an integer, or None in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_QUANTITY = re.compile(
    r"\+?(\d+(?:\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII
)


def quantity(value: Any) -> float | None:
    """Return an amount of a resource such as ``2``, ``500m`` or ``4Gi``, or None in place of
    anything that Kubernetes does not take for one, such as ``2 GB`` (apimachinery:
    pkg/api/resource/quantity.go)."""
    if not _QUANTITY.fullmatch(str(value)):
        return None
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(str(value)))


def texts(value: Any) -> dict[str, str]:
    return {str(key): item for key, item in mapping(value).items() if isinstance(item, str)}


def strings(value: Any) -> tuple[str, ...]:
    return tuple(map(str, items(value)))


def objects(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(map(mapping, items(value)))


def unshared(value: Any, change: Callable[[str], str] = str) -> Any:
    """Return a copy that shares no object or list with a value, nor any two of its parts with each
    other.

    Args:
        change: Makes each text of the copy.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: unshared(item, change) for key, item in value.items()}
    return [unshared(item, change) for item in value] if isinstance(value, list) else value


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None: the API server takes null for some and refuses it for
    others."""
    return {name: value for name, value in fields.items() if value is not None}


def true(value: Any) -> bool:
    """Return whether a value is true, not only truthy."""
    return value is True


class Attribute(Generic[T]):
    """A field of a manifest as an attribute of its object, read at its first use.

    Args:
        path: An attribute, and the names of fields below it if it holds an object:
            ``spec.source.filter``.
        read: Converts the value, None if it is absent: one of the functions above.
    """

    def __init__(self, path: str, read: Callable[[Any], T]) -> None:
        self.holder, *self.fields = path.split(".")
        self.read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value = getattr(instance, self.holder)
        for name in self.fields:
            value = mapping(value).get(name)
        result = instance.__dict__[self.name] = self.read(value)
        return result


def with_values(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of an object's fields with a value."""
    return frozenset(
        name for name, value in manifest.items() if value not in (None, [], {}, "", False)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ManifestView:
    """An object inside a manifest, with attributes that are read at their first use."""

    manifest: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read an object; anything else counts as an empty one."""
        return cls(manifest=mapping(value))

    @classmethod
    def parse_all(cls, value: Any) -> tuple[Self, ...]:
        return tuple(map(cls.parse, items(value)))

    fields = Attribute("manifest", with_values)
