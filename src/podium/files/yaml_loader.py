"""YAML within limits, read as kubectl reads it: the parser of libyaml with a composer that
counts."""

import json
import math
import re
from typing import Any, ClassVar

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import Node, ScalarNode
from yaml.resolver import Resolver

_MAX_NODES = 50_000
"""Nodes of all documents together, with every alias replaced by what it repeats. An Experiment has
about 100."""

_MAX_DEPTH = 100
"""Levels of lists and mappings. A compiled pipeline has about 15."""

_INT64 = range(-(2**63), 2**64)


class LimitError(Exception):
    """A document is larger or deeper than the limits allow."""


if yaml.__with_libyaml__:
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]
else:  # pragma: no cover - wheels of PyYAML carry libyaml
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class _Parser(Reader, Scanner, Parser):  # type: ignore[no-redef]
        """The same parser in Python."""

        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)


class Loader(Composer, _Parser, SafeConstructor, Resolver):
    """Loads plain data only: null, booleans, numbers, text, lists and mappings.

    Numbers are those of kubectl: ``1e-3`` is one; ``2026-01-02`` and ``1:30`` are text. In podium's
    own files ``010``, which is 8 there and 10 elsewhere, is none. In files for kubectl ``y`` and
    ``n`` are booleans, as they are there and nowhere else.
    """

    bool_values: ClassVar[dict[str, bool]] = {**SafeConstructor.bool_values, "y": True, "n": False}

    def __init__(
        self, text: str, max_characters: int, *, own: bool = False, kubectl: bool = False
    ) -> None:
        _Parser.__init__(self, text)
        self._own = own
        if kubectl:
            self.yaml_implicit_resolvers = _KUBECTL
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._max_characters = max_characters
        self._nodes = self._characters = self._depth = self._deepest = 0
        self._extent: dict[Node, tuple[int, int, int]] = {}
        """Nodes, characters and levels of each anchored node."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; an alias counts as much as its target, so that nothing too large is
        built."""
        if self.check_event(yaml.AliasEvent):
            return self._repeat(parent, index)
        anchored = self._next().anchor is not None
        nodes, characters, deepest = self._nodes, self._characters, self._deepest
        self._deepest = self._depth
        self._count(1, 0, 0)
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, ScalarNode):
            self._count(0, len(node.value), 0)
        if anchored:
            levels = self._deepest - self._depth
            self._extent[node] = (self._nodes - nodes, self._characters - characters, levels)
        self._deepest = max(self._deepest, deepest)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Compose a mapping; a key that stands in it twice is an error, for one of its values would
        be lost: as 1 and 0x1, or yes and true."""
        node: Any = super().compose_mapping_node(anchor)
        seen = set[Any]()
        for key in (key for key, _ in node.value if isinstance(key, ScalarNode)):
            if key.value == "<<":
                continue
            value = self.construct_object(key)
            names = {value, value if isinstance(value, str) else json.dumps(value)}
            if names & seen:
                shown = f"the key {key.value[:40]!r} stands there twice"
                raise ConstructorError(None, None, shown, key.start_mark)
            seen |= names
        return node

    def _repeat(self, parent: Any, index: Any) -> Any:
        mark = self._next().start_mark
        node = super().compose_node(parent, index)
        if node not in self._extent:
            raise ConstructorError(
                None, None, "an alias repeats the node that it is a part of", mark
            )
        self._count(*self._extent[node])
        return node

    def _next(self) -> Any:
        return self.peek_event()

    def _count(self, nodes: int, characters: int, levels: int) -> None:
        self._nodes += nodes
        self._characters += characters
        self._deepest = max(self._deepest, self._depth + levels)
        if self._nodes > _MAX_NODES:
            raise LimitError(
                f"has more than {_MAX_NODES:,} values with its aliases replaced by what they repeat"
            )
        if self._characters > self._max_characters:
            raise LimitError(
                f"has more than {self._max_characters:,} characters with its aliases replaced by what they repeat"
            )
        if self._deepest >= _MAX_DEPTH:
            raise LimitError(f"is nested more than {_MAX_DEPTH} levels deep")

    def construct_int(self, node: ScalarNode) -> int | float:
        """Construct a number that fits into 64 bits as an int, any other as a float, as Go does."""
        text = str(self.construct_scalar(node))
        if not re.fullmatch(_INT, text) or len(text) > 80:
            raise ConstructorError(None, None, f"{text[:40]!r} is not an integer", node.start_mark)
        if self._own and re.fullmatch(r"[-+]?0[0-7_]+", text):
            shown = f"{text} is octal to some and decimal to others: write it without the 0, or in quotes"
            raise ConstructorError(None, None, shown, node.start_mark)
        number = int(self.construct_yaml_int(node))
        return number if number in _INT64 else float(number)

    def construct_float(self, node: ScalarNode) -> float:
        """Construct a finite number: JSON, the format sent to a cluster, has no other."""
        text = str(self.construct_scalar(node)).replace("_", "")
        number = float(re.sub(r"\.(?=inf$|nan$)", "", text.lower()))
        if not math.isfinite(number):
            raise ConstructorError(
                None, None, f"{text[:40]} is not a finite number", node.start_mark
            )
        return number


_INT = r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)"
_FLOAT = r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_TAG = "tag:yaml.org,2002:"
_KEPT = tuple(_TAG + name for name in ("null", "bool", "merge"))
_PLAIN = tuple(_TAG + name for name in ("null", "bool", "str", "seq", "map"))

Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag in _KEPT]
    for first, rules in Resolver.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(f"{_TAG}int", re.compile(f"({_INT})$"), list("-+0123456789"))
Loader.add_implicit_resolver(f"{_TAG}float", re.compile(f"({_FLOAT})$"), list("-+0123456789."))
_LETTER = (f"{_TAG}bool", re.compile("[yYnN]$"))
_KUBECTL = Loader.yaml_implicit_resolvers | {
    first: [*Loader.yaml_implicit_resolvers.get(first, []), _LETTER] for first in "yYnN"
}
Loader.yaml_constructors = {
    **{tag: SafeConstructor.yaml_constructors[tag] for tag in _PLAIN},
    f"{_TAG}int": Loader.construct_int,
    f"{_TAG}float": Loader.construct_float,
    None: SafeConstructor.construct_undefined,
}


class Dumper(yaml.SafeDumper):
    """Quotes texts that kubectl reads as numbers or booleans and PyYAML does not, such as 5e-05, 08
    and y; writes twice what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: people edit these files, and an alias would change in two places."""
        return True


Dumper.add_implicit_resolver(f"{_TAG}float", re.compile(f"({_FLOAT})$"), list("-+0123456789."))
# Go's YAML 1.1 (sigs.k8s.io/yaml): resolve.go, and strconv.ParseInt with base 0.
Dumper.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(r"[-+]?0([xX][\da-fA-F_]+|[bBoO][0-7_]+|[\d_]*[89][\d_]*)$"),
    list("-+0"),
)
Dumper.add_implicit_resolver(*_LETTER, list("yYnN"))


def load_dumped(text: str) -> list[Any]:
    """Load documents that PyYAML wrote, as kfp does: 1e3 and y without quotes are texts to it."""
    return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def dump(document: Any, **style: Any) -> str:
    """Write a document that kubectl reads as it is."""
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, **style))
