"""Kubernetes objects of any kind: kind, name, labels and the state in their conditions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

from podium.errors import InvalidInput
from podium.manifests.conditions import STYLES, Conditions, Manifest, State, status_of
from podium.manifests.fields import Attribute, mapping, objects, strings, text, texts
from podium.manifests.job_editor import JobEditor


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One entry of ``status.conditions``."""

    type: str
    status: bool
    reason: str
    message: str
    changed: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """A Kubernetes object and the manifest it came from.

    Reading is lenient: a field of the wrong type counts as absent, and the rules say so. The
    manifest is never altered.
    """

    manifest: Manifest = field(repr=False)
    """The manifest as written or as stored, unknown fields included."""

    path: str = ""
    """Prefix of its fields in messages: ``spec.trialTemplate.trialSpec.`` for the job of a trial
    template."""

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a manifest.

        Raises:
            InvalidInput: It is not an object.
        """
        if not isinstance(manifest, Mapping):
            raise InvalidInput(
                f"a manifest is an object, but this is {type(manifest).__name__}: {manifest!r:.80}"
            )
        return cls(manifest=dict(manifest))

    kind = Attribute("manifest.kind", text)
    """``Job``, ``PyTorchJob``, ``Experiment``, ``Trial`` …; empty if absent."""

    api_version = Attribute("manifest.apiVersion", text)

    metadata = Attribute("manifest.metadata", mapping)
    name = Attribute("metadata.name", text)
    """``metadata.name``; empty in a trial template."""

    @property
    def expected_name(self) -> str:
        """Its name, or one that the API server may make of generateName."""
        if "name" in self.metadata or not self.metadata.get("generateName"):
            return self.name
        return f"{text(self.metadata['generateName'])}{'x' * 5}"

    namespace = Attribute("metadata.namespace", lambda value: text(value) or "default")
    """``metadata.namespace``; ``default`` if absent."""

    uid = Attribute("metadata.uid", text)
    """Given by the cluster that stores the object; empty before."""

    created = Attribute("metadata.creationTimestamp", text)
    """creationTimestamp, RFC3339; empty before it is stored."""

    version = Attribute("metadata.resourceVersion", text)
    """resourceVersion, from which changes can be watched; empty before the object is stored."""

    is_leaving = Attribute("metadata.deletionTimestamp", bool)

    finalizers = Attribute("metadata.finalizers", strings)
    owners = Attribute("metadata.ownerReferences", objects)

    labels = Attribute("metadata.labels", texts)
    annotations = Attribute("metadata.annotations", texts)
    status = Attribute("manifest.status", mapping)
    """The stored status; empty before the object runs."""

    spec = Attribute("manifest.spec", mapping)
    """The spec as written."""

    @cached_property
    def state(self) -> State:
        """Phase, reason and message, by its conditions."""
        return status_of({"kind": self.kind, "spec": self.spec, "status": dict(self.status)})

    conditions = Attribute(
        "status.conditions",
        lambda value: tuple(
            Condition(
                type=text(condition.get("type")),
                status=condition.get("status") == "True",
                reason=text(condition.get("reason")),
                message=text(condition.get("message")),
                changed=text(condition.get("lastTransitionTime")),
            )
            for condition in objects(value)
        ),
    )

    def with_metadata(self, metadata: Mapping[str, Any]) -> Self:
        return replace(self, manifest={**self.manifest, "metadata": dict(metadata)})

    @property
    def as_owner(self) -> dict[str, Any]:
        """Entry of ``metadata.ownerReferences`` of an object that goes with it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def without_owners(self) -> Self:
        return self.with_metadata(
            {name: value for name, value in self.metadata.items() if name != "ownerReferences"}
        )

    def with_status(self, status: Mapping[str, Any]) -> Self:
        return replace(self, manifest={**self.manifest, "status": dict(status)})

    def with_condition(self, kind: str, reason: str, message: str, now: str = "") -> Self:
        """Return a copy with a condition that is True, written as the controller of its kind does.

        Args:
            now: The time as Kubernetes writes it; the present if empty.
        """
        status = dict(self.status)
        Conditions(status, STYLES[self.kind]).add(kind, reason, message, now)
        return self.with_status(status)

    def explained(self, why: Condition) -> Self:
        """Return a copy with a condition that is true in place of the one of its type."""
        shown = {
            "type": why.type,
            "status": "True",
            "reason": why.reason,
            "message": why.message,
            "lastTransitionTime": why.changed,
        }
        before = objects(self.status.get("conditions"))
        kept = [condition for condition in before if condition.get("type") != why.type]
        return self.with_status({**self.status, "conditions": [*kept, shown]})

    def changed_job(self, change: Callable[[JobEditor], None]) -> Self:
        """Return a copy whose job a function has altered: the object itself, or the job of an
        Experiment's trials."""
        raise NotImplementedError(f"a {self.kind} has no job to change")

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type if it is True."""
        return next(
            (
                condition
                for condition in self.conditions
                if condition.type == kind and condition.status
            ),
            None,
        )


R = TypeVar("R", bound=Resource)
