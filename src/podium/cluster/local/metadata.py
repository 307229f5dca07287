"""Metadata that an API server fills in."""

import secrets
import time
import uuid
from collections.abc import Mapping
from typing import Any

from podium.manifests.conditions import Manifest, timestamp


def new_metadata(metadata: Mapping[str, Any]) -> Manifest:
    """Return the metadata that a new object has beside its own."""
    # The uid begins with the time, so that objects of the same second still sort by age.
    uid = uuid.UUID(int=time.time_ns() << 64 | secrets.randbits(64))
    return {
        "namespace": metadata.get("namespace") or "default",
        "uid": str(uid),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": timestamp(),
    }
