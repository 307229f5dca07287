"""Types of a manifest's fields, checked against a small schema."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from podium.errors import suggestion
from podium.manifests.fields import quantity
from podium.manifests.rules import Violation, broken

Schema = Any
"""TEXT, INT, LONG, NUMBER, BOOL, OBJECT, AMOUNT or ANY; a list of one schema; a dict of field to
schema; a function that returns the schema of a value."""

TEXT, INT, NUMBER, BOOL, OBJECT = "text", "an integer", "a number", "true or false", "an object"
LONG, AMOUNT, ANY = "a whole number", "an amount of a resource", "anything"

_TYPES = {TEXT: str, BOOL: bool, OBJECT: Mapping, ANY: object}
_HINTS = {
    TEXT: "one word or line; put numbers, yes, no, y and n in quotes",
    INT: "digits without quotes, below 2^31",
    LONG: "digits without quotes, below 2^63",
    NUMBER: "digits without quotes",
    BOOL: "true or false without quotes",
    OBJECT: "fields and their values, each on a line below it",
    AMOUNT: '"500m", "2" or "4Gi"',
}


def wrong_types(value: Any, schema: Schema, path: str = "") -> Iterator[Violation]:
    """Yield every place where a value's type is not the schema's; unknown fields pass, as
    Kubernetes drops them.

    Args:
        value: Parsed YAML; None stands for an absent field and passes.
    """
    if value is None:
        return
    if callable(schema):
        schema = schema(value)
    if isinstance(schema, dict):
        if isinstance(value, Mapping):
            for name in schema.required if isinstance(schema, _Fields) else ():
                if value.get(name) is None:
                    yield broken(f"{path}.{name}", "must be given", None, f"add {name}")
            for name, inner in schema.items():
                yield from wrong_types(value.get(name), inner, f"{path}.{name}" if path else name)
        else:
            yield broken(
                path, "must be an object", value, f"write its fields below it: {', '.join(schema)}"
            )
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield broken(
                path, "must be a list", value, "write its items below it, each after a dash"
            )
            return
        for index, item in enumerate(value):
            if item is None:
                yield broken(f"{path}[{index}]", "must not be empty", item, "remove the dash")
            yield from wrong_types(item, schema[0], f"{path}[{index}]")
    elif not _fits(value, schema):
        yield broken(path, f"must be {schema}", value, _HINTS[schema])


def unknown_fields(value: Any, schema: Schema, path: str, then: str = "") -> Iterator[Violation]:
    """Yield the fields that a schema does not have, at any depth.

    Args:
        then: End of the sentence about one.
    """
    if isinstance(schema, list) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema[0], f"{path}[{index}]", then)
    elif isinstance(schema, dict) and isinstance(value, Mapping):
        for field, inner in value.items():
            where = f"{path}.{field}"
            if field in schema:
                yield from unknown_fields(inner, schema[field], where, then)
            else:
                hint = suggestion(str(field), schema)
                yield Violation(f"{path} has no field {field}{then}", where, hint)


def texts_by_name(value: Any) -> Schema:
    """Return the schema of an object whose fields may have any name and hold text, as labels do."""
    return dict.fromkeys(value, TEXT) if isinstance(value, Mapping) else OBJECT


def _amounts_by_name(value: Any) -> Schema:
    return dict.fromkeys(value, AMOUNT) if isinstance(value, Mapping) else OBJECT


_CLIENT_TYPES: dict[str, Schema] = {
    "str": TEXT,
    "int": INT,
    "float": NUMBER,
    "bool": BOOL,
    "datetime": TEXT,
    "dict(str, str)": texts_by_name,
}
_AMOUNTS: dict[str, Schema] = {
    **dict.fromkeys(("divisor", "sizeLimit"), AMOUNT),
    **dict.fromkeys(("limits", "overhead", "requests"), _amounts_by_name),
}
"""Fields that the client takes for text, and that may be numbers."""

_LONG = {"expirationSeconds", "terminationGracePeriodSeconds", "tolerationSeconds"}
"""Integers of 64 bits, which the client does not tell from those of 32."""

_NEWER = {
    "V1Container": ("restartPolicyRules",),
    "V1EnvVarSource": ("fileKeyRef",),
    "V1Lifecycle": ("stopSignal",),
    "V1PodResourceClaim": ("resourceClaimName", "resourceClaimTemplateName"),
    "V1PodSecurityContext": ("seLinuxChangePolicy", "supplementalGroupsPolicy"),
    "V1PodSpec": ("hostnameOverride", "resources"),
    "V1ResourceClaim": ("request",),
    "V1Volume": ("image",),
    "V1VolumeProjection": ("podCertificate",),
}
"""Fields of Kubernetes 1.34 that the client of 1.30 does not know."""


class _Fields(dict[str, Schema]):
    """The schema of an object of Kubernetes."""

    required: tuple[str, ...] = ()


@cache
def kubernetes_schema(name: str) -> Schema:
    """Return the schema of an object of Kubernetes, such as V1Job. It takes the client, whose
    import takes longer than all else that an Experiment needs."""
    from kubernetes import client

    schema = _Fields(dict.fromkeys(_NEWER.get(name, ()), ANY))
    model, checks = getattr(client, name), client.Configuration()
    checks.client_side_validation = False
    empty = model(local_vars_configuration=checks)
    checks.client_side_validation = True
    for attribute, kind in model.openapi_types.items():
        field, item = model.attribute_map[attribute], kind.removeprefix("list[").removesuffix("]")
        inner = kubernetes_schema(item) if item.startswith("V1") else _CLIENT_TYPES.get(item, ANY)
        inner = LONG if field in _LONG else inner
        if field in _AMOUNTS:  # admission knows more about those of containers
            inner = ANY if name == "V1ResourceRequirements" else _AMOUNTS[field]
        schema[field] = inner if item == kind else [inner]
        try:
            setattr(empty, attribute, None)
        except ValueError:
            schema.required += (field,)
    return schema


def _fits(value: Any, schema: str) -> bool:
    if schema in _TYPES:
        return isinstance(value, _TYPES[schema])
    if schema == AMOUNT:  # a trial's value comes later
        return quantity(value) is not None or (isinstance(value, str) and "${" in value)
    if isinstance(value, bool):
        return False
    if schema in (INT, LONG):
        return isinstance(value, int) and abs(value) < (2**31 if schema == INT else 2**63)
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
