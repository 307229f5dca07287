"""A model registry that needs nothing but a storage: versions, champion, rule, history; see docs/registry.md."""

from pathlib import Path

from podium.registry.contest import Contest, challenge
from podium.registry.index import Summary
from podium.registry.pointer import CHAMPION
from podium.registry.record import Record
from podium.registry.registry import Registry
from podium.registry.rule import Decision, PromotionRule, decide
from podium.registry.version import FileRecord, Version
from podium.storage import connect

__all__ = [
    "CHAMPION",
    "Contest",
    "Decision",
    "FileRecord",
    "PromotionRule",
    "Record",
    "Registry",
    "Summary",
    "Version",
    "challenge",
    "decide",
    "open_registry",
]


def open_registry(storage_url: str | Path) -> Registry:
    """Open the registry of a storage; an empty storage is an empty registry.

    Args:
        storage_url: As podium.storage.connect takes it.
    """
    return Registry(connect(storage_url))
