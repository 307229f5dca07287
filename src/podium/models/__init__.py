"""A model registry that needs only a storage: versions, champion, promotion rule, history; see
docs/registry.md."""

from podium.models.championship import Championship
from podium.models.decision import Decision, NotPromoted, Promotion
from podium.models.ledger import CHAMPION
from podium.models.model import Model, Overview, Versions
from podium.models.record import Record
from podium.models.registry import Registry, open_registry
from podium.models.rule import PromotionRule, decide
from podium.models.version import FileRecord, Version

__all__ = [
    "CHAMPION",
    "Championship",
    "Decision",
    "FileRecord",
    "Model",
    "NotPromoted",
    "Overview",
    "Promotion",
    "PromotionRule",
    "Record",
    "Registry",
    "Version",
    "Versions",
    "decide",
    "open_registry",
]
