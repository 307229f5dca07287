"""Findings about a manifest, and a structural check against a small schema."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput

Schema = Any
"""TEXT, INT, NUMBER, BOOL or OBJECT; a list of one schema; a dict of field to schema."""

TEXT, INT, NUMBER, BOOL, OBJECT = "text", "an integer", "a number", "true or false", "an object"

_HINTS = {
    TEXT: "one word or line; put numbers, yes and no in quotes",
    INT: "digits without quotes, below 2^31",
    NUMBER: "digits without quotes",
    BOOL: "true or false without quotes",
    OBJECT: "fields and their values, each on a line below it",
}
"""How to mend a value of another type."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule that a manifest breaks, or a trap it may step into."""

    field: str
    """Path of the field, for example ``spec.parameters[0].feasibleSpace.min``."""

    law: str
    """What must hold."""

    given: str
    """What was given."""

    hint: str | None = None
    """How to mend it."""

    level: str = "refused"
    """``refused`` by Katib's webhook; ``stuck``: accepted by Katib, but cannot work; ``unsupported``: a cluster may run
    it, podium does not; ``warning``."""

    @property
    def sentence(self) -> str:
        """What is wrong, without the field."""
        if self.level == "unsupported":
            return f"{self.law}, not {self.given}"
        return f"`{self.law}` must hold, but got {self.given}"

    @property
    def text(self) -> str:
        """The finding as one sentence."""
        return f"{self.field}: {self.sentence}"


class Findings(list[Finding]):
    """A list that grows by what does not hold."""

    def require(
        self, holds: bool, field: str, law: str, given: Any, hint: str | None = None, level: str = "refused"
    ) -> bool:
        """Note a broken law; return whether it holds."""
        if not holds:
            self.append(Finding(field=field, law=law, given=shorten(given), hint=hint, level=level))
        return holds

    def unsupported(self, field: str, runs: str, given: str) -> None:
        """Note what podium does not run and Katib may.

        Args:
            field: Path of the field.
            runs: What podium runs instead, a sentence: ``podium collects from StdOut, …``.
            given: What follows ", not" in the sentence.
        """
        hint = f"podium cannot tell whether a cluster runs it; to run it here, change {field}"
        self.append(Finding(field=field, law=runs, given=given, hint=hint, level="unsupported"))


def raise_for(findings: Iterable[Finding]) -> None:
    """Raise one InvalidInput that names every finding that is not a mere warning."""
    broken = [finding for finding in findings if finding.level != "warning"]
    if broken:
        hints = dict.fromkeys(finding.hint for finding in broken if finding.hint)
        raise InvalidInput("\n".join(finding.text for finding in broken), "; ".join(hints) or None)


def shorten(value: Any, limit: int = 80) -> str:
    """Return a value's repr, cut in the middle if it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 4 :]}"


def check_structure(value: Any, schema: Schema, path: str, findings: Findings) -> None:
    """Note every place where a value's type is not the schema's; unknown fields pass, as Kubernetes drops them.

    Args:
        value: Parsed YAML; None stands for an absent field and passes.
        schema: What is expected.
        path: Where the value stands.
        findings: Grows by what does not fit.
    """
    if value is None:
        return
    last = path.rpartition(".")[2]
    if isinstance(schema, dict):
        hint = f"write its fields below it: {', '.join(schema)}"
        if findings.require(isinstance(value, Mapping), path, f"{last} is an object", value, hint):
            for name, inner in schema.items():
                check_structure(value.get(name), inner, f"{path}.{name}" if path else name, findings)
    elif isinstance(schema, list):
        hint = "write its items below it, each after a dash"
        if findings.require(isinstance(value, list), path, f"{last} is a list", value, hint):
            for place, item in enumerate(value):
                inside = f"{path}[{place}]"
                if findings.require(item is not None, inside, "an item is not empty", item, "remove the dash"):
                    check_structure(item, schema[0], inside, findings)
    else:
        findings.require(_fits(value, schema), path, f"{last} is {schema}", value, _HINTS[schema])


def _fits(value: Any, schema: str) -> bool:
    if schema == TEXT:
        return isinstance(value, str)
    if schema == BOOL:
        return isinstance(value, bool)
    if schema == OBJECT:
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return False
    if schema == INT:
        return isinstance(value, int) and abs(value) < 2**31
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
