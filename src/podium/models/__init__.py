"""A model registry that needs only a storage: versions, champion, promotion rule, history; see docs/registry.md."""

from pathlib import Path

from podium.models.catalog import Summary
from podium.models.journal import Record
from podium.models.model import Contest, Model, Overview, Registry
from podium.models.pointers import CHAMPION
from podium.models.rule import Decision, PromotionRule, decide
from podium.models.version import FileRecord, Version
from podium.storage import connect

__all__ = [
    "CHAMPION",
    "Contest",
    "Decision",
    "FileRecord",
    "Model",
    "Overview",
    "PromotionRule",
    "Record",
    "Registry",
    "Summary",
    "Version",
    "decide",
    "open_registry",
]


def open_registry(storage_url: str | Path) -> Registry:
    """Open the registry of a storage; an empty storage is an empty registry.

    Args:
        storage_url: A directory or URL, see podium.storage.connect.
    """
    return Registry(connect(storage_url))
