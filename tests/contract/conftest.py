"""The storages a contract test runs over."""

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.storage import Storage, connect


@pytest.fixture(params=["files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    return connect(tmp_path / "a store")


@pytest.fixture
def reopen(storage: Storage) -> Callable[[str], Storage]:
    """Connect to another URL on the same server."""
    return connect
