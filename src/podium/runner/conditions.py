"""Conditions of KFP's tasks (``dsl.If``): comparisons of parameters, in the part of CEL that its
compiler writes."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from podium.errors import InvalidInput

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|&&|\|\||!=|!|\w+|.", re.DOTALL)
_WORDS = {
    "&&": " and ",
    "||": " or ",
    "!": " not ",
    "true": "True",
    "false": "False",
    "null": "None",
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "double": float,
    "string": str,
    "bool": bool,
}


class Condition:
    """A condition, read.

    Args:
        text: As compiled.

    Raises:
        InvalidInput: It is of another form.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        words = "".join(_WORDS.get(token, token) for token in _TOKEN.findall(text))
        try:
            self._tree = ast.parse(words.strip(), mode="eval").body
            self._value(self._tree, None)
        except SyntaxError:
            raise self._unknown() from None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it holds for these parameters.

        Raises:
            InvalidInput: A parameter has no value, or one that cannot be compared.
        """
        try:
            return bool(self._value(self._tree, values))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"the condition {self.text} cannot be decided: {error}") from None

    def _value(self, node: ast.expr, values: Mapping[str, Any] | None) -> Any:
        """Return the value of a part; without values it is only read."""
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                held = self._value(node.operand, values)
                return not held if isinstance(node.op, ast.Not) else values and -held
            case ast.BoolOp():
                parts: Any = (self._value(part, values) for part in node.values)
                parts = list(parts) if values is None else parts
                return all(parts) if isinstance(node.op, ast.And) else any(parts)
            case ast.Compare(ops=[sign]) if type(sign) in _COMPARISONS:
                left, right = (
                    self._value(part, values) for part in (node.left, node.comparators[0])
                )
                return values is not None and _COMPARISONS[type(sign)](left, right)
            case ast.Call(func=ast.Name(id=name), args=[part]) if name in _CASTS:
                inner = self._value(part, values)
                return None if values is None else _CASTS[name](inner)
            case ast.Subscript(
                value=ast.Attribute(attr="parameter_values"), slice=ast.Constant(value=name)
            ):
                return None if values is None else values[str(name)]
        raise self._unknown()

    def _unknown(self) -> InvalidInput:
        return InvalidInput(f"the condition {self.text} is of a form that is not known")
