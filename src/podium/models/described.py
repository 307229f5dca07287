"""A version in words: the facts that the shell and a notebook show."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from podium.display.text import digits, figure, when
from podium.models.document import as_mapping
from podium.models.record import Record
from podium.models.task import decision_threshold

if TYPE_CHECKING:
    from podium.models.version import Version


def described(version: "Version", later: Record | None = None) -> dict[str, str]:
    """Return what is known of a version in words, by name.

    Args:
        later: The last comparison that measured it on another test part, as champion.
    """
    metadata = version.metadata
    dataset, origin, environment = (
        as_mapping(metadata.get(key)) for key in ("dataset", "origin", "environment")
    )
    by = f" by run {metadata['run_id']}" if metadata.get("run_id") else ""
    maker = (origin.get(key) for key in ("kind", "name", "experiment", "why"))
    digest, code = dataset.get("digest"), as_mapping(metadata.get("code")).get("digest")
    counts = as_mapping(dataset.get("counts"))
    pairs = {
        "created": f"{when(version.created)} UTC{by}",
        "from": ", ".join(str(part) for part in maker if part is not None),
        "trained at": origin.get("uri"),
        "uploaded from": origin.get("source"),
        "data": _words({"": dataset.get("name"), "digest": str(digest or "")[:12], **counts}),
        "metrics": _words(_by_part(metadata, "")),
        "constant guess": str(version.facts.constant),
        "decides for": str(decision_threshold(version) or ""),
        "measured later": _later(later) if later else "",
        "chosen by": _words(_by_part(metadata, "validation_")),
        "reported": _words(metadata.get("reported")),
        "its trial": _words(as_mapping(metadata.get("trial")).get("metrics")),
        "settings": _words(metadata.get("hyperparameters")),
        "code": _words(
            {
                "podium": metadata.get("code_version"),
                "python": environment.get("python"),
                "torch": environment.get("torch"),
                "image": metadata.get("image"),
                "digest": str(code or "")[:12],
            }
        ),
    }
    return {name: str(value) for name, value in pairs.items() if value}


def _later(record: Record) -> str:
    grounds = record.grounds
    value = figure(grounds.champion_value) if grounds.champion_value is not None else "-"
    return f"{grounds.metric.name} {value} on another test part, {when(record.time)}"


def _by_part(metadata: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the metrics on the test part, or those on the validation part, by which the model was
    chosen."""
    metrics = as_mapping(metadata.get("metrics"))
    return {
        name: value
        for name, value in metrics.items()
        if name.startswith("validation_") == bool(prefix)
    }


def _words(value: Any) -> str:
    pairs = (
        (name, item) for name, item in as_mapping(value).items() if item not in (None, "", [], {})
    )
    return ", ".join(
        f"{name} {digits(item) if isinstance(item, float) else item}".strip()
        for name, item in pairs
    )
