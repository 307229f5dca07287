"""A model registry that needs only a storage: versions, champion, promotion rule, history; see docs/registry.md.

Calling the package, ``podium.registry(url)``, is ``podium.api.registry.registry``.
"""

from pathlib import Path

from podium.callable_package import make_callable
from podium.registry.catalog import Summary
from podium.registry.journal import Record
from podium.registry.model import Contest, Model, Overview, Registry
from podium.registry.pointers import CHAMPION
from podium.registry.rule import Decision, PromotionRule, decide
from podium.registry.version import FileRecord, Version
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


make_callable(__name__)
