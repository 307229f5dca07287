"""Lineage of a version: data, run, sweep, trial or training, version,
champion, server."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from podium import __version__
from podium.display.text import when
from podium.models.document import as_mapping, is_count
from podium.models.model import Model
from podium.models.version import Version

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PRODUCER = f"urn:podium:{__version__}"
_RUNS = UUID("6c0b3f4e-5d1c-5c0a-9a55-2d0b5b6f9d11")
"""Namespace of the UUIDs of runs whose ids are none."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The way of one version; empty text where something is not known."""

    model: str
    version: Version
    data: str
    """Name of the dataset and how many items each part has."""

    run: str
    sweep: str
    kind: str
    """``trial``, ``training`` or what else made the model."""

    name: str
    """Of that trial or training."""

    champion_since: str
    """To the minute, UTC; empty if it is not champion now."""

    served_by: Sequence[str] = ()
    """Addresses of servers that answer with it now."""

    @classmethod
    def of(cls, model: Model, version: Version, served_by: Sequence[str] = ()) -> "Lineage":
        """Read it from the version's metadata.

        Args:
            served_by: Addresses of servers that answer with it now, as far as they are known.
        """
        metadata, facts = version.metadata, version.facts
        origin = facts.origin
        counts = as_mapping(as_mapping(metadata.get("dataset")).get("counts"))
        parts = ", ".join(f"{count:,} {part}" for part, count in counts.items() if is_count(count))
        champion = model.aliases().get("champion")
        holds = champion is not None and champion.version == version.version
        return cls(
            model=model.name,
            version=version,
            data=" ".join(filter(None, [facts.dataset.name, parts])),
            run=str(metadata.get("run_id") or "").partition(".")[0],  # without its attempt
            sweep=origin.experiment or "",
            kind=origin.kind or "trial",
            name=origin.name or "",
            champion_since=f"{when(champion.time)} UTC" if champion and holds else "",
            served_by=served_by,
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return title and name of each station that is known, data first."""
        stations = [
            ("data", self.data),
            ("run", self.run),
            ("sweep", self.sweep),
            (self.kind, self.name),
            ("version", self.version.version),
            ("champion", f"since {self.champion_since}" if self.champion_since else ""),
            ("served by", ", ".join(self.served_by)),
        ]
        return [(title, text) for title, text in stations if text]

    def to_json(self) -> dict[str, Any]:
        """Return an OpenLineage RunEvent: the run that read the data and wrote the version."""
        version, data = self.version, self.version.facts.dataset
        try:
            run = UUID(self.run)
        except ValueError:
            # A version that no run made has one of its own.
            run = uuid5(_RUNS, self.run or f"{self.model}/{version.version}")
        facets = {
            "podium": _facet(
                run=self.run,
                sweep=self.sweep,
                kind=self.kind,
                name=self.name,
                hyperparameters=version.hyperparameters,
                servedBy=list(self.served_by),
            )
        }
        return {
            "eventType": "COMPLETE",
            "eventTime": version.created.isoformat(),
            "producer": _PRODUCER,
            "schemaURL": _SCHEMA,
            "run": {"runId": str(run), "facets": facets},
            "job": {"namespace": "podium", "name": self.model},
            "inputs": [_dataset("podium.data", data.name, data.digest)],
            "outputs": [_dataset(version.storage.url, f"models/{self.model}", version.version)],
        }


def _facet(**fields: Any) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": _SCHEMA, **fields}


def _dataset(namespace: str, name: object, version: object) -> dict[str, Any]:
    facets = {"version": _facet(datasetVersion=str(version or ""))}
    return {"namespace": namespace, "name": str(name or ""), "facets": facets}
