"""Fields that no Experiment has: Katib drops them without a word, so a slip of the pen changes what is run."""

import difflib
from collections.abc import Mapping
from typing import Any

from podium.manifests.experiment.rules import Findings, Schema
from podium.manifests.experiment.schema import EXPERIMENT


def warn_of_unknown(spec: Mapping[str, Any], findings: Findings) -> None:
    """Note each field of a spec that Katib does not know; a trial's job is the business of its own kind.

    Args:
        spec: As given, of the right shape.
        findings: Grows by a warning a field.
    """
    _walk(spec, EXPERIMENT["spec"], "spec", findings)


def _walk(value: Any, schema: Schema, path: str, findings: Findings) -> None:
    if isinstance(schema, list):
        for place, item in enumerate(value or []):
            _walk(item, schema[0], f"{path}[{place}]", findings)
    elif isinstance(schema, dict):
        for field, inner in (value or {}).items():
            where = f"{path}.{field}"
            if field not in schema:
                close = difflib.get_close_matches(str(field), schema, 1)
                hint = f"did you mean {close[0]}?" if close else f"remove it; there are {', '.join(schema)}"
                findings.require(False, where, f"{field} is a field of {path}", inner, hint, "warning")
            elif where != "spec.trialTemplate.trialSpec":
                _walk(inner, schema[field], where, findings)
